"""Decision diagrams: exact counts beyond 2**53, shortest paths, limits. Their results are compared in property/test_engines.py."""

import sys
from itertools import pairwise
from unittest.mock import patch

import families
import plain
import pytest
from example_machines import jugs
from hypothesis import given
from hypothesis import strategies as st

from dsa.checks.search import bdd_engine
from dsa.checks.search.bdd_engine import Circuits, field_order
from dsa.checks.search.engine import SearchLimits
from dsa.expr import And, Arithmetic, Compare, Count, Expr, Integer, Name, Negate, Not, Or, evaluate
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.lang import loads
from dsa.machine import Machine
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**40)


def grounded(machine: Machine) -> Ground:
    return ground(closed_system(machine))


def test_counts_beyond_2_to_the_53_are_exact():
    found = bdd_engine.search(grounded(families.any_order(34, 1)), (), UNLIMITED)
    assert found.configurations == families.any_order_configurations(34, 1) > 2**53
    assert sum(found.locations) == found.configurations
    assert found.complete


def test_path_is_a_shortest_one():
    system = grounded(jugs())
    expected = plain.search(system, (), UNLIMITED)
    assert expected.layers is not None
    for depth, layer in enumerate(expected.layers):
        for goal in layer:
            way = bdd_engine.path(system, goal, UNLIMITED)
            assert way is not None
            assert (way[0], way[-1], len(way)) == (system.start, goal, depth + 1)
            for before, after in pairwise(way):
                assert after in {number for _, number in system.successors(before)}


def test_path_leads_through_updates_that_read_what_they_change():
    system = grounded(families.ordered(6, 4))
    expected = plain.search(system, (), UNLIMITED)
    assert expected.layers is not None
    goal = expected.layers[-1][0]
    way = bdd_engine.path(system, goal, UNLIMITED)
    assert way is not None
    assert len(way) == len(expected.layers)
    for before, after in pairwise(way):
        assert after in {number for _, number in system.successors(before)}


def test_unreached_configuration_has_no_path():
    system = grounded(jugs())
    never = next(number for number in range(system.domain_size) if system.values(number) == {"small": 1, "big": 1})
    with pytest.raises(ValueError, match="no way"):
        bdd_engine.path(system, never, UNLIMITED)


@pytest.mark.parametrize("limits", [SearchLimits(100), SearchLimits(10**40, is_expired=lambda: True)])
def test_limit_makes_the_search_incomplete(limits: SearchLimits):
    system = grounded(families.any_order(5, 3))
    found = bdd_engine.search(system, [GroundWatch(0, system.rules[0].condition)], limits)
    assert not found.complete
    assert found.configurations < families.ANY_ORDER[5, 3]


def test_limit_ends_the_search_for_a_path():
    assert bdd_engine.path(grounded(jugs()), 1, SearchLimits(1, is_expired=lambda: True)) is None


def test_memory_limit_makes_the_search_incomplete(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bdd_engine, "MEMORY_BYTES", 12 * 2**20)
    found = bdd_engine.search(grounded(families.any_order(16, 5)), (), UNLIMITED)
    assert not found.complete


def test_memory_limit_works_without_cudd(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bdd_engine, "MAX_NODES", 300)
    with patch.dict(sys.modules, {"dd.cudd": None}):
        found = bdd_engine.search(grounded(families.any_order(5, 3)), (), UNLIMITED)
    assert not found.complete


def test_progress_is_reported():
    told: list[int] = []
    bdd_engine.search(grounded(jugs()), (), SearchLimits(100, progress=lambda states, _: told.append(states)))
    assert told == sorted(told)
    assert told[-1] == 16


@pytest.mark.parametrize(
    ("machine", "worth"),
    [
        (lambda: families.any_order(16, 3), True),
        (lambda: families.any_order(7, 3), False),  # small
        (lambda: families.ordered(10**6, 10**6), False),  # deep
        (jugs, False),
    ],
)
def test_engine_is_worth_trying_on_large_and_shallow_systems_only(machine, worth: bool):  # noqa: FBT001  (an expectation)
    assert bdd_engine.worth_it(grounded(machine())) is worth


def test_related_fields_are_next_to_each_other():
    system = grounded(families.any_order(5, 3))
    order = [system.fields[index].name for index in field_order(system)]
    assert sorted(order) == sorted(field.name for field in system.fields)
    for i in range(1, 6):
        assert abs(order.index(f"ok_{i}") - order.index(f"r_{i}")) == 1


FIELDS = loads("""# fields

## Variables
| variable | domain | initial |
| - | - | - |
| a | -3..4 | 0 |
| b | bool | false |
| c | 2..7 | 2 |
| d | bool | true |

## Transitions
| source | event | if | target |
| - | - | - | - |
| s | e | a + c > 1 or b == d | = |
""")
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
FLAGS: st.SearchStrategy[Expr] = st.sampled_from([Name("b", "variable"), Name("d", "variable")])


def comparisons(numbers: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(lambda x, sign, y: Compare(x, ((sign, y),)), numbers, SIGNS, numbers)


NUMBERS: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([Name("a", "variable"), Name("c", "variable")]) | st.integers(-9, 9).map(Integer),
    lambda part: (
        st.builds(Negate, part)
        | st.builds(Arithmetic, st.sampled_from(["+", "-", "*"]), part, part)
        | st.builds(Count, st.lists(FLAGS | comparisons(part), min_size=1, max_size=4).map(tuple))
    ),
    max_leaves=5,
)
CONDITIONS: st.SearchStrategy[Expr] = st.recursive(
    FLAGS | comparisons(NUMBERS),
    lambda part: (
        st.builds(Not, part)
        | st.builds(And, st.tuples(part, part))
        | st.builds(Or, st.tuples(part, part))
        | st.builds(lambda x, sign, y: Compare(x, ((sign, y),)), part, st.sampled_from(["==", "!="]), part)
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_conditions_in_bits_agree_with_evaluation(condition: Expr):
    from dd.autoref import BDD

    system = grounded(FIELDS)
    circuits = Circuits(system, BDD())
    truth = circuits.truth(condition)
    for number in range(system.volume):
        values = circuits.assignment(number, range(len(system.fields)))
        expected = evaluate(condition, system.values(number)) is True
        assert (circuits.manager.let(values, truth) == circuits.true) is expected
