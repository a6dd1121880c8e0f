"""Entries that the durable store refuses to write: those that are not JSON, and those of more than 16 MB."""

import pytest

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry, MachineEntry
from dsa.runtime.run_store import LONGEST_LINE, InboxMessage, StoreError, Summary

FIRST = MachineEntry("r1", "door", "0" * 64)
WAITING = Summary(status="waiting", state="checking")
APPROVAL = InboxMessage("m1", "approved", [("is_exact", "passed")], {"by": "ann"}, "13", 1_500)


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "ledger.db") as made:
        yield made


@pytest.fixture
def journal(store):
    return store.create("r1", "text", [FIRST])


def said(data):
    return EventEntry(1, "specification", data=data)


def test_entry_that_is_not_json_writes_nothing(store, journal):
    with pytest.raises(ValueError, match="Out of range float"):
        journal.append([said("fine"), said(float("nan"))], WAITING)
    assert list(store.read("r1").entries) == [FIRST]
    journal.append([said("go on")])
    assert len(store.read("r1").entries) == 2


def test_entry_of_more_than_16_mb_writes_nothing(store, journal):
    longest = LONGEST_LINE - len('{"kind":"event","seq":1,"event":"specification","verdicts":{},"source":null,')
    store.post("r1", APPROVAL)
    for data in ("x" * LONGEST_LINE, ["\ud800" * (LONGEST_LINE // 6 + 1)]):
        with pytest.raises(StoreError, match=r"an entry of run r1 has 16,777,[0-9]{3} characters"):
            journal.append([said("fine"), said(data)], WAITING, [("m1", "null")])
        with pytest.raises(StoreError):
            store.create("r2", "", [said(data)])
        with pytest.raises(StoreError, match=r"message m2 has 16,777,[0-9]{3} characters"):
            store.post("r1", InboxMessage("m2", "approved", data=data))
    assert (store.runs(), store.version("r1"), store.waiting_messages("r1")) == (("r1",), 1, (APPROVAL,))
    assert store.summary("r1").summary == Summary()
    fits = [said("x" * (longest - 60)), said("x" * (longest - 60))]
    journal.append(fits)
    assert list(store.read("r1").entries) == [FIRST, *fits]
