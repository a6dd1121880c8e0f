"""The file of the durable store: made where there is none, opened, and seen to be ours.

Takes a path, gives a connection that syncs what it commits. What stands in the tables, `dsa.edge.stores.sqlite` says.
"""

import sqlite3
from pathlib import Path

from dsa.edge.folders import folders_above, sync_folder
from dsa.runtime.journal import StoreError

_APPLICATION, _VERSION = 0x64736131, 3
_BUSY_MS = 60_000
_TABLES = """
CREATE TABLE runs (number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, machine BLOB NOT NULL, epoch INTEGER NOT NULL,
  holder TEXT, seal BLOB NOT NULL);
CREATE TABLE entries (place INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, short INTEGER NOT NULL, line TEXT NOT NULL, link BLOB NOT NULL);
CREATE TABLE contents (address BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
"""


def opened(path: Path) -> sqlite3.Connection:
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
    is_new = (application, version) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if not is_new and application != _APPLICATION:
        raise StoreError(f"{path}: this is another program's database")
    if not is_new and version != _VERSION:
        raise StoreError(f"{path}: written by another version of dsa (format {version}, this one reads {_VERSION})")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":  # SQLite would go on without, and a power cut could undo what was acknowledged
        raise StoreError(f"{path}: no write-ahead log can be made here; is the disk failing, or on another machine?")
    if is_new:
        numbers = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {numbers} {_TABLES} COMMIT")
        sync_folder(path.parent)
    connection.execute("PRAGMA synchronous = FULL")


def make_folder(path: Path) -> None:
    """Make the folder of a new file, with all names that lead there on the disk: SQLite syncs only what stands in the folder itself.

    Who made the folder may have been killed before; so the names are synced as long as the file is not there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        for folder in folders_above(path.parent):
            sync_folder(folder)
