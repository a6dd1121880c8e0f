"""Names of runs on the command line, and the messages about runs that are missing or cannot be read."""

import json
import sqlite3
from pathlib import Path

import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep

from dsa.cli.command_line import CommandExit
from dsa.cli.run_options import exit_on_faults, find, shell_command
from dsa.errors import DocumentError
from dsa.runtime.artifacts import artifact_store_error
from dsa.runtime.run_store import HeldError, StoreError

OTHER = "20260131T120001-shop-bbbbbb"
COMMANDS = [["show", "x"], ["resume", "x"], ["send", "x", "order"], ["replay", "x"], ["runs"]]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with two runs."""
    monkeypatch.chdir(tmp_path)
    for run in (RUN, OTHER):
        keep(Path(".dsa"), begun(run=run).ledger, run=run)
    return Path(".dsa")


@pytest.mark.parametrize(("wanted", "found"), [
    (RUN, RUN), ("last", OTHER), ("aaa", RUN), ("120001", OTHER), (f".dsa/{RUN}", RUN), (f"/somewhere/{RUN}/", RUN),
])  # fmt: skip
def test_run_is_found_by_id_part_of_the_id_folder_or_last(root, wanted, found):
    assert find((RUN, OTHER), wanted, root) == found


def test_part_of_the_last_run_is_found_by_its_number(root):
    keep(root, begun(run=f"{OTHER}+1.2").ledger, run=f"{OTHER}+1.2")
    ids = (RUN, OTHER, f"{OTHER}+1.2")
    assert (find(ids, "last", root), find(ids, "last+1.2", root)) == (OTHER, f"{OTHER}+1.2")
    assert dsa("show", "last+3.1").exit_code == 2


@pytest.mark.parametrize(("wanted", "said"), [
    ("shop", "'shop' matches 2 runs in .dsa: 20260131T120000-shop-aaaaaa, 20260131T120001-shop-bbbbbb; write more of the name"),
    ("20260131T120000-shop-aaaabb", f"no run '20260131T120000-shop-aaaabb' in .dsa; did you mean '{RUN}'?"),
    ("?", f"no run '?' in .dsa; the newest: {RUN}, {OTHER}; `dsa runs` lists all runs"),
])  # fmt: skip
def test_unknown_and_ambiguous_runs_are_reported_with_candidates(root, wanted, said):
    result = dsa("show", wanted)
    assert result.exit_code == 2
    assert said in result.stderr


def test_last_run_of_one_second_is_the_one_started_last(tmp_path):
    runs = ["20260131T120000-b-1", "20260131T120000-c-1", "20260131T120000-a-1", "20260131T120000-a-1+3.1"]
    for run in runs:
        keep(tmp_path, [begun(run=run).ledger[0]], run=run)
    assert find(runs, "last", tmp_path) == "20260131T120000-a-1"
    listed = json.loads(dsa("runs", "--runs", tmp_path, "--json").stdout)
    assert [each["run"] for each in listed] == runs


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_folder_without_runs_is_reported_in_one_sentence(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    fault = dsa(*arguments).exception
    assert isinstance(fault, DocumentError)
    assert (
        str(fault)
        == ".dsa: no run is stored here; `dsa run FILE` stores its run in .dsa, or in the folder DIR of --runs DIR"
    )
    assert not Path(".dsa").exists()


@pytest.mark.parametrize("arguments", COMMANDS[:-1], ids=lambda arguments: arguments[0])
def test_damaged_ledger_is_reported_with_its_entry(root, arguments):
    crashed_while(root, doing="pay", run="20260131T120002-shop-cccccc")
    with sqlite3.connect(root / "ledger.db") as connection:
        connection.execute("UPDATE entries SET line = replace(line, 'tea', 'pie')")
    result = dsa(arguments[0], "cccccc", *arguments[2:])
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr
        == "damaged: run 20260131T120002-shop-cccccc, entry 0: from this entry on, the stored run differs from what was written\n"
    )


@pytest.mark.parametrize("arguments", COMMANDS[:-1], ids=lambda arguments: arguments[0])
def test_run_of_another_machine_is_refused_with_commands_to_compare(root, arguments):
    run = "20260131T120002-shop-cccccc"
    keep(root, begun(run=run).ledger, SHOP.replace("mail, log", "mail     "), run)
    result = dsa(arguments[0], "cccccc", *arguments[2:])
    assert result.exit_code == 1
    assert f"run {run} belongs to another machine" in result.stderr
    assert f"`dsa diff .dsa/{run}/machine.md FILE`" in result.stderr
    assert f"`dsa replay {run} --against FILE`" in result.stderr


@pytest.mark.parametrize(("fault", "code", "said"), [
    (HeldError("r", "process 1 on h"), 1, "run r is held by process 1 on h: .*--take takes"),
    (StoreError("the disk is full"), 1, "the disk is full"),
    (artifact_store_error(Path("a.git"), "is damaged"), 1, "is damaged"),
    (OSError(28, "No space left on device"), 1, "cannot be written to .dsa/r: No space left on device"),
    (KeyboardInterrupt(), 130, "interrupted; what was done so far is saved in .dsa/r; `dsa resume r` continues the run"),
])  # fmt: skip
def test_each_fault_has_a_message_and_an_exit_code(fault, code, said):
    with pytest.raises(CommandExit, match=said) as raised, exit_on_faults(Path(".dsa"), lambda: Path(".dsa/r")):
        raise fault
    assert raised.value.exit_code == code


def test_printed_commands_name_the_runs_folder_unless_it_is_the_default():
    assert shell_command("resume", Path(".dsa/r"), "--retry", "1/2") == "dsa resume r --retry 1/2"
    assert shell_command("send", Path("my runs/r"), "more") == "dsa send r more --runs 'my runs'"
    server = "temporal://localhost:7233/default"
    assert shell_command("show", Path(server) / "r") == f"dsa show r --runs {server}"
