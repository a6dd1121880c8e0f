"""What follows from rows, apart from what `property/test_agreement.py` compares with `step`, and `property/test_replay.py` with the plain fold."""

import attrs
from unit.runtime.test_run import MACHINE

from dsa.meaning import Configuration, Occurrence, start
from dsa.runtime.moves import moves_of


def row(source, event, target):
    return next(r for r in MACHINE.transitions if (r.source, r.event, r.target) == (source, event, target))


def test_what_follows_from_a_row_is_worked_out_once_for_all_runs_of_a_machine():
    moves, idle = moves_of(MACHINE), start(MACHINE)
    move = moves.of(idle, row("idle", "specification", "generating"))
    assert move is moves_of(MACHINE).of(start(MACHINE), row("idle", "specification", "generating"))
    assert (move.source, move.target, move.started) == ("idle", "generating", (("1", "query_llm", True),))
    assert (move.ended, move.stopped, move.outstanding) == (("outside",), (), frozenset({"query_llm"}))


def test_it_depends_on_what_is_outstanding():
    again, moves = row("generating", "again", "generating"), moves_of(MACHINE)
    busy = Configuration("generating", (False, 0), frozenset({"query_llm"}))
    assert moves.of(busy, again).stopped == ("query_llm",)
    assert moves.of(Configuration("generating", (False, 0), frozenset()), again).stopped == ()


def test_the_compiled_step_is_asked_once_a_row_was_looked_for_often():
    machine = attrs.evolve(MACHINE)
    moves, occurrence = moves_of(machine), Occurrence("specification", data="Psi")
    found = [moves.chosen(start(machine), occurrence) for _ in range(20)]
    assert found[0] is None
    assert found[-1] == (row("idle", "specification", "generating"), (False, 0))
    assert moves.chosen(start(machine), Occurrence("artifact")) is None
