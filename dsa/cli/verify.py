"""`dsa verify CERTIFICATE [FILE]`: let the independent kernel accept or refuse a certificate."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import click

from dsa.checks.certify_steps import require_same_steps
from dsa.cli.certificates import canonical
from dsa.cli.faults import Ended, JsonCommand, json_option, tell_json
from dsa.edge.files import load, read_text
from dsa.errors import DocumentError
from dsa.kernel import Claim, verify


@click.command("verify", cls=JsonCommand)
@click.argument("certificate")
@click.argument("file", required=False)
@json_option
def command(certificate: str, file: str | None, *, json_wanted: bool) -> None:
    """Check a certificate with the independent kernel: print the claims it accepts, or why it refuses.

    The kernel (dsa/kernel.py, which can be copied out and run alone) believes nothing but the machine's tables in the certificate;
    with FILE, these must be that document's too, and the step that runs of it execute is compared with them. Exit 0 accepted, 1 refused, 2 unreadable.
    """
    text = read_text(certificate)
    content, compare = _content(certificate, text), None
    if file is not None:
        machine = load(file)
        expected = canonical(machine)[1]
        if content["machine"] != expected:
            digest = hashlib.sha256(expected.encode()).hexdigest()
            _refuse(certificate, f"it is about another machine than {file}, whose behaviour has the digest {digest}")
        compare = partial(require_same_steps, machine)
    accepted = _accepted(certificate, text, compare)
    if json_wanted:
        tell_json({"certificate": certificate, "file": file, "digest": content["digest"], "accepted": accepted})
        return
    for claim in accepted:
        click.echo(claim)


def _content(path: str, text: str) -> dict[str, Any]:
    """Give what a certificate holds. Raises DocumentError for what is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise DocumentError(path, f"is no certificate: it is no JSON; {_WRITTEN_BY}") from None
    if not isinstance(content, dict):
        raise DocumentError(path, f"is no certificate: it is no JSON object; {_WRITTEN_BY}")
    for name, kind in {"machine": str, "digest": str, "claims": list}.items():
        if not isinstance(content.get(name), kind):
            raise DocumentError(path, f"is no certificate: its '{name}' must be a {_KINDS[kind]}; {_WRITTEN_BY}")
    for number, claim in enumerate(content["claims"], start=1):
        if not _is_claim(claim):
            message = f"is no certificate: claim {number} must be an object with a text 'form', and lists 'parts' and 'proofs'"
            raise DocumentError(path, f"{message}; {_WRITTEN_BY}")
    return content


_WRITTEN_BY = "`dsa prove FILE --certificate OUT` and `dsa check FILE --certificate OUT` write one"
_KINDS = {str: "text", list: "list"}


def _is_claim(claim: object) -> bool:
    kinds = {"form": str, "parts": list, "proofs": list}
    return isinstance(claim, dict) and all(isinstance(claim.get(name), kind) for name, kind in kinds.items())


def _accepted(path: str, text: str, compare: Callable[[Claim], None] | None) -> list[str]:
    """Give what the kernel says of the machine and of every claim; leave when it refuses."""
    said: list[str] = []
    try:
        said += verify(text, compare) if compare else verify(text)
    except AssertionError as why:
        _refuse(path, str(why))
    except Exception:  # noqa: BLE001  (whatever a certificate brings about is a refusal)
        what = f"claim {len(said)} is not written" if said else "the machine is not written"
        _refuse(path, f"{what} as the kernel reads it")
    return said


def _refuse(path: str, why: str) -> NoReturn:
    raise Ended(f"{path}: refused: {why.partition(chr(10))[0]}", 1)
