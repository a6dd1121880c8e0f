"""`dsa check FILE...`: everything that can be found out about documents without running them."""

import json
import sys
import time
from typing import Any

import click

from dsa.checks.explore import MAX_STATES, Exploration
from dsa.checks.report import NOT_JUDGED, Report, check
from dsa.cli.parameters import parse_parameters
from dsa.edge.files import read_document
from dsa.errors import Diagnostic, DocumentError, ParameterError
from dsa.expr import Value, show_value
from dsa.lang import Reading, digest

_UNREADABLE = 2


@click.command("check")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Explore at this value only; repeatable."
)
@click.option("--strict", is_flag=True, help="Warnings too make the exit code 1.")
@click.option(
    "--max-states",
    type=click.IntRange(min=1),
    default=MAX_STATES,
    show_default=True,
    help="Stop each exploration after so many configurations.",
)
@click.option(
    "--time-limit", type=click.FloatRange(min=0), metavar="S", help="Stop each exploration after so many seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object for each file.")
def command(
    files: tuple[str, ...],
    parameters: tuple[str, ...],
    *,
    strict: bool,
    max_states: int,
    time_limit: float | None,
    as_json: bool,
) -> None:
    """Check machines and specs: names, types, rows, exploration, Definition 4, scenarios.

    Explores at all defaults and at all minima of the parameters, or at --param. Exit 0 good, 1 findings, 2 unreadable.
    """
    values = parse_parameters(parameters) or None
    codes, written = [], []
    for file in files:
        try:
            reading = read_document(file)
            report = _checked(reading, values, strict=strict, max_states=max_states, time_limit_s=time_limit)
        except (DocumentError, ParameterError) as fault:
            click.echo(str(fault), err=True)
            codes.append(_UNREADABLE)
            written.append(_as_json(file, Reading(None, ()), None, str(fault)))
            continue
        codes.append(_code(reading, report, strict=strict))
        if as_json:
            written.append(_as_json(file, reading, report))
        else:
            _show(file, reading, report)
    if as_json:
        click.echo(json.dumps(written, indent=2))
    sys.exit(max(codes))


def _checked(
    reading: Reading, values: dict[str, Value] | None, *, strict: bool, max_states: int, time_limit_s: float | None
) -> Report | None:
    if reading.machine is None:
        return None
    clock = time.perf_counter
    return check(
        reading.machine,
        parameters=values,
        strict=strict,
        max_states=max_states,
        time_limit_s=time_limit_s,
        clock=clock,
    )


def _code(reading: Reading, report: Report | None, *, strict: bool) -> int:
    if report is None:
        return 1
    warned = strict and any(found.severity == "warning" for found in reading.diagnostics)
    return int(report.failed or warned)


def _show(file: str, reading: Reading, report: Report | None) -> None:
    found = (*reading.diagnostics, *(report.diagnostics if report else ()))
    for diagnostic in found:
        # A note needs no mending, so it takes one line.
        text = diagnostic.render()
        click.echo(text.split("\n")[0] if diagnostic.severity == "info" else text)
    counts = _counts(found)
    if report is None:
        click.echo(f"{file}: {counts}; not a machine")
        return
    for exploration in report.explorations:
        click.echo(f"{file}: {_explored(exploration)}")
    good = sum(result.ok for result in report.scenarios)
    scenarios = f", {good} of {len(report.scenarios)} scenarios run as written" if report.scenarios else ""
    click.echo(f"{file}: {counts}{scenarios}")
    for assumption in report.assumptions:
        click.echo(f"{file}: assumed: {assumption}")
    if report.properties:
        click.echo(f"{file}: {len(report.properties)} properties UNKNOWN: {NOT_JUDGED}")


def _explored(exploration: Exploration) -> str:
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in exploration.parameters.items())
    at = f" at {values}" if values else ""
    rest = "" if exploration.complete else ", stopped at the limit"
    return f"{exploration.configurations} configurations, {exploration.transitions} transitions{at}{rest}"


def _counts(found: tuple[Diagnostic, ...]) -> str:
    words = []
    for severity, plural in (("error", "errors"), ("warning", "warnings"), ("info", "notes")):
        count = sum(diagnostic.severity == severity for diagnostic in found)
        if count or severity != "info":
            singular = "note" if severity == "info" else severity
            words.append(f"{count} {singular if count == 1 else plural}")
    return ", ".join(words)


def _as_json(file: str, reading: Reading, report: Report | None, unreadable: str | None = None) -> dict[str, Any]:
    machine = reading.machine
    found = (*reading.diagnostics, *(report.diagnostics if report else ()))
    return {
        "file": file,
        "unreadable": unreadable,
        "machine": reading.name or None,
        "digest": digest(machine) if machine else None,
        "explorations": [_exploration(exploration) for exploration in report.explorations] if report else [],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in found],
        "properties": [
            {"text": item.text, "line": item.line, "verdict": item.verdict, "values": [], "trace": []}
            for item in (report.properties if report else ())
        ],
        "scenarios": [
            {"name": result.name, "line": result.line, "ok": result.ok, "message": result.message}
            for result in (report.scenarios if report else ())
        ],
    }


def _exploration(exploration: Exploration) -> dict[str, Any]:
    return {
        "parameters": exploration.parameters,
        "states": exploration.configurations,
        "transitions": exploration.transitions,
        "engine": "python",
        "seconds": exploration.seconds,
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "path": diagnostic.span.path,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }
