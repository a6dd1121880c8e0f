"""What counts say about rates: Wilson's interval for one, McNemar's exact test for two arms over the same samples.

Takes counts, gives numbers. Sources: E. B. Wilson 1927 (the score interval, without correction for continuity); Q. McNemar 1947, in its
exact form, a two-sided binomial test of the samples in which the arms differ; S. Holm 1979 for several tests at once.
"""

from collections.abc import Sequence
from math import comb, sqrt

#: The 97.5 % quantile of the normal distribution.
Z_95 = 1.959963984540054


def wilson(hits: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Return the interval of rates that `hits` of `trials` go with, 95 % by default; (0, 1) without trials. ValueError for no counts."""
    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} of {trials} is not a valid count")
    if trials == 0:
        return 0.0, 1.0
    rate, shrink = hits / trials, 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / shrink
    half = z / shrink * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    low = 0.0 if hits == 0 else middle - half  # exactly, where rounding would say -1e-17
    high = 1.0 if hits == trials else middle + half
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of the numbers of samples that only one arm solved, and only the other; 1 when they never differ."""
    if only_first < 0 or only_second < 0:
        raise ValueError(f"{min(only_first, only_second)} is not a valid count")
    differing, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(differing, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**differing)


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values for there being several of them; in the order given."""
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted


def paired_difference(only_first: int, only_second: int, pairs: int, z: float = Z_95) -> tuple[float, float]:
    """Return the interval, 95 % by default, of how much higher the first arm's rate is, over samples that both arms had; (-1, 1) without any.

    A. Agresti and Y. Min 2005: half a sample is added to each of the four cells. ValueError for counts that `pairs` cannot have.
    """
    if only_first < 0 or only_second < 0 or only_first + only_second > pairs:
        raise ValueError(f"{only_first} and {only_second} of {pairs} are not valid counts")
    if pairs == 0:
        return -1.0, 1.0
    first, second, total = only_first + 0.5, only_second + 0.5, pairs + 2
    middle = (first - second) / total
    half = z * sqrt(first + second - (first - second) ** 2 / total) / total
    return max(-1.0, middle - half), min(1.0, middle + half)
