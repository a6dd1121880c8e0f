"""A small durable store, edits of its rows and bytes behind its back, and what must be true for every reader afterwards.

A reader gets what was written, or an error: nothing else may happen.
"""

import sqlite3
from contextlib import closing

import attrs

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry, MachineEntry
from dsa.runtime.run_store import StoreError, Summary

FIRST = MachineEntry("r", "door", "0" * 64)
RUNS = ("run 0", "run 1")
#: The key columns of each table.
KEYS = {"entries": ("place",), "contents": ("address",), "runs": ("number",)}


def event(number, data=None):
    return EventEntry(number, "specification", data=data)


def append(journal, run, start=0, length=3, said="data"):
    """Append short entries, each with a long one, whose text lies apart from it; both runs have texts in common."""
    for number in range(start, start + length):
        journal.append([event(number, f"{said} {run} {number}")])
        summary = Summary(status="waiting", state=said, machine=run, waits_for={"told": str(number)})
        journal.append([event(number, "long " * 1_000 + str(number % 2))], summary)


def write(path, **options):
    """Write a store with two runs."""
    with SqliteStore(path) as store:
        for run in RUNS:
            journal = store.create(run, f"# text of {run}", [FIRST])
            append(journal, run, **options)
            journal.release()
    assert not path.with_name(f"{path.name}-wal").exists()
    return path.read_bytes()


def read(path):
    """Read all runs."""
    with SqliteStore(path) as store:
        return {run: store.read(run) for run in RUNS}


@attrs.frozen
class Original:
    """A store as it was written: the bytes of its file, and what is in it."""

    content: bytes
    runs: dict

    def noticed(self, path):
        """Return the runs that cannot be read; require that all others are what was written."""
        try:
            with SqliteStore(path) as store:
                return {run for run in self.runs if self._is_noticed(store, run)}
        except StoreError:
            return set(self.runs)  # the file does not open

    def _is_noticed(self, store, run):
        try:
            found = store.read(run)
        except StoreError:
            return True
        assert found == self.runs[run], f"{run} is not what was written"
        return False

    def after(self, path, edit):
        """Write the file again, edit it, and return the runs that can neither be read nor held."""
        place(path, self.content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            edit(connection)
        noticed = self.noticed(path)
        with SqliteStore(path) as store:
            for run in noticed:
                try:
                    store.hold(run)
                except StoreError:
                    continue
                raise AssertionError(f"{run} can be taken up and not read")
        return noticed


def place(path, content, log=None):
    """Write a file, and the write-ahead log beside it when there is one."""
    path.write_bytes(content)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    if log is not None:
        path.with_name(f"{path.name}-wal").write_bytes(log)


def rows(content_path, table):
    """Return the rows of a table as pairs of its key and all its columns."""
    with closing(sqlite3.connect(content_path)) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
    return [({name: row[name] for name in KEYS[table]}, row) for row in found]


def where(key):
    return " AND ".join(f"{name} = :key_{name}" for name in key), {f"key_{name}": value for name, value in key.items()}


def put(connection, table, key, columns):
    """Write columns of one row."""
    condition, values = where(key)
    settings = ", ".join(f"{name} = :{name}" for name in columns)
    done = connection.execute(f"UPDATE {table} SET {settings} WHERE {condition}", {**columns, **values})
    assert done.rowcount == 1


def drop(connection, table, key):
    """Delete one row."""
    condition, values = where(key)
    assert connection.execute(f"DELETE FROM {table} WHERE {condition}", values).rowcount == 1


def add(connection, table, columns):
    """Insert a row."""
    names = ", ".join(f":{name}" for name in columns)
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({names})", columns)


def swap(connection, table, one, other, columns):
    """Exchange columns of two rows; each is a pair of key and columns. No name may occur twice, not even temporarily."""
    if "run" in columns and table == "runs":
        put(connection, table, one[0], {"run": "meanwhile"})
    put(connection, table, other[0], {name: one[1][name] for name in columns})
    put(connection, table, one[0], {name: other[1][name] for name in columns})


def flipped(value, bit):
    """Return a stored value with one bit flipped: of a number the bit itself, of text and bytes a bit of its bytes."""
    if isinstance(value, int):
        return value ^ (1 << bit)
    data = bytearray(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def bits(value):
    """Return how many bits of a stored value there are to flip."""
    if value is None:
        return 0
    return (
        16
        if isinstance(value, int)
        else 8 * len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    )
