"""What a mark reads is bounded, by bytes and by time; it is told what is left out, and it can be stopped."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from coding_typed import DONE, PLAN, block, calls, typed_in

from dsa.edge.sandbox.command_sandbox import stop
from dsa.errors import DsaError
from machines.coding.history import WorkspaceHistory, workspace_scan
from machines.coding.task_plan import CodingCall
from machines.coding.toolbox import Toolbox
from machines.coding.tools.file_arguments import WriteFile

SIZE = workspace_scan.LARGEST_BYTES
FIT = workspace_scan.MOST_BYTES // SIZE


def sparse(folder, count):
    """Make files that are as large as any that is kept, and take no room on the disk."""
    folder.mkdir()
    for number in range(count):
        with (folder / f"f{number:03}").open("wb") as file:
            file.truncate(SIZE)


def test_what_is_beyond_the_bound_of_bytes_is_left_out_and_told(history, root):
    sparse(root / "a", FIT + 5)
    (root / "z.txt").write_text("code comes first")
    first = history.mark("first")
    told = history.unkept(first)
    assert told.startswith("not stored, so no diff shows its changes and no undo restores it: ")
    assert told.endswith(" files beyond 500 MB of content, as a/f099, a/f100, a/f101")
    assert set(history.left_out(first)) >= {f"a/f{number:03}" for number in range(FIT, FIT + 5)}
    (root / "z.txt").write_text("changed")
    (root / "a" / "f104").write_text("changed")
    assert [each.path for each in history.changed_files(first, history.mark("last"))] == ["z.txt"]


def test_what_was_left_out_never_seems_to_be_new(history, root, tmp_path):
    sparse(root / "a", FIT + 5)
    first = history.mark("first")
    for number in range(50):
        (root / "a" / f"f{number:03}").unlink()
    history.mark("some are gone, and there is room")
    again = WorkspaceHistory(tmp_path / "history", root).mark("last")
    assert {each.path for each in history.changed_files(first, again)} == {f"a/f{number:03}" for number in range(50)}
    assert history.unkept(again) == history.unkept(first)


def test_a_file_that_is_named_is_kept_whatever_else_there_is(history, root):
    sparse(root / "a", FIT + 5)
    first = history.mark("first", ["a/f104"])
    (root / "a" / "f104").write_text("changed")
    last = history.mark("last", ["a/f104"])
    assert [each.path for each in history.changed_files(first, last)] == ["a/f104"]
    assert history.undo(first, last).restored_paths == ("a/f104",)
    assert (root / "a" / "f104").stat().st_size == SIZE


def test_what_is_not_read_in_time_is_left_out_and_told(history, root, monkeypatch):
    monkeypatch.setattr(workspace_scan, "MOST_S", -1.0)
    assert " not read within 60 s, as " in history.unkept(history.mark("first"))


def test_what_was_read_once_is_looked_at_however_late_it_is(history, root, monkeypatch):
    first = history.mark("first")
    monkeypatch.setattr(workspace_scan, "MOST_S", -1.0)
    (root / "src" / "a.py").write_text("changed")
    assert [each.path for each in history.changed_files(first, history.mark("last"))] == ["src/a.py"]


def test_a_mark_that_is_stopped_leaves_nothing(history, root):
    asked = itertools.count()
    with pytest.raises(DsaError, match="was stopped"):
        history.mark("first", stop=lambda: next(asked) > 1)
    assert history.unkept(history.mark("second")) == ""


def test_a_call_that_was_stopped_before_does_not_look_at_the_workspace(root, tmp_path):
    toolbox = Toolbox({"workspace": str(root)}, tmp_path)
    write = {"path": "new.txt", "content": "x"}
    planned = tuple(toolbox.workspace.plan(WriteFile(**write)))
    call = CodingCall(call_id="c1", tool="write_file", kind="changing", arguments=write, planned=planned)
    with stop() as stopped:
        stopped.set()
        with pytest.raises(DsaError, match="was stopped"):
            toolbox.do(call, key="r/1/1", stop=stopped)
    assert not (root / "new.txt").exists()
    toolbox.close()


def test_progress_is_told_after_two_seconds_and_taken_away(monkeypatch):
    clock = iter([0.0, 1.0, 1.9, 2.0, 2.1, 2.6])
    monkeypatch.setattr(workspace_scan.time, "monotonic", lambda: next(clock))
    told = []
    effort = workspace_scan.ScanBudget(tell=told.append)
    for size in (0, 0, 0, 1_000_000, 0):
        effort.go_on(size)
    effort.end()
    monkeypatch.undo()
    said = "scanning the workspace, so that changes can be undone: "
    assert told == [f"{said}3 files, 0 MB, 2 s", f"{said}4 files, 1 MB, 3 s", ""]


def test_a_user_is_told_what_is_not_kept_by_the_work_and_by_undo(tmp_path):
    code = typed_in(tmp_path)
    sparse(tmp_path / "work" / "a", FIT + 5)
    write = calls(("write_file", {"path": "a.txt", "content": "one\n"}))
    told = (
        "not stored, so no diff shows its changes and no undo restores it: 5 files beyond 500 MB of content, as a/f100"
    )
    done = code("Do it", "--mode", "full-auto", script=(PLAN, write, write, DONE))
    assert done.stdout.count(f"  {told}") == 1
    assert told in code("last", command="undo").stdout


def test_ctrl_c_ends_a_look_and_the_work_is_taken_up(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    for number in range(60):
        (work / f"{number}.bin").write_bytes(os.urandom(SIZE))
    write = calls(("write_file", {"path": "a.txt", "content": "one\n"}))
    (tmp_path / "script.md").write_text("".join(map(block, (PLAN, write, DONE))))
    line = "from dsa.cli.main import main; main()"
    typed = [
        sys.executable,
        "-c",
        line,
        "code",
        "Do it",
        "-w",
        "work",
        "--mode",
        "full-auto",
        "--model",
        "scripted:script.md",
    ]
    process = subprocess.Popen(typed, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and not [*tmp_path.glob(".dsa/*/history/objects/pack/*.pack")]:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert not (work / "a.txt").exists()
    assert not [*tmp_path.glob(".dsa/*/history/refs/heads/**/workspace")]
