"""A small durable store to be damaged: as it was written, another one like it, and functions that edit copies of it."""

import pytest
from artifact_runs import memory_folder
from damaged_stores import FIRST, RUNS, Original, append, read, rows, write

from dsa.edge.stores.sqlite_store import SqliteStore


@pytest.fixture(scope="module")
def folder():
    with memory_folder() as found:
        yield found


@pytest.fixture(scope="module")
def original(folder):
    path = folder / "original.db"
    return Original(write(path), read(path))


@pytest.fixture(scope="module")
def other(folder):
    """Return the path of a store that is the same for two thirds and then differs."""
    path = folder / "other.db"
    with SqliteStore(path) as store:
        for run in RUNS:
            journal = store.create(run, f"# text of {run}", [FIRST])
            append(journal, run, length=2)
            append(journal, run, start=2, length=1, said="another")
            journal.release()
    return path


@pytest.fixture
def after(folder, original):
    """Return a function that edits a new copy of the store and returns the runs that then cannot be read."""
    return lambda edit: original.after(folder / "copy.db", edit)


@pytest.fixture
def stored(folder, original):
    """Return a function that returns the rows of a table, as they were written."""
    return lambda table: rows(folder / "original.db", table)
