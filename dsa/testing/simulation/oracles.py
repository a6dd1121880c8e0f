"""The oracles of a simulated run, by the moment at which they judge, and the court that asks them in this order.

`Court` judges whatever becomes durable, begins, is shown or rests, before it joins the facts. The first broken oracle stays in `violation`.

The oracles here are of ledgers and whole runs: what was acknowledged is there, and what is there is what the table makes of the events. Each run goes on once
faults stop, rests where it may, and keeps the properties of its document. Each oracle takes the facts so far and one new fact, and returns what is wrong.
"""

from collections.abc import Callable, Sequence

import attrs

from dsa.checks.monitor import monitor
from dsa.checks.properties import moments
from dsa.data_use import Use, uses
from dsa.declarations import Assign
from dsa.expr import guards_read
from dsa.runtime.costs import BUDGET
from dsa.runtime.event_data import MISSING_DATA
from dsa.runtime.ledger import (
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.policy.call_tree import IN_DOUBT
from dsa.runtime.status import Rest
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.testing.simulation import effect_oracles
from dsa.testing.simulation.effect_oracles import TIMED_OUT, asked_for, said_by
from dsa.testing.simulation.facts import (
    EffectBegin,
    LedgerRead,
    LedgerWrite,
    Oracle,
    ReplyFact,
    RestFact,
    RunFacts,
    Violation,
    oracle,
)
from dsa.testing.simulation.process import Process

__all__ = [
    "AFTER_WRITE",
    "ASKED_OF",
    "AT_ANSWER",
    "AT_BEGIN",
    "AT_END",
    "AT_FAULT",
    "AT_IDLE",
    "AT_READ",
    "AT_REST",
    "AT_SHOW",
    "AT_WAKE",
    "AT_WRITE",
    "ORACLES",
    "WHILE_EXPECTED",
    "Oracle",
    "Violation",
]


# -- what a process reads as it takes a run up ------------------------------------------------------------------------


@oracle("P1")
def acknowledged_entries_survive(facts: RunFacts, ledger_read: LedgerRead) -> str | None:
    """Whatever ended the process: kill, power cut, full disk."""
    entries = facts.entries
    if list(ledger_read.entries[: len(entries)]) == entries:
        return None
    missing = next((n for n, entry in enumerate(entries) if ledger_read.entries[n : n + 1] != (entry,)), len(entries))
    return f"entry {missing} was acknowledged as {entry_label(entries[missing])}, but is not in the ledger"


@oracle("P2")
def entries_that_are_read_were_written(facts: RunFacts, ledger_read: LedgerRead) -> str | None:
    """No torn and no foreign row: beyond what was acknowledged, at most the append that was under way, all of it or nothing."""
    beyond = ledger_read.entries[len(facts.entries) :]
    if beyond in ((), facts.being_written):
        return None
    return f"after the acknowledged entries the ledger has {entry_label(beyond[0])}, which is not exactly what was being written"


# -- what becomes durable -----------------------------------------------------------------------------------------------


@oracle("P7")
def a_process_that_lost_its_run_writes_nothing(facts: RunFacts, write: LedgerWrite) -> str | None:
    """Entries of an old epoch never come after a newer one has begun."""
    if write.epoch == facts.epoch:
        return None
    return f"{entry_label(write.entries[0])} was written under epoch {write.epoch}, but the run is held under epoch {facts.epoch}"


@oracle("P5")
def a_handle_that_failed_writes_nothing(_facts: RunFacts, write: LedgerWrite) -> str | None:
    """After an error nobody knows what is on the disk: its writer stops."""
    return None if write.may_write else f"{entry_label(write.entries[0])} was written after the store had failed"


@oracle("P6")
def an_event_is_durable_with_all_that_follows(facts: RunFacts, _write: LedgerWrite) -> str | None:
    """An event, its row, its intents and its timers are one append: a crash leaves all of it or nothing."""
    if not facts.expected_entries:
        return None
    return f"{entry_label(facts.expected_entries[0])} is not durable, although it follows from a durable event"


@oracle("S10")
def a_ledger_begins_with_its_machine(facts: RunFacts, entry: MachineEntry | EventEntry) -> str | None:
    """Which machine, by name and digest; once."""
    if bool(facts.entries) is not isinstance(entry, MachineEntry):
        return None
    return f"entry {len(facts.entries)} is {entry_label(entry)}"


@oracle("S10")
def a_run_is_the_fold_of_its_events(facts: RunFacts, entry: Entry) -> str | None:
    """What follows an event is what `step` makes of it, and nothing else."""
    if isinstance(entry, MachineEntry):
        return None
    expected_entry = facts.expected_entries[0]
    if isinstance(entry, RowEntry) and isinstance(expected_entry, RowEntry):
        same = _row(entry) == _row(expected_entry)
    elif isinstance(entry, RefusalEntry) and isinstance(expected_entry, RefusalEntry):
        same = (entry.reason, entry.accepted) == (expected_entry.reason, expected_entry.accepted)
    else:
        same = entry == expected_entry
    return None if same else f"the table gives {_entry_details(expected_entry)}, the ledger has {_entry_details(entry)}"


def _row(entry: RowEntry) -> tuple[object, ...]:
    """Return what the table alone says of a row; it does not know which artifacts were accepted."""
    return entry.line, entry.source, entry.target, entry.changed


@oracle("S10")
def every_entry_has_a_cause(facts: RunFacts, entry: RowEntry | RefusalEntry | EffectEntry) -> str | None:
    """Rows, refusals and effects come from events."""
    return None if facts.expected_entries else f"no event leads to {entry_label(entry)}"


@oracle("S10")
def events_are_numbered_without_a_gap(facts: RunFacts, event: EventEntry) -> str | None:
    """Refused ones too."""
    return (
        None
        if event.seq == facts.seq + 1
        else f"event {event.seq} follows event {facts.seq}, but the next number is {facts.seq + 1}"
    )


@oracle("S11")
def an_entry_says_when_it_was_written(facts: RunFacts, entry: MachineEntry | EventEntry) -> str | None:
    """By the wall clock, or, where that was put back, as the event before it: the deadlines of timers are counted from it."""
    expected_ms = max(facts.written_ms, facts.read_ms)
    if entry.at_ms == expected_ms:
        return None
    return f"{entry_label(entry)} says that it came at {entry.at_ms}, and was written at {expected_ms}"


@oracle("S4")
def a_refusal_changes_nothing(facts: RunFacts, _entry: RefusalEntry) -> str | None:
    """It follows its event, and no effect and no timer follows it."""
    last = facts.entries[-1]
    return (
        None
        if isinstance(last, EventEntry)
        else f"a refusal comes right after {entry_label(last)}, which is not an event"
    )


@oracle("S9")
def workflow_state_changes_on_passed_verdicts_only(facts: RunFacts, entry: RowEntry) -> str | None:
    """Definition 4, over what was recorded: a row that sets workflow state had only passed verdicts to read."""
    taken, occurrence = facts.taken[-1], facts.occurrences[-1]
    if not occurrence.verdicts and occurrence.event not in facts.machine.judged_events:
        return None
    workflow = {v.name for v in facts.machine.variables if v.scope == "workflow"}
    assigned_names = {u.variable for u in taken.transition.updates if isinstance(u, Assign)}
    names = sorted(workflow & assigned_names & {name for name, _ in entry.changed})
    return f"{names[0]} changed at {occurrence.verdicts}" if names and not _all_passed(taken, facts) else None


def _all_passed(taken: Taken, facts: RunFacts) -> bool:
    read, verdicts = guards_read(taken.transition.condition), dict(facts.occurrences[-1].verdicts)
    return all(verdicts.get(guard) == "passed" for guard in read or verdicts)


# -- what the driver shows ------------------------------------------------------------------------------------------------


@oracle("P1")
def only_durable_entries_are_shown(facts: RunFacts, moment: tuple[int, Entry]) -> str | None:
    """An observer of a run sees its entries in order, each once it is durable."""
    place, entry = moment
    if place < len(facts.entries) and facts.entries[place] == entry:
        return None
    return f"{entry_label(entry)} was shown before it was durable"


def entry_label(entry: Entry) -> str:
    """Return an entry in a few words: `the result query_llm 1/1`."""
    word = type(entry).__name__.removesuffix("Entry").lower()
    name = next((value for field in ("effect", "event", "reason") if (value := getattr(entry, field, None))), "")
    key = getattr(entry, "key", None) or ""
    return " ".join(filter(None, ("the", word, name, key)))


def _entry_details(entry: Entry) -> str:
    """Return an entry with all its fields, in one line."""
    fields = ((field.name, getattr(entry, field.name)) for field in attrs.fields(type(entry)))
    details = ", ".join(f"{name} = {value}" for name, value in fields if value not in (None, ""))
    return f"{entry_label(entry)} ({details})"


# -- a process says that its run rests --------------------------------------------------------------------------------


@oracle("S10")
def the_run_agrees_with_its_ledger(facts: RunFacts, rest: RestFact) -> str | None:
    """The driver's run and the fold of what is durable agree on the configuration."""
    mine, its = facts.configuration, rest.run.configuration
    return None if mine == its else f"the ledger leads to {mine}, the driver is at {its}"


@oracle("S12")
def a_run_rests_only_where_it_may(facts: RunFacts, rest: RestFact) -> str | None:
    """`finished` in a final state; `waiting` where nothing is outstanding, no timer is armed and nobody is to decide."""
    if rest.kind == "finished":
        return (
            None
            if facts.is_finished
            else f"the driver says that the run is finished, but it is in {facts.configuration.state}"
        )
    if rest.kind == "waiting":
        if facts.keys:
            return f"the run rests while {', '.join(facts.keys)} is outstanding"
        if facts.due_s:
            return f"the run rests while {next(iter(facts.due_s))[1]} is armed"
    return None


@oracle("S7")
def a_run_stops_only_for_a_cause(facts: RunFacts, rest: RestFact) -> str | None:
    """An effect that failed without a row for it, an answer that could not be read; never by itself."""
    if rest.kind != "stopped" or rest.code in facts.deeds.excused_codes:
        return None
    if rest.code == MISSING_DATA and any(_is_missing(facts, use) for use in uses(facts.machine)):
        return None
    return f"the run was stopped by {rest.code}, but nothing in the simulated world caused that"


def _is_missing(facts: RunFacts, use: Use) -> bool:
    """Return whether the data that a prompt or a guard reads has not come: the run stopped as soon as it was to be read."""
    reference, events = use.reference, [occurrence.event for occurrence in facts.occurrences]
    if reference.since in events:
        events = events[len(events) - 1 - events[::-1].index(reference.since) :]
    return not reference.is_optional and reference.event not in events


# -- a story is over ----------------------------------------------------------------------------------------------------


@oracle("P6")
def requested_effects_are_performed(facts: RunFacts, _about: object) -> str | None:
    """A run that is over has a result of every effect without answers that it asked for; the others are cancelled by its end."""
    left = asked_for(facts) if facts.is_finished else []
    return f"{left[0].effect} {left[0].key} was asked for and never done" if left else None


@oracle("P4")
def an_effect_that_a_person_decides_happens_once(facts: RunFacts, _about: object) -> str | None:
    """An effect whose doubts somebody decides who can see the world. Two processes at once are another matter."""
    for key, times in facts.deeds.done_count.items():
        if times == 1 or facts.subject.handling(facts.intents[key].effect) != "ask":
            continue
        failed = sum(result.has_failed for result in facts.results.get(key, ()))
        if times > 1 + failed:
            return None if facts.deeds.was_taken else f"{facts.intents[key].effect} {key} happened {times} times"
    return None


@oracle("P12")
def the_properties_of_the_document_hold(facts: RunFacts, _about: object) -> str | None:
    """As monitors over the rows that were taken, whatever the faults."""
    violations, occurrences = facts.subject.violations, tuple(facts.occurrences)
    if occurrences not in violations:
        violations[occurrences] = _first_violated(facts)
    return violations[occurrences]


def _first_violated(facts: RunFacts) -> str | None:
    run = moments(facts.machine, facts.occurrences)
    for text, form in facts.subject.properties:
        result = monitor(form, run, is_complete=facts.is_finished)
        if result.verdict == "violated":
            return f"{text} (event {result.step})"
    return None


@oracle("S12")
def no_unexpected_error_occurs(_facts: RunFacts, fault: BaseException | str) -> str | None:
    """A process that ends with an error of its own, a run that goes no further, a loop without end."""
    return fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"


# -- the moments of all oracles -----------------------------------------------------------------------------------------

#: A process has taken the run up.
AT_READ = (acknowledged_entries_survive, entries_that_are_read_were_written)
#: Entries became durable.
AT_WRITE = (a_process_that_lost_its_run_writes_nothing, a_handle_that_failed_writes_nothing)
#: They were folded.
AFTER_WRITE = (an_event_is_durable_with_all_that_follows,)
#: An entry is about to be folded, and the table says which one it must be.
WHILE_EXPECTED = (a_run_is_the_fold_of_its_events,)
#: The oracles of an entry that is about to be folded, by its kind.
ASKED_OF: dict[type[Entry], tuple[Oracle, ...]] = {
    MachineEntry: (a_ledger_begins_with_its_machine, an_entry_says_when_it_was_written),
    EventEntry: (
        a_ledger_begins_with_its_machine,
        events_are_numbered_without_a_gap,
        an_entry_says_when_it_was_written,
        effect_oracles.an_answer_is_fed_after_its_result_is_recorded,
        effect_oracles.an_answer_has_the_data_of_its_own_result,
        effect_oracles.events_from_outside_were_sent,
        effect_oracles.verdicts_are_what_guards_said,
        effect_oracles.a_timer_fires_when_it_is_due,
        effect_oracles.overdue_timers_come_before_events_from_outside,
        effect_oracles.a_resumed_run_meets_the_same_world,
    ),
    RowEntry: (
        every_entry_has_a_cause,
        workflow_state_changes_on_passed_verdicts_only,
    ),
    RefusalEntry: (every_entry_has_a_cause, a_refusal_changes_nothing),
    EffectEntry: (every_entry_has_a_cause,),
    ResultEntry: (
        effect_oracles.a_result_belongs_to_an_intent,
        effect_oracles.an_effect_has_one_result,
        effect_oracles.a_result_is_what_came_back,
        effect_oracles.a_sleep_ends_when_it_is_due,
        effect_oracles.a_sleep_that_is_over_does_not_end,
        effect_oracles.a_sleep_answers_with_the_data_of_its_request,
    ),
    ResumedEntry: (
        effect_oracles.effects_in_doubt_are_handled_as_the_table_says,
        effect_oracles.an_effect_that_cannot_have_begun_is_not_in_doubt,
        effect_oracles.a_sleep_is_never_in_doubt,
    ),
    DecidedEntry: (effect_oracles.a_decision_is_what_a_person_said,),
    VerdictEntry: (effect_oracles.a_verdict_is_what_the_guard_said,),
}
#: A policy is called.
AT_BEGIN = (
    effect_oracles.an_effect_begins_after_its_intent_is_durable,
    effect_oracles.a_process_that_cannot_write_begins_nothing,
    effect_oracles.an_effect_with_a_result_is_not_performed_again,
    effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported,
    effect_oracles.an_effect_that_a_person_must_decide_waits_for_the_person,
    effect_oracles.only_outstanding_effects_are_performed,
    effect_oracles.effects_without_answers_are_complete_before_the_next_begins,
    effect_oracles.effects_begin_in_the_order_written,
    effect_oracles.emissions_that_wait_for_a_place_begin_in_the_order_of_their_keys,
    effect_oracles.no_more_effects_are_performed_side_by_side_than_the_table_says,
    effect_oracles.an_emission_begins_once_durable_results_make_room_for_it,
    effect_oracles.a_budget_counts_every_call,
    effect_oracles.a_sleep_is_not_performed,
)
#: The driver shows an entry.
AT_SHOW = (only_durable_entries_are_shown,)
#: The sender of an event hears how it was answered.
AT_ANSWER = (effect_oracles.a_sender_learns_the_outcome_of_its_event,)
#: Nothing can run before the world does something.
AT_IDLE = (effect_oracles.cancelled_effects_are_stopped,)
#: Time is about to pass, until a process wakes.
AT_WAKE = (effect_oracles.no_timer_is_missed,)
#: A process says that its run rests.
AT_REST = (
    the_run_agrees_with_its_ledger,
    a_run_rests_only_where_it_may,
    a_run_stops_only_for_a_cause,
)
#: A story is over.
AT_END = (
    requested_effects_are_performed,
    an_effect_that_a_person_decides_happens_once,
    the_properties_of_the_document_hold,
)
#: Something happened that never may.
AT_FAULT = (no_unexpected_error_occurs,)
#: All of them.
ORACLES: tuple[Oracle, ...] = tuple(
    dict.fromkeys(
        (
            *AT_READ,
            *AT_WRITE,
            *AFTER_WRITE,
            *WHILE_EXPECTED,
            *(each for oracles in ASKED_OF.values() for each in oracles),
            *AT_BEGIN,
            *AT_SHOW,
            *AT_ANSWER,
            *AT_IDLE,
            *AT_WAKE,
            *AT_REST,
            *AT_END,
            *AT_FAULT,
        )
    )
)


class Court:
    """Judges one story. `violation` is the first that was found; `tell` is called with entries once they are durable."""

    def __init__(self, facts: RunFacts, tell: Callable[[Sequence[Entry]], None]) -> None:
        self._facts, self._tell = facts, tell
        self.violation: Violation | None = None

    def _judge(self, oracles: Sequence[Oracle], about: object) -> None:
        if self.violation is None:
            facts = self._facts
            for each in oracles:
                message = each.judge(facts, about)
                if message is not None:
                    self.violation = Violation(each, message)
                    return

    def judge_read(self, entries: Sequence[Entry], epoch: int) -> None:
        """A process has read the run as it took it up: what was not acknowledged before is durable now."""
        facts = self._facts
        self._judge(AT_READ, LedgerRead(tuple(entries)))
        if self.violation is None:  # they are equal; from now on they are the same, which is seen at once
            facts.entries[:] = entries[: len(facts.entries)]
        self._take(entries[len(facts.entries) :])
        facts.being_written = ()
        if entries and self.violation is None:
            facts.epoch = epoch
            facts.resume()

    def judge_write(self, process: Process, entries: Sequence[Entry], epoch: int) -> None:
        """Entries became durable."""
        self._judge(AT_WRITE, LedgerWrite(tuple(entries), epoch, process.may_write))
        self._take(entries)
        self._facts.being_written = ()

    def _take(self, entries: Sequence[Entry]) -> None:
        """Fold entries; after the first that is wrong nothing more can be said."""
        facts = self._facts
        self._tell(entries)
        for entry in entries:
            oracles = ASKED_OF.get(type(entry), ())
            if oracles or facts.expected_entries:
                self._judge((*WHILE_EXPECTED, *oracles) if facts.expected_entries else oracles, entry)
            if self.violation is not None:
                return
            if type(entry) is ResultEntry and entry.has_failed:
                self._excuse(said_by(entry))
            facts.fold(entry)
        if entries:
            self._judge(AFTER_WRITE, None)

    def _excuse(self, code: str) -> None:
        """Record that a failure was correct and may stop the run; a run without faults might not have met it."""
        self._facts.deeds.excused_codes.add(code)
        self._facts.deeds.is_unplanned = self._facts.deeds.is_unplanned or code in {IN_DOUBT, TIMED_OUT, BUDGET}

    def judge_begin(self, process: Process, key: str, effect: str, beside: tuple[str, ...]) -> None:
        """A policy is called, while the process performs other emissions of the effect."""
        self._judge(AT_BEGIN, EffectBegin(key, effect, process.may_write, process.is_stale, beside))

    def judge_show(self, process: Process, entry: Entry) -> None:
        """The driver shows an entry."""
        if process.seen_count >= len(self._facts.entries) or self._facts.entries[process.seen_count] is not entry:
            self._judge(AT_SHOW, (process.seen_count, entry))

    def judge_reply(self, occurrence: Occurrence, answer: Taken | Refusal) -> None:
        """The sender of an event hears how it was answered."""
        self._judge(AT_ANSWER, ReplyFact(occurrence.event, answer))

    def judge_idle(self, under_way: Sequence[str]) -> None:
        """Nothing can run before the world does something; effects are under way under these keys."""
        self._judge(AT_IDLE, under_way)

    def judge_wake(self, until_s: float) -> None:
        """Time is about to pass until a process wakes."""
        self._judge(AT_WAKE, until_s)

    def judge_rest(self, rest: Rest) -> None:
        """A process says that its run rests."""
        code = rest.failure.code if rest.failure is not None else ""
        self._judge(AT_REST, RestFact(rest.kind, code, rest.run, rest.in_doubt))

    def judge_fault(self, fault: BaseException | str) -> None:
        """Something happened that never may: a process ended in a way of its own, a run does not go on."""
        self._judge(AT_FAULT, fault)

    def judge_end(self) -> None:
        """The story is over."""
        self._judge(AT_END, None)
