"""Ranks: for each location, parts that are compared lexicographically and that every step that counts makes smaller.

Takes the commands that count, gives a `Rank`, or None. Locations are put in order by what can follow what; inside a loop
some number (`rmax - retries`, `n - done`) or truth value must never grow and sometimes fall, and what remains when the
commands that make it fall are gone is ranked again (Colon and Sipma; Alias et al.). What no number ranks may be ended by a promise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import attrs

from dsa.checks.components import components
from dsa.checks.evidence import Fair
from dsa.checks.proof.induction import Needs, before
from dsa.declarations import Variable
from dsa.expr import Arithmetic, BooleanDomain, EnumDomain, Expr, Integer, Name, RangeDomain, Symbol
from dsa.simplify import all_of, compared, negated, simplified
from dsa.system import Promise, System

Change = Literal["less", "same or less", "more"]
Awaited = Promise | Fair
_ZERO = Integer(0)
#: Sums of two numbers are tried when there are at most so many.
_MOST_SUMMED = 8


@attrs.frozen
class Counting:
    """The commands that count, each with the conditions under which it does; and where a rank counts, the condition for it."""

    system: System
    commands: Mapping[int, Sequence[Expr]]
    places: frozenset[int]
    condition: Expr


@attrs.frozen
class Rank:
    """A rank for each location, as many parts everywhere; where it only holds its own, what is awaited there."""

    parts: tuple[tuple[Expr, ...], ...]
    awaited: tuple[Awaited | None, ...]


@attrs.frozen
class _Part:
    """The ranks of some locations."""

    ranks: Mapping[int, tuple[Expr, ...]]
    awaited: Mapping[int, Awaited] = attrs.field(factory=dict)


def measures(variables: Iterable[Variable]) -> Iterator[Expr]:
    """Give what may fall in a loop: a number's distance from its bounds, sums of two of these, truth values, values of enumerations."""
    numbers: list[Expr] = []
    others: list[Expr] = []
    for variable in variables:
        here = Name(variable.name, "variable")
        match variable.domain:
            case RangeDomain(low, high):
                if high is not None:
                    numbers.append(simplified(Arithmetic("-", high, here)))
                numbers.append(simplified(Arithmetic("-", here, low)))
            case BooleanDomain():
                others += [here, negated(here)]
            case EnumDomain(values):
                for value in values:
                    others += [compared(here, sign, Symbol(value)) for sign in ("==", "!=")]
    yield from numbers
    yield from others
    if len(numbers) <= _MOST_SUMMED:
        yield from (Arithmetic("+", one, other) for one, other in combinations(numbers, 2))


class Ranking:
    """A search for a rank."""

    def __init__(
        self,
        needs: Needs,
        counting: Counting,
        variables: Iterable[Variable],
        awaitable: Callable[[frozenset[int], Sequence[int]], Awaited | None] = lambda _places, _commands: None,
    ) -> None:
        self._needs, self._counting, self._system = needs, counting, counting.system
        self._numbers = {v.name for v in variables if isinstance(v.domain, RangeDomain)}
        self._measures = tuple(measures(variables))
        self._awaitable = awaitable
        self._changes: dict[tuple[int, Expr], Change] = {}

    def rank(self) -> Rank | None:
        """Give a rank, or None."""
        places = frozenset(range(len(self._system.locations)))
        found = self._ordered(places, tuple(self._counting.commands))
        if found is None:
            return None
        width = max((len(parts) for parts in found.ranks.values()), default=0)
        padded = tuple((*found.ranks[place], *[_ZERO] * (width - len(found.ranks[place]))) for place in sorted(places))
        return Rank(_without_idle_columns(padded), tuple(found.awaited.get(place) for place in sorted(places)))

    def _ordered(self, places: frozenset[int], commands: Sequence[int]) -> _Part | None:
        """Rank locations: first by what can follow what, then inside each loop."""
        ends = {index: (self._system.commands[index].source, self._system.commands[index].target) for index in commands}
        following: dict[int, list[int]] = {place: [] for place in places}
        for source, target in ends.values():
            following[source].append(target)
        ranks: dict[int, tuple[Expr, ...]] = {}
        awaited: dict[int, Awaited] = {}
        height: dict[int, int] = {}
        for part in map(frozenset, components(sorted(places), following.__getitem__)):  # what can follow comes first
            below = [height[t] for place in part for t in following[place] if t not in part]
            level = max(below, default=-1) + 1
            height |= dict.fromkeys(part, level)
            inner = [index for index, (source, target) in ends.items() if source in part and target in part]
            inside = self._loop(part, inner) if inner else _Part(dict.fromkeys(part, ()))
            if inside is None:
                return None
            ranks |= {place: (Integer(level), *inside.ranks[place]) for place in part}
            awaited |= inside.awaited
        return _Part(ranks, awaited)

    def _loop(self, part: frozenset[int], inner: Sequence[int]) -> _Part | None:
        """Rank the locations of a loop by something that falls in it; else let a promise end it."""
        for measure in self._measures:
            changes = {index: self._change(index, measure) for index in inner}
            if "more" in changes.values() or "less" not in changes.values() or not self._is_bounded(part, measure):
                continue
            rest = [index for index, change in changes.items() if change != "less"]
            inside = self._ordered(part, rest)
            if inside is not None:
                return _Part({place: (measure, *inside.ranks[place]) for place in part}, inside.awaited)
        awaited = self._awaitable(part, inner)
        return None if awaited is None else _Part(dict.fromkeys(part, ()), dict.fromkeys(part, awaited))

    def _is_bounded(self, part: frozenset[int], measure: Expr) -> bool:
        if not self._is_number(measure):
            return True
        negative = [self._counting.condition, compared(measure, "<", _ZERO)]
        return all(self._needs.impossible(place, negative) for place in part & self._counting.places)

    def _is_number(self, measure: Expr) -> bool:
        return isinstance(measure, Arithmetic) or (isinstance(measure, Name) and measure.name in self._numbers)

    def _change(self, index: int, measure: Expr) -> Change:
        key = index, measure
        if key not in self._changes:
            self._changes[key] = self._changed(index, measure)
        return self._changes[key]

    def _changed(self, index: int, measure: Expr) -> Change:
        later = before(self._system.commands[index], measure)
        if later == measure:
            return "same or less"
        if self._is_number(measure):
            not_less, more = compared(later, ">=", measure), compared(later, ">", measure)
        else:
            not_less, more = negated(all_of([measure, negated(later)])), all_of([later, negated(measure)])
        source, known = self._system.commands[index].source, self._counting.commands[index]
        if self._needs.impossible(source, [*known, not_less]):
            return "less"
        return "same or less" if self._needs.impossible(source, [*known, more]) else "more"


def _without_idle_columns(parts: tuple[tuple[Expr, ...], ...]) -> tuple[tuple[Expr, ...], ...]:
    """Leave out the parts that are the same number everywhere."""
    kept = [column for column in zip(*parts, strict=True) if len(set(column)) > 1 or not isinstance(column[0], Integer)]
    return tuple(zip(*kept, strict=True)) if kept else tuple(() for _ in parts)
