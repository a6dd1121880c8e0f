"""The graph of what was found: every configuration and every step between them, as flat arrays.

Takes a `Ground` and what a complete search found there, gives a `Graph`: in NumPy's arrays when it is installed and the graph is
large, else in lists. A step takes 24 bytes as an array and up to 100 in lists, a configuration 16 or up to 200.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, compress
from types import ModuleType
from typing import Any

import attrs

from dsa.checks.engines.found import Found
from dsa.checks.engines.layers import Layer, by_location, split
from dsa.checks.engines.plan import Step, steps_of
from dsa.checks.engines.sources import Writer, after_all, truth_of
from dsa.expr import Expr
from dsa.ground import Ground

#: Below so many configurations, importing NumPy takes longer than doing without.
_SMALL = 50_000

#: Whole numbers: a list, or a NumPy array of 64-bit integers.
Numbers = Sequence[int] | Any
Array = Any


@attrs.frozen
class Graph:
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
    _parts: Mapping[int, "_Part"] = attrs.field(repr=False)

    def holding(self, conditions: Mapping[int, Expr]) -> Numbers:
        """Give for each position whether a ground condition is true there: `conditions` has one for each location in question.

        A `bytearray` of 0 and 1, or a NumPy array of truth values.
        """
        arrays = not isinstance(self.numbers, list)
        marks: Any = _numpy().zeros(len(self.numbers), dtype=bool) if arrays else bytearray(len(self.numbers))
        writer = Writer(self.ground, arrays=arrays)
        for location, condition in conditions.items():
            if location not in self._parts:
                continue
            part = self._parts[location]
            found = truth_of(writer, condition)(part.data)
            if arrays:
                marks[part.positions] = found
            else:
                for position, is_so in zip(part.positions, found, strict=True):
                    marks[position] = is_so
        return marks


@attrs.frozen
class _Part:
    """The configurations of one location: their data, and their positions among all."""

    data: Any
    positions: Any


def graph(ground: Ground, found: Found) -> Graph:
    """Give the graph of a complete search that kept its layers; ValueError for any other, LateError when the ground's time is over."""
    if not found.complete or found.layers is None:
        raise ValueError("only a complete search that kept its layers gives a graph")
    layers = [split(layer, ground.volume) for layer in found.layers]
    fits = ground.domain_size < 2**62
    arrays = found.configurations > _SMALL and fits and find_spec("numpy") is not None
    return _in_arrays(ground, layers) if arrays else _in_lists(ground, layers, found)


def _in_lists(ground: Ground, layers: Sequence[Layer], found: Found) -> Graph:
    parts = {location: _listed(chunks) for location, chunks in by_location(layers).items()}
    at = {location: dict(zip(part.data, part.positions, strict=True)) for location, part in parts.items()}
    count, steps, writer = sum(map(len, layers)), steps_of(ground), Writer(ground)
    leaps: list[tuple[int, int, int]] = []
    for location, part in parts.items():
        known = found.known_at(location)
        fresh = [each for each in part.data if each not in known] if known else part.data
        for step in steps[location]:
            ground.require_time()
            taken = found.known_step(step)
            data = part.data if taken is None else fresh
            kept = list(compress(data, truth_of(writer, step.rule.condition)(data))) if data else []
            pairs = list(zip(kept, after_all(writer, step.rule)(kept) if kept else (), strict=True))
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
    return Graph(ground, numbers, list(accumulate(out)), sources, targets, rules, parts)


def _listed(chunks: Sequence[tuple[int, Any]]) -> _Part:
    data = [number for _, chunk in chunks for number in chunk]
    return _Part(data, [position + place for position, chunk in chunks for place in range(len(chunk))])


def _in_arrays(ground: Ground, layers: Sequence[Layer]) -> Graph:
    np = _numpy()
    parts = {location: _flat(chunks) for location, chunks in by_location(layers).items()}
    at = {location: _lookup(part, ground.volume) for location, part in parts.items()}
    count, steps, writer = sum(map(len, layers)), steps_of(ground), Writer(ground, arrays=True)
    columns: list[list[Any]] = [[], [], []]
    for location, part in parts.items():
        for step in steps[location]:
            ground.require_time()
            kept = truth_of(writer, step.rule.condition)(part.data)
            ends = _ends(step, at, after_all(writer, step.rule)(part.data[kept]))
            for rule in step.places:
                for column, values in zip(columns, (part.positions[kept], ends, rule), strict=True):
                    column.append(np.broadcast_to(np.asarray(values, dtype=np.int64), ends.shape))
    nothing = np.zeros(0, dtype=np.int64)
    sources, targets, rules = (np.concatenate([nothing, *column]) for column in columns)
    order = np.lexsort((rules, sources))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=count))])
    numbers = np.zeros(count, dtype=np.int64)
    for location, part in parts.items():
        numbers[part.positions] = part.data + location * ground.volume
    return Graph(ground, numbers, offsets, sources[order], targets[order], rules[order], parts)


def _ends(step: Step, at: Mapping[int, Callable[[Array], Array]], data: Array) -> Array:
    if not len(data):
        return _numpy().zeros(0, dtype=_numpy().int64)
    return at[step.rule.target](data)


def _flat(chunks: Sequence[tuple[int, Any]]) -> _Part:
    np = _numpy()
    data = np.concatenate([np.asarray(chunk, dtype=np.int64) for _, chunk in chunks])
    positions = np.concatenate([np.arange(position, position + len(chunk)) for position, chunk in chunks])
    return _Part(data, positions)


def _lookup(part: _Part, volume: int) -> Callable[[Array], Array]:
    """Give a function from data to positions: by a table when it is not too large, else by halving."""
    np = _numpy()
    if volume <= 8 * len(part.data) + 2**20:
        table = np.zeros(volume, dtype=np.int64)
        table[part.data] = part.positions
        return lambda wanted: table[wanted]
    order = np.argsort(part.data, kind="stable")
    data, positions = part.data[order], part.positions[order]
    return lambda wanted: positions[np.searchsorted(data, wanted)]


def _numpy() -> ModuleType:
    import numpy as np

    return np
