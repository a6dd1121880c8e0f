"""What a chain comes to where nobody chooses: expected visits; and whatever the odds: worst cases, retries without limit.

Takes a `Chain`, gives numbers for its nodes. Strongly connected components are taken one after the other: a chain that never
goes back is done in one pass, and only what goes round in circles needs a linear system. That is solved without a subtraction: so no
digits are lost, however rarely a circle is left.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from heapq import heapify, heappop, heappush
from math import inf, nextafter

import attrs

from dsa.checks.components import components
from dsa.checks.odds.chain import Chain, Choice, Edge

ZERO = Decimal(0)
#: What stands for all that is larger: it is not infinite.
LARGEST = nextafter(inf, 0)
#: The clock is asked once for so many nodes.
_ASKED_ELIMINATING = 256

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
            if len(left) % _ASKED_ELIMINATING == 0:
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


# -- chains -----------------------------------------------------------------------------------------------------------


#: Digits that visits in circles are worked out with: as none are lost, more than a float has are enough.
_DIGITS = 25
#: The clock is asked once for so many components.
_ASKED = 1024

Gain = Callable[[int, Edge], float]


@attrs.frozen
class Visits:
    """How often each node is met on average; `endless` has the nodes among which a run stays for ever, with which probability."""

    expected: tuple[float, ...]
    endless: frozenset[int]
    never_ends: float


def following(chain: Chain, *, possible: bool) -> Callable[[int], list[int]]:
    """Give what gives the nodes after one: those that have odds, or all that are possible."""

    def ahead(node: int) -> list[int]:
        return [target for choice in chain.choices[node] for chance, target, _ in choice if chance > 0 or possible]

    return ahead


def is_circle(component: list[int], ahead: Callable[[int], list[int]]) -> bool:
    """Tell whether one can go round in a component: it has several nodes, or one that leads to itself."""
    return len(component) > 1 or component[0] in ahead(component[0])


def proportions(choice: Choice) -> list[tuple[Decimal, Edge]]:
    """Give the edges of a choice that have odds, these in decimals that add up to 1 but for the context's digits."""
    taken = [(Decimal(edge[0]), edge) for edge in choice if edge[0] > 0]
    total = sum((chance for chance, _ in taken), ZERO)
    return [(chance / total, edge) for chance, edge in taken]


def visits(chain: Chain) -> Visits:
    """Give how often each node is met on average, for a chain in which nobody chooses."""
    assert not chain.is_chosen, "somebody chooses"
    expected = [0.0] * len(chain.numbers)
    expected[0] = 1.0
    endless: set[int] = set()
    lost = 0.0
    ahead = following(chain, possible=False)
    for count, component in enumerate(reversed(list(components(range(len(chain.numbers)), ahead)))):
        if count % _ASKED == 0:
            chain.require_time()
        inside = set(component)
        if is_circle(component, ahead):
            if all(target in inside for node in component for target in ahead(node)):
                mass = sum(expected[node] for node in component)
                lost += mass
                endless |= inside if mass > 0 else set()
                continue
            _circle(chain, component, expected)
        for node in component:
            for choice in chain.choices[node]:
                for chance, target, _ in choice:
                    if target not in inside:
                        expected[target] += expected[node] * chance
    return Visits(tuple(expected), frozenset(endless), lost)


def _circle(chain: Chain, component: list[int], expected: list[float]) -> None:
    """Turn what flows into a circle into visits of its nodes."""
    place = {node: index for index, node in enumerate(component)}
    with localcontext(precise(_DIGITS)):
        rows: list[dict[int, Decimal]] = [{} for _ in component]
        leaving = [ZERO] * len(component)
        for index, node in enumerate(component):
            for chance, (_, target, _) in proportions(chain.choices[node][0]):
                if target in place:
                    rows[index][place[target]] = rows[index].get(place[target], ZERO) + chance
                else:
                    leaving[index] += chance
        met = Elimination(rows, leaving, chain.require_time).visits([Decimal(expected[node]) for node in component])
        for node, value in zip(component, met, strict=True):
            expected[node] = as_float(value)


def worst(chain: Chain, gains: Sequence[Gain]) -> list[float]:
    """Give for each gain the most that any run can come to, whatever the odds; infinite when nothing bounds it."""
    ahead = following(chain, possible=True)
    parts = list(components(range(len(chain.numbers)), ahead))
    circles = [is_circle(component, ahead) for component in parts]
    found = []
    for gain in gains:
        values = [0.0] * len(chain.numbers)
        for component, goes_round in zip(parts, circles, strict=True):
            inside = set(component)
            edges = [(n, edge) for n in component for choice in chain.choices[n] for edge in choice]
            round_again = goes_round and any(edge[1] in inside and gain(n, edge) > 0 for n, edge in edges)
            onward = (gain(n, edge) + values[edge[1]] for n, edge in edges if edge[1] not in inside)
            most = inf if round_again else max(onward, default=0.0)
            for node in component:
                values[node] = most
        found.append(values[0])
    return found


def unlimited(chain: Chain) -> frozenset[int]:
    """Give the commands by which a guard may fail again and again without end while none passes: retries without limit."""
    commands = chain.system.commands

    def said(edge: Edge) -> set[str]:
        return {outcome for _, outcome in commands[edge[2]].occurrence.verdicts} if edge[2] >= 0 else set()

    kept = [[edge for choice in choices for edge in choice if "passed" not in said(edge)] for choices in chain.choices]
    parts = list(components(range(len(kept)), lambda node: [edge[1] for edge in kept[node]]))
    part = {node: number for number, component in enumerate(parts) for node in component}
    return frozenset(
        edge[2]
        for node, edges in enumerate(kept)
        for edge in edges
        if part[node] == part[edge[1]] and "failed" in said(edge)
    )
