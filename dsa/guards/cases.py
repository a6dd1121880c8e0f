"""The guard of cases: it judges code by calls and the values that they must give.

It takes calls with expected values. The code runs in the sandbox (`dsa.edge.sandbox`), in a process that
reports what each call gave; the expected values stay in this process. Exit status and printed text mean nothing.
"""

import ast
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from dsa.declarations import Case
from dsa.edge.sandbox import Bounds, Confinement, SandboxOutcome, SandboxProgram, run_confined
from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.feedback import bound_text, clip
from dsa.guards.pytest_guard import records
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_USUAL = (
    "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq",
    "itertools", "json", "math", "operator", "os", "random", "re", "statistics", "string", "textwrap", "types", "typing",
)  # fmt: skip
_PROGRAM = SandboxProgram(Path(__file__).with_name("cases_child.py").read_text(encoding="utf-8"), _USUAL)
_LONGEST_S = 86_400
_MOST_DETAILED = 3
_MOST_LISTED = 10


class CasesGuard(GuardInterface):
    """Pass code for which every call gives the expected value, of the same type at every depth (True is not 1).

    `cases` are `Case` objects, or pairs of a call and what is expected: a text is read as a Python literal, as in
    the table; anything else is the value itself. Calls are trusted text; floats must match exactly. The feedback
    names the first wrong calls and what they gave, never what was expected unless `show_expected`. `require` names
    features of the sandbox, or a rung, without which nothing is run; `rung` uses this rung instead of the best one. Raises ValueError
    if there are no cases, and for a call that is not an expression, an expected text that is not a literal, an invalid time limit or unknown names.
    """

    def __init__(
        self,
        cases: Iterable[Case | tuple[str, object]],
        timeout_s: float = 10,
        *,
        show_expected: bool = False,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        self._cases = tuple(_read_case(case) for case in cases)
        if not self._cases:
            raise ValueError("a guard of the kind 'cases' needs at least one case")
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(
                f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s and at most {_LONGEST_S} s"
            )
        self._bounds = Bounds(timeout_s=timeout_s)
        self._confinement = Confinement(require, rung)
        self._show_expected = show_expected

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Run the code of the artifact and compare. Raises SandboxError if it cannot be confined as required."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        payload = json.dumps({"code": code, "calls": [call for call, _ in self._cases]})
        outcome = run_confined(_PROGRAM, payload, self._bounds, self._confinement)
        feedback = self._judge(outcome)
        return GuardResult(passed=not feedback, feedback=feedback)

    def _judge(self, outcome: SandboxOutcome) -> str:
        """Return the feedback; empty if every call gave what was expected and nothing else was reported."""
        report = _read_report(outcome.results, len(self._cases))
        if report.unloadable:
            return f"The code cannot be loaded: {clip(report.unloadable)}"
        stop_reason = ""
        if not report.is_whole or outcome.end == "flooded":
            pending = self._cases[len(report.answers) :]
            place = f"at {clip(pending[0][0])}" if pending else "at the end"
            if not report.is_loaded:
                place = "while the code was loaded"
            stop_reason = f"The run stopped {place}: {_reason(outcome, report, self._bounds)}"
        return _compose(stop_reason, self._wrong_calls(report), len(self._cases))

    def _wrong_calls(self, report: "_Report") -> list[str]:
        wrong = []
        for (call, expected_value), (kind, text) in zip(self._cases, report.answers, strict=False):
            if fault := _fault(kind, text, expected_value):
                expectation = f", expected {clip(repr(expected_value))}" if self._show_expected else ""
                wrong.append(f"{clip(call)} {fault}{expectation}")
        return wrong


def _read_case(case: Case | tuple[str, object]) -> tuple[str, object]:
    """Return call and expected value, or raise ValueError."""
    call, expected_value = (case.call, case.expected) if isinstance(case, Case) else case
    try:
        ast.parse(call.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the call '{call}' is not a Python expression") from error
    if not isinstance(expected_value, str):
        return call.strip(), expected_value
    try:
        return call.strip(), ast.literal_eval(expected_value.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"the expected value '{expected_value}' of {call} is not a Python literal") from error


# -- what the child reported --------------------------------------------------------------------------------------


@attrs.frozen
class _Report:
    """The report as it was read. It `is_whole` if every record is there once and in order, and nothing else."""

    is_loaded: bool = False
    unloadable: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    is_whole: bool = False
    is_forged: bool = False


def _read_report(results: bytes, count: int) -> _Report:
    report = _Report()
    for record in records(results):
        report = _add_record(report, record, count)
        if report.is_forged:
            break
    return report


def _add_record(report: _Report, record: list[Any], count: int) -> _Report:
    """Add the one record that may come next; any other is forged."""
    if report.is_whole or report.unloadable:
        return attrs.evolve(report, is_forged=True, is_whole=False, unloadable="")
    match record:
        case ["loaded"] if not report.is_loaded:
            return attrs.evolve(report, is_loaded=True)
        case ["unloadable", str(text)] if not report.is_loaded:
            return attrs.evolve(report, unloadable=text or "no reason given")
        case [int(number), "value" | "raised" | "odd" as kind, str(text)] if (
            report.is_loaded and not isinstance(number, bool) and number == len(report.answers) < count
        ):
            return attrs.evolve(report, answers=(*report.answers, (kind, text)))
        case ["end"] if report.is_loaded and len(report.answers) == count:
            return attrs.evolve(report, is_whole=True)
    return attrs.evolve(report, is_forged=True)


def _fault(kind: str, text: str, expected_value: object) -> str:
    """Return what is wrong with one answer; empty if it is the expected value."""
    if kind == "raised":
        return f"raised {clip(text)}"
    if kind == "value":
        try:
            if _comparable(ast.literal_eval(text)) == _comparable(expected_value):
                return ""
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return "gave something that cannot be read"
    return f"gave {clip(text)}"


def _comparable(value: object) -> object:
    """Return a value that is equal for equal values of equal types only, at every depth."""
    if isinstance(value, list | tuple):
        return type(value), tuple(_comparable(item) for item in value)
    if isinstance(value, set | frozenset):
        return type(value), frozenset(_comparable(item) for item in value)
    if isinstance(value, dict):
        return type(value), frozenset((_comparable(key), _comparable(item)) for key, item in value.items())
    return type(value), value


# -- the feedback -------------------------------------------------------------------------------------------------


def _reason(outcome: SandboxOutcome, report: _Report, bounds: Bounds) -> str:
    if report.is_forged:
        return "the code wrote to the channel of the results."
    if outcome.end == "flooded":
        return f"the results are larger than {bounds.result_bytes // 1024} kB."
    if outcome.end == "timeout":
        return f"it did not finish within {bounds.timeout_s:g} s."
    if outcome.end == "signalled":
        if outcome.cpu_s > bounds.cpu_s - 0.5:
            return f"it used more than {bounds.cpu_s} s of processor time."
        return f"the process was killed ({_signal_name(outcome.code)}), because it crashed or exceeded a limit."
    if outcome.end == "exited":
        return "the process ended before all calls were done."
    return "the process ended for an unknown reason."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _compose(stop_reason: str, wrong: list[str], count: int) -> str:
    """Show the first faults in detail, name the calls of the others, within some hundred characters."""
    lines = [stop_reason] if stop_reason else []
    if wrong:
        lines.append(f"{len(wrong)} of {count} calls failed:" if count > 1 else "The call failed:")
    lines += wrong[:_MOST_DETAILED]
    if others := wrong[_MOST_DETAILED:]:
        names = ", ".join(other.split(" gave ")[0].split(" raised ")[0] for other in others[:_MOST_LISTED])
        more = len(others) - _MOST_LISTED
        lines.append(f"also {names}" + (f" and {more} more" if more > 0 else ""))
    return bound_text("\n".join(lines))
