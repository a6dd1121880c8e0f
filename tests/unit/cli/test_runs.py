"""`dsa runs`."""

import json
import sqlite3
from pathlib import Path

import pytest
from stored_runs import SHOP, begun, crashed_while, dsa, keep

from dsa.edge.document_files import load, locate, read_text
from dsa.lang import digest
from dsa.runs.bindings import request
from dsa.runs.place import open_store
from dsa.runtime.ledger import CallEntry, CallResultEntry, ResultEntry
from dsa.runtime.policy.policies import error_step, text_step
from dsa.runtime.run import begin
from dsa.semantics import Occurrence


def run_id(number, name="shop"):
    return f"20260131T12000{number}-{name}-{number}"


def asked_policy(run, what):
    """Return the ledger of a run of a policy that is cut off, finished, in doubt or stopped."""
    machine, key = load("policy"), "1/1"
    going, _ = begin(machine, run, digest=digest(machine))
    data = request("search", {"text": "tea"}, ["read"])
    going, _ = going.feed(Occurrence("specification", data=data))
    call = CallEntry(key, "1.1", "search", "0", {}, (), "ask" if what == "in doubt" else "retry")
    going = going.record(call)
    if what == "finished":
        step = text_step("search", "hot", step_id="1.1/1").to_json()
        going = going.record(CallResultEntry(key, "1.1", [step]))
        going, _ = going.feed(Occurrence("gave", data={"steps": [step]}), key)
    if what == "stopped":
        about = {"call": {"policy": "search", "path": "1.1"}}
        going = going.record(
            ResultEntry(key, [error_step("perform", "GONE", "no such file", about=about).without_id()])
        )
    return going.ledger


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
        connection.execute("UPDATE entries SET epoch = 9 WHERE place = ? << 36", (number,))
    for number, what in enumerate(["cut off", "finished", "in doubt", "stopped"], start=6):
        keep(root, asked_policy(run_id(number, "p"), what), read_text(locate("policy")), run_id(number, "p"))
    return root


WORDS = [
    "waiting for: order", "finished: failed", "in doubt: pay 1/2", "cut off", "waiting for: order", "in doubt: pay 1/2", "cut off",
    "finished: succeeded", "in doubt: search 1/1/1.1", "stopped: perform 1/1 (line 24) failed in search 1/1/1.1: no such file",
]  # fmt: skip


def test_every_run_is_listed_by_its_summary(root):
    told = json.loads(dsa("runs", "--json").stdout)
    assert [run["how"] for run in told] == WORDS


def test_verified_list_differs_only_in_damage_and_other_machines(root):
    summaries, all_of_it = (json.loads(dsa("runs", "--json", *more).stdout) for more in ([], ["--verify"]))
    assert [run["run"] for run, other in zip(summaries, all_of_it, strict=True) if run != other] == [
        run_id(4),
        run_id(5),
    ]
    assert [run["kind"] for run in all_of_it[4:6]] == ["other machine", "damaged"]


def flip(root, run, place):
    """Change a byte in the row of a run's first commit, or in the one of its end."""
    with sqlite3.connect(root / "ledger.db") as connection:
        (number,) = connection.execute("SELECT number FROM runs WHERE run = ?", (run,)).fetchone()
        position = number << 36 | (0 if place == "entries" else (1 << 36) - 1)
        (line,) = connection.execute("SELECT line FROM entries WHERE place = ?", (position,)).fetchone()
        assert "shop" in line
        connection.execute("UPDATE entries SET line = ? WHERE place = ?", (line.replace("shop", "shot", 1), position))


@pytest.mark.parametrize(("place", "noticed"), [("end", [True, True]), ("entries", [False, True])])
def test_changed_summary_is_noticed_at_once_and_changed_ledger_when_verified(root, place, noticed):
    flip(root, run_id(0), place)
    told = [json.loads(dsa("runs", "--json", *more).stdout)[0] for more in ([], ["--verify"])]
    assert [run["kind"] == "damaged" for run in told] == noticed
    assert [run["run"] for run in told] == [run_id(0)] * 2


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--status", "in doubt"], [2, 5, 8]),
        (["--status", "cut off"], [3, 6]),
        (["--status", "in doubt", "--machine", "policy"], [8]),
        (["--waiting", "order"], [0, 4]),
        (["--machine", "policy"], [6, 7, 8, 9]),
        (["--status", "damaged"], []),
        (["--status", "damaged", "--verify"], [5]),
    ],
)
def test_filters_select_runs(root, options, numbers):
    found = json.loads(dsa("runs", *options, "--json").stdout)
    assert [int(run["run"].rpartition("-")[2]) for run in found] == numbers


def test_mistyped_status_gets_a_suggestion(root):
    result = dsa("runs", "--status", "wating")
    assert result.exit_code == 2
    assert "there is no 'wating'; did you mean 'waiting'?" in result.output


def test_filter_without_matches_is_reported(root):
    assert dsa("runs", "--waiting", "rain").stdout == (
        ".dsa: no run here matches; no run waits for 'rain', known here: 'order'\n"
    )
    assert dsa("runs", "--machine", "shopp").stdout.endswith("no run here is a run of 'shopp'; did you mean 'shop'?\n")


def test_every_run_has_a_line_with_the_newest_last(root):
    result = dsa("runs", "--verify")
    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["run", "started", "events", "machine", "state", "how", "it", "stands", "about"]
    assert [line.split("  ")[0] for line in lines] == [
        *map(run_id, range(6)),
        *(run_id(number, "p") for number in range(6, 10)),
    ]
    columns = [header.index(name) for name in ("started", "events", "machine", "state", "how it", "about")]
    cells = [[line[a:b].strip() for a, b in zip(columns, [*columns[1:], None], strict=True)] for line in lines]
    assert [row[0] for row in cells] == [f"2026-01-31 12:00:0{number}" for number in range(10)]
    assert [row[1:5] for row in cells] == [
        ["0", "shop", "idle", "waiting for: order"],
        ["1", "shop", "failed", "finished: failed"],
        ["1", "shop", "paying", "in doubt: pay 1/2"],
        ["1", "shop", "paying", "cut off"],
        ["0", "shop", "", cells[4][4]],
        [
            "",
            "",
            "",
            f"damaged: run {run_id(5)}, entry 0: from this entry on, the stored run differs from what was written",
        ],
        ["1", "policy", "performing", "cut off"],
        ["2", "policy", "succeeded", "finished: succeeded"],
        ["1", "policy", "performing", "in doubt: search 1/1/1.1"],
        ["1", "policy", "performing", "stopped: perform 1/1 (line 24) failed in search 1/1/1.1: no such file"],
    ]
    assert "another machine" in cells[4][4]
    assert [row[5] for row in cells] == ["", "", "tea", *[""] * 3, *["search: tea"] * 4]


def test_json_has_the_same_runs(root):
    told = json.loads(dsa("runs", "--json", "--verify").stdout)
    assert [run["kind"] for run in told] == [
        "waiting", "finished", "in doubt", "cut off", "other machine", "damaged", "cut off", "finished",
        "in doubt", "stopped",
    ]  # fmt: skip
    assert told[0]["waits_for"] == {"order": "0"}
    assert told[1]["outcome"] == "failed"
    assert told[2]["in_doubt"] == ["1/2"]
    assert (told[6]["machine"], told[6]["in_doubt"]) == ("policy", [])
    assert (told[7]["outcome"], told[8]["in_doubt"]) == ("succeeded", ["1/1/1.1"])
    assert (told[2]["started"], told[2]["events"], told[2]["machine"]) == ("2026-01-31 12:00:02 UTC", 1, "shop")


def test_holder_of_a_run_is_listed(tmp_path):
    with open_store(tmp_path) as store:
        journal = store.create(run_id(0), SHOP, list(begun(run=run_id(0)).ledger))
        (told,) = json.loads(dsa("runs", "--runs", str(tmp_path), "--json").stdout)
        assert told["kind"] == "under way"
        assert told["holder"].startswith("process ")
        assert told["holder"] in dsa("runs", "--runs", str(tmp_path)).stdout
        journal.release()


def test_folder_without_runs_is_reported(tmp_path):
    open_store(tmp_path).close()
    assert dsa("runs", "--runs", str(tmp_path)).stdout == f"{tmp_path}: no run is kept here\n"
    assert json.loads(dsa("runs", "--runs", str(tmp_path), "--json").stdout) == []


def test_destroyed_ledger_file_is_reported_without_a_traceback(root):
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


@pytest.mark.parametrize("gone", [run_id(0), run_id(4), run_id(9, "p")])
def test_vanished_runs_are_reported(root, gone):
    with sqlite3.connect(root / "ledger.db") as connection:
        connection.execute("DELETE FROM runs WHERE run = ?", (gone,))
    done = dsa("runs")
    assert done.exit_code == 1
    assert "1 run that was recorded here is missing now" in done.output
    assert gone not in done.output
    assert run_id(1) in done.output


def test_emptied_ledger_is_reported_as_damaged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = Path(".dsa")
    keep(root, begun(run=run_id(0)).ledger, run=run_id(0))
    (root / run_id(0)).mkdir(exist_ok=True)
    (root / run_id(0) / "machine.md").write_text(SHOP, encoding="utf-8")
    (root / "ledger.db").write_bytes(b"")
    done = dsa("runs")
    assert done.exit_code == 1
    assert f".dsa is damaged: its ledger lists no run, but here are folders of earlier runs: {run_id(0)}" in done.output


def test_rm_removes_runs_but_not_held_ones(root):
    with open_store(root) as store:
        journal, _ = store.hold(run_id(4))
        held = dsa("runs", "rm", run_id(0), run_id(4))
        assert (held.exit_code, held.stdout) == (1, f"removed {run_id(0)}\n")
        assert held.stderr.startswith(f"run {run_id(4)} is held by process ")
        journal.release()
    assert json.loads(dsa("runs", "rm", run_id(4), "--json").stdout) == {"removed": [run_id(4)]}
    left = {run["run"] for run in json.loads(dsa("runs", "--json").stdout)}
    assert not left & {run_id(0), run_id(4)}
    assert dsa("runs", "rm", run_id(0)).exit_code == 2
    assert dsa("runs", "rm").exit_code == 2


def test_due_before_selects_runs_with_a_timer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tea.md").write_text(TEA, encoding="utf-8")
    assert dsa("run", "tea.md", "--data", '"x"').exit_code == 3

    def listed(when):
        return [
            (run["kind"], run["waits_for"]) for run in json.loads(dsa("runs", "--due-before", when, "--json").stdout)
        ]

    assert (listed("23h"), listed("25h")) == ([], [("waiting", {"poured": "1"})])
    assert (listed("2020-01-01T00:00"), len(listed("2999-01-01T00:00+02:00"))) == ([], 1)
    refused = dsa("runs", "--due-before", "soon")
    assert (refused.exit_code, "'soon' is not a time; write 2026-12-24T18:00 or 24h" in refused.stderr) == (2, True)


TEA = """# tea
## Events
| event | from |
| - | - |
| ordered | outside |
| poured | outside |
## States
| state | kind |
| - | - |
| idle | initial |
| steeping | |
| drunk | final |
## Transitions
| source | event | target |
| - | - | - |
| idle | ordered | steeping |
| steeping | poured | drunk |
| steeping | after 24h | drunk |
"""
