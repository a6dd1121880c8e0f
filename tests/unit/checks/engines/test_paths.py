from array import array

import attrs
import families
import plain
import pytest
from example_machines import dual_state, jugs

from dsa.checks.search import numpy_engine, python_engine
from dsa.checks.search.engine import Engine, SearchLimits, SearchResult
from dsa.checks.search.exploration import Paths
from dsa.ground_system import Ground, ground
from dsa.machine import Machine
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**9)


def flat(system: Ground, watches: object, limits: SearchLimits) -> SearchResult:
    """Search, and return layers as another kind of engine does: numbers in any order."""
    found = python_engine.search(system, (), limits)
    layers = tuple(array("Q", sorted(layer, reverse=True)) for layer in found.layers or ())
    return attrs.evolve(found, layers=layers)


ENGINES = pytest.mark.parametrize(
    "engine", [plain.search, python_engine.search, numpy_engine.search, flat], ids=["plain", "python", "numpy", "flat"]
)
MACHINES = pytest.mark.parametrize(
    "machine",
    [dual_state(rmax=2), jugs(), families.ordered(3, 2), families.any_order(2, 2), families.two_phase_commit(3)],
)


@ENGINES
@MACHINES
def test_paths_are_real_and_as_long_as_the_distance(engine: Engine, machine: Machine):
    system = ground(closed_system(machine))
    found = engine(system, (), UNLIMITED)
    paths = Paths(system, found)
    for depth, layer in enumerate(found.layers or ()):
        for number in layer:
            assert paths.depth(number) == depth == len(paths.to(number))
            here = system.start
            for leap in paths.to(number):
                assert (system.rules[leap.rule], leap.number) in list(system.successors(here))
                here = leap.number
            assert here == number


@ENGINES
@MACHINES
def test_rule_is_first_taken_at_the_smallest_distance(engine: Engine, machine: Machine):
    system = ground(closed_system(machine))
    found = engine(system, (), UNLIMITED)
    paths = Paths(system, found)
    nearest: dict[int, int] = {}
    for depth, layer in enumerate(found.layers or ()):
        for number in layer:
            for rule, _ in system.successors(number):
                nearest.setdefault(id(rule), depth)
    for place, rule in enumerate(system.rules):
        taken = paths.nearest_taking([place])
        assert (taken is not None) == (id(rule) in nearest)
        if taken is not None:
            assert paths.depth(taken[0]) == nearest[id(rule)]
            assert any(there is rule for there, _ in system.successors(taken[0]))
    assert paths.nearest_taking(()) is None


def test_large_layers_of_other_engines_are_split_too():
    system = ground(closed_system(families.any_order(6, 3)))
    found = flat(system, (), UNLIMITED)
    farthest = (found.layers or ())[-1][0]
    assert len(Paths(system, found).to(farthest)) == len(found.layers or ()) - 1


def test_unreached_configuration_has_no_path():
    system = ground(closed_system(jugs()))
    paths = Paths(system, python_engine.search(system, (), UNLIMITED))
    with pytest.raises(KeyError):
        paths.to(1 + 4 * 1)  # one gallon in each jug
    with pytest.raises(ValueError, match="bdd did not store its layers"):
        Paths(system, attrs.evolve(python_engine.search(system, (), UNLIMITED), engine="bdd", layers=None)).layers  # noqa: B018
