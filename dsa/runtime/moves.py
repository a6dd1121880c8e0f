"""Moves in a run: the keys, the changes and the steps' views after a row was taken.

Takes the `Move` of the compiled step, which is the same for all runs of a machine, and the run's own keys, values and views.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from dsa.compiled_step import Move
from dsa.declarations import STAY
from dsa.expr import Value
from dsa.machine import Machine
from dsa.runtime.intents import Intent
from dsa.runtime.ledger import EventEntry
from dsa.runtime.views import StepView
from dsa.timers import ArmTimer, DropTimer, armed
from dsa.uses import SPECIFICATION

#: When armed timers are due, in milliseconds since 1970, by source and event, in the order in which they were started.
Timers = Mapping[tuple[str, str], int]


_NOWHERE: Mapping[str, int] = MappingProxyType({})


@attrs.frozen
class Stop:
    """Stop an effect that is under way: it was cancelled, and its answer would be late."""

    key: str
    effect: str


#: What the driver is to do, in this order: stop, drop, arm, then perform the intents as S6 says.
Command = Stop | DropTimer | ArmTimer | Intent


def keys_after(move: Move, keys: Mapping[str, str], place: str) -> dict[str, str]:
    """Give the keys of what is outstanding after a move; `place` is what the keys of all that it starts begin with."""
    after = dict(keys)
    change_keys(move, after, place)
    return after


def change_keys(move: Move, keys: dict[str, str], place: str) -> None:
    """Make of the keys of what is outstanding before a move those after it (`keys_after`)."""
    for effect in move.ended:
        keys.pop(effect, None)
    for ordinal, effect, has_answers in move.started:
        if has_answers:
            keys[effect] = place + ordinal


def timers_after(move: Move, timers: Timers, at_ms: int) -> Timers:
    """Give the deadlines of what is armed after a move that was made at this time; what was started last stands last."""
    if not move.timers:
        return timers
    after = dict(timers)
    for command in move.timers:
        after.pop((command.source, command.event), None)
        if isinstance(command, ArmTimer):
            after[command.source, command.event] = at_ms + command.duration_ms
    return after


def deadlines(machine: Machine, state: str, at_ms: int) -> Timers:
    """Give the deadlines of the timers of a state that is entered at this time."""
    started = armed(machine, () if state in machine.final_states else machine.armed(state))
    return {(timer.source, timer.event): at_ms + timer.duration_ms for timer in started}


def places_after(
    move: Move, event: EventEntry, entered: int, taken: Mapping[str, int]
) -> tuple[int, Mapping[str, int]]:
    """Give the number of the event that entered the leaf, and those of the events from outside that were taken there since."""
    if move.row.target != STAY:
        return event.seq, _NOWHERE
    if event.key is not None or event.source is not None:
        return entered, taken
    return entered, {**taken, event.event: event.seq}


def changes(move: Move, before: tuple[Value, ...], after: tuple[Value, ...]) -> tuple[tuple[str, Value], ...]:
    """Give the variables that have other values after a move, with these."""
    if not move.updated or after == before:
        return ()
    return tuple([(name, after[place]) for place, name in move.updated if after[place] != before[place]])


def views_after(
    move: Move, views: Mapping[str, StepView]
) -> tuple[Mapping[str, StepView], tuple[tuple[str, str], ...]]:
    """Give the steps' views after a move, and what it finalised: steps and artifacts.

    Set workflow state finalises, revoked takes back, a new task starts anew.
    """
    worked_on = views.get(move.step)
    latest = None if worked_on is None or move.finalises is None else worked_on.latest
    if latest is None and not move.revokes and move.event != SPECIFICATION:
        return views, ()
    after = dict(views)
    for name, view in views.items():
        if move.event == SPECIFICATION:
            after[name] = view.fresh()
        if view.variable in move.revokes:
            after[name] = after[name].revoked()
    if latest is None or move.finalises is None:
        return after, ()
    after[move.step] = after[move.step].finalised(move.finalises)
    return after, ((move.step, latest),)
