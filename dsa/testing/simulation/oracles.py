"""The oracles of a simulated run, by the moment at which they judge, and the court that asks them in this order.

`Court` judges whatever becomes durable, begins, is shown or rests, before it joins the facts. The first broken oracle stays in `violation`.
"""

from collections.abc import Callable, Sequence

from dsa.runtime.costs import BUDGET
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
from dsa.testing.simulation import effect_oracles, run_oracles
from dsa.testing.simulation.effect_oracles import TIMED_OUT, said_by
from dsa.testing.simulation.facts import (
    EffectBegin,
    LedgerRead,
    LedgerWrite,
    Oracle,
    ReplyFact,
    RestFact,
    RunFacts,
    Violation,
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

#: A process has taken the run up.
AT_READ = (run_oracles.what_was_acknowledged_survives, run_oracles.what_is_read_was_written)
#: Entries became durable.
AT_WRITE = (run_oracles.who_lost_a_run_writes_nothing, run_oracles.a_handle_that_failed_writes_nothing)
#: They were folded.
AFTER_WRITE = (run_oracles.an_event_is_durable_with_all_that_follows,)
#: An entry is about to be folded, and the table says which one it must be.
WHILE_EXPECTED = (run_oracles.a_run_is_the_fold_of_its_events,)
#: The oracles of an entry that is about to be folded, by its kind.
ASKED_OF: dict[type[Entry], tuple[Oracle, ...]] = {
    MachineEntry: (run_oracles.a_ledger_begins_with_its_machine, run_oracles.an_entry_says_when_it_was_written),
    EventEntry: (
        run_oracles.a_ledger_begins_with_its_machine,
        run_oracles.events_are_numbered_without_a_gap,
        run_oracles.an_entry_says_when_it_was_written,
        effect_oracles.an_answer_is_fed_after_its_result_is_recorded,
        effect_oracles.an_answer_has_the_data_of_its_own_result,
        effect_oracles.events_from_outside_were_sent,
        effect_oracles.verdicts_are_what_guards_said,
        effect_oracles.a_timer_rings_when_it_is_due,
        effect_oracles.what_is_overdue_comes_before_what_is_sent,
        effect_oracles.a_run_meets_what_it_would_have_met,
    ),
    RowEntry: (
        run_oracles.nothing_stands_there_that_nothing_led_to,
        run_oracles.workflow_state_changes_on_passed_verdicts_only,
    ),
    RefusalEntry: (run_oracles.nothing_stands_there_that_nothing_led_to, run_oracles.a_refusal_changes_nothing),
    EffectEntry: (run_oracles.nothing_stands_there_that_nothing_led_to,),
    ResultEntry: (
        effect_oracles.a_result_belongs_to_an_intent,
        effect_oracles.an_effect_has_one_result,
        effect_oracles.a_result_is_what_came_back,
        effect_oracles.a_sleep_ends_when_it_is_due,
        effect_oracles.a_sleep_that_is_over_does_not_end,
        effect_oracles.a_sleep_answers_with_what_it_was_asked_with,
    ),
    ResumedEntry: (
        effect_oracles.what_is_in_doubt_is_handled_as_the_table_says,
        effect_oracles.what_cannot_have_begun_is_not_in_doubt,
        effect_oracles.a_sleep_is_never_in_doubt,
    ),
    DecidedEntry: (effect_oracles.a_decision_is_what_a_person_said,),
    VerdictEntry: (effect_oracles.a_verdict_is_what_the_guard_said,),
}
#: A policy is called.
AT_BEGIN = (
    effect_oracles.an_effect_begins_after_its_intent_is_durable,
    effect_oracles.who_cannot_write_begins_nothing,
    effect_oracles.what_has_a_result_is_not_performed_again,
    effect_oracles.what_may_have_happened_is_performed_again_only_when_reported,
    effect_oracles.what_a_person_must_decide_waits_for_the_person,
    effect_oracles.only_what_is_outstanding_is_performed,
    effect_oracles.effects_without_answers_are_complete_before_the_next_begins,
    effect_oracles.effects_begin_in_the_order_written,
    effect_oracles.emissions_that_wait_for_a_place_begin_in_the_order_of_their_keys,
    effect_oracles.no_more_are_performed_side_by_side_than_the_table_says,
    effect_oracles.an_emission_begins_once_durable_results_make_room_for_it,
    effect_oracles.a_budget_counts_every_call,
    effect_oracles.a_sleep_is_not_performed,
)
#: The driver shows an entry.
AT_SHOW = (run_oracles.only_what_is_durable_is_shown,)
#: The sender of an event hears how it was answered.
AT_ANSWER = (effect_oracles.a_sender_is_told_what_became_of_it,)
#: Nothing can run before the world does something.
AT_IDLE = (effect_oracles.what_is_cancelled_is_stopped,)
#: Time is about to pass, until a process wakes.
AT_WAKE = (effect_oracles.no_timer_is_overslept,)
#: A process says that its run rests.
AT_REST = (
    run_oracles.the_run_is_where_its_ledger_is,
    run_oracles.a_run_rests_only_where_it_may,
    run_oracles.a_run_stops_only_for_a_cause,
)
#: A story is over.
AT_END = (
    run_oracles.what_was_asked_for_is_done,
    run_oracles.what_a_person_decides_happens_once,
    run_oracles.the_properties_of_the_document_hold,
)
#: Something happened that never may.
AT_FAULT = (run_oracles.nothing_happens_that_nobody_foresaw,)
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
