"""Read what a run of tests reported, believing none of it that is not whole, and say what failed."""

import json
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsa.edge.sandbox import Bounds, Outcome
from dsa.guards.feedback import bounded, clip

_MOST_DETAILED = 3
_MOST_LISTED = 10


@attrs.frozen
class Report:
    """What could be read. It `is_whole` when each test that was collected is there once, in order (none where they are only collected), then the end.

    `faults` has for each test that did not pass what was reported of it; `reason` says why the report is not whole.
    """

    collected: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    faults: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    is_collected: bool = False
    is_over: bool = False
    is_whole: bool = False
    reason: str = ""

    @property
    def has_tests(self) -> bool:
        """Tell whether tests were found, whatever became of them."""
        return self.is_collected and bool(self.collected)

    @property
    def barred(self) -> dict[str, dict[str, Any]]:
        """The tests that no code can pass, with what was reported: a fixture that does not exist, a mark that skips."""
        return {name: fault for name, fault in self.faults.items() if fault.get("by") == "tests"}

    @property
    def all_passed(self) -> bool:
        """Tell whether there were tests, and none did anything but pass."""
        return bool(self.collected) and not self.faults

    def feedback(self, *, show_expected: bool) -> str:
        """Say what is wrong, within some hundred characters; empty when every test passed."""
        lines = [] if self.is_whole else [self.reason]
        if self.is_whole and not self.collected:
            lines.append("There is not one test to run.")
        if self.faults:
            lines.append(f"{len(self.faults)} of {len(self.collected)} tests failed:")
            lines += told(self.faults, show_expected=show_expected)
        return bounded("\n".join(lines))


def told(faults: Mapping[str, dict[str, Any]], *, show_expected: bool = False) -> list[str]:
    """Say how the first tests failed, a line each; name the others."""
    lines = [_told(name, fault, show_expected=show_expected) for name, fault in faults.items()][:_MOST_DETAILED]
    if others := list(faults)[_MOST_DETAILED:]:
        more = len(others) - _MOST_LISTED
        named = ", ".join(map(clip, others[:_MOST_LISTED]))
        lines.append(f"also {named}" + (f" and {more} more" if more > 0 else ""))
    return lines


def read_report(outcome: Outcome, bounds: Bounds, *, runs: bool = True) -> Report:
    """Read the records of one run, or of collecting. What it was stopped for, or what is wrong with its records, is the `reason`."""
    report = Report()
    for record in records(outcome.results):
        report = _extended(report, record)
        if report.reason:
            return report
    expected = report.collected if runs else ()
    if report.is_over and report.is_collected and report.done == expected and outcome.ended != "flooded":
        return attrs.evolve(report, is_whole=True)
    return attrs.evolve(report, reason=f"The tests did not come to their end{_at(report)}: {_stopped(outcome, bounds)}")


def records(results: bytes) -> Iterator[list[Any]]:
    """Give the lists of JSON that a child wrote, one a line; an empty one for a line that is none."""
    for line in results.split(b"\n")[:-1]:  # what no line end follows was cut off
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = []
        yield record if isinstance(record, list) else []


def _extended(report: Report, record: list[Any]) -> Report:
    """Add the one record that may come next; any other means that the code wrote it."""
    match record:
        case _ if report.is_over:
            pass
        case ["collected", [*names]] if not report.is_collected and all(isinstance(name, str) for name in names):
            if len(set(names)) == len(names):
                return attrs.evolve(report, collected=tuple(names), is_collected=True)
        case ["unloadable", str(text)] if not report.is_collected:
            return attrs.evolve(report, reason=f"The tests cannot be loaded: {clip(text)}")
        case [str(name), "passed" | "failed" | "skipped" as outcome, [*faults]] if _is_next(report, name):
            first = faults[0] if faults and isinstance(faults[0], dict) else {}
            fault = {} if outcome == "passed" else {name: {**first, "outcome": outcome}}
            return attrs.evolve(report, done=(*report.done, name), faults=report.faults | fault)
        case ["end"]:
            return attrs.evolve(report, is_over=True)
    return attrs.evolve(report, reason="The code wrote to the channel of the results.", is_over=False)


def _is_next(report: Report, name: str) -> bool:
    return report.collected[len(report.done) : len(report.done) + 1] == (name,)


def _at(report: Report) -> str:
    if len(report.done) < len(report.collected):
        return f" (at {clip(report.collected[len(report.done)])})"
    return "" if report.is_collected else " (while they were loaded)"


def _stopped(outcome: Outcome, bounds: Bounds) -> str:
    if outcome.ended == "flooded":
        return f"the report is larger than {bounds.result_bytes // 1024} kB."
    if outcome.ended == "timeout":
        return f"they took more than {bounds.timeout_s:g} s."
    if outcome.ended == "signalled":
        names = {number.value: number.name for number in signal.Signals}
        return f"the process was killed ({names.get(outcome.code, outcome.code)}), by a crash or for using too much."
    return "the process ended before."


def _told(name: str, fault: dict[str, Any], *, show_expected: bool) -> str:
    """Say in one line how a test failed: what the code gave, not what was expected, unless that is wanted."""
    line = fault.get("line")
    place = f" (line {line} of the tests)" if line and isinstance(line, int) else ""
    said = {key: clip(value) for key, value in fault.items() if isinstance(value, str)}
    if "raised" in said:
        return f"{clip(name)}: {said['raised']}{place}"
    if "computed" in said:
        shown = f"assert {said['assertion']}" if show_expected and "assertion" in said else said["computed"]
        message = f", {said['message']}" if said.get("message") else ""
        return f"{clip(name)}: {shown} {'gave ' + said['gave'] if 'gave' in said else 'does not hold'}{message}{place}"
    return f"{clip(name)}: {'was skipped' if said['outcome'] == 'skipped' else 'failed'}{place}"
