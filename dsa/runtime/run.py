"""The run: the fold of `step` over the events of its ledger (S10), as one frozen value.

- `Run` takes occurrences and records, and returns the next run and the commands for its driver. It reads no clock and no file, and does not know how
  effects are performed.
- `StepView` is one step of the workflow: attempts, feedback history, finalised artifact. WorkflowState and EnvironmentState of the agent program are
  read from these views.
- `replay` folds a recorded ledger again. `Fold` does this quickly: it compares entries instead of deriving them, and stops at the first event whose
  entries it cannot confirm; `replay` derives these one by one, and reports the difference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from dsa.compiled_step import CompiledRow, CompiledStep, compiled_step
from dsa.data_use import SPECIFICATION
from dsa.declarations import STAY
from dsa.errors import DsaError
from dsa.expr import Outcome, Value
from dsa.machine import (
    ArmTimer,
    DropTimer,
    Machine,
    arm_commands,
    precedence_after,
    read_guards,
    sleeping_effects,
    step_names,
)
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Intent,
    Ledger,
    MachineEntry,
    Record,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.semantics import Configuration, Occurrence, Refusal, accepted_events, is_over, require_known, start
from dsa.text import closest

__all__ = [
    "ArmTimer",
    "Command",
    "DropTimer",
    "Intent",
    "ReplayError",
    "Run",
    "StopEffect",
    "begin",
    "place_of",
    "rederive",
    "replay",
]


@attrs.frozen
class Rejection:
    """An artifact that a guard or a person rejected, with the feedback."""

    artifact_id: str
    outcome: Outcome
    feedback: str


@attrs.frozen
class StepView:
    """The state of one step of a workflow.

    `attempts` counts its artifacts over the whole run; `latest` is the id of the newest one. `history` is H of Definition 3: the rejections since the
    step last passed, including the last one and a fatal one. `accepted` is the id of the artifact that was finalised by the row that set the step's
    workflow variable, `variable`. `redacted` has the names of the secrets that the text of `latest` had.
    """

    name: str
    attempts: int = 0
    latest: str | None = None
    history: Ledger[Rejection] = attrs.field(factory=Ledger)
    accepted: str | None = None
    variable: str | None = None
    redacted: tuple[str, ...] = ()

    def after(self, entries: Iterable[ArtifactEntry | VerdictEntry]) -> "StepView":
        """Return the view after artifacts and verdicts. A rejection is added to the history, a pass clears it (Definition 8)."""
        attempts, latest, redacted = self.attempts, self.latest, self.redacted
        history, rejections = self.history, list[Rejection]()
        for entry in entries:
            if isinstance(entry, ArtifactEntry):
                attempts, latest, redacted = attempts + 1, entry.artifact_id, entry.redacted
            elif (outcome := entry.outcome) == "passed":
                history, rejections = Ledger(), []
            else:
                rejections.append(Rejection(entry.artifact_id, outcome, entry.feedback))
        history = history.extend(rejections) if rejections else history
        return StepView(self.name, attempts, latest, history, self.accepted, self.variable, redacted)

    def finalise(self, variable: str) -> "StepView":
        """Return the view after a row has set the step's workflow variable."""
        return attrs.evolve(self, history=Ledger(), accepted=self.latest, variable=variable)

    def fresh(self) -> "StepView":
        """Return the view with an empty history, for a new execution."""
        return attrs.evolve(self, history=Ledger())

    def revoke(self) -> "StepView":
        """Return the view without a finalised artifact."""
        return attrs.evolve(self, accepted=None, variable=None)


def guards_for(machine: Machine, state: str, event: str) -> tuple[str, ...]:
    """Return the guards that need a verdict when an event arrives in a state (S2), sorted."""
    guards: tuple[str, ...] | None = machine.worked_out.get(("guards", state, event))
    if guards is None:
        guards = machine.worked_out["guards", state, event] = read_guards(machine.rows_for(state, event))
    return guards


#: The deadlines of armed timers, in milliseconds since 1970, by source and event, in the order in which the timers were started.
Timers = Mapping[tuple[str, str], int]


#: The deadlines of the effects that sleep, in milliseconds since 1970, by key, in the order in which they were asked for.
Sleeps = Mapping[str, int]

_NOWHERE: Mapping[str, int] = MappingProxyType({})


@attrs.frozen
class StopEffect:
    """The command to stop an effect that was cancelled; its answer would be late."""

    key: str
    effect: str


#: A command for the driver. Their order is: stop effects, drop timers, arm timers, then perform the intents as in S6.
Command = StopEffect | DropTimer | ArmTimer | Intent


def change_keys(move: CompiledRow, keys: dict[str, str], place: str, answered_key: str | None) -> list[StopEffect]:
    """Change the keys of outstanding effects in place after a move, and return the effects to stop.

    An answer discharges its own key, or the oldest of its effect where it has none. The keys of the effects that the move starts begin with `place`.
    """
    if move.origin is not None:
        del keys[answered_key or oldest_key(keys, move.origin)]
    stops = [StopEffect(key, effect) for effect in move.stops for key, other in keys.items() if other == effect]
    for stop in stops:
        del keys[stop.key]
    for ordinal, effect, has_answers in move.starts:
        if has_answers:
            keys[place + ordinal] = effect
    return stops


def oldest_key(keys: Mapping[str, str], effect: str) -> str:
    """Return the oldest key under which an effect is outstanding; "" if there is none."""
    return next((key for key, other in keys.items() if other == effect), "")


def timers_after(move: CompiledRow, timers: Timers, at_ms: int) -> Timers:
    """Return the deadlines of armed timers after a move at this time; the timer that was started last is last."""
    if not move.timers:
        return timers
    after = dict(timers)
    for command in move.timers:
        after.pop((command.source, command.event), None)
        if isinstance(command, ArmTimer):
            after[command.source, command.event] = at_ms + command.duration_ms
    return after


def sleeps_after(move: CompiledRow, sleeps: Sleeps, keys: Mapping[str, str], place: str, at_ms: int) -> Sleeps:
    """Return the deadlines of sleeping effects after a move at this time. `keys` are those outstanding after it."""
    after = {key: due for key, due in sleeps.items() if key in keys}
    return after | {place + ordinal: at_ms + duration_ms for ordinal, duration_ms in move.sleeps}


def deadlines(machine: Machine, state: str, at_ms: int) -> Timers:
    """Return the deadlines of a state's timers if the state is entered at this time."""
    timers = arm_commands(machine, () if state in machine.final_states else machine.armed_timers(state))
    return {(timer.source, timer.event): at_ms + timer.duration_ms for timer in timers}


def places_after(
    move: CompiledRow, event: EventEntry, entered_seq: int, taken_seqs: Mapping[str, int]
) -> tuple[int, Mapping[str, int]]:
    """Return the number of the event that entered the leaf, and the numbers of the outside events that were taken there since."""
    if move.row.target != STAY:
        return event.seq, _NOWHERE
    if event.key is not None or event.source is not None:
        return entered_seq, taken_seqs
    return entered_seq, {**taken_seqs, event.event: event.seq}


def changes(move: CompiledRow, before: tuple[Value, ...], after: tuple[Value, ...]) -> tuple[tuple[str, Value], ...]:
    """Return the variables whose values a move has changed, with their new values."""
    if not move.assignments or after == before:
        return ()
    return tuple([(name, after[place]) for place, name in move.assignments if after[place] != before[place]])


def views_after(
    move: CompiledRow, views: Mapping[str, StepView]
) -> tuple[Mapping[str, StepView], tuple[tuple[str, str], ...]]:
    """Return the steps' views after a move, and the pairs of step and artifact that it finalised.

    A row that sets a workflow variable finalises the step's artifact, one that unsets it revokes the artifact, and a new task clears the histories.
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
            after[name] = after[name].revoke()
    if latest is None or move.finalises is None:
        return after, ()
    after[move.step] = after[move.step].finalise(move.finalises)
    return after, ((move.step, latest),)


#: Records that change nothing but the ledger.
_ONLY_RECORDED: frozenset[type[Entry]] = frozenset(
    {ResultEntry, ResumedEntry, DecidedEntry, CallEntry, CallResultEntry}
)


class Fold:
    """A run that changes in place: the fields of `Run` and of its configuration. `run` returns them as a `Run`."""

    def __init__(self, run: "Run") -> None:
        here = run.configuration
        self.state, self.values, self.outstanding = here.state, here.values, here.outstanding
        self.precedence = here.precedence
        self.seq, self.specification = run.seq, run.specification
        self.keys = dict(run.keys)  # its own, and changed in place
        self.timers, self.entered_seq, self.taken_seqs, self.read_ms, self.sleeps = (
            run.timers,
            run.entered_seq,
            run.taken_seqs,
            run.read_ms,
            run.sleeps,
        )
        self._before, self._machine_step = run, compiled_step(run.machine)
        self._steps = run.steps
        self._records: dict[str, list[ArtifactEntry | VerdictEntry]] = {}  # since the views were made

    def run(self, ledger: Ledger[Entry]) -> "Run":
        """Return the current run, with this ledger."""
        before = self._before
        return type(before)(
            before.machine,
            before.run_id,
            Configuration(self.state, self.values, self.outstanding, self.precedence),
            ledger,
            self.seq,
            dict(self.keys),
            self.steps,
            self.specification,
            self.timers,
            self.entered_seq,
            self.taken_seqs,
            self.read_ms,
            self.sleeps,
        )

    @property
    def steps(self) -> Mapping[str, StepView]:
        """The steps' views."""
        if self._records:
            views = {name: self._steps.get(name) or StepView(name) for name in self._records}
            self._steps = {**self._steps, **{name: view.after(self._records[name]) for name, view in views.items()}}
            self._records = {}
        return self._steps

    def take(self, entries: Sequence[Entry], position: int) -> int:
        """Fold entries from a position on; return the position of the first entry that was not folded."""
        count = len(entries)
        while position < count:
            entry = entries[position]
            if type(entry) is EventEntry:
                length = self._take_event(entry, entries, position + 1)
                if not length:
                    return position
                position += length
                continue
            if type(entry) not in _ONLY_RECORDED:
                if not (type(entry) is ArtifactEntry or type(entry) is VerdictEntry):
                    return position
                self._records.setdefault(entry.step, []).append(entry)
            position += 1
        return position

    def _take_event(self, event: EventEntry, entries: Sequence[Entry], position: int) -> int:
        """Fold an event with the entries that follow from it; return their number, or 0 if they cannot be confirmed."""
        seq, keys, machine_step = self.seq + 1, self.keys, self._machine_step
        if event.seq != seq or event.at is not None or event.at_ms < self.read_ms:
            return 0
        if event.key is not None and (
            event.source is not None or keys.get(event.key) != machine_step.origins.get(event.event, "")
        ):
            return 0
        result = machine_step.move(self, event)
        if isinstance(result, Refusal):
            refusal = RefusalEntry(result.reason, result.message, result.accepted)
            if position == len(entries) or entries[position] != refusal:
                return 0
            self.seq, self.read_ms = seq, event.at_ms
            return 2
        move, values = result
        steps = self._steps
        artifacts: tuple[tuple[str, str], ...] = ()
        if move.finalises is not None or move.revokes or move.event == SPECIFICATION:
            steps, artifacts = views_after(move, self.steps)
        values_changed = changes(move, self.values, values) if move.assignments else ()
        place = f"{seq}/"
        if not _follows(entries, position, move, values_changed, artifacts, place):
            return 0
        self.state, self.values, self.outstanding, self.seq = move.target, values, move.outstanding, seq
        self.precedence, self.read_ms = move.precedence, event.at_ms
        if move.starts or move.stops or move.origin is not None:
            change_keys(move, keys, place, event.key)
            if move.sleeps or self.sleeps:
                self.sleeps = sleeps_after(move, self.sleeps, keys, place, event.at_ms)
        self._steps = steps
        if move.timers:
            self.timers = timers_after(move, self.timers, event.at_ms)
        self.entered_seq, self.taken_seqs = places_after(move, event, self.entered_seq, self.taken_seqs)
        if move.event == SPECIFICATION:
            self.specification = event.data
        return 2 + len(move.starts)


def _follows(
    entries: Sequence[Entry], position: int, move: CompiledRow, new_values: object, artifacts: object, place: str
) -> bool:
    """Return whether the row of a move is at a position, followed by the effects that the move starts."""
    effects = move.starts
    if position + len(effects) >= len(entries):
        return False
    row = entries[position]
    if not (
        type(row) is RowEntry
        and row.line == move.line
        and row.source == move.source
        and row.target == move.target
        and row.changed == new_values
        and row.accepted == artifacts
    ):
        return False
    for ordinal, effect, _ in effects:
        position += 1
        effect_entry = entries[position]
        if not (
            type(effect_entry) is EffectEntry and effect_entry.effect == effect and effect_entry.key == place + ordinal
        ):
            return False
    return True


class ReplayError(DsaError):
    """Raised when a ledger does not belong to this machine. `position` is the first entry that differs, from 0."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(f"entry {position}: {message}")


@attrs.frozen(slots=False)
class Run:
    """A machine under way. `begin` creates it, `feed` takes events, `record` takes what policies did.

    `keys` has the outstanding effects by key, the oldest first, `steps` a view of each step with an artifact or a verdict. `specification` is the
    data of the last event of that name that was taken. `timers` are the deadlines of armed timers. `entered_seq` is the number of the event that entered the leaf,
    `taken_seqs` has the number of the last taking there of each outside event (`place_of`). `read_ms` is the last reading of the clock; a later
    reading is never before it (S11). `sleeps` are the deadlines of the effects that sleep, by key. Times are in milliseconds since 1970.
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
    entered_seq: int = 0
    taken_seqs: Mapping[str, int] = attrs.field(factory=dict)
    read_ms: int = 0
    sleeps: Sleeps = attrs.field(factory=dict)

    @property
    def is_finished(self) -> bool:
        """Return whether the run is finished: in a final state, or at an end (`end when`)."""
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
        """Return the view of a step; an empty one if the step has no artifact yet. Raises LookupError if the machine has no such step."""
        view = self.steps.get(name)
        if view is None and name not in (names := step_names(self.machine)):
            raise LookupError(f"machine {self.machine.name} has no step '{name}'; {closest(name, names)}")
        return view or StepView(name)

    def feed(
        self, occurrence: Occurrence, key: str | None = None, *, at_ms: int = 0, at: str | None = None
    ) -> tuple["Run", tuple[Command, ...]]:
        """Take the row for an occurrence, or record its refusal; return the next run and the commands.

        `key` is the key of the effect that the occurrence answers; without it an answer counts as that of the oldest. An answer with a key that is
        not outstanding is late (S10), and so is an event whose place has changed since its sender named it (`at`). `at_ms` is the time of arrival; if the
        clock was set back, the time of the previous event is used. A refused event changes only the ledger. Raises OccurrenceError as `step` does; then
        nothing is recorded.
        """
        at_ms = max(at_ms, self.read_ms)
        machine_step, seq = compiled_step(self.machine), self.seq + 1
        outcome = self._late(occurrence, key, at, machine_step) or machine_step.move(self.configuration, occurrence)
        event = EventEntry(
            seq, occurrence.event, occurrence.verdicts, occurrence.source, occurrence.data, key, at_ms, at
        )
        if isinstance(outcome, Refusal):
            refusal = RefusalEntry(outcome.reason, outcome.message, outcome.accepted)
            return attrs.evolve(self, seq=seq, ledger=self.ledger.extend((event, refusal)), read_ms=at_ms), ()
        return self._take_row(*outcome, event)

    def _late(
        self, occurrence: Occurrence, key: str | None, at: str | None, machine_step: CompiledStep
    ) -> Refusal | None:
        event, why = occurrence.event, ""
        if key is not None and (
            occurrence.source is not None or self.keys.get(key) != machine_step.origins.get(event, "")
        ):
            why = f"{key} is not outstanding"
        elif key is None and at is not None and at != (place := str(place_of(self, event))):
            why = f"{event} was sent to place {at}, but its place is now {place}"
        if not why:
            return None
        require_known(self.machine, occurrence)
        if self.is_finished:
            return None
        names = accepted_events(self.machine, self.configuration.state)
        return Refusal("late", self.configuration, why, (), names)

    def _take_row(
        self, move: CompiledRow, values: tuple[Value, ...], event: EventEntry
    ) -> tuple["Run", tuple[Command, ...]]:
        seq, place, steps = event.seq, f"{event.seq}/", self.steps
        artifacts: tuple[tuple[str, str], ...] = ()
        if move.finalises is not None or move.revokes or move.event == SPECIFICATION:
            steps, artifacts = views_after(move, steps)
        new_values = changes(move, self.configuration.values, values) if move.assignments else ()
        entries: list[Entry] = [event, RowEntry(move.line, move.source, move.target, new_values, artifacts)]
        intents = list[Intent]()
        for ordinal, effect, _ in move.starts:
            key = place + ordinal
            entries.append(EffectEntry(key, effect))
            intents.append(Intent(key, effect, move.event, move.line, move.source, move.target))
        keys, stops = dict(self.keys), list[StopEffect]()
        if move.starts or move.stops or move.origin is not None:
            stops = change_keys(move, keys, place, event.key)
        run = Run(
            self.machine,
            self.run_id,
            Configuration(move.target, values, move.outstanding, move.precedence),
            self.ledger.extend(entries),
            seq,
            keys,
            steps,
            event.data if event.event == SPECIFICATION else self.specification,
            timers_after(move, self.timers, event.at_ms) if move.timers else self.timers,
            *places_after(move, event, self.entered_seq, self.taken_seqs),
            event.at_ms,
            sleeps_after(move, self.sleeps, keys, place, event.at_ms) if move.sleeps or self.sleeps else self.sleeps,
        )
        return run, (*stops, *move.timers, *intents)

    def record(self, entry: Record) -> "Run":
        """Append a record of a policy's work: an effect's result, an artifact, a verdict."""
        steps = self.steps
        if isinstance(entry, ArtifactEntry) or isinstance(entry, VerdictEntry):  # noqa: SIM101  (in half the time)
            view = steps.get(entry.step) or StepView(entry.step)
            steps = {**steps, entry.step: view.after((entry,))}
        after = Run.__new__(Run)  # copying all fields at once is fast, and many records change only the ledger
        after.__dict__.update(self.__dict__, steps=steps, ledger=self.ledger.append(entry))
        return after

    def under(self, machine: Machine, change: ChangeEntry) -> "Run":
        """Return the run under another machine, which must lead to the same configuration (`dsa diff` checks this).

        State, values and outstanding effects stay, and so do the deadlines of those that sleep. Variables that only the other machine has get their
        initial values, and timers that only it has are started; what sleeps only there begins to sleep.
        """
        values = dict(zip((variable.name for variable in machine.variables), machine.initial_values, strict=True))
        new_values = tuple((values | self.values)[name] for name in values)
        here, ledger = self.configuration, self.ledger.append(change)
        deadlines_now = deadlines(machine, here.state, change.at_ms)
        timers = {timer: due for timer, due in self.timers.items() if timer in deadlines_now}
        timers |= {timer: due for timer, due in deadlines_now.items() if timer not in timers}
        drops = (DropTimer(*timer) for timer in self.timers if timer not in deadlines_now)
        commands: list[DropTimer | ArmTimer] = [
            *drops,
            *arm_commands(machine, (timer for timer in deadlines_now if timer not in self.timers)),
        ]
        precedence = precedence_after(machine, here.precedence, commands, here.state)
        configuration = attrs.evolve(here, values=new_values, precedence=precedence)
        sleeps = {
            key: self.sleeps.get(key, change.at_ms + sleeping_effects(machine)[effect])
            for key, effect in self.keys.items()
            if effect in sleeping_effects(machine)
        }
        return attrs.evolve(
            self, machine=machine, configuration=configuration, ledger=ledger, timers=timers, sleeps=sleeps
        )


def begin(
    machine: Machine,
    run_id: str,
    *,
    digest: str = "",
    settings: Mapping[str, Any] | None = None,
    at_ms: int = 0,
) -> tuple[Run, tuple[Command, ...]]:
    """Return a new run, with the commands that arm the timers of the initial state.

    `digest` is the SHA-256 of the machine's canonical text, which only `dsa.lang` can write. `settings` (the settings) and `at_ms` (the time of the
    start) are recorded in the first entry.
    """
    first = MachineEntry(run_id, machine.name, digest, machine.constants, settings or {}, at_ms)
    here = start(machine)
    run = Run(machine, run_id, here, Ledger((first,)), timers=deadlines(machine, here.state, at_ms), read_ms=at_ms)
    return run, arm_commands(machine, machine.armed_timers(here.state))


def place_of(run: Run, event: str) -> int:
    """Return the place of an outside event, which names the question that the event would answer now.

    It is the number of the event that entered the leaf, or of this event's own last taking there, whichever is later. Rows with `=` as target, timers
    and refusals do not change the places of other events.
    """
    return max(run.entered_seq, run.taken_seqs.get(event, 0))


def replay(
    machine: Machine, ledger: Iterable[Entry], machine_of: Callable[[ChangeEntry], Machine] | None = None
) -> Run:
    """Fold `step` over the events of a ledger, and return the resulting run.

    Every other entry must be the one that the fold derives; raises ReplayError at the first that is not. `machine_of` reads the machines that the run
    has changed to, which only `dsa.lang` can.
    """
    entries = list(ledger)
    run = _first_run(machine, entries)
    _require_same(run.ledger, entries, 0)
    fold, position = Fold(run), 1
    while (position := fold.take(entries, position)) < len(entries):
        run = _replay_entry(fold.run(Ledger()), entries, position, machine_of)
        if position + len(run.ledger) >= len(entries):
            return attrs.evolve(run, ledger=Ledger([*entries[:position], *run.ledger]))
        position += len(run.ledger)
        fold = Fold(run)
    return fold.run(Ledger(entries))


def rederive(
    machine: Machine, ledger: Iterable[Entry], machine_of: Callable[[ChangeEntry], Machine] | None = None
) -> Run:
    """Do what `replay` does, but return a run whose ledger has the derived entries instead of the recorded ones.

    `replay` compares with Python's equality, for which 1 and True are equal. An exact comparison needs the derived ledger as well.
    """
    entries = list(ledger)
    run = _first_run(machine, entries)
    entries_made = [*run.ledger]
    while len(entries_made) < len(entries):
        run = _replay_entry(attrs.evolve(run, ledger=Ledger()), entries, len(entries_made), machine_of)
        entries_made.extend(run.ledger)
    return attrs.evolve(run, ledger=Ledger(entries_made))


def _first_run(machine: Machine, entries: Sequence[Entry]) -> Run:
    """Return the run after the first of these entries. Raises ReplayError."""
    first = entries[0] if entries else None
    if not isinstance(first, MachineEntry):
        raise ReplayError(0, "a ledger begins with its machine")
    return begin(machine, first.run, digest=first.digest, settings=dict(first.started), at_ms=first.at_ms)[0]


def _replay_entry(
    run: Run, entries: Sequence[Entry], position: int, machine_of: Callable[[ChangeEntry], Machine] | None
) -> Run:
    """Derive the entries that follow from one entry, and require them; the ledger of the run has only these. Raises ReplayError."""
    entry = entries[position]
    if isinstance(entry, EventEntry):
        occurrence = Occurrence(entry.event, entry.verdicts, entry.source, entry.data)
        run, _ = run.feed(occurrence, entry.key, at_ms=entry.at_ms, at=entry.at)
    elif isinstance(entry, Record):
        run = run.record(entry)
    elif isinstance(entry, ChangeEntry) and machine_of is not None:
        run = run.under(machine_of(entry), entry)
    else:
        raise ReplayError(position, f"no earlier entry leads to {entry}")
    _require_same(run.ledger, entries, position)
    return run


def _require_same(derivation: Iterable[Entry], entries: Sequence[Entry], position: int) -> None:
    """Raise ReplayError if a recorded entry from a position on differs from the derived one."""
    for place, entry in enumerate(derivation, start=position):
        if place < len(entries) and entries[place] != entry:
            raise ReplayError(place, f"the ledger has {entries[place]}, but the machine gives {entry}")
