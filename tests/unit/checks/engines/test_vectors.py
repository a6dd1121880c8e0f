import pytest
from example_machines import add, assign, compare, placed, ranged, states, var

from dsa.checks.search import numpy_engine, python_engine
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import Event, Transition, Variable
from dsa.expr import Arithmetic, Count, Expr, Integer
from dsa.ground_system import Ground, ground
from dsa.machine import Machine
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**6)


def wide(high: int, condition: Expr, *more: Transition) -> Ground:
    rows = (Transition("a", "go", "=", condition, updates=(add("x", 1),)), *more)
    variables = [Variable("x", "environment", ranged(0, 20), Integer(0))]
    variables += [Variable(name, "environment", ranged(0, high), Integer(0)) for name in "yz"]
    machine = Machine(
        "m", placed(rows), states("a"), "a", variables=tuple(variables), events=(Event("go"), Event("far"))
    )
    return ground(closed_system(machine))


@pytest.mark.parametrize("high", [10, 2**12, 2**14, 2**15, 2**28])
def test_numbers_up_to_62_bits_are_right(high: int):
    jump = Transition(
        "a", "far", "=", updates=(assign("y", high), assign("z", Arithmetic("-", Integer(high), var("y"))))
    )
    system = wide(high, compare("x", "<", 20), jump)
    assert numpy_engine.fits(system)
    found, expected = (engine.search(system, (), UNLIMITED) for engine in (numpy_engine, python_engine))
    assert (found.configurations, found.transitions) == (expected.configurations, expected.transitions) == (63, 123)
    assert sorted(n for layer in found.layers or () for n in layer) == sorted(
        n for layer in expected.layers or () for n in layer
    )


def test_products_too_wide_for_32_bits_are_right():
    product = Arithmetic("*", Arithmetic("+", var("x"), Integer(50_000)), Integer(50_000))
    system = wide(1, compare(product, "<", 50_010 * 50_000))
    assert numpy_engine.search(system, (), UNLIMITED).configurations == 11


@pytest.mark.parametrize("wrong", [2**31, 2**40])
def test_system_too_wide_for_numpy_is_refused_but_searched_in_python(wrong: int):
    system = wide(wrong, compare("x", "<", 20))
    assert not numpy_engine.fits(system)
    with pytest.raises(ValueError, match="62 bits"):
        numpy_engine.search(system, (), UNLIMITED)
    assert python_engine.search(system, (), UNLIMITED).configurations == 21


def test_comparison_with_a_number_too_wide_is_not_for_arrays():
    system = wide(1, compare(Arithmetic("*", var("x"), Integer(2**60)), "<", 2**61))
    assert not numpy_engine.fits(system)
    assert python_engine.search(system, (), UNLIMITED).configurations == 3


def test_count_is_as_wide_as_its_number_of_conditions():
    several = Count(tuple(compare(name, ">=", 1) for name in "yzyz"))
    assert numpy_engine.fits(wide(1, compare(Arithmetic("*", several, Integer(2**59)), "<", 3)))
    assert not numpy_engine.fits(wide(1, compare(Arithmetic("*", several, Integer(2**60)), "<", 3)))
