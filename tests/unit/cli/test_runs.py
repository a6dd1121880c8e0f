"""`dsa runs`."""

import json
import sqlite3
from pathlib import Path

import pytest
from kept_runs import SHOP, begun, crashed_while, dsa, keep

from dsa.edge.runs import open_store
from dsa.meaning import Occurrence
from dsa.runtime.ledger import CallEntry, CallResultEntry, PolicyEntry


def run_id(number, name="shop"):
    return f"20260131T12000{number}-{name}-{number}"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with a run of every kind."""
    monkeypatch.chdir(tmp_path)
    root = Path(".dsa")
    keep(root, begun(run=run_id(0)).ledger, run=run_id(0))
    over = begun(
        SHOP.replace("| idle    | order      | log, pay  | paying ", "| idle    | order      |           | failed "),
        run_id(1),
    )
    keep(
        root,
        over.feed(Occurrence("order"))[0].ledger,
        SHOP.replace("| idle    | order      | log, pay  | paying ", "| idle    | order      |           | failed "),
        run_id(1),
    )
    crashed_while(root, doing="pay", run=run_id(2))
    cut_off, _ = begun(run=run_id(3)).feed(Occurrence("order"))
    keep(root, cut_off.ledger, run=run_id(3))
    keep(root, begun(run=run_id(4)).ledger, SHOP.replace("mail, log", "mail"), run_id(4))
    crashed_while(root, doing="pay", run=run_id(5))
    with sqlite3.connect(root / "ledger.db") as connection:
        number = connection.execute("SELECT number FROM runs WHERE run = ?", (run_id(5),)).fetchone()[0]
        connection.execute("DELETE FROM entries WHERE run = ? AND position = 1", (number,))
    call = CallEntry("", "1.1", "read", "0")
    keep(root, [PolicyEntry(run_id(6, "p"), "search", "0"), call], "", run_id(6, "p"))
    keep(root, [PolicyEntry(run_id(7, "p"), "search", "0"), call, CallResultEntry("", "1")], "", run_id(7, "p"))
    return root


def test_every_run_has_a_line_the_newest_last(root):
    result = dsa("runs")
    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["run", "started", "events", "machine", "state", "how", "it", "stands"]
    assert [line.split("  ")[0] for line in lines] == [*map(run_id, range(6)), run_id(6, "p"), run_id(7, "p")]
    columns = [header.index(name) for name in ("started", "events", "machine", "state", "how it")]
    cells = [[line[a:b].strip() for a, b in zip(columns, [*columns[1:], None], strict=True)] for line in lines]
    assert [row[0] for row in cells] == [f"2026-01-31 12:00:0{number}" for number in range(8)]
    assert [row[1:] for row in cells] == [
        ["0", "shop", "idle", "waiting for: order"],
        ["1", "shop", "failed", "finished: failed"],
        ["1", "shop", "paying", "in doubt: pay 1/2"],
        ["1", "shop", "paying", "cut off"],
        ["0", "shop", "", cells[4][4]],
        ["", "", "", f"damaged: run {run_id(5)}, entry 1: it is not what was written"],
        ["", "policy search", "", "cut off"],
        ["", "policy search", "", "finished"],
    ]
    assert "another machine" in cells[4][4]


def test_programs_get_the_same_as_a_list(root):
    told = json.loads(dsa("runs", "--json").stdout)
    assert [run["kind"] for run in told] == [
        "waiting", "finished", "in doubt", "cut off", "other machine", "damaged", "cut off", "finished",
    ]  # fmt: skip
    assert told[0]["waits_for"] == ["order"]
    assert told[1]["outcome"] == "failed"
    assert told[2]["in_doubt"] == [f"{run_id(2)}/1/2"]
    assert told[6]["in_doubt"] == ["1.1"]
    assert (told[2]["started"], told[2]["events"], told[2]["machine"]) == ("2026-01-31 12:00:02 UTC", 1, "shop")


def test_who_holds_a_run_is_said(tmp_path):
    with open_store(tmp_path) as store:
        journal = store.create(run_id(0), SHOP, list(begun(run=run_id(0)).ledger))
        (told,) = json.loads(dsa("runs", "--runs", str(tmp_path), "--json").stdout)
        assert told["kind"] == "under way"
        assert told["holder"].startswith("process ")
        assert told["holder"] in dsa("runs", "--runs", str(tmp_path)).stdout
        journal.release()


def test_a_folder_without_runs_says_so(tmp_path):
    open_store(tmp_path).close()
    assert dsa("runs", "--runs", str(tmp_path)).stdout == f"{tmp_path}: no run is kept here\n"
    assert json.loads(dsa("runs", "--runs", str(tmp_path), "--json").stdout) == []


def test_a_file_that_is_damaged_as_a_whole_is_a_sentence(root):
    file = root / "ledger.db"
    text = file.read_bytes()
    for journal in root.glob("ledger.db-*"):
        if journal.is_file():
            journal.unlink()
    file.write_bytes(text[:100] + b"\xff" * (len(text) - 100))
    result = dsa("runs")
    assert result.exit_code != 0
    assert "ledger.db" in str(result.exception) + result.stderr
    assert "Traceback" not in result.output
