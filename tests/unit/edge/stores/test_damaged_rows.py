"""Rows of a store that were changed behind its back: a reader gets what was written, or an error.

Each row dropped, each two swapped, each bit of each row flipped; rows of other runs and other files put in.
"""

import random
import sqlite3
from contextlib import suppress
from itertools import combinations

import attrs
import pytest
from damaged_stores import RUNS, add, bits, drop, flipped, put, rows, swap

from dsa.edge.stores.sqlite_store import END, SPAN, EndRow, RunRow, address

ENTRY = ("epoch", "short", "line", "link")
BOOKKEEPING = ("run", "machine", "epoch", "holder", "seal")


def run_of(row):
    """Return the run that a row of entries or of runs belongs to."""
    return RUNS[(number_of(row[0]) if "place" in row[0] else row[0]["number"]) - 1]


def number_of(key):
    """Return the number of the run that an entry belongs to."""
    return key["place"] // SPAN


def at(number, position):
    """Return the key of a row of entries."""
    return {"place": number * SPAN + position}


def without_ends(found):
    """Return the rows that hold entries, without the last row of each run, which seals its end."""
    return [(key, columns) for key, columns in found if key["place"] % SPAN != END]


# -- rows ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["entries", "runs"])
def test_dropped_row_is_noticed(after, stored, table):
    for row in stored(table):
        assert after(lambda store, row=row: drop(store, table, row[0])) == {run_of(row)}


def test_dropped_text_is_noticed(after, stored):
    noticed = [after(lambda store, row=row: drop(store, "contents", row[0])) for row in stored("contents")]
    assert sorted(map(len, noticed)) == [1, 1, 2, 2]  # the texts of two machines; two long ones that both runs have


def test_cut_off_end_of_any_length_is_noticed(after, stored):
    entries = [key for key, _ in without_ends(stored("entries")) if number_of(key) == 1]
    for cut in range(1, len(entries) + 1):

        def edit(store, cut=cut):
            for key in entries[-cut:]:
                drop(store, "entries", key)

        assert after(edit) == {"run 0"}
        assert after(lambda store, cut=cut: shorten(store, entries, cut)) == {"run 0"}


def shorten(store, entries, cut):
    """Cut the end off, and change the end row so that it counts only the rest."""
    put(store, "entries", at(1, END), {"line": str(len(entries) - cut)})
    for key in entries[-cut:]:
        drop(store, "entries", key)


@pytest.mark.parametrize("columns", [("line",), ("link",), ("line", "link"), ENTRY], ids=", ".join)
def test_swapped_entries_are_noticed(after, stored, columns):
    count = 0
    for one, other in combinations(stored("entries"), 2):
        if any(one[1][name] != other[1][name] for name in columns):
            count += 1
            noticed = after(lambda store, pair=(one, other): swap(store, "entries", *pair, columns))
            assert noticed == {run_of(one), run_of(other)}
    assert count > 80


@pytest.mark.parametrize("count", range(1, len(BOOKKEEPING) + 1))
def test_swapped_columns_of_two_runs_are_noticed(after, stored, count):
    """Any of the columns, or all of them: the seal of one run does not fit the columns of another."""
    one, other = stored("runs")
    for columns in combinations(BOOKKEEPING, count):
        if any(one[1][name] != other[1][name] for name in columns):
            assert after(lambda store, columns=columns: swap(store, "runs", one, other, columns)) == set(RUNS)


def test_swapped_texts_are_noticed(after, stored):
    for one, other in combinations(stored("contents"), 2):
        assert after(lambda store, pair=(one, other): swap(store, "contents", *pair, ("content",)))


def test_whole_run_in_the_place_of_another_is_noticed(after):
    def renumber(store):
        for table, column, span in (("entries", "place", SPAN), ("runs", "number", 1)):
            store.execute(f"UPDATE {table} SET {column} = {column} + 10 * {span} WHERE {column} < 2 * {span}")
            store.execute(f"UPDATE {table} SET {column} = {column} - {span} WHERE {column} < 3 * {span}")
            store.execute(f"UPDATE {table} SET {column} = {column} - 9 * {span} WHERE {column} >= 10 * {span}")

    assert after(renumber) == set(RUNS)


# -- the row of a run as a whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("number", (0, 3, -1, 2**40)),
        ("run", ("run", "run 00", "")),
        ("machine", (address("# text of run 1"), address("nothing"), b"")),
        ("epoch", (0, 2, -1, 2**40, 1.5, "one")),
        ("holder", ("", "somebody", 0, b"")),
        ("seal", (bytes(32), b"", "seal")),
    ],
)
def test_row_of_a_run_is_sealed(after, column, values):
    for value in values:
        assert after(lambda store, value=value: put(store, "runs", {"number": 1}, {column: value})) == {"run 0"}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("epoch", (0, 2, -1, 2**40, 1.5, "one")),
        ("short", (1, 2, -1, 0.5)),
        ("line", ("", "6", "8", "7 ", "[]")),
        ("link", (bytes(32), b"", "seal")),
        ("place", tuple(at(1, position)["place"] for position in (7, 8, END - 1, 3 * SPAN))),
    ],
)
def test_end_of_a_run_is_sealed(after, column, values):
    end = at(1, END)
    for value in values:
        assert after(lambda store, value=value: put(store, "entries", end, {column: value})) == {"run 0"}


@pytest.fixture
def row(stored):
    """Return the row of the first run, as the store has it."""
    _, columns = stored("runs")[0]
    return RunRow(**{name: value for name, value in columns.items() if name != "seal"})


@pytest.mark.parametrize("seal_too", [False, True])
def test_machine_replaced_by_another_is_noticed(after, row, seal_too):
    """Under the old address, under its own, and with a new seal: each entry depends on the machine's text."""
    text = b"# text of RUN 0"
    moved = attrs.evolve(row, machine=address(text.decode()))

    def edit(store):
        add(store, "contents", {"address": moved.machine, "content": text})
        put(store, "runs", {"number": 1}, {"machine": moved.machine, **({"seal": moved.seal} if seal_too else {})})

    assert after(edit) == {"run 0"}
    assert after(lambda store: put(store, "contents", {"address": row.machine}, {"content": text})) == {"run 0"}


def test_entries_of_another_run_under_a_new_seal_are_noticed(after, stored, row):
    """Each entry depends on the run's id, too."""
    _, second = stored("runs")[1]
    taken = attrs.evolve(row, machine=second["machine"])

    def edit(store):
        for key, columns in without_ends(stored("entries")):
            if number_of(key) == 2:
                put(store, "entries", at(1, key["place"] % SPAN), {name: columns[name] for name in ENTRY})
                last = columns["link"]
        put(store, "entries", at(1, END), {"link": EndRow(1, 1, 7, last).seal})
        put(store, "runs", {"number": 1}, {"machine": taken.machine, "seal": taken.seal})

    assert after(edit) == {"run 0"}


# -- rows from elsewhere ------------------------------------------------------------------------------------------------------


def test_entry_of_another_run_or_file_is_noticed_in_every_place(after, stored, other):
    strangers = [columns for _, columns in (*stored("entries"), *rows(other, "entries"))]
    count = 0
    for key, columns in stored("entries"):
        for stranger in strangers:
            given = {name: stranger[name] for name in ENTRY}
            if given != {name: columns[name] for name in ENTRY}:
                count += 1
                assert after(lambda store, key=key, given=given: put(store, "entries", key, given)) == {
                    RUNS[number_of(key) - 1]
                }
    assert count > 300


def test_end_of_the_same_run_in_another_file_is_noticed(after, stored, other):
    """Both files are sound and the same up to some place: what follows there does not follow here."""
    theirs, ours = without_ends(rows(other, "entries")), without_ends(stored("entries"))
    pairs = zip(ours, theirs, strict=True)
    differ = [key for (key, mine), (_, its) in pairs if number_of(key) == 1 and mine != its]
    assert differ == [at(1, 5), at(1, 6)]
    for start in range(7):

        def edit(store, start=start):
            for key, columns in theirs:
                if at(1, start)["place"] <= key["place"] < at(1, END)["place"]:
                    put(store, "entries", key, columns)

        assert after(edit) == ({"run 0"} if start <= 6 else set())


def test_additional_entry_is_noticed(after, stored, other):
    for _, columns in (*stored("entries"), *rows(other, "entries")):
        for position in (7, 2**30, END - 1):
            more = {**columns, **at(1, position)}
            assert after(lambda store, more=more: add(store, "entries", more)) == {"run 0"}


def test_end_seal_of_the_same_run_in_another_file_is_noticed(after, other):
    for key, columns in rows(other, "entries"):
        if key["place"] % SPAN == END:
            assert after(lambda store, key=key, columns=columns: put(store, "entries", key, columns)) == {
                run_of((key, columns))
            }


# -- bits of rows, bytes of files ------------------------------------------------------------------------------------------


def bit_flips(stored):
    """Return every bit of every value of every row; keys are values too."""
    for table in ("entries", "contents", "runs"):
        for key, columns in stored(table):
            for name, value in columns.items():
                for bit in range(bits(value)):
                    yield table, key, name, flipped(value, bit)


def require_noticed(after, flips):
    """Flip bits; what goes unnoticed must read the same, as a flag that is any number but 0 does, or an address in capitals."""
    unnoticed = []
    for table, key, name, value in flips:
        with suppress(sqlite3.IntegrityError):  # there is a row of that key
            if not after(lambda store, flip=(table, key, {name: value}): put(store, *flip)):
                unnoticed.append((table, name))
    assert {*unnoticed} <= {("entries", "short"), ("entries", "line")}
    assert len(unnoticed) < 0.02 * len(flips)


def test_changed_numbers_of_an_entry_are_noticed(after, stored):
    """The place of an entry, its run, its writer: changed to a number close to it or far from it."""
    numbers = ("place", "epoch")
    flips = [flip for flip in bit_flips(stored) if flip[0] == "entries" and flip[2] in numbers]
    assert len(flips) == 16 * 2 * 16
    require_noticed(after, flips[::4])


@pytest.mark.parametrize("seed", range(4))
def test_changed_bit_of_a_row_is_noticed(after, stored, seed):
    flips = list(bit_flips(stored))
    assert len(flips) > 100_000
    require_noticed(after, random.Random(seed).sample(flips, 150))


@pytest.mark.full
@pytest.mark.parametrize("bit", [0, 5])
def test_every_changed_byte_of_every_row_is_noticed(after, stored, bit):
    require_noticed(after, list(bit_flips(stored))[bit::8])
