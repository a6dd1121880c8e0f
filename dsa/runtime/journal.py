"""What keeps runs: the protocol of stores, the one writer a run has, and the chain that makes damage visible.

Takes entries, gives hashes and errors; knows no file. `dsa.edge.stores` implements it: durable in SQLite, or in memory.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import attrs

from dsa.errors import DsaError
from dsa.runtime.ledger import Entry, Ledger


class StoreError(DsaError):
    """Raised when a store cannot be read or written. What was acknowledged before is kept; the handle is of no further use."""


class UnknownRunError(StoreError):
    """Raised for a run that a store does not have."""


class DamageError(StoreError):
    """Raised when what is read is not what was written: `run` and `position` say where, from 0; None when all of it is in doubt."""

    def __init__(self, message: str, run: str | None = None, position: int | None = None) -> None:
        self.run, self.position = run, position
        place = "" if run is None else f"run {run}: " if position is None else f"run {run}, entry {position}: "
        super().__init__(place + message)


class HeldError(StoreError):
    """Raised when a run has a writer that is alive. `holder` says who."""

    def __init__(self, run: str, holder: str) -> None:
        self.run, self.holder = run, holder
        super().__init__(f"run {run} is held by {holder}")


class LeaseLostError(StoreError):
    """Raised when somebody else has taken a run over: nothing was written."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(f"run {run} was taken over by another process; nothing was written")


@attrs.frozen
class Recorded:
    """A run as a store has it: the text of its machine, its entries, who writes it now (None: nobody)."""

    run: str
    text: str
    entries: Ledger[Entry]
    epoch: int
    holder: str | None = None


class Journal(Protocol):
    """The right to write one run, until it is released or somebody takes it over."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def epoch(self) -> int:
        """How often the run has had a writer; each entry is written under one epoch."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none of them; they are durable when this returns.

        Raises LeaseLostError, or StoreError when they cannot be written: then the caller cannot know whether they were, and has to stop.
        """

    def release(self) -> None:
        """Give up the right to write; the next one need not take it."""


class RunStore(Protocol):
    """Keeps runs: one writer each, any number of readers."""

    def create(self, run: str, text: str, entries: Sequence[Entry]) -> Journal:
        """Begin a run with the machine's text and its first entries. Raises StoreError when there is one of that id."""

    def hold(self, run: str, *, take: bool = False) -> tuple[Journal, Recorded]:
        """Become the writer of a run, and read it. `take` takes it from a writer that is alive.

        Raises UnknownRunError, HeldError, DamageError.
        """

    def read(self, run: str) -> Recorded:
        """Read a run, whoever writes it. Raises UnknownRunError or DamageError."""

    def runs(self) -> tuple[str, ...]:
        """Give the ids of all runs, in the order they were begun."""


def first_link(run: str, text: str) -> bytes:
    """Give the hash that a run's chain begins with: SHA-256 of its id and its machine's text."""
    return hashlib.sha256(f"{run}\n{text}".encode("utf-8", "surrogatepass")).digest()


def next_link(previous: bytes, epoch: int, line: str) -> bytes:
    """Give the hash of an entry: SHA-256 of the one before it, the epoch and the line."""
    return hashlib.sha256(b"%b%d %b" % (previous, epoch, line.encode("utf-8", "surrogatepass"))).digest()


class Beginning:
    """A `Journal` of a run that does not exist before its first entries are written: then all of it is there, or nothing."""

    def __init__(self, store: RunStore, run: str, text: str) -> None:
        self.run = run
        self._store, self._text = store, text
        self._journal: Journal | None = None

    @property
    def epoch(self) -> int:
        """How often the run has had a writer; 0 before it exists."""
        return 0 if self._journal is None else self._journal.epoch

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none of them; they are durable when this returns. Raises LeaseLostError or StoreError."""
        if self._journal is None:
            self._journal = self._store.create(self.run, self._text, entries)
        else:
            self._journal.append(entries)

    def release(self) -> None:
        """Give up the right to write."""
        if self._journal is not None:
            self._journal.release()
