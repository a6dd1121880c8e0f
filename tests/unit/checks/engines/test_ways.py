import attrs
import pytest
from example_machines import dual_state, jugs

from dsa.checks.search import bdd_engine, python_engine
from dsa.checks.search.engine import SearchLimits
from dsa.checks.search.exploration import ways
from dsa.ground_system import ground
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**9)


def forgetful(system, watches, limits):
    """Search, and return a result without layers."""
    return attrs.evolve(python_engine.search(system, watches, limits), engine="compiled", layers=None)


@pytest.mark.parametrize(
    "engine", [python_engine.search, forgetful, bdd_engine.search], ids=["layers", "no layers", "bdd"]
)
@pytest.mark.parametrize("machine", [jugs(), dual_state(rmax=2)], ids=["jugs", "dual_state"])
def test_paths_are_shortest_with_every_engine(engine, machine):
    system = ground(closed_system(machine))
    expected = python_engine.search(system, (), UNLIMITED)
    found = ways(system, engine(system, (), UNLIMITED))
    for depth, layer in enumerate(expected.layers or ()):
        for number in layer:
            way = found.to(number)
            assert len(way) == depth == found.depth(number)
            here = system.start
            for leap in way:
                assert (system.rules[leap.rule], leap.number) in list(system.successors(here))
                here = leap.number
            assert here == number
    for place in expected.taken:
        taken = found.nearest_taking([place])
        assert taken is not None
        assert found.depth(taken[0]) == ways(system, expected).depth(ways(system, expected).nearest_taking([place])[0])
    assert found.nearest_taking(()) is None


def test_configurations_counted_by_diagrams_cannot_be_listed():
    system = ground(closed_system(jugs()))
    found = ways(system, bdd_engine.search(system, (), UNLIMITED))
    with pytest.raises(ValueError, match="did not store its layers"):
        found.layers  # noqa: B018
    with pytest.raises(KeyError):
        found.to(5)
