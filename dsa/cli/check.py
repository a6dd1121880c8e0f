"""`dsa check FILE...`: find out everything about documents that can be found out without running them.

The results are printed for people, or as one object of JSON or one log of SARIF 2.1.0 for programs.
"""

import importlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NoReturn
from urllib.parse import quote

import attrs
import click

from dsa import lang
from dsa.checks.report import (
    CheckReport,
    PropertyResult,
    check,
    explored_text,
    findings_text,
    rest_texts,
    totals_text,
)
from dsa.checks.search.exploration import MAX_STATES, Exploration, automatic
from dsa.cli.command_line import (
    EXIT_UNREADABLE,
    SECONDS,
    ColouredWord,
    JsonCommand,
    ProgressLine,
    family_option,
    fault_as_json,
    json_option,
    max_states_option,
    param_option,
    parse_families,
    parse_parameters,
    print_json,
    require_file,
    require_folder,
    say,
)
from dsa.edge.document_files import locate, read_document
from dsa.errors import CODES, MOST_SHOWN, Diagnostic, DocumentError, DsaError, MachineError, ParameterError, Span, more
from dsa.expr import Value
from dsa.lang import DocumentReading
from dsa.machine import Machine
from dsa.text import plural
from dsa.trace import Trace, show_events, show_values, step_as_json, to_record

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
#: The rules of results about properties.
_VERDICTS = {"VIOLATED": "A property is violated.", "UNKNOWN": "A property is not judged."}
#: The rules of results about whole files.
_FILES = {
    "unreadable": "A file cannot be read as a document.",
    "unbound": "A module binds a name to nothing, or to an object that does not work for that name.",
}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@attrs.frozen
class FileResult:
    """The result of checking one file. `fault` says why it could not be read, `unbound` why a module does not bind its names."""

    file: str
    document: DocumentReading
    report: CheckReport | None
    fault: DsaError | None = None
    unbound: str = ""

    def code(self, *, strict: bool) -> int:
        """Return the exit code."""
        if self.fault is not None:
            return EXIT_UNREADABLE
        if self.report is None or self.unbound:
            return 1
        has_warning = strict and any(diagnostic.severity == "warning" for diagnostic in self.document.diagnostics)
        return int(self.report.failed or has_warning)


def as_json(results: Sequence[FileResult]) -> dict[str, object]:
    """Return the results as one object, with the first failure to read a file if there is one."""
    failures = [fault_as_json(each.fault) for each in results if each.fault is not None]
    return {"files": [_file(each) for each in results], **(failures[0] if failures else {})}


def _file(result: FileResult) -> dict[str, object]:
    document, report = result.document, result.report
    machine = document.machine
    return {
        "file": result.file,
        "unreadable": None if result.fault is None else str(result.fault),
        "machine": document.name or None,
        "digest": lang.digest(machine) if machine else None,
        "explorations": [_exploration(exploration) for exploration in report.explorations] if report else [],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in _diagnostics(document, report)],
        "properties": [_property(each) for each in report.properties] if report else [],
        "scenarios": [
            {"name": each.name, "line": each.line, "ok": each.ok, "message": each.message}
            for each in (report.scenarios if report else ())
        ],
        "rests": list(report.rests) if report else [],
        "timer_waits": list(report.timer_waits) if report else [],
        "unbound": result.unbound or None,
    }


def _diagnostics(document: DocumentReading, report: CheckReport | None) -> tuple[Diagnostic, ...]:
    return (*document.diagnostics, *(report.diagnostics if report else ()))


def _exploration(exploration: Exploration) -> dict[str, object]:
    return {
        "parameters": exploration.parameters,
        "states": exploration.configurations,
        "transitions": exploration.transitions,
        "engine": exploration.engine,
        "seconds": exploration.seconds,
        "complete": exploration.complete,
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, object]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "path": diagnostic.span.path,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def _property(result: PropertyResult) -> dict[str, object]:
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


def steps_as_json(trace: Trace) -> list[dict[str, object]]:
    """Return the steps of a trace as objects."""
    return [step_as_json(step) for step in to_record(trace, "").steps]


def as_sarif(results: Iterable[FileResult]) -> dict[str, object]:
    """Return the results as one log of SARIF 2.1.0."""
    findings: list[dict[str, object]] = []
    for result in results:
        file, report = result.file, result.report
        if result.fault is not None:
            findings.append(_result("unreadable", "error", str(result.fault), None, file))
        if result.unbound:
            findings.append(_result("unbound", "error", result.unbound, None, file))
        for diagnostic in _diagnostics(result.document, report):
            text = f"{diagnostic.message}. Hint: {diagnostic.hint}" if diagnostic.hint else diagnostic.message
            findings.append(_result(diagnostic.code, _LEVELS[diagnostic.severity], text, diagnostic.span, file))
        findings += [_verdict(each, file) for each in (report.properties if report else ()) if each.failed]
    descriptions = CODES | _VERDICTS | _FILES
    rules = [{"id": code, "shortDescription": _message(text)} for code, text in descriptions.items()]
    driver = {
        "name": "dsa",
        "version": importlib.import_module("importlib.metadata").version("dual-state-agents"),
        "rules": rules,
    }
    runs = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": findings}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def _verdict(result: PropertyResult, file: str) -> dict[str, object]:
    text = f"{result.verdict}: {result.text}: {result.reason}"
    if result.trace is not None:
        # SARIF 3.11.3 allows no white space for the layout.
        text += "\n" + re.sub(" {2,}", ", ", result.trace.show(result.loop))
    span = result.claim.span if result.claim else None
    level = "error" if result.verdict == "VIOLATED" else "warning"
    finding = _result(result.verdict, level, text, span, file)
    steps = [step for step in (result.trace.steps if result.trace else ()) if step.row.span is not None]
    if steps:
        messages = [{"message": _message(f"{step.occurrence.event}: {step.state}")} for step in steps]
        places = [
            {"location": _location(step.row.span, file) | each} for step, each in zip(steps, messages, strict=True)
        ]
        finding["codeFlows"] = [{"threadFlows": [{"locations": places}]}]
    return finding


def _result(rule: str, level: str, text: str, span: Span | None, file: str) -> dict[str, object]:
    return {"ruleId": rule, "level": level, "message": _message(text), "locations": [_location(span, file)]}


def _message(text: str) -> dict[str, str]:
    """Return a text as SARIF 3.11.5 wants it: with doubled braces, because a single one begins an argument."""
    return {"text": text.replace("{", "{{").replace("}", "}}")}


def _location(span: Span | None, file: str) -> dict[str, object]:
    path = span.path if span else file
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(path)}}
    if span:
        # SARIF 3.30.8: a region after the last character of a line is empty; it is not beyond the line.
        last = len(span.text) + 1
        start, end = min(span.column, last), min(max(span.end, span.column + 1), last)
        place["region"] = {"startLine": span.line, "startColumn": start, "endLine": span.line, "endColumn": end}
    else:
        place["region"] = {"startLine": 1}
    return {"physicalLocation": place}


def _uri(path: str) -> str:
    """Return a path as a URI, for SARIF."""
    whole = PurePath(path)
    return whole.as_uri() if whole.is_absolute() else quote(os.fsencode(whole.as_posix()))


_VERDICT_COLOURS = {"HOLDS": "green", "VIOLATED": "red", "UNKNOWN": "yellow"}
#: The width of the column of verdicts.
_VERDICT_WIDTH = len("VIOLATED")


def print_result(file: str, document: DocumentReading, report: CheckReport | None, *, traces: int = 1) -> None:
    """Print the result of checking a document."""
    diagnostics = (*document.diagnostics, *(report.diagnostics if report else ()))
    for diagnostic in diagnostics[:MOST_SHOWN]:
        # A note needs no fix, so it takes one line.
        text = diagnostic.render()
        say(text.split("\n")[0] if diagnostic.severity == "info" else text)
    for line in more(diagnostics):
        say(line)
    if report is None:
        say(f"{file}: {findings_text(diagnostics)}; not explored because of these errors")
        return
    for exploration in report.explorations:
        say(f"{file}: {explored_text(exploration)}")
    places = places_of(result.claim.span if result.claim else None for result in report.properties)
    for place, result in zip(places, report.properties, strict=True):
        if not result.blocking_codes:
            _print_property(place, result, report, traces)
    _print_unjudged(report)
    for line in rest_texts(report):
        say(f"{file}: {line}")
    say(f"{file}: {totals_text(diagnostics, report)}")


def _print_unjudged(report: CheckReport) -> None:
    """Print in one line which properties are not judged because of an error, which has to be fixed first."""
    results = [result for result in report.properties if result.blocking_codes]
    if results:
        codes = " and ".join(results[0].blocking_codes)
        are, stand = "is" if len(results) == 1 else "are", "is" if len(results[0].blocking_codes) == 1 else "are"
        properties = plural(len(results), "property", "properties")
        say(_coloured_verdict("UNKNOWN"), f"  {properties} {are} not judged until {codes} {stand} fixed")


def _print_property(place: str, result: PropertyResult, report: CheckReport, traces: int) -> None:
    explored_values = tuple(tuple(exploration.parameters.items()) for exploration in report.explorations)
    at = "; ".join(filter(None, map(show_values, result.values)))
    where = f"  at {at}" if at and (result.values != explored_values or result.verdict != "HOLDS") else ""
    say(_coloured_verdict(result.verdict), f"  {place}{result.text}{where}")
    if result.condition:
        say(f"{' ' * _VERDICT_WIDTH}  {result.verdict} if {result.condition}")
    for line in _details(result, traces):
        say(f"{' ' * _VERDICT_WIDTH}  {line}")


def places_of(spans: Iterable[Span | None]) -> list[str]:
    """Return a label with the line of each property, and with its document if there are several."""
    spans = list(spans)
    paths = {span.path for span in spans if span}
    short = {PurePath(path).name for path in paths}
    labels = []
    for span in spans:
        if span is None:
            labels.append("")
        elif len(paths) == 1:
            labels.append(f"line {span.line}: ")
        else:
            labels.append(f"{PurePath(span.path).name if len(short) == len(paths) else span.path}:{span.line}: ")
    return labels


def _details(result: PropertyResult, traces: int) -> Iterator[str]:
    if result.reason:
        yield result.reason
    if result.assumes:
        yield f"assuming: {'; '.join(result.assumes)}"
    if result.trace is None:
        return
    if result.verdict == "HOLDS" and traces == 1:
        events = show_events([taken.occurrence for taken in result.trace.steps])
        yield f"for example, by: {events}" if events else "already at the start"
        return
    yield from _trace_lines(result.trace, result.loop)
    for number, (trace, loop) in enumerate(result.more, 2):
        yield f"counterexample {number}, which takes other rows:"
        yield from _trace_lines(trace, loop)
    if result.passing_run is not None:
        yield "the nearest run that passes:"
        yield from _trace_lines(result.passing_run)


def _trace_lines(trace: Trace, loop: int | None = None) -> Iterator[str]:
    for line in trace.show(loop).split("\n"):
        yield f"  {line}"


def _coloured_verdict(verdict: str) -> ColouredWord:
    return ColouredWord(verdict.ljust(_VERDICT_WIDTH), _VERDICT_COLOURS.get(verdict))


@attrs.frozen
class _Options:
    """The options of the command."""

    values: dict[str, Value] | None
    each_value: bool
    strict: bool
    max_states: int
    time_limit_s: float | None
    traces: int
    module: str | None
    families: Mapping[str, str]


@click.command("check", cls=JsonCommand)
@click.argument("files", nargs=-1, required=True)
@param_option("Explore only at this value of the parameter NAME. Repeat the option for other parameters.")
@family_option()
@click.option(
    "--each-value",
    is_flag=True,
    help="Explore at every combination of parameter values; there may be at most 64 combinations. A parameter given with --param keeps that value.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 also if there are only warnings.")
@max_states_option(MAX_STATES)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop after S seconds.")
@click.option(
    "--traces",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="For each violated property, show up to N counterexamples that take different rows. For N above 1, also show the run that is most like the first counterexample but keeps the property.",
)
@click.option("--trace", "trace", metavar="FILE", help="Run a recorded trace again, and watch the properties on it.")
@click.option(
    "--save-traces",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write traces to this folder as JSONL: each counterexample and, for each property of the form `possible P`, a run in which P happens.",
)
@click.option("--itf", is_flag=True, help="With --save-traces: use the Informal Trace Format instead of JSONL.")
@click.option(
    "--with",
    "module",
    metavar="MODULE",
    help="Also check that this module (its name or its file) has code for every effect and guard. The module is imported, but no effect or guard is called.",
)
@click.option(
    "--certificate",
    metavar="OUT",
    help="Write to OUT a certificate of everything that HOLDS; `dsa verify` checks it.",
)
@json_option
@click.option("--sarif", "sarif_wanted", is_flag=True, help="Print one SARIF 2.1.0 log.")
def command(
    files: tuple[str, ...],
    parameters: tuple[str, ...],
    families: tuple[str, ...],
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
    """Check machines and specs. A spec is a file with properties and scenarios of a machine. Names, types and rows are checked first. Then every reachable configuration is explored, and the scenarios and properties are checked. Definition 4 of the paper that dsa is based on is checked too: work that a guard has rejected must not count as done.

    The check explores twice: once with every parameter at its default, once with every parameter at its minimum. --param and --each-value choose other
    values. Exit code 0: good; 1: there is an error, or a property is VIOLATED or UNKNOWN; 2: a file cannot be read. With --trace FILE, nothing is explored: only the
    trace in FILE is run again.
    """
    _require_sense(files, certificate, json_wanted=json_wanted, sarif_wanted=sarif_wanted)
    _require_targets(folder, certificate, itf=itf)
    if trace is not None:
        sys.exit(importlib.import_module("dsa.cli.replay").replay_trace(files, trace, json_wanted=json_wanted))
    values, indices = parse_parameters(parameters) or None, parse_families(families)
    options = _Options(values, each_value, strict, max_states, time_limit, traces, module, indices)
    results = []
    for result in _each_result(files, options, is_for_people=not json_wanted and not sarif_wanted):
        results.append(result)
        _save(result, folder, certificate, itf=itf)
    _exit(results, "sarif" if sarif_wanted else "json" if json_wanted else "", strict=strict)


def _each_result(files: Iterable[str], options: _Options, *, is_for_people: bool) -> Iterator[FileResult]:
    """Yield the result of each file after printing it."""
    for file in files:
        result = _check_file(file, options)
        _print_file(result, options, is_for_people=is_for_people)
        yield result


def _exit(results: list[FileResult], form: str, *, strict: bool) -> NoReturn:
    """Print the results as JSON or SARIF if one of them is wanted, and end the program with their exit code."""
    if form:
        print_json(as_sarif(results) if form == "sarif" else as_json(results))
    sys.exit(max(result.code(strict=strict) for result in results))


def _print_file(result: FileResult, options: _Options, *, is_for_people: bool) -> None:
    """Print the result of checking a file, or why it cannot be read."""
    if result.fault is not None:
        say(str(result.fault), err=True)
    elif is_for_people:
        print_result(result.file, result.document, result.report, traces=options.traces)
        if options.module is not None and result.report is not None:
            say(result.unbound or f"{result.file}: {options.module} binds every name that it needs")


def _require_sense(files: tuple[str, ...], certificate: str | None, *, json_wanted: bool, sarif_wanted: bool) -> None:
    if json_wanted and sarif_wanted:
        raise click.UsageError("give --json or --sarif, not both")
    if certificate is not None and len(files) != 1:
        raise click.UsageError("with --certificate, give only one FILE: the machine that the certificate is about")


def _require_targets(folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Raise UsageError before the work if its results could not be written."""
    if itf and folder is None:
        raise click.UsageError("--itf sets the format of --save-traces: give both")
    require_folder(folder, "--save-traces")
    require_file(certificate, "--certificate")


def _save(result: FileResult, folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Write the traces and the certificate that were asked for."""
    report, machine = result.report, result.document.machine
    if report is None or machine is None:
        return
    if folder is not None:
        for path in importlib.import_module("dsa.cli.draw").save_traces(folder, report, itf=itf):
            say(f"wrote {path}", err=True)
    if certificate is not None:
        importlib.import_module("dsa.cli.verify").write_verdicts(certificate, machine, report)


def _check_file(file: str, options: _Options) -> FileResult:
    try:
        with ProgressLine("comparing rows") as progress:
            document = read_document(file, options.families)
            if document.machine is None:
                return FileResult(file, document, None)
            report = check(
                document.machine, parameters=options.values, each_value=options.each_value, strict=options.strict, max_states=options.max_states,
                time_limit_s=options.time_limit_s, clock=time.perf_counter, progress=progress, engine=automatic(_compile),
                traces=options.traces,
            )  # fmt: skip
    except (DocumentError, ParameterError) as fault:
        return FileResult(file, DocumentReading(None, ()), None, fault)
    return FileResult(file, document, report, None, _unbound(file, document.machine, options.module))


def _unbound(file: str, machine: Machine, module: str | None) -> str:
    """Return the names that a module does not bind as it must; "" if there are none, or there is no module."""
    if module is None:
        return ""
    try:
        importlib.import_module("dsa.runs.bindings").bind(machine, path=locate(file), module=module)
    except MachineError:
        return ""  # the report has the errors of the table
    except DsaError as fault:
        return str(fault)
    return ""


def _compile(source: str) -> Any:  # noqa: ANN401  (a ctypes library, which few checks need)
    """Compile C text. Without a compiler this fails, and another engine does the search."""
    return importlib.import_module("dsa.edge.processes").compile_library(source)
