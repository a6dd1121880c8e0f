"""Writing the certificate of a check or a proof: what `--certificate OUT` does.

`dsa verify CERTIFICATE [FILE]`: let the independent kernel accept or refuse a certificate.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import attrs
import click

from dsa.checks.certificate.certificate_proofs import require_same_steps
from dsa.checks.certificate.certificate_writer import FAULTLESS, Certifier, behaviour, certify_verdicts, kernel_claim
from dsa.checks.report import CheckReport
from dsa.cli.command_line import CommandExit, JsonCommand, ProgressLine, json_option, say, tell_json
from dsa.declarations import show
from dsa.edge.document_files import load, read_text
from dsa.errors import DocumentError
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, TABLE, Claim, needs_file, read, verify_claim
from dsa.lang import dumps, expand_steps
from dsa.machine import Machine
from dsa.text import plural


def canonical(machine: Machine) -> tuple[Machine, str]:
    """Return what a certificate is about: the machine as `step` reads it, Steps expanded, and its canonical document."""
    about = behaviour(expand_steps(machine))
    return about, dumps(about)


def write_certificate(out: str, machine: Machine, fill: Callable[[Certifier], None]) -> None:
    """Write a certificate of what `fill` claims, and say on standard error what it holds and what it leaves out."""
    certifier = Certifier(*canonical(machine))
    fill(certifier)
    made = certifier.draft()
    Path(out).write_text(json.dumps(made.certificate, indent=1) + "\n", encoding="utf-8")
    say(
        f"{out}: {made.claims} claims; `dsa verify {out}` reads them" if made.claims else f"{out}: nothing is claimed",
        err=True,
    )
    for said, why in made.left_out:
        say(f"{out}: not certified: {said}: {why}", err=True)


def write_verdicts(out: str, machine: Machine, report: CheckReport) -> None:
    """Write a certificate of the verdicts of a check."""
    write_certificate(out, machine, lambda certifier: certify_verdicts(certifier, report))


CERTIFIED, REFUSED, NOT_CLAIMED, NOT_ESTABLISHED = "certified", "refused", "not claimed", "not established"
#: A claim without its values and its evidence: what is claimed.
What = tuple[str, tuple[str, ...]]


@attrs.frozen
class KernelVerdict:
    """What the kernel says of a claim, or of a property that no claim is about: the sentence that is established, or why nothing is."""

    verdict: str
    what: What
    said: str

    def __str__(self) -> str:
        return f"{self.verdict:<15}  {self.said}"


@click.command("verify", cls=JsonCommand)
@click.argument("certificate")
@click.argument("file", required=False)
@click.option("--allow-missing", is_flag=True, help="Exit 0 although FILE owes or declares what nothing is claimed of.")
@json_option
def command(certificate: str, file: str | None, *, allow_missing: bool, json_wanted: bool) -> None:
    """Check a certificate with the independent kernel: print the claims it accepts, and why it refuses others.

    The kernel (dsa/kernel.py, which can be copied out and run alone) believes nothing but the machine's tables in the certificate. With
    FILE, these must be that document's too; what every machine owes and each property of FILE is listed as certified, refused or not claimed, and the
    step that runs of it execute is compared with the table. Exit 0: all of that is certified; 1: it is not; 2: unreadable.
    """
    text = read_text(certificate)
    content, compare, wanted = _content(certificate, text), needs_file, dict[What, str]()
    if file is not None:
        machine = load(file)
        expected = canonical(machine)[1]
        if content["machine"] != expected:
            digest = hashlib.sha256(expected.encode()).hexdigest()
            _refuse(certificate, f"it is about another machine than {file}, whose behaviour has the digest {digest}")
        compare, wanted = partial(require_same_steps, machine), _owed(machine)
    claims = content["claims"]
    with ProgressLine("judging claims") as progress:
        found = []
        for number, claim in enumerate(claims, 1):
            progress.tell(f"judging claim {number} of {len(claims)}")
            found.append(_judged(number, claim, content["machine"], compare))
    missing = [
        KernelVerdict(NOT_CLAIMED, what, said) for what, said in wanted.items() if what not in {j.what for j in found}
    ]
    _tell(certificate, file, content, [*found, *missing], json_wanted=json_wanted)
    refused = sum(each.verdict == REFUSED for each in found)
    if refused or (missing and not allow_missing):
        if json_wanted:
            sys.exit(1)
        raise CommandExit(f"{certificate}: {_summary(refused, len(missing))}", 1)


def _tell(
    path: str, file: str | None, content: dict[str, Any], found: list[KernelVerdict], *, json_wanted: bool
) -> None:
    heading = f"{content['machine'].partition(chr(10))[0]} {content['digest']}"
    accepted = [each.said for each in found if each.verdict in {CERTIFIED, NOT_ESTABLISHED}]
    if json_wanted:
        claims = [{"verdict": each.verdict, "said": each.said} for each in found]
        tell_json(
            {
                "certificate": path,
                "file": file,
                "digest": content["digest"],
                "accepted": [heading, *accepted],
                "claims": claims,
            }
        )
        return
    say(heading)
    for each in found:
        say(str(each))


def _summary(refused: int, missing: int) -> str:
    told = [f"{plural(refused, 'claim')} refused"] if refused else []
    if missing:
        told.append(
            f"{missing} of what FILE owes and declares {'is' if missing == 1 else 'are'} not claimed (--allow-missing)"
        )
    return "; ".join(told)


def _owed(machine: Machine) -> dict[What, str]:
    """Return what a certificate of a machine is to claim: what every machine owes, and its properties, as they are told."""
    owed: dict[What, str] = {(form, ()): form for form in (FAULTLESS, NO_DEADLOCK, DEFINITION_4)}
    for declared in machine.properties:
        claim, said = kernel_claim(declared.form), show(declared.form)
        owed[_what(claim) if claim else (said, ())] = said if claim else f"{said} (odds are not certified)"
    return owed


def _what(claim: dict[str, Any]) -> What:
    return claim["form"], tuple(claim["parts"])


def _content(path: str, text: str) -> dict[str, Any]:
    """Return what a certificate holds. Raises DocumentError for what is none, and Ended for one that the kernel refuses as a whole."""
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
    try:
        read(text)
    except AssertionError as why:
        _refuse(path, str(why))
    return content


_WRITTEN_BY = "`dsa prove FILE --certificate OUT` and `dsa check FILE --certificate OUT` write one"
_KINDS = {str: "text", list: "list"}


def _is_claim(claim: object) -> bool:
    kinds = {"form": str, "parts": list, "proofs": list}
    return (
        isinstance(claim, dict)
        and all(isinstance(claim.get(name), kind) for name, kind in kinds.items())
        and all(isinstance(part, str) for part in claim["parts"])
    )


def _judged(number: int, claim: dict[str, Any], machine: str, compare: Callable[[Claim], object]) -> KernelVerdict:
    """Return what the kernel says of a claim."""
    try:
        said = verify_claim(machine, claim, compare)
    except AssertionError as why:
        return KernelVerdict(REFUSED, _what(claim), f"claim {number}: {str(why).partition(chr(10))[0]}")
    except Exception:  # noqa: BLE001  (whatever a certificate brings about is a refusal)
        return KernelVerdict(REFUSED, _what(claim), f"claim {number}: it is not written as the kernel reads it")
    is_open = claim["form"] == TABLE and compare is needs_file
    return KernelVerdict(NOT_ESTABLISHED if is_open else CERTIFIED, _what(claim), said)


def _refuse(path: str, why: str) -> NoReturn:
    raise CommandExit(f"{path}: refused: {why.partition(chr(10))[0]}", 1)
