"""Search with Python that is written for the machine: no dependency, and the fastest engine up to some hundred thousand configurations.

Data are lists of whole numbers that go through comprehensions; what is known is a byte for each number, or a set when those would be too
many. Memory for one configuration: 8 bytes where the data stay as they were, else about 40, and up to 100 more at a location where
it is remembered in a set; a search that might take more than `MEMORY_BYTES` is stopped.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import ClassVar

from dsa.checks.engines.found import Found, Limits
from dsa.checks.engines.frontiers import Frontiers, Known
from dsa.checks.engines.layers import Data
from dsa.checks.engines.plan import Step
from dsa.checks.engines.sources import DATA, Text, Writer, loop
from dsa.ground import Ground, Watch

#: What is known is a byte for each number when that is not more than this at one location, and in all; else it is a set.
_MAX_BYTES_AT_ONE, _MAX_BYTES = 2**26, 2**28


def search(ground: Ground, watches: Sequence[Watch], limits: Limits, most_trials: float = inf) -> Found:
    """Search everything that can happen, or as much of it as takes no more than so many trials of a rule on a configuration."""
    return Lists(ground, watches, limits, Writer(ground)).run(most_trials)


class Lists(Frontiers):
    """A search in lists; `in_bytes` tells whether what is known is a byte for each number."""

    engine: ClassVar[str] = "python"
    slice_size: ClassVar[int] = 2**16

    def __init__(self, ground: Ground, watches: Sequence[Watch], limits: Limits, writer: Writer) -> None:
        super().__init__(ground, watches, limits, writer)
        in_all = ground.volume * len(self.plan.remembered)
        self.in_bytes = ground.volume <= _MAX_BYTES_AT_ONE and in_all <= _MAX_BYTES
        self.bytes_each = 48 if self.in_bytes else 150

    def first(self, data: int) -> Data:
        """Return the data of the start alone."""
        return [data]

    def joined(self, parts: list[Data]) -> Data:
        """Return several lists as one."""
        return list(chain.from_iterable(parts))

    def nothing_known(self) -> Known:
        """Return bytes, or a set."""
        return bytearray(self.ground.volume) if self.in_bytes else set()

    def remember(self, known: Known, data: int) -> None:
        """Remember the start."""
        if self.in_bytes:
            known[data] = 1
        else:
            known.add(data)

    def filtered(self, name: str, condition: Text) -> Iterator[str]:
        """Write a comprehension."""
        yield f"{name} = [{DATA} {loop(condition.bindings, 'data')} if {condition.text}]"

    def entered(self, name: str, step: Step, source: str, known: str | None) -> Iterator[str]:
        """Write a comprehension, and what remembers its result."""
        after = self.writer.target(step.rule)
        over = loop(after.bindings, source)
        if known is None:
            yield f"{name} = {source if after.text == DATA else f'[{after.text} {over}]'}"
            return
        is_new = f"not {known}[t]" if self.in_bytes else f"t not in {known}"
        found = f"t {over} for t in ({after.text},) if {is_new}"
        yield f"{name} = [{found}]" if step.move.is_constant else f"{name} = list({{{found}}})"
        yield f"for t in {name}: {known}[t] = 1" if self.in_bytes else f"{known}.update({name})"
