"""The report of a check as JSON and as SARIF 2.1.0, for programs."""

import importlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from dsa import lang
from dsa.checks.explore import Exploration
from dsa.checks.report import Report
from dsa.checks.verdicts import PropertyResult
from dsa.cli.faults import fault_as_json
from dsa.errors import CODES, Diagnostic, DsaError, Span
from dsa.lang import Reading
from dsa.records import step_as_json
from dsa.trace import Trace, recorded

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
Checked = tuple[str, Reading, Report | None, DsaError | None, str]


def as_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return what was found in documents as an object; where one cannot be read, it tells the first such failure too."""
    failures = [fault_as_json(fault) for *_, fault, _ in checked if fault is not None]
    return {"files": [_file(*each) for each in checked], **(failures[0] if failures else {})}


def _file(file: str, reading: Reading, report: Report | None, fault: DsaError | None, unbound: str) -> dict[str, Any]:
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


def _found(reading: Reading, report: Report | None) -> tuple[Diagnostic, ...]:
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
        "must_not_fail": list(result.unfailing),
        "assumes": list(result.assumes),
        "values": [dict(values) for values in result.values],
        "trace": steps_as_json(result.trace) if result.trace else [],
        "loop": result.loop,
        "more": [{"trace": steps_as_json(trace), "loop": loop} for trace, loop in result.more],
        "passing": steps_as_json(result.passing) if result.passing else None,
    }


def steps_as_json(trace: Trace) -> list[dict[str, Any]]:
    """Give the steps of a trace as objects."""
    return [step_as_json(step) for step in recorded(trace, "").steps]


def as_sarif(checked: Iterable[Checked]) -> dict[str, Any]:
    """Give what was found in documents as one log of SARIF 2.1.0."""
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
    """Give a text as SARIF has it (3.11.5): a brace stands for itself when it is doubled, else for an argument."""
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
    """Give a path as SARIF has it: with slashes, and what no address may hold as its code."""
    whole = PurePath(path)
    return whole.as_uri() if whole.is_absolute() else quote(os.fsencode(whole.as_posix()))
