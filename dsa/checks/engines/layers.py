"""Configurations by their distance from the start, as engines keep them: for each location the data alone.

Data are whole numbers in any sequence: lists, arrays of 64 bits, NumPy arrays. Parts may be shared between locations, and are never
changed.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, overload

import attrs

#: Layers of other engines with fewer configurations are split without NumPy.
_SMALL = 10_000
#: A sequence of whole numbers.
Data = Sequence[int] | Any


@attrs.frozen(slots=False)
class Layer(Sequence[int]):
    """The configurations at one distance: pairs of a location and the data there, each location at most once."""

    volume: int
    parts: tuple[tuple[int, Data], ...]

    def __len__(self) -> int:
        return sum(len(data) for _, data in self.parts)

    def __iter__(self) -> Iterator[int]:
        for location, data in self.parts:
            base = location * self.volume
            for number in data.tolist() if hasattr(data, "tolist") else data:
                yield base + number

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return list(self)[index]
        place = index + len(self) if index < 0 else index
        for location, data in self.parts:
            if 0 <= place < len(data):
                return location * self.volume + int(data[place])
            place -= len(data)
        raise IndexError(index)


def split(layer: Sequence[int], volume: int) -> Layer:
    """Give a layer by location, whatever engine kept it."""
    if isinstance(layer, Layer):
        return layer
    if isinstance(layer, array) and len(layer) > _SMALL and find_spec("numpy") is not None:
        return _split_array(layer, volume)
    found: dict[int, list[int]] = {}
    for number in map(int, layer):
        found.setdefault(number // volume, []).append(number % volume)
    return Layer(volume, tuple(found.items()))


def _split_array(layer: "array[int]", volume: int) -> Layer:
    import numpy as np

    locations, data = np.divmod(np.asarray(layer), np.asarray(volume, dtype=layer.typecode))
    order = np.argsort(locations, kind="stable")
    places, begins = np.unique(locations[order], return_index=True)
    parts = np.split(data[order].astype(np.int64), begins[1:])
    return Layer(volume, tuple(zip(places.tolist(), parts, strict=True)))


def by_location(layers: Iterable[Layer]) -> dict[int, list[tuple[int, Data]]]:
    """Give for each location its data, nearest first, each with the position of its first configuration among all."""
    found: dict[int, list[tuple[int, Data]]] = {}
    position = 0
    for layer in layers:
        for location, data in layer.parts:
            found.setdefault(location, []).append((position, data))
            position += len(data)
    return found
