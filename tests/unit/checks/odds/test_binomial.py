"""Exact binomial bounds, compared with scipy and with their promised confidence."""

from math import comb

import pytest

from dsa.checks.odds.estimation import at_least, at_most, incomplete_beta, two_sided


@pytest.mark.parametrize("risk", [0.2, 0.05, 0.01, 1e-6])
@pytest.mark.parametrize(("seen", "tries"), [(0, 1), (1, 1), (35, 50), (1, 7), (999, 1000), (3, 100_000)])
def test_bounds_are_those_of_clopper_and_pearson(seen, tries, risk):
    beta = pytest.importorskip("scipy.stats").beta
    low = 0.0 if seen == 0 else beta.ppf(risk, seen, tries - seen + 1)
    high = 1.0 if seen == tries else beta.ppf(1 - risk, seen + 1, tries - seen)
    assert at_least(seen, tries, risk) == pytest.approx(low, abs=1e-12)
    assert at_most(seen, tries, risk) == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize("truth", [0.03, 0.3, 0.7, 0.85])
def test_bound_is_above_the_truth_as_rarely_as_promised(truth):
    tries, risk = 23, 0.05
    above = [k for k in range(tries + 1) if at_least(k, tries, risk) > truth]
    assert sum(comb(tries, k) * truth**k * (1 - truth) ** (tries - k) for k in above) <= risk
    assert above, "a bound that is never above the truth is useless"


def test_special_functions_match_known_values():
    assert incomplete_beta(2, 3, 0.4) == pytest.approx(sum(comb(4, k) * 0.4**k * 0.6 ** (4 - k) for k in (2, 3, 4)))
    assert two_sided(1.959963984540054) == pytest.approx(0.05)
