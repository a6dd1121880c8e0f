"""The plan of a seed: its aim, its path, what else goes wrong; the first lap aims at each triple once."""

import simulations
from simulations import subject, written

from dsa.semantics import Occurrence
from dsa.testing.simulation.seed_plan import plan_of

LETTER = written(simulations.LETTER)
EVERY = len(LETTER.triples)


def test_first_lap_aims_at_every_triple_and_nothing_else_goes_wrong():
    plans = [plan_of(LETTER, seed) for seed in range(EVERY)]
    assert [plan.aim for plan in plans] == list(LETTER.triples)
    assert {(plan.further, plan.limits) for plan in plans} == {(frozenset(), ())}


def test_path_leads_to_a_move_of_the_row_at_which_the_fault_can_strike():
    for name in ("letter", "busy", "dual_state"):
        about = subject(name)
        for seed in range(3 * len(about.triples)):
            plan = plan_of(about, seed)
            assert plan.way[-1] in about.rows[plan.aim.row].moves_for(plan.aim.boundary, plan.aim.fault)
            assert plan.longest == len(plan.way) + 8


def test_later_laps_have_further_faults_and_limits():
    plans = [plan_of(LETTER, seed) for seed in range(EVERY, 11 * EVERY)]
    assert [plan.aim for plan in plans[:EVERY]] == list(LETTER.triples)
    assert {len(plan.further) for plan in plans} == {0, 1, 2}
    assert {0 <= visit < 60 for plan in plans for visit in plan.further} == {True}
    limits = {limit for plan in plans for limit in plan.limits}
    assert {limit.effect for limit in limits} == {"", "draft"}
    assert {limit.most for limit in limits} == {1, 2, 3, 4, 5, 6}
    assert 0.08 < sum(bool(plan.limits) for plan in plans) / len(plans) < 0.16


def test_same_seed_gives_the_same_plan():
    for seed in (0, EVERY + 3, 12_345):
        one, other = plan_of(LETTER, seed), plan_of(LETTER, seed)
        assert (one.aim, one.way, one.further, one.limits) == (other.aim, other.way, other.further, other.limits)
        assert one.sends_first == other.sends_first


def test_next_occurrence_follows_the_path():
    written_row = next(seed for seed, triple in enumerate(LETTER.triples) if triple.row == 1)
    plan = plan_of(LETTER, written_row)
    start, drafting = (LETTER.guide.where(move) for move in plan.way)
    assert plan.next_occurrence(0, start) == Occurrence("write")
    assert plan.next_occurrence(1, drafting) == Occurrence("written")
    assert plan.next_occurrence(1, start) == Occurrence("write")  # it came back to where it was
    assert plan.next_occurrence(0, start) == Occurrence("write")
    finished = LETTER.graph.configurations[plan.way[-1].target]
    assert plan.next_occurrence(2, finished) is None


def test_run_is_not_taken_over_or_damaged_before_it_exists():
    for seed, triple in enumerate(LETTER.triples):
        if triple.row == 0 and triple.fault in {"takeover", "damage"}:
            assert not plan_of(LETTER, seed).sends_first
    assert {plan_of(LETTER, seed).sends_first for seed in range(EVERY)} == {True, False}
