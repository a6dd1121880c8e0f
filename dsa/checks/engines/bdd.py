"""Search with sets of configurations as binary decision diagrams: for very many configurations of many variables that hardly depend on each other.

Needs the package `dd`; uses its CUDD when that is there. Sets are kept by location, and rules are taken one after the other on all
that is new (chaining), so it does not go by distance; when something looked out for is found, a second search does. Counts are exact.
Its bad case are counters that run far: time grows with the number of steps from the start, and diagrams may grow without bound,
which the memory bound ends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dsa.checks.engines.bdd_bits import Circuits, Node
from dsa.checks.engines.bdd_rules import Counter, relations
from dsa.checks.engines.found import Found, Limits
from dsa.ground import Ground, Watch

#: All that CUDD's diagrams may take, in bytes; without CUDD, how many nodes there may be, some 300 bytes each.
MEMORY_BYTES, MAX_NODES = 2 * 2**30, 5_000_000
#: From so many numbers on, single configurations do not fit; up to so wide, a field is no deep counter.
_HUGE, _WIDEST, _FEWEST_FIELDS = 2**35, 64, 8


def worth_it(ground: Ground) -> bool:
    """Tell whether to try this engine first: the domain is huge, and it is so by many small fields."""
    sizes = [field.size for field in ground.fields if field.size > 1]
    return ground.domain_size > _HUGE and len(sizes) >= _FEWEST_FIELDS and max(sizes) <= _WIDEST


def search(ground: Ground, watches: Sequence[Watch], limits: Limits) -> Found:
    """Search everything that can happen. Raises ImportError without `dd`."""
    return _Search(ground, limits).run(watches)


def path(ground: Ground, goal: int, limits: Limits) -> list[int] | None:
    """Give the configurations of a shortest way from the start to a configuration, both included; None when a limit was met.

    Raises ValueError when there is no way.
    """
    return _Search(ground, limits).path(goal)


class _StoppedError(Exception):
    """A limit was met."""


class _Search:
    def __init__(self, ground: Ground, limits: Limits) -> None:
        self._ground, self._limits = ground, limits
        self._circuits = Circuits(ground, _manager())
        self._relations = relations(self._circuits, ground)
        self._reached = self._nothing()
        self._count = Counter(self._circuits).count

    def run(self, watches: Sequence[Watch]) -> Found:
        hits: tuple[int | None, ...] = (None,) * len(watches)
        complete = True
        try:
            with _within_memory():
                self._saturate()
                hits = self._nearest(watches)
        except _StoppedError:
            complete = False
        return self._found(hits, complete=complete)

    def _saturate(self) -> None:
        """Take all rules until nothing is new."""
        fresh, rounds = self._start(), 0
        self._reached = list(fresh)
        while self._any(fresh):
            for source in range(len(fresh)):
                before, fresh[source] = fresh[source], self._circuits.false
                if before != self._circuits.false:
                    self._leave(source, before, fresh)
            rounds += 1
            count = sum(map(self._count, self._reached))
            self._limits.progress(count, rounds)
            if count > self._limits.max_states:
                raise _StoppedError

    def _leave(self, source: int, before: Node, fresh: list[Node]) -> None:
        for relation in self._relations[source]:
            self._ask()
            target = relation.rule.target
            new = relation.image(before) & ~self._reached[target]
            if new != self._circuits.false:
                self._reached[target] |= new
                fresh[target] |= new
                if target == source:
                    before |= new

    def _ask(self) -> None:
        if self._limits.expired() or _crowded(self._circuits.manager):
            raise _StoppedError

    def _layers(self) -> Iterator[list[Node]]:
        """Give the sets of configurations at each distance from the start, by location."""
        layer, known = self._start(), self._nothing()
        while self._any(layer):
            yield layer
            known = [old | new for old, new in zip(known, layer, strict=True)]
            following = self._nothing()
            for source, before in enumerate(layer):
                for relation in self._relations[source] if before != self._circuits.false else ():
                    self._ask()
                    target = relation.rule.target
                    following[target] |= relation.image(before) & ~known[target]
            layer = following

    def _nothing(self) -> list[Node]:
        return [self._circuits.false] * len(self._ground.system.locations)

    def _start(self) -> list[Node]:
        layer, start = self._nothing(), self._ground.start
        layer[start // self._ground.volume] = self._circuits.cube(start)
        return layer

    def _any(self, layer: list[Node]) -> bool:
        return any(node != self._circuits.false for node in layer)

    def _nearest(self, watches: Sequence[Watch]) -> tuple[int | None, ...]:
        circuits, hits = self._circuits, dict[int, int]()
        seen = [(index, watch.location, circuits.truth(watch.condition)) for index, watch in enumerate(watches)]
        open_ = [item for item in seen if self._reached[item[1]] & item[2] != circuits.false]
        layers = self._layers()
        while open_:
            layer, left = next(layers), []
            for index, place, condition in open_:
                there = layer[place] & condition
                if there == circuits.false:
                    left.append((index, place, condition))
                else:
                    hits[index] = place * self._ground.volume + circuits.picked(there)
            open_ = left
        return tuple(hits.get(index) for index in range(len(watches)))

    def path(self, goal: int) -> list[int] | None:
        """See the function of this name."""
        circuits, ground = self._circuits, self._ground
        place, there = goal // ground.volume, circuits.cube(goal)
        layers: list[list[Node]] = []
        try:
            with _within_memory():
                for layer in self._layers():
                    layers.append(layer)
                    if layer[place] & there != circuits.false:
                        break
        except _StoppedError:
            return None
        if layers[-1][place] & there == circuits.false:
            raise ValueError(f"no way leads to configuration {goal}")
        way = [goal]
        for layer in layers[-2::-1]:
            way.append(self._before(way[-1], layer))
        return way[::-1]

    def _before(self, number: int, layer: list[Node]) -> int:
        place = number // self._ground.volume
        for source, here in enumerate(layer):
            for relation in self._relations[source] if here != self._circuits.false else ():
                if relation.rule.target == place:
                    there = here & relation.before(number)
                    if there != self._circuits.false:
                        return source * self._ground.volume + self._circuits.picked(there)
        raise AssertionError("a configuration of a layer has one before it")

    def _found(self, hits: tuple[int | None, ...], *, complete: bool) -> Found:
        count, reached = self._count, self._reached
        locations = tuple(map(count, reached))
        times = {r.index: count(reached[r.rule.source] & r.enabled) for here in self._relations for r in here}
        taken = frozenset(index for index, number in times.items() if number)
        return Found("bdd", sum(locations), sum(times.values()), locations, taken, hits, complete)


def _manager() -> Any:  # noqa: ANN401  (dd has no types)
    """Give a manager of diagrams; its order of variables stays as it is."""
    try:
        from dd.cudd import BDD
    except ImportError:
        from dd.autoref import BDD

        return BDD()
    manager = BDD()
    manager.configure(reordering=False, max_memory=MEMORY_BYTES)
    return manager


@contextmanager
def _within_memory() -> Iterator[None]:
    """Make a limit of what CUDD's package raises when there is no more memory: that an operation gave no node, or failed."""
    try:
        yield
    except (ValueError, RuntimeError) as fault:
        if "NULL" in str(fault) or "failed" in str(fault):
            raise _StoppedError from fault
        raise


def _crowded(manager: Any) -> bool:  # noqa: ANN401  (dd has no types)
    """Tell whether there are too many nodes, where the package does not see to it itself."""
    if type(manager).__module__ == "dd.cudd" or len(manager) <= MAX_NODES:
        return False
    manager.collect_garbage()
    return len(manager) > MAX_NODES // 2
