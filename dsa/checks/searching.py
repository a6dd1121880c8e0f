"""Searches of a system at its machine's parameter values, and what is read off them.

Takes a system and what to look out for, gives a `Searched`: where each thing is met first, shortest ways, the graph. What is found are
numbers of a `Ground`; the graph has positions, the start's 0, nearest first.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import attrs

from dsa.checks.engines.choose import automatic
from dsa.checks.engines.edges import Graph, graph
from dsa.checks.engines.found import Engine, Found, Limits
from dsa.checks.engines.paths import Ways, ways
from dsa.checks.observers import Observed, Sight
from dsa.expr import Expr, evaluate
from dsa.ground import Ground, ground
from dsa.simplify import any_of
from dsa.system import Command, System
from dsa.trace import Trace, follow


@attrs.frozen
class Hit:
    """Where something was met first: after the steps of `way`, the last of which is the moment itself.

    `number` is the configuration at which it is seen: after the way, or, for what happens with a command, before its last step.
    """

    number: int
    way: tuple[Command, ...]


@attrs.frozen(slots=False)
class Searched:
    """A search that is over. `hits` has one for each group of sights that was met."""

    ground: Ground
    found: Found
    hits: tuple[Hit | None, ...] = ()

    @property
    def system(self) -> System:
        """The system searched."""
        return self.ground.system

    @property
    def complete(self) -> bool:
        """Tell whether everything was laid out and searched."""
        return self.found.complete and not self.system.left_out

    @cached_property
    def is_listed(self) -> bool:
        """Tell whether the search is complete and has a graph."""
        try:
            return self.complete and bool(self.graph)
        except ValueError:
            return False

    def moves(self, number: int) -> Iterator[tuple[Command, int]]:
        """Give the commands taken at a configuration and the configuration each leads to; slow."""
        for rule, after in self.ground.successors(number):
            yield self.system.commands[rule.command], after

    def has(self, number: int) -> bool:
        """Tell whether a configuration was found."""
        try:
            self._ways.depth(number)
        except KeyError:
            return False
        return True

    def way_to(self, number: int) -> tuple[Command, ...]:
        """Give the commands of a shortest way from the start to a configuration that was found."""
        return _way(self.ground, self._ways, number)

    def trace(self, way: Iterable[Command]) -> Trace:
        """Give the steps of a way as a trace of the machine."""
        return follow(self.system.machine, [command.occurrence for command in way])

    @cached_property
    def _ways(self) -> Ways:
        return ways(self.ground, self.found)

    @cached_property
    def graph(self) -> Graph:
        """Everything found and every step between; ValueError when the search is not complete, or found too much to list."""
        return graph(self.ground, attrs.evolve(self.found, layers=self._ways.layers))

    def position(self, number: int) -> int:
        """Give the position of a configuration in the graph; slow."""
        return next(place for place, other in enumerate(self.graph.numbers) if other == number)

    def place(self, position: int) -> int:
        """Give the location of a position of the graph."""
        return int(self.graph.numbers[position]) // self.ground.volume

    def steps_at(self, position: int) -> Iterator[tuple[int, int]]:
        """Give the steps of the graph out of a position, each with where it leads."""
        for step in range(self.graph.offsets[position], self.graph.offsets[position + 1]):
            yield step, int(self.graph.targets[step])

    def index_at(self, step: int) -> int:
        """Give the index of the command that a step of the graph takes."""
        return self.ground.rules[self.graph.rules[step]].command

    def moves_at(self, position: int) -> Iterator[tuple[Command, int]]:
        """Give the commands taken at a position of the graph and the position each leads to."""
        for step, target in self.steps_at(position):
            yield self.system.commands[self.index_at(step)], target


def search(seen: Observed, limits: Limits, engine: Engine | None = None, *, hurries: bool = False) -> Searched:
    """Search an observed system for its sights; `hurries` is for `ground`."""
    return search_ground(ground(seen.system, hurries=hurries, expired=limits.expired), [seen.sights], limits, engine)


def search_all(
    system: System, groups: Sequence[Sequence[Sight]], limits: Limits, engine: Engine | None = None
) -> Searched:
    """Search a system once for several groups of sights: of each, the one that is met first."""
    return search_ground(ground(system, expired=limits.expired), groups, limits, engine)


def search_ground(
    grounded: Ground, groups: Sequence[Sequence[Sight]], limits: Limits, engine: Engine | None = None
) -> Searched:
    """Search what can happen in numbers, which may be less than the system allows."""
    wanted = grounded.watches(conditions(groups))
    found = (engine or automatic())(grounded, [watch for watch in wanted if watch is not None], limits)
    hits = iter(found.hits)
    return searched(grounded, found, groups, [None if watch is None else next(hits) for watch in wanted])


def conditions(groups: Sequence[Sequence[Sight]]) -> list[tuple[int, Expr]]:
    """Give what to look out for: one condition for each group and location."""
    return [(place, any_of(sight.condition for sight in here)) for _, place, here in _places(groups)]


def searched(
    grounded: Ground, found: Found, groups: Sequence[Sequence[Sight]], numbers: Sequence[int | None]
) -> Searched:
    """Give what a search found for groups of sights; `numbers` has where each of their `conditions` was met."""
    nearest: list[Hit | None] = [None] * len(groups)
    if any(number is not None for number in numbers):
        to = ways(grounded, found)
        for (owner, _, here), number in zip(_places(groups), numbers, strict=True):
            best = nearest[owner]
            if number is not None:
                hit = _hit(grounded, to, here, number)
                if best is None or len(hit.way) < len(best.way):
                    nearest[owner] = hit
    return Searched(grounded, found, tuple(nearest))


def _places(groups: Sequence[Sequence[Sight]]) -> Iterator[tuple[int, int, list[Sight]]]:
    """Give the sights of each group by location."""
    for owner, sights in enumerate(groups):
        by_place: dict[int, list[Sight]] = {}
        for sight in sights:
            by_place.setdefault(sight.location, []).append(sight)
        yield from ((owner, place, here) for place, here in by_place.items())


def _hit(grounded: Ground, to: Ways, sights: Sequence[Sight], number: int) -> Hit:
    values, place, way = grounded.values(number), number // grounded.volume, _way(grounded, to, number)
    for sight in sights:
        if sight.location == place and evaluate(grounded.grounded(sight.condition), values) is True:
            return Hit(number, (*way, sight.command) if sight.command else way)
    raise AssertionError("some sight of the group is true where its watch is")


def _way(grounded: Ground, to: Ways, number: int) -> tuple[Command, ...]:
    """Give the commands of a shortest way from the start to a configuration that was found."""
    rules = (grounded.rules[leap.rule] for leap in to.to(number))
    return tuple(grounded.system.commands[rule.command] for rule in rules)
