"""Changed bytes in a store's file and in its write-ahead log: a reader gets what was written, or a beginning of it, or an error.

The last tests are changes that no store can notice, since nothing outside of it remembers.
"""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from damaged_stores import FIRST, event, place, put, read, rows, write

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.run_store import StoreError, UnknownRunError


def require_noticed_or_the_same(original, path, places, pattern):
    """Flip bits of single bytes of the file; return how often that was noticed."""
    noticed = 0
    for at in places:
        damaged = bytearray(original.content)
        damaged[at] ^= pattern(at)
        place(path, damaged)
        noticed += bool(original.noticed(path))
    return noticed


def test_changed_byte_of_the_file_is_noticed_or_changes_nothing(folder, original):
    chance = random.Random(4)
    places = chance.sample(range(len(original.content)), 600)
    assert require_noticed_or_the_same(original, folder / "copy.db", places, lambda _: chance.randrange(1, 256)) > 100


@pytest.mark.full
@pytest.mark.parametrize("pattern", [0x01, 0x02, 0x80, 0xFF], ids=hex)
def test_every_changed_byte_of_the_file_is_noticed_or_changes_nothing(folder, original, pattern):
    places = range(len(original.content))
    assert require_noticed_or_the_same(original, folder / "copy.db", places, lambda _: pattern) > 10_000


def test_truncated_file_is_noticed(folder, original):
    chance = random.Random(5)
    lengths = {
        *range(0, len(original.content), 4096),
        *(chance.randrange(len(original.content)) for _ in range(60)),
    } - {0}
    for length in lengths:
        place(folder / "copy.db", original.content[:length])
        assert original.noticed(folder / "copy.db")


# -- the write-ahead log ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(folder):
    """Return file and log as a killed process leaves them, and what it had written."""
    path = folder / "crashed.db"
    with SqliteStore(path) as store:
        journal = store.create("run 0", "# text", [FIRST])
        for number in range(2):
            journal.append([event(number), event(number, "more")])
        content, log = path.read_bytes(), path.with_name("crashed.db-wal").read_bytes()
        return content, log, list(store.read("run 0").entries)


def require_beginning(path, crashed, log):
    """Require that a reader gets a beginning of what was written; return its length, or None after an error."""
    content, _, written = crashed
    place(path, content, log)
    try:
        with SqliteStore(path) as store:
            if not store.runs():
                return 0
            found = list(store.read("run 0").entries)
    except StoreError:
        return None
    assert found == written[: len(found)]
    return len(found)


def lengths_left(path, crashed, places, chance):
    for number, at in enumerate(places):
        damaged = bytearray(crashed[1])
        damaged[at] ^= 1 << chance.randrange(8)
        yield require_beginning(path, crashed, damaged)
        if number % 16 == 0:
            yield require_beginning(path, crashed, crashed[1][:at])


def test_changed_log_of_a_crash_leaves_a_beginning(folder, crashed):
    """SQLite treats a changed log as one that was not written to its end."""
    chance = random.Random(6)
    found = set(lengths_left(folder / "copy.db", crashed, chance.sample(range(len(crashed[1])), 150), chance))
    assert {0, 1, 3} == found
    assert require_beginning(folder / "copy.db", crashed, crashed[1]) == 5
    assert require_beginning(folder / "copy.db", crashed, None) == 0, (
        "without the log there is not even the first entry"
    )


@pytest.mark.full
@pytest.mark.parametrize("part", range(2))
def test_every_changed_log_of_a_crash_leaves_a_beginning(folder, crashed, part):
    places = range(part, len(crashed[1]), 2)
    assert {0, 1, 3} == set(lengths_left(folder / "copy.db", crashed, places, random.Random(part)))


# -- unnoticeable changes --------------------------------------------------------------------------------------------------


def test_older_copy_of_the_file_is_accepted(tmp_path):
    path = tmp_path / "ledger.db"
    write(path)
    shutil.copy(path, tmp_path / "older.db")
    older = read(path)
    with SqliteStore(path) as store:
        journal, _ = store.hold("run 0")
        journal.append([event(9, "acknowledged")])
        journal.release()
    shutil.copy(tmp_path / "older.db", path)
    assert read(path) == older


def test_run_removed_with_all_its_rows_is_missed_only_when_it_is_read(after, folder):
    def remove(store):
        store.executescript("DELETE FROM runs WHERE number = 2; DELETE FROM entries WHERE place >> 36 = 2")

    assert after(remove) == {"run 1"}
    with SqliteStore(folder / "copy.db") as store, pytest.raises(UnknownRunError):
        store.read("run 1")


def test_rewritten_run_is_accepted_as_the_old_one(folder, original, other):
    """All of it is rewritten, hashes included: the seal contains no secret."""
    path = folder / "copy.db"
    place(path, original.content)
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        for table in ("runs", "entries"):
            for key, columns in rows(other, table):
                put(store, table, key, columns)
    assert read(path) == read(other) != original.runs
