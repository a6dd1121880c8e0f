"""Chains with free choices, compared with every way to choose in exact fractions."""

from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from odds_chains import bounds, chain_with, chains, gained
from sample_sizes import sample_size

from dsa.checks.odds.chain_solver import DecisionChain
from dsa.errors import UndecidedError


def both(chain, worth=None, *, gains=True):
    """Return the least and the most of the gain and of the worth of the ends."""
    solver, value = DecisionChain(chain), worth or {}
    return tuple(solver.best(gained if gains else None, lambda end: value.get(end, 0.0), most=m) for m in (False, True))


@settings(
    max_examples=sample_size(48, full=300),
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
@given(chains())
def test_least_and_most_are_those_of_all_ways_to_choose(drawn):
    chain, worth = drawn
    for gains in (False, True):
        expected = bounds(chain, worth, gains=gains)
        assert both(chain, worth, gains=gains) == pytest.approx(tuple(map(float, expected)), rel=1e-12, abs=0)


@pytest.mark.parametrize("rare", [1e-9, 1e-12, 1e-15, 1e-200])
def test_cycle_that_is_rarely_left_has_its_exact_value(rare):
    """Node 0 leads back to itself and rarely to the good end 1, or else at once to 1 or 2, each half of the time."""
    patient, hasty = [(1 - rare, 0, 0), (rare, 1, 0)], [(0.5, 1, 0), (0.5, 2, 0)]
    assert both(chain_with([[patient, hasty], [], []], {1, 2}), {1: 1}, gains=False) == (0.5, 1)
    assert both(chain_with([[hasty, patient], [], []], {1, 2}), {1: 1}, gains=False) == (0.5, 1)
    costly, cheap = [(1 - rare, 0, 1), (rare, 1, 1)], [(1.0, 1, 7)]
    assert both(chain_with([[costly, cheap], []], {1})) == (7, pytest.approx(1 / rare))


@pytest.mark.parametrize("rare", [1e-9, 1e-12])
def test_nested_cycles_multiply(rare):
    """Four nodes: each leads rarely to the next and otherwise back to the first; the last may also give up."""
    ring = [[[(1 - rare, 0, 0), (rare, node + 1, 1)]] for node in range(4)]
    ring[3].append([(1.0, 5, 0)])
    assert both(chain_with([*ring, [], []], {4, 5}), {4: 1}, gains=False) == (0, 1)
    least, most = both(chain_with([*ring, [], []], {4, 5}))
    assert least == pytest.approx(1 / rare**2, rel=1e-6)  # until the last node is met
    assert most == pytest.approx(1 / rare**3, rel=1e-6)


def test_run_that_may_stay_for_ever_need_not_end():
    """Nodes 0 and 1 lead to each other; 1 may also end well."""
    chain = chain_with([[[(1.0, 1, 0)]], [[(1.0, 0, 0)], [(1.0, 2, 5)]], []], {2})
    assert both(chain, {2: 1}, gains=False) == (0, 1)
    assert both(chain) == (0, 5)


def test_most_is_infinite_if_a_run_may_gain_for_ever():
    may = [[[(1.0, 0, 1)], [(1.0, 1, 3)]], []]
    assert both(chain_with(may, {1})) == (3, inf)
    must = [[[(1.0, 0, 1)], [(1.0, 0, 2)]], []]
    assert both(chain_with(must, {1})) == (inf, inf)


def test_least_is_infinite_if_no_choice_is_sure_to_end():
    """Half of the runs stay in node 1 and gain, whatever the choice in node 0."""
    choices = [[[(0.5, 1, 0), (0.5, 2, 0)], [(0.5, 1, 9), (0.5, 0, 0)]], [[(1.0, 1, 1)]], []]
    assert both(chain_with(choices, {2})) == (inf, inf)
    assert both(chain_with(choices, {2}), {2: 1}, gains=False) == (0, 0.5)
    quiet = [*choices[:1], [[(1.0, 1, 0)]], []]
    assert both(chain_with(quiet, {2})) == (0, 9)  # 9 half of the time, otherwise another round: 9 / 2 + 9 / 4 + ..


def test_choice_that_leads_to_an_endless_gain_is_left_out_of_the_least():
    choices = [[[(0.5, 1, 0), (0.5, 0, 0)], [(0.999, 0, 1), (0.001, 2, 0)]], [[(1.0, 1, 1)]], []]
    assert both(chain_with(choices, {2})) == (pytest.approx(999), inf)


#: Node 1 may stay and gain for ever, or lead to 0 half of the time and otherwise to node 2, which gains for ever too.
TRAP = [[[(1.0, 1, 1)], [(0.5, 0, 0), (0.5, 2, 0)]], [[(1.0, 2, 1)]], []]


def test_cycle_with_an_uncertain_exit_is_endless_even_for_the_least():
    assert both(chain_with([[[(0.5, 1, 0), (0.5, 3, 0)]], *TRAP], {3})) == (inf, inf)


def test_endless_gain_is_not_taken_for_cheap():
    assert both(chain_with([[[(1.0, 3, 5)], [(1.0, 1, 0)]], *TRAP], {3})) == (5, inf)


def test_large_cycle_is_solved():
    """A field of 900 cells: each step goes on in one of two directions, and now and then back to the first cell."""
    size, again = 30, 0.1
    choices = []
    for x in range(size):
        for y in range(size):
            ahead = [x * size + size + y if x + 1 < size else size**2, x * size + y + 1 if y + 1 < size else size**2]
            choices.append([[(1 - again, node, 1.0), (again, 0, 0.0)] for node in ahead])
    chain = chain_with([*choices, []], {size**2})
    starts = {steps: (1 - again) ** -steps for steps in (size, 2 * size - 1)}
    # The shortest path out takes 30 steps, the longest 59; a run starts again until it gets through.
    expected = [(count - 1) * (1 - again) / again for count in starts.values()]
    assert both(chain) == pytest.approx(expected, rel=1e-12)
    assert both(chain, {size**2: 1}, gains=False) == (1, 1)


def test_time_limit_is_kept():
    chain = chain_with([[[(0.5, 0, 0), (0.5, 1, 0)], [(1.0, 1, 0)]], []], {1}, is_expired=lambda: True)
    with pytest.raises(UndecidedError, match="the time limit was reached before the odds were worked out"):
        both(chain)
