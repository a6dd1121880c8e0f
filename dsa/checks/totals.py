"""Totals: what a check explored and found, counted in a sentence each.

Takes what a `CheckReport` holds, returns text. The commands print these sentences, and pages of documentation show them.
"""

from collections import Counter
from collections.abc import Iterable

from dsa.checks.report import CheckReport
from dsa.checks.search.exploration import Exploration
from dsa.errors import Diagnostic
from dsa.expr import show_value
from dsa.trace import show_values


def explored_text(exploration: Exploration) -> str:
    """Return how much was explored, and at which parameter values."""
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in exploration.parameters.items())
    at = f" at {values}" if values else ""
    rest = "" if exploration.complete else f", stopped at {exploration.limit or 'a limit'}"
    found = counted_text(exploration.configurations, "configuration", "configurations")
    return f"{found}, {counted_text(exploration.transitions, 'transition', 'transitions')}{at}{rest}"


def findings_text(found: Iterable[Diagnostic]) -> str:
    """Return how many errors, warnings and, where there are any, notes there are."""
    counts = Counter[str](diagnostic.severity for diagnostic in found)
    words = [counted_text(counts[severity], severity, f"{severity}s") for severity in ("error", "warning")]
    words += [counted_text(counts["info"], "note", "notes")] if counts["info"] else []
    return ", ".join(words)


def totals_text(found: Iterable[Diagnostic], report: CheckReport) -> str:
    """Return the last line of `dsa check`: findings, scenarios that run as written, properties by their verdicts."""
    good = sum(result.ok for result in report.scenarios)
    scenarios = f", {good} of {len(report.scenarios)} scenarios run as written" if report.scenarios else ""
    return f"{findings_text(found)}{scenarios}{_properties_text(report)}"


def counted_text(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count} {one if count == 1 else many}"


def _properties_text(report: CheckReport) -> str:
    """Return how many properties have which verdict, behind a comma; nothing where there are none."""
    if not report.properties:
        return ""
    verdicts = [result.verdict for result in report.properties]
    good = verdicts.count("HOLDS")
    others = [f", {verdicts.count(bad)} {bad}" for bad in ("VIOLATED", "UNKNOWN") if bad in verdicts]
    at = "; ".join(filter(None, (show_values(exploration.parameters.items()) for exploration in report.explorations)))
    where = f" at {at}" if at and good else ""
    return f", {good} of {len(verdicts)} properties HOLD{where}{''.join(others)}"
