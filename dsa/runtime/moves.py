"""What follows from a row, worked out once: all that a run derives from it but numbers, keys and values.

Takes a machine, gives `Move`s. A run takes the same few rows again and again; what follows from a row in a state, with these effects
outstanding, is the same each time. Which row is taken the compiled step says (`dsa.fast`), and `step` where it says nothing.
"""

from collections.abc import Iterable, Mapping

import attrs

from dsa.declarations import STAY, Emit, Revoke, Transition
from dsa.expr import Value
from dsa.fast import Choices, Place
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, after_effects, step
from dsa.runtime.ledger import EventEntry, IntentEntry
from dsa.runtime.views import StepView, step_of, workflow_variables_set
from dsa.system import sources_left

#: The event that brings a run its task.
SPECIFICATION = "specification"


@attrs.frozen
class Stop:
    """Stop an effect that is under way: it was cancelled, and its answer would be late."""

    key: str
    effect: str


@attrs.frozen
class ArmTimer:
    """Start a timer, from zero if it runs already (S11)."""

    source: str
    event: str
    duration_ms: int


@attrs.frozen
class DropTimer:
    """Forget a timer."""

    source: str
    event: str


#: What the driver is to do, in this order: stop, drop, arm, then perform the intents as S6 says.
Command = Stop | DropTimer | ArmTimer | IntentEntry

#: The row taken, and the values after it.
Chosen = tuple[Transition, tuple[Value, ...]]


@attrs.frozen
class Move:
    """What follows from a row in a state, with these effects outstanding.

    `started` are the effects that begin, each with its place among those of the row and whether it has answers; `ended` are those that are
    outstanding no longer, `stopped` those of them that are stopped. `updated` are the variables that the row assigns, with their places.
    `step` names the step worked on before the row, `finalises` the workflow variable that the row sets, `revokes` those it revokes.
    `outstanding` are the effects outstanding after it.
    """

    event: str
    line: int | None
    source: str
    target: str
    started: tuple[tuple[str, str, bool], ...]
    ended: tuple[str, ...]
    stopped: tuple[str, ...]
    timers: tuple[DropTimer | ArmTimer, ...]
    updated: tuple[tuple[int, str], ...]
    step: str
    finalises: str | None
    revokes: frozenset[str]
    outstanding: frozenset[str]


#: How many moves are kept for a machine: more than any has, but one with very many effects at once.
_KEPT = 65_536


class Moves:
    """The moves of `machine`, worked out as they are met; `moves_of` gives them. `outcome` is the one way from what happens to a row."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.origins = {name: event.origin for name, event in machine.event_named.items()}
        self._choices = Choices(machine)
        self._known: dict[tuple[int, str, frozenset[str]], Move] = {}

    def outcome(self, configuration: Configuration, occurrence: Occurrence) -> Chosen | Refusal:
        """Give the row that `step` takes and the values after it, or its refusal; raises what it raises."""
        chosen = self.chosen(configuration, occurrence)
        if chosen is not None:
            return chosen
        outcome = step(self.machine, configuration, occurrence)
        return outcome if isinstance(outcome, Refusal) else (outcome.transition, outcome.configuration.values)

    def chosen(self, here: Place, given: Occurrence | EventEntry) -> Chosen | None:
        """Give the row that `step` takes and the values after it, where the compiled step knows it; else None."""
        state, event, source = here.state, given.event, given.source
        choose = self._choices[(state, event) if source is None else (state, source, event)]
        found = None if choose is None else choose(here, given)
        return found if isinstance(found, tuple) else None

    def of(self, before: Place, row: Transition) -> Move:
        """Give what follows from a row that is taken."""
        key = (id(row), before.state, before.outstanding)  # the machine keeps its rows: no other gets this id
        move = self._known.get(key)
        if move is None:
            move = _worked_out(self.machine, before, row)
            if len(self._known) < _KEPT:
                self._known[key] = move
        return move


def moves_of(machine: Machine) -> Moves:
    """Give the moves of a machine; all its runs share them."""
    found: Moves | None = machine.worked_out.get("moves")
    if found is None:
        found = machine.worked_out["moves"] = Moves(machine)
    return found


def _worked_out(machine: Machine, before: Place, row: Transition) -> Move:
    state = before.state if row.target == STAY else machine.entered(row.target)
    outstanding, cancelled, _ = after_effects(machine, before.outstanding, row, state)
    origin = None if row.is_timer else machine.event_named[row.event].origin
    updates = {update.variable for update in row.updates}
    return Move(
        row.event,
        row.span.line if row.span else None,
        before.state,
        state,
        started=_started(machine, row, outstanding),
        ended=(*cancelled, *([] if origin is None else [origin])),
        stopped=tuple(e for e in cancelled if e in before.outstanding and e != origin),
        timers=_timers(machine, before.state, row, state),
        updated=tuple((place, v.name) for place, v in enumerate(machine.variables) if v.name in updates),
        step=step_of(machine, before.state),
        finalises=next(iter(workflow_variables_set(machine, row)), None),
        revokes=frozenset(update.variable for update in row.updates if isinstance(update, Revoke)),
        outstanding=outstanding,
    )


def _started(machine: Machine, row: Transition, outstanding: frozenset[str]) -> tuple[tuple[str, str, bool], ...]:
    """Give the effects that begin. One that is cancelled by the row that emits it, or by the final state, never does (S7)."""
    emitted = [item.effect for item in row.effects if isinstance(item, Emit)]
    last = {effect: ordinal for ordinal, effect in enumerate(emitted, start=1)}
    started = []
    for ordinal, effect in enumerate(emitted, start=1):
        has_answers = effect in machine.answers
        if not has_answers or (effect in outstanding and last[effect] == ordinal):
            started.append((str(ordinal), effect, has_answers))
    return tuple(started)


def _timers(machine: Machine, before: str, row: Transition, after: str) -> tuple[DropTimer | ArmTimer, ...]:
    """Give what becomes of timers: dropped with the states left, armed with those entered, or started again (S11)."""
    old, new = machine.armed(before), machine.armed(after)
    if after in machine.final_states:
        return tuple(DropTimer(source, event) for source, event in old)
    left = frozenset[str]() if row.target == STAY else sources_left(machine, before, after)
    kept = frozenset(machine.ancestry(before)) - left
    again = [(row.source, row.event)] if row.is_timer and row.source in kept else []
    dropped = [DropTimer(source, event) for source, event in old if source not in kept]
    entered = [(source, event) for source, event in new if source not in kept]
    return (*dropped, *armed(machine, (*entered, *again)))


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


def armed(machine: Machine, timers: Iterable[tuple[str, str]]) -> tuple[ArmTimer, ...]:
    """Give the commands that start timers, which are given as pairs of source and `after DURATION`."""
    return tuple(ArmTimer(source, event, machine.rows_from[source, event][0].duration_ms) for source, event in timers)
