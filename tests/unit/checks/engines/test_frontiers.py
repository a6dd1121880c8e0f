"""Searches over whole frontiers, in lists and in arrays: counts, limits and watches, compared with the plain engine."""

from unittest.mock import patch

import families
import plain
import pytest
from example_machines import add, assign, chain, compare, dual_state, emits, jugs, placed, ranged, states, var

from dsa.checks.search import numpy_engine, python_engine
from dsa.checks.search.engine import Engine, SearchLimits, SearchResult
from dsa.declarations import Event, Transition, Variable
from dsa.expr import TRUE, Arithmetic, Integer
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.machine import Machine
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**12)
BOTH = pytest.mark.parametrize("engine", [python_engine.search, numpy_engine.search], ids=["python", "numpy"])


def grounded(machine: Machine) -> Ground:
    return ground(closed_system(machine))


def counter(high: int, *rows: Transition, **more: int) -> Machine:
    """Return a machine of one state with a variable `x` from 0 to `high`, and others from 0 to the numbers in `more`."""
    highs = {"x": high} | more
    variables = (Variable(name, "environment", ranged(0, top), Integer(0)) for name, top in highs.items())
    events = (Event(name) for name in dict.fromkeys(row.event for row in rows))
    return Machine("m", placed(rows), states("a"), "a", variables=tuple(variables), events=tuple(events))


def everything(found: SearchResult) -> tuple[object, ...]:
    assert found.layers is not None
    layers = [sorted(layer) for layer in found.layers]
    return found.configurations, found.transitions, found.locations, found.taken, found.complete, layers


@BOTH
@pytest.mark.parametrize(
    "machine",
    [
        dual_state(rmax=0), dual_state(rmax=3), jugs(), chain(40), families.two_phase_commit(3), families.ordered(7, 4),
        families.any_order(3, 2),
    ],
)  # fmt: skip
def test_engine_agrees_with_the_plain_one(engine: Engine, machine: Machine):
    system = grounded(machine)
    watches = [GroundWatch(rule.source, rule.condition) for rule in system.rules]
    watches += [GroundWatch(place, TRUE) for place in range(len(system.system.locations))]
    expected, found = plain.search(system, watches, UNLIMITED), engine(system, watches, UNLIMITED)
    assert everything(found) == everything(expected)
    distance = {number: depth for depth, layer in enumerate(expected.layers or ()) for number in layer}
    assert [hit is not None and distance[hit] for hit in found.hits] == [
        hit is not None and distance[hit] for hit in expected.hits
    ]


COUNTS = [
    *((families.ordered, size, count) for size, count in families.ORDERED.items()),
    *((families.any_order, size, count) for size, count in families.ANY_ORDER.items()),
    *((families.two_phase_commit, (size,), count) for size, count in families.TWO_PHASE_COMMIT.items()),
]
MOST = {python_engine.search: 10_000_000, numpy_engine.search: 10**9}


@BOTH
@pytest.mark.parametrize(("family", "size", "count"), [item for item in COUNTS if item[2] < 4_000_000])
def test_families_have_exact_counts(engine: Engine, family, size, count):
    found = engine(grounded(family(*size)), (), UNLIMITED)
    assert (found.configurations, sum(found.locations), found.complete) == (count, count, True)


@pytest.mark.full
@BOTH
@pytest.mark.parametrize(("family", "size", "count"), [item for item in COUNTS if item[2] > 4_000_000])
def test_large_families_have_exact_counts(engine: Engine, family, size, count):
    if count < MOST[engine]:
        found = engine(grounded(family(*size)), (), UNLIMITED)
        assert (found.configurations, sum(found.locations), found.complete) == (count, count, True)


@BOTH
def test_several_configurations_may_lead_to_the_same_one(engine: Engine):
    machine = counter(
        9,
        Transition("a", "more", "=", compare("x", "<", 9), updates=(add("x", 1),)),
        Transition("a", "reset", "=", updates=(assign("x", 0),)),
        Transition("a", "half", "=", compare("x", ">", 4), updates=(assign("x", Arithmetic("-", var("x"), Integer(5))),)),
        Transition("a", "far", "=", compare("x", "<", 4), updates=(assign("x", Arithmetic("*", var("x"), Integer(3))),)),
    )  # fmt: skip
    system = grounded(machine)
    assert everything(engine(system, (), UNLIMITED)) == everything(plain.search(system, (), UNLIMITED))


@BOTH
def test_rule_that_forgets_leads_to_each_configuration_once(engine: Engine):
    rows = (
        Transition("a", "more", "=", compare("x", "<", 300), updates=(add("x", 1),)),
        Transition("a", "leave", "b", updates=(assign("x", 0),)),
    )
    machine = Machine(
        "m", placed(rows), states("a", ["b"]), "a",
        variables=(Variable("x", "environment", ranged(0, 300), Integer(0)),), events=(Event("more"), Event("leave")),
    )  # fmt: skip
    found = engine(grounded(machine), (), UNLIMITED)
    assert (found.configurations, found.transitions) == (302, 601)


@BOTH
def test_ranges_may_begin_below_zero_and_hold_one_value(engine: Engine):
    machine = Machine(
        "m",
        placed([
            Transition("a", "up", "=", compare("x", "<", 2), updates=(add("x", 1),)),
            Transition("a", "turn", "=", compare("x", "!=", 0), updates=(assign("x", Arithmetic("*", var("x"), Integer(-1))),)),
            Transition("a", "keep", "=", updates=(assign("one", 4),)),
        ]),
        states("a"), "a", events=(Event("up"), Event("turn"), Event("keep")),
        variables=(
            Variable("one", "environment", ranged(4, 4), Integer(4)), Variable("x", "environment", ranged(-2, 2), Integer(-2)),
        ),
    )  # fmt: skip
    system = grounded(machine)
    found = engine(system, (), UNLIMITED)
    assert everything(found) == everything(plain.search(system, (), UNLIMITED))
    assert found.configurations == 5


@BOTH
def test_limits_and_progress_are_reported(engine: Engine):
    system = grounded(families.any_order(4, 3))
    found = engine(system, (), SearchLimits(100))
    assert not found.complete
    assert 100 < found.configurations == sum(map(len, found.layers or ()))
    looks = iter([False, False, True])
    found = engine(system, (), SearchLimits(10**9, is_expired=lambda: next(looks)))
    assert not found.complete
    told = []
    found = engine(system, (), SearchLimits(10**9, progress=lambda states, depth: told.append((states, depth))))
    assert told == sorted(told)
    assert told[-1] == (7126, len(found.layers or ()))


@BOTH
def test_memory_is_bounded_whatever_is_allowed(engine: Engine):
    system = grounded(families.any_order(5, 3))
    with patch.object(python_engine, "MEMORY_BYTES", 4 * 1_000):
        found = engine(system, (), UNLIMITED)
    assert not found.complete
    assert found.configurations < 43_751


@BOTH
def test_exactly_as_many_as_allowed_is_complete(engine: Engine):
    assert engine(grounded(jugs()), (), SearchLimits(16)).complete
    assert not engine(grounded(jugs()), (), SearchLimits(15)).complete


@BOTH
def test_large_frontiers_are_searched_in_slices(engine: Engine):
    system = grounded(families.any_order(5, 3))
    expected = everything(engine(system, (), UNLIMITED))
    looks: list[int] = []
    limits = SearchLimits(10**9, progress=lambda states, _: looks.append(states))
    kind = python_engine.ListSearch if engine is python_engine.search else numpy_engine._ArraySearch  # noqa: SLF001  (its slices, made small)
    with patch.object(kind, "slice_size", 100):
        assert everything(engine(system, (), limits)) == expected
    assert len(looks) > 400


def test_outstanding_effects_are_part_of_the_configuration():
    rows = [Transition("a", "go", "b", effects=emits("one", "two"))]
    rows += [Transition("b", f"{name}_done", "=") for name in ("one", "two")]
    events = (Event("go"), Event("one_done", "one"), Event("two_done", "two"))
    found = python_engine.search(
        grounded(Machine("m", placed(rows), states("a", ["b"]), "a", events=events)), (), UNLIMITED
    )
    assert (found.configurations, found.transitions) == (5, 5)
