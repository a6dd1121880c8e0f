"""The durable store alone: several processes, faults, growth, other programs' files."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from copy import copy

import pytest

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry, MachineEntry
from dsa.runtime.run_store import HeldError, InboxMessage, LeaseLostError, StoreError, Summary

FIRST = MachineEntry("r1", "door", "0" * 64)
CHILD = """
import sys, pathlib
from dsa.edge.stores.sqlite_store import SqliteStore
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


def test_run_held_by_another_process_is_refused(path, child):
    with SqliteStore(path) as store:
        with pytest.raises(HeldError, match=rf"run r1 is held by process {child.pid} on "):
            store.hold("r1")
        assert str(child.pid) in store.read("r1").holder


def test_run_of_a_killed_process_can_be_held_at_once(path, child):
    child.kill()
    child.wait()
    with SqliteStore(path) as store:
        assert store.read("r1").holder is None
        journal, found = store.hold("r1")
        assert [entry.event for entry in found.entries[1:]] == ["child"]
        journal.append([event(2)])
    assert [each.name for each in path.with_name("ledger.db-holders").iterdir()] == []


def test_stalled_process_whose_run_was_taken_over_cannot_write(path, child):
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


def test_writer_unsure_of_its_last_commit_does_not_overwrite_it(path):
    """This happens after Ctrl-C between the commit and the update of the values in memory."""
    with SqliteStore(path) as store:
        journal, _ = store.hold("r1")
        interrupted = copy(journal)
        journal.append([event(1, "a")])
        for data in ("b", "b" * 10_000):
            with pytest.raises(LeaseLostError):
                interrupted.append([event(1, data)])
        journal.append([event(2, "c")], Summary(status="finished"))
        interrupted.release(Summary(status="interrupted"))
        assert list(store.read("r1").entries) == [FIRST, event(1, "a"), event(2, "c")]
        assert (store.summary("r1").status, store.read("r1").holder) == ("finished", None)


def test_several_processes_write_different_runs_of_one_file(tmp_path):
    writer = """
import sys, pathlib
from dsa.edge.stores.sqlite_store import SqliteStore
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


def test_messages_posted_by_several_processes_to_a_held_run_all_arrive(path, child):
    sender = """
import sys, pathlib
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.run_store import InboxMessage
with SqliteStore(pathlib.Path(sys.argv[1])) as store:
    for number in range(100):
        store.post("r1", InboxMessage(f"{sys.argv[2]} {number}", "told", data=number))
        store.post("r1", InboxMessage(f"both {number}", "told", data=number))
"""
    for process in [subprocess.Popen([sys.executable, "-c", sender, path, name]) for name in ("one", "other")]:
        assert process.wait(timeout=60) == 0
    with SqliteStore(path) as store:
        waiting = store.waiting_messages("r1")
        assert str(child.pid) in store.read("r1").holder
    assert sorted(message.id for message in waiting) == sorted(
        f"{name} {number}" for name in ("one", "other", "both") for number in range(100)
    )
    for name in ("one", "other", "both"):
        assert [message.data for message in waiting if message.id.startswith(name)] == list(range(100))


def test_polling_sees_what_another_process_writes(path):
    with SqliteStore(path) as store, SqliteStore(path) as other:
        assert (store.version("r1"), store.waiting_messages("r1")) == (1, ())
        journal, _ = other.hold("r1")
        journal.append([event(1)])
        assert store.version("r1") == 2
        other.post("r1", InboxMessage("m1", "told"))
        assert [message.id for message in store.waiting_messages("r1")] == ["m1"]
        journal.append([event(2)], outcomes=[("m1", "null")])
        assert (store.version("r1"), store.waiting_messages("r1")) == (3, ())


REMOVER = """
import os, pathlib, signal, sys
from dsa.edge.stores.sqlite_store import SqliteStore
store, killed_at, seen = SqliteStore(pathlib.Path(sys.argv[1])), int(sys.argv[2]), 0
def statement(_):
    global seen
    seen += 1
    if seen == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
store._database._connection.set_trace_callback(statement)
store.remove("r1")
print(seen)
"""


def test_run_whose_removal_was_killed_is_there_or_gone(path):
    with SqliteStore(path) as store:
        journal, _ = store.hold("r1")
        journal.append([event(1, "long " * 2_000)], Summary(status="finished"))
        store.post("r1", InboxMessage("m1", "told"))
        journal.release()
        whole = list(store.read("r1").entries)
    kept, gone = 0, 0
    while True:
        command = [sys.executable, "-c", REMOVER, path, str(kept + 1)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        with SqliteStore(path) as store:
            assert store.lost_count() == 0
            if store.runs() == ():
                gone += 1
                break
            kept += 1
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert (list(store.read("r1").entries), store.summary("r1").messages) == (whole, 1)
            assert store.summary("r1").summary.status == "finished"
    assert (done.returncode, done.stdout, gone) == (0, f"{kept}\n", 1)
    assert kept > 4


def test_removed_run_does_not_count_as_lost(path):
    with SqliteStore(path) as store:
        store.create("r2", "# door", [FIRST]).release()
        store.remove("r2")
        store.remove("r1")
        assert (store.lost_count(), store.runs()) == (0, ())
        assert store.create("r3", "", []).run == "r3"
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM runs WHERE run = 'r1'")
    other.close()
    with SqliteStore(path) as store:
        assert store.lost_count() == 1


def test_store_is_unusable_after_a_fault(path):
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
    with pytest.raises(StoreError, match=r"runs cannot be stored here: (Not a directory|File exists)"):
        SqliteStore(tmp_path / "text.db" / "ledger.db")


def test_file_grows_with_new_text_and_not_with_repetitions(tmp_path):
    def size(path, lengths):
        with SqliteStore(path) as store:
            journal = store.create("r1", "", [])
            for number, length in enumerate(lengths):
                journal.append([event(number, ["conversation " * length])])
        return path.stat().st_size

    few, many = size(tmp_path / "few.db", range(100, 200)), size(tmp_path / "many.db", range(100, 500))
    assert many < 9 * few  # 9 times as much text
    assert size(tmp_path / "same.db", [1_000] * 1_000) < 400_000  # 13 MB if each were stored again


def test_copied_store_can_be_held(tmp_path, path):
    with SqliteStore(path) as store:
        store.hold("r1")
        shutil.copytree(path.parent, tmp_path / "copy")
    with SqliteStore(tmp_path / "copy" / path.name) as copied:
        journal, _ = copied.hold("r1")
        assert journal.epoch == 3


def test_writer_that_lost_its_lease_cannot_write(path):
    with SqliteStore(path) as store, SqliteStore(path) as other:
        first, _ = store.hold("r1")
        second, _ = other.hold("r1", take=True)
        with pytest.raises(LeaseLostError):
            first.append([event(1)])
        second.append([event(1)])
