"""Exact bounds on a probability from counts (Clopper and Pearson 1934), without a package.

Takes how often something was seen in how many independent tries, gives bounds that hold with at least the confidence asked for.
"""

from collections.abc import Callable
from math import erfc, exp, lgamma, log, log1p, sqrt

_HALVINGS = 60


def at_least(seen: int, tries: int, risk: float) -> float:
    """Give the largest lower bound that is above the truth with a probability of at most `risk`."""
    if seen == 0:
        return 0.0
    return _halved(lambda p: _more(seen, tries, p) < risk)


def at_most(seen: int, tries: int, risk: float) -> float:
    """Give the smallest upper bound that is below the truth with a probability of at most `risk`."""
    return 1.0 - at_least(tries - seen, tries, risk)


def _halved(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def _more(seen: int, tries: int, p: float) -> float:
    """Give the probability of `seen` or more in `tries`: the regularised incomplete beta function I_p(seen, tries - seen + 1)."""
    return incomplete_beta(seen, tries - seen + 1, p)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Give I_x(a, b) by its continued fraction (Lentz; Press et al., Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    tiny, close = 1e-300, 1e-15
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d or tiny)
    value = d
    for m in range(1, 100_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + step * d) or tiny)
            c = (1.0 + step / c) or tiny
            value *= c * d
        if abs(c * d - 1.0) < close:
            break
    return value


def two_sided(deviation: float) -> float:
    """Give the probability that a standard normal number is at least this far from 0."""
    return erfc(abs(deviation) / sqrt(2))
