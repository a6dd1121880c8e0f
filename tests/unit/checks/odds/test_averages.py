"""Bounds over free choices: the odds that a run never ends, and when two bounds are one number."""

from math import inf

import pytest
from odds_chains import chain_with, gained

from dsa.checks.odds.chain_solver import LARGEST, Averages, OddsRange


def test_rounding_does_not_make_a_run_that_surely_ends_go_on():
    """The sum of ten floats 0.1 is not 1, so neither is the sum of the odds of the ends."""
    tenths = [(0.1, 1 + n % 2, 0) for n in range(10)]
    assert Averages(chain_with([[tenths, [(1.0, 1, 0)]], [], []], {1, 2})).never_ends == OddsRange(0, 0)


def test_odds_of_never_ending_cover_all_ways_to_choose():
    may = [[[(0.25, 1, 0), (0.75, 2, 0)], [(1.0, 2, 0)]], [[(1.0, 1, 0)], [(0.5, 1, 0), (0.5, 2, 0)]], []]
    assert Averages(chain_with(may, {2})).never_ends == OddsRange(0, 0.25)
    must = [[[(0.25, 1, 0), (0.75, 2, 0)], [(1.0, 1, 0)]], [[(1.0, 1, 0)]], []]
    assert Averages(chain_with(must, {2})).never_ends == OddsRange(0.25, 1)
    alone = [[[(0.25, 1, 0), (0.75, 2, 0)]], [[(1.0, 1, 0)]], []]
    assert Averages(chain_with(alone, {2})).never_ends == OddsRange(0.25, 0.25)


def test_average_too_large_for_a_float_is_not_infinite():
    rare = 1e-300
    chain = chain_with([[[(1 - rare, 0, 1e20), (rare, 1, 0)]], []], {1})
    assert Averages(chain).of(gained) == OddsRange(LARGEST, LARGEST)


@pytest.mark.parametrize(
    ("low", "high", "is_exact"),
    [(0.5, 0.5 + 1e-13, True), (1e9, 1e9 + 1e-4, True), (0, 1e-9, False), (1, inf, False), (inf, inf, True)],
)
def test_rounding_alone_does_not_make_two_numbers(low, high, is_exact):
    assert OddsRange(low, high).is_exact is is_exact
