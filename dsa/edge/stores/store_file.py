"""The file of the durable store: its tables, its transactions, and the locks that say who is alive and who writes.

The locks are advisory file locks, which the kernel drops when a process ends, however it ends. They work between processes and containers that share
a folder, on POSIX. A `Holder` is a living writer of runs; a `WriteTurn` lets one process write at a time.

After an error in a write a handle is dead, since after a failed fsync the state of the disk is unknown. Open the file again to find out.
"""

import getpass
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from dsa.edge.files import folders_above, sync_folder, try_lock, unlock
from dsa.runtime.run_store import DamageError, StoreError

_PAUSE_S = 0.0005


class Holder:
    """A process that may write runs: alive until its process ends or it is closed.

    `name` names the process, and no two holders ever have the same name. Make a holder only during a `WriteTurn`: it first removes what killed
    holders have left behind.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for left in folder.iterdir():
            is_alive(folder, left.name)
        self.name = f"process {os.getpid()} on {socket.gethostname().replace('/', '_')} ({token_hex(6)})"
        self._path = folder / self.name
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try_lock(self._file)

    def close(self) -> None:
        """End the holder's life."""
        _remove(self._path)
        os.close(self._file)


def is_alive(folder: Path, name: str) -> bool:
    """Return whether a holder is alive, or may be. The file of a dead one is removed where possible."""
    try:
        file = os.open(folder / name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's; that user's next process removes it if its holder is dead
        return True
    try:
        # Shared: two processes that check at once do not see each other as the holder.
        lives = not try_lock(file, is_shared=True)
        if not lives:
            _remove(folder / name)
        return lives
    finally:
        os.close(file)


def _remove(path: Path) -> None:
    """Remove a holder's file. On a failing disk it stays, which does no harm, because it is no longer locked."""
    with suppress(OSError):
        path.unlink()


def this_process() -> str:
    """Return `USER@HOST (process NUMBER)` for this process; only HOST if the user has no name."""
    user = ""
    with suppress(ImportError, KeyError, OSError):
        user = f"{getpass.getuser()}@"
    return f"{user}{socket.gethostname()} (process {os.getpid()})"


class WriteTurn:
    """The right to write a file, one process at a time.

    SQLite would take turns by itself, but some of its versions (3.7.0 to 3.51.2) can damage a file when one connection writes while another
    one checkpoints; here they never do both at once. A wait of more than `patience_s` raises an error: a process that is stopped (SIGSTOP)
    while it writes would make all others wait. An `is_shared` turn only keeps others from writing.
    """

    def __init__(self, path: Path, patience_s: float, *, is_shared: bool = False) -> None:
        self._path, self._patience_s, self._is_shared = path, patience_s, is_shared
        self._file = os.open(path, os.O_RDONLY) if is_shared else os.open(path, os.O_RDWR | os.O_CREAT, 0o666)

    def take(self) -> None:
        """Wait for the turn. Raises TimeoutError."""
        deadline_s = time.monotonic() + self._patience_s
        while not try_lock(self._file, is_shared=self._is_shared):
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"another process has been writing to the file for {self._patience_s:g} s; is that process stopped? "
                    f"`fuser {self._path}` shows which process has the file open; let that process continue, or end it"
                )
            time.sleep(_PAUSE_S)

    def give_back(self) -> None:
        """Let the next process write."""
        unlock(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


_APPLICATION, _VERSION = 0x64736131, 4
_BUSY_MS = 60_000
_TABLES = """
CREATE TABLE runs (number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, machine BLOB NOT NULL, epoch INTEGER NOT NULL,
  holder TEXT, seal BLOB NOT NULL);
CREATE TABLE entries (place INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, short INTEGER NOT NULL, line TEXT NOT NULL, link BLOB NOT NULL);
CREATE TABLE contents (address BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE inbox (number INTEGER PRIMARY KEY, message TEXT NOT NULL UNIQUE, run INTEGER NOT NULL, line TEXT NOT NULL,
  outcome TEXT, seal BLOB NOT NULL);
CREATE INDEX waiting ON inbox (run) WHERE outcome IS NULL;
"""


#: A file that changed less than this ago may change again with the same time of change.
_TICK_NS = 10**9


class _Snapshot:
    """A file that is only read, with every commit in its write-ahead log, also those of a killed writer.

    SQLite reads such a file itself if the log and its index can be used. If not, a copy of both is read, and copied again when
    they have changed: SQLite's `immutable` would silently leave out what is only in the log. `require` raises if a connection has opened
    another program's file.
    """

    def __init__(
        self, path: Path, lock_path: Path, patience_s: float, require: Callable[[sqlite3.Connection, Path], object]
    ) -> None:
        self._path, self._log = path, path.with_name(f"{path.name}-wal")
        self._lock_path, self._patience_s, self._require = lock_path, patience_s, require
        self._copy: TemporaryDirectory[str] | None = None
        self._copied_at: tuple[object, ...] = ()
        self._connection: sqlite3.Connection | None = self._open()

    def current(self) -> sqlite3.Connection:
        """Return a connection that sees every commit up to now. Raises OSError or sqlite3.Error."""
        if self._connection is None or (self._copy is not None and self._copied_at != self._stamp()):
            self.close()
            self._connection = self._open()
        return self._connection

    def close(self) -> None:
        """Close the file, and remove the copy if there is one."""
        if self._connection is not None:
            self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()
        self._connection = self._copy = None

    def _open(self) -> sqlite3.Connection:
        self._path.stat()
        with suppress(sqlite3.OperationalError):  # SQLite needs an index of the log, but can neither use nor make one
            return self._require_valid(
                sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
            )
        self._copy = TemporaryDirectory(prefix="dsa-snapshot-")
        try:
            return self._require_valid(sqlite3.connect(self._copy_to(Path(self._copy.name)), isolation_level=None))
        except BaseException:
            self._copy.cleanup()
            raise

    def _require_valid(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._require(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _copy_to(self, folder: Path) -> Path:
        """Copy file and log while no process writes them."""
        turn = (
            WriteTurn(self._lock_path, self._patience_s, is_shared=True)
            if os.access(self._lock_path, os.R_OK)
            else None
        )
        try:
            if turn is not None:
                turn.take()
            self._copied_at = self._stamp()
            shutil.copyfile(self._path, folder / self._path.name)
            with suppress(FileNotFoundError):
                shutil.copyfile(self._log, folder / self._log.name)
        finally:
            if turn is not None:
                turn.close()
        return folder / self._path.name

    def _stamp(self) -> tuple[object, ...]:
        """Return a value that differs after a change of the file or its log. Right after a change it differs from every other stamp."""
        stamp: list[object] = []
        for path in (self._path, self._log):
            with suppress(FileNotFoundError):
                about = path.stat()
                stamp += (about.st_ino, about.st_size, about.st_mtime_ns)
                if time.time_ns() - about.st_mtime_ns < _TICK_NS:
                    stamp.append(object())
        return tuple(stamp)


class StoreFile:
    """The file as one process has it open: for writing, or for reading only if `read_only` or if it may not be written.

    Raises StoreError if the file cannot be opened or belongs to another program.
    """

    def __init__(self, path: Path, patience_s: float, *, read_only: bool) -> None:
        self.path = path
        self._holders = path.with_name(f"{path.name}-holders")
        self._connection: sqlite3.Connection | None = None
        self._snapshot: _Snapshot | None = None
        self._is_asked = read_only
        try:
            if read_only or (path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))):
                self._snapshot = _Snapshot(path, self._lock_path, patience_s, _require_ours)
            else:
                self._open_to_write(patience_s)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as fault:  # SQLite quotes damaged names in its messages
            problem = "cannot be read" if read_only else "runs cannot be stored here"
            raise StoreError(f"{path}: {problem}: {_reason(fault)}") from fault

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}-lock")

    def _open_to_write(self, patience_s: float) -> None:
        with ExitStack() as undone:
            _make_folder(self.path)
            self._turn = WriteTurn(self._lock_path, patience_s)
            undone.callback(self._turn.close)
            with self._its_turn():
                self._holder = Holder(self._holders)
                undone.callback(self._holder.close)
                self._connection = _open_file(self.path)
            self._resources = undone.pop_all()

    def close(self) -> None:
        """Release all runs, and close the file."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
            return
        if self._connection is not None:
            with suppress(StoreError), self._its_turn():  # closing may checkpoint
                self._close_connection()
        self._resources.close()

    # -- writers ---------------------------------------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """The name of this process as a writer."""
        self._require_writable()
        return self._holder.name

    def living_holder(self, holder: str | None) -> str | None:
        """Return the name of a writer if it is alive."""
        return holder if holder is not None and is_alive(self._holders, holder) else None

    # -- transactions ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the file can still be used: it was not closed, and no write has failed."""
        return self._connection is not None or self._snapshot is not None

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a durable transaction, and commit it or undo it. After a fault of SQLite the handle is dead."""
        connection = self._require_writable()
        with self._its_turn():
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as fault:
                self._give_up(fault)
                raise

    def write_at_once(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Write one statement, which is a transaction by itself, as `write_transaction` does."""
        connection = self._require_writable()
        self._take_turn()
        try:
            write(connection)
        except BaseException as fault:
            self._give_up(fault)
            raise
        finally:
            self._turn.give_back()

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that sees one state of the file, even while another process writes it."""
        try:
            connection = self._current()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:  # some faults end it
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as fault:
            kind = StoreError if isinstance(fault, sqlite3.OperationalError) else DamageError
            raise kind(f"{self.path}: cannot be read: {_reason(fault)}") from fault

    def stamp(self) -> tuple[object, object, int]:
        """Return a value that stays the same until the file is written: the connection, and counters of other processes' commits and of its own.

        This takes microseconds.
        """
        try:
            connection = self._current()
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as fault:
            raise StoreError(f"{self.path}: cannot be read: {_reason(fault)}") from fault
        return connection, version, connection.total_changes

    def _current(self) -> sqlite3.Connection:
        try:
            return self._require_open() if self._snapshot is None else self._snapshot.current()
        except OSError as fault:
            raise StoreError(f"{self.path}: cannot be read: {_reason(fault)}") from fault

    def _require_open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path}: this handle is closed; open the file again")
        return self._connection

    def _require_writable(self) -> sqlite3.Connection:
        if self._snapshot is not None:
            reason = (
                "it was opened for reading only" if self._is_asked else "its folder or the file itself is read-only"
            )
            raise StoreError(f"{self.path}: cannot be written: {reason}")
        return self._require_open()

    def _give_up(self, fault: BaseException) -> None:
        """Undo an unfinished write. After an error of SQLite the handle is dead; raise StoreError or DamageError."""
        connection = self._connection
        if isinstance(fault, sqlite3.Error | UnicodeDecodeError):
            self._close_connection()
            if not isinstance(fault, sqlite3.OperationalError):
                raise DamageError(f"{self.path}: {_reason(fault)}") from fault
            raise StoreError(f"{self.path}: cannot be written: {_reason(fault)}") from fault
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
        """Wait for the turn. If it does not come in time, the file is closed; nothing is checkpointed then, since the writer has it open."""
        try:
            self._turn.take()
        except TimeoutError as fault:
            self._close_connection()
            raise StoreError(f"{self.path}: cannot be written: {fault}") from fault

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _open_file(path: Path) -> sqlite3.Connection:
    """Open the file, or make it, and check that it is a store."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)
    try:
        _make_ready(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_ready(connection: sqlite3.Connection, path: Path) -> None:
    is_new = _require_ours(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":  # SQLite would continue without it, and a power cut could undo acknowledged writes
        raise StoreError(
            f"{path}: SQLite cannot make a write-ahead log here; is the disk failing, or on another machine?"
        )
    if is_new:
        numbers = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {numbers} {_TABLES} COMMIT")
    connection.execute("PRAGMA synchronous = FULL")


def _require_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Raise StoreError unless the file is one of this version; return whether it is empty."""
    connection.execute("PRAGMA cell_size_check = ON")
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    is_new = (application, version) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if not is_new and application != _APPLICATION:
        raise StoreError(f"{path}: this is another program's database")
    if not is_new and version != _VERSION:
        raise StoreError(
            f"{path}: written by another version of dsa (format {version}, this version reads format {_VERSION}); store new runs in another folder"
        )
    return is_new


def _make_folder(path: Path) -> None:
    """Make the folder of a new file, and sync all names that lead there, because SQLite syncs only the names in the folder itself.

    A process that made the folder may have been killed before it synced them, so they are synced until the file exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        for folder in folders_above(path.parent):
            sync_folder(folder)


def _reason(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
