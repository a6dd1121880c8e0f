"""Locks of the store: which holders are alive, and which of several writers may write."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_runs import open_files

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.edge.stores.store_file import Holder, WriteTurn, is_alive
from dsa.runtime.run_store import StoreError

KILLED = """
import os, signal, sys, pathlib
from dsa.edge.stores.sqlite_store import SqliteStore
SqliteStore(pathlib.Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_holder_is_alive_until_it_is_closed(tmp_path):
    holder = Holder(tmp_path / "holders")
    assert is_alive(tmp_path / "holders", holder.name)
    holder.close()
    assert not is_alive(tmp_path / "holders", holder.name)
    assert names(tmp_path / "holders") == []


def test_files_of_killed_processes_are_removed_and_those_of_live_ones_are_not(tmp_path):
    path = tmp_path / "ledger.db"
    holders = tmp_path / "ledger.db-holders"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    with SqliteStore(path):
        [alive] = names(holders)
        with SqliteStore(path):
            assert alive in names(holders)
            assert len(names(holders)) == 2
    assert names(holders) == []


def test_concurrent_liveness_checks_do_not_mistake_each_other_for_the_holder(tmp_path):
    (tmp_path / "dead").touch()
    with (tmp_path / "dead").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_alive(tmp_path, "dead")


def test_closed_holder_is_dead_even_if_its_file_cannot_be_removed(tmp_path, monkeypatch):
    holder = Holder(tmp_path / "holders")

    def refuse(_path, **_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", refuse)
        holder.close()
        assert not is_alive(tmp_path / "holders", holder.name)
    assert not is_alive(tmp_path / "holders", holder.name)


def test_timeout_of_a_waiting_writer_says_what_to_do(tmp_path):
    first, second = WriteTurn(tmp_path / "lock", 0), WriteTurn(tmp_path / "lock", 0.01)
    first.take()
    refusal = r"another process has been writing to the file for 0.01 s; is that process stopped\? `fuser .*/lock` shows which"
    with pytest.raises(TimeoutError, match=refusal):
        second.take()
    first.give_back()
    second.take()
    first.close()
    second.close()


def test_store_that_fails_to_open_leaves_no_file_open(tmp_path):
    (tmp_path / "ledger.db").write_text("no database " * 100)
    before = open_files()
    for _ in range(3):
        with pytest.raises(StoreError, match="file is not a database"):
            SqliteStore(tmp_path / "ledger.db")
    assert open_files() == before
    assert names(tmp_path / "ledger.db-holders") == []


def test_store_that_times_out_waiting_to_write_is_closed_at_once(tmp_path):
    path = tmp_path / "ledger.db"
    before = open_files()
    with SqliteStore(path, lock_patience_s=0.01) as store:
        journal = store.create("r1", "", [])
        file = os.open(tmp_path / "ledger.db-lock", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(
            StoreError, match=r"cannot be written: another process has been writing to the file for 0.01 s"
        ):
            store.hold("r1", take=True)
        journal.release()
    os.close(file)
    assert open_files() == before
    with SqliteStore(path) as store:
        assert store.read("r1").holder is None
