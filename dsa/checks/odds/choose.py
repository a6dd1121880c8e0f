"""The least and the most that somebody who chooses can make of a chain.

Takes a `Chain`, what is gained on the way and what ends are worth; gives what a run comes to on average. Circles are solved by policy
iteration (Howard 1960) on linear systems, after the graph alone has told what is endless: so a circle that is hardly ever left has
its value too (Baier, Katoen 2008, 10.6; Puterman 1994, 7.2 and 7.3).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal, localcontext
from math import ceil, inf, log10

import attrs

from dsa.checks.components import components
from dsa.checks.odds.chain import Chain, Choice
from dsa.checks.odds.solve import ZERO, Elimination, Gain, as_float, following, is_circle, precise, proportions

#: The clock is asked once for so many components.
_ASKED = 1024
#: Digits that a value is told apart by, and those that arithmetic may lose; a circle adds those of the odds of leaving it.
_TOLD, _LOST = 25, 25
#: In a circle that is left less often than once in 10 to this power, however one chooses, choices may be taken for equal.
_RAREST = 300


class Chosen:
    """A chain in which somebody chooses, ready to be asked."""

    def __init__(self, chain: Chain) -> None:
        ahead = following(chain, possible=False)
        self._chain = chain
        self._parts = [(part, is_circle(part, ahead)) for part in components(range(len(chain.numbers)), ahead)]

    def best(self, gain: Gain | None, ended: Callable[[int], float], *, most: bool) -> float:
        """Give the least or the most, over all ways to choose, of what a run comes to on average.

        A run comes to all that it gains on its way, and to what its end is worth where it ends: with no gain, and 1 for some ends,
        that is the odds of these. A run that never ends comes to what it has gained: nothing more when it goes round without a
        gain. Neither gains nor ends may be negative.

        The most is infinite when with some choices a run may, with odds above 0, go round for ever and gain again and again. The
        least is infinite when this is so whatever is chosen; that is, when no choices make sure that a run ends or goes on for
        ever without a gain. All else is finite. Raises TooLargeError when the time is over.
        """
        values = [0.0] * len(self._chain.numbers)
        for count, (part, goes_round) in enumerate(self._parts):
            if count % _ASKED == 0:
                self._chain.require_time()
            if goes_round:
                for node, value in zip(part, self._circle(part, gain, values, most=most), strict=True):
                    values[node] = value
            elif part[0] in self._chain.ends:
                values[part[0]] = ended(part[0])
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
        needed = _TOLD + min(_RAREST, sum(map(_digits, choices)))
        with localcontext(precise(needed + _LOST)):
            pairs = zip(part, choices, strict=True)
            options = [[_option(node, choice, place, gain, values) for choice in given] for node, given in pairs]
            circle = _Circle(options, Decimal(10) ** -needed, self._chain.require_time)
            return circle.most() if most else circle.least()


def _digits(choices: Sequence[Choice]) -> int:
    """Give the digits that the rarest of what a node's choices lead to takes."""
    return ceil(-log10(min(edge[0] for choice in choices for edge in choice if edge[0] > 0)))


@attrs.frozen(eq=False)
class _Option:
    """A choice, seen from its circle: `stays` has the odds of its nodes, `leaves` those of leaving it.

    `worth` is what comes of it on average, at once and outside; without what it leads to outside that is infinite (`is_endless`).
    """

    stays: dict[int, Decimal]
    leaves: Decimal
    worth: Decimal
    is_endless: bool

    def value(self, values: Sequence[Decimal]) -> Decimal:
        """Give what the choice comes to when its circle's nodes come to `values`."""
        return self.worth + sum((chance * values[target] for target, chance in self.stays.items()), ZERO)


def _option(node: int, choice: Choice, place: dict[int, int], gain: Gain | None, values: Sequence[float]) -> _Option:
    stays: dict[int, Decimal] = {}
    leaves = worth = ZERO
    is_endless = False
    for chance, edge in proportions(choice):
        gained = Decimal(gain(node, edge)) if gain else ZERO
        if edge[1] in place:
            stays[place[edge[1]]] = stays.get(place[edge[1]], ZERO) + chance
        else:
            leaves += chance
            is_endless |= values[edge[1]] == inf
            gained += ZERO if values[edge[1]] == inf else Decimal(values[edge[1]])
        worth += chance * gained
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
        return list(map(as_float, self._improved(policy, self._options, most=True)))

    def least(self) -> list[float]:
        finite = [[option for option in options if not option.is_endless] for options in self._options]
        resting = _resting(finite)
        policy = _towards(finite, resting)
        known = resting | policy.keys()
        within = [[o for o in options if known.issuperset(o.stays)] for options in finite]
        found = self._improved(policy, within, most=False)
        return [as_float(found[node]) if node in known else inf for node in self._every]

    def _gains_for_ever(self) -> bool:
        """Tell whether one can choose so that the circle is never left and something gained again and again.

        What one can keep to for ever are end components: what is left when choices that may leave a component are taken away,
        until none does.
        """
        kept = [[option for option in options if not option.leaves] for options in self._options]
        while True:
            parts = components(self._every, lambda node: {t for option in kept[node] for t in option.stays})  # noqa: B023
            part = {node: number for number, nodes in enumerate(parts) for node in nodes}
            staying = [
                [option for option in options if all(part[target] == part[node] for target in option.stays)]
                for node, options in enumerate(kept)
            ]
            if staying == kept:
                return any(option.worth for options in kept for option in options)
            kept = staying

    def _improved(
        self, policy: dict[int, _Option], options: Sequence[Sequence[_Option]], *, most: bool
    ) -> list[Decimal]:
        """Give the values of the best policy, found by choosing better and better; a node without a policy is worth 0.

        Only what is better is changed: so no policy comes twice, and none is ever turned into one that goes round for ever while it gains, or
        (for the least) while it could end.
        """

        def is_better(new: Decimal, old: Decimal) -> bool:
            return (new - old if most else old - new) > self._close * max(new, old)

        before: list[Decimal] = []
        while True:
            values = self._valued(policy)
            assert not any(map(is_better, before, values)), "a better choice has made something worse"
            changed = False
            for node in policy:
                best = values[node]
                for option in options[node]:
                    value = option.value(values)
                    if is_better(value, best):
                        policy[node], best, changed = option, value, True
            if not changed:
                return values
            before = values

    def _valued(self, policy: dict[int, _Option]) -> list[Decimal]:
        """Give what each node comes to under a policy."""
        values = [ZERO] * len(self._every)

        def ahead(node: int) -> Iterable[int]:
            return policy[node].stays if node in policy else ()

        for part in components(self._every, ahead):
            if len(part) == 1 and part[0] not in ahead(part[0]):
                values[part[0]] = policy[part[0]].value(values) if part[0] in policy else ZERO
                continue
            place = {node: index for index, node in enumerate(part)}
            rows, leaving, earned = [], [], []
            for node in part:
                option = policy[node]
                onward = {target: chance for target, chance in option.stays.items() if target not in place}
                rows.append({place[t]: chance for t, chance in option.stays.items() if t in place})
                leaving.append(option.leaves + sum(onward.values(), ZERO))
                earned.append(option.worth + sum((p * values[target] for target, p in onward.items()), ZERO))
            if any(leaving):  # else a run goes round for ever, without a gain
                solved = Elimination(rows, leaving, self._require_time).values(earned)
                for node, value in zip(part, solved, strict=True):
                    values[node] = value
        return values


def _resting(options: Sequence[Sequence[_Option]]) -> set[int]:
    """Give the nodes where one can choose so that nothing ever comes of it: each has a choice worth 0 that stays among them."""
    inside = set(range(len(options)))
    before = _before(options)
    lost = [node for node in inside if not _keeps(options[node], inside)]
    inside.difference_update(lost)
    while lost:
        for node, _ in before[lost.pop()]:
            if node in inside and not _keeps(options[node], inside):
                inside.remove(node)
                lost.append(node)
    return inside


def _keeps(options: Sequence[_Option], inside: Collection[int]) -> bool:
    return any(not option.worth and all(target in inside for target in option.stays) for option in options)


def _towards(options: Sequence[Sequence[_Option]], goal: Collection[int]) -> dict[int, _Option]:
    """Give for each node outside the goal from which one can be sure to meet it or to leave the circle, a choice that leads there.

    Following these choices, a run does so some time: each leads with odds above 0 to a node that is nearer, and surely to no other node
    than these.
    """
    inside = set(range(len(options)))
    before = _before(options)
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
        found = way.keys() | goal
        if found == inside:
            return way
        inside = found


def _before(options: Sequence[Sequence[_Option]]) -> list[list[tuple[int, _Option]]]:
    """Give for each node the choices that may lead to it, with the nodes that have them."""
    before: list[list[tuple[int, _Option]]] = [[] for _ in options]
    for node, each in enumerate(options):
        for option in each:
            for target in option.stays:
                before[target].append((node, option))
    return before
