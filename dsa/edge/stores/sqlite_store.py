"""The durable store: one SQLite file with many runs, each written by one holder at a time.

An append is one statement and one transaction with one fsync (WAL, `synchronous=FULL`). Hashes chain the rows and seal every other number, so that a
change made behind the store's back is noticed when it is read.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from dsa.edge.stores import store_rows
from dsa.edge.stores.store_file import StoreFile
from dsa.edge.stores.store_rows import (
    END,
    REMOVED_MACHINE,
    RUN_COLUMNS,
    SPAN,
    EndRow,
    RunRow,
    StoreCommit,
    address,
    delete_entries,
    end_in,
    entries_after,
    read_run,
    store_texts,
)
from dsa.immutable import without_collector
from dsa.runtime.ledger import Entry
from dsa.runtime.run_store import (
    DamageError,
    HeldError,
    InboxMessage,
    LeaseLostError,
    MessageOutcome,
    RunSummary,
    StoredRun,
    StoreError,
    Summary,
    UnknownRunError,
    first_link,
    summary_line,
    summary_of,
)

T = TypeVar("T")

_ROW = f"SELECT {RUN_COLUMNS}, seal FROM runs WHERE run = ?"  # noqa: S608
_ALL = f"SELECT {RUN_COLUMNS}, seal FROM runs NOT INDEXED ORDER BY number"  # noqa: S608
_NEW = f"INSERT INTO runs ({RUN_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
_END_OF = """SELECT runs.number, run, machine, runs.epoch, holder, seal, place, entries.epoch, short, line, link
  FROM runs LEFT JOIN entries ON place = number * :span + :end WHERE run = :run"""
_ENDS = _END_OF.replace("WHERE run = :run", "ORDER BY number").replace("FROM runs", "FROM runs NOT INDEXED")


class SqliteStore:
    """A `RunStore` in one file, which is made when there is none. Use it as a context manager, or `close` it.

    Use it in the thread that made it. `lock_patience_s` is how long it waits while other processes write. If it is `read_only`, or the file
    or its folder cannot be written, it shows every commit, and methods that write raise StoreError. Raises StoreError when the file cannot
    be opened or is another program's.
    """

    def __init__(self, path: Path, *, lock_patience_s: float = 60.0, read_only: bool = False) -> None:
        self._database = StoreFile(path, lock_patience_s, read_only=read_only)
        self._path = path
        self._cache: dict[tuple[str, str], tuple[tuple[object, ...], Any]] = {}
        self._written_inboxes = 0  # how often this handle has changed an inbox

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all runs, and close the file."""
        self._cache.clear()
        self._database.close()

    # -- writing a run ---------------------------------------------------------------------------------------------

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> "SqliteJournal":
        """Begin a run. Raises StoreError when the id is or was in use."""
        with self._database.write_transaction() as connection:
            columns = connection.execute(_ROW, (run,)).fetchone()
            if columns is not None:
                was_removed = columns[2] == REMOVED_MACHINE
                raise StoreError(f"there {'was' if was_removed else 'is'} a run of that id already")
            (last,) = connection.execute("SELECT max(number) FROM runs").fetchone()
            row = RunRow((last or 0) + 1, run, address(text), 1, self._database.holder)
            connection.execute(_NEW, (*attrs.astuple(row), row.seal))
            start = EndRow(row.number, row.epoch, 0, first_link(run, text))
            start.write(connection)
            commit = StoreCommit(run, start, entries, _line(summary))
            store_texts(connection, {address(text): text, **commit.texts})
            commit.write(connection)
        return SqliteJournal(self, row, commit.after)

    def hold(
        self, run: str, *, take: bool = False, snapshot: StoredRun | None = None
    ) -> tuple["SqliteJournal", StoredRun]:
        """Become the writer of a run, and read it, or only what is newer than a `snapshot` of it. Raises HeldError."""
        with self._database.write_transaction() as connection:
            row = self._row(connection, run)
            if not take and self._database.living_holder(row.holder):
                raise HeldError(run, str(row.holder))
            stored_run, end = read_run(connection, row, snapshot)
            ours = attrs.evolve(row, epoch=row.epoch + 1, holder=self._database.holder)
            row.replace(connection, ours)
            end = EndRow(ours.number, ours.epoch, end.length, end.head, end.summary)
            end.write(connection)
        return SqliteJournal(self, ours, end), attrs.evolve(stored_run, epoch=ours.epoch, holder=ours.holder)

    def append(self, row: RunRow, commit: StoreCommit, outcomes: Sequence[MessageOutcome]) -> None:
        """Write a commit of a run."""
        if not commit.texts and not outcomes:
            self._database.write_at_once(commit.write)  # one statement, a transaction by itself
            return
        self._written_inboxes += bool(outcomes)
        with self._database.write_transaction() as connection:
            store_rows.take(connection, row.number, row.run, outcomes)
            store_texts(connection, commit.texts)
            commit.write(connection)

    def release(self, row: RunRow, commit: StoreCommit, *, rests: bool) -> bool:
        """Give up the right to write a run, but not of one that rests and has messages in its inbox; return whether this was done."""
        if not self._database.is_open:
            return True  # after a fault; the next process finds this holder dead
        with suppress(LeaseLostError), self._database.write_transaction() as connection:
            if rests and store_rows.waiting_messages(connection, row.number, row.run):
                return False
            row.replace(connection, attrs.evolve(row, holder=None))
            with suppress(
                LeaseLostError
            ):  # this process was interrupted before it knew of its last commit: the summary is of another one
                commit.write(connection)
        return True

    def remove(self, *runs: str) -> None:
        """Remove runs and their inboxes; their rows stay, so that the ids are not used again. Raises HeldError."""
        self._written_inboxes += 1
        with self._database.write_transaction() as connection:
            for run in runs:
                row = self._row(connection, run)
                if self._database.living_holder(row.holder):
                    raise HeldError(run, str(row.holder))
                delete_entries(connection, row.number)
                store_rows.delete(connection, row.number)
                row.replace(connection, attrs.evolve(row, machine=REMOVED_MACHINE, epoch=row.epoch + 1, holder=None))

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, run: str) -> StoredRun:
        """Read a run, even while another process writes it. Raises UnknownRunError or DamageError."""
        with self._database.read_transaction() as connection:
            stored_run, _ = read_run(connection, self._row(connection, run))
        return attrs.evolve(stored_run, holder=self._database.living_holder(stored_run.holder))

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read the entries from a position on, verified from there. Raises UnknownRunError or DamageError."""
        with self._database.read_transaction() as connection:
            return entries_after(connection, self._row(connection, run), position)

    def version(self, run: str) -> int:
        """Return the number of entries."""

        def length(connection: sqlite3.Connection) -> int:
            row = self._row(connection, run)
            columns = connection.execute("SELECT * FROM entries WHERE place = ?", (row.number * SPAN + END,)).fetchone()
            return end_in(columns or (), run, row.epoch).length

        return self._latest("version", run, self._database.stamp(), length)

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun. They are read from the rows, since no seal covers an index."""
        with self._database.read_transaction() as connection:
            return tuple(str(columns[1]) for columns in connection.execute(_ALL) if not _is_removed(columns))

    def summaries(
        self, *, status: str | None = None, waiting_for: str | None = None, machine: str | None = None, now_ms: int | None = None
    ) -> tuple[RunSummary, ...]:  # fmt: skip
        """Return the summaries of all runs, or of those that match the filter, in the order they were begun."""
        with self._database.read_transaction() as connection:
            summaries = [each.at(now_ms) for each in self._summaries(connection)]
        return tuple(each for each in summaries if each.matches(status, waiting_for, machine))

    def summary(self, run: str) -> RunSummary:
        """Return the summary of one run."""
        with self._database.read_transaction() as connection:
            summaries = self._summaries(connection, run)
        if not summaries:
            raise self._unknown(run)
        return summaries[0]

    def due(self, now_ms: int) -> tuple[str, ...]:
        """Return the runs that nobody holds and that have something to do."""
        return tuple(each.run for each in self.summaries(now_ms=now_ms) if each.is_due)

    def lost_count(self) -> int:
        """Return how many runs are lost: runs are numbered from 1, and removed ones leave their row."""
        with self._database.read_transaction() as connection:
            numbers = {number for (number,) in connection.execute("SELECT number FROM runs NOT INDEXED")}
            (last,) = connection.execute("SELECT max(place) FROM entries").fetchone()
        return max([*numbers, (last or 0) // SPAN], default=0) - len(numbers)

    # -- the inbox -------------------------------------------------------------------------------------------------

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox, even while another process holds the run. Raises UnknownRunError, StoreError."""
        self._written_inboxes += 1
        with self._database.write_transaction() as connection:
            store_rows.post(connection, self._row(connection, run).number, message)

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages that wait in a run's inbox, in the order they were posted."""

        def read_messages(connection: sqlite3.Connection) -> tuple[InboxMessage, ...]:
            return store_rows.waiting_messages(connection, self._row(connection, run).number, run)

        connection, of_others, _ = (
            self._database.stamp()
        )  # asked for often, and our own commits of entries change no inbox
        stamp = connection, of_others, self._written_inboxes
        return self._latest("inbox", run, stamp, read_messages)

    def outcome_of(self, message: str) -> str | None:
        """Return the outcome of a message, by its id; None while it waits. Raises StoreError if there is no such message."""
        with self._database.read_transaction() as connection:
            return store_rows.outcome_of(connection, message)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _latest(self, name: str, run: str, stamp: tuple[object, ...], read: Callable[[sqlite3.Connection], T]) -> T:
        """Return the cached result of `read` while the stamp stays the same."""
        entry = self._cache.get((name, run))
        if entry is None or entry[0] != stamp:
            with self._database.read_transaction() as connection:
                entry = self._cache[name, run] = stamp, read(connection)
        latest: T = entry[1]
        return latest

    def _row(self, connection: sqlite3.Connection, run: str) -> RunRow:
        columns = connection.execute(_ROW, (run,)).fetchone()
        if columns is None:
            raise self._unknown(run)
        row = RunRow(*columns[:-1])
        row.require_sound(columns[-1])
        if row.machine == REMOVED_MACHINE:
            raise self._unknown(run)
        return row

    def _unknown(self, run: str) -> UnknownRunError:
        return UnknownRunError(f"{self._path}: there is no run {run}")

    def _summaries(self, connection: sqlite3.Connection, run: str | None = None) -> list[RunSummary]:
        query, values = (_ENDS, {}) if run is None else (_END_OF, {"run": run})
        messages, living_holder = store_rows.counts(connection), lru_cache(self._database.living_holder)
        with without_collector():
            rows = connection.execute(query, {"span": SPAN, "end": END, **values}).fetchall()
            return [
                _run_summary(row, living_holder, messages.get(row[0], 0)) for row in rows if not _is_removed(row[:6])
            ]


class SqliteJournal:
    """The right to write one run of a SqliteStore."""

    def __init__(self, store: SqliteStore, row: RunRow, end: EndRow) -> None:
        self._store, self._row, self._end = store, row, end

    @property
    def run(self) -> str:
        """The run's id."""
        return self._row.run

    @property
    def epoch(self) -> int:
        """How often the run has had a writer."""
        return self._row.epoch

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._end.head

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries, the summary and the outcomes of messages, all or nothing; durable when this returns. Raises as `Journal.append`."""
        if entries or summary is not None or outcomes:
            commit = StoreCommit(self._row.run, self._end, entries, _line(summary))
            self._store.append(self._row, commit, outcomes)
            self._end = commit.after

    def release(self, summary: Summary | None = None) -> bool:
        """Give up the right to write as `Journal.release` does."""
        rests = summary is not None and summary.status == "waiting"
        return self._store.release(self._row, StoreCommit(self._row.run, self._end, (), _line(summary)), rests=rests)


def _line(summary: Summary | None) -> str | None:
    return None if summary is None else summary_line(summary)


def _is_removed(columns: tuple[Any, ...]) -> bool:
    """Return whether this is the row of a removed run; a row that was changed to look like one does not count."""
    return columns[2] == REMOVED_MACHINE and RunRow(*columns[:-1]).is_sound(columns[-1])


def _run_summary(columns: tuple[Any, ...], living_holder: Callable[[str], str | None], messages: int) -> RunSummary:
    """Return a run's summary from its row and the one that seals its end."""
    row = RunRow(*columns[:5])
    try:
        row.require_sound(columns[5])
        end = end_in(columns[6:] if isinstance(columns[6], int) else (), row.run, row.epoch)
        holder = None if row.holder is None else living_holder(row.holder)
        return RunSummary(row.run, end.length, summary_of(end.summary), holder, messages=messages)
    except DamageError as fault:
        return RunSummary(str(row.run), 0, Summary(), damage=fault.reason)
