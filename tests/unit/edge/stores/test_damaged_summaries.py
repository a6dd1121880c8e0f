"""Summaries and messages that were changed behind the store's back: the list says so, and shows all other runs."""

import random
import sqlite3
from contextlib import closing

import pytest
from damaged_stores import add, bits, flipped, place, put, rows

from dsa.edge.stores.sqlite_store import END, SPAN, SqliteStore
from dsa.runtime.run_store import DamageError, InboxMessage, Summary

SUMMARY = Summary(
    status="waiting", state="asked", machine="door", waits_for={"approved": "3"}, due_ms=5, about="an order"
)
#: Two bits apart: an id with one bit changed is not the other one.
RUNS = ("run 0", "run 3")


@pytest.fixture(scope="module")
def written(folder):
    path = folder / "summaries.db"
    with SqliteStore(path) as store:
        for run in RUNS:
            store.create(run, "# text", [], SUMMARY).release()
            store.post(run, InboxMessage(f"to {run}", "approved", data="yes"))
    return path, path.read_bytes()


@pytest.fixture
def listed(folder, written):
    """Return a function that edits a copy and lists its runs."""

    def list_runs(edit):
        place(folder / "copy.db", written[1])
        with closing(sqlite3.connect(folder / "copy.db", isolation_level=None)) as connection:
            edit(connection)
        with SqliteStore(folder / "copy.db") as store:
            return store.summaries()

    return list_runs


def changing(table, key, columns):
    """Return an edit that changes columns of one row. Texts stay texts, as they do in a file of which a byte is changed."""
    return lambda store: put(store, table, key, columns)


def changed(value, bit):
    """Return a value of the same type with one bit flipped; texts are ASCII."""
    found = flipped(value, bit)
    return found.decode() if isinstance(value, str) else found


def test_unchanged_summaries_are_sound(listed):
    for each in listed(lambda _: None):
        assert (each.summary, each.damage, each.status, each.messages) == (SUMMARY, None, "due", 1)


def test_every_changed_byte_of_a_summary_and_its_seals_is_noticed(listed, written):
    for table, key in (("entries", {"place": SPAN + END}), ("runs", {"number": 1})):
        [columns] = [columns for found, columns in rows(written[0], table) if found == key]
        for name, value in columns.items():
            if name in {"place", "number"}:
                continue
            for at in range(0, bits(value), 8):
                bit = at + random.Random(at).randrange(7 if isinstance(value, str) else 8)
                damaged, other = listed(changing(table, key, {name: changed(value, bit)}))
                assert (damaged.status, damaged.summary) == ("damaged", Summary()), (table, name, at)
                assert damaged.damage.endswith("was changed")
                assert (other.run, other.summary) == ("run 3", SUMMARY)


def test_summary_of_another_run_is_noticed(listed, written):
    [stranger] = [columns for key, columns in rows(written[0], "entries") if key == {"place": 2 * SPAN + END}]
    columns = {name: value for name, value in stranger.items() if name != "place"}
    assert listed(lambda store: put(store, "entries", {"place": SPAN + END}, columns))[0].status == "damaged"


def test_dropped_end_is_noticed(listed):
    found = listed(lambda store: store.execute("DELETE FROM entries WHERE place = ?", (SPAN + END,)))
    assert [each.status for each in found] == ["damaged", "due"]


def test_damaged_run_is_not_due(folder, listed):
    listed(lambda store: put(store, "runs", {"number": 1}, {"holder": "somebody"}))
    with SqliteStore(folder / "copy.db") as store:
        assert store.due(10) == ("run 3",)


def test_run_that_only_looks_removed_is_listed_as_damaged(folder, listed):
    assert listed(lambda store: put(store, "runs", {"number": 1}, {"machine": b""}))[0].status == "damaged"
    with SqliteStore(folder / "copy.db") as store:
        assert store.runs() == RUNS


def test_every_changed_byte_of_a_message_is_noticed(folder, listed, written):
    with closing(sqlite3.connect(written[0])) as connection:
        connection.row_factory = sqlite3.Row
        columns = dict(connection.execute("SELECT * FROM inbox WHERE number = 1").fetchone())
    for name, value in columns.items():
        for bit in range(0, bits(value), 8):
            listed(changing("inbox", {"number": 1}, {name: changed(value, bit)}))
            with SqliteStore(folder / "copy.db") as store:
                assert _is_noticed(store), (name, bit)


def _is_noticed(store):
    """Return whether reading the first run's message raises an error or does not find it."""
    try:
        return "to run 0" not in [message.id for message in store.waiting_messages("run 0")] or store.outcome_of(
            "to run 0"
        )
    except DamageError:
        return True


def test_forged_outcome_is_noticed(folder, listed):
    listed(lambda store: put(store, "inbox", {"number": 1}, {"outcome": '"taken"'}))
    with SqliteStore(folder / "copy.db") as store, pytest.raises(DamageError, match="message to run 0 was changed"):
        store.outcome_of("to run 0")


def test_forged_message_is_noticed(folder, listed):
    more = {"number": 9, "message": "m", "run": 1, "line": "{}", "outcome": None, "seal": b""}
    listed(lambda store: add(store, "inbox", more))
    with SqliteStore(folder / "copy.db") as store, pytest.raises(DamageError, match="run run 0: message m was changed"):
        store.waiting_messages("run 0")
