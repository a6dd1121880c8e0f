"""A run: the fold of `step` over the events of its ledger (S10), as one frozen value.

Takes occurrences and records, gives the next run and what the driver is to do about it. Pure: no clock, no
chance, no file; it does not know how effects are performed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsa.declarations import STAY, Revoke
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, accepted_events, require_known, start, step
from dsa.runtime.ledger import (
    ArtifactEntry,
    Entry,
    EventEntry,
    IntentEntry,
    Ledger,
    MachineEntry,
    Record,
    RefusalEntry,
    StepEntry,
    VerdictEntry,
)
from dsa.runtime.views import StepView, step_of, workflow_variables_set
from dsa.system import sources_left

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


class ReplayError(DsaError):
    """Raised when a ledger is not one of this machine. `position` is the first entry that differs, from 0."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(f"entry {position}: {message}")


@attrs.frozen(slots=False)
class Run:
    """A machine under way. Made by `begin`; `feed` is the one door for events, `record` for what policies did.

    `keys` gives each outstanding effect's key; `steps` holds a view per step that has an artifact or a verdict;
    `specification` is the data of the last event of that name that was taken.
    """

    machine: Machine
    run_id: str
    configuration: Configuration
    ledger: Ledger[Entry]
    seq: int = 0
    keys: Mapping[str, str] = attrs.field(factory=dict)
    steps: Mapping[str, StepView] = attrs.field(factory=dict)
    specification: Any = None

    @property
    def finished(self) -> bool:
        """Tell whether the state is final."""
        return self.configuration.state in self.machine.final_states

    @property
    def outcome(self) -> str:
        """The last part of the state's name: `succeeded`, `failed`, `escalated` and the like."""
        return self.configuration.state.rpartition(".")[2]

    @property
    def values(self) -> dict[str, Value]:
        """The variables' values by name."""
        names = (variable.name for variable in self.machine.variables)
        return dict(zip(names, self.configuration.values, strict=True))

    @property
    def sigma(self) -> dict[str, Value]:
        """S_workflow: the workflow variables' values. Only rows set them."""
        values = self.values
        return {v.name: values[v.name] for v in self.machine.variables if v.scope == "workflow"}

    def step(self, name: str) -> StepView:
        """Give the view of a step; an empty one when nothing has happened there."""
        return self.steps.get(name) or StepView(name)

    def feed(
        self, occurrence: Occurrence, key: str | None = None, *, at_ms: int | None = None
    ) -> tuple["Run", tuple[Command, ...]]:
        """Take the row for an occurrence, or record why not; give the next run and what is to be done.

        `key` is the key of the effect that this answers: under another key than the outstanding one the answer is
        late (S7). `at_ms` is when it arrived, for whoever reads the ledger. A refused event changes nothing but the ledger. Raises OccurrenceError as `step` does; then there
        is nothing to record.
        """
        outcome = self._late(occurrence, key) or step(self.machine, self.configuration, occurrence)
        seq = self.seq + 1
        given = occurrence
        arrived = EventEntry(seq, given.event, given.verdicts, given.source, given.data, key, at_ms)
        if isinstance(outcome, Refusal):
            refused = RefusalEntry(seq, outcome.reason, outcome.message, outcome.accepted)
            return attrs.evolve(self, seq=seq, ledger=self.ledger.extend((arrived, refused))), ()
        return self._moved(outcome, arrived)

    def _late(self, occurrence: Occurrence, key: str | None) -> Refusal | None:
        require_known(self.machine, occurrence)
        if key is None or self.finished or key == self._key_answered(occurrence):
            return None
        accepted = accepted_events(self.machine, self.configuration.state)
        return Refusal("late", self.configuration, f"{key} is not outstanding", (), accepted)

    def _key_answered(self, occurrence: Occurrence) -> str | None:
        """Give the key of the outstanding effect that an event answers, if it answers one."""
        if occurrence.source is not None:
            return None
        return self.keys.get(self.machine.event_named[occurrence.event].origin)

    def _moved(self, taken: Taken, arrived: EventEntry) -> tuple["Run", tuple[Command, ...]]:
        intents, keys, stopped = _intents(self, taken, arrived)
        steps, accepted = _finalised(self, taken, arrived)
        before = self.configuration
        took = StepEntry(
            arrived.seq, _line(taken), before.state, taken.configuration.state, _changed(self, taken), accepted
        )
        moved = attrs.evolve(
            self,
            configuration=taken.configuration,
            seq=arrived.seq,
            keys=keys,
            steps=steps,
            specification=arrived.data if arrived.event == SPECIFICATION else self.specification,
            ledger=self.ledger.extend((arrived, took, *intents)),
        )
        return moved, (*stopped, *_timers(self.machine, before.state, taken), *intents)

    def record(self, entry: Record) -> "Run":
        """Append what a policy did: an effect's result, an artifact, a verdict."""
        run = attrs.evolve(self, ledger=self.ledger.append(entry))
        if isinstance(entry, ArtifactEntry):
            return attrs.evolve(run, steps={**self.steps, entry.step: self.step(entry.step).generated(entry)})
        if isinstance(entry, VerdictEntry):
            return attrs.evolve(run, steps={**self.steps, entry.step: self.step(entry.step).judged(entry)})
        return run


def begin(
    machine: Machine,
    run_id: str,
    *,
    digest: str = "",
    started: Mapping[str, Any] | None = None,
    at_ms: int | None = None,
) -> tuple[Run, tuple[Command, ...]]:
    """Start a run: nothing has happened, and the timers of the initial state are armed.

    `digest` is the SHA-256 of the machine's canonical text, which only `dsa.lang` can write. `started` and `at_ms` are kept in the first entry.
    """
    first = MachineEntry(run_id, machine.name, digest, machine.constants, started or {}, at_ms)
    run = Run(machine, run_id, start(machine), Ledger((first,)))
    return run, tuple(_armed(machine, machine.armed(run.configuration.state)))


def replay(machine: Machine, ledger: Iterable[Entry]) -> Run:
    """Fold `step` over the events of a ledger again and give the run it leads to.

    Every other entry must be the one that the fold gives: raises ReplayError at the first that is not.
    """
    entries = tuple(ledger)
    if not entries or not isinstance(entries[0], MachineEntry):
        raise ReplayError(0, "a ledger begins with its machine")
    first = entries[0]
    run, _ = begin(machine, first.run, digest=first.digest, started=dict(first.started), at_ms=first.at_ms)
    for position, entry in enumerate(entries):
        if position >= len(run.ledger):
            if isinstance(entry, EventEntry):
                occurrence = Occurrence(entry.event, entry.verdicts, entry.source, entry.data)
                run, _ = run.feed(occurrence, entry.key, at_ms=entry.at_ms)
            elif isinstance(entry, Record):
                run = run.record(entry)
            else:
                raise ReplayError(position, f"nothing leads to {entry}")
        if run.ledger[position] != entry:
            raise ReplayError(position, f"the ledger has {entry}, the machine gives {run.ledger[position]}")
    return run


def _line(taken: Taken) -> int | None:
    return taken.transition.span.line if taken.transition.span else None


def _intents(
    run: Run, taken: Taken, arrived: EventEntry
) -> tuple[tuple[IntentEntry, ...], dict[str, str], tuple[Stop, ...]]:
    """Give the effects to perform under their keys, the keys of all that is outstanding, and what to stop (S7)."""
    before, after = run.configuration, taken.configuration
    origin = run.machine.event_named[arrived.event].origin if arrived.source is None else None
    stopped = tuple(Stop(run.keys[e], e) for e in taken.cancelled if e in run.keys and e != origin)
    keys = {e: k for e, k in run.keys.items() if e != origin and e not in taken.cancelled}
    last = {effect: ordinal for ordinal, effect in enumerate(taken.effects, start=1)}
    intents = []
    for ordinal, effect in enumerate(taken.effects, start=1):
        key = f"{run.run_id}/{arrived.seq}/{ordinal}"
        if effect in run.machine.answers:
            if effect not in after.outstanding or last[effect] != ordinal:
                continue  # cancelled by the row that emits it, or by the final state: it never starts
            keys[effect] = key
        intents.append(IntentEntry(key, effect, arrived.event, _line(taken), before.state, after.state))
    return tuple(intents), keys, stopped


def _changed(run: Run, taken: Taken) -> tuple[tuple[str, Value], ...]:
    pairs = zip(run.machine.variables, run.configuration.values, taken.configuration.values, strict=True)
    return tuple((variable.name, after) for variable, before, after in pairs if after != before)


def _finalised(
    run: Run, taken: Taken, arrived: EventEntry
) -> tuple[Mapping[str, StepView], tuple[tuple[str, str], ...]]:
    """Give the steps' views after a row: set workflow state finalises, revoked takes back, a new task starts anew."""
    steps = dict(run.steps)
    revoked = {update.variable for update in taken.transition.updates if isinstance(update, Revoke)}
    for name, view in run.steps.items():
        if arrived.event == SPECIFICATION:
            steps[name] = view.fresh()
        if view.variable in revoked:
            steps[name] = steps[name].revoked()
    worked_on = run.step(step_of(run.machine, run.configuration.state))
    variables = workflow_variables_set(run.machine, taken.transition)
    if worked_on.latest is None or not variables:
        return steps, ()
    steps[worked_on.name] = steps[worked_on.name].finalised(variables[0])
    return steps, ((worked_on.name, worked_on.latest),)


def _timers(machine: Machine, before: str, taken: Taken) -> list[Command]:
    """Give what becomes of timers: dropped with the states left, armed with those entered, or started again (S11)."""
    row, after = taken.transition, taken.configuration.state
    old, new = machine.armed(before), machine.armed(after)
    if after in machine.final_states:
        return [DropTimer(source, event) for source, event in old]
    left = frozenset[str]() if row.target == STAY else sources_left(machine, before, after)
    kept = frozenset(machine.ancestry(before)) - left
    again = [(row.source, row.event)] if row.is_timer and row.source in kept else []
    dropped = [DropTimer(source, event) for source, event in old if source not in kept]
    entered = [(source, event) for source, event in new if source not in kept]
    return [*dropped, *_armed(machine, (*entered, *again))]


def _armed(machine: Machine, timers: Iterable[tuple[str, str]]) -> list[ArmTimer]:
    return [ArmTimer(source, event, machine.rows_from[source, event][0].duration_ms) for source, event in timers]
