"""Every store keeps runs in the same way: one writer, all or nothing, nothing changed on the way."""

from copy import copy

import pytest

from dsa.edge.stores.memory import MemoryStore
from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.journal import HeldError, LeaseLostError, StoreError, UnknownRunError
from dsa.runtime.ledger import EventEntry, MachineEntry, ResultEntry

FIRST = MachineEntry("r1", "door", "0" * 64)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    with SqliteStore(tmp_path / "ledger.db") as made:
        yield made


def said(text, number=1):
    return EventEntry(number, "specification", data=text)


def test_what_was_appended_is_read(store):
    journal = store.create("r1", "# door", [FIRST])
    journal.append([said("a"), said("b", 2)])
    journal.append([])
    found = store.read("r1")
    assert (found.run, found.text, list(found.entries)) == ("r1", "# door", [FIRST, said("a"), said("b", 2)])
    assert (journal.run, journal.epoch, found.epoch) == ("r1", 1, 1)
    assert found.holder is not None


def test_runs_are_listed_as_they_were_begun(store):
    for run in ("r2", "r1", "r3"):
        store.create(run, "", [])
    store.hold("r2", take=True)
    assert store.runs() == ("r2", "r1", "r3")


def test_an_id_is_used_once(store):
    store.create("r1", "# door", [FIRST])
    with pytest.raises(StoreError, match="there is a run of that id already"):
        store.create("r1", "# window", [])
    assert store.read("r1").text == "# door"


def test_what_is_not_there_is_said(store):
    with pytest.raises(UnknownRunError, match="there is no run r9"):
        store.read("r9")
    with pytest.raises(UnknownRunError, match="there is no run r9"):
        store.hold("r9")


def test_a_run_has_one_writer(store):
    journal = store.create("r1", "", [FIRST])
    with pytest.raises(HeldError, match="run r1 is held by"):
        store.hold("r1")
    journal.release()
    assert store.read("r1").holder is None
    again, found = store.hold("r1")
    assert (again.epoch, found.epoch, list(found.entries)) == (2, 2, [FIRST])


def test_who_was_taken_over_cannot_write(store):
    stalled = store.create("r1", "", [FIRST])
    taker, _ = store.hold("r1", take=True)
    taker.append([said("the taker's")])
    with pytest.raises(LeaseLostError, match="run r1 was taken over by another process; nothing was written"):
        stalled.append([said("the stalled one's")])
    stalled.release()
    assert [*store.read("r1").entries] == [FIRST, said("the taker's")]
    taker.append([said("still", 2)])
    with pytest.raises(HeldError):
        store.hold("r1")


def test_who_was_interrupted_before_it_knew_what_it_had_written_does_no_harm(store):
    """Ctrl-C between the commit and what is remembered of it; then the run is given back."""
    journal = store.create("r1", "", [FIRST])
    interrupted = copy(journal)
    journal.append([said("a")])
    interrupted.release()
    assert list(store.read("r1").entries) == [FIRST, said("a")]
    again, _ = store.hold("r1", take=True)
    again.append([said("b", 2)])


def test_who_does_not_know_what_it_has_written_does_not_write_over_it(tmp_path):
    with SqliteStore(tmp_path / "ledger.db") as store:
        journal = store.create("r1", "", [FIRST])
        interrupted = copy(journal)
        journal.append([said("a")])
        for text in ("b", "b" * 10_000):
            with pytest.raises(LeaseLostError):
                interrupted.append([said(text)])
        journal.append([said("c", 2)])
        assert list(store.read("r1").entries) == [FIRST, said("a"), said("c", 2)]


@pytest.mark.parametrize(
    "data",
    [
        "x" * 5_000,
        ["x" * 5_000, {"again": "x" * 5_000, "$content": "y" * 5_000, "$$content": 1}],
        {"$content": "z" * 2_000, "other": "w" * 4_000},
        {"$content": "short"},
        {"a": [None, True, 1.5, -0.0, 10**30, "\ud800" * 5_000, "\0\r\n"]},
    ],
    ids=str,
)
def test_large_and_strange_data_comes_back(store, data):
    journal = store.create("r1", "text with \ud800", [FIRST])
    journal.append([said(data), ResultEntry("1/1", ({"payload": data},))])
    found = store.read("r1")
    assert found.text == "text with \ud800"
    assert list(found.entries) == [FIRST, said(data), ResultEntry("1/1", ({"payload": data},))]


def test_an_entry_that_is_no_json_writes_nothing(store):
    journal = store.create("r1", "", [FIRST])
    if isinstance(store, SqliteStore):
        with pytest.raises(ValueError, match="Out of range float"):
            journal.append([said("fine"), said(float("nan"))])
        assert list(store.read("r1").entries) == [FIRST]
        journal.append([said("go on")])
        assert len(store.read("r1").entries) == 2
