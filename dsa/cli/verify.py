"""`dsa verify CERTIFICATE [FILE]`: let the independent kernel accept or refuse a certificate.

`write_certificate` writes one for `dsa check` and `dsa prove` (`--certificate OUT`).
"""

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import attrs
import click

from dsa.checks.certificate_proofs import require_same_steps
from dsa.checks.certificate_writer import (
    FAULTLESS,
    Certifier,
    behaviour,
    certify_verdicts,
    kernel_claim,
    reason_without_claim,
)
from dsa.checks.report import CheckReport
from dsa.cli.command_line import CommandExit, JsonCommand, ProgressLine, json_option, print_json, say
from dsa.declarations import show
from dsa.edge.document_files import load, read_text
from dsa.errors import DocumentError
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, TABLE, Claim, needs_file, read, verify_claim
from dsa.lang import dumps, spell_out
from dsa.machine import Machine
from dsa.text import plural


def canonical(machine: Machine) -> tuple[Machine, str]:
    """Return the subject of a certificate: the machine as `step` reads it, Steps expanded, and its canonical document."""
    about = behaviour(spell_out(machine))
    return about, dumps(about)


def write_certificate(
    out: str, machine: Machine, fill: Callable[[Certifier], None], tell: Callable[[str], None] = lambda _: None
) -> None:
    """Write a certificate with the claims of `fill`, and print on standard error how many it has and what it leaves out; `tell` gets what is certified now."""
    certifier = Certifier(*canonical(machine), tell)
    fill(certifier)
    draft = certifier.draft()
    Path(out).write_text(json.dumps(draft.certificate, indent=1) + "\n", encoding="utf-8")
    say(
        f"{out}: {draft.claims} claims; `dsa verify {out}` checks them"
        if draft.claims
        else f"{out}: nothing is claimed",
        err=True,
    )
    for claim, why in draft.left_out:
        say(f"{out}: not certified: {claim}: {why}", err=True)


def write_verdicts(out: str, machine: Machine, report: CheckReport) -> None:
    """Write a certificate of the verdicts of a check."""
    write_certificate(out, machine, lambda certifier: certify_verdicts(certifier, report))


Verdict = Literal["certified", "refused", "not claimed", "not established"]
#: A claim without its values and its evidence: its form and its parts.
What = tuple[str, tuple[str, ...]]


@attrs.frozen
class KernelVerdict:
    """The kernel's verdict on a claim, or on a property without one: the sentence that is established, or why none is."""

    verdict: Verdict
    what: What
    sentence: str

    def __str__(self) -> str:
        return f"{self.verdict:<15}  {self.sentence}"


@click.command("verify", cls=JsonCommand)
@click.argument("certificate")
@click.argument("file", required=False)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Exit with 0 even if the certificate says nothing about a property of FILE, or about a condition that all machines must satisfy.",
)
@json_option
def command(certificate: str, file: str | None, *, allow_missing: bool, json_wanted: bool) -> None:
    """Check a certificate with the independent kernel: print the claims it accepts, and why it refuses others.

    The kernel (dsa/kernel.py, which can be copied out and run alone) believes nothing in the certificate except the machine's tables. With FILE, the tables in the certificate
    must be the same as those of FILE. The output then lists each property of FILE, and each condition that all machines must satisfy, as certified, refused or not claimed. In addition,
    the Python code that `dsa run` would execute for FILE is generated and compared with the tables. Exit code 0: everything that is printed is certified; 1: something is not; 2: a file cannot be read.
    """
    text = read_text(certificate)
    content, compare, required_claims = _content(certificate, text), needs_file, dict[What, str]()
    if file is not None:
        machine = load(file)
        machine_text = canonical(machine)[1]
        if content["machine"] != machine_text:
            digest = hashlib.sha256(machine_text.encode()).hexdigest()
            _refuse(
                certificate,
                f"the certificate is about a different machine; the behaviour of {file} has the digest {digest}",
            )
        compare, required_claims = partial(require_same_steps, machine), _required_claims(machine)
    claims = content["claims"]
    with ProgressLine("judging claims") as progress:
        verdicts = []
        for number, claim in enumerate(claims, 1):
            progress.tell(f"judging claim {number} of {len(claims)}")
            verdicts.append(_judge_claim(number, claim, content["machine"], compare))
    missing = [
        KernelVerdict("not claimed", what, sentence)
        for what, sentence in required_claims.items()
        if what not in {j.what for j in verdicts}
    ]
    _print_verdicts(certificate, file, content, [*verdicts, *missing], json_wanted=json_wanted)
    refused_count = sum(each.verdict == "refused" for each in verdicts)
    if refused_count or (missing and not allow_missing):
        if json_wanted:
            sys.exit(1)
        raise CommandExit(f"{certificate}: {_summary(refused_count, len(missing))}", 1)


def _print_verdicts(
    path: str, file: str | None, content: dict[str, Any], verdicts: list[KernelVerdict], *, json_wanted: bool
) -> None:
    heading = f"{content['machine'].partition(chr(10))[0]} {content['digest']}"
    accepted = [each.sentence for each in verdicts if each.verdict in {"certified", "not established"}]
    if json_wanted:
        claims = [{"verdict": each.verdict, "said": each.sentence} for each in verdicts]
        print_json(
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
    for each in verdicts:
        say(str(each))


def _summary(refused_count: int, missing: int) -> str:
    parts = [f"{plural(refused_count, 'claim')} refused"] if refused_count else []
    if missing:
        parts.append(
            f"{missing} of the requirements and properties of FILE {'is' if missing == 1 else 'are'} not claimed (--allow-missing accepts this)"
        )
    return "; ".join(parts)


def _required_claims(machine: Machine) -> dict[What, str]:
    """Return the required claims of a certificate with their sentences: the requirements of every machine, and its properties."""
    sentences: dict[What, str] = {(form, ()): form for form in (FAULTLESS, NO_DEADLOCK, DEFINITION_4)}
    for declaration in machine.properties:
        claim, sentence = kernel_claim(declaration.form), show(declaration.form)
        sentences[_what(claim) if claim else (sentence, ())] = (
            sentence if claim else f"{sentence} ({reason_without_claim(declaration.form)})"
        )
    return sentences


def _what(claim: dict[str, Any]) -> What:
    return claim["form"], tuple(claim["parts"])


def _content(path: str, text: str) -> dict[str, Any]:
    """Read a certificate. Raises DocumentError for other texts, and CommandExit for one that the kernel refuses as a whole."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise DocumentError(path, f"is not a certificate: it is not valid JSON; {_WRITTEN_BY}") from None
    if not isinstance(content, dict):
        raise DocumentError(path, f"is not a certificate: it is not a JSON object; {_WRITTEN_BY}")
    for name, kind in {"machine": str, "digest": str, "claims": list}.items():
        if not isinstance(content.get(name), kind):
            raise DocumentError(path, f"is not a certificate: its '{name}' must be a {_KINDS[kind]}; {_WRITTEN_BY}")
    for number, claim in enumerate(content["claims"], start=1):
        if not _is_claim(claim):
            message = f"is not a certificate: claim {number} must be an object with a text 'form', and lists 'parts' and 'proofs'"
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


def _judge_claim(number: int, claim: dict[str, Any], machine: str, compare: Callable[[Claim], object]) -> KernelVerdict:
    """Return the kernel's verdict on a claim."""
    try:
        sentence = verify_claim(machine, claim, compare)
    except AssertionError as why:
        return KernelVerdict("refused", _what(claim), f"claim {number}: {str(why).partition(chr(10))[0]}")
    except Exception:  # noqa: BLE001  (any error by a certificate is a refusal)
        return KernelVerdict("refused", _what(claim), f"claim {number}: it is not in the form that the kernel reads")
    is_open = claim["form"] == TABLE and compare is needs_file
    return KernelVerdict("not established" if is_open else "certified", _what(claim), sentence)


def _refuse(path: str, why: str) -> NoReturn:
    raise CommandExit(f"{path}: refused: {why.partition(chr(10))[0]}", 1)
