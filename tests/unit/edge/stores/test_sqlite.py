"""The durable store alone: several processes, damage, growth, other programs' files."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.journal import DamageError, HeldError, LeaseLostError, StoreError
from dsa.runtime.ledger import EventEntry, MachineEntry

FIRST = MachineEntry("r1", "door", "0" * 64)
CHILD = """
import sys, pathlib
from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.ledger import EventEntry
store = SqliteStore(pathlib.Path(sys.argv[1]))
journal, _ = store.hold("r1")
journal.append([EventEntry(1, "child")])
print("held", flush=True)
sys.stdin.readline()
try:
    journal.append([EventEntry(2, "late")])
    print("wrote", flush=True)
except Exception as fault:
    print(type(fault).__name__, flush=True)
"""


def event(number, data=None):
    return EventEntry(number, "specification", data=data)


def events_of(path):
    with SqliteStore(path) as store:
        return [entry.event for entry in store.read("r1").entries[1:]]


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "ledger.db"
    with SqliteStore(found) as store:
        store.create("r1", "# door", [FIRST]).release()
    return found


@pytest.fixture
def child(path):
    command = [sys.executable, "-c", CHILD, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_run_that_another_process_holds_is_refused(path, child):
    with SqliteStore(path) as store:
        with pytest.raises(HeldError, match=rf"run r1 is held by process {child.pid} on "):
            store.hold("r1")
        assert str(child.pid) in store.read("r1").holder


def test_a_run_of_a_killed_process_goes_on_at_once(path, child):
    child.kill()
    child.wait()
    with SqliteStore(path) as store:
        assert store.read("r1").holder is None
        journal, found = store.hold("r1")
        assert [entry.event for entry in found.entries[1:]] == ["child"]
        journal.append([event(2)])
    assert [each.name for each in path.with_name("ledger.db-holders").iterdir()] == []


def test_a_stalled_process_that_was_taken_over_cannot_write(path, child):
    os.kill(child.pid, signal.SIGSTOP)
    with SqliteStore(path) as store:
        journal, _ = store.hold("r1", take=True)
        journal.append([EventEntry(2, "taker")])
        os.kill(child.pid, signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "LeaseLostError\n"
        with pytest.raises(HeldError), SqliteStore(path) as other:
            other.hold("r1")
    assert events_of(path) == ["child", "taker"]


def test_several_processes_write_different_runs_of_one_file(tmp_path):
    writer = """
import sys, pathlib
from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.ledger import EventEntry
with SqliteStore(pathlib.Path(sys.argv[1])) as store:
    journal = store.create(sys.argv[2], "text", [])
    for number in range(200):
        journal.append([EventEntry(number, "e")])
"""
    path = tmp_path / "new" / "ledger.db"
    names = [f"r{number}" for number in range(4)]
    for process in [subprocess.Popen([sys.executable, "-c", writer, path, name]) for name in names]:
        assert process.wait(timeout=60) == 0
    with SqliteStore(path) as store:
        assert [len(store.read(name).entries) for name in names] == [200] * 4


def test_a_store_is_of_no_use_after_a_fault(path):
    with SqliteStore(path) as store:
        journal, _ = store.hold("r1")
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE entries")
        with pytest.raises(StoreError, match="cannot be written: no such table: entries"):
            journal.append([event(1)])
        with pytest.raises(StoreError, match="this handle is closed; open the file again"):
            journal.append([event(1)])
        journal.release()


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        SqliteStore(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="this is another program's database"):
        SqliteStore(tmp_path / "other.db")
    with pytest.raises(StoreError, match=r"no runs can be kept here: (Not a directory|File exists)"):
        SqliteStore(tmp_path / "text.db" / "ledger.db")


def filled(path, *, runs=2, length=12):
    with SqliteStore(path) as store:
        for run in range(runs):
            journal = store.create(f"run {run}", f"# text of {run}", [FIRST])
            for number in range(length):
                journal.append(
                    [event(number, f"data {run} {number}"), event(number, "long " * 1_000 + str(number % 2))]
                )
            journal.release()
    assert not path.with_name(f"{path.name}-wal").exists()
    return all_of(path)


def all_of(path):
    with SqliteStore(path) as store:
        return [store.read(run) for run in store.runs()]


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entries WHERE run = 1 AND position = 5",
        "DELETE FROM entries WHERE run = 1 AND position = 24",
        "DELETE FROM entries WHERE run = 2",
        "UPDATE entries SET position = 99 WHERE run = 1 AND position = 5",
        "UPDATE entries SET line = (SELECT line FROM entries WHERE run = 2 AND position = 1) WHERE run = 1 AND position = 1",
        "UPDATE entries SET run = run + 10; UPDATE entries SET run = 13 - run",
        "UPDATE entries SET epoch = 7 WHERE position = 3",
        "UPDATE entries SET short = 1 - short WHERE position = 2",
        "UPDATE entries SET link = zeroblob(32) WHERE position = 2",
        "UPDATE runs SET run = 'run 9' WHERE number = 1",
        "UPDATE runs SET length = length - 1, head = (SELECT link FROM entries WHERE run = number AND position = 23)",
        "UPDATE runs SET epoch = 9",
        "UPDATE runs SET machine = (SELECT machine FROM runs WHERE number = 2) WHERE number = 1",
        "UPDATE contents SET content = x'00' || content",
        "DELETE FROM contents",
        "UPDATE runs SET head = x'' WHERE number = 1",
    ],
)
def test_an_edited_row_is_noticed(tmp_path, edit):
    path = tmp_path / "ledger.db"
    filled(path)
    with sqlite3.connect(path) as other:
        other.executescript(edit)
    with pytest.raises(DamageError):
        all_of(path)


def test_a_changed_byte_is_noticed_or_changes_nothing(tmp_path):
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    written = filled(path)
    content = path.read_bytes()
    chance = random.Random(4)
    noticed = 0
    for _ in range(600):
        at = chance.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= chance.randrange(1, 256)
        copy.write_bytes(damaged)
        for beside in ("-wal", "-shm"):
            copy.with_name(copy.name + beside).unlink(missing_ok=True)
        try:
            assert all_of(copy) == written, f"byte {at}"
        except StoreError:
            noticed += 1
    assert noticed > 100


def test_the_file_grows_with_what_is_said_and_not_with_how_often(tmp_path):
    def size(path, lengths):
        with SqliteStore(path) as store:
            journal = store.create("r1", "", [])
            for number, length in enumerate(lengths):
                journal.append([event(number, ["conversation " * length])])
        return path.stat().st_size

    few, many = size(tmp_path / "few.db", range(100, 200)), size(tmp_path / "many.db", range(100, 500))
    assert many < 9 * few  # what is said is 9 times as much
    assert size(tmp_path / "same.db", [1_000] * 1_000) < 400_000  # 13 MB were they kept each time


def test_a_copied_store_can_be_held(tmp_path, path):
    with SqliteStore(path) as store:
        store.hold("r1")
        shutil.copytree(path.parent, tmp_path / "copy")
    with SqliteStore(tmp_path / "copy" / path.name) as copied:
        journal, _ = copied.hold("r1")
        assert journal.epoch == 3


def test_a_writer_is_not_fooled_by_a_row_it_does_not_hold(path):
    with SqliteStore(path) as store, SqliteStore(path) as other:
        first, _ = store.hold("r1")
        second, _ = other.hold("r1", take=True)
        with pytest.raises(LeaseLostError):
            first.append([event(1)])
        second.append([event(1)])
