"""Search with NumPy: whole frontiers at once, for a hundred thousand configurations and more.

Data are arrays of 32 or 64 bits. What is known is a byte for each number at the locations that can be entered twice, when those bytes are
not more than `MAX_BYTES`; else a hash table. Memory for one configuration: 4 or 8 bytes, and at a location where a hash table remembers it
up to 50 more; a search that might take more than `MEMORY_BYTES` is stopped. Data, and what conditions and updates compute, must stay within
62 bits: `fits` tells.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from dsa.checks.search.engine import DATA, Data, RuleStep, SearchLimits, SearchResult, Text, Writer, plan
from dsa.checks.search.python_engine import FrontierSearch, Memory
from dsa.expr import Arithmetic, Count, Expr, Integer, Name, children
from dsa.ground_system import Ground, GroundWatch

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

#: A byte for each number is remembered when those are not more than this in all; only pages that are used take memory.
MAX_BYTES = 2**31


def search(ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    """Search everything that can happen; ValueError when the system does not fit into 64 bits."""
    if not fits(ground, watches):
        raise ValueError("some number of this system has more than 62 bits, which NumPy's arrays do not hold")
    return _ArraySearch(ground, watches, limits, Writer(ground, arrays=True)).run()


def is_installed() -> bool:
    """Return whether NumPy is installed, without importing it."""
    return find_spec("numpy") is not None


def fits(ground: Ground, watches: Sequence[GroundWatch] = ()) -> bool:
    """Return whether every number stays within 62 bits."""
    return _largest(ground, watches) < 2**62


def has_room(ground: Ground) -> bool:
    """Return whether there is a byte for each number that may have to be remembered, so that no hash table is needed."""
    return ground.volume * len(plan(ground).remembered_places) <= MAX_BYTES


def _largest(ground: Ground, watches: Sequence[GroundWatch]) -> int:
    """Return a bound on all numbers that a search computes."""
    bounds = {field.name: max(abs(field.low), abs(field.low + field.size)) for field in ground.fields}
    exprs = [watch.condition for watch in watches]
    largest = 2 * ground.volume
    for rule in ground.rules:
        exprs.append(rule.condition)
        for index, value in rule.updates:
            field = ground.fields[index]
            largest = max(largest, (_magnitude(value, bounds) + abs(field.low)) * field.stride + ground.volume)
    return max([largest, *(_magnitude(expr, bounds) for expr in exprs)])


def _magnitude(expr: Expr, bounds: dict[str, int]) -> int:
    """Return a bound on the numbers that an expression's evaluation meets."""
    match expr:
        case Integer(value):
            return abs(value)
        case Name(name):
            return bounds[name]
        case Arithmetic("*", left, right):
            return _magnitude(left, bounds) * _magnitude(right, bounds)
        case Arithmetic(_, left, right):
            return _magnitude(left, bounds) + _magnitude(right, bounds)
        case Count(operands):
            return max(len(operands), *(_magnitude(operand, bounds) for operand in operands))
    return max((_magnitude(child, bounds) for child in children(expr)), default=1)


_FREE = -1
_ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: multiplying by it spreads numbers over the high bits


class HashTable:
    """The numbers met so far, none below 0.

    Open addressing with linear probing, all numbers of a call at once; it grows so that at most half of its slots are used.
    """

    def __init__(self) -> None:
        import numpy as np

        self._np = np
        self._count = 0
        self._slots: NDArray[int64] = np.full(2**12, _FREE, dtype=np.int64)

    def new(self, numbers: "NDArray[Any]") -> "NDArray[Any]":
        """Return those of some different numbers that were not met before, and remember them."""
        while 2 * (self._count + len(numbers)) > len(self._slots):
            self._grow()
        new_numbers = self._insert(numbers)
        self._count += len(new_numbers)
        return new_numbers

    def _grow(self) -> None:
        old = self._slots[self._slots != _FREE]
        self._slots = self._np.full(2 * len(self._slots), _FREE, dtype=self._np.int64)
        self._insert(old)

    def _insert(self, numbers: "NDArray[Any]") -> "NDArray[Any]":
        """Put numbers where there is room, each at the first free slot from its own; return those that were not there."""
        np, slots = self._np, self._slots
        bits = len(slots).bit_length() - 1
        places = ((numbers.astype(np.uint64) * np.uint64(_ODD)) >> np.uint64(64 - bits)).astype(np.int64)
        fresh = np.zeros(len(numbers), dtype=bool)
        todo = np.arange(len(numbers))
        while len(todo):
            probes, at = numbers[todo], places[todo]
            there = slots[at]
            free = there == _FREE
            slots[at[free]] = probes[free]  # of several numbers for one slot, one stays
            mine = free & (slots[at] == probes)
            fresh[todo[mine]] = True
            todo = todo[~mine & (there != probes)]
            places[todo] = (places[todo] + 1) & (len(slots) - 1)
        new: NDArray[Any] = numbers[fresh]
        return new


class _ArraySearch(FrontierSearch):
    engine: ClassVar[str] = "numpy"
    slice_size: ClassVar[int] = 2**18

    def __init__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, writer: Writer) -> None:
        import numpy as np

        super().__init__(ground, watches, limits, writer)
        self._dtype: Any = np.int32 if _largest(ground, watches) < 2**31 else np.int64
        self._in_bytes = has_room(ground)
        self.bytes_each = np.dtype(self._dtype).itemsize + (0 if self._in_bytes else 50)
        self.helpers = {"as_numbers": partial(np.asarray, dtype=self._dtype), "unique": np.unique}

    def first(self, data: int) -> Data:
        import numpy as np

        return np.array([data], dtype=self._dtype)

    def join(self, parts: list[Data]) -> Data:
        import numpy as np

        return np.concatenate(parts)

    def nothing_known(self) -> Memory:
        import numpy as np

        return np.zeros(self.ground.volume, dtype=bool) if self._in_bytes else HashTable()

    def remember(self, memory: Memory, data: int) -> None:
        if self._in_bytes:
            memory[data] = True
        else:
            memory.new(self.first(data))

    def filter_lines(self, name: str, condition: Text) -> Iterator[str]:
        yield f"{DATA} = data"
        for variable, text in condition.bindings:
            yield f"{variable} = {text}"
        yield f"{name} = {DATA}[{condition.text}]"

    def enter_lines(self, name: str, step: RuleStep, source: str, memory: str | None) -> Iterator[str]:
        after = self.writer.target(step.rule)
        yield f"{DATA} = {source}"
        for variable, text in after.bindings:
            yield f"{variable} = {text}"
        yield f"{name} = {after.text}" if step.move.is_constant else f"{name} = as_numbers({after.text})"
        if memory is None:
            return
        if self._in_bytes:
            yield f"{name} = {name}[~{memory}[{name}]]"
            if not step.move.is_constant:
                yield f"{name} = unique({name})"
            yield f"{memory}[{name}] = True"
        else:
            yield f"{name} = {memory}.new({name if step.move.is_constant else f'unique({name})'})"
