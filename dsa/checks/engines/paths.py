"""Shortest ways to what was found, from a second pass: a search keeps no predecessors, its layers are enough to find them.

Takes a `Ground` and what a search found there. A way of k steps is found by looking through one layer for each step, from the last
one back: in all at most as long as the search took. Of a search that kept no layers, ways are found by decision diagrams, or after
searching again.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from itertools import pairwise

import attrs

from dsa.checks.engines.choose import automatic, loaded
from dsa.checks.engines.found import Found, Limits
from dsa.checks.engines.layers import Data, Layer, split
from dsa.checks.engines.sources import Writer, first_where, leads_where
from dsa.ground import Ground, Rule, Watch


@attrs.frozen
class Leap:
    """A step of a way: the rule (an index into the ground's) and the number of the configuration it leads to."""

    rule: int
    number: int


@attrs.frozen(slots=False)
class Paths:
    """The ways to what a search found. Raises ValueError when the search kept no layers."""

    ground: Ground
    found: Found

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The configurations by distance and location."""
        if self.found.layers is None:
            raise ValueError(f"the engine {self.found.engine} kept no layers, so there are no ways to follow")
        return tuple(split(layer, self.ground.volume) for layer in self.found.layers)

    @cached_property
    def _parts(self) -> tuple[dict[int, Data], ...]:
        return tuple(dict(layer.parts) for layer in self.layers)

    def depth(self, number: int) -> int:
        """Give the distance of a configuration from the start; KeyError when it was not found."""
        location, data = divmod(number, self.ground.volume)
        for depth, parts in enumerate(self._parts):
            if location in parts and data in parts[location]:
                return depth
        raise KeyError(number)

    def to(self, number: int) -> list[Leap]:
        """Give the steps of a shortest way from the start to a configuration; KeyError when it was not found."""
        leaps: list[Leap] = []
        for depth in reversed(range(self.depth(number))):
            rule, before = self._before(depth, number)
            leaps.append(Leap(rule, number))
            number = before
        return leaps[::-1]

    def taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        """Give a configuration nearest to the start at which one of some rules is taken, and the rule; None when there is none."""
        wanted = [(place, self.ground.rules[place]) for place in sorted(rules)]
        for parts in self._parts:
            for place, rule in wanted:
                if rule.source in parts:
                    data = self._enabled(rule, parts[rule.source])
                    if data is not None:
                        return rule.source * self.ground.volume + data, place
        return None

    def _before(self, depth: int, number: int) -> tuple[int, int]:
        """Give a rule and a configuration of the layer at `depth` that it leads from to `number`."""
        location, after = divmod(number, self.ground.volume)
        for place, rule in self._into.get(location, ()):
            data = self._parts[depth].get(rule.source)
            found = None if data is None else self._leading(place, rule, data, after)
            if found is not None:
                return place, rule.source * self.ground.volume + found
        raise AssertionError("every configuration has one before it in the layer before its own")

    @cached_property
    def _into(self) -> dict[int, list[tuple[int, Rule]]]:
        """The rules into each location; of several that do the same, the first."""
        found: dict[int, list[tuple[int, Rule]]] = {}
        known: set[tuple[object, ...]] = set()
        for place, rule in enumerate(self.ground.rules):
            key = (rule.source, rule.target, rule.condition, rule.updates)
            if key not in known:
                known.add(key)
                found.setdefault(rule.target, []).append((place, rule))
        return found

    def _enabled(self, rule: Rule, data: Data) -> int | None:
        found = first_where(self._writer(data), rule.condition)(data)
        return None if found is None else int(found)

    def _leading(self, place: int, rule: Rule, data: Data, after: int) -> int | None:
        writer = self._writer(data)
        if (place, writer.arrays) not in self._leads:
            self._leads[place, writer.arrays] = leads_where(writer, rule)
        return self._leads[place, writer.arrays](data, after)

    def _writer(self, data: Data) -> Writer:
        return Writer(self.ground, arrays=hasattr(data, "dtype"))

    @cached_property
    def _leads(self) -> dict[tuple[int, bool], Callable[[Data, int], int | None]]:
        return {}


@attrs.frozen
class _Diagrams:
    """The ways to what decision diagrams found, as `Paths` gives them: each is a search of its own."""

    ground: Ground
    found: Found

    @property
    def layers(self) -> tuple[Layer, ...]:
        return Paths(self.ground, self.found).layers

    def to(self, number: int) -> list[Leap]:
        try:
            way = loaded("bdd").path(self.ground, number, self._limits)
        except ValueError:
            raise KeyError(number) from None
        assert way is not None, "no limit is set"
        places = {id(rule): place for place, rule in enumerate(self.ground.rules)}
        return [
            Leap(next(places[id(rule)] for rule, number in self.ground.successors(before) if number == after), after)
            for before, after in pairwise(way)
        ]

    def taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        wanted = [(place, self.ground.rules[place]) for place in sorted(rules)]
        watches = [Watch(rule.source, rule.condition) for _, rule in wanted]
        hits = loaded("bdd").search(self.ground, watches, self._limits).hits
        found = [(hit, place) for hit, (place, _) in zip(hits, wanted, strict=True) if hit is not None]
        return min(found, key=lambda hit: self.depth(hit[0]), default=None)

    def depth(self, number: int) -> int:
        return len(self.to(number))

    @property
    def _limits(self) -> Limits:
        return Limits(self.found.configurations)


Ways = Paths | _Diagrams


def ways(ground: Ground, found: Found) -> Ways:
    """Give what finds ways to what was found."""
    if found.layers is not None:
        return Paths(ground, found)
    if found.engine == "bdd":
        return _Diagrams(ground, found)
    return Paths(ground, automatic()(ground, (), Limits(found.configurations)))
