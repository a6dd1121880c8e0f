"""`dsa prove FILE`: the properties that hold for all values of the parameters, and the evidence."""

import sys
import time

import click

from dsa.checks.certificate_writer import certify_proofs
from dsa.checks.proof.conclusion import Gap, expression_text
from dsa.checks.proof.induction import Evidence, ExhaustiveEvidence, Fair, Inductive
from dsa.checks.proof.prover import Proof, ProofReport, prove
from dsa.cli.command_line import (
    SECONDS,
    JsonCommand,
    ProgressLine,
    family_option,
    json_option,
    parse_families,
    print_json,
    require_file,
    say,
)
from dsa.cli.verify import write_certificate
from dsa.edge.document_files import read_document
from dsa.errors import MachineError
from dsa.expr import unparse
from dsa.lang import digest
from dsa.trace import show_loop

_WIDEST = 72


@click.command("prove", cls=JsonCommand)
@click.argument("file")
@json_option
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop after S seconds in all.")
@click.option(
    "--certificate",
    metavar="OUT",
    help="Write to OUT a certificate of everything that is PROVED; `dsa verify` checks it.",
)
@family_option()
def command(
    file: str,
    *,
    json_wanted: bool,
    time_limit: float | None,
    certificate: str | None,
    families: tuple[str, ...],
) -> None:
    """Prove a machine or a spec for all values of its parameters, with z3.

    First come the rules that every machine must keep (never two rows enabled at once, every answer handled, ..), then the properties of FILE. Exit code 0: all of this is PROVED; 1:
    it is not; 2: FILE cannot be read or z3 is not installed. Two things do not change the exit code: the proof that every run ends or waits, and properties about odds. (Properties about odds are decided by `dsa check`.)
    """
    require_file(certificate, "--certificate")
    document = read_document(file, parse_families(families))
    if document.machine is None:
        raise MachineError(document.diagnostics)
    with ProgressLine("comparing rows") as progress:
        report = prove(document.machine, time_limit_s=time_limit, clock=time.perf_counter, progress=progress.tell)
    if not json_wanted:
        _show(file, report)
    if certificate is not None:
        with ProgressLine("writing the certificate") as progress:
            write_certificate(
                certificate, document.machine, lambda certifier: certify_proofs(certifier, report), progress.tell
            )
    if json_wanted:  # at the end, because a failure before prints an object of its own
        print_json(_as_json(file, report))
    sys.exit(0 if report.is_proved else 1)


def _show(file: str, report: ProofReport) -> None:
    proofs = _all(report)
    verdict = max(len(_verdict(proof)) for proof in proofs)
    widest = min(_WIDEST, max(len(proof.text) for proof in proofs))
    for proof in proofs:
        taken = "" if proof.milliseconds is None else f"{proof.milliseconds:.1f} ms"
        line = f"line {proof.line}" if proof.line else ""
        say(f"{_verdict(proof):<{verdict}}  {taken:>9}  {line:<8}  {proof.text:<{widest}}  {proof.how}".rstrip())
        if proof.idle:
            say(
                f"{'':{verdict + 23}}  {proof.idle} never happened at small values; does the property say what you mean?"
            )
        if proof.condition:
            say(f"{'':{verdict + 23}}  {proof.verdict} if {proof.condition}")
        for assumption in proof.assumptions:
            say(f"{'':{verdict + 23}}  assumed: {assumption}")
        if proof.gap is not None:
            say(f"{'':{verdict + 23}}  {proof.gap.why}")
            say(f"{'':{verdict + 23}}  hint: {proof.gap.hint}")
        if proof.trace is not None:
            say(_trace(proof))
    say(f"{file}: {_summary(report)}, in {report.seconds or 0:.2f} s")


def _trace(proof: Proof) -> str:
    assert proof.trace is not None, "asked only then"
    text = proof.trace.show()
    if proof.loop is not None:
        last = len(proof.trace.steps)
        rests = proof.loop == last
        text += (
            "\nand the run may stay there for ever" if rests else f"\n{show_loop(proof.loop, last)} can repeat for ever"
        )
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _summary(report: ProofReport) -> str:
    verdicts = [_verdict(proof) for proof in _all(report)]
    counts = {verdict: verdicts.count(verdict) for verdict in _ORDER}
    odds = sum(not proof.is_asked for proof in report.properties)
    rest = f"; left out: {odds} about odds (dsa check judges {'it' if odds == 1 else 'them'})" if odds else ""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) + _for_all(report) + rest


def _all(report: ProofReport) -> tuple[Proof, ...]:
    """Return all proofs in the order in which they are shown. The proof about rest is among them, if there is one."""
    rest_proof = report.rest or report.not_at_rest
    return (*report.obligations, *([rest_proof] if rest_proof else []), *report.properties)


def _verdict(proof: Proof) -> str:
    """Return the verdict to show; dashes for a proof that is not required."""
    is_required = proof.is_asked and (proof.name != "rest" or proof.verdict == "PROVED")
    return proof.verdict if is_required else _NONE


def _for_all(report: ProofReport) -> str:
    parameters = ", ".join(parameter.name for parameter in report.machine.parameters)
    return f", for all values of {parameters}" if parameters else ""


_NONE = "-" * len("VIOLATED")
_ORDER = ("PROVED", "VIOLATED", "NOT INDUCTIVE", "UNKNOWN")


def _as_json(file: str, report: ProofReport) -> dict[str, object]:
    rest_proof = report.rest or report.not_at_rest
    return {
        "file": file,
        "machine": report.machine.name,
        "digest": digest(report.machine),
        "proved": report.is_proved,
        "obligations": [_proof(report, proof) for proof in report.obligations],
        "rest": None if rest_proof is None else _proof(report, rest_proof),
        "properties": [_proof(report, proof) for proof in report.properties],
        "seconds": report.seconds,
    }


def _proof(report: ProofReport, proof: Proof) -> dict[str, object]:
    return {
        "name": proof.name,
        "text": proof.text,
        "line": proof.line,
        "verdict": proof.verdict,
        "how": proof.how,
        "for_all_values": proof.is_asked,
        "milliseconds": proof.milliseconds,
        "evidence": None if proof.evidence is None else _evidence(report, proof.evidence),
        "values": dict(proof.values),
        "trace": None if proof.trace is None else _steps(proof),
        "loop": proof.loop,
        "condition": proof.condition,
        "relies_on": list(proof.relies_on),
        "must_not_fail": list(proof.must_not_fail),
        "assumptions": list(proof.assumptions),
        "idle": proof.idle,
        "gap": None if proof.gap is None else _gap(proof.gap),
    }


def _gap(gap: Gap) -> dict[str, object]:
    return {
        "state": gap.state,
        "outstanding": list(gap.outstanding),
        "values": dict(gap.values),
        "at": dict(gap.parameters),
        "event": gap.event,
        "line": gap.line,
        "why": gap.why,
        "hint": gap.hint,
    }


def _steps(proof: Proof) -> list[dict[str, object]]:
    assert proof.trace is not None, "asked only then"
    return [
        {
            "event": taken.occurrence.event,
            "verdicts": dict(taken.occurrence.verdicts),
            "line": taken.line,
            "state": taken.state,
            "changed": dict(taken.changed),
            "effects": list(taken.effects),
        }
        for taken in proof.trace.steps
    ]


def _evidence(report: ProofReport, evidence: Evidence) -> dict[str, object]:
    if isinstance(evidence, ExhaustiveEvidence):
        return {
            "valuations": [dict(values) for values in evidence.valuations],
            "configurations": evidence.configurations,
        }
    lemmas = [
        {**_where(report, lemma.location), "condition": expression_text(lemma.condition)} for lemma in evidence.lemmas
    ]
    if isinstance(evidence, Inductive):
        return {"lemmas": lemmas}
    commands = [report.system.commands[index] for index in sorted(evidence.strategy)]
    ranks = [{**_where(report, place), "rank": list(map(unparse, rank))} for place, rank in enumerate(evidence.ranks)]
    awaited_names = [
        str(item.name if isinstance(item, Fair) else item) if item else None for item in evidence.expectations
    ]
    rows = [str(report.machine.transitions[command.row]) for command in commands]
    return {"lemmas": lemmas, "ranks": ranks, "awaited": awaited_names, "strategy": rows}


def _where(report: ProofReport, location: int) -> dict[str, object]:
    here = report.system.locations[location]
    return {"state": here.state, "outstanding": sorted(here.outstanding)}
