"""Every engine finds what the plainest one finds: on random machines, on what their properties ask, and on the families."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from unittest.mock import patch

import attrs
import families
import plain
import pytest
from crowds import crowded_machines
from example_machines import chain, dual_state, jugs
from family_documents import family_machines
from hypothesis import assume, event, given, settings

from dsa.checks.observers import observer_of
from dsa.checks.search import bdd_engine, c_engine, numpy_engine, python_engine
from dsa.checks.search.engine import Engine, SearchLimits, SearchResult
from dsa.declarations import ExpectedCount, Probability, Variable
from dsa.edge.processes import compile_library as compile_c
from dsa.expr import TRUE, Integer, RangeDomain, evaluate
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.machine import Machine
from dsa.system import closed_system
from dsa.testing.strategies import machines

UNLIMITED = SearchLimits(10**12)
#: A search of a random machine that finds more configurations than this tells no more.
MOST = SearchLimits(3_000)
MANY = settings(deadline=None, max_examples=400)


def compiled_engine(system: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    return c_engine.search(system, watches, limits, compile_c)


def bdd_without_cudd(system: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    with patch.dict(sys.modules, {"dd.cudd": None}):
        return bdd_engine.search(system, watches, limits)


def numpy_hashed(system: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    with patch.object(numpy_engine, "MAX_BYTES", -1):
        return numpy_engine.search(system, watches, limits)


def python_in_sets(system: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    with patch.object(python_engine, "_MAX_BYTES", -1):
        return python_engine.search(system, watches, limits)


#: The engines that are tested against the plainest.
ENGINES: dict[str, Engine] = {
    "bdd": bdd_engine.search,
    "bdd, autoref": bdd_without_cudd,
    "compiled": compiled_engine,
    "numpy": numpy_engine.search,
    "numpy, hashed": numpy_hashed,
    "python": python_engine.search,
    "python, in sets": python_in_sets,
}
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def everything(system: Ground) -> list[GroundWatch]:
    """Look out for every location, and for what every rule needs."""
    places = [GroundWatch(place, TRUE) for place in range(len(system.system.locations))]
    return [*places, *(GroundWatch(rule.source, rule.condition) for rule in system.rules)]


def asked(machine: Machine) -> tuple[Ground, list[GroundWatch]] | None:
    """Return what the first property asks that needs a search: a system that remembers enough, and what to look out for."""
    for claim in machine.properties:
        if not isinstance(claim.form, Probability | ExpectedCount):
            found = observer_of(closed_system(machine), claim.form, machine.constants)
            if evaluate(found.at_start, machine.constants) is True:
                continue  # broken before anything happens, so no search is made; what counts may be out of its domain
            system = ground(found.system)
            watches = system.watches((sight.location, sight.condition) for sight in found.sights)
            return system, [watch for watch in watches if watch is not None]
    return None


def assert_same(system: Ground, watches: Sequence[GroundWatch], found: SearchResult, expected: SearchResult) -> None:
    """The engines agree; of several nearest configurations each may show another."""
    assert found == attrs.evolve(expected, engine=found.engine, hits=found.hits, layers=found.layers)
    assert expected.layers is not None
    distance = {number: depth for depth, layer in enumerate(expected.layers) for number in layer}
    for watch, hit, other in zip(watches, found.hits, expected.hits, strict=True):
        assert (hit is None) == (other is None)
        if hit is not None and other is not None:
            assert distance[hit] == distance[other]
            assert hit // system.volume == watch.location
    if found.layers is not None:
        assert [sorted(layer) for layer in found.layers] == [sorted(layer) for layer in expected.layers]


def compare(engine: Engine, system: Ground, watches: Sequence[GroundWatch]) -> None:
    expected = plain.search(system, watches, MOST)
    assume(expected.complete)
    event("more than 10 configurations" if expected.configurations > 10 else "few configurations")
    assert_same(system, watches, engine(system, watches, UNLIMITED), expected)


def compare_random(engine: Engine, machine: Machine) -> None:
    system = ground(closed_system(machine))
    compare(engine, system, everything(system))


@EACH_ENGINE
@settings(deadline=None, max_examples=8)
@given(machine=machines(claims=False) | crowded_machines() | family_machines())
def test_engines_agree_on_random_machines(engine: Engine, machine: Machine):
    compare_random(engine, machine)


@pytest.mark.full
@EACH_ENGINE
@MANY
@given(machine=machines(claims=False) | crowded_machines() | family_machines())
def test_engines_agree_on_many_random_machines(engine: Engine, machine: Machine):
    compare_random(engine, machine)


def compare_asked(engine: Engine, machine: Machine) -> None:
    question = asked(machine)
    assume(question is not None)
    assert question is not None
    compare(engine, *question)


@EACH_ENGINE
@settings(deadline=None, max_examples=8)
@given(machine=machines() | crowded_machines(claims=2) | family_machines())
def test_engines_agree_on_the_questions_of_properties(engine: Engine, machine: Machine):
    compare_asked(engine, machine)


@pytest.mark.full
@EACH_ENGINE
@MANY
@given(machine=machines() | crowded_machines(claims=2) | family_machines())
def test_engines_agree_on_the_questions_of_many_properties(engine: Engine, machine: Machine):
    compare_asked(engine, machine)


@settings(deadline=None, max_examples=8)
@given(machine=machines(claims=False) | crowded_machines() | family_machines())
def test_compiled_engine_agrees_when_the_domain_is_too_large_for_a_bitmap(machine: Machine):
    unused = Variable("unused", "environment", RangeDomain(Integer(-5), Integer(10**12)), Integer(0))
    system = ground(closed_system(attrs.evolve(machine, variables=(unused, *machine.variables))))
    watches = everything(system)
    assume(c_engine.fits(system, watches))
    compare(compiled_engine, system, watches)


SMALL: dict[str, Callable[[], Machine]] = {
    "dual_state": dual_state,
    "jugs": jugs,
    "chain": lambda: chain(50),
    "ordered": lambda: families.ordered(7, 4),
    "any_order": lambda: families.any_order(3, 2),
    "two_phase_commit": lambda: families.two_phase_commit(3),
    "peterson": families.peterson,
    "peterson, broken": lambda: families.peterson(broken=True),
}


@cache
def expected_of(name: str) -> tuple[Ground, list[GroundWatch], SearchResult]:
    """Return an example, what to look out for, and what the plainest engine finds, which takes longer than most."""
    system = ground(closed_system(SMALL[name]()))
    watches = everything(system)
    return system, watches, plain.search(system, watches, UNLIMITED)


@EACH_ENGINE
@pytest.mark.parametrize("name", SMALL)
def test_engines_agree_on_example_machines(engine: Engine, name: str):
    system, watches, expected = expected_of(name)
    assert_same(system, watches, engine(system, watches, UNLIMITED), expected)


COUNTS: list[tuple[Callable[..., Machine], tuple[int, ...], int]] = [
    *((families.ordered, size, count) for size, count in families.ORDERED.items()),
    *((families.any_order, size, count) for size, count in families.ANY_ORDER.items()),
    *((families.two_phase_commit, (size,), count) for size, count in families.TWO_PHASE_COMMIT.items()),
]


def counts(least: int, most: int) -> pytest.MarkDecorator:
    """Return the members of the families that have at least `least` and fewer than `most` configurations."""
    found = [item for item in COUNTS if least <= item[2] < most]
    return pytest.mark.parametrize(("make", "size", "count"), found, ids=[f"{m.__name__} {s}" for m, s, _ in found])


@counts(0, 400_000)
@pytest.mark.parametrize("engine", [bdd_engine.search, compiled_engine])
def test_families_have_the_known_counts(
    engine: Engine, make: Callable[..., Machine], size: tuple[int, ...], count: int
):
    found = engine(ground(closed_system(make(*size))), (), UNLIMITED)
    assert (found.configurations, found.complete) == (count, True)


@pytest.mark.full
@counts(400_000, 10**9)
@pytest.mark.parametrize("engine", [bdd_engine.search, compiled_engine])
def test_large_families_have_the_known_counts(
    engine: Engine, make: Callable[..., Machine], size: tuple[int, ...], count: int
):
    found = engine(ground(closed_system(make(*size))), (), UNLIMITED)
    assert (found.configurations, found.complete) == (count, True)


def test_known_counts_equal_the_closed_forms():
    assert {size: families.ordered_configurations(*size) for size in families.ORDERED} == families.ORDERED
    assert {size: families.any_order_configurations(*size) for size in families.ANY_ORDER} == families.ANY_ORDER
