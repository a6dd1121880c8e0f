"""Each oracle of effects, answers and timers reports what violates it, and accepts correct facts."""

import pytest
from each_row import each_row
from facts_of_runs import (
    ABOUT,
    ASKED,
    ASLEEP,
    BUSY,
    CALLED_OFF,
    DRAFT,
    DRAFTED,
    FIRST,
    LEDGER,
    LINE,
    MAKE,
    NAP,
    NAPS,
    NOTE,
    POST,
    POSTED,
    SECOND,
    SEND,
    THREE,
    begun,
    facts,
    failed,
    fed,
    result,
)
from simulations import written

from dsa.runtime.costs import BUDGET, BudgetLimit
from dsa.runtime.ledger import ArtifactEntry, DecidedEntry, GuardVerdict, ResumedEntry, VerdictEntry
from dsa.runtime.policy.call_tree import IN_DOUBT
from dsa.semantics import Occurrence, start, step
from dsa.testing.simulation import effect_oracles
from dsa.testing.simulation.facts import ReplyFact
from dsa.testing.simulation.oracles import Oracle

BEFORE, DURING, AFTER = LEDGER[:3], LEDGER[:4], LEDGER[: DRAFTED + 1]
POSTING = LEDGER[:POSTED]
DOUBT = ResumedEntry(effects={DRAFT.key: "retry"})
FAILED, TIMED_OUT, SPENT = failed(DRAFT, "MADE"), failed(MAKE, "TimeoutError"), failed(DRAFT, BUDGET)
LIMITS = (BudgetLimit("calls", 1, "draft"),)
DONE, SAID = result(NOTE), result(FIRST, "said")
RISEN = result(NAP, "rise", data="tired")
VERDICT = VerdictEntry("2/1", "poem", 2, "new", (GuardVerdict("g", "passed"),))
ATTEMPTS = [ArtifactEntry("1/1", "poem", n, name, "digest") for n, name in enumerate(("old", "new"), start=1)]
TIMER = ("making", "after 5s")
TAKEN = step(ABOUT.machine, start(ABOUT.machine), Occurrence("write"))
REFUSED = step(ABOUT.machine, TAKEN.configuration, Occurrence("write"))
RANG = fed("after 5s", source="making", seq=2)


def doubted(intent, handling):
    return ResumedEntry(effects={intent.key: handling})


def later(found, seconds):
    found.time.now_s += seconds
    return found


def woken(found, seconds):
    """Return the facts after the run was taken up some seconds later."""
    later(found, seconds).resume()
    return found


def to_meet(*events, **known):
    return facts(LEDGER[:1], intention=lambda position, _here: Occurrence(events[position]), **known)


VIOLATIONS = [
    (effect_oracles.a_sleep_is_not_performed, facts(ASLEEP, NAPS), begun(NAP)),
    (effect_oracles.a_sleep_ends_when_it_is_due, later(facts(ASLEEP, NAPS), 0.9), RISEN),
    (effect_oracles.a_sleep_that_is_over_does_not_end, facts(CALLED_OFF, NAPS), RISEN),
    (effect_oracles.a_sleep_that_is_over_does_not_end, facts((*ASLEEP, RISEN), NAPS), RISEN),
    (effect_oracles.a_sleep_answers_with_the_data_of_its_request, facts(ASLEEP, NAPS), result(NAP, "rise")),
    (effect_oracles.a_sleep_answers_with_the_data_of_its_request, facts(ASLEEP, NAPS), failed(NAP, "MADE")),
    (effect_oracles.a_sleep_is_never_in_doubt, facts(ASLEEP, NAPS), doubted(NAP, "retry")),
    (effect_oracles.no_timer_is_missed, facts(ASLEEP, NAPS), 1.1),
    (effect_oracles.overdue_timers_come_before_events_from_outside, woken(facts(ASLEEP, NAPS), 2), fed("stop", seq=2)),
    (effect_oracles.an_effect_begins_after_its_intent_is_durable, facts(BEFORE), begun(DRAFT)),
    (effect_oracles.a_process_that_cannot_write_begins_nothing, facts(DURING), begun(DRAFT, may_write=False)),
    (effect_oracles.an_effect_with_a_result_is_not_performed_again, facts(AFTER), begun(DRAFT)),
    (
        effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported,
        facts(DURING, begin_count={DRAFT.key: 1}),
        begun(DRAFT),
    ),
    (
        effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported,
        facts((*DURING, DOUBT), begin_count={DRAFT.key: 2}),
        begun(DRAFT),
    ),
    (
        effect_oracles.an_effect_that_a_person_must_decide_waits_for_the_person,
        facts((*POSTING, doubted(POST, "retry"))),
        begun(POST),
    ),
    (effect_oracles.only_outstanding_effects_are_performed, facts(POSTING), begun(DRAFT)),
    (effect_oracles.effects_without_answers_are_complete_before_the_next_begins, facts(ASKED, BUSY), begun(MAKE)),
    (
        effect_oracles.effects_without_answers_are_complete_before_the_next_begins,
        facts((*ASKED, failed(NOTE, "MADE")), BUSY),
        begun(SEND),
    ),
    (effect_oracles.effects_begin_in_the_order_written, facts((*ASKED, DONE), BUSY), begun(SEND)),
    (effect_oracles.a_budget_counts_every_call, facts(DURING, limits=LIMITS, begin_count={DRAFT.key: 1}), begun(DRAFT)),
    (
        effect_oracles.a_budget_counts_every_call,
        facts(DURING, limits=(BudgetLimit("calls", 1),), begin_count={DRAFT.key: 1}),
        begun(DRAFT),
    ),
    (effect_oracles.a_result_belongs_to_an_intent, facts(BEFORE), LEDGER[DRAFTED]),
    (effect_oracles.an_effect_has_one_result, facts(AFTER), LEDGER[DRAFTED]),
    (effect_oracles.an_effect_has_one_result, facts(AFTER), FAILED),
    (effect_oracles.a_result_is_what_came_back, facts(DURING), LEDGER[DRAFTED]),
    (effect_oracles.a_result_is_what_came_back, facts(DURING, outcomes={DRAFT.key: ["MADE"]}), LEDGER[DRAFTED]),
    (effect_oracles.a_result_is_what_came_back, facts(DURING), failed(DRAFT, IN_DOUBT)),
    (effect_oracles.a_result_is_what_came_back, later(facts(ASKED, BUSY, begin_s={MAKE.key: 0.0}), 1.9), TIMED_OUT),
    (effect_oracles.a_result_is_what_came_back, facts(DURING, limits=LIMITS), SPENT),
    (effect_oracles.effects_in_doubt_are_handled_as_the_table_says, facts(POSTING), doubted(POST, "retry")),
    (effect_oracles.effects_in_doubt_are_handled_as_the_table_says, facts(DURING), doubted(DRAFT, "fail")),
    (
        effect_oracles.effects_in_doubt_are_handled_as_the_table_says,
        facts(POSTING, decisions={POST.key: ["fail"]}),
        doubted(POST, "done"),
    ),
    (effect_oracles.a_decision_is_what_a_person_said, facts(POSTING), DecidedEntry(POST.key, "retry")),
    (
        effect_oracles.a_decision_is_what_a_person_said,
        facts(DURING, decisions={DRAFT.key: ["retry", "written"]}),
        DecidedEntry(DRAFT.key, "retry"),
    ),
    (effect_oracles.effects_in_doubt_are_handled_as_the_table_says, facts(DURING), doubted(DRAFT, "again")),
    (
        effect_oracles.a_verdict_is_what_the_guard_said,
        facts(ATTEMPTS, guard_outcomes={("2/1", "g"): "failed"}),
        VERDICT,
    ),
    (
        effect_oracles.a_verdict_is_what_the_guard_said,
        facts(ATTEMPTS[:1], guard_outcomes={("2/1", "g"): "passed"}),
        VERDICT,
    ),
    (effect_oracles.an_answer_is_fed_after_its_result_is_recorded, facts(DURING), LEDGER[5]),
    (effect_oracles.an_answer_is_fed_after_its_result_is_recorded, facts((*DURING, FAILED)), LEDGER[5]),
    (effect_oracles.events_from_outside_were_sent, facts(LEDGER[:1]), LEDGER[1]),
    (effect_oracles.events_from_outside_were_sent, facts(DURING, sent_count={"write": 1}), fed("write", seq=2)),
    (effect_oracles.a_sender_learns_the_outcome_of_its_event, facts(DURING), ReplyFact("stop", TAKEN)),
    (effect_oracles.a_sender_learns_the_outcome_of_its_event, facts(DURING), ReplyFact("write", REFUSED)),
    (effect_oracles.verdicts_are_what_guards_said, facts(ASKED, BUSY), fed("made", MAKE.key, verdicts={"g": "passed"})),
    (
        effect_oracles.verdicts_are_what_guards_said,
        facts(ASKED, BUSY, guard_outcomes={("", "g"): "failed"}),
        fed("made", MAKE.key, verdicts={"g": "passed"}),
    ),
    (effect_oracles.a_timer_fires_when_it_is_due, later(facts(ASKED, BUSY), 4.9), RANG),
    (
        effect_oracles.overdue_timers_come_before_events_from_outside,
        facts(ASKED, BUSY, overdue={TIMER}),
        fed("go", seq=2),
    ),
    (effect_oracles.cancelled_effects_are_stopped, facts(POSTING), [POST.key, DRAFT.key]),
    (effect_oracles.no_timer_is_missed, facts((*ASKED, DONE), BUSY), 5.1),
    (effect_oracles.a_resumed_run_meets_the_same_world, to_meet("stop"), LEDGER[1]),
    (
        effect_oracles.emissions_that_wait_for_a_place_begin_in_the_order_of_their_keys,
        facts(THREE, LINE),
        begun(SECOND),
    ),
    (
        effect_oracles.no_more_effects_are_performed_side_by_side_than_the_table_says,
        facts((*THREE, SAID), LINE),
        begun(SECOND, beside=(FIRST.key,)),
    ),
    (
        effect_oracles.an_emission_begins_once_durable_results_make_room_for_it,
        facts(THREE, LINE, begin_count={FIRST.key: 1}),
        begun(SECOND),
    ),
    (effect_oracles.an_effect_that_cannot_have_begun_is_not_in_doubt, facts(THREE, LINE), doubted(SECOND, "retry")),
    (
        effect_oracles.an_answer_has_the_data_of_its_own_result,
        facts((*THREE, SAID), LINE),
        fed("said", FIRST.key, seq=2, data="of the second"),
    ),
]
CORRECT = [
    (effect_oracles.a_sleep_is_not_performed, facts(DURING), begun(DRAFT)),
    (effect_oracles.a_sleep_ends_when_it_is_due, later(facts(ASLEEP, NAPS), 1), RISEN),
    (effect_oracles.a_sleep_that_is_over_does_not_end, facts(ASLEEP, NAPS), RISEN),
    (effect_oracles.a_sleep_that_is_over_does_not_end, facts(AFTER), LEDGER[DRAFTED]),
    (effect_oracles.a_sleep_answers_with_the_data_of_its_request, facts(ASLEEP, NAPS), RISEN),
    (effect_oracles.a_result_is_what_came_back, facts(ASLEEP, NAPS), RISEN),
    (effect_oracles.a_sleep_is_never_in_doubt, facts(DURING), doubted(DRAFT, "retry")),
    (effect_oracles.no_timer_is_missed, facts(CALLED_OFF, NAPS), 60.0),
    (
        effect_oracles.overdue_timers_come_before_events_from_outside,
        woken(facts(CALLED_OFF, NAPS), 2),
        fed("go", seq=3),
    ),
    (effect_oracles.an_effect_begins_after_its_intent_is_durable, facts(DURING), begun(DRAFT)),
    (effect_oracles.a_process_that_cannot_write_begins_nothing, facts(DURING), begun(DRAFT)),
    (effect_oracles.an_effect_with_a_result_is_not_performed_again, facts(DURING), begun(DRAFT)),
    (effect_oracles.an_effect_with_a_result_is_not_performed_again, facts((*DURING, FAILED)), begun(DRAFT)),
    (effect_oracles.an_effect_with_a_result_is_not_performed_again, facts(AFTER), begun(DRAFT, is_stale=True)),
    (effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported, facts(DURING), begun(DRAFT)),
    (
        effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported,
        facts((*DURING, DOUBT), begin_count={DRAFT.key: 1}),
        begun(DRAFT),
    ),
    (
        effect_oracles.an_effect_that_may_have_happened_is_repeated_only_when_reported,
        facts((*DURING, FAILED), begin_count={DRAFT.key: 1}),
        begun(DRAFT),
    ),
    (
        effect_oracles.an_effect_that_a_person_must_decide_waits_for_the_person,
        facts((*POSTING, doubted(POST, "retry")), decisions={POST.key: ["retry"]}),
        begun(POST),
    ),
    (effect_oracles.an_effect_that_a_person_must_decide_waits_for_the_person, facts((*DURING, DOUBT)), begun(DRAFT)),
    (effect_oracles.only_outstanding_effects_are_performed, facts(DURING), begun(DRAFT)),
    (effect_oracles.only_outstanding_effects_are_performed, facts(POSTING), begun(POST)),
    (effect_oracles.effects_without_answers_are_complete_before_the_next_begins, facts(ASKED, BUSY), begun(NOTE)),
    (
        effect_oracles.effects_without_answers_are_complete_before_the_next_begins,
        facts((*ASKED, DONE), BUSY),
        begun(MAKE),
    ),
    (effect_oracles.effects_begin_in_the_order_written, facts((*ASKED, DONE), BUSY), begun(MAKE)),
    (
        effect_oracles.effects_begin_in_the_order_written,
        facts((*ASKED, DONE), BUSY, begin_count={MAKE.key: 1}),
        begun(SEND),
    ),
    (effect_oracles.a_budget_counts_every_call, facts(DURING, limits=LIMITS), begun(DRAFT)),
    (effect_oracles.a_budget_counts_every_call, facts(POSTING, limits=LIMITS, begin_count={DRAFT.key: 1}), begun(POST)),
    (effect_oracles.a_result_belongs_to_an_intent, facts(DURING), LEDGER[DRAFTED]),
    (effect_oracles.an_effect_has_one_result, facts((*DURING, FAILED)), LEDGER[DRAFTED]),
    (
        effect_oracles.a_result_is_what_came_back,
        facts(DURING, outcomes={DRAFT.key: ["MADE", "written"]}),
        LEDGER[DRAFTED],
    ),
    (effect_oracles.a_result_is_what_came_back, facts((*DURING, doubted(DRAFT, "fail"))), failed(DRAFT, IN_DOUBT)),
    (effect_oracles.a_result_is_what_came_back, later(facts(ASKED, BUSY, begin_s={MAKE.key: 0.0}), 2), TIMED_OUT),
    (effect_oracles.a_result_is_what_came_back, facts(DURING, limits=LIMITS, begin_count={DRAFT.key: 1}), SPENT),
    (effect_oracles.effects_in_doubt_are_handled_as_the_table_says, facts(DURING), DOUBT),
    (
        effect_oracles.effects_in_doubt_are_handled_as_the_table_says,
        facts(POSTING, decisions={POST.key: ["done"]}),
        doubted(POST, "done"),
    ),
    (
        effect_oracles.a_decision_is_what_a_person_said,
        facts(POSTING, decisions={POST.key: ["done", "fail"]}),
        DecidedEntry(POST.key, "fail"),
    ),
    (
        effect_oracles.a_decision_is_what_a_person_said,
        facts(DURING, decisions={DRAFT.key: ["written"]}),
        DecidedEntry(DRAFT.key, "done"),
    ),
    (
        effect_oracles.a_result_is_what_came_back,
        facts((*DURING, DecidedEntry(DRAFT.key, "done")), decisions={DRAFT.key: ["written"]}),
        LEDGER[DRAFTED],
    ),
    (effect_oracles.effects_in_doubt_are_handled_as_the_table_says, facts((*DURING, FAILED)), doubted(DRAFT, "again")),
    (
        effect_oracles.a_verdict_is_what_the_guard_said,
        facts(ATTEMPTS, guard_outcomes={("2/1", "g"): "passed"}),
        VERDICT,
    ),
    (effect_oracles.an_answer_is_fed_after_its_result_is_recorded, facts(AFTER), LEDGER[5]),
    (effect_oracles.an_answer_is_fed_after_its_result_is_recorded, facts(AFTER), fed("written", "0/1", seq=2)),
    (effect_oracles.events_from_outside_were_sent, facts(LEDGER[:1], sent_count={"write": 1}), LEDGER[1]),
    (effect_oracles.a_sender_learns_the_outcome_of_its_event, facts(DURING), ReplyFact("write", TAKEN)),
    (
        effect_oracles.a_sender_learns_the_outcome_of_its_event,
        facts((*DURING, fed("write", seq=2))),
        ReplyFact("write", REFUSED),
    ),
    (
        effect_oracles.verdicts_are_what_guards_said,
        facts(ASKED, BUSY, guard_outcomes={("", "g"): "passed"}),
        fed("made", MAKE.key, verdicts={"g": "passed"}),
    ),
    (effect_oracles.a_timer_fires_when_it_is_due, later(facts(ASKED, BUSY), 5), RANG),
    (
        effect_oracles.effects_begin_in_the_order_written,
        later(facts((*ASKED, DONE), BUSY), 5),
        begun(SEND),
    ),  # nothing waits for what it makes
    (effect_oracles.overdue_timers_come_before_events_from_outside, facts(ASKED, BUSY), fed("go", seq=2)),
    (effect_oracles.overdue_timers_come_before_events_from_outside, facts(ASKED, BUSY, overdue={TIMER}), RANG),
    (
        effect_oracles.overdue_timers_come_before_events_from_outside,
        facts(ASKED, BUSY, overdue={TIMER}),
        fed("made", MAKE.key, seq=2),
    ),
    (effect_oracles.cancelled_effects_are_stopped, facts(DURING), [DRAFT.key]),
    (effect_oracles.no_timer_is_missed, facts((*ASKED, DONE), BUSY), 5.0),
    (effect_oracles.no_timer_is_missed, facts(ASKED, BUSY), 5.1),  # the note is not done
    (effect_oracles.a_resumed_run_meets_the_same_world, to_meet("write"), LEDGER[1]),
    (effect_oracles.a_resumed_run_meets_the_same_world, to_meet("stop", is_unplanned=True), LEDGER[1]),
    (effect_oracles.effects_begin_in_the_order_written, facts((*THREE, SAID), LINE), begun(SECOND)),
    (
        effect_oracles.emissions_that_wait_for_a_place_begin_in_the_order_of_their_keys,
        facts(THREE, LINE, begin_count={FIRST.key: 1}),
        begun(SECOND),
    ),
    (
        effect_oracles.no_more_effects_are_performed_side_by_side_than_the_table_says,
        facts((*THREE, SAID), LINE),
        begun(SECOND),
    ),
    (
        effect_oracles.no_more_effects_are_performed_side_by_side_than_the_table_says,
        facts(ASKED, BUSY),
        begun(MAKE, beside=("0/1", "0/2")),
    ),
    (
        effect_oracles.an_emission_begins_once_durable_results_make_room_for_it,
        facts((*THREE, SAID), LINE),
        begun(SECOND),
    ),
    (effect_oracles.an_effect_that_cannot_have_begun_is_not_in_doubt, facts(THREE, LINE), doubted(FIRST, "retry")),
    (
        effect_oracles.an_effect_that_cannot_have_begun_is_not_in_doubt,
        facts((*THREE, SAID), LINE),
        doubted(SECOND, "retry"),
    ),
    (
        effect_oracles.an_answer_has_the_data_of_its_own_result,
        facts((*THREE, SAID), LINE),
        fed("said", FIRST.key, seq=2),
    ),
]
ALL = {each for each in vars(effect_oracles).values() if isinstance(each, Oracle)}


@each_row(("oracle", "known", "new"), VIOLATIONS, ids=[each[0].name for each in VIOLATIONS])
def test_oracle_reports_a_violation(oracle, known, new):
    said = oracle.judge(known, new)
    assert said
    assert "\n" not in said


@each_row(("oracle", "known", "new"), CORRECT, ids=[each[0].name for each in CORRECT])
def test_oracle_accepts_correct_facts(oracle, known, new):
    assert oracle.judge(known, new) is None


def test_every_effect_oracle_has_a_violation_and_a_correct_case():
    assert {oracle for oracle, _, _ in VIOLATIONS} == {oracle for oracle, _, _ in CORRECT} == ALL


def test_verdicts_may_come_with_an_answer():
    answer = result(MAKE, "made")
    steps = [step | {"payload": step["payload"] | {"verdicts": {"g": "fatal"}}} for step in answer.steps]
    known = facts((*ASKED, type(answer)(MAKE.key, steps)), BUSY)
    assert (
        effect_oracles.verdicts_are_what_guards_said.judge(known, fed("made", MAKE.key, verdicts={"g": "fatal"}))
        is None
    )
    assert effect_oracles.verdicts_are_what_guards_said.judge(known, fed("made", MAKE.key, verdicts={"g": "passed"}))


WAITING_LONGER = """# two_timers
## Events
| event | from |
| - | - |
| go | outside |
## Transitions
| source | event | target |
| - | - | - |
| here | after 5s | = |
| here | after 9s | = |
"""


@pytest.mark.parametrize(("other_s", "is_broken"), [(3, False), (4, True)])
def test_timer_fires_no_later_than_a_longer_one_that_waits_for_it(other_s, is_broken):
    """After a crash the wall clock gave the shorter one 30 s: the longer one is due earlier, but may not fire first."""
    about = written(WAITING_LONGER)
    found = facts((), about, due_s={("here", "after 5s"): 30.0, ("here", "after 9s"): float(other_s)})
    rung = fed("after 5s", source="here", seq=1)
    assert bool(effect_oracles.a_timer_fires_when_it_is_due.judge(later(found, 3), rung)) == is_broken
    assert effect_oracles.a_timer_fires_when_it_is_due.judge(found, fed("after 9s", source="here", seq=1)) == (
        None if not is_broken else "after 9s of here fired 1 s too early"
    )
