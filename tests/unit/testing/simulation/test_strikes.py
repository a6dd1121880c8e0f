"""Strikes: a fault strikes once at the triple that is aimed at, and at the boundaries that were drawn."""

import attrs
import pytest
import simulations
from simulations import written

from dsa.testing.simulation.mishaps import Strikes
from dsa.testing.simulation.seed_plan import FAULTS_AT, Triple, plan_of

LETTER = written(simulations.LETTER)


def aimed(*triple, seed=0):
    """Return the strikes of a seed of the first lap that aims at a triple."""
    plan = plan_of(LETTER, seed)
    return Strikes(attrs.evolve(plan, aim=Triple(*triple), chance=plan.chance, guide=LETTER.guide))


def test_aimed_fault_strikes_once():
    strikes = aimed(1, "unsynced", "sync fails")
    assert strikes.due("unsynced", 0) is None
    assert strikes.due("durable", 1) is None
    assert strikes.due("unsynced", 1) == "sync fails"
    assert strikes.due("unsynced", 1) == "sync fails"  # it could not be made
    strikes.record("unsynced", 1, "sync fails")
    assert strikes.due("unsynced", 1) is None
    assert strikes.faults == ["sync fails"]
    assert strikes.hits == {Triple(1, "unsynced", "sync fails"): 1}


@pytest.mark.parametrize(
    ("fault", "stages"),
    [
        ("damage", {"before"}),
        ("write fails", {"before"}),
        ("sync fails", {"unsynced"}),
        ("kill", {"before", "unsynced", "durable"}),
    ],
)
def test_run_is_killed_before_a_fault_strikes_its_recovery(fault, stages):
    met = set()
    for seed in range(12):
        strikes = aimed(1, "recovering", fault, seed=seed)
        assert strikes.due("durable", 0) is None
        assert strikes.due("durable", 1) == "kill"
        strikes.record("durable", 1, "kill")
        assert strikes.due("durable", 1) is None
        stage = next(s for s in ("before", "unsynced", "durable") if strikes.due("recovering", 1, s) == fault)
        met.add(stage)
        strikes.record("recovering", 1, fault)
        assert {strikes.due("recovering", 1, s) for s in ("before", "unsynced", "durable")} == {None}
    assert met == stages


def test_row_is_calm_when_no_fault_will_strike_its_effects():
    strikes = aimed(1, "performing", "failure")
    assert strikes.is_calm(0)
    assert not strikes.is_calm(1)
    strikes.record("performing", 1, "failure")
    assert strikes.is_calm(1)
    assert aimed(1, "performed", "kill").is_calm(1)


def test_drawn_fault_strikes_at_its_visit_and_fits_the_boundary():
    seeds = range(len(LETTER.triples), 40 * len(LETTER.triples))
    plans = [plan for plan in (plan_of(LETTER, seed) for seed in seeds) if plan.further]
    for plan in plans[:200]:
        strikes = Strikes(plan)
        assert not strikes.is_calm(None)
        for visit in range(1, 60):
            fault = strikes.due("recovering", None, "unsynced")
            assert (fault is not None) == (visit in plan.further)
            assert fault in {None, *FAULTS_AT["recovering"]} - {"damage", "write fails"}


def test_fault_outside_any_row_counts_and_hits_no_triple():
    strikes = aimed(1, "performing", "kill")
    strikes.record("resting", None, "kill")
    assert strikes.faults == ["kill"]
    assert not strikes.hits
