"""Graphs in lists and graphs in arrays have the same cycles; on random machines the lists are compared with an oracle."""

import families
import pytest
from example_machines import states

from dsa.checks.search.engine import SearchLimits
from dsa.checks.search.property_search import search_all
from dsa.checks.search.state_graph import cycles, marked_positions, unable_positions
from dsa.declarations import Event, Transition
from dsa.edge.document_files import load
from dsa.expr import TRUE, Name
from dsa.machine import Machine
from dsa.system import closed_system


def loop():
    """Return a machine whose one cycle is a step from a configuration to itself."""
    return Machine(
        "loop", (Transition("a", "go", "b"), Transition("b", "go", "=")), states("a", ["b"]), "a", events=(Event("go"),)
    )


MACHINES = {
    "loop": loop,
    "peterson": lambda: load("examples/peterson"),
    "polling": lambda: load("examples/polling"),
    "workflow": lambda: load("workflow"),
    "any order": lambda: families.any_order(3, 1),
}


def parts(machine, condition):
    searched = search_all(closed_system(machine), [], SearchLimits(100_000))
    graph = searched.graph
    holding = graph.marks_where(
        dict.fromkeys(range(len(searched.system.locations)), searched.ground.ground_condition(condition))
    )
    numbers = [int(number) for number in graph.numbers]
    found = {frozenset(numbers[position] for position in part) for part in cycles(graph, holding)}
    return (
        type(graph.numbers).__name__,
        found,
        sorted(numbers[position] for position in unable_positions(graph, holding)),
    )


@pytest.mark.parametrize("name", MACHINES)
def test_graphs_in_arrays_and_lists_have_the_same_cycles(name, monkeypatch):
    machine = MACHINES[name]()
    flags = [
        v.name for v in machine.variables if str(v.domain) == "bool" or v.domain.__class__.__name__ == "BooleanDomain"
    ]
    for condition in [TRUE, *(Name(flag, "variable") for flag in flags[:2])]:
        kind, cyclic, stuck = parts(machine, condition)
        monkeypatch.setattr("dsa.checks.search.state_graph._SMALL", 0)
        arrays, *same = parts(machine, condition)
        monkeypatch.undo()
        assert (kind, arrays) == ("list", "ndarray")
        assert same == [cyclic, stuck]


def test_marked_positions_are_listed():
    assert marked_positions(bytearray([0, 1, 1, 0])) == [1, 2]


def test_step_to_itself_is_a_cycle():
    _, found, stuck = parts(loop(), TRUE)
    assert ([len(part) for part in found], stuck) == ([1], [])
