"""Moves in a run: the keys, the changes and the steps' views after a row was taken.

Takes the `Move` of the compiled step, which is the same for all runs of a machine, and the run's own keys, values and views.
"""

from collections.abc import Mapping

import attrs

from dsa.compiled_step import Move
from dsa.expr import Value
from dsa.runtime.intents import Intent
from dsa.runtime.views import StepView
from dsa.timers import ArmTimer, DropTimer

#: The event that brings a run its task.
SPECIFICATION = "specification"


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
    for effect in move.ended:
        after.pop(effect, None)
    for ordinal, effect, has_answers in move.started:
        if has_answers:
            after[effect] = place + ordinal
    return after


def changes(move: Move, before: tuple[Value, ...], after: tuple[Value, ...]) -> tuple[tuple[str, Value], ...]:
    """Give the variables that have other values after a move, with these."""
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
