"""A store that forgets everything with its process: for tests, and for runs that nobody wants back."""

from collections.abc import Sequence

import attrs

from dsa.runtime.journal import HeldError, LeaseLostError, Recorded, StoreError, UnknownRunError
from dsa.runtime.ledger import Entry, Ledger

_HOLDER = "this process"


class MemoryStore:
    """A `RunStore` in memory."""

    def __init__(self) -> None:
        self._runs: dict[str, Recorded] = {}

    def create(self, run: str, text: str, entries: Sequence[Entry]) -> "MemoryJournal":
        """Begin a run. Raises StoreError when there is one of that id."""
        if run in self._runs:
            raise StoreError("there is a run of that id already")
        self._runs[run] = Recorded(run, text, Ledger(entries), 1, _HOLDER)
        return MemoryJournal(self._runs, run, 1)

    def hold(self, run: str, *, take: bool = False) -> tuple["MemoryJournal", Recorded]:
        """Become the writer of a run; `take` takes it from one that is alive. Raises UnknownRunError or HeldError."""
        found = self._found(run)
        if found.holder is not None and not take:
            raise HeldError(run, found.holder)
        self._runs[run] = attrs.evolve(found, epoch=found.epoch + 1, holder=_HOLDER)
        return MemoryJournal(self._runs, run, found.epoch + 1), self._runs[run]

    def read(self, run: str) -> Recorded:
        """Read a run. Raises UnknownRunError."""
        return self._found(run)

    def runs(self) -> tuple[str, ...]:
        """Give the ids of all runs, in the order they were begun."""
        return tuple(self._runs)

    def _found(self, run: str) -> Recorded:
        if run not in self._runs:
            raise UnknownRunError(f"there is no run {run}")
        return self._runs[run]


class MemoryJournal:
    """The right to write one run of a MemoryStore."""

    def __init__(self, runs: dict[str, Recorded], run: str, epoch: int) -> None:
        self._runs, self.run, self.epoch = runs, run, epoch

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries. Raises LeaseLostError."""
        now = self._runs[self.run]
        if now.epoch != self.epoch:
            raise LeaseLostError(self.run)
        self._runs[self.run] = Recorded(now.run, now.text, now.entries.extend(entries), now.epoch, now.holder)

    def release(self) -> None:
        """Give up the right to write."""
        if self._runs[self.run].epoch == self.epoch:
            self._runs[self.run] = attrs.evolve(self._runs[self.run], holder=None)
