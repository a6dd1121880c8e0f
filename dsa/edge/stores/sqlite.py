"""The durable store: one SQLite file with many runs, each written by one holder at a time.

An append is one transaction with one fsync (WAL, `synchronous=FULL`). Rows are chained by hashes, and every other number is
sealed by one: what was changed since it was written is noticed when it is read. After an error a handle is dead, because after a failed
fsync nobody knows what is on the disk; open the file again to see.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import attrs

from dsa.edge.stores.contents import address, apart, together
from dsa.edge.stores.locks import Holder, Turn, is_alive
from dsa.runtime.journal import (
    DamageError,
    HeldError,
    LeaseLostError,
    Recorded,
    StoreError,
    UnknownRunError,
    first_link,
    next_link,
)
from dsa.runtime.ledger import Entry, Ledger, dump_line, from_json

_APPLICATION, _VERSION = 0x64736131, 1
_BUSY_MS = 60_000
_TABLES = """
CREATE TABLE runs (number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, machine BLOB NOT NULL, epoch INTEGER NOT NULL,
  holder TEXT, length INTEGER NOT NULL, head BLOB NOT NULL, seal BLOB NOT NULL);
CREATE TABLE entries (run INTEGER NOT NULL, position INTEGER NOT NULL, epoch INTEGER NOT NULL, short INTEGER NOT NULL,
  line TEXT NOT NULL, link BLOB NOT NULL, PRIMARY KEY (run, position)) WITHOUT ROWID;
CREATE TABLE contents (address BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = "number, run, machine, epoch, holder, length, head"


@attrs.frozen
class _Row:
    """A run's row in the table of runs; `head` is the hash of its last entry."""

    number: int
    run: str
    machine: bytes
    epoch: int
    holder: str | None
    length: int
    head: bytes

    @property
    def seal(self) -> bytes:
        said = f"{self.number} {self.epoch} {self.length} {self.machine.hex()} {self.head.hex()} {self.holder!r} {self.run}"
        return hashlib.sha256(said.encode()).digest()

    def is_sound(self, seal: object) -> bool:
        """Tell whether this is what was sealed; a damaged row may hold anything."""
        kinds = zip(
            (self.number, self.run, self.machine, self.epoch, self.length, self.head),
            (int, str, bytes, int, int, bytes),
            strict=True,
        )
        return all(isinstance(value, kind) for value, kind in kinds) and self.seal == seal


class SqliteStore:
    """A `RunStore` in one file, which is made when there is none. Use it as a context manager, or `close` it.

    Its methods belong to the thread that made it. `lock_patience_s` is how long it waits while other processes write. Raises
    StoreError when the file cannot be opened or is another program's.
    """

    def __init__(self, path: Path, *, lock_patience_s: float = 60.0) -> None:
        self._path = path
        self._holders = path.with_name(f"{path.name}-holders")
        self._connection: sqlite3.Connection | None = None
        with ExitStack() as undone:
            try:
                _make_folder(path.parent)
                self._turn = Turn(path.with_name(f"{path.name}-lock"), lock_patience_s)
                undone.callback(self._turn.close)
                with self._its_turn():
                    self._holder = Holder(self._holders)
                    undone.callback(self._holder.close)
                    self._connection = _opened(path)
            except (OSError, sqlite3.Error, UnicodeDecodeError) as fault:  # SQLite quotes damaged names in its messages
                raise StoreError(f"{path}: no runs can be kept here: {_said(fault)}") from fault
            undone.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all that is held, and close the file."""
        if self._connection is not None:
            with suppress(StoreError), self._its_turn():  # closing may checkpoint
                self._close_connection()
        self._holder.close()
        self._turn.close()

    def create(self, run: str, text: str, entries: Sequence[Entry]) -> "SqliteJournal":
        """Begin a run. Raises StoreError when there is one of that id."""
        link = first_link(run, text)
        with self._writing() as connection:
            content = text.encode("utf-8", "surrogatepass")
            _keep(connection, {address(text): content})
            new = (run, address(text), 1, self._holder.name, 0, link, b"")
            try:
                cursor = connection.execute(
                    "INSERT INTO runs (run, machine, epoch, holder, length, head, seal) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    new,
                )
            except sqlite3.IntegrityError:
                raise _TakenError from None
            row = _Row(int(cursor.lastrowid or 0), *new[:-1])
            row = _appended(connection, row, entries)
        return SqliteJournal(self, row)

    def hold(self, run: str, *, take: bool = False) -> tuple["SqliteJournal", Recorded]:
        """Become the writer of a run; `take` takes it from one that is alive. Raises UnknownRunError, HeldError, DamageError."""
        with self._writing() as connection:
            row = self._row(connection, run)
            if row.holder is not None and not take and is_alive(self._holders, row.holder):
                raise HeldError(run, row.holder)
            recorded = _recorded(connection, row)
            before, row = row.epoch, attrs.evolve(row, epoch=row.epoch + 1, holder=self._holder.name)
            _write_row(connection, row, before)
        return SqliteJournal(self, row), attrs.evolve(recorded, epoch=row.epoch, holder=row.holder)

    def read(self, run: str) -> Recorded:
        """Read a run, whoever writes it. Raises UnknownRunError or DamageError."""
        with self._reading() as connection:
            row = self._row(connection, run)
            found = _recorded(connection, row)
        alive = row.holder is not None and is_alive(self._holders, row.holder)
        return found if alive else attrs.evolve(found, holder=None)

    def runs(self) -> tuple[str, ...]:
        """Give the ids of all runs, sorted."""
        with self._reading() as connection:
            return tuple(run for (run,) in connection.execute("SELECT run FROM runs ORDER BY run"))

    # -- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction, or none of it. What goes wrong while it is written makes the handle dead."""
        connection = self._require_open()
        with self._its_turn():
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except StoreError:  # somebody else's turn to write this run: this file is fine
                connection.execute("ROLLBACK")
                raise
            except (sqlite3.Error, UnicodeDecodeError) as fault:
                self._close_connection()
                if not isinstance(fault, sqlite3.OperationalError):
                    raise DamageError(f"{self._path}: {_said(fault)}") from fault
                raise StoreError(f"{self._path}: cannot be written: {_said(fault)}") from fault
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _its_turn(self) -> Iterator[None]:
        """Write while no other process does. Who waits in vain closes the file: whoever has the turn has it open, so nothing is checkpointed."""
        try:
            self._turn.take()
        except TimeoutError as fault:
            self._close_connection()
            raise StoreError(f"{self._path}: cannot be written: {fault}") from fault
        try:
            yield
        finally:
            self._turn.give_back()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = self._require_open()
        try:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:  # some faults end it
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as fault:
            kind = StoreError if isinstance(fault, sqlite3.OperationalError) else DamageError
            raise kind(f"{self._path}: cannot be read: {_said(fault)}") from fault

    def _require_open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self._path}: this handle is closed; open the file again")
        return self._connection

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _row(self, connection: sqlite3.Connection, run: str) -> _Row:
        found = connection.execute(f"SELECT {_COLUMNS}, seal FROM runs WHERE run = ?", (run,)).fetchone()  # noqa: S608
        if found is None:
            raise UnknownRunError(f"{self._path}: there is no run {run}")
        row = _Row(*found[:-1])
        if not row.is_sound(found[-1]):
            raise DamageError("what is kept about the run as a whole was changed", run)
        return row

    def append(self, row: _Row, entries: Sequence[Entry]) -> _Row:
        """Write entries of a run after `row`; give the row as it is then."""
        with self._writing() as connection:
            return _appended(connection, row, entries)

    def release(self, row: _Row) -> None:
        """Give up the right to write after `row`."""
        if self._connection is None:
            return  # after a fault; whoever comes next finds this holder dead
        with suppress(LeaseLostError), self._writing() as connection:
            _write_row(connection, attrs.evolve(row, holder=None), row.epoch)


class SqliteJournal:
    """The right to write one run of a SqliteStore."""

    def __init__(self, store: SqliteStore, row: _Row) -> None:
        self._store, self._row = store, row

    @property
    def run(self) -> str:
        """The run's id."""
        return self._row.run

    @property
    def epoch(self) -> int:
        """How often the run has had a writer."""
        return self._row.epoch

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none of them; they are durable when this returns. Raises LeaseLostError or StoreError."""
        if entries:
            self._row = self._store.append(self._row, entries)

    def release(self) -> None:
        """Give up the right to write."""
        self._store.release(self._row)


class _TakenError(StoreError):
    def __init__(self) -> None:
        super().__init__("there is a run of that id already")


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file, or make it; see that it is ours."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)
    try:
        _make_ready(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_ready(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA cell_size_check = ON")
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if (application, version) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        connection.execute("PRAGMA journal_mode = WAL")
        numbers = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {numbers} {_TABLES} COMMIT")
        _sync_folder(path.parent)
    elif application != _APPLICATION:
        raise StoreError(f"{path}: this is another program's database")
    elif version != _VERSION:
        raise StoreError(f"{path}: written by another version of dsa (format {version}, this one reads {_VERSION})")
    connection.execute("PRAGMA synchronous = FULL")


def _make_folder(folder: Path) -> None:
    """Make a folder, with its name on the disk: SQLite syncs the names of files, and cannot know that the folder is new."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _recorded(connection: sqlite3.Connection, row: _Row) -> Recorded:
    """Read a run and verify every link of its chain."""
    text = _content(connection, row.machine, row.run)
    link, entries = first_link(row.run, text), []
    rows = connection.execute(
        "SELECT position, epoch, short, line, link FROM entries WHERE run = ? ORDER BY position", (row.number,)
    )
    for expected, (position, epoch, is_short, line, written) in enumerate(rows):
        try:
            whole = together(line, lambda at: _content(connection, at, row.run)) if is_short else line
            link = next_link(link, epoch, whole)
        except (ValueError, TypeError, AttributeError, KeyError):
            link = b""  # the bytes of a damaged row may be anything
        if position != expected or link != written:
            raise DamageError("it is not what was written", row.run, expected)
        entries.append(from_json(json.loads(whole)))
    if len(entries) != row.length or link != row.head:
        raise DamageError(f"{row.length} entries were written, {len(entries)} are there", row.run)
    return Recorded(row.run, text, Ledger(entries), row.epoch, row.holder)


def _content(connection: sqlite3.Connection, at: bytes, run: str) -> str:
    found = connection.execute("SELECT content FROM contents WHERE address = ?", (at,)).fetchone()
    content = b"" if found is None or not isinstance(found[0], bytes) else found[0]
    if found is None or hashlib.sha256(content).digest() != at:
        raise DamageError(f"the text under {at.hex()[:12]} is {'missing' if found is None else 'another one'}", run)
    return content.decode("utf-8", "surrogatepass")


def _appended(connection: sqlite3.Connection, row: _Row, entries: Sequence[Entry]) -> _Row:
    """Write entries after those there are; give the run's row as it is then. Raises LeaseLostError."""
    written, link = [], row.head
    for position, line in enumerate(map(dump_line, entries), start=row.length):
        link = next_link(link, row.epoch, line)
        short, texts = apart(line)
        if texts:
            _keep(connection, {at: text.encode("utf-8", "surrogatepass") for at, text in texts.items()})
        written.append((row.number, position, row.epoch, bool(texts), short, link))
    after = attrs.evolve(row, length=row.length + len(written), head=link)
    _write_row(connection, after, row.epoch)
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", written)
    return after


def _write_row(connection: sqlite3.Connection, row: _Row, epoch: int) -> None:
    """Write a run's row in place of the one of this epoch. Raises LeaseLostError when there is none."""
    changed = (row.epoch, row.holder, row.length, row.head, row.seal, row.number, epoch)
    update = "UPDATE runs SET epoch = ?, holder = ?, length = ?, head = ?, seal = ? WHERE number = ? AND epoch = ?"
    if connection.execute(update, changed).rowcount != 1:
        raise LeaseLostError(row.run)


def _keep(connection: sqlite3.Connection, contents: dict[bytes, bytes]) -> None:
    connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", contents.items())


def _said(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
