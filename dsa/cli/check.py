"""The report of a check as JSON and as SARIF 2.1.0, for programs.

What `dsa check` found out, as text for people.

`dsa check FILE...`: everything that can be found out about documents without running them.
"""

import importlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

import attrs
import click

from dsa import lang
from dsa.checks.report import (
    CheckReport,
    PropertyResult,
    check,
    counted_text,
    explored_text,
    findings_text,
    totals_text,
)
from dsa.checks.search.exploration import MAX_STATES, Exploration, automatic
from dsa.cli.command_line import (
    SECONDS,
    UNREADABLE,
    ColouredWord,
    JsonCommand,
    ProgressLine,
    fault_as_json,
    json_option,
    max_states_option,
    param_option,
    parse_parameters,
    require_file,
    require_folder,
    say,
    tell_json,
)
from dsa.edge.document_files import locate, read_document
from dsa.errors import CODES, MOST_SHOWN, Diagnostic, DocumentError, DsaError, MachineError, ParameterError, Span, more
from dsa.expr import Value
from dsa.lang import DocumentReading
from dsa.machine import Machine
from dsa.trace import Trace, show_events, show_values, to_record
from dsa.trace_format import step_as_json

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
#: The rules that results about properties belong to.
_VERDICTS = {"VIOLATED": "A property is violated.", "UNKNOWN": "A property is not judged."}
#: The rules that results about whole files belong to.
_FILES = {
    "unreadable": "A file cannot be read as a document.",
    "unbound": "A module binds a name to what cannot do its work, or to nothing.",
}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


#: A file, what was read and found in it, why it could not be read, and what a module does not bind as it must be.
Checked = tuple[str, DocumentReading, CheckReport | None, DsaError | None, str]


def as_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return what was found in documents as an object; where one cannot be read, it tells the first such failure too."""
    failures = [fault_as_json(fault) for *_, fault, _ in checked if fault is not None]
    return {"files": [_file(*each) for each in checked], **(failures[0] if failures else {})}


def _file(
    file: str, reading: DocumentReading, report: CheckReport | None, fault: DsaError | None, unbound: str
) -> dict[str, Any]:
    machine = reading.machine
    return {
        "file": file,
        "unreadable": None if fault is None else str(fault),
        "machine": reading.name or None,
        "digest": lang.digest(machine) if machine else None,
        "explorations": [_exploration(exploration) for exploration in report.explorations] if report else [],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in _found(reading, report)],
        "properties": [_property(result) for result in report.properties] if report else [],
        "scenarios": [
            {"name": result.name, "line": result.line, "ok": result.ok, "message": result.message}
            for result in (report.scenarios if report else ())
        ],
        "rests": list(report.rests) if report else [],
        "unbound": unbound or None,
    }


def _found(reading: DocumentReading, report: CheckReport | None) -> tuple[Diagnostic, ...]:
    return (*reading.diagnostics, *(report.diagnostics if report else ()))


def _exploration(exploration: Exploration) -> dict[str, Any]:
    return {
        "parameters": exploration.parameters,
        "states": exploration.configurations,
        "transitions": exploration.transitions,
        "engine": exploration.engine,
        "seconds": exploration.seconds,
        "complete": exploration.complete,
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


def _property(result: PropertyResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "line": result.line,
        "verdict": result.verdict,
        "reason": result.reason,
        "condition": result.condition,
        "relies_on": list(result.relies_on),
        "must_not_fail": list(result.must_not_fail),
        "assumes": list(result.assumes),
        "values": [dict(values) for values in result.values],
        "trace": steps_as_json(result.trace) if result.trace else [],
        "loop": result.loop,
        "more": [{"trace": steps_as_json(trace), "loop": loop} for trace, loop in result.more],
        "passing": steps_as_json(result.passing_run) if result.passing_run else None,
    }


def steps_as_json(trace: Trace) -> list[dict[str, Any]]:
    """Return the steps of a trace as objects."""
    return [step_as_json(step) for step in to_record(trace, "").steps]


def as_sarif(checked: Iterable[Checked]) -> dict[str, Any]:
    """Return what was found in documents as one log of SARIF 2.1.0."""
    results: list[dict[str, Any]] = []
    for file, reading, report, fault, unbound in checked:
        if fault is not None:
            results.append(_result("unreadable", "error", str(fault), None, file))
        if unbound:
            results.append(_result("unbound", "error", unbound, None, file))
        for found in _found(reading, report):
            text = f"{found.message}. Hint: {found.hint}" if found.hint else found.message
            results.append(_result(found.code, _LEVELS[found.severity], text, found.span, file))
        results += [_verdict(result, file) for result in (report.properties if report else ()) if result.failed]
    told = CODES | _VERDICTS | _FILES
    rules = [{"id": code, "shortDescription": _message(text)} for code, text in told.items()]
    driver = {
        "name": "dsa",
        "version": importlib.import_module("importlib.metadata").version("dual-state-agents"),
        "rules": rules,
    }
    runs = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def _verdict(result: PropertyResult, file: str) -> dict[str, Any]:
    text = f"{result.verdict}: {result.text}: {result.reason}"
    if result.trace is not None:
        # 3.11.3: there is no white space for the sake of the layout.
        text += "\n" + re.sub(" {2,}", ", ", result.trace.show(result.loop))
    span = result.claim.span if result.claim else None
    level = "error" if result.verdict == "VIOLATED" else "warning"
    found = _result(result.verdict, level, text, span, file)
    steps = [step for step in (result.trace.steps if result.trace else ()) if step.row.span is not None]
    if steps:
        told = [{"message": _message(f"{step.occurrence.event}: {step.state}")} for step in steps]
        places = [{"location": _location(step.row.span, file) | each} for step, each in zip(steps, told, strict=True)]
        found["codeFlows"] = [{"threadFlows": [{"locations": places}]}]
    return found


def _result(rule: str, level: str, text: str, span: Span | None, file: str) -> dict[str, Any]:
    return {"ruleId": rule, "level": level, "message": _message(text), "locations": [_location(span, file)]}


def _message(text: str) -> dict[str, str]:
    """Return a text as SARIF has it (3.11.5): a brace stands for itself when it is doubled, else for an argument."""
    return {"text": text.replace("{", "{{").replace("}", "}}")}


def _location(span: Span | None, file: str) -> dict[str, Any]:
    path = span.path if span else file
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(path)}}
    if span:
        # 3.30.8: what stands after a line's last character is an empty region, not one beyond the line.
        last = len(span.text) + 1
        start, end = min(span.column, last), min(max(span.end, span.column + 1), last)
        place["region"] = {"startLine": span.line, "startColumn": start, "endLine": span.line, "endColumn": end}
    else:
        place["region"] = {"startLine": 1}
    return {"physicalLocation": place}


def _uri(path: str) -> str:
    """Return a path as SARIF has it: with slashes, and what no address may hold as its code."""
    whole = PurePath(path)
    return whole.as_uri() if whole.is_absolute() else quote(os.fsencode(whole.as_posix()))


_VERDICT_COLOURS = {"HOLDS": "green", "VIOLATED": "red", "UNKNOWN": "yellow"}
#: A verdict takes so many columns, so that what follows is aligned.
_VERDICT_WIDTH = len("VIOLATED")


def tell(file: str, reading: DocumentReading, report: CheckReport | None, *, traces: int = 1) -> None:
    """Print what was found in a document."""
    found = (*reading.diagnostics, *(report.diagnostics if report else ()))
    for diagnostic in found[:MOST_SHOWN]:
        # A note needs no mending, so it takes one line.
        text = diagnostic.render()
        say(text.split("\n")[0] if diagnostic.severity == "info" else text)
    for line in more(found):
        say(line)
    if report is None:
        say(f"{file}: {findings_text(found)}; not a machine")
        return
    for exploration in report.explorations:
        say(f"{file}: {explored_text(exploration)}")
    places = places_of(result.claim.span if result.claim else None for result in report.properties)
    for place, result in zip(places, report.properties, strict=True):
        if not result.blocking_codes:
            _tell_property(place, result, report, traces)
    _tell_waiting(report)
    if report.rests:
        say(f"{file}: rests in: {', '.join(report.rests)}")
    say(f"{file}: {totals_text(found, report)}")


def _tell_waiting(report: CheckReport) -> None:
    """Say in one line which properties an error keeps from being judged: it is the error that needs mending."""
    waiting = [result for result in report.properties if result.blocking_codes]
    if waiting:
        codes = " and ".join(waiting[0].blocking_codes)
        are, stand = "is" if len(waiting) == 1 else "are", "stands" if len(waiting[0].blocking_codes) == 1 else "stand"
        properties = counted_text(len(waiting), "property", "properties")
        say(_painted("UNKNOWN"), f"  {properties} {are} not judged while {codes} {stand}")


def _tell_property(place: str, result: PropertyResult, report: CheckReport, traces: int) -> None:
    explored = tuple(tuple(exploration.parameters.items()) for exploration in report.explorations)
    at = "; ".join(filter(None, map(show_values, result.values)))
    where = f"  at {at}" if at and (result.values != explored or result.verdict != "HOLDS") else ""
    say(_painted(result.verdict), f"  {place}{result.text}{where}")
    if result.condition:
        say(f"{' ' * _VERDICT_WIDTH}  {result.verdict} if {result.condition}")
    for line in _details(result, traces):
        say(f"{' ' * _VERDICT_WIDTH}  {line}")


def places_of(spans: Iterable[Span | None]) -> list[str]:
    """Say for each property in which line it stands; in which document too, where there are several."""
    spans = list(spans)
    paths = {span.path for span in spans if span}
    short = {PurePath(path).name for path in paths}
    found = []
    for span in spans:
        if span is None:
            found.append("")
        elif len(paths) == 1:
            found.append(f"line {span.line}: ")
        else:
            found.append(f"{PurePath(span.path).name if len(short) == len(paths) else span.path}:{span.line}: ")
    return found


def _details(result: PropertyResult, traces: int) -> Iterator[str]:
    if result.reason:
        yield result.reason
    if result.assumes:
        yield f"assuming: {'; '.join(result.assumes)}"
    if result.trace is None:
        return
    if result.verdict == "HOLDS" and traces == 1:
        events = show_events([taken.occurrence for taken in result.trace.steps])
        yield f"for one, by: {events}" if events else "already at the start"
        return
    yield from _shown(result.trace, result.loop)
    for number, (trace, loop) in enumerate(result.more, 2):
        yield f"counterexample {number}, by other rows:"
        yield from _shown(trace, loop)
    if result.passing_run is not None:
        yield "the nearest run that passes:"
        yield from _shown(result.passing_run)


def _shown(trace: Trace, loop: int | None = None) -> Iterator[str]:
    for line in trace.show(loop).split("\n"):
        yield f"  {line}"


def _painted(verdict: str) -> ColouredWord:
    return ColouredWord(verdict.ljust(_VERDICT_WIDTH), _VERDICT_COLOURS.get(verdict))


@attrs.frozen
class _Options:
    """What was asked for besides the files."""

    values: dict[str, Value] | None
    each_value: bool
    strict: bool
    max_states: int
    time_limit_s: float | None
    traces: int
    module: str | None


@attrs.frozen
class _FileResult:
    """One file and what was found in it; `fault` is why it could not be read, `unbound` what a module does not bind as it must be."""

    file: str
    reading: DocumentReading
    report: CheckReport | None
    fault: DsaError | None = None
    unbound: str = ""

    def code(self, *, strict: bool) -> int:
        """Return the exit code."""
        if self.fault is not None:
            return UNREADABLE
        if self.report is None or self.unbound:
            return 1
        warned = strict and any(found.severity == "warning" for found in self.reading.diagnostics)
        return int(self.report.failed or warned)


@click.command("check", cls=JsonCommand)
@click.argument("files", nargs=-1, required=True)
@param_option("Explore at this value only; repeatable.")
@click.option(
    "--each-value",
    is_flag=True,
    help="Explore at each value of the parameters, those of --param fixed; at most 64 combinations.",
)
@click.option("--strict", is_flag=True, help="Warnings too make the exit code 1.")
@max_states_option(MAX_STATES)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop after so many seconds.")
@click.option(
    "--traces",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Show up to N counterexamples that take different rows, and the nearest run that passes.",
)
@click.option("--trace", "trace", metavar="FILE", help="Run a recorded trace again, and watch the properties on it.")
@click.option(
    "--save-traces",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every counterexample and witness here, as JSONL.",
)
@click.option("--itf", is_flag=True, help="Write them in the Informal Trace Format instead.")
@click.option(
    "--with",
    "module",
    metavar="MODULE",
    help="Also look whether this module, by its name or file, binds all names. It is imported; nothing is run.",
)
@click.option("--certificate", metavar="OUT", help="Write what HOLDS so that `dsa verify` accepts it.")
@json_option
@click.option("--sarif", "sarif_wanted", is_flag=True, help="Print one SARIF 2.1.0 log.")
def command(
    files: tuple[str, ...],
    parameters: tuple[str, ...],
    *,
    each_value: bool,
    strict: bool,
    max_states: int,
    time_limit: float | None,
    traces: int,
    trace: str | None,
    folder: Path | None,
    itf: bool,
    module: str | None,
    certificate: str | None,
    json_wanted: bool,
    sarif_wanted: bool,
) -> None:
    """Check machines and specs: names, types, rows, exploration, Definition 4, scenarios, properties.

    Explores at all defaults and at all minima of the parameters, at --param, or at --each-value. Exit 0 good, 1 findings, VIOLATED or UNKNOWN, 2
    unreadable. With --trace it only runs that trace again.
    """
    _require_sense(files, certificate, json_wanted=json_wanted, sarif_wanted=sarif_wanted)
    _require_targets(folder, certificate, itf=itf)
    if trace is not None:
        sys.exit(importlib.import_module("dsa.cli.replay").replayed(files, trace, json_wanted=json_wanted))
    options = _Options(parse_parameters(parameters) or None, each_value, strict, max_states, time_limit, traces, module)
    checked = []
    for file in files:
        checked.append(_checked(file, options))
        _tell(checked[-1], options, is_for_people=not json_wanted and not sarif_wanted)
        _save(checked[-1], folder, certificate, itf=itf)
    if json_wanted or sarif_wanted:
        each = [(c.file, c.reading, c.report, c.fault, c.unbound) for c in checked]
        tell_json(as_sarif(each) if sarif_wanted else as_json(each))
    sys.exit(max(found.code(strict=strict) for found in checked))


def _tell(found: _FileResult, options: _Options, *, is_for_people: bool) -> None:
    """Print what was found in a file, or why it cannot be read."""
    if found.fault is not None:
        say(str(found.fault), err=True)
    elif is_for_people:
        tell(found.file, found.reading, found.report, traces=options.traces)
        if options.module is not None and found.report is not None:
            say(found.unbound or f"{found.file}: {options.module} binds all that it needs")


def _require_sense(files: tuple[str, ...], certificate: str | None, *, json_wanted: bool, sarif_wanted: bool) -> None:
    if json_wanted and sarif_wanted:
        raise click.UsageError("--json and --sarif exclude each other")
    if certificate is not None and len(files) != 1:
        raise click.UsageError("--certificate takes one FILE: the machine that it is about")


def _require_targets(folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Notice before the work what could not be written after it."""
    if itf and folder is None:
        raise click.UsageError("--itf is for --save-traces: it says how they are written")
    require_folder(folder, "--save-traces")
    require_file(certificate, "--certificate")


def _save(found: _FileResult, folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Write the traces and the certificate that were asked for."""
    report, machine = found.report, found.reading.machine
    if report is None or machine is None:
        return
    if folder is not None:
        for path in importlib.import_module("dsa.cli.draw").save_traces(folder, report, itf=itf):
            say(f"wrote {path}", err=True)
    if certificate is not None:
        importlib.import_module("dsa.cli.verify").write_verdicts(certificate, machine, report)


def _checked(file: str, options: _Options) -> _FileResult:
    try:
        with ProgressLine("comparing rows") as progress:
            reading = read_document(file)
            if reading.machine is None:
                return _FileResult(file, reading, None)
            report = check(
                reading.machine, parameters=options.values, each_value=options.each_value, strict=options.strict, max_states=options.max_states,
                time_limit_s=options.time_limit_s, clock=time.perf_counter, progress=progress, engine=automatic(_compile),
                traces=options.traces,
            )  # fmt: skip
    except (DocumentError, ParameterError) as fault:
        return _FileResult(file, DocumentReading(None, ()), None, fault)
    return _FileResult(file, reading, report, None, _unbound(file, reading.machine, options.module))


def _unbound(file: str, machine: Machine, module: str | None) -> str:
    """Return what a module does not bind as it must be; empty when all is well, and when there is no module to look at."""
    if module is None:
        return ""
    try:
        importlib.import_module("dsa.runs.bindings").bind(machine, path=locate(file), module=module)
    except MachineError:
        return ""  # what is wrong with the table is told above
    except DsaError as fault:
        return str(fault)
    return ""


def _compile(source: str) -> Any:  # noqa: ANN401  (a library of ctypes, which few checks need too)
    """Compile C text; without a compiler this fails, and another engine does the search."""
    return importlib.import_module("dsa.edge.processes").compiled(source)
