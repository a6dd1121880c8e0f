"""Faults and the boundaries at which they can strike, counted by hand for a small machine."""

from collections import Counter

import pytest
import simulations
from simulations import written

from dsa.testing.simulation.seed_plan import BOUNDARIES, FAULTS, FAULTS_AT, Triple, outside_events, started_effects

LETTER = written(simulations.LETTER)
WRITE, WRITTEN, STOP = range(3)  # its rows
ENDS = {"kill", "power cut"}
OTHERS = {"takeover", "second holder", "clock forward", "clock back", "stray event"}


def faults_at(row, boundary, about=LETTER):
    return {triple.fault for triple in about.triples if (triple.row, triple.boundary) == (row, boundary)}


def test_triples_of_a_small_machine_are_those_counted_by_hand():
    counts = Counter(triple.row for triple in LETTER.triples)
    assert counts == {WRITE: 39, WRITTEN: 50, STOP: 31}
    assert len(set(LETTER.triples)) == len(LETTER.triples) == 120


@pytest.mark.parametrize("row", [WRITE, WRITTEN, STOP])
def test_faults_of_writing_and_recovery_can_strike_at_every_row(row):
    doubled = {"doubled answer"} if row == WRITTEN else set()  # the only one that an answer takes
    assert faults_at(row, "before") == ENDS | {"write fails", "takeover"} | doubled
    assert faults_at(row, "unsynced") == ENDS | {"sync fails"}
    assert faults_at(row, "durable") == ENDS
    assert faults_at(row, "recovering") == ENDS | {"write fails", "sync fails", "damage"}
    assert faults_at(row, "after hold") == ENDS | {"takeover", "second holder"}


@pytest.mark.parametrize("row", [WRITE, WRITTEN])
def test_faults_of_effects_can_strike_at_a_row_with_effects(row):
    assert faults_at(row, "performing") == ENDS | OTHERS | {"lost answer", "failure", "garbled answer"}
    assert faults_at(row, "performed") == ENDS | {"write fails", "takeover"}
    assert faults_at(row, "result unsynced") == ENDS | {"sync fails"}
    assert faults_at(row, "recorded") == faults_at(row, "after resumed") == ENDS


def test_row_that_only_cancels_has_no_faults_of_effects():
    for boundary in ("performing", "performed", "result unsynced", "recorded", "after resumed"):
        assert faults_at(STOP, boundary) == set()
    assert faults_at(STOP, "resting") == ENDS | OTHERS | {"late answer"}


def test_run_that_waits_for_an_effect_of_the_row_does_not_rest():
    assert faults_at(WRITE, "resting") == faults_at(WRITE, "releasing") == set()


@pytest.mark.parametrize("row", [WRITTEN, STOP])
def test_faults_of_releasing_can_strike_where_a_run_rests(row):
    assert faults_at(row, "releasing") == ENDS | {"write fails", "sync fails", "takeover"}


def test_finished_run_has_no_clock_faults_and_no_late_answers():
    assert faults_at(WRITTEN, "resting") == ENDS | {"takeover", "second holder", "stray event"}


def test_row_that_is_never_taken_has_no_triples():
    lost = simulations.LETTER.replace("| done | final |", "| done | final |\n| lost | |")
    about = written(f"{lost}| drafting | draft.failed | | idle |\n| lost | write | | idle |\n")
    assert {triple.row for triple in about.triples} == {WRITE, WRITTEN, STOP, 3}
    assert Triple(3, "before", "doubled answer") in about.triples  # a failure is an answer


def test_stray_event_is_impossible_without_outside_events():
    about = written("""# alone
## Events
| event | from |
| - | - |
| made | make |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | after 1s | make | making |
| making | made | | idle |
""")
    assert outside_events(about.machine) == ()
    assert outside_events(LETTER.machine) == ("write", "stop")
    assert not {triple for triple in about.triples if triple.fault == "stray event"}


def test_effect_that_its_own_row_cancels_is_not_begun():
    about = written("""# hasty
## Events
| event | from |
| - | - |
| go | outside |
| made | make |
| sent | send |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | make, send, cancel make, note | waiting |
| waiting | sent | | idle |
""")
    move = about.rows[0].moves[0]
    assert started_effects(about.graph, move) == ("send", "note")


def test_every_boundary_and_every_fault_has_a_description():
    assert FAULTS_AT.keys() == BOUNDARIES.keys()
    assert {fault for faults in FAULTS_AT.values() for fault in faults} == FAULTS.keys()
