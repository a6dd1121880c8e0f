"""The facts of a simulated run, seen from outside: what its store acknowledged, folded by the table, and what happened in the world.

`RunFacts` takes the ledger's entries as they become durable; `Deeds` counts what happened in the world. Both never look into the driver or
the run: they know of them only what they wrote and what they did.

An `Oracle` is a small function that says what is wrong, with the rule or the promise that it stands for.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from dsa.declarations import OUTSIDE, STAY, Cancel, Emit, Transition
from dsa.machine import sources_left
from dsa.runtime.costs import BudgetLimit, is_try
from dsa.runtime.ledger import (
    ArtifactEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Handling,
    Intent,
    Intents,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
)
from dsa.runtime.run import Run
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, accepted_events, is_over, start
from dsa.testing.simulation.seed_plan import Subject
from dsa.testing.simulation.virtual_loop import Time

Timer = tuple[str, str]
#: The next occurrence of a run that nothing disturbs, by the number of rows taken and the configuration.
Intention = Callable[[int, Configuration], Occurrence | None]
_MS = 1000


@attrs.define
class Deeds:
    """What happened in the world, whatever a ledger says; effects by their keys.

    `begin_count` and `done_count` count, `begin_s` is when an effect was begun last; `outcomes` are the answers and the codes of failures that came back, `guard_outcomes` what guards said while
    an effect was performed (the empty key: while an event arrived), `sent_count` the events from outside, `decisions` what a person
    said of effects in doubt. `excused_codes` are codes of failures with which a run may stop. `is_unplanned` says that something
    happened which a run without faults would not have met.
    """

    begin_count: Counter[str] = attrs.field(factory=Counter)
    done_count: Counter[str] = attrs.field(factory=Counter)
    begin_s: dict[str, float] = attrs.field(factory=dict)
    outcomes: dict[str, list[str]] = attrs.field(factory=dict)
    guard_outcomes: dict[tuple[str, str], str] = attrs.field(factory=dict)
    sent_count: Counter[str] = attrs.field(factory=Counter)
    decisions: dict[str, list[str]] = attrs.field(factory=dict)
    excused_codes: set[str] = attrs.field(factory=set)
    is_unplanned: bool = False
    was_taken: bool = False


@attrs.frozen
class SleepFact:
    """A sleep: when it is due, by true time and by the wall clock, whether that was past as the run was taken up, and the data that it answers with."""

    due_s: float
    deadline_ms: int
    data: Any
    is_overdue: bool = False


class RunFacts:
    """A run as its durable entries show it, and the world beside it."""

    def __init__(self, subject: Subject, time: Time, limits: tuple[BudgetLimit, ...] = ()) -> None:
        self.subject, self.machine, self.time, self.limits = subject, subject.machine, time, limits
        self.intention: Intention | None = None
        self.deeds = Deeds()
        self.entries: list[Entry] = []
        self.being_written: tuple[Entry, ...] = ()
        self._written_s, self.written_ms = time.now_s, time.wall_ms()
        #: The last reading of the clock that an entry has: no later one is before it (S11).
        self.read_ms = 0
        self.epoch = 0
        self.configuration = start(self.machine)
        self.seq = 0
        self.fed_count: Counter[str] = Counter()
        self.keys: dict[str, str] = {}
        self.intents = Intents()
        self.row_of_key: dict[str, int] = {}
        self.results: dict[str, list[ResultEntry]] = {}
        self._answered_keys: set[str] = set()
        self.doubts: dict[str, list[Handling]] = {}
        self.settled_keys: set[str] = set()
        self.latest: dict[str, str] = {}
        self.cancelled_intents: list[Intent] = []
        self.due_s: dict[Timer, float] = {}
        self.overdue: set[Timer] = set()
        self.deadlines: dict[Timer, int] = {}
        #: The sleeps that are not over, by key.
        self.sleeps: dict[str, SleepFact] = {}
        self.expected_entries: deque[Entry] = deque()
        #: How many rows were taken, and which was the last one.
        self.position = 0
        self.row: int | None = None
        self.taken: list[Taken] = []
        self.occurrences: list[Occurrence] = []
        self.event_outcomes: dict[str, list[Taken | Refusal]] = {}
        self._arm((), self.machine.armed_timers(self.configuration.state), self.written_ms)

    @property
    def is_finished(self) -> bool:
        """Return whether the run is finished here."""
        return is_over(self.machine, self.configuration)

    # -- what the next event leads to -----------------------------------------------------------------------------

    def outcome_of(self, event: EventEntry) -> Taken | Refusal:
        """Return what the table makes of an event that comes next: a late key first, then `step` (S4, S7)."""
        if event.key is not None and not self.is_finished and not self.is_outstanding(event.key, event.event):
            return Refusal("late", self.configuration, "")
        return self.subject.step(self.configuration, self.subject.occurrence(event))

    def is_outstanding(self, key: str, event: str) -> bool:
        """Return whether an event may answer the effect of a key."""
        return self.keys.get(key) == self.machine.event_named[event].origin

    def row_of(self, taken: Taken) -> int:
        """Return the index of the row taken."""
        return self.subject.row_index[id(taken.transition)]

    def writes(self, entries: Iterable[Entry]) -> None:
        """Record that entries are being written now, as one append, with the time: they may be found later."""
        self.being_written = tuple(entries)
        self._written_s, self.written_ms = self.time.now_s, self.time.wall_ms()

    # -- entries that became durable, one after the other ---------------------------------------------------------

    def fold(self, entry: Entry) -> None:
        """Fold an entry that became durable."""
        self.entries.append(entry)
        if type(entry) is EventEntry:  # in half the time of `match`
            self.intents.take(entry)
            self._happen(entry)
        elif type(entry) is RowEntry:
            self.intents.take(entry)
        elif type(entry) is EffectEntry:
            self.intents.take(entry)
            self.row_of_key[entry.key] = self.row if self.row is not None else -1
        elif type(entry) is ResultEntry:
            self.results.setdefault(entry.key, []).append(entry)
            if not entry.has_failed:
                self._answered_keys.add(entry.key)
            self.sleeps.pop(entry.key, None)
        elif type(entry) is ArtifactEntry:
            self.latest[entry.step] = entry.artifact_id
        elif type(entry) is ResumedEntry:
            for key, handling in entry.effects:
                self.doubts.setdefault(key, []).append(handling)
                self._settle(key, handling)
        elif type(entry) is DecidedEntry:
            self._settle(entry.key, entry.handling)
        elif type(entry) is MachineEntry:
            self.read_ms = entry.at_ms
            self._arm((), tuple(self.due_s), entry.at_ms)
        if self.expected_entries and type(self.expected_entries[0]) is type(entry):
            self.expected_entries.popleft()

    def _settle(self, key: str, handling: Handling) -> None:
        """Record that an effect in doubt is not performed again."""
        if handling in {"fail", "done"}:
            self.settled_keys.add(key)

    def _happen(self, event: EventEntry) -> None:
        """Fold an event: add the entries that must follow it."""
        self.seq, self.read_ms = event.seq, event.at_ms
        self.fed_count[event.event] += event.key is None
        outcome = self.outcome_of(event)
        if event.key is None:
            self.event_outcomes.setdefault(event.event, []).append(outcome)
        if isinstance(outcome, Refusal):
            accepted = accepted_events(self.machine, self.configuration.state)
            self.expected_entries.append(RefusalEntry(outcome.reason, "", accepted))
            return
        self.row = self.row_of(outcome)
        before, after, row = self.configuration, outcome.configuration, outcome.transition
        line = row.span.line if row.span else None
        self.expected_entries.append(RowEntry(line, before.state, after.state, self._changes(after)))
        origin = None if event.source is not None else self.machine.event_named[event.event].origin
        answered_key = event.key or next((key for key, effect in self.keys.items() if effect == origin), "")
        self.keys.pop(answered_key, None)
        cancelled_keys = [key for key, effect in self.keys.items() if effect in outcome.cancelled]
        self.cancelled_intents += [self.intents[key] for key in cancelled_keys]
        self.keys = {key: effect for key, effect in self.keys.items() if key not in cancelled_keys}
        self._expect_effects(event, outcome)
        self.sleeps = {key: sleep for key, sleep in self.sleeps.items() if key in self.keys}
        self.configuration = after
        self.position += 1
        self.occurrences.append(self.subject.occurrence(event))
        self.taken.append(outcome)
        self._arm_timers(before.state, row, event.at_ms)

    def _changes(self, after: Configuration) -> tuple[tuple[str, object], ...]:
        before, values = self.configuration.values, after.values
        if before == values:
            return ()
        return tuple([(v.name, values[n]) for n, v in enumerate(self.machine.variables) if values[n] != before[n]])

    def _expect_effects(self, event: EventEntry, taken: Taken) -> None:
        """Record the effects that must be emitted: those that neither the row itself nor a final state cancels (S7)."""
        answers, is_over = self.machine.answers, taken.configuration.state in self.machine.final_states
        items = taken.transition.effects
        for place, item in enumerate(items):
            if isinstance(item, Cancel):
                continue
            later = {each.effect for each in items[place:] if isinstance(each, Cancel)}
            if item.effect in answers and (is_over or {None, item.effect} & later):
                continue
            key = f"{event.seq}/{sum(isinstance(each, Emit) for each in items[: place + 1])}"
            if item.effect in answers:
                self.keys[key] = item.effect
            if (duration_ms := self.subject.sleeps.get(item.effect)) is not None:
                due_s, due_ms = self._written_s + duration_ms / _MS, event.at_ms + duration_ms
                self.sleeps[key] = SleepFact(due_s, due_ms, event.data)
            self.expected_entries.append(EffectEntry(key, item.effect))

    def _arm_timers(self, before: str, row: Transition, at_ms: int) -> None:
        """Start the timers that the row starts, and forget those that are dropped (S11)."""
        if not self.subject.has_timers:
            return
        after = self.configuration.state
        left = frozenset[str]() if row.target == STAY else sources_left(self.machine, before, after)
        sources = frozenset(self.machine.ancestry(before)) - left
        timers = self.machine.armed_timers(after)
        again = [(row.source, row.event)] if row.is_timer and row.source in sources and not self.is_finished else []
        self.due_s = {timer: due for timer, due in self.due_s.items() if timer in timers and timer[0] in sources}
        self._arm(again, (timer for timer in timers if timer[0] not in sources), at_ms)

    def _arm(self, again: Iterable[Timer], new_timers: Iterable[Timer], at_ms: int) -> None:
        for timer in (*new_timers, *again):
            self.overdue.discard(timer)
            duration_ms = self.machine.rows_from[timer][0].duration_ms
            self.due_s[timer] = self._written_s + duration_ms / _MS
            self.deadlines[timer] = at_ms + duration_ms

    def resume(self) -> None:
        """Compute anew when timers are due: by the wall clock, as a process that takes the run up must (S11)."""
        for timer in self.due_s:
            self.due_s[timer] = self.time.now_s + max(0, self.deadlines[timer] - self.time.wall_ms()) / _MS
        self.overdue = {timer for timer in self.due_s if self.deadlines[timer] < self.time.wall_ms()}
        for key, sleep in self.sleeps.items():
            left_ms = sleep.deadline_ms - self.time.wall_ms()
            due_s = self.time.now_s + max(0, left_ms) / _MS
            self.sleeps[key] = attrs.evolve(sleep, due_s=due_s, is_overdue=left_ms < 0)

    def restart(self) -> None:
        """Drop the timers of a run that was begun and never became durable."""
        self.writes(())
        self.expected_entries.clear()
        self.due_s.clear()
        self._arm((), self.machine.armed_timers(self.configuration.state), self.written_ms)

    # -- effects ---------------------------------------------------------------------------------------------------

    def is_answered(self, key: str) -> bool:
        """Return whether an effect has a result other than a failure."""
        return key in self._answered_keys

    def call_count(self, limit: BudgetLimit, *, with_doubts: bool) -> int:
        """Return the number of calls that a limit counts. Of a cancelled effect only recorded calls count (`Meter`).

        With doubts, what was in doubt counts even though it may never have begun.
        """
        effects = {limit.effect} if limit.effect else self.machine.answers.keys() - self.subject.sleeps.keys()
        cancelled_keys = {intent.key for intent in self.cancelled_intents}
        count = 0
        for key in (key for key, intent in self.intents.items() if intent.effect in effects):
            records = sum(is_try(result) for result in self.results.get(key, ()))
            records += sum(handling != "again" for handling in self.doubts.get(key, ()))
            begins = self.deeds.begin_count[key]
            under_way = bool(begins) and not self.is_answered(key)
            count += records + under_way if with_doubts else min(begins, records) if key in cancelled_keys else begins
        return count

    def is_outside(self, event: EventEntry) -> bool:
        """Return whether an event comes from outside."""
        return event.source is None and self.machine.event_named[event.event].origin == OUTSIDE


@attrs.frozen
class LedgerRead:
    """The entries that a process read as it took the run up."""

    entries: tuple[Entry, ...]


@attrs.frozen
class EffectBegin:
    """A policy is called: for which key and effect, by a process that may write, or knows that it may not.

    `is_stale` says that another process has taken the run, and this one cannot know. `beside` are the keys of other emissions of the
    effect that the process is performing.
    """

    key: str
    effect: str
    may_write: bool
    is_stale: bool
    beside: tuple[str, ...] = ()


@attrs.frozen
class ReplyFact:
    """The sender of an event from outside hears how it was answered."""

    event: str
    answer: Taken | Refusal


@attrs.frozen
class LedgerWrite:
    """Entries became durable under an epoch, by a process that may write, or knows that it may not."""

    entries: tuple[Entry, ...]
    epoch: int
    may_write: bool


@attrs.frozen
class RestFact:
    """A process says that its run rests, and how; `code` is why it was stopped."""

    kind: str
    code: str
    run: Run
    in_doubt: tuple[Intent, ...]


#: Given the facts and what is about to be added to them, says what is wrong; None when all is well.
Judge = Callable[[RunFacts, Any], str | None]


@attrs.frozen
class Oracle:
    """A rule that every run must keep. `cites` is the rule of specs/semantics.md or the promise of docs/how-to/simulate.md."""

    name: str
    cites: str
    judge: Judge = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.cites})"


@attrs.frozen
class Violation:
    """A broken oracle, and how it was broken."""

    oracle: Oracle
    message: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.message}"


def oracle(cites: str) -> Callable[[Judge], Oracle]:
    """Make an oracle of a function; its name, with spaces, is the rule in words."""

    def make_oracle(judge: Judge) -> Oracle:
        return Oracle(judge.__name__.replace("_", " "), cites, judge)

    return make_oracle
