import itertools
from math import comb

import pytest
from benchmarks.tasks.intervals import holm, mcnemar, paired_difference, wilson
from each_row import each_row


@each_row(("hits", "trials"), [(0, 1), (1, 1), (0, 50), (50, 50), (25, 50), (9, 10), (1, 400), (83, 263)])
def test_wilson_agrees_with_scipy(hits, trials):
    from scipy.stats import binomtest

    theirs = binomtest(hits, trials).proportion_ci(method="wilson")
    assert wilson(hits, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_25_in_50_extends_some_14_points_to_each_side():
    assert wilson(25, 50) == pytest.approx((0.3664, 0.6336), abs=1e-4)


def test_wilson_stays_within_0_and_1_and_is_0_to_1_without_trials():
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "trials"), [(-1, 3), (4, 3)])
def test_wilson_refuses_invalid_counts(hits, trials):
    with pytest.raises(ValueError, match="not a valid count"):
        wilson(hits, trials)


@each_row("counts", list(itertools.product((0, 1, 2, 5, 13, 40), repeat=2)))
def test_mcnemar_is_a_binomial_test_of_the_pairs_that_differ(counts):
    from scipy.stats import binomtest

    expected = binomtest(counts[0], sum(counts)).pvalue if sum(counts) else 1.0
    assert mcnemar(*counts) == pytest.approx(expected, abs=1e-12)


def test_mcnemar_agrees_with_a_textbook():
    assert mcnemar(6, 0) == 2 / 2**6
    assert mcnemar(4, 8) == pytest.approx(2 * sum(comb(12, k) for k in range(5)) / 2**12)
    with pytest.raises(ValueError, match="not a valid count"):
        mcnemar(-1, 2)


def test_holm_agrees_with_a_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_is_never_milder_than_the_false_discovery_rate():
    from scipy.stats import false_discovery_control

    values = [0.001, 0.2, 0.03, 0.04, 0.5, 0.011]
    assert all(
        ours >= theirs - 1e-12 for ours, theirs in zip(holm(values), false_discovery_control(values), strict=True)
    )


@pytest.mark.parametrize("rates", [(0.1, 0.1, 0.8), (0.3, 0.1, 0.6), (0.05, 0.3, 0.65), (0.4, 0.4, 0.2)])
def test_difference_lies_in_its_interval_about_95_times_in_100(rates):
    from scipy.stats import multinomial

    pairs, truth, covered = 30, rates[0] - rates[1], 0.0
    for first, second in itertools.product(range(pairs + 1), repeat=2):
        if first + second <= pairs:
            low, high = paired_difference(first, second, pairs)
            odds = multinomial.pmf((first, second, pairs - first - second), pairs, rates)
            covered += odds * (low <= truth <= high)
    assert 0.94 <= covered <= 0.985


def test_difference_changes_sign_when_the_arms_are_swapped():
    low, high = paired_difference(9, 2, 40)
    assert paired_difference(2, 9, 40) == pytest.approx((-high, -low))
    assert low < 7 / 40 < high
    assert paired_difference(0, 0, 0) == (-1.0, 1.0)
    with pytest.raises(ValueError, match="not valid counts"):
        paired_difference(3, 3, 5)
