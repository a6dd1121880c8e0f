"""The durable store's write-ahead log: it is always there, and written back during a run."""

import sqlite3

import pytest

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run_store import StoreError


def mode_of(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


def test_file_without_a_log_gets_one(tmp_path):
    """`VACUUM INTO`, as people copy databases, leaves it out."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy" / "ledger.db"
    copy.parent.mkdir()
    with SqliteStore(path) as store:
        store.create("r1", "# door", []).release()
    connection = sqlite3.connect(path)
    connection.execute(f"VACUUM INTO '{copy}'")
    connection.close()
    assert mode_of(copy) == "delete"
    with SqliteStore(copy) as store:
        store.hold("r1")
        assert mode_of(copy) == "wal"


def test_locked_file_gets_no_log_and_stores_no_run(tmp_path):
    """SQLite would continue without one, and would not sync the end of a transaction."""
    path = tmp_path / "ledger.db"
    with SqliteStore(path) as store:
        store.create("r1", "# door", []).release()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"runs cannot be stored here: database is locked"):
        SqliteStore(path, lock_patience_s=0)
    connection.close()


def test_log_is_written_back_during_a_run(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteStore(path) as store:
        journal = store.create("r1", "# door", [])
        for number in range(60):
            journal.append([EventEntry(number, "specification", data=f"{number:07}" * 60_000)])
        log_bytes = path.with_name("ledger.db-wal").stat().st_size
        assert path.stat().st_size > 16_000_000
        assert log_bytes < 8_000_000
