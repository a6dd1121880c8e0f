"""The oracles of a simulated run, by the moment at which they are asked; the order is that of asking."""

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
from dsa.testing.simulation.oracles import effects, ledger, runs
from dsa.testing.simulation.oracles.basis import Oracle, Violation

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
AT_READ = (ledger.what_was_acknowledged_survives, ledger.what_is_read_was_written)
#: Entries became durable.
AT_WRITE = (ledger.who_lost_a_run_writes_nothing, ledger.a_handle_that_failed_writes_nothing)
#: They were folded.
AFTER_WRITE = (ledger.an_event_is_durable_with_all_that_follows,)
#: An entry is about to be folded, and the table says which one it must be.
WHILE_EXPECTED = (ledger.a_run_is_the_fold_of_its_events,)
#: What is asked of an entry that is about to be folded, by its kind.
ASKED_OF: dict[type[Entry], tuple[Oracle, ...]] = {
    MachineEntry: (ledger.a_ledger_begins_with_its_machine, ledger.an_entry_says_when_it_was_written),
    EventEntry: (
        ledger.a_ledger_begins_with_its_machine,
        ledger.events_are_numbered_without_a_gap,
        ledger.an_entry_says_when_it_was_written,
        effects.an_answer_is_fed_after_its_result_is_recorded,
        effects.events_from_outside_were_sent,
        effects.verdicts_are_what_guards_said,
        effects.a_timer_rings_when_it_is_due,
        effects.what_is_overdue_comes_before_what_is_sent,
        effects.a_run_meets_what_it_would_have_met,
    ),
    RowEntry: (
        ledger.nothing_stands_there_that_nothing_led_to,
        ledger.workflow_state_changes_on_passed_verdicts_only,
    ),
    RefusalEntry: (ledger.nothing_stands_there_that_nothing_led_to, ledger.a_refusal_changes_nothing),
    EffectEntry: (ledger.nothing_stands_there_that_nothing_led_to,),
    ResultEntry: (
        effects.a_result_belongs_to_an_intent,
        effects.an_effect_has_one_result,
        effects.a_result_is_what_came_back,
    ),
    ResumedEntry: (effects.what_is_in_doubt_is_handled_as_the_table_says,),
    DecidedEntry: (effects.a_decision_is_what_a_person_said,),
    VerdictEntry: (effects.a_verdict_is_what_the_guard_said,),
}
#: A policy is called.
AT_BEGIN = (
    effects.an_effect_begins_after_its_intent_is_durable,
    effects.who_cannot_write_begins_nothing,
    effects.what_has_a_result_is_not_performed_again,
    effects.what_may_have_happened_is_performed_again_only_when_reported,
    effects.what_a_person_must_decide_waits_for_the_person,
    effects.only_what_is_outstanding_is_performed,
    effects.effects_without_answers_are_complete_before_the_next_begins,
    effects.effects_begin_in_the_order_written,
    effects.a_budget_counts_every_call,
)
#: The driver shows an entry.
AT_SHOW = (ledger.only_what_is_durable_is_shown,)
#: Somebody is told what became of an event.
AT_ANSWER = (effects.a_sender_is_told_what_became_of_it,)
#: Nothing can run before the world does something.
AT_IDLE = (effects.what_is_cancelled_is_stopped,)
#: Time is about to pass, until a process wakes.
AT_WAKE = (effects.no_timer_is_overslept,)
#: A process says that its run rests.
AT_REST = (runs.the_run_is_where_its_ledger_is, runs.a_run_rests_only_where_it_may, runs.a_run_stops_only_for_a_cause)
#: A story is over.
AT_END = (
    runs.what_was_asked_for_is_done,
    runs.what_a_person_decides_happens_once,
    runs.the_properties_of_the_document_hold,
)
#: Something happened that never may.
AT_FAULT = (runs.nothing_happens_that_nobody_foresaw,)
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
