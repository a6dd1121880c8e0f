"""Each oracle of the ledger reports what violates it, and accepts correct facts."""

import attrs
from each_row import each_row
from facts_of_runs import ABOUT, ASKED, BUSY, LEDGER, facts, fed, lived

from dsa.runtime.ledger import RefusalEntry, RowEntry
from dsa.semantics import Occurrence
from dsa.testing.simulation import oracles
from dsa.testing.simulation.facts import LedgerRead, LedgerWrite
from dsa.testing.simulation.virtual_loop import Time

NOW_MS = Time().wall_ms()
CHANGED = (*LEDGER[:2], attrs.evolve(LEDGER[2], target="idle"), *LEDGER[3:])
#: Of `BUSY`: the answer is judged, and workflow state is set.
FATAL, FAILED, PASSED = (fed("made", "1/2", seq=2, verdicts={"g": said}) for said in ("fatal", "failed", "passed"))
SET = RowEntry(None, "making", "making", {"good": True})

VIOLATIONS = [
    (oracles.acknowledged_entries_survive, facts(LEDGER[:4]), LedgerRead(LEDGER[:3])),
    (oracles.acknowledged_entries_survive, facts(LEDGER[:4]), LedgerRead(())),
    (oracles.acknowledged_entries_survive, facts(LEDGER[:4]), LedgerRead(CHANGED)),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4]), LedgerRead(LEDGER[:5])),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4], being_written=LEDGER[4:6]), LedgerRead(LEDGER[:5])),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4], being_written=LEDGER[4:6]), LedgerRead(LEDGER[:7])),
    (
        oracles.a_process_that_lost_its_run_writes_nothing,
        facts(LEDGER[:4], epoch=2),
        LedgerWrite(LEDGER[4:5], 1, may_write=True),
    ),
    (
        oracles.a_handle_that_failed_writes_nothing,
        facts(LEDGER[:4]),
        LedgerWrite(LEDGER[4:5], 1, may_write=False),
    ),
    (oracles.an_event_is_durable_with_all_that_follows, facts(LEDGER[:2]), None),
    (oracles.an_event_is_durable_with_all_that_follows, facts(LEDGER[:3]), None),
    (oracles.an_event_is_durable_with_all_that_follows, facts(ASKED[:-1], BUSY), None),
    (oracles.a_ledger_begins_with_its_machine, facts(()), LEDGER[1]),
    (oracles.a_ledger_begins_with_its_machine, facts(LEDGER[:1]), LEDGER[0]),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:2]), CHANGED[2]),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:2]), RefusalEntry("late", "")),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:3]), attrs.evolve(LEDGER[3], key="1/2")),
    (oracles.an_entry_says_when_it_was_written, facts(LEDGER[:1]), attrs.evolve(LEDGER[1], at_ms=5)),
    (oracles.an_entry_says_when_it_was_written, facts(()), attrs.evolve(LEDGER[0], at_ms=5)),
    (oracles.every_entry_has_a_cause, facts(LEDGER[:4]), LEDGER[2]),
    (oracles.every_entry_has_a_cause, facts(LEDGER[:4]), LEDGER[3]),
    (oracles.events_are_numbered_without_a_gap, facts(LEDGER[:4]), fed("stop", seq=3)),
    (oracles.events_are_numbered_without_a_gap, facts(LEDGER[:4]), fed("stop", seq=1)),
    (oracles.a_refusal_changes_nothing, facts(LEDGER[:4]), RefusalEntry("late", "")),
    (oracles.workflow_state_changes_on_passed_verdicts_only, facts((*ASKED, FAILED), BUSY), SET),
    (oracles.only_durable_entries_are_shown, facts(LEDGER[:4]), (4, LEDGER[4])),
    (oracles.only_durable_entries_are_shown, facts(LEDGER[:4]), (2, LEDGER[3])),
]
CORRECT = [
    (oracles.acknowledged_entries_survive, facts(LEDGER[:4]), LedgerRead(LEDGER[:4])),
    (oracles.acknowledged_entries_survive, facts(LEDGER[:4]), LedgerRead(LEDGER)),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4]), LedgerRead(LEDGER[:4])),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4], being_written=LEDGER[4:6]), LedgerRead(LEDGER[:4])),
    (oracles.entries_that_are_read_were_written, facts(LEDGER[:4], being_written=LEDGER[4:6]), LedgerRead(LEDGER[:6])),
    (
        oracles.a_process_that_lost_its_run_writes_nothing,
        facts(LEDGER[:4], epoch=2),
        LedgerWrite(LEDGER[4:5], 2, may_write=True),
    ),
    (
        oracles.a_handle_that_failed_writes_nothing,
        facts(LEDGER[:4]),
        LedgerWrite(LEDGER[4:5], 1, may_write=True),
    ),
    (oracles.an_event_is_durable_with_all_that_follows, facts(LEDGER[:4]), None),
    (oracles.an_event_is_durable_with_all_that_follows, facts(LEDGER), None),
    (oracles.a_ledger_begins_with_its_machine, facts(()), LEDGER[0]),
    (oracles.a_ledger_begins_with_its_machine, facts(LEDGER[:1]), LEDGER[1]),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:2]), LEDGER[2]),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:2]), attrs.evolve(LEDGER[2], accepted={"a": "b"})),
    (oracles.a_run_is_the_fold_of_its_events, facts(LEDGER[:3]), LEDGER[3]),
    (oracles.an_entry_says_when_it_was_written, facts(LEDGER[:1]), attrs.evolve(LEDGER[1], at_ms=NOW_MS)),
    (oracles.an_entry_says_when_it_was_written, facts(()), LEDGER[0]),
    (oracles.every_entry_has_a_cause, facts(LEDGER[:2]), LEDGER[2]),
    (oracles.events_are_numbered_without_a_gap, facts(LEDGER[:4]), fed("stop", seq=2)),
    (
        oracles.a_refusal_changes_nothing,
        facts((*LEDGER[:4], fed("written", "0/1", seq=2))),
        RefusalEntry("late", ""),
    ),
    (oracles.workflow_state_changes_on_passed_verdicts_only, facts((*ASKED, PASSED), BUSY), SET),
    (
        oracles.workflow_state_changes_on_passed_verdicts_only,
        facts((*ASKED, FATAL), BUSY),
        attrs.evolve(SET, changed={}),
    ),
    (oracles.only_durable_entries_are_shown, facts(LEDGER[:4]), (3, LEDGER[3])),
]


@each_row(("oracle", "known", "new"), VIOLATIONS, ids=[each[0].name for each in VIOLATIONS])
def test_oracle_reports_a_violation(oracle, known, new):
    said = oracle.judge(known, new)
    assert said
    assert "\n" not in said


@each_row(("oracle", "known", "new"), CORRECT, ids=[each[0].name for each in CORRECT])
def test_oracle_accepts_correct_facts(oracle, known, new):
    assert oracle.judge(known, new) is None


def test_every_oracle_here_has_a_violation_and_a_correct_case():
    assert {oracle for oracle, _, _ in VIOLATIONS} == {oracle for oracle, _, _ in CORRECT}


def test_correct_ledger_violates_no_oracle():
    stopped = lived(ABOUT, Occurrence("write"), Occurrence("stop"), Occurrence("written"), Occurrence("write"))
    for entries in (LEDGER, stopped):
        for place, entry in enumerate(entries):
            known = facts(entries[:place])
            if known.expected_entries:
                assert oracles.a_run_is_the_fold_of_its_events.judge(known, entry) is None
            assert known.configuration == facts(entries[:place]).configuration
