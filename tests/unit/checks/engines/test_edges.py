from unittest.mock import patch

import families
import numpy as np
import plain
import pytest
from example_machines import compare, dual_state, jugs, two_phase_commit

from dsa.checks.search import numpy_engine, python_engine, state_graph
from dsa.checks.search.engine import SearchLimits
from dsa.checks.search.state_graph import graph
from dsa.expr import TRUE, evaluate
from dsa.ground_system import ground
from dsa.machine import Machine
from dsa.system import closed_system

MACHINES = pytest.mark.parametrize(
    "machine", [dual_state(rmax=2), jugs(), two_phase_commit(3), families.ordered(6, 5), families.any_order(3, 2)]
)
UNLIMITED = SearchLimits(10**9)


@MACHINES
@pytest.mark.parametrize("small", [0, 10**9], ids=["arrays", "lists"])
@pytest.mark.parametrize(
    "engine", [plain.search, python_engine.search, numpy_engine.search], ids=["plain", "python", "numpy"]
)
def test_graph_has_every_step(machine: Machine, small: int, engine):
    system = ground(closed_system(machine))
    found = engine(system, (), UNLIMITED)
    with patch.object(state_graph, "_SMALL", small):
        net = graph(system, found)
    assert isinstance(net.numbers, list) == bool(small)
    numbers = [int(number) for number in net.numbers]
    places = {id(rule): place for place, rule in enumerate(system.rules)}
    expected = sorted((n, places[id(rule)], to) for n in numbers for rule, to in system.successors(n))
    steps = zip(net.sources, net.rules, net.targets, strict=True)
    assert sorted((numbers[source], int(rule), numbers[target]) for source, rule, target in steps) == expected
    by_source = list(zip(net.sources, net.rules, strict=True))
    assert by_source == sorted(by_source)
    assert [sorted(layer) for layer in found.layers or ()] == layered(numbers, [len(x) for x in found.layers or ()])
    assert numbers[0] == system.start
    assert (len(net.offsets), int(net.offsets[0]), int(net.offsets[-1])) == (len(numbers) + 1, 0, len(expected))
    for position in range(len(numbers)):
        assert set(net.sources[net.offsets[position] : net.offsets[position + 1]]) <= {position}


def layered(numbers: list[int], sizes: list[int]) -> list[list[int]]:
    rest = iter(numbers)
    return [sorted(next(rest) for _ in range(size)) for size in sizes]


@pytest.mark.parametrize("small", [0, 10**9], ids=["arrays", "lists"])
def test_marks_show_where_conditions_hold(small: int):
    system = ground(closed_system(dual_state(rmax=2)))
    with patch.object(state_graph, "_SMALL", small):
        net = graph(system, python_engine.search(system, (), UNLIMITED))
    conditions = {0: TRUE, 1: compare("retries", ">", 0), 10**6: TRUE}
    expected = [
        number // system.volume in conditions
        and evaluate(conditions[number // system.volume], system.values(int(number))) is True
        for number in net.numbers
    ]
    assert 1 < sum(expected) < len(expected)
    assert np.asarray(net.marks_where(conditions), dtype=bool).tolist() == expected


def test_only_a_complete_search_has_a_graph():
    system = ground(closed_system(jugs()))
    with pytest.raises(ValueError, match="complete"):
        graph(system, python_engine.search(system, (), SearchLimits(3)))
