"""What `dsa check` found out, as text for people."""

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from dsa.checks.explore import Exploration
from dsa.checks.report import Report
from dsa.checks.verdicts import PropertyResult
from dsa.cli.terminal import Painted, say
from dsa.errors import MOST_TOLD, Diagnostic, Span, more
from dsa.expr import show_value
from dsa.lang import Reading
from dsa.trace import Trace, show_events, show_values

_COLOURS = {"HOLDS": "green", "VIOLATED": "red", "UNKNOWN": "yellow"}
#: A verdict takes so many columns, so that what follows is aligned.
_WIDTH = len("VIOLATED")


def tell(file: str, reading: Reading, report: Report | None, *, traces: int = 1) -> None:
    """Print what was found in a document."""
    found = (*reading.diagnostics, *(report.diagnostics if report else ()))
    for diagnostic in found[:MOST_TOLD]:
        # A note needs no mending, so it takes one line.
        text = diagnostic.render()
        say(text.split("\n")[0] if diagnostic.severity == "info" else text)
    for line in more(found):
        say(line)
    counts = _counts(found)
    if report is None:
        say(f"{file}: {counts}; not a machine")
        return
    for exploration in report.explorations:
        say(f"{file}: {_explored(exploration)}")
    places = places_of(result.claim.span if result.claim else None for result in report.properties)
    for place, result in zip(places, report.properties, strict=True):
        if not result.standing:
            _tell_property(place, result, report, traces)
    _tell_waiting(report)
    if report.rests:
        say(f"{file}: rests in: {', '.join(report.rests)}")
    good = sum(result.ok for result in report.scenarios)
    scenarios = f", {good} of {len(report.scenarios)} scenarios run as written" if report.scenarios else ""
    say(f"{file}: {counts}{scenarios}{_property_counts(report)}")


def _tell_waiting(report: Report) -> None:
    """Say in one line which properties an error keeps from being judged: it is the error that needs mending."""
    waiting = [result for result in report.properties if result.standing]
    if waiting:
        codes = " and ".join(waiting[0].standing)
        are, stand = "is" if len(waiting) == 1 else "are", "stands" if len(waiting[0].standing) == 1 else "stand"
        properties = _counted(len(waiting), "property", "properties")
        say(_painted("UNKNOWN"), f"  {properties} {are} not judged while {codes} {stand}")


def _tell_property(place: str, result: PropertyResult, report: Report, traces: int) -> None:
    explored = tuple(tuple(exploration.parameters.items()) for exploration in report.explorations)
    at = "; ".join(filter(None, map(show_values, result.values)))
    where = f"  at {at}" if at and (result.values != explored or result.verdict != "HOLDS") else ""
    say(_painted(result.verdict), f"  {place}{result.text}{where}")
    if result.condition:
        say(f"{' ' * _WIDTH}  {result.verdict} if {result.condition}")
    for line in _details(result, traces):
        say(f"{' ' * _WIDTH}  {line}")


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
    if result.passing is not None:
        yield "the nearest run that passes:"
        yield from _shown(result.passing)


def _shown(trace: Trace, loop: int | None = None) -> Iterator[str]:
    for line in trace.show(loop).split("\n"):
        yield f"  {line}"


def _painted(verdict: str) -> Painted:
    return Painted(verdict.ljust(_WIDTH), _COLOURS.get(verdict))


def _explored(exploration: Exploration) -> str:
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in exploration.parameters.items())
    at = f" at {values}" if values else ""
    rest = "" if exploration.complete else f", stopped at {exploration.limit or 'a limit'}"
    found = _counted(exploration.configurations, "configuration", "configurations")
    return f"{found}, {_counted(exploration.transitions, 'transition', 'transitions')}{at}{rest}"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _counts(found: tuple[Diagnostic, ...]) -> str:
    words = []
    for severity, plural in (("error", "errors"), ("warning", "warnings"), ("info", "notes")):
        count = sum(diagnostic.severity == severity for diagnostic in found)
        if count or severity != "info":
            words.append(_counted(count, "note" if severity == "info" else severity, plural))
    return ", ".join(words)


def _property_counts(report: Report) -> str:
    """Say how many properties have which verdict."""
    if not report.properties:
        return ""
    verdicts = [result.verdict for result in report.properties]
    good = verdicts.count("HOLDS")
    others = [f", {verdicts.count(bad)} {bad}" for bad in ("VIOLATED", "UNKNOWN") if bad in verdicts]
    at = "; ".join(filter(None, (show_values(exploration.parameters.items()) for exploration in report.explorations)))
    where = f" at {at}" if at and good else ""
    return f", {good} of {len(verdicts)} properties HOLD{where}{''.join(others)}"
