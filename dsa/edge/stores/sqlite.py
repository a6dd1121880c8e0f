"""The durable store: one SQLite file with many runs, each written by one holder at a time.

An append is one row and one transaction with one fsync (WAL, `synchronous=FULL`). Rows are chained by hashes, and every other number is
sealed by one: what was changed since it was written is noticed when it is read. The row that seals the end of a run stands behind its last
entries, so that an append changes one page of the file. After an error a handle is dead, because after a failed fsync nobody knows what is on
the disk; open the file again to see.
"""

import gc
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import attrs

from dsa.edge.stores.contents import address, apart, together
from dsa.edge.stores.locks import Holder, Turn, is_alive
from dsa.edge.stores.opening import make_folder, opened
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
from dsa.runtime.json_text import value_of
from dsa.runtime.ledger import Entry, Ledger, dump_line, from_json

_COLUMNS = "number, run, machine, epoch, holder"
#: A row of entries stands at its run's number times this, plus its position: one number, so that rows of a page's size fit on a page.
_SPAN = 2**36
#: The position of the row that seals the end of a run.
_END = _SPAN - 1


@attrs.frozen
class _Row:
    """A run's row in the table of runs."""

    number: int
    run: str
    machine: bytes
    epoch: int
    holder: str | None

    @property
    def seal(self) -> bytes:
        said = f"{self.number} {self.epoch} {self.machine.hex()} {self.holder!r} {self.run}"
        return hashlib.sha256(said.encode()).digest()

    def is_sound(self, seal: object) -> bool:
        """Tell whether this is what was sealed; a damaged row may hold anything."""
        kinds = zip((self.number, self.run, self.machine, self.epoch), (int, str, bytes, int), strict=True)
        return all(isinstance(value, kind) for value, kind in kinds) and self.seal == seal


class _End:
    """The end of a run: how many entries there are, the hash of the last, and what seals this."""

    __slots__ = ("epoch", "head", "length", "number", "seal")

    def __init__(self, number: int, epoch: int, length: int, head: bytes) -> None:
        self.number, self.epoch, self.length, self.head = number, epoch, length, head
        self.seal = hashlib.sha256(b"%d %d %d %b" % (number, epoch, length, head)).digest()

    def row(self) -> tuple[int | str | bytes, ...]:
        """Give the row of entries that says so."""
        return self.number * _SPAN + _END, self.epoch, 0, str(self.length), self.seal


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
                make_folder(path)
                self._turn = Turn(path.with_name(f"{path.name}-lock"), lock_patience_s)
                undone.callback(self._turn.close)
                with self._its_turn():
                    self._holder = Holder(self._holders)
                    undone.callback(self._holder.close)
                    self._connection = opened(path)
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
        with self._writing() as connection:
            _keep(connection, {address(text): text})
            new = (run, address(text), 1, self._holder.name)
            try:
                cursor = connection.execute(
                    "INSERT INTO runs (run, machine, epoch, holder, seal) VALUES (?, ?, ?, ?, x'')", new
                )
            except sqlite3.IntegrityError:
                raise _TakenError from None
            row = _Row(int(cursor.lastrowid or 0), *new)
            _seal(connection, row, row)
            nothing = _End(row.number, row.epoch, 0, first_link(run, text))
            connection.execute(_ADD, nothing.row())
            end, texts, written = _next(nothing, entries)
            _keep(connection, texts)
            _append(connection, run, nothing, written)
        return SqliteJournal(self, row, end)

    def hold(self, run: str, *, take: bool = False) -> tuple["SqliteJournal", Recorded]:
        """Become the writer of a run; `take` takes it from one that is alive. Raises UnknownRunError, HeldError, DamageError."""
        with self._writing() as connection:
            row = self._row(connection, run)
            if row.holder is not None and not take and is_alive(self._holders, row.holder):
                raise HeldError(run, row.holder)
            with _uncollected():
                recorded, head = _recorded(connection, row)
            ours = attrs.evolve(row, epoch=row.epoch + 1, holder=self._holder.name)
            _seal(connection, row, ours)
            end = _End(ours.number, ours.epoch, len(recorded.entries), head)
            connection.execute(_ADD, end.row())
        return SqliteJournal(self, ours, end), attrs.evolve(recorded, epoch=ours.epoch, holder=ours.holder)

    def read(self, run: str) -> Recorded:
        """Read a run, whoever writes it. Raises UnknownRunError or DamageError."""
        with self._reading() as connection:
            row = self._row(connection, run)
            with _uncollected():
                found, _ = _recorded(connection, row)
        alive = row.holder is not None and is_alive(self._holders, row.holder)
        return found if alive else attrs.evolve(found, holder=None)

    def runs(self) -> tuple[str, ...]:
        """Give the ids of all runs, in the order they were begun; read from the rows themselves, since nothing seals an index."""
        with self._reading() as connection:
            rows = connection.execute("SELECT number, run FROM runs NOT INDEXED")
            return tuple(run for _, run in sorted((number, str(run)) for number, run in rows))

    def lost(self) -> int:
        """Tell how many runs were kept here and are no longer in the list: runs are numbered from 1 and never deleted."""
        with self._reading() as connection:
            numbers = {number for (number,) in connection.execute("SELECT number FROM runs NOT INDEXED")}
            (last,) = connection.execute("SELECT max(place) FROM entries").fetchone()
        return max([*numbers, (last or 0) // _SPAN], default=0) - len(numbers)

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
            except BaseException as fault:
                self._give_up(fault)
                raise

    def _give_up(self, fault: BaseException) -> None:
        """Undo what was not written to its end. What goes wrong in SQLite makes the handle dead, and is a StoreError."""
        connection = self._connection
        if isinstance(fault, sqlite3.Error | UnicodeDecodeError):
            self._close_connection()
            if not isinstance(fault, sqlite3.OperationalError):
                raise DamageError(f"{self._path}: {_said(fault)}") from fault
            raise StoreError(f"{self._path}: cannot be written: {_said(fault)}") from fault
        if connection is not None and connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    @contextmanager
    def _its_turn(self) -> Iterator[None]:
        """Write while no other process does."""
        self._take_turn()
        try:
            yield
        finally:
            self._turn.give_back()

    def _take_turn(self) -> None:
        """Wait for the turn. Who waits in vain closes the file: whoever has the turn has it open, so nothing is checkpointed."""
        try:
            self._turn.take()
        except TimeoutError as fault:
            self._close_connection()
            raise StoreError(f"{self._path}: cannot be written: {fault}") from fault

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

    def append(self, run: str, end: _End, entries: Sequence[Entry]) -> _End:
        """Write entries of a run after its end; give the end then."""
        after, texts, written = _next(end, entries)
        if texts:
            with self._writing() as connection:
                _keep(connection, texts)
                _append(connection, run, end, written)
            return after
        connection = self._require_open()
        self._take_turn()
        try:
            _append(connection, run, end, written)  # a transaction by itself
        except BaseException as fault:
            self._give_up(fault)
            raise
        finally:
            self._turn.give_back()
        return after

    def release(self, row: _Row) -> None:
        """Give up the right to write a run."""
        if self._connection is None:
            return  # after a fault; whoever comes next finds this holder dead
        with suppress(LeaseLostError), self._writing() as connection:
            _seal(connection, row, attrs.evolve(row, holder=None))


class SqliteJournal:
    """The right to write one run of a SqliteStore."""

    def __init__(self, store: SqliteStore, row: _Row, end: _End) -> None:
        self._store, self._row, self._end = store, row, end

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
            self._end = self._store.append(self._row.run, self._end, entries)

    def release(self) -> None:
        """Give up the right to write."""
        self._store.release(self._row)


class _TakenError(StoreError):
    def __init__(self) -> None:
        super().__init__("there is a run of that id already")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Make many objects, none of which is garbage: the collector would look through all of them again and again, for half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _recorded(connection: sqlite3.Connection, row: _Row) -> tuple[Recorded, bytes]:
    """Read a run and verify every link of its chain; give also the last."""
    text = _content(connection, row.machine, row.run)
    link, entries, found = first_link(row.run, text), list[Entry](), None
    first, last = row.number * _SPAN, row.number * _SPAN + _END
    rows = connection.execute(
        "SELECT place, epoch, short, line, link FROM entries WHERE place BETWEEN ? AND ? ORDER BY place", (first, last)
    )
    for place, epoch, is_short, line, written in rows:
        if place == last:
            found = (place, epoch, is_short, line, written)
            continue
        try:
            whole = together(line, lambda at: _content(connection, at, row.run)) if is_short else line
            link = next_link(link, epoch, whole)
        except (ValueError, TypeError, AttributeError, KeyError):
            link = b""  # the bytes of a damaged row may be anything
        if place - first != len(entries) or link != written:
            raise DamageError("from here on it is not what was written", row.run, len(entries))
        entries.extend(map(from_json, value_of(whole)))
    if found != _End(row.number, row.epoch, len(entries), link).row():
        raise DamageError(f"it ends otherwise than it was written: {len(entries)} entries are there", row.run)
    return Recorded(row.run, text, Ledger(entries), row.epoch, row.holder), link


def _content(connection: sqlite3.Connection, at: bytes, run: str) -> str:
    found = connection.execute("SELECT content FROM contents WHERE address = ?", (at,)).fetchone()
    content = b"" if found is None or not isinstance(found[0], bytes) else found[0]
    if found is None or hashlib.sha256(content).digest() != at:
        raise DamageError(f"the text under {at.hex()[:12]} is {'missing' if found is None else 'another one'}", run)
    return content.decode("utf-8", "surrogatepass")


#: What is written of more entries: a row that has them, and the one that seals the end after them.
_Written = tuple[int | str | bytes, ...]
_ADD = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)"
_ADD_BOTH = f"{_ADD}, (?, ?, ?, ?, ?)"
_SEALED = "SELECT link FROM entries WHERE place = ?"


def _next(end: _End, entries: Sequence[Entry]) -> tuple[_End, dict[bytes, str], _Written]:
    """Give the end of a run after more entries, the large texts of these, and what else is written of them."""
    if not entries:
        return end, {}, ()
    line = f"[{','.join(map(dump_line, entries))}]"
    link, (short, texts) = next_link(end.head, end.epoch, line), apart(line)
    after = _End(end.number, end.epoch, end.length + len(entries), link)
    place = end.number * _SPAN + end.length
    return after, texts, (place, end.epoch, bool(texts), short, link, *after.row())


def _append(connection: sqlite3.Connection, run: str, end: _End, written: _Written) -> None:
    """Write entries after the end of a run. Raises LeaseLostError when that is not its end.

    Then somebody else is the writer now, or this process was interrupted (Ctrl-C) after a commit, before it knew.
    """
    if connection.execute(_SEALED, (end.number * _SPAN + _END,)).fetchone() != (end.seal,):
        raise LeaseLostError(run)
    if written:
        connection.execute(_ADD_BOTH, written)


def _seal(connection: sqlite3.Connection, before: _Row, after: _Row) -> None:
    """Write a run's row in place of another. Raises LeaseLostError when that one is not there any more."""
    changed = (after.epoch, after.holder, after.seal, before.number, before.epoch)
    update = "UPDATE runs SET epoch = ?, holder = ?, seal = ? WHERE number = ? AND epoch = ?"
    if connection.execute(update, changed).rowcount != 1:
        raise LeaseLostError(before.run)


def _keep(connection: sqlite3.Connection, texts: dict[bytes, str]) -> None:
    contents = [(at, text.encode("utf-8", "surrogatepass")) for at, text in texts.items()]
    connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", contents)


def _said(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
