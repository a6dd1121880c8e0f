"""Ways to what any engine found, also those that kept no layers.

Takes a `Ground` and what was found there, gives something that finds shortest ways: in the layers, by decision diagrams, or after
searching again.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import Protocol

import attrs

from dsa.checks.engines.choose import automatic, loaded
from dsa.checks.engines.found import Found, Limits
from dsa.checks.engines.layers import Layer
from dsa.checks.engines.paths import Leap, Paths
from dsa.ground import Ground, Watch


class Ways(Protocol):
    """What finds ways; see `Paths`."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The configurations by distance; ValueError when they are too many to be listed."""
        ...

    def to(self, number: int) -> list[Leap]:
        """Give the steps of a shortest way to a configuration; KeyError when it was not found."""
        ...

    def taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        """Give a nearest configuration at which one of some rules is taken, and the rule."""
        ...

    def depth(self, number: int) -> int:
        """Give the distance of a configuration; KeyError when it was not found."""
        ...


def ways(ground: Ground, found: Found) -> Ways:
    """Give what finds ways to what was found."""
    if found.layers is not None:
        return Paths(ground, found)
    if found.engine == "bdd":
        return _Diagrams(ground, found)
    return Paths(ground, automatic()(ground, (), Limits(found.configurations)))


@attrs.frozen
class _Diagrams:
    """Ways by decision diagrams: each is a search of its own."""

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
