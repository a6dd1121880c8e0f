"""A store of runs in memory, which ends with its process: for tests, and for runs that are not needed later."""

from collections.abc import Sequence

import attrs

from dsa.runtime.ledger import Entry, Ledger
from dsa.runtime.run_store import (
    HeldError,
    InboxMessage,
    LeaseLostError,
    MessageOutcome,
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
    """A run, its summary, and its inbox: each message with its outcome."""

    stored_run: StoredRun
    summary: Summary
    inbox: dict[str, tuple[InboxMessage, str | None]] = attrs.field(factory=dict)

    def waiting_messages(self) -> tuple[InboxMessage, ...]:
        return tuple(message for message, outcome in self.inbox.values() if outcome is None)


class MemoryStore:
    """A `RunStore` in memory."""

    def __init__(self) -> None:
        self._runs: dict[str, _StoredInMemory | None] = {}  # None: it was removed

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> "MemoryJournal":
        """Begin a run. Raises StoreError if the id is or was in use."""
        if run in self._runs:
            raise StoreError(
                f"there {'was' if self._runs[run] is None else 'is'} already a run with this id; use a new id"
            )
        record = self._runs[run] = _StoredInMemory(
            StoredRun(run, text, Ledger(entries), 1, _HOLDER), summary or Summary()
        )
        return MemoryJournal(record)

    def hold(
        self, run: str, *, take: bool = False, snapshot: StoredRun | None = None  # noqa: ARG002  (nothing is decoded here)
    ) -> tuple["MemoryJournal", StoredRun]:  # fmt: skip
        """Become the writer of a run; `take` takes it from a living writer. Raises UnknownRunError or HeldError."""
        record = self._record(run)
        if record.stored_run.holder is not None and not take:
            raise HeldError(run, record.stored_run.holder)
        record.stored_run = attrs.evolve(record.stored_run, epoch=record.stored_run.epoch + 1, holder=_HOLDER)
        return MemoryJournal(record), record.stored_run

    def read(self, run: str) -> StoredRun:
        """Read a run. Raises UnknownRunError."""
        return self._record(run).stored_run

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read the entries from a position on. Raises UnknownRunError."""
        return self._record(run).stored_run.entries.after(max(position, 0))

    def version(self, run: str) -> int:
        """Return the number of entries."""
        return len(self._record(run).stored_run.entries)

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""
        return tuple(run for run, record in self._runs.items() if record is not None)

    def summaries(
        self, *, status: str | None = None, waiting_for: str | None = None, machine: str | None = None, now_ms: int | None = None
    ) -> tuple[RunSummary, ...]:  # fmt: skip
        """Return the summaries of all runs, or of those that match the filter, in the order they were begun."""
        summaries = [self.summary(run).at(now_ms) for run in self.runs()]
        return tuple(each for each in summaries if each.matches(status, waiting_for, machine))

    def summary(self, run: str) -> RunSummary:
        """Return the summary of one run."""
        record = self._record(run)
        count, holder = len(record.stored_run.entries), record.stored_run.holder
        return RunSummary(run, count, record.summary, holder, messages=len(record.waiting_messages()))

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox. Raises UnknownRunError, StoreError."""
        record = self._record(run)
        message_line(message)
        others = [each for each in self._runs.values() if each is not None and message.id in each.inbox]
        if others and not (others[0] is record and record.inbox[message.id][0].repeats(message)):
            raise StoreError(f"the id {message.id} belongs to a different message: use a new id for a new message")
        record.inbox.setdefault(message.id, (message, None))

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages that wait in a run's inbox, in the order they were posted."""
        return self._record(run).waiting_messages()

    def outcome_of(self, message: str) -> str | None:
        """Return the outcome of a message, by its id; None while it waits. Raises StoreError if there is no such message."""
        for record in self._runs.values():
            if record is not None and message in record.inbox:
                return record.inbox[message][1]
        raise StoreError(f"there is no message {message}; was its run removed?")

    def due(self, now_ms: int) -> tuple[str, ...]:
        """Return the runs that have no holder and have something to do."""
        return tuple(each.run for each in self.summaries(now_ms=now_ms) if each.is_due)

    def remove(self, *runs: str) -> None:
        """Remove runs and their inboxes. Raises HeldError."""
        records = [self._record(run) for run in runs]
        for record in records:
            if record.stored_run.holder is not None:
                raise HeldError(record.stored_run.run, record.stored_run.holder)
        for record in records:
            # Its holder can no longer write.
            record.stored_run = attrs.evolve(record.stored_run, epoch=record.stored_run.epoch + 1)
            self._runs[record.stored_run.run] = None

    def _record(self, run: str) -> _StoredInMemory:
        record = self._runs.get(run)
        if record is None:
            raise UnknownRunError(f"there is no run {run}")
        return record


class MemoryJournal:
    """The right to write one run of a MemoryStore."""

    def __init__(self, record: _StoredInMemory) -> None:
        self._record, self.run, self.epoch = record, record.stored_run.run, record.stored_run.epoch
        self.head = b""

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries, the summary and the outcomes of messages, all or nothing. Raises as `Journal.append`."""
        record = self._record
        if record.stored_run.epoch != self.epoch:
            raise LeaseLostError(self.run)
        for message, _ in outcomes:
            if record.inbox.get(message, (None, ""))[1] is not None:
                raise StoreError(f"message {message} is not waiting for run {self.run}; nothing was written")
        now = record.stored_run
        record.stored_run = StoredRun(now.run, now.text, now.entries.extend(entries), now.epoch, now.holder)
        record.summary = summary or record.summary
        for message, outcome in outcomes:
            record.inbox[message] = (record.inbox[message][0], outcome)

    def release(self, summary: Summary | None = None) -> bool:
        """Give up the right to write as `Journal.release` does."""
        if self._record.stored_run.epoch == self.epoch:
            if summary is not None and summary.status == "waiting" and self._record.waiting_messages():
                return False
            self._record.stored_run = attrs.evolve(self._record.stored_run, holder=None)
            self._record.summary = summary or self._record.summary
        return True
