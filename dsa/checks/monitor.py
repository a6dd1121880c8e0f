"""Monitors: properties over one recorded run, each satisfied, violated or pending.

`monitor` takes a form and the moments of a run so far. *Violated*: some moment breaks it, and nothing that follows can change that. *Satisfied*: the
run is over, or nothing that follows can break it. *Pending*: neither yet. Each moment is looked at once.

`replay` takes a machine and a recorded trace, and runs it again. It gives a `Replay`: the steps that fit, the first step that does not with
the reason (which row took it, which conjuncts were false), and a verdict for each property that can be watched on a single run.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeGuard

import attrs

from dsa.checks.places import rows_at, show_false, show_row
from dsa.checks.properties import TraceMoment, moments
from dsa.checks.report import text_of
from dsa.declarations import Always, AtMost, Form, LeadsTo, Never, OnlyAfter, Property, UnchangedClaim
from dsa.errors import OccurrenceError
from dsa.expr import Expr, Value, show_value
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, is_over, start, step
from dsa.trace import RecordedStep, RecordedTrace, Trace, follow, show_occurrence

MonitorVerdict = Literal["satisfied", "violated", "pending"]
#: The forms that are about single runs. The others are about all runs together, so no single run decides them.
MonitorableForm = Always | Never | UnchangedClaim | LeadsTo | OnlyAfter | AtMost


@attrs.frozen
class MonitorReport:
    """What a monitor says of a run. `step` is the moment that decides it: the one that breaks the property, or since which something is owed."""

    verdict: MonitorVerdict
    step: int | None = None


def is_monitor(form: Form) -> TypeGuard[MonitorableForm]:
    """Return whether a form can be watched on a single run."""
    return isinstance(form, MonitorableForm)


def monitor(form: MonitorableForm, run: Sequence[TraceMoment], *, is_complete: bool) -> MonitorReport:
    """Watch a run of at least the start; `is_complete` means that nothing can follow."""
    if isinstance(form, LeadsTo):
        return _leads_to(form, run, is_complete=is_complete)
    breach = next(_breaches(form, run), None)
    if breach is not None:
        return MonitorReport("violated", breach)
    if isinstance(form, OnlyAfter):
        earlier = next((place for place, moment in enumerate(run) if moment.holds(form.earlier)), None)
        if earlier is not None:
            return MonitorReport("satisfied", earlier)
    return MonitorReport("satisfied" if is_complete else "pending")


def _leads_to(form: LeadsTo, run: Sequence[TraceMoment], *, is_complete: bool) -> MonitorReport:
    since: int | None = None
    for place, moment in enumerate(run):
        if moment.holds(form.goal):
            since = None
        elif since is None and moment.holds(form.cause):
            since = place
    if is_complete:
        return MonitorReport("satisfied" if since is None else "violated", since)
    return MonitorReport("pending", since)


def _breaches(form: MonitorableForm, run: Sequence[TraceMoment]) -> Iterator[int]:
    """Yield the moments that break a form for good."""
    match form:
        case Always(condition):
            yield from (place for place, moment in enumerate(run) if not moment.holds(condition))
        case Never(condition):
            yield from (place for place, moment in enumerate(run) if moment.holds(condition))
        case UnchangedClaim(trigger, expressions):
            for place, (before, after) in enumerate(pairwise(run), 1):
                if after.holds(trigger) and any(before.value(expr) != after.value(expr) for expr in expressions):
                    yield place
        case OnlyAfter(later, earlier):
            for place, moment in enumerate(run):
                if moment.holds(earlier):
                    return
                if moment.holds(later):
                    yield place
        case AtMost(bound, counted, between):
            yield from _too_many(bound, counted, between, run)


def _too_many(
    upper_bound: Expr, condition: Expr, between: tuple[Expr, Expr] | None, run: Sequence[TraceMoment]
) -> Iterator[int]:
    """Yield the moments at which the count of the open scope exceeds the bound: it closes, then opens, then counts."""
    count = None if between else 0
    for place, moment in enumerate(run):
        if between and moment.holds(between[1]):
            count = None
        if between and count is None and moment.holds(between[0]):
            count = 0
        if count is not None:
            count += moment.holds(condition)
            most = moment.value(upper_bound)
            assert isinstance(most, int), "a bound is a number"
            if count > most:
                yield place


@attrs.frozen
class Mismatch:
    """The first step of a record that the table does not do: its number (0: the start), and why."""

    step: int
    message: str


@attrs.frozen
class MonitorResult:
    """A property, its line, and what it says of the run; `report` is None for a form that no single run decides."""

    text: str
    line: int
    report: MonitorReport | None
    claim: Property = attrs.field(repr=False)


@attrs.frozen
class Replay:
    """The result of running a record of `total` steps again: the trace as far as it fits, and what properties say of it."""

    trace: Trace
    mismatch: Mismatch | None
    observations: tuple[MonitorResult, ...]
    total: int
    loop: int | None = None

    @property
    def failed(self) -> bool:
        """Return whether the record does not fit, or breaks a property."""
        has_breach = any(each.report is not None and each.report.verdict == "violated" for each in self.observations)
        return self.mismatch is not None or has_breach


def replay(machine: Machine, record: RecordedTrace) -> Replay:
    """Run a record again. Raises ParameterError for parameters that the machine does not have."""
    there = machine.at(dict(record.parameters))
    here, occurrences = start(there), list[Occurrence]()
    wrong = _compared_start(there, record, here)
    mismatch = Mismatch(0, f"at the start: {wrong}") if wrong else None
    for number, record_step in enumerate(() if mismatch else record.steps, 1):
        after, wrong = _again(there, here, record_step)
        if wrong:
            what = show_occurrence(record_step.occurrence)
            mismatch = Mismatch(number, f"step {number}, {what} in {here.state}: {wrong}")
            break
        here = after
        occurrences.append(record_step.occurrence)
    run = moments(there, occurrences)
    run_is_over = is_over(there, here)
    results = []
    for claim in there.properties:
        report = monitor(claim.form, run, is_complete=run_is_over) if is_monitor(claim.form) else None
        results.append(MonitorResult(text_of(claim), claim.span.line if claim.span else 0, report, claim))
    trace, loop = follow(there, occurrences), None if mismatch else record.loop
    return Replay(trace, mismatch, tuple(results), len(record.steps), loop)


def _compared_start(machine: Machine, record: RecordedTrace, here: Configuration) -> str:
    """Return what differs at the start of the record; empty when nothing does."""
    if record.machine is not None and record.machine != machine.name:
        return f"the trace is of machine {record.machine}, but this machine is {machine.name}"
    if record.state is not None and record.state != here.state:
        return f"the machine starts in {here.state}, the record has {record.state}"
    return _different(machine, here, dict(record.values))


def _again(machine: Machine, here: Configuration, record_step: RecordedStep) -> tuple[Configuration, str]:
    """Take a recorded step again; return the configuration after it, and what differs from the record."""
    try:
        result = step(machine, here, record_step.occurrence)
    except OccurrenceError as fault:
        return here, str(fault)
    if isinstance(result, Refusal):
        return here, _refusal_text(machine, here, record_step.occurrence, result)
    return result.configuration, _difference_after(machine, here, result, record_step)


def _refusal_text(machine: Machine, here: Configuration, occurrence: Occurrence, refusal: Refusal) -> str:
    """Return why nothing was taken: which conjuncts of the candidates were false."""
    false = "" if refusal.reason in {"finished", "late"} else show_false(rows_at(machine, here, occurrence))
    accepted = f"; accepted there: {', '.join(refusal.accepted)}" if refusal.accepted and not false else ""
    return f"refused: {refusal.reason} ({refusal.message})" + (f"; {false}" if false else accepted)


def _difference_after(machine: Machine, before: Configuration, taken: Taken, record_step: RecordedStep) -> str:
    after, row = taken.configuration, show_row(taken.transition)
    if record_step.state is not None and record_step.state != after.state:
        return f"{row} leads to {after.state}, the record has {record_step.state}"
    if record_step.changed is not None:
        names = (variable.name for variable in machine.variables)
        old, changes = dict(zip(names, before.values, strict=True)), dict(record_step.changed)
        if different := _different(machine, after, {**old, **changes}):
            return f"after {row}, {different}"
    if record_step.effects is not None and record_step.effects != taken.effects:
        return f"{row} emits {_names_text(taken.effects)}, the record has {_names_text(record_step.effects)}"
    if record_step.cancelled is not None and record_step.cancelled != taken.cancelled:
        return f"{row} cancels {_names_text(taken.cancelled)}, the record has {_names_text(record_step.cancelled)}"
    return ""


def _different(machine: Machine, here: Configuration, expected_values: dict[str, Value]) -> str:
    values = dict(zip((variable.name for variable in machine.variables), here.values, strict=True))
    for name, value in expected_values.items():
        if name not in values:
            return f"the machine has no variable {name}"
        if values[name] != value:
            return f"{name} is {show_value(values[name])}, the record has {show_value(value)}"
    return ""


def _names_text(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
