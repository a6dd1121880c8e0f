"""The durable store: one SQLite file with many runs, each written by one holder at a time.

An append is one statement and one transaction with one fsync (WAL, `synchronous=FULL`). Hashes chain the rows and seal every other number, so that a
change made behind the store's back is noticed when it is read.

A run has one row for itself, one for each commit, and one that seals its end. The hash of a commit's row covers the row before. The sealing row comes
after the last commit, so that an append changes one page of the file; it also has the summary, so that a list of runs decodes no entries.

Large texts are stored apart from their lines, once, under their SHA-256: a conversation that each line repeats is stored once.

An inbox has the messages of a run, waiting or taken, with their outcomes. Each is sealed by a hash. If a message is deleted behind the store's back,
only its sender misses it.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from dsa.edge.stores.store_file import StoreFile
from dsa.immutable import without_collector
from dsa.runtime.json_text import json_string, value_of
from dsa.runtime.ledger import Entry, Ledger, commit_entries
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
    commit_line,
    first_link,
    message_line,
    message_of,
    next_link,
    summary_line,
    summary_of,
)

#: Lines up to this length stay as they are; in longer ones, texts from the second length on are stored apart (characters).
LONG_LINE, LONG_TEXT = 4_096, 1_024
_KEY = re.compile(r"\$+content")
#: A reference, and a key that looks like one, in a line. Quotes in texts are escaped, so neither matches inside a text.
_REFERENCE = re.compile(r'\{"\$content":"([0-9a-f]{64})"\}')
_ESCAPED_KEY = re.compile(r'([{,]")\$(\$+content":)')


def address(text: str) -> bytes:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def apart(line: str) -> tuple[str, dict[bytes, str]]:
    """Return a line with references in place of its large texts, and these texts by address. A short line stays unchanged."""
    if len(line) <= LONG_LINE:
        return line, {}
    texts: dict[bytes, str] = {}

    def short(value: object) -> object:
        if isinstance(value, str) and len(value) >= LONG_TEXT:
            texts[address(value)] = value
            return {"$content": address(value).hex()}
        if isinstance(value, dict):
            return {f"${key}" if _KEY.fullmatch(key) else key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    short_line = _dumps(short(json.loads(line)))
    return (short_line, texts) if texts else (line, {})


def together(line: str, quoted_at: Callable[[bytes], str]) -> str:
    """Undo `apart`; `quoted_at` returns the text at an address, as JSON."""
    whole = _REFERENCE.sub(lambda match: quoted_at(bytes.fromhex(match[1])), line)
    return _ESCAPED_KEY.sub(r"\1\2", whole) if _ESCAPED_KEY.search(line) else whole


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


#: The place of a row of entries is its run's number times this, plus its position. One number keeps rows of a page's size on one page.
SPAN = 2**36
#: The position of the row that seals the end of a run.
END = SPAN - 1
#: Written in the row of a removed run in place of its machine's address.
REMOVED_MACHINE = b""

RUN_COLUMNS = "number, run, machine, epoch, holder"
_END_LINE = re.compile(r"(\d+) ([0-9a-f]{64}) (.*)", re.DOTALL)
_ADD = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)"
_ADD_BOTH = f"{_ADD}, (?, ?, ?, ?, ?)"
_SEAL_QUERY = "SELECT link FROM entries WHERE place = ?"
_ROWS = "SELECT place, epoch, short, line, link FROM entries WHERE place BETWEEN ? AND ? ORDER BY place"
_LAST_BEFORE = "SELECT place, link FROM entries WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 2"
_Columns = tuple[Any, ...]
_NO_ROW = (0, 0, 0, "", b"")
#: How many rows are decoded at once.
_BATCH = 100


@attrs.frozen
class RunRow:
    """A run's row in the table of runs."""

    number: int
    run: str
    machine: bytes
    epoch: int
    holder: str | None

    @property
    def seal(self) -> bytes:
        """The hash of the whole row."""
        text = f"{self.number} {self.epoch} {self.machine.hex()} {self.holder!r} {self.run}"
        return hashlib.sha256(text.encode()).digest()

    def is_sound(self, seal: object) -> bool:
        """Return whether the seal matches the row; a damaged row may hold anything."""
        kinds = (type(self.number), type(self.run), type(self.machine), type(self.epoch))
        return kinds == (int, str, bytes, int) and self.seal == seal

    def require_sound(self, seal: object) -> None:
        """Raise DamageError unless the seal matches the row."""
        if not self.is_sound(seal):
            raise DamageError("its row in the table of runs was changed", str(self.run))

    def replace(self, connection: sqlite3.Connection, after: "RunRow") -> None:
        """Write another row in place of this one. Raises LeaseLostError if this one has been replaced."""
        values = (after.machine, after.epoch, after.holder, after.seal, self.number, self.epoch)
        update = "UPDATE runs SET machine = ?, epoch = ?, holder = ?, seal = ? WHERE number = ? AND epoch = ?"
        if connection.execute(update, values).rowcount != 1:
            raise LeaseLostError(self.run)


class EndRow:
    """The end of a run: the number of entries, the hash of the last commit, the summary's line, and their seal."""

    __slots__ = ("epoch", "head", "length", "number", "seal", "summary")

    def __init__(self, number: int, epoch: int, length: int, head: bytes, summary: str = "") -> None:
        self.number, self.epoch, self.length, self.head, self.summary = number, epoch, length, head, summary
        self.seal = hashlib.sha256(b"%d %d %d %b%b" % (number, epoch, length, head, summary.encode())).digest()

    @property
    def place(self) -> int:
        """The place of the row."""
        return self.number * SPAN + END

    def columns(self) -> _Columns:
        """Return the row."""
        return self.place, self.epoch, 0, f"{self.length} {self.head.hex()} {self.summary}", self.seal

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the row by itself."""
        connection.execute(_ADD, self.columns())

    def require(self, connection: sqlite3.Connection, run: str) -> None:
        """Raise LeaseLostError unless this is the end of the run.

        If it is not, another process is the writer now, or this one was interrupted (Ctrl-C) right after a commit.
        """
        if connection.execute(_SEAL_QUERY, (self.place,)).fetchone() != (self.seal,):
            raise LeaseLostError(run)


def end_in(columns: _Columns, run: str, epoch: int) -> EndRow:
    """Return the end of a run from its row, () if there is none. Raises DamageError unless the row is as it was written under the epoch."""
    place, _, _, line, _ = columns or _NO_ROW
    match = _END_LINE.fullmatch(line) if isinstance(line, str) else None
    if match is not None and place % SPAN == END and line.isascii():
        end = EndRow(place // SPAN, epoch, int(match[1]), bytes.fromhex(match[2]), match[3])
        if end.columns() == columns:
            return end
    raise DamageError("the row with the length and the hash of the run was changed", run)


# -- writing -------------------------------------------------------------------------------------------------------------


class StoreCommit:
    """Entries and a summary to be written at the end of a run. With None the previous summary stays."""

    __slots__ = ("_row", "after", "before", "run", "texts")

    def __init__(self, run: str, end: EndRow, entries: Sequence[Entry], summary: str | None) -> None:
        self.run, self.before = run, end
        summary_line = end.summary if summary is None else summary
        self.texts: dict[bytes, str] = {}
        self._row: _Columns = ()
        self.after = end
        if entries:
            line = commit_line(run, entries)
            link, (short, self.texts) = next_link(end.head, end.epoch, line), apart(line)
            self._row = (end.number * SPAN + end.length, end.epoch, bool(self.texts), short, link)
            self.after = EndRow(end.number, end.epoch, end.length + len(entries), link, summary_line)
        elif summary_line != end.summary:
            self.after = EndRow(end.number, end.epoch, end.length, end.head, summary_line)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write both rows in one statement. Raises LeaseLostError unless the run still ends where it did."""
        self.before.require(connection, self.run)
        if self._row:
            connection.execute(_ADD_BOTH, (*self._row, *self.after.columns()))
        elif self.after is not self.before:
            self.after.write(connection)


def store_texts(connection: sqlite3.Connection, texts: dict[bytes, str]) -> None:
    """Write the large texts that are not stored yet."""
    contents = [(at, text.encode("utf-8", "surrogatepass")) for at, text in texts.items()]
    connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", contents)


def delete_entries(connection: sqlite3.Connection, number: int) -> None:
    """Delete all entries of a run, and its end."""
    connection.execute("DELETE FROM entries WHERE place BETWEEN ? AND ?", (number * SPAN, number * SPAN + END))


# -- reading -------------------------------------------------------------------------------------------------------------


def read_run(
    connection: sqlite3.Connection, row: RunRow, snapshot: StoredRun | None = None
) -> tuple[StoredRun, EndRow]:
    """Read a run and its end. All links of its chain are verified, or those after the snapshot."""
    if snapshot is None or snapshot.run != row.run:
        text = content_at(connection, row.machine, row.run)
        snapshot = StoredRun(row.run, text, Ledger(), row.epoch, head=first_link(row.run, text))
    entries, end = _read_verified(connection, row, len(snapshot.entries), snapshot.head)
    return StoredRun(row.run, snapshot.text, snapshot.entries.extend(entries), row.epoch, row.holder, end.head), end


def entries_after(connection: sqlite3.Connection, row: RunRow, position: int) -> tuple[Entry, ...]:
    """Read the entries from a position on. Links are verified from the commit of that position."""
    first = row.number * SPAN
    last, *before = connection.execute(_LAST_BEFORE, (first, first + min(max(position, 0), END - 1))).fetchall() or [
        (first, b"")
    ]
    start = last[0] - first if before else 0
    link = before[0][1] if before else first_link(row.run, content_at(connection, row.machine, row.run))
    entries, _ = _read_verified(connection, row, start, link)
    return tuple(entries[max(position - start, 0) :])


def _read_verified(connection: sqlite3.Connection, row: RunRow, start: int, link: bytes) -> tuple[list[Entry], EndRow]:
    """Read a run's entries from the start of a commit on. `link` is the hash of the commit before."""
    first, position, count, entries = row.number * SPAN, start, 0, list[Entry]()
    with without_collector():
        *rows, end = connection.execute(_ROWS, (first + start, first + END)).fetchall() or [()]
        lines, head = _sound_lines(connection, row.run, rows, link)
        for (place, *_), value in zip(rows, _values(lines), strict=False):
            if place - first != position:
                break
            entries.extend(commit_entries(value))
            position, count = start + len(entries), count + 1
    if count < len(rows):
        raise DamageError("from this entry on, the stored run differs from what was written", row.run, position)
    end_row = end_in(end, row.run, row.epoch)
    if (end_row.length, end_row.head) != (position, head):
        raise DamageError(
            f"the end of the run differs from what was written; now the run has {position} entries", row.run
        )
    return entries, end_row


def _sound_lines(
    connection: sqlite3.Connection, run: str, rows: list[_Columns], link: bytes
) -> tuple[list[str], bytes]:
    """Return the lines of rows up to the first damaged one, and the hash of the last of them."""
    lines, quoted_at = list[str](), lru_cache(None)(lambda at: json_string(content_at(connection, at, run)))
    for _, epoch, is_short, line, row_link in rows:
        try:
            whole = together(line, quoted_at) if is_short else line
            computed_link = next_link(link, epoch, whole)
        except (ValueError, TypeError, AttributeError):  # the bytes of a damaged row may be anything
            break
        if computed_link != row_link:
            break
        lines.append(whole)
        link = computed_link
    return lines, link


def _values(lines: list[str]) -> Iterator[Any]:
    """Read many lines of JSON at once: this is quicker, and their keys share storage."""
    for begin in range(0, len(lines), _BATCH):
        yield from value_of(f"[{','.join(lines[begin : begin + _BATCH])}]")


def content_at(connection: sqlite3.Connection, at: bytes, run: str) -> str:
    """Return the text at an address. Raises DamageError."""
    row = connection.execute("SELECT content FROM contents WHERE address = ?", (at,)).fetchone()
    content = b"" if row is None or not isinstance(row[0], bytes) else row[0]
    if row is None or hashlib.sha256(content).digest() != at:
        raise DamageError(
            f"the stored text with the hash {at.hex()[:12]} is {'missing' if row is None else 'changed'}", run
        )
    return content.decode("utf-8", "surrogatepass")


_COLUMNS = "number, message, run, line, outcome, seal"
_Row = tuple[int, str, int, str, str | None, bytes]


def post_message(connection: sqlite3.Connection, number: int, message: InboxMessage) -> None:
    """Put a message into the inbox of a run, unless it is there already. Raises StoreError if it is too long, or for another message with that id."""
    row = _find(connection, message.id)
    if row is not None:
        if row[2] != number or not message_of(row[3]).repeats(message):
            raise StoreError(f"the id {message.id} belongs to a different message: use a new id for a new message")
        return
    (last,) = connection.execute("SELECT max(number) FROM inbox").fetchone()
    _write(connection, ((last or 0) + 1, message.id, number, message_line(message), None))


def messages_waiting(connection: sqlite3.Connection, number: int, run: str) -> tuple[InboxMessage, ...]:
    """Return the messages that wait for a run, in the order they were posted."""
    query = f"SELECT {_COLUMNS} FROM inbox WHERE run = ? AND outcome IS NULL ORDER BY number"  # noqa: S608
    rows = [_require_sound(row, run) for row in connection.execute(query, (number,))]
    return tuple(message_of(row[3]) for row in rows)


def message_counts(connection: sqlite3.Connection) -> dict[int, int]:
    """Return how many messages wait, by the number of their run."""
    return dict(connection.execute("SELECT run, count(*) FROM inbox WHERE outcome IS NULL GROUP BY run"))


def take_messages(connection: sqlite3.Connection, number: int, run: str, outcomes: Sequence[MessageOutcome]) -> None:
    """Write the outcomes of messages that waited for a run. Raises StoreError if one is not waiting."""
    for message, outcome in outcomes:
        row = _find(connection, message)
        if row is None or row[2] != number or row[4] is not None:
            raise StoreError(f"message {message} is not waiting for run {run}; nothing was written")
        _write(connection, (*row[:4], outcome))


def message_outcome(connection: sqlite3.Connection, message: str) -> str | None:
    """Return the outcome of a message; None while it waits. Raises StoreError if no message has that id."""
    row = _find(connection, message)
    if row is None:
        raise StoreError(f"there is no message {message}; was its run removed?")
    return row[4]


def delete_rows(connection: sqlite3.Connection, number: int) -> None:
    """Delete all messages to a run."""
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))


def _find(connection: sqlite3.Connection, message: str) -> _Row | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM inbox WHERE message = ?", (message,)).fetchone()  # noqa: S608
    return None if row is None else _require_sound(row, None)


def _write(connection: sqlite3.Connection, row: tuple[int, str, int, str, str | None]) -> None:
    connection.execute("INSERT OR REPLACE INTO inbox VALUES (?, ?, ?, ?, ?, ?)", (*row, _seal(row)))


def _seal(row: Sequence[object]) -> bytes:
    return hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest()


def _require_sound(row: _Row, run: str | None) -> _Row:
    if _seal(row[:-1]) != row[-1]:
        raise DamageError(f"message {row[1]} was changed", run)
    return row


# --- the store ---

T = TypeVar("T")

_ROW = f"SELECT {RUN_COLUMNS}, seal FROM runs WHERE run = ?"  # noqa: S608
_ALL = f"SELECT {RUN_COLUMNS}, seal FROM runs NOT INDEXED ORDER BY number"  # noqa: S608
_NEW = f"INSERT INTO runs ({RUN_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
_END_OF = """SELECT runs.number, run, machine, runs.epoch, holder, seal, place, entries.epoch, short, line, link
  FROM runs LEFT JOIN entries ON place = number * :span + :end WHERE run = :run"""
_ENDS = _END_OF.replace("WHERE run = :run", "ORDER BY number").replace("FROM runs", "FROM runs NOT INDEXED")


class SqliteStore:
    """A `RunStore` in one file, which is made if it does not exist. Use it as a context manager, or `close` it.

    Use it in the thread that made it. `lock_patience_s` is how long it waits while other processes write. If it is `read_only`, or the file
    or its folder cannot be written, it shows every commit, and methods that write raise StoreError. Raises StoreError if the file cannot
    be opened or belongs to another program.
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
        """Begin a run. Raises StoreError if the id is or was in use."""
        with self._database.write_transaction() as connection:
            columns = connection.execute(_ROW, (run,)).fetchone()
            if columns is not None:
                was_removed = columns[2] == REMOVED_MACHINE
                raise StoreError(f"there {'was' if was_removed else 'is'} already a run with this id; use a new id")
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
            take_messages(connection, row.number, row.run, outcomes)
            store_texts(connection, commit.texts)
            commit.write(connection)

    def release(self, row: RunRow, commit: StoreCommit, *, rests: bool) -> bool:
        """Give up the right to write a run, unless it rests and has messages in its inbox; return whether this was done."""
        if not self._database.is_open:
            return True  # after a fault; the next process finds this holder dead
        with suppress(LeaseLostError), self._database.write_transaction() as connection:
            if rests and messages_waiting(connection, row.number, row.run):
                return False
            row.replace(connection, attrs.evolve(row, holder=None))
            # This process was interrupted before it knew of its last commit, so the summary belongs to another one.
            with suppress(LeaseLostError):
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
                delete_rows(connection, row.number)
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
        """Return the runs that have no holder and have something to do."""
        return tuple(each.run for each in self.summaries(now_ms=now_ms) if each.is_due)

    def lost_count(self) -> int:
        """Return how many runs are lost: runs are numbered from 1, and removed ones keep their row."""
        with self._database.read_transaction() as connection:
            numbers = {number for (number,) in connection.execute("SELECT number FROM runs NOT INDEXED")}
            (last,) = connection.execute("SELECT max(place) FROM entries").fetchone()
        return max([*numbers, (last or 0) // SPAN], default=0) - len(numbers)

    # -- the inbox -------------------------------------------------------------------------------------------------

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox, even while another process holds the run. Raises UnknownRunError, StoreError."""
        self._written_inboxes += 1
        with self._database.write_transaction() as connection:
            post_message(connection, self._row(connection, run).number, message)

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages that wait in a run's inbox, in the order they were posted."""

        def read_messages(connection: sqlite3.Connection) -> tuple[InboxMessage, ...]:
            return messages_waiting(connection, self._row(connection, run).number, run)

        # Called often, and our own commits of entries do not change an inbox.
        connection, of_others, _ = self._database.stamp()
        stamp = connection, of_others, self._written_inboxes
        return self._latest("inbox", run, stamp, read_messages)

    def outcome_of(self, message: str) -> str | None:
        """Return the outcome of a message, by its id; None while it waits. Raises StoreError if there is no such message."""
        with self._database.read_transaction() as connection:
            return message_outcome(connection, message)

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
        messages, living_holder = message_counts(connection), lru_cache(self._database.living_holder)
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
        """How many writers the run has had."""
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
