"""Properties as monitors over one recorded run: satisfied, violated, or pending.

Takes a form and the moments of a run so far, gives a `Watched`. *Violated*: some moment breaks it, and nothing that follows can mend that.
*Satisfied*: the run is over, or nothing that follows can break it. *Pending*: neither yet. Each moment is looked at once.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeGuard

import attrs

from dsa.checks.concrete import Moment
from dsa.claims import Always, AtMost, Form, LeadsTo, Never, OnlyAfter, Unchanged
from dsa.expr import Expr

MonitorVerdict = Literal["satisfied", "violated", "pending"]
#: The forms that speak of single runs. The others speak of all runs together, and no run can tell.
Monitored = Always | Never | Unchanged | LeadsTo | OnlyAfter | AtMost


@attrs.frozen
class Watched:
    """What a monitor says of a run. `step` is the moment that decided: the one that breaks it, or from which something is owed."""

    verdict: MonitorVerdict
    step: int | None = None


def is_monitor(form: Form) -> TypeGuard[Monitored]:
    """Tell whether a form can be watched on a single run."""
    return isinstance(form, Monitored)


def monitor(form: Monitored, run: Sequence[Moment], *, ended: bool) -> Watched:
    """Watch a run of at least the start; `ended` tells that nothing can follow."""
    if isinstance(form, LeadsTo):
        return _leads_to(form, run, ended=ended)
    broken = next(_breaches(form, run), None)
    if broken is not None:
        return Watched("violated", broken)
    if isinstance(form, OnlyAfter):
        earlier = next((place for place, moment in enumerate(run) if moment.holds(form.earlier)), None)
        if earlier is not None:
            return Watched("satisfied", earlier)
    return Watched("satisfied" if ended else "pending")


def _leads_to(form: LeadsTo, run: Sequence[Moment], *, ended: bool) -> Watched:
    since: int | None = None
    for place, moment in enumerate(run):
        if moment.holds(form.goal):
            since = None
        elif since is None and moment.holds(form.cause):
            since = place
    if ended:
        return Watched("satisfied" if since is None else "violated", since)
    return Watched("pending", since)


def _breaches(form: Monitored, run: Sequence[Moment]) -> Iterator[int]:
    """Give the moments that break a form which no later moment can mend."""
    match form:
        case Always(condition):
            yield from (place for place, moment in enumerate(run) if not moment.holds(condition))
        case Never(condition):
            yield from (place for place, moment in enumerate(run) if moment.holds(condition))
        case Unchanged(trigger, expressions):
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


def _too_many(bound: Expr, counted: Expr, between: tuple[Expr, Expr] | None, run: Sequence[Moment]) -> Iterator[int]:
    """Give the moments at which the count of the open scope exceeds the bound: it closes, then opens, then counts."""
    count = None if between else 0
    for place, moment in enumerate(run):
        if between and moment.holds(between[1]):
            count = None
        if between and count is None and moment.holds(between[0]):
            count = 0
        if count is not None:
            count += moment.holds(counted)
            most = moment.value(bound)
            assert isinstance(most, int), "a bound is a number"
            if count > most:
                yield place
