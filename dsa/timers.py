"""Timers: what a row drops, starts and starts again, and which may not fire before others (S11)."""

from collections.abc import Iterable

import attrs

from dsa.declarations import STAY, Transition
from dsa.machine import Machine

#: A timer by its source and `after DURATION`.
Timer = tuple[str, str]
#: Pairs of armed timers: while it is armed, the first of a pair precedes the second, which may not fire (S11).
Precedence = frozenset[tuple[Timer, Timer]]
_NONE: Precedence = frozenset()


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


def armed(machine: Machine, timers: Iterable[Timer]) -> tuple[ArmTimer, ...]:
    """Return the commands that start timers, which are given as pairs of source and `after DURATION`."""
    return tuple(ArmTimer(*timer, duration_ms(machine, timer)) for timer in timers)


def duration_ms(machine: Machine, timer: Timer) -> int:
    """Return after how many milliseconds a timer is due."""
    return machine.rows_from[timer][0].duration_ms


def precedence_at_start(machine: Machine, state: str) -> Precedence:
    """Return which timers precede which in a state in which all that is armed has just been started."""
    timers = machine.armed(state)
    return frozenset((shorter, timer) for timer in timers for shorter in _shorter(machine, timer, timers))


def precedence_after(
    machine: Machine, before: Precedence, moved: Iterable[DropTimer | ArmTimer], state: str
) -> Precedence:
    """Return which timers precede which after some were dropped and started, at one moment; `state` is the one after it.

    What was dropped or starts anew precedes nothing and is preceded by nothing any more; what starts is preceded by every armed timer that is shorter.
    """
    if not before and len(machine.armed(state)) <= 1:
        return _NONE  # a timer alone precedes nothing
    commands = tuple(moved)
    changed = {(command.source, command.event) for command in commands}
    kept = (pair for pair in before if changed.isdisjoint(pair))
    started = [(command.source, command.event) for command in commands if isinstance(command, ArmTimer)]
    new = ((shorter, timer) for timer in started for shorter in _shorter(machine, timer, machine.armed(state)))
    return frozenset([*kept, *new])


def _shorter(machine: Machine, timer: Timer, timers: Iterable[Timer]) -> Iterable[Timer]:
    return (other for other in timers if duration_ms(machine, other) < duration_ms(machine, timer))


def preceding(precedence: Precedence, timer: Timer) -> tuple[Timer, ...]:
    """Return the timers that must fire or be dropped before a timer may fire, sorted."""
    return tuple(sorted(first for first, then in precedence if then == timer))


def sources_left(machine: Machine, before: str, after: str) -> frozenset[str]:
    """Return the sources that a row with a target leaves, `*` included when a final state is entered."""
    if before == after:
        return frozenset({before})
    return frozenset(machine.ancestry(before)) - frozenset(machine.ancestry(after))
