"""Moves: facts that neither `property/test_agreement.py` compares with `step` nor `property/test_replay.py` with the plain fold."""

from unit.runtime.test_run import MACHINE

from dsa.compiled_step import compiled_step
from dsa.runtime.run import change_keys, changes
from dsa.semantics import Configuration, Occurrence, start


def moved(configuration, event):
    return compiled_step(MACHINE).move(configuration, Occurrence(event))


def test_move_of_a_row_is_computed_once_for_all_runs_of_a_machine():
    move, _ = moved(start(MACHINE), "specification")
    assert move is moved(start(MACHINE), "specification")[0]
    assert (move.source, move.target, move.starts) == ("idle", "generating", (("1", "query_llm", True),))
    assert (move.origin, move.stops, move.outstanding) == (None, (), ("query_llm",))


def test_move_depends_on_outstanding_effects():
    busy = Configuration("generating", (False, 0), frozenset({"query_llm"}))
    assert moved(busy, "again")[0].stops == ("query_llm",)
    assert moved(Configuration("generating", (False, 0), frozenset()), "again")[0].stops == ()


def test_keys_start_with_the_place_of_the_row_that_starts_their_effects():
    move, values = moved(start(MACHINE), "specification")
    keys = {"0/1": "other"}
    assert change_keys(move, keys, "1/", None) == []
    assert keys == {"0/1": "other", "1/1": "query_llm"}
    assert changes(move, (False, 0), values) == ()
