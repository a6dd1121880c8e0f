"""Bounds over whoever chooses: how likely a run never ends, and when two bounds are one number."""

from math import inf

import pytest
from odds_chains import chain_with, gained

from dsa.checks.odds.chain_solver import LARGEST, Averages, OddsRange


def test_what_is_left_for_sure_is_not_said_to_go_on_by_rounding():
    """Ten tenths do not add up to 1, and so neither do the odds of the ends."""
    tenths = [(0.1, 1 + n % 2, 0) for n in range(10)]
    assert Averages(chain_with([[tenths, [(1.0, 1, 0)]], [], []], {1, 2})).never_ends == OddsRange(0, 0)


def test_how_likely_a_run_never_ends_is_over_all_ways_to_choose():
    may = [[[(0.25, 1, 0), (0.75, 2, 0)], [(1.0, 2, 0)]], [[(1.0, 1, 0)], [(0.5, 1, 0), (0.5, 2, 0)]], []]
    assert Averages(chain_with(may, {2})).never_ends == OddsRange(0, 0.25)
    must = [[[(0.25, 1, 0), (0.75, 2, 0)], [(1.0, 1, 0)]], [[(1.0, 1, 0)]], []]
    assert Averages(chain_with(must, {2})).never_ends == OddsRange(0.25, 1)
    alone = [[[(0.25, 1, 0), (0.75, 2, 0)]], [[(1.0, 1, 0)]], []]
    assert Averages(chain_with(alone, {2})).never_ends == OddsRange(0.25, 0.25)


def test_what_is_too_much_for_a_float_is_not_infinite():
    rare = 1e-300
    chain = chain_with([[[(1 - rare, 0, 1e20), (rare, 1, 0)]], []], {1})
    assert Averages(chain).of(gained) == OddsRange(LARGEST, LARGEST)


@pytest.mark.parametrize(
    ("low", "high", "is_exact"),
    [(0.5, 0.5 + 1e-13, True), (1e9, 1e9 + 1e-4, True), (0, 1e-9, False), (1, inf, False), (inf, inf, True)],
)
def test_rounding_alone_does_not_make_two_numbers(low, high, is_exact):
    assert OddsRange(low, high).is_exact is is_exact
