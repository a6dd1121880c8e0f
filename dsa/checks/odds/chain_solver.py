"""Odds and averages of a chain, as bounds over all ways to choose.

Takes a complete `Chain` in which nothing is missing. `Averages` gives an `OddsRange` for ends and gains. `is_possible` and `is_sure` decide odds of
exactly 0 and 1 by the graph alone, since sums of decimals are rounded. `worst` and `unlimited` hold whatever the odds are.

Strongly connected components are solved one after the other: a chain that never goes back takes one pass, and only a circle needs a linear system.
`Elimination` solves that without a subtraction, so no digits are lost however rarely a circle is left. Where there are choices, `DecisionChain` finds
the least and the most by policy iteration (Howard 1960), after the graph alone has shown what is endless: so a circle that is hardly ever left has a
value too (Baier, Katoen 2008, 10.6; Puterman 1994, 7.2 and 7.3).
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from heapq import heapify, heappop, heappush
from math import ceil, inf, log10, nextafter

import attrs

from dsa.checks.odds.markov_chain import Chain, Choice, Edge, End
from dsa.checks.search.state_graph import components


def number_text(number: float, digits: int) -> str:
    """Return a number with `digits` digits, and odds below 1 with as many as it takes not to write them as 1."""
    for more in range(digits, 18):
        text = f"{number:.{more}g}"
        if text != "1" or number == 1:
            return text
    return f"{number!r}"


def is_possible(chain: Chain, goals: frozenset[int]) -> bool:
    """Return whether a run may come to a goal, however small the odds are."""
    return 0 in _nodes_reaching(chain, goals, ())


def is_sure(chain: Chain, goals: frozenset[int]) -> bool:
    """Return whether a run comes to a goal with probability 1 under all choices."""
    sure_nodes = set(goals)  # where no choice avoids the goals for ever
    before = _predecessors(chain)
    todo = [*goals]
    while todo:
        for node in before.get(todo.pop(), ()):
            if node not in sure_nodes and _must_come(chain, node, sure_nodes):
                sure_nodes.add(node)
                todo.append(node)
    avoiding_nodes = frozenset(range(len(chain.choices))) - sure_nodes
    return 0 not in _nodes_reaching(chain, avoiding_nodes, goals)


def _must_come(chain: Chain, node: int, sure_nodes: Container[int]) -> bool:
    """Return whether each choice at a node may lead to one of these."""
    return all(
        any(chance > 0 and target in sure_nodes for chance, target, _ in choice) for choice in chain.choices[node]
    )


def _predecessors(chain: Chain) -> dict[int, list[int]]:
    """Return the nodes from which each may be next."""
    predecessors: dict[int, list[int]] = {}
    for node, edge in chain.edges():
        if edge[0] > 0:
            predecessors.setdefault(edge[1], []).append(node)
    return predecessors


def _nodes_reaching(chain: Chain, goals: Iterable[int], without: Iterable[int]) -> frozenset[int]:
    """Return the nodes from which a goal may be reached without passing through one of `without`."""
    before, barrier = _predecessors(chain), {*without}
    nodes = {*goals} - barrier
    todo = [*nodes]

    def more(node: int) -> Iterator[int]:
        return (one for one in before.get(node, ()) if one not in nodes and one not in barrier)

    while todo:
        for node in {*more(todo.pop())}:
            nodes.add(node)
            todo.append(node)
    return frozenset(nodes)


ZERO = Decimal(0)
#: Stands for all that is larger but not infinite.
LARGEST = nextafter(inf, 0)
#: The clock is checked once for this many nodes.
_NODES_PER_CHECK = 256

Rows = Sequence[Mapping[int, Decimal]]


def precise(digits: int) -> Context:
    """Return an arithmetic of `digits` digits in which products of rare chances do not vanish."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def as_float(value: Decimal) -> float:
    """Return the nearest float; a number that is too large for one is not infinite, and so the largest."""
    return min(float(value), LARGEST)


class Elimination:
    """A circle whose nodes are eliminated one by one (Grassmann, Taksar, Heyman 1985).

    `rows` are the odds from node to node, `exit_odds` those of leaving the circle: together 1 for each node. Every node must be
    able to leave some time. What a node lacks to 1 is never subtracted: it is added up from the other nodes that it leads to. Of the nodes left,
    the one that links the fewest others comes first (Markowitz 1957). Digits are those of the decimal context.
    """

    def __init__(self, rows: Rows, exit_odds: Sequence[Decimal], require_time: Callable[[], None]) -> None:
        self._ahead = [{target: p for target, p in row.items() if target != node} for node, row in enumerate(rows)]
        self._behind: list[set[int]] = [set() for _ in rows]
        for node, row in enumerate(self._ahead):
            for target in row:
                self._behind[target].add(node)
        self._exit_odds = list(exit_odds)
        #: A node, its odds of going elsewhere, where it goes, and the share of each node before it that comes through it.
        self._steps: list[tuple[int, Decimal, dict[int, Decimal], list[tuple[int, Decimal]]]] = []
        queue = [(self._links(node), -node) for node in range(len(rows))]
        heapify(queue)
        left = set(range(len(rows)))
        while left:
            links, node = heappop(queue)
            if -node not in left:
                continue
            if links < self._links(-node):  # it links more nodes by now
                heappush(queue, (self._links(-node), node))
                continue
            if len(left) % _NODES_PER_CHECK == 0:
                require_time()
            left.remove(-node)
            for other in self._eliminate(-node):
                heappush(queue, (self._links(other), -other))

    def _links(self, node: int) -> int:
        return len(self._behind[node]) * len(self._ahead[node])

    def _eliminate(self, node: int) -> set[int]:
        """Let the nodes before a node lead to those after it; return all of these."""
        row, before = self._ahead[node], self._behind[node]
        away = self._exit_odds[node] + sum(row.values(), ZERO)
        shares = []
        for source in before:
            ahead = self._ahead[source]
            share = ahead.pop(node) / away
            shares.append((source, share))
            self._exit_odds[source] += share * self._exit_odds[node]
            for target, chance in row.items():
                if target != source:
                    ahead[target] = ahead.get(target, ZERO) + share * chance
                    self._behind[target].add(source)
        for target in row:
            self._behind[target].discard(node)
        self._steps.append((node, away, row, shares))
        return before | row.keys()

    def visits(self, inflow: Sequence[Decimal]) -> list[Decimal]:
        """Return the x with x = inflow + x rows: how often each node is met."""
        flow = list(inflow)
        for node, away, row, _ in self._steps:
            for target, chance in row.items():
                flow[target] += flow[node] / away * chance
        totals = [ZERO] * len(flow)
        for node, away, _, shares in reversed(self._steps):
            totals[node] = flow[node] / away + sum((totals[source] * share for source, share in shares), ZERO)
        return totals

    def values(self, gains: Sequence[Decimal]) -> list[Decimal]:
        """Return the x with x = gains + rows x: the worth of each node, with what it gains at once and by leaving."""
        total = list(gains)
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
#: The clock is checked once for this many components.
_COMPONENTS_PER_CHECK = 1024

Gain = Callable[[int, Edge], float]


@attrs.frozen
class Visits:
    """How often each node is met on average; `endless` has the nodes among which a run stays for ever, with which probability."""

    averages: tuple[float, ...]
    endless: frozenset[int]
    never_ends: float


def following(chain: Chain, *, possible: bool) -> Callable[[int], list[int]]:
    """Return a function from a node to the nodes after it: those that have odds, or all that are possible."""

    def ahead(node: int) -> list[int]:
        return [target for choice in chain.choices[node] for chance, target, _ in choice if chance > 0 or possible]

    return ahead


def is_circle(component: list[int], ahead: Callable[[int], list[int]]) -> bool:
    """Return whether one can go round in a component: it has several nodes, or one that leads to itself."""
    return len(component) > 1 or component[0] in ahead(component[0])


def proportions(choice: Choice) -> list[tuple[Decimal, Edge]]:
    """Return the edges of a choice that have odds, these in decimals that add up to 1 but for the context's digits."""
    taken = [(Decimal(edge[0]), edge) for edge in choice if edge[0] > 0]
    total = sum((chance for chance, _ in taken), ZERO)
    return [(chance / total, edge) for chance, edge in taken]


def visits(chain: Chain) -> Visits:
    """Return how often each node is met on average, for a chain without choices."""
    assert not chain.is_chosen, "there are choices"
    averages = [0.0] * len(chain.numbers)
    averages[0] = 1.0
    endless: set[int] = set()
    lost_mass = 0.0
    ahead = following(chain, possible=False)
    for count, component in enumerate(reversed(list(components(range(len(chain.numbers)), ahead)))):
        if count % _COMPONENTS_PER_CHECK == 0:
            chain.require_time()
        inside = set(component)
        if is_circle(component, ahead):
            if all(target in inside for node in component for target in ahead(node)):
                mass = sum(averages[node] for node in component)
                lost_mass += mass
                endless |= inside if mass > 0 else set()
                continue
            _circle(chain, component, averages)
        for node in component:
            for choice in chain.choices[node]:
                for chance, target, _ in choice:
                    if target not in inside:
                        averages[target] += averages[node] * chance
    return Visits(tuple(averages), frozenset(endless), lost_mass)


def _circle(chain: Chain, component: list[int], averages: list[float]) -> None:
    """Turn what flows into a circle into visits of its nodes."""
    place = {node: index for index, node in enumerate(component)}
    with localcontext(precise(_DIGITS)):
        rows: list[dict[int, Decimal]] = [{} for _ in component]
        exit_odds = [ZERO] * len(component)
        for index, node in enumerate(component):
            for chance, (_, target, _) in proportions(chain.choices[node][0]):
                if target in place:
                    rows[index][place[target]] = rows[index].get(place[target], ZERO) + chance
                else:
                    exit_odds[index] += chance
        node_visits = Elimination(rows, exit_odds, chain.require_time).visits(
            [Decimal(averages[node]) for node in component]
        )
        for node, value in zip(component, node_visits, strict=True):
            averages[node] = as_float(value)


def worst(chain: Chain, gains: Sequence[Gain]) -> list[float]:
    """Return for each gain the most that any run can gain, whatever the odds; infinite when nothing bounds it."""
    ahead = following(chain, possible=True)
    parts = list(components(range(len(chain.numbers)), ahead))
    circles = [is_circle(component, ahead) for component in parts]
    worst_values = []
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
        worst_values.append(values[0])
    return worst_values


def unlimited_places(chain: Chain) -> frozenset[int]:
    """Return the commands by which a guard may fail again and again without end while none passes: retries without limit."""
    commands = chain.system.commands

    def verdicts_of(edge: Edge) -> set[str]:
        return {outcome for _, outcome in commands[edge[2]].occurrence.verdicts} if edge[2] >= 0 else set()

    failing_edges = [
        [edge for choice in choices for edge in choice if "passed" not in verdicts_of(edge)]
        for choices in chain.choices
    ]
    parts = list(components(range(len(failing_edges)), lambda node: [edge[1] for edge in failing_edges[node]]))
    part = {node: number for number, component in enumerate(parts) for node in component}
    return frozenset(
        edge[2]
        for node, edges in enumerate(failing_edges)
        for edge in edges
        if part[node] == part[edge[1]] and "failed" in verdicts_of(edge)
    )


#: Digits that distinguish values, and those that arithmetic may lose; a circle adds those of the odds of leaving it.
_VALUE_DIGITS, _SPARE_DIGITS = 25, 25
#: In a circle that is left less often than once in 10 to this power, however one chooses, choices may be taken for equal.
_RAREST = 300


class DecisionChain:
    """A chain with choices, for the least and the most over all ways to choose."""

    def __init__(self, chain: Chain) -> None:
        ahead = following(chain, possible=False)
        self._chain = chain
        self._parts = [(part, is_circle(part, ahead)) for part in components(range(len(chain.numbers)), ahead)]

    def best(self, gain: Gain | None, end_value: Callable[[int], float], *, most: bool) -> float:
        """Return the least or the most, over all ways to choose, of what a run is worth on average.

        A run is worth all that it gains on its way, and what its end is worth: with no gain, and 1 for some ends, that
        is the odds of these. A run that never ends is worth what it has gained, which stays the same when it goes round
        without a gain. Neither gains nor ends may be negative.

        The most is infinite when with some choices a run may, with odds above 0, go round for ever and gain again and again. The
        least is infinite when this is so whatever is chosen; that is, when no choices make sure that a run ends or goes on for
        ever without a gain. All else is finite. Raises UndecidedError when the time is over.
        """
        values = [0.0] * len(self._chain.numbers)
        for count, (part, goes_round) in enumerate(self._parts):
            if count % _COMPONENTS_PER_CHECK == 0:
                self._chain.require_time()
            if goes_round:
                for node, value in zip(part, self._circle(part, gain, values, most=most), strict=True):
                    values[node] = value
            elif part[0] in self._chain.ends:
                values[part[0]] = end_value(part[0])
            else:
                values[part[0]] = self._onward(part[0], gain, values, most=most)
        return values[0]

    def _onward(self, node: int, gain: Gain | None, values: Sequence[float], *, most: bool) -> float:
        pick: Callable[[Iterable[float]], float] = max if most else min
        return pick(
            sum(edge[0] * ((gain(node, edge) if gain else 0.0) + values[edge[1]]) for edge in choice if edge[0] > 0)
            for choice in self._chain.choices[node]
        )

    def _circle(self, part: list[int], gain: Gain | None, values: Sequence[float], *, most: bool) -> list[float]:
        place = {node: index for index, node in enumerate(part)}
        choices = [self._chain.choices[node] for node in part]
        digits = _VALUE_DIGITS + min(_RAREST, sum(map(_digits, choices)))
        with localcontext(precise(digits + _SPARE_DIGITS)):
            pairs = zip(part, choices, strict=True)
            options = [
                [_option(node, choice, place, gain, values) for choice in node_choices] for node, node_choices in pairs
            ]
            circle = _Circle(options, Decimal(10) ** -digits, self._chain.require_time)
            return circle.most() if most else circle.least()


def _digits(choices: Sequence[Choice]) -> int:
    """Return the digits that the smallest odds in a node's choices take."""
    return ceil(-log10(min(edge[0] for choice in choices for edge in choice if edge[0] > 0)))


@attrs.frozen(eq=False)
class _Option:
    """A choice, seen from its circle: `stays` has the odds of its nodes, `leaves` those of leaving it.

    `worth` is what it gains on average, at once and outside; without what it leads to outside that is infinite (`is_endless`).
    """

    stays: dict[int, Decimal]
    leaves: Decimal
    worth: Decimal
    is_endless: bool

    def value(self, values: Sequence[Decimal]) -> Decimal:
        """Return what the choice is worth when the nodes of its circle are worth `values`."""
        return self.worth + sum((chance * values[target] for target, chance in self.stays.items()), ZERO)


def _option(node: int, choice: Choice, place: dict[int, int], gain: Gain | None, values: Sequence[float]) -> _Option:
    stays: dict[int, Decimal] = {}
    leaves = worth = ZERO
    is_endless = False
    for chance, edge in proportions(choice):
        amount = Decimal(gain(node, edge)) if gain else ZERO
        if edge[1] in place:
            stays[place[edge[1]]] = stays.get(place[edge[1]], ZERO) + chance
        else:
            leaves += chance
            is_endless |= values[edge[1]] == inf
            amount += ZERO if values[edge[1]] == inf else Decimal(values[edge[1]])
        worth += chance * amount
    return _Option(stays, leaves, worth, is_endless)


class _Circle:
    """A strongly connected component, whose nodes are numbered from 0, each with its options."""

    def __init__(self, options: list[list[_Option]], close: Decimal, require_time: Callable[[], None]) -> None:
        self._options, self._close, self._require_time = options, close, require_time
        self._every = range(len(options))

    def most(self) -> list[float]:
        if any(option.is_endless for options in self._options for option in options) or self._gains_for_ever():
            return [inf] * len(self._every)  # from each node each other one can be reached
        sure = _towards(self._options, ())
        policy = {node: sure.get(node, options[0]) for node, options in enumerate(self._options)}
        return list(map(as_float, self._best_values(policy, self._options, most=True)))

    def least(self) -> list[float]:
        finite = [[option for option in options if not option.is_endless] for options in self._options]
        resting_nodes = _resting_nodes(finite)
        policy = _towards(finite, resting_nodes)
        finite_nodes = resting_nodes | policy.keys()
        within = [[o for o in options if finite_nodes.issuperset(o.stays)] for options in finite]
        values = self._best_values(policy, within, most=False)
        return [as_float(values[node]) if node in finite_nodes else inf for node in self._every]

    def _gains_for_ever(self) -> bool:
        """Return whether one can choose so that the circle is never left and something gained again and again.

        One can stay for ever in end components: what is left when choices that may leave a component are removed, until none does.
        """
        remaining = [[option for option in options if not option.leaves] for options in self._options]
        while True:
            parts = components(self._every, lambda node: {t for option in remaining[node] for t in option.stays})  # noqa: B023
            part = {node: number for number, nodes in enumerate(parts) for node in nodes}
            staying_options = [
                [option for option in options if all(part[target] == part[node] for target in option.stays)]
                for node, options in enumerate(remaining)
            ]
            if staying_options == remaining:
                return any(option.worth for options in remaining for option in options)
            remaining = staying_options

    def _best_values(
        self, policy: dict[int, _Option], options: Sequence[Sequence[_Option]], *, most: bool
    ) -> list[Decimal]:
        """Return the values of the best policy, found by choosing better and better; a node without a policy is worth 0.

        Only what is better is changed: so no policy comes twice, and none is ever turned into one that goes round for ever while it gains, or
        (for the least) while it could end.
        """

        def is_better(new: Decimal, old: Decimal) -> bool:
            return (new - old if most else old - new) > self._close * max(new, old)

        before: list[Decimal] = []
        while True:
            values = self._policy_values(policy)
            assert not any(map(is_better, before, values)), "a better choice has made something worse"
            is_changed = False
            for node in policy:
                best = values[node]
                for option in options[node]:
                    value = option.value(values)
                    if is_better(value, best):
                        policy[node], best, is_changed = option, value, True
            if not is_changed:
                return values
            before = values

    def _policy_values(self, policy: dict[int, _Option]) -> list[Decimal]:
        """Return what each node is worth under a policy."""
        values = [ZERO] * len(self._every)

        def ahead(node: int) -> Iterable[int]:
            return policy[node].stays if node in policy else ()

        for part in components(self._every, ahead):
            if len(part) == 1 and part[0] not in ahead(part[0]):
                values[part[0]] = policy[part[0]].value(values) if part[0] in policy else ZERO
                continue
            place = {node: index for index, node in enumerate(part)}
            rows, exit_odds, gains = [], [], []
            for node in part:
                option = policy[node]
                onward = {target: chance for target, chance in option.stays.items() if target not in place}
                rows.append({place[t]: chance for t, chance in option.stays.items() if t in place})
                exit_odds.append(option.leaves + sum(onward.values(), ZERO))
                gains.append(option.worth + sum((p * values[target] for target, p in onward.items()), ZERO))
            if any(exit_odds):  # else a run goes round for ever, without a gain
                solution = Elimination(rows, exit_odds, self._require_time).values(gains)
                for node, value in zip(part, solution, strict=True):
                    values[node] = value
        return values


def _resting_nodes(options: Sequence[Sequence[_Option]]) -> set[int]:
    """Return the nodes where one can choose so that nothing is ever gained: each has a choice worth 0 that stays among them."""
    inside = set(range(len(options)))
    before = _predecessor_options(options)
    removals = [node for node in inside if not _keeps(options[node], inside)]
    inside.difference_update(removals)
    while removals:
        for node, _ in before[removals.pop()]:
            if node in inside and not _keeps(options[node], inside):
                inside.remove(node)
                removals.append(node)
    return inside


def _keeps(options: Sequence[_Option], inside: Collection[int]) -> bool:
    return any(not option.worth and all(target in inside for target in option.stays) for option in options)


def _towards(options: Sequence[Sequence[_Option]], goal: Collection[int]) -> dict[int, _Option]:
    """Return for each node outside the goal from which one can be sure to meet it or to leave the circle, a choice that leads there.

    Following these choices, a run does so some time: each leads with odds above 0 to a node that is nearer, and surely to no other node
    than these.
    """
    inside = set(range(len(options)))
    before = _predecessor_options(options)
    while True:
        way: dict[int, _Option] = {}
        near = list(goal)
        for node in sorted(inside.difference(goal)):
            for option in options[node]:
                if option.leaves and inside.issuperset(option.stays):
                    way[node] = option
                    near.append(node)
                    break
        while near:
            for node, option in before[near.pop()]:
                if node in inside and node not in way and node not in goal and inside.issuperset(option.stays):
                    way[node] = option
                    near.append(node)
        nodes = way.keys() | goal
        if nodes == inside:
            return way
        inside = nodes


def _predecessor_options(options: Sequence[Sequence[_Option]]) -> list[list[tuple[int, _Option]]]:
    """Return for each node the choices that may lead to it, with the nodes that have them."""
    before: list[list[tuple[int, _Option]]] = [[] for _ in options]
    for node, each in enumerate(options):
        for option in each:
            for target in option.stays:
                before[target].append((node, option))
    return before


_ROUNDING = 1e-12


@attrs.frozen
class OddsRange:
    """The least and the most over all choices where no odds say what comes; the same when there are no choices."""

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Return whether there is only one value, apart from rounding."""
        return self.low == self.high or self.high - self.low <= _ROUNDING * max(1.0, self.low)


class Averages:
    """What is gained on average, in a chain with or without choices."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._solution: Visits | DecisionChain = DecisionChain(chain) if chain.is_chosen else visits(chain)

    def of(self, gain: Callable[[int, Edge], float]) -> OddsRange:
        """Return how much is gained; infinite when a run may, with odds above 0, gain again and again without end."""
        if isinstance(self._solution, DecisionChain):
            return OddsRange(*(self._solution.best(gain, lambda _: 0.0, most=most) for most in (False, True)))
        total = 0.0
        for node, edge in self._chain.edges():
            if edge[0] > 0 and (worth := gain(node, edge)) > 0:
                if node in self._solution.endless:
                    return OddsRange(inf, inf)
                total = min(total + self._solution.averages[node] * edge[0] * worth, LARGEST)
        return OddsRange(total, total)

    def at_least(self, is_wanted: Callable[[End], bool]) -> float:
        """Return the least odds of ending in a wanted way."""
        if isinstance(self._solution, DecisionChain):
            return self._solution.best(None, lambda node: float(is_wanted(self._chain.ends[node])), most=False)
        return sum(self._solution.averages[node] for node, end in self._chain.ends.items() if is_wanted(end))

    def ending(self, is_wanted: Callable[[End], bool]) -> OddsRange:
        """Return the odds of ending in a wanted way."""
        least = self.at_least(is_wanted)
        if not isinstance(self._solution, DecisionChain):
            return OddsRange(least, least)
        return OddsRange(
            least, self._solution.best(None, lambda node: float(is_wanted(self._chain.ends[node])), most=True)
        )

    @property
    def never_ends(self) -> OddsRange:
        """Return the odds of going round for ever."""
        if isinstance(self._solution, Visits):
            return OddsRange(self._solution.never_ends, self._solution.never_ends)
        end_odds, steps = self.ending(lambda _: True), self.of(lambda _node, _edge: 1.0)
        # Where a run is sure to end, its steps are finite on average: so rounding is not taken for odds of going on.
        least = 1 - end_odds.high if steps.low == inf else 0.0
        most = 1 - end_odds.low if steps.high == inf else 0.0
        return OddsRange(max(0.0, least), max(0.0, most))
