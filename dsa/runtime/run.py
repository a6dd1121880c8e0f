"""A run: the fold of `step` over the events of its ledger (S10), as one frozen value.

Takes occurrences and records, gives the next run and what the driver is to do about it. Pure: no clock, no
chance, no file; it does not know how effects are performed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa.compiled_step import CompiledStep, Move, compiled_step
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.machine import Machine, step_names
from dsa.meaning import Configuration, Occurrence, Refusal, accepted_events, is_over, require_known, start
from dsa.runtime.fold import Fold
from dsa.runtime.intents import Intent
from dsa.runtime.ledger import (
    ArtifactEntry,
    ChangeEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Ledger,
    MachineEntry,
    Record,
    RefusalEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.moves import (
    Command,
    Stop,
    Timers,
    changes,
    deadlines,
    keys_after,
    places_after,
    timers_after,
    views_after,
)
from dsa.runtime.views import StepView
from dsa.timers import ArmTimer, DropTimer, armed, precedence_after
from dsa.uses import SPECIFICATION
from dsa.words import closest

__all__ = [
    "ArmTimer",
    "Command",
    "DropTimer",
    "Intent",
    "ReplayError",
    "Run",
    "Stop",
    "begin",
    "place_of",
    "rederive",
    "replay",
]


class ReplayError(DsaError):
    """Raised when a ledger is not one of this machine. `position` is the first entry that differs, from 0."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(f"entry {position}: {message}")


@attrs.frozen(slots=False)
class Run:
    """A machine under way. Made by `begin`; `feed` is the one door for events, `record` for what policies did.

    `keys` gives each outstanding effect's key; `steps` holds a view per step that has an artifact or a verdict;
    `specification` is the data of the last event of that name that was taken. `timers` are the deadlines of what is armed, in milliseconds
    since 1970, in the order of arming. `entered` is the number of the event that entered the leaf, `taken` that of each event from outside
    which was taken there since and last (`place_of`). `read_ms` is the last reading of the clock, in milliseconds since 1970: a later one is never before it (S11).
    """

    machine: Machine = attrs.field(repr=lambda machine: machine.name)
    run_id: str
    configuration: Configuration
    ledger: Ledger[Entry]
    seq: int = 0
    keys: Mapping[str, str] = attrs.field(factory=dict)
    steps: Mapping[str, StepView] = attrs.field(factory=dict)
    specification: Any = None
    timers: Timers = attrs.field(factory=dict)
    entered: int = 0
    taken: Mapping[str, int] = attrs.field(factory=dict)
    read_ms: int = 0

    @property
    def finished(self) -> bool:
        """Return whether it is finished: in a final state, or at an end (`end when`)."""
        return is_over(self.machine, self.configuration)

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
        """Give the view of a step; an empty one when nothing has happened there. LookupError for what is no step of the machine."""
        found = self.steps.get(name)
        if found is None and name not in (known := step_names(self.machine)):
            raise LookupError(f"machine {self.machine.name} has no step '{name}'; {closest(name, known)}")
        return found or StepView(name)

    def feed(
        self, occurrence: Occurrence, key: str | None = None, *, at_ms: int = 0, at: str | None = None
    ) -> tuple["Run", tuple[Command, ...]]:
        """Take the row for an occurrence, or record why not; give the next run and what is to be done.

        `key` is the key of the effect that this answers: under another key than the outstanding one the answer is
        late (S7); so is an event whose sender names a place `at` that is not the event's place any more. `at_ms` is when it arrived: where the clock was
        put back, when the event before it did. A refused event changes nothing but the ledger. Raises OccurrenceError as `step` does; then there is
        nothing to record.
        """
        at_ms = max(at_ms, self.read_ms)
        compiled, seq, given = compiled_step(self.machine), self.seq + 1, occurrence
        outcome = self._late(given, key, at, compiled) or compiled.move(self.configuration, given)
        arrived = EventEntry(seq, given.event, given.verdicts, given.source, given.data, key, at_ms, at)
        if isinstance(outcome, Refusal):
            refused = RefusalEntry(outcome.reason, outcome.message, outcome.accepted)
            return attrs.evolve(self, seq=seq, ledger=self.ledger.extend((arrived, refused)), read_ms=at_ms), ()
        return self._moved(*outcome, arrived)

    def _late(self, occurrence: Occurrence, key: str | None, at: str | None, compiled: CompiledStep) -> Refusal | None:
        event, why = occurrence.event, ""
        if key is not None and (occurrence.source is not None or key != self.keys.get(compiled.origins.get(event, ""))):
            why = f"{key} is not outstanding"
        elif key is None and at is not None and at != (place := str(place_of(self, event))):
            why = f"{event} was sent to place {at}, and its place is {place}"
        if not why:
            return None
        require_known(self.machine, occurrence)
        if self.finished:
            return None
        accepted = accepted_events(self.machine, self.configuration.state)
        return Refusal("late", self.configuration, why, (), accepted)

    def _moved(self, move: Move, values: tuple[Value, ...], arrived: EventEntry) -> tuple["Run", tuple[Command, ...]]:
        seq, place, steps = arrived.seq, f"{arrived.seq}/", self.steps
        accepted: tuple[tuple[str, str], ...] = ()
        if move.finalises is not None or move.revokes or move.event == SPECIFICATION:
            steps, accepted = views_after(move, steps)
        changed = changes(move, self.configuration.values, values) if move.updated else ()
        entries: list[Entry] = [arrived, RowEntry(move.line, move.source, move.target, changed, accepted)]
        intents = list[Intent]()
        for ordinal, effect, _ in move.started:
            key = place + ordinal
            entries.append(EffectEntry(key, effect))
            intents.append(Intent(key, effect, move.event, move.line, move.source, move.target))
        moved = Run(
            self.machine,
            self.run_id,
            Configuration(move.target, values, move.outstanding, move.precedence),
            self.ledger.extend(entries),
            seq,
            keys_after(move, self.keys, place) if move.started or move.ended else self.keys,
            steps,
            arrived.data if arrived.event == SPECIFICATION else self.specification,
            timers_after(move, self.timers, arrived.at_ms) if move.timers else self.timers,
            *places_after(move, arrived, self.entered, self.taken),
            arrived.at_ms,
        )
        if not (move.stopped or move.timers):
            return moved, tuple(intents)
        stopped = [Stop(self.keys[effect], effect) for effect in move.stopped]
        return moved, (*stopped, *move.timers, *intents)

    def record(self, entry: Record) -> "Run":
        """Append what a policy did: an effect's result, an artifact, a verdict."""
        steps = self.steps
        if isinstance(entry, ArtifactEntry) or isinstance(entry, VerdictEntry):  # noqa: SIM101  (in half the time)
            view = steps.get(entry.step) or StepView(entry.step)
            steps = {**steps, entry.step: view.after((entry,))}
        after = Run.__new__(Run)  # what is the same is copied at once: many records change nothing but the ledger
        after.__dict__.update(self.__dict__, steps=steps, ledger=self.ledger.append(entry))
        return after

    def under(self, machine: Machine, change: ChangeEntry) -> "Run":
        """Go on under another machine, which has brought the run to where it is as its own has (`dsa diff` says whether it has).

        State, values and what is under way stay; variables that the other machine alone has are at their initial values, and timers that it
        alone has are started.
        """
        values = dict(zip((variable.name for variable in machine.variables), machine.initial_values, strict=True))
        carried = tuple((values | self.values)[name] for name in values)
        here, ledger = self.configuration, self.ledger.append(change)
        started = deadlines(machine, here.state, change.at_ms)
        timers = {timer: due for timer, due in self.timers.items() if timer in started}
        timers |= {timer: due for timer, due in started.items() if timer not in timers}
        dropped = (DropTimer(*timer) for timer in self.timers if timer not in started)
        moved: list[DropTimer | ArmTimer] = [
            *dropped,
            *armed(machine, (timer for timer in started if timer not in self.timers)),
        ]
        precedence = precedence_after(machine, here.precedence, moved, here.state)
        configuration = attrs.evolve(here, values=carried, precedence=precedence)
        return attrs.evolve(self, machine=machine, configuration=configuration, ledger=ledger, timers=timers)


def begin(
    machine: Machine,
    run_id: str,
    *,
    digest: str = "",
    started: Mapping[str, Any] | None = None,
    at_ms: int = 0,
) -> tuple[Run, tuple[Command, ...]]:
    """Start a run: nothing has happened, and the timers of the initial state are armed.

    `digest` is the SHA-256 of the machine's canonical text, which only `dsa.lang` can write. `started` and `at_ms`, which is when it starts, are kept in the first entry.
    """
    first = MachineEntry(run_id, machine.name, digest, machine.constants, started or {}, at_ms)
    here = start(machine)
    run = Run(machine, run_id, here, Ledger((first,)), timers=deadlines(machine, here.state, at_ms), read_ms=at_ms)
    return run, armed(machine, machine.armed(here.state))


def place_of(run: Run, event: str) -> int:
    """Return the place of an event from outside: which of the questions that it may answer a run asks now.

    It is the number of the event that entered the leaf, or of this event's own last taking there, whichever is later. Rows with `=` as
    target, timers and refusals move no other event's place.
    """
    return max(run.entered, run.taken.get(event, 0))


def replay(
    machine: Machine, ledger: Iterable[Entry], machine_of: Callable[[ChangeEntry], Machine] | None = None
) -> Run:
    """Fold `step` over the events of a ledger again and give the run it leads to.

    Every other entry must be the one that the fold gives: raises ReplayError at the first that is not. `machine_of` reads the machines that
    the run has changed to, which only `dsa.lang` can.
    """
    entries = list(ledger)
    run = _begun(machine, entries)
    _require_same(run.ledger, entries, 0)
    fold, position = Fold(run), 1
    while (position := fold.take(entries, position)) < len(entries):
        run = _closely(fold.run(Ledger()), entries, position, machine_of)
        if position + len(run.ledger) >= len(entries):
            return attrs.evolve(run, ledger=Ledger([*entries[:position], *run.ledger]))
        position += len(run.ledger)
        fold = Fold(run)
    return fold.run(Ledger(entries))


def rederive(
    machine: Machine, ledger: Iterable[Entry], machine_of: Callable[[ChangeEntry], Machine] | None = None
) -> Run:
    """Do what `replay` does, entry by entry, and give a run whose ledger is what the machine gives, not what was recorded.

    `replay` compares as Python does, to which 1 and true are equal; whoever compares two ledgers letter by letter needs both.
    """
    entries = list(ledger)
    run = _begun(machine, entries)
    made = [*run.ledger]
    while len(made) < len(entries):
        run = _closely(attrs.evolve(run, ledger=Ledger()), entries, len(made), machine_of)
        made.extend(run.ledger)
    return attrs.evolve(run, ledger=Ledger(made))


def _begun(machine: Machine, entries: Sequence[Entry]) -> Run:
    """Return the run that the first of these entries begins. Raises ReplayError."""
    first = entries[0] if entries else None
    if not isinstance(first, MachineEntry):
        raise ReplayError(0, "a ledger begins with its machine")
    return begin(machine, first.run, digest=first.digest, started=dict(first.started), at_ms=first.at_ms)[0]


def _closely(
    run: Run, entries: Sequence[Entry], position: int, machine_of: Callable[[ChangeEntry], Machine] | None
) -> Run:
    """Take one entry, and require what follows from it; the run's ledger has these alone. Raises ReplayError."""
    entry = entries[position]
    if isinstance(entry, EventEntry):
        occurrence = Occurrence(entry.event, entry.verdicts, entry.source, entry.data)
        run, _ = run.feed(occurrence, entry.key, at_ms=entry.at_ms, at=entry.at)
    elif isinstance(entry, Record):
        run = run.record(entry)
    elif isinstance(entry, ChangeEntry) and machine_of is not None:
        run = run.under(machine_of(entry), entry)
    else:
        raise ReplayError(position, f"nothing leads to {entry}")
    _require_same(run.ledger, entries, position)
    return run


def _require_same(derived: Iterable[Entry], entries: Sequence[Entry], position: int) -> None:
    """Raise ReplayError unless the entries from a position on are these, as far as there are any."""
    for place, expected in enumerate(derived, start=position):
        if place < len(entries) and entries[place] != expected:
            raise ReplayError(place, f"the ledger has {entries[place]}, the machine gives {expected}")
