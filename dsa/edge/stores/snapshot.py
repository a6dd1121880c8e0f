"""A snapshot of a store that may not be written: every commit in its file and in its write-ahead log, also that of a killed writer.

SQLite reads such a file itself where the log and its index can be used. Where they cannot, a copy of both is read, and made anew when
they have changed: SQLite's `immutable` would leave out without a word what stands only in the log.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from dsa.edge.stores.locks import Turn

#: A file that was changed this short a time ago may have been changed again without another time of change.
_TICK_NS = 10**9


class Snapshot:
    """A file that is only read. `require` raises if the file that a connection has open is not the right one."""

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
        with suppress(sqlite3.OperationalError):  # SQLite needs an index of the log, and can neither use nor make one
            return self._required(
                sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
            )
        self._copy = TemporaryDirectory(prefix="dsa-snapshot-")
        try:
            return self._required(sqlite3.connect(self._copied(Path(self._copy.name)), isolation_level=None))
        except BaseException:
            self._copy.cleanup()
            raise

    def _required(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._require(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _copied(self, folder: Path) -> Path:
        """Copy file and log while nobody writes them."""
        turn = Turn(self._lock_path, self._patience_s, shared=True) if os.access(self._lock_path, os.R_OK) else None
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
        """Return what differs after a change of the file or its log. What was changed just now is equal to nothing."""
        found: list[object] = []
        for path in (self._path, self._log):
            with suppress(FileNotFoundError):
                about = path.stat()
                found += (about.st_ino, about.st_size, about.st_mtime_ns)
                if time.time_ns() - about.st_mtime_ns < _TICK_NS:
                    found.append(object())
        return tuple(found)
