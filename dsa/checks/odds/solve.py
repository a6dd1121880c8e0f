"""What a chain comes to: expected visits, least and most values, worst cases.

Takes a `Chain`, gives numbers for its nodes. Strongly connected components are taken one after the other: a chain that never
goes back is done in one pass, and only what goes round in circles needs a linear system.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

import attrs

from dsa.checks.components import components
from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.chain import Chain, Choice, Edge

#: Larger circles than this are solved by scipy where it is installed.
_PLAIN = 250
_SWEEPS, _WORK, _CLOSE = 100_000, 50_000_000, 1e-14
#: The clock is asked once for so many components.
_ASKED = 1024

Gain = Callable[[int, Edge], float]


@attrs.frozen
class Visits:
    """How often each node is met on average; `endless` has the nodes among which a run stays for ever, with which probability."""

    expected: tuple[float, ...]
    endless: frozenset[int]
    never_ends: float


def _following(chain: Chain, *, possible: bool) -> Callable[[int], list[int]]:
    def ahead(node: int) -> list[int]:
        return [target for choice in chain.choices[node] for chance, target, _ in choice if chance > 0 or possible]

    return ahead


def _is_circle(component: list[int], ahead: Callable[[int], list[int]]) -> bool:
    return len(component) > 1 or component[0] in ahead(component[0])


def visits(chain: Chain) -> Visits:
    """Give how often each node is met on average, for a chain in which nobody chooses."""
    assert not chain.is_chosen, "somebody chooses"
    expected = [0.0] * len(chain.numbers)
    expected[0] = 1.0
    endless: set[int] = set()
    lost = 0.0
    ahead = _following(chain, possible=False)
    for count, component in enumerate(reversed(list(components(range(len(chain.numbers)), ahead)))):
        if count % _ASKED == 0:
            chain.require_time()
        inside = set(component)
        if _is_circle(component, ahead):
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
    rows: list[dict[int, float]] = [{} for _ in component]
    leaving = [0.0] * len(component)
    for node in component:
        for chance, target, _ in chain.choices[node][0]:
            if target in place:
                row = rows[place[node]]
                row[place[target]] = row.get(place[target], 0.0) + chance
            else:
                leaving[place[node]] += chance
    inflow = [expected[node] for node in component]
    solved = _by_scipy(rows, inflow) if len(component) > _PLAIN else None
    for node, value in zip(component, solved or eliminated(rows, leaving, inflow), strict=True):
        expected[node] = value


def eliminated(rows: Sequence[dict[int, float]], leaving: Sequence[float], inflow: Sequence[float]) -> list[float]:
    """Give the visits x with x = inflow + x P, by eliminating nodes one by one, without a subtraction.

    `rows` are P; `leaving` is what each row lacks to 1 (Grassmann, Taksar, Heyman 1985: no digits are cancelled).
    """
    ahead = [dict(row) for row in rows]
    behind: list[set[int]] = [set() for _ in rows]
    for node, row in enumerate(ahead):
        for target in row:
            behind[target].add(node)
    out, flow, count = list(leaving), list(inflow), len(rows)
    away = [0.0] * count
    for node in reversed(range(count)):
        row = ahead[node]
        away[node] = out[node] + sum(chance for target, chance in row.items() if target < node)
        for source in behind[node]:
            if source >= node:
                continue
            share = ahead[source][node] / away[node]
            for target, chance in row.items():
                if target < node:
                    ahead[source][target] = ahead[source].get(target, 0.0) + share * chance
                    behind[target].add(source)
            out[source] += share * out[node]
        for target, chance in row.items():
            if target < node:
                flow[target] += flow[node] / away[node] * chance
    solved = [0.0] * count
    for node in range(count):
        came = sum(solved[source] * ahead[source][node] for source in behind[node] if source < node)
        solved[node] = (flow[node] + came) / away[node]
    return solved


def _by_scipy(rows: Sequence[dict[int, float]], inflow: Sequence[float]) -> list[float] | None:
    """Solve by sparse LU; None without scipy."""
    try:
        from scipy.sparse import csc_matrix, identity
        from scipy.sparse.linalg import splu
    except ImportError:
        return None
    entries = [(target, node, chance) for node, row in enumerate(rows) for target, chance in row.items()]
    targets, sources, chances = zip(*entries, strict=True)
    size = len(rows)
    system = identity(size, format="csc") - csc_matrix((chances, (targets, sources)), shape=(size, size))
    return [float(value) for value in splu(system.tocsc()).solve(_as_array(inflow))]


def _as_array(values: Sequence[float]) -> object:
    from numpy import array

    return array(values)


class UnsettledError(OddsError):
    """Raised when somebody chooses in a circle that is left too rarely for its odds to be worked out."""

    def __init__(self) -> None:
        super().__init__("somebody chooses, and a circle is left so rarely that the odds did not settle")


def best(chain: Chain, gain: Gain | None, ended: Callable[[int], float], *, most: bool) -> float:
    """Give the least or the most, over whoever chooses, of what is gained on average until the end.

    What is gained is never negative; infinite when it grows without end, and when circles did not settle. Without a gain it is the odds of
    an end: raises UnsettledError when circles did not settle.
    """
    pick: Callable[[Iterable[float]], float] = max if most else min
    values = [0.0] * len(chain.numbers)

    def worth(node: int) -> float:
        return pick(_mean(node, choice) for choice in chain.choices[node])

    def _mean(node: int, choice: Choice) -> float:
        taken = (edge for edge in choice if edge[0] > 0)
        return sum(edge[0] * ((gain(node, edge) if gain else 0.0) + values[edge[1]]) for edge in taken)

    ahead = _following(chain, possible=False)
    for count, component in enumerate(components(range(len(chain.numbers)), ahead)):
        if count % _ASKED == 0:
            chain.require_time()
        if not _is_circle(component, ahead):
            (node,) = component
            values[node] = ended(node) if node in chain.ends else worth(node)
        elif not _settled(component, values, worth, chain.require_time):
            if gain is None:
                raise UnsettledError
            for node in component:
                values[node] = inf
    return values[0]


def _settled(
    component: list[int], values: list[float], worth: Callable[[int], float], require_time: Callable[[], None]
) -> bool:
    """Go round until little can change any more, from 0 upwards: so the least solution is found. False when it goes on growing.

    What is left is estimated from how fast the changes shrink: small changes that do not shrink add up to anything.
    """
    before = 0.0
    for _ in range(min(_SWEEPS, max(1_000, _WORK // len(component)))):
        require_time()
        change = 0.0
        for node in component:
            new = worth(node)
            change = max(change, abs(new - values[node]) / (1 + abs(new)))
            values[node] = new
        if change == 0 or (change < before and change * change / (before - change) <= _CLOSE):
            return True
        before = change
    return False


def worst(chain: Chain, gains: Sequence[Gain]) -> list[float]:
    """Give for each gain the most that any run can come to, whatever the odds; infinite when nothing bounds it."""
    ahead = _following(chain, possible=True)
    parts = list(components(range(len(chain.numbers)), ahead))
    circles = [_is_circle(component, ahead) for component in parts]
    found = []
    for gain in gains:
        values = [0.0] * len(chain.numbers)
        for component, is_circle in zip(parts, circles, strict=True):
            inside = set(component)
            edges = [(n, edge) for n in component for choice in chain.choices[n] for edge in choice]
            round_again = is_circle and any(edge[1] in inside and gain(n, edge) > 0 for n, edge in edges)
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
