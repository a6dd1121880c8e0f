"""A store that forgets everything with its process: for tests, and for runs that nobody wants back."""

from collections.abc import Sequence

import attrs

from dsa.runtime.ledger import Entry, Ledger
from dsa.runtime.run_store import (
    HeldError,
    InboxMessage,
    LeaseLostError,
    MessageOutcome,
    MessagesWaitError,
    RunSummary,
    StoredRun,
    StoreError,
    Summary,
    UnknownRunError,
    message_line,
)

_HOLDER = "this process"


@attrs.define
class _StoredInMemory:
    """A run, its summary, and its inbox: each message with what came of it."""

    recorded: StoredRun
    summary: Summary
    inbox: dict[str, tuple[InboxMessage, str | None]] = attrs.field(factory=dict)

    def waiting(self) -> tuple[InboxMessage, ...]:
        return tuple(message for message, outcome in self.inbox.values() if outcome is None)


class MemoryStore:
    """A `RunStore` in memory."""

    def __init__(self) -> None:
        self._runs: dict[str, _StoredInMemory | None] = {}  # None: it was removed

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> "MemoryJournal":
        """Begin a run. Raises StoreError when the id is or was in use."""
        if run in self._runs:
            raise StoreError(f"there {'was' if self._runs[run] is None else 'is'} a run of that id already")
        kept = self._runs[run] = _StoredInMemory(
            StoredRun(run, text, Ledger(entries), 1, _HOLDER), summary or Summary()
        )
        return MemoryJournal(kept)

    def hold(
        self, run: str, *, take: bool = False, snapshot: StoredRun | None = None  # noqa: ARG002  (nothing is decoded here)
    ) -> tuple["MemoryJournal", StoredRun]:  # fmt: skip
        """Become the writer of a run; `take` takes it from one that is alive. Raises UnknownRunError or HeldError."""
        kept = self._kept(run)
        if kept.recorded.holder is not None and not take:
            raise HeldError(run, kept.recorded.holder)
        kept.recorded = attrs.evolve(kept.recorded, epoch=kept.recorded.epoch + 1, holder=_HOLDER)
        return MemoryJournal(kept), kept.recorded

    def read(self, run: str) -> StoredRun:
        """Read a run. Raises UnknownRunError."""
        return self._kept(run).recorded

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read the entries from a position on. Raises UnknownRunError."""
        return self._kept(run).recorded.entries.after(max(position, 0))

    def version(self, run: str) -> int:
        """Return the number of entries."""
        return len(self._kept(run).recorded.entries)

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""
        return tuple(run for run, kept in self._runs.items() if kept is not None)

    def summaries(
        self, *, status: str | None = None, waiting_for: str | None = None, machine: str | None = None, now_ms: int | None = None
    ) -> tuple[RunSummary, ...]:  # fmt: skip
        """Return how all runs stand, or those that the filter asks for, in the order they were begun."""
        found = [self.summary(run).at(now_ms) for run in self.runs()]
        return tuple(each for each in found if each.matches(status, waiting_for, machine))

    def summary(self, run: str) -> RunSummary:
        """Return how one run stands."""
        kept = self._kept(run)
        count, holder = len(kept.recorded.entries), kept.recorded.holder
        return RunSummary(run, count, kept.summary, holder, messages=len(kept.waiting()))

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox. Raises UnknownRunError, TooLargeError, StoreError."""
        kept = self._kept(run)
        message_line(message)
        others = [each for each in self._runs.values() if each is not None and message.id in each.inbox]
        if others and not (others[0] is kept and kept.inbox[message.id][0].repeats(message)):
            raise StoreError(
                f"there is another message with the id {message.id}: a message that is not a repetition needs a new id"
            )
        kept.inbox.setdefault(message.id, (message, None))

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages that wait in a run's inbox, in the order they were posted."""
        return self._kept(run).waiting()

    def outcome_of(self, message: str) -> str | None:
        """Return what came of a message, by its id; None while it waits. Raises StoreError if there is no such message."""
        for kept in self._runs.values():
            if kept is not None and message in kept.inbox:
                return kept.inbox[message][1]
        raise StoreError(f"there is no message {message}; was its run removed?")

    def due(self, now_ms: int) -> tuple[str, ...]:
        """Return the runs that nobody holds and in which there is something to do."""
        return tuple(each.run for each in self.summaries(now_ms=now_ms) if each.is_due)

    def remove(self, *runs: str) -> None:
        """Remove runs and their inboxes. Raises HeldError."""
        found = [self._kept(run) for run in runs]
        for kept in found:
            if kept.recorded.holder is not None:
                raise HeldError(kept.recorded.run, kept.recorded.holder)
        for kept in found:
            kept.recorded = attrs.evolve(kept.recorded, epoch=kept.recorded.epoch + 1)  # who held it writes no more
            self._runs[kept.recorded.run] = None

    def _kept(self, run: str) -> _StoredInMemory:
        kept = self._runs.get(run)
        if kept is None:
            raise UnknownRunError(f"there is no run {run}")
        return kept


class MemoryJournal:
    """The right to write one run of a MemoryStore."""

    def __init__(self, kept: _StoredInMemory) -> None:
        self._kept, self.run, self.epoch = kept, kept.recorded.run, kept.recorded.epoch
        self.head = b""

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries, the summary and what came of messages, all or nothing. Raises as `Journal.append`."""
        kept = self._kept
        if kept.recorded.epoch != self.epoch:
            raise LeaseLostError(self.run)
        for message, _ in outcomes:
            if kept.inbox.get(message, (None, ""))[1] is not None:
                raise StoreError(f"message {message} does not wait for run {self.run}; nothing was written")
        now = kept.recorded
        kept.recorded = StoredRun(now.run, now.text, now.entries.extend(entries), now.epoch, now.holder)
        kept.summary = summary or kept.summary
        for message, outcome in outcomes:
            kept.inbox[message] = (kept.inbox[message][0], outcome)

    def release(self, summary: Summary | None = None) -> None:
        """Give up the right to write. Raises MessagesWaitError."""
        if self._kept.recorded.epoch == self.epoch:
            if summary is not None and summary.status == "waiting" and self._kept.waiting():
                raise MessagesWaitError(self.run)
            self._kept.recorded = attrs.evolve(self._kept.recorded, holder=None)
            self._kept.summary = summary or self._kept.summary
