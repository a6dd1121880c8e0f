"""A hash table of whole numbers for NumPy: which of many numbers were not met before.

Open addressing with linear probing, all numbers of a call at once; it grows so that at most half of its slots are used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

_FREE = -1
_ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: multiplying by it spreads numbers over the high bits


class HashTable:
    """The numbers met so far, none below 0."""

    def __init__(self) -> None:
        import numpy as np

        self._np = np
        self._count = 0
        self._slots: NDArray[int64] = np.full(2**12, _FREE, dtype=np.int64)

    def new(self, numbers: "NDArray[Any]") -> "NDArray[Any]":
        """Give those of some different numbers that were not met before, and remember them."""
        while 2 * (self._count + len(numbers)) > len(self._slots):
            self._grow()
        found = self._insert(numbers)
        self._count += len(found)
        return found

    def _grow(self) -> None:
        old = self._slots[self._slots != _FREE]
        self._slots = self._np.full(2 * len(self._slots), _FREE, dtype=self._np.int64)
        self._insert(old)

    def _insert(self, numbers: "NDArray[Any]") -> "NDArray[Any]":
        """Put numbers where there is room, each at the first free slot from its own; give those that were not there."""
        np, slots = self._np, self._slots
        bits = len(slots).bit_length() - 1
        places = ((numbers.astype(np.uint64) * np.uint64(_ODD)) >> np.uint64(64 - bits)).astype(np.int64)
        fresh = np.zeros(len(numbers), dtype=bool)
        todo = np.arange(len(numbers))
        while len(todo):
            wanted, at = numbers[todo], places[todo]
            there = slots[at]
            free = there == _FREE
            slots[at[free]] = wanted[free]  # of several numbers for one slot, one stays
            mine = free & (slots[at] == wanted)
            fresh[todo[mine]] = True
            todo = todo[~mine & (there != wanted)]
            places[todo] = (places[todo] + 1) & (len(slots) - 1)
        new: NDArray[Any] = numbers[fresh]
        return new
