"""A store that is only read, or may not be written, shows every commit, also those that are only in a killed writer's log."""

import os
import shutil
import signal
import subprocess
import sys

import ordinary_user
import pytest
from artifact_runs import open_files

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run_store import InboxMessage, StoreError, Summary

WRITER = """
import os, pathlib, signal, sys
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.run_store import InboxMessage, Summary
from dsa.runtime.ledger import EventEntry
store = SqliteStore(pathlib.Path(sys.argv[1]))
journal = store.create("r1", "# door", [])
for number in range(9):
    journal.append([EventEntry(number, "e")], Summary(status="waiting", state=str(number)))
store.post("r1", InboxMessage("m1", "told"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(tmp_path):
    """Return the path of a store that consists of an empty file and a log."""
    path = tmp_path / "runs" / "ledger.db"
    done = subprocess.run([sys.executable, "-c", WRITER, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("ledger.db-wal").stat().st_size > path.stat().st_size
    return path


def require_all_of_it(store):
    assert len(store.read("r1").entries) == len(store.read_after("r1", 0)) == store.version("r1") == 9
    assert (store.summary("r1").summary.state, store.summary("r1").status) == ("8", "due")
    assert [message.id for message in store.waiting_messages("r1")] == ["m1"]
    assert (store.runs(), store.due(0), store.lost_count(), store.outcome_of("m1")) == (("r1",), ("r1",), 0, None)


def without_index(path):
    """Prevent SQLite from finding an index of the log, and from making one."""
    index = path.with_name("ledger.db-shm")
    index.unlink(missing_ok=True)
    index.symlink_to("nowhere")


@pytest.mark.parametrize("without", [lambda _: None, without_index], ids=["in place", "as a copy"])
def test_read_only_store_shows_every_commit_of_a_killed_writer(killed, without):
    without(killed)
    before, files = killed.read_bytes(), open_files()
    with SqliteStore(killed, read_only=True) as store:
        require_all_of_it(store)
    assert (killed.read_bytes(), open_files()) == (before, files)


@pytest.mark.parametrize("without", [lambda _: None, without_index], ids=["in place", "as a copy"])
def test_read_only_store_writes_nothing(killed, without):
    without(killed)
    with SqliteStore(killed, read_only=True) as store:
        for write in (
            lambda: store.create("r2", "", []),
            lambda: store.hold("r1"),
            lambda: store.post("r1", InboxMessage("m2", "told")),
            lambda: store.remove("r1"),
        ):
            with pytest.raises(StoreError, match=r"ledger\.db: cannot be written: it was opened for reading only"):
                write()
        require_all_of_it(store)


def test_read_only_store_follows_a_writer(tmp_path):
    with SqliteStore(tmp_path / "ledger.db") as writer, SqliteStore(tmp_path / "ledger.db", read_only=True) as reader:
        journal = writer.create("r1", "# door", [])
        for number in range(3):
            journal.append([EventEntry(number, "e")], Summary(state=str(number)))
            assert (reader.version("r1"), reader.summary("r1").summary.state) == (number + 1, str(number))
            assert (reader.summary("r1").status, reader.summary("r1").holder) == ("under way", reader.read("r1").holder)


def test_copy_is_refreshed_when_the_file_has_changed(killed):
    aside = killed.with_name("aside")
    without_index(killed)
    with SqliteStore(killed, read_only=True) as reader:
        assert reader.version("r1") == 9
        shutil.copytree(killed.parent, aside, ignore=shutil.ignore_patterns("*-shm"))
        with SqliteStore(aside / "ledger.db") as writer:
            writer.hold("r1")[0].append([EventEntry(9, "e")])
            for name in ("ledger.db", "ledger.db-wal"):
                shutil.copy(aside / name, killed.with_name(name))
        assert (reader.version("r1"), len(reader.read("r1").entries)) == (10, 10)


def test_missing_file_cannot_be_opened_for_reading(tmp_path):
    with pytest.raises(StoreError, match=r"ledger\.db: cannot be read: No such file or directory"):
        SqliteStore(tmp_path / "ledger.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_other_files_cannot_be_opened_for_reading(tmp_path):
    (tmp_path / "ledger.db").write_text("no database " * 100)
    before = open_files()
    with pytest.raises(StoreError, match="file is not a database"):
        SqliteStore(tmp_path / "ledger.db", read_only=True)
    assert open_files() == before


@pytest.mark.parametrize("index", ["as it was left", "gone"])
def test_read_only_folder_shows_every_commit_of_a_killed_writer(killed, index):
    """The reader is another user, because root may write everywhere; it opens the store as usual."""
    if index == "gone":
        killed.with_name("ledger.db-shm").unlink()
    for path in (killed.parent, *killed.parent.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    opened = [path for path in killed.parents if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o1]
    modes = {path: path.stat().st_mode for path in opened}
    try:
        for path in opened:
            path.chmod(modes[path] | 0o1)
        told = ordinary_user.run("read_only_reader.py", killed, is_root=False)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert told == "r1 9 entries, due, 1 message\ncannot be written: its folder or the file itself is read-only\n"
