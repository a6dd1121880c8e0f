"""Timers: what a row drops, starts and starts again (S11)."""

from collections.abc import Iterable

import attrs

from dsa.declarations import STAY, Transition
from dsa.machine import Machine


@attrs.frozen
class ArmTimer:
    """Start a timer, from zero if it runs already."""

    source: str
    event: str
    duration_ms: int


@attrs.frozen
class DropTimer:
    """Forget a timer."""

    source: str
    event: str


def timers_after(machine: Machine, before: str, row: Transition, after: str) -> tuple[DropTimer | ArmTimer, ...]:
    """Return what becomes of timers: dropped with the states left, armed with those entered, or started again."""
    old, new = machine.armed(before), machine.armed(after)
    if after in machine.final_states:
        return tuple(DropTimer(source, event) for source, event in old)
    left = frozenset[str]() if row.target == STAY else sources_left(machine, before, after)
    kept = frozenset(machine.ancestry(before)) - left
    again = [(row.source, row.event)] if row.is_timer and row.source in kept else []
    dropped = [DropTimer(source, event) for source, event in old if source not in kept]
    entered = [(source, event) for source, event in new if source not in kept]
    return (*dropped, *armed(machine, (*entered, *again)))


def armed(machine: Machine, timers: Iterable[tuple[str, str]]) -> tuple[ArmTimer, ...]:
    """Return the commands that start timers, which are given as pairs of source and `after DURATION`."""
    return tuple(ArmTimer(source, event, machine.rows_from[source, event][0].duration_ms) for source, event in timers)


def sources_left(machine: Machine, before: str, after: str) -> frozenset[str]:
    """Return the sources that a row with a target leaves, `*` included when a final state is entered."""
    if before == after:
        return frozenset({before})
    return frozenset(machine.ancestry(before)) - frozenset(machine.ancestry(after))
