"""State graphs: every configuration that a search found and every step between them, as flat arrays.

Takes a `Ground` and what a complete search found there, gives a `StateGraph`: in NumPy's arrays when it is installed and the graph is large, else in
lists. A step takes 24 bytes as an array and up to 100 in lists, a configuration 16 or up to 200.

`cycles` and `components` give the strongly connected components (Tarjan, 1972), `unable_positions` those from which a set cannot be reached. Graphs in
arrays are left to SciPy where it is installed.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, compress, count
from types import ModuleType
from typing import Any

import attrs

from dsa.checks.search.engine import (
    Layer,
    RuleStep,
    SearchResult,
    Writer,
    after_all,
    by_location,
    split,
    steps_of,
    truth_of,
)
from dsa.expr import Expr
from dsa.ground_system import Ground

#: With fewer configurations than this, importing NumPy takes longer than doing without.
_SMALL = 50_000

#: Whole numbers: a list, or a NumPy array of 64-bit integers.
Numbers = Sequence[int] | Any
Array = Any


@attrs.frozen
class StateGraph:
    """Configurations by position, nearest to the start first (the start is 0), and the steps between them, sorted by source.

    Step `i` leads from `sources[i]` to `targets[i]` by rule `rules[i]` (an index into the ground's); the steps of configuration `p`
    are those from `offsets[p]` up to `offsets[p + 1]`. `numbers[p]` is the configuration's number. All are NumPy arrays, or none is.
    """

    ground: Ground = attrs.field(repr=False)
    numbers: Numbers = attrs.field(repr=False)
    offsets: Numbers = attrs.field(repr=False)
    sources: Numbers = attrs.field(repr=False)
    targets: Numbers = attrs.field(repr=False)
    rules: Numbers = attrs.field(repr=False)
    _parts: Mapping[int, "_LocationPart"] = attrs.field(repr=False)

    def marks_where(self, conditions: Mapping[int, Expr]) -> Numbers:
        """Return for each position whether a ground condition is true there: `conditions` has one for each location in question.

        A `bytearray` of 0 and 1, or a NumPy array of truth values.
        """
        arrays = not isinstance(self.numbers, list)
        marks: Any = _numpy().zeros(len(self.numbers), dtype=bool) if arrays else bytearray(len(self.numbers))
        writer = Writer(self.ground, arrays=arrays)
        for location, condition in conditions.items():
            if location not in self._parts:
                continue
            part = self._parts[location]
            truths = truth_of(writer, condition)(part.data)
            if arrays:
                marks[part.positions] = truths
            else:
                for position, is_so in zip(part.positions, truths, strict=True):
                    marks[position] = is_so
        return marks

    def marked_locations(self, marks: Numbers) -> list[int]:
        """Return the locations that have a marked position."""
        if isinstance(self.numbers, list):
            return [place for place, part in self._parts.items() if any(marks[at] for at in part.positions)]
        return [place for place, part in self._parts.items() if marks[part.positions].any()]

    def have_common(self, marks: Numbers, others: Numbers) -> bool:
        """Return whether some position is marked twice."""
        if isinstance(self.numbers, list):
            return any(is_marked and other for is_marked, other in zip(marks, others, strict=True))
        return bool(_numpy().logical_and(marks, others).any())


@attrs.frozen
class _LocationPart:
    """The configurations of one location: their data, and their positions among all."""

    data: Any
    positions: Any


def graph(ground: Ground, result: SearchResult) -> StateGraph:
    """Return the graph of a complete search that kept its layers; ValueError for any other, UndecidedError when the ground's time is over."""
    if not result.complete or result.layers is None:
        raise ValueError("only a complete search that kept its layers gives a graph")
    layers = [split(layer, ground.volume) for layer in result.layers]
    fits = ground.domain_size < 2**62
    arrays = result.configurations > _SMALL and fits and find_spec("numpy") is not None
    return _in_arrays(ground, layers) if arrays else _in_lists(ground, layers, result)


def _in_lists(ground: Ground, layers: Sequence[Layer], result: SearchResult) -> StateGraph:
    parts = {location: _list_part(chunks) for location, chunks in by_location(layers).items()}
    at = {location: dict(zip(part.data, part.positions, strict=True)) for location, part in parts.items()}
    count, steps, writer = sum(map(len, layers)), steps_of(ground), Writer(ground)
    leaps: list[tuple[int, int, int]] = []
    for location, part in parts.items():
        known_data = result.known_at(location)
        fresh = [each for each in part.data if each not in known_data] if known_data else part.data
        for step in steps[location]:
            ground.require_time()
            taken = result.known_step(step)
            data = part.data if taken is None else fresh
            data_taken = list(compress(data, truth_of(writer, step.rule.condition)(data))) if data else []
            pairs = list(zip(data_taken, after_all(writer, step.rule)(data_taken) if data_taken else (), strict=True))
            pairs += [(start, end) for start, end in (taken or {}).items() if start in at[location]]
            start_at, end_at = at[location], at.get(step.rule.target, {})
            for rule in step.places:
                leaps += [(start_at[start], rule, end_at[end]) for start, end in pairs]
    leaps.sort()
    out = array("q", bytes(8 * (count + 1)))
    for start, _, _ in leaps:
        out[start + 1] += 1
    numbers = [number for layer in layers for number in layer]
    sources, rules, targets = ([leap[column] for leap in leaps] for column in range(3))
    return StateGraph(ground, numbers, list(accumulate(out)), sources, targets, rules, parts)


def _list_part(chunks: Sequence[tuple[int, Any]]) -> _LocationPart:
    data = [number for _, chunk in chunks for number in chunk]
    return _LocationPart(data, [position + place for position, chunk in chunks for place in range(len(chunk))])


def _in_arrays(ground: Ground, layers: Sequence[Layer]) -> StateGraph:
    np = _numpy()
    parts = {location: _flat(chunks) for location, chunks in by_location(layers).items()}
    at = {location: _lookup(part, ground.volume) for location, part in parts.items()}
    count, steps, writer = sum(map(len, layers)), steps_of(ground), Writer(ground, arrays=True)
    chunks: list[tuple[int, Array, Array]] = []
    for location, part in parts.items():
        for step in steps[location]:
            ground.require_time()
            mask = truth_of(writer, step.rule.condition)(part.data)
            ends = _ends(step, at, after_all(writer, step.rule)(part.data[mask]))
            chunks += [(rule, part.positions[mask], ends) for rule in step.places]
    offsets, targets, rules = _sorted_steps(chunks, count)
    sources = np.repeat(np.arange(count), np.diff(offsets))
    numbers = np.zeros(count, dtype=np.int64)
    for location, part in parts.items():
        numbers[part.positions] = part.data + location * ground.volume
    return StateGraph(ground, numbers, offsets, sources, targets, rules, parts)


def _sorted_steps(chunks: Sequence[tuple[int, Array, Array]], count: int) -> tuple[Array, Array, Array]:
    """Return offsets, targets and rules of steps by source and rule; a chunk has a rule, sources (each once) and their targets.

    Each step goes to its place at once, in linear time: sorting takes longer than the search.
    """
    np = _numpy()
    counts = np.zeros(count, dtype=np.int64)
    for _, sources, _ in chunks:
        counts[sources] += 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    free = offsets[:-1].copy()
    targets, rules = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    for rule, sources, ends in sorted(chunks, key=lambda chunk: chunk[0]):
        places = free[sources]
        targets[places], rules[places] = ends, rule
        free[sources] = places + 1
    return offsets, targets, rules


def _ends(step: RuleStep, at: Mapping[int, Callable[[Array], Array]], data: Array) -> Array:
    if not len(data):
        return _numpy().zeros(0, dtype=_numpy().int64)
    return at[step.rule.target](data)


def _flat(chunks: Sequence[tuple[int, Any]]) -> _LocationPart:
    np = _numpy()
    data = np.concatenate([np.asarray(chunk, dtype=np.int64) for _, chunk in chunks])
    positions = np.concatenate([np.arange(position, position + len(chunk)) for position, chunk in chunks])
    return _LocationPart(data, positions)


def _lookup(part: _LocationPart, volume: int) -> Callable[[Array], Array]:
    """Return a function from data to positions: by a table when it is not too large, else by halving."""
    np = _numpy()
    if volume <= 8 * len(part.data) + 2**20:
        table = np.zeros(volume, dtype=np.int64)
        table[part.data] = part.positions
        return lambda keys: table[keys]
    order = np.argsort(part.data, kind="stable")
    data, positions = part.data[order], part.positions[order]
    return lambda keys: positions[np.searchsorted(data, keys)]


def _numpy() -> ModuleType:
    import numpy as np

    return np


def cycles(graph: StateGraph, marks: Numbers) -> Iterator[frozenset[int]]:
    """Return the components of the marked positions that one can go round in: several positions, or one with a step to itself."""
    if not isinstance(graph.numbers, list) and find_spec("scipy") is not None:
        return _cycles_in_arrays(graph, marks)
    return cycles_within(graph, frozenset(marked_positions(marks)))


def marked_positions(marks: Numbers) -> list[int]:
    """Return the positions that are marked."""
    if hasattr(marks, "nonzero"):
        positions: list[int] = marks.nonzero()[0].tolist()
        return positions
    return [position for position, is_marked in enumerate(marks) if is_marked]


def cycles_within(graph: StateGraph, nodes: Collection[int]) -> Iterator[frozenset[int]]:
    """Yield the components of some positions that one can go round in. Raises UndecidedError when the ground's time is over."""
    looks = graph.ground.timely(count())

    def following(node: int) -> Iterator[int]:
        next(looks)
        ahead = map(int, graph.targets[graph.offsets[node] : graph.offsets[node + 1]])
        return (target for target in ahead if target in nodes)

    for part in components(nodes, following):
        if len(part) > 1 or node_has_loop(graph, *part):
            yield frozenset(part)


def node_has_loop(graph: StateGraph, node: int) -> bool:
    """Return whether a step leads from a position to itself."""
    return node in graph.targets[graph.offsets[node] : graph.offsets[node + 1]]


def _cycles_in_arrays(graph: StateGraph, marks: Numbers) -> Iterator[frozenset[int]]:
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    mask = np.asarray(marks)
    inside = mask[graph.sources] & mask[graph.targets]
    sources, targets = graph.sources[inside], graph.targets[inside]
    size = len(graph.numbers)
    steps = csr_matrix((np.ones(len(sources), dtype=np.int8), (sources, targets)), shape=(size, size))
    _, labels = connected_components(steps, directed=True, connection="strong")
    several = np.flatnonzero(np.bincount(labels) > 1)
    cycle_labels = np.union1d(several, labels[sources[sources == targets]])
    order = np.argsort(labels, kind="stable")
    begins = np.searchsorted(labels[order], cycle_labels)
    ends = np.searchsorted(labels[order], cycle_labels, side="right")
    for begin, end in zip(begins, ends, strict=True):
        yield frozenset(order[begin:end].tolist())


def components(nodes: Iterable[int], following: Callable[[int], Iterable[int]]) -> Iterator[list[int]]:
    """Yield the strongly connected components, each after all those that it leads to. `following` must stay within the nodes."""
    search = _Tarjan(following)
    for node in nodes:
        if node not in search.index:
            yield from search.run(node)


class _Tarjan:
    def __init__(self, following: Callable[[int], Iterable[int]]) -> None:
        self.index: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._on_stack: set[int] = set()
        self._following = following

    def run(self, root: int) -> Iterator[list[int]]:
        """Yield the components reachable from a node that was not visited yet."""
        calls = [(root, self._enter(root))]
        while calls:
            node, rest = calls[-1]
            for target in rest:
                if target not in self.index:
                    calls.append((target, self._enter(target)))
                    break
                if target in self._on_stack:
                    self._low[node] = min(self._low[node], self.index[target])
            else:
                calls.pop()
                if calls:
                    parent = calls[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[node])
                if self._low[node] == self.index[node]:
                    yield self._leave(node)

    def _enter(self, node: int) -> Iterator[int]:
        self.index[node] = self._low[node] = len(self.index)
        self._stack.append(node)
        self._on_stack.add(node)
        return iter(self._following(node))

    def _leave(self, node: int) -> list[int]:
        place = len(self._stack) - 1
        while self._stack[place] != node:
            place -= 1
        component = self._stack[place:]
        del self._stack[place:]
        self._on_stack.difference_update(component)
        return component


def unable_positions(graph: StateGraph, marks: Numbers) -> list[int]:
    """Return the positions from which no marked one can be reached, nearest to the start first."""
    if not isinstance(graph.numbers, list) and find_spec("scipy") is not None:
        return _unable_in_arrays(graph, marks)
    before: list[list[int]] = [[] for _ in graph.numbers]
    for source, target in zip(graph.sources, graph.targets, strict=True):
        before[target].append(int(source))
    able = bytearray(map(bool, marks))
    todo = marked_positions(able)
    while todo:
        for position in before[todo.pop()]:
            if not able[position]:
                able[position] = 1
                todo.append(position)
    return [position for position, is_able in enumerate(able) if not is_able]


def _unable_in_arrays(graph: StateGraph, marks: Numbers) -> list[int]:
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    root = len(graph.numbers)  # one more position, from which every marked one can be reached
    first = np.flatnonzero(marks)
    starts = np.concatenate([graph.targets, np.full(len(first), root)])
    ends = np.concatenate([graph.sources, first])
    back = csr_matrix((np.ones(len(starts), dtype=np.int8), (starts, ends)), shape=(root + 1, root + 1))
    able = np.zeros(root + 1, dtype=bool)
    able[breadth_first_order(back, root, return_predecessors=False)] = True
    positions: list[int] = np.flatnonzero(~able).tolist()
    return positions
