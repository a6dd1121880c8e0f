"""The odds of ends and average counts of a chain, as bounds over whoever chooses in it.

Takes a complete `Chain` in which nothing is missing; gives `Bounds`.
"""

from collections.abc import Callable
from math import inf

import attrs

from dsa.checks.odds.chain import Chain, Edge, End
from dsa.checks.odds.choose import Chosen
from dsa.checks.odds.solve import LARGEST, Visits, visits

_ROUNDING = 1e-12


@attrs.frozen
class Bounds:
    """The least and the most over whoever chooses where no odds say what comes; the same when nobody does."""

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Tell whether there is but one value, but for rounding."""
        return self.low == self.high or self.high - self.low <= _ROUNDING * max(1.0, self.low)


class Averages:
    """What is gained on average, in a chain with or without somebody who chooses."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._solved: Visits | Chosen = Chosen(chain) if chain.is_chosen else visits(chain)

    def of(self, gain: Callable[[int, Edge], float]) -> Bounds:
        """Give how much is gained; infinite when a run may, with odds above 0, gain again and again without end."""
        if isinstance(self._solved, Chosen):
            return Bounds(*(self._solved.best(gain, lambda _: 0.0, most=most) for most in (False, True)))
        total = 0.0
        for node, edge in self._chain.edges():
            if edge[0] > 0 and (worth := gain(node, edge)) > 0:
                if node in self._solved.endless:
                    return Bounds(inf, inf)
                total = min(total + self._solved.expected[node] * edge[0] * worth, LARGEST)
        return Bounds(total, total)

    def at_least(self, wanted: Callable[[End], bool]) -> float:
        """Give the least odds of ending in a wanted way."""
        if isinstance(self._solved, Chosen):
            return self._solved.best(None, lambda node: float(wanted(self._chain.ends[node])), most=False)
        return sum(self._solved.expected[node] for node, end in self._chain.ends.items() if wanted(end))

    def ending(self, wanted: Callable[[End], bool]) -> Bounds:
        """Give the odds of ending in a wanted way."""
        least = self.at_least(wanted)
        if not isinstance(self._solved, Chosen):
            return Bounds(least, least)
        return Bounds(least, self._solved.best(None, lambda node: float(wanted(self._chain.ends[node])), most=True))

    @property
    def never_ends(self) -> Bounds:
        """Give the odds of going round for ever."""
        if isinstance(self._solved, Visits):
            return Bounds(self._solved.never_ends, self._solved.never_ends)
        ended, steps = self.ending(lambda _: True), self.of(lambda _node, _edge: 1.0)
        # Where a run is sure to end, its steps are finite on average: so rounding is not taken for odds of going on.
        least = 1 - ended.high if steps.low == inf else 0.0
        most = 1 - ended.low if steps.high == inf else 0.0
        return Bounds(max(0.0, least), max(0.0, most))
