"""Linear systems of circles, solved without a subtraction: so no digits are lost, however rarely a circle is left.

Takes the odds inside a circle and those of leaving it, gives how often its nodes are met or what they are worth. Knows no chain.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from heapq import heapify, heappop, heappush
from math import inf, nextafter

ZERO = Decimal(0)
#: What stands for all that is larger: it is not infinite.
LARGEST = nextafter(inf, 0)
#: The clock is asked once for so many nodes.
_ASKED = 256

Rows = Sequence[Mapping[int, Decimal]]


def precise(digits: int) -> Context:
    """Give an arithmetic of so many digits in which products of rare chances do not vanish."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def as_float(value: Decimal) -> float:
    """Give the nearest float; a number that is too large for one is not infinite, and so the largest."""
    return min(float(value), LARGEST)


class Elimination:
    """A circle whose nodes are eliminated one by one (Grassmann, Taksar, Heyman 1985).

    `rows` are the odds from node to node, `leaving` those of leaving the circle: together 1 for each node. Every node must be
    able to leave some time. What a node lacks to 1 is never taken, it is added up from where else it leads. Of the nodes left,
    the one that links the fewest others comes first (Markowitz 1957). Digits are those of the decimal context.
    """

    def __init__(self, rows: Rows, leaving: Sequence[Decimal], require_time: Callable[[], None]) -> None:
        self._ahead = [{target: p for target, p in row.items() if target != node} for node, row in enumerate(rows)]
        self._behind: list[set[int]] = [set() for _ in rows]
        for node, row in enumerate(self._ahead):
            for target in row:
                self._behind[target].add(node)
        self._leaving = list(leaving)
        #: A node, its odds of going elsewhere, where it goes, and the share of each node before it that comes through it.
        self._steps: list[tuple[int, Decimal, dict[int, Decimal], list[tuple[int, Decimal]]]] = []
        queue = [(self._links(node), -node) for node in range(len(rows))]
        heapify(queue)
        left = set(range(len(rows)))
        while left:
            links, node = heappop(queue)
            if -node not in left:
                continue
            if links < self._links(-node):  # it has come to link more since
                heappush(queue, (self._links(-node), node))
                continue
            if len(left) % _ASKED == 0:
                require_time()
            left.remove(-node)
            for other in self._eliminate(-node):
                heappush(queue, (self._links(other), -other))

    def _links(self, node: int) -> int:
        return len(self._behind[node]) * len(self._ahead[node])

    def _eliminate(self, node: int) -> set[int]:
        """Let the nodes before a node lead to those after it; give all of these."""
        row, before = self._ahead[node], self._behind[node]
        away = self._leaving[node] + sum(row.values(), ZERO)
        shares = []
        for source in before:
            ahead = self._ahead[source]
            share = ahead.pop(node) / away
            shares.append((source, share))
            self._leaving[source] += share * self._leaving[node]
            for target, chance in row.items():
                if target != source:
                    ahead[target] = ahead.get(target, ZERO) + share * chance
                    self._behind[target].add(source)
        for target in row:
            self._behind[target].discard(node)
        self._steps.append((node, away, row, shares))
        return before | row.keys()

    def visits(self, inflow: Sequence[Decimal]) -> list[Decimal]:
        """Give the x with x = inflow + x rows: how often each node is met."""
        flow = list(inflow)
        for node, away, row, _ in self._steps:
            for target, chance in row.items():
                flow[target] += flow[node] / away * chance
        met = [ZERO] * len(flow)
        for node, away, _, shares in reversed(self._steps):
            met[node] = flow[node] / away + sum((met[source] * share for source, share in shares), ZERO)
        return met

    def values(self, earned: Sequence[Decimal]) -> list[Decimal]:
        """Give the x with x = earned + rows x: what each node comes to, with what it earns at once and by leaving."""
        total = list(earned)
        for node, _, _, shares in self._steps:
            for source, share in shares:
                total[source] += share * total[node]
        worth = [ZERO] * len(total)
        for node, away, row, _ in reversed(self._steps):
            worth[node] = (total[node] + sum((chance * worth[target] for target, chance in row.items()), ZERO)) / away
        return worth
