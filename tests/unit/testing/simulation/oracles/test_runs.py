"""Each oracle of whole runs reports what violates it, and accepts correct facts."""

from pathlib import Path

import attrs
from each_row import each_row
from facts_of_runs import ABOUT, BUSY, DRAFT, LEDGER, POST, POSTED, facts, failed
from simulations import LETTER, written

from dsa.runtime.run import begin
from dsa.semantics import Occurrence
from dsa.testing.simulation import oracles
from dsa.testing.simulation.facts import RestFact
from dsa.testing.simulation.oracles import Oracle

RUN = begin(ABOUT.machine, "sim")[0]
WRITING = RUN.feed(Occurrence("write"))[0]
WAITING, FINISHED = RestFact("waiting", "", RUN, ()), RestFact("finished", "", RUN, ())
FROUGHT = written(LETTER + "\n## Properties\n- possible drafting\n- at most 1 draft\n- never done\n")
SOUND = written(LETTER + "\n## Properties\n- possible drafting\n- at most 1 draft\n- post only after written\n")
DOUBTED = RestFact("in doubt", "", RUN, (DRAFT,))
DURING, POSTING = LEDGER[:4], LEDGER[:POSTED]

VIOLATIONS = [
    (oracles.the_run_agrees_with_its_ledger, facts(DURING), WAITING),
    (oracles.a_run_rests_only_where_it_may, facts(DURING), WAITING),
    (oracles.a_run_rests_only_where_it_may, facts(DURING), FINISHED),
    (oracles.a_run_rests_only_where_it_may, facts((), BUSY, due_s={("making", "after 5s"): 5.0}), WAITING),
    (oracles.a_run_stops_only_for_a_cause, facts(DURING), attrs.evolve(WAITING, kind="stopped", code="MADE")),
    (oracles.requested_effects_are_performed, facts(POSTING), None),
    (oracles.requested_effects_are_performed, facts((*POSTING, failed(POST, "MADE"))), None),
    (oracles.an_effect_that_a_person_decides_happens_once, facts(LEDGER, done_count={POST.key: 2}), None),
    (oracles.the_properties_of_the_document_hold, facts(LEDGER, FROUGHT), None),
    (oracles.no_unexpected_error_occurs, facts(()), "it goes no further"),
    (oracles.no_unexpected_error_occurs, facts(()), ValueError("odd")),
]
CORRECT = [
    (oracles.the_run_agrees_with_its_ledger, facts(DURING), attrs.evolve(WAITING, run=WRITING)),
    (oracles.a_run_rests_only_where_it_may, facts(LEDGER[:1]), WAITING),
    (oracles.a_run_rests_only_where_it_may, facts(DURING), DOUBTED),
    (oracles.a_run_rests_only_where_it_may, facts(LEDGER), FINISHED),
    (
        oracles.a_run_stops_only_for_a_cause,
        facts(DURING, excused_codes={"MADE": 1}.keys()),
        attrs.evolve(WAITING, kind="stopped", code="MADE"),
    ),
    (oracles.a_run_stops_only_for_a_cause, facts(DURING), WAITING),
    (oracles.requested_effects_are_performed, facts(LEDGER), None),
    (oracles.requested_effects_are_performed, facts(DURING), None),
    (oracles.an_effect_that_a_person_decides_happens_once, facts(LEDGER, done_count={POST.key: 1, DRAFT.key: 3}), None),
    (
        oracles.an_effect_that_a_person_decides_happens_once,
        facts((*POSTING, failed(POST, "MADE")), done_count={POST.key: 2}),
        None,
    ),
    (
        oracles.an_effect_that_a_person_decides_happens_once,
        facts(LEDGER, done_count={POST.key: 2}, was_taken=True),
        None,
    ),
    (oracles.the_properties_of_the_document_hold, facts(LEDGER, SOUND), None),
    (oracles.the_properties_of_the_document_hold, facts(DURING, FROUGHT), None),
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
    broken = {oracle for oracle, _, _ in VIOLATIONS}
    assert {oracle for oracle, _, _ in CORRECT} == broken - {oracles.no_unexpected_error_occurs}


def test_every_oracle_has_a_case_here_or_in_test_ledger():
    """The oracles without a case here have one in test_ledger.py."""
    all_oracles = {each for each in vars(oracles).values() if isinstance(each, Oracle)}
    others = Path(__file__).with_name("test_ledger.py").read_text()
    missing = all_oracles - {oracle for oracle, _, _ in VIOLATIONS}
    assert [each.judge.__name__ for each in missing if f"oracles.{each.judge.__name__}," not in others] == []


def test_first_violated_property_is_named_with_the_event():
    assert oracles.the_properties_of_the_document_hold.judge(facts(LEDGER, FROUGHT), None) == "never done (event 2)"
