"""Limits of a mark, in bytes and in time: it reports what it leaves out, and it can be stopped."""

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
    """Make files of the largest size that is stored; they take no room on the disk."""
    folder.mkdir()
    for number in range(count):
        with (folder / f"f{number:03}").open("wb") as file:
            file.truncate(SIZE)


def test_files_beyond_the_byte_limit_are_left_out_and_reported(history, root):
    sparse(root / "a", FIT + 5)
    (root / "z.txt").write_text("code comes first")
    first = history.mark("first")
    told = history.unkept(first)
    assert told.startswith("these files are not stored, so no diff shows their changes and no undo restores them: ")
    assert told.endswith(" files beyond 500 MB of content, as a/f099, a/f100, a/f101")
    assert set(history.left_out(first)) >= {f"a/f{number:03}" for number in range(FIT, FIT + 5)}
    (root / "z.txt").write_text("changed")
    (root / "a" / "f104").write_text("changed")
    assert [each.path for each in history.changed_files(first, history.mark("last"))] == ["z.txt"]


def test_file_that_was_left_out_never_appears_as_new(history, root, tmp_path):
    sparse(root / "a", FIT + 5)
    first = history.mark("first")
    for number in range(50):
        (root / "a" / f"f{number:03}").unlink()
    history.mark("some are gone, and there is room")
    again = WorkspaceHistory(tmp_path / "history", root).mark("last")
    assert {each.path for each in history.changed_files(first, again)} == {f"a/f{number:03}" for number in range(50)}
    assert history.unkept(again) == history.unkept(first)


def test_named_file_is_stored_whatever_else_there_is(history, root):
    sparse(root / "a", FIT + 5)
    first = history.mark("first", ["a/f104"])
    (root / "a" / "f104").write_text("changed")
    last = history.mark("last", ["a/f104"])
    assert [each.path for each in history.changed_files(first, last)] == ["a/f104"]
    assert history.undo(first, last).restored_paths == ("a/f104",)
    assert (root / "a" / "f104").stat().st_size == SIZE


def test_files_not_read_in_time_are_reported(history, root, monkeypatch):
    monkeypatch.setattr(workspace_scan, "MOST_S", -1.0)
    assert " not read within 60 s, as " in history.unkept(history.mark("first"))


def test_file_read_before_is_checked_even_after_the_time_limit(history, root, monkeypatch):
    first = history.mark("first")
    monkeypatch.setattr(workspace_scan, "MOST_S", -1.0)
    (root / "src" / "a.py").write_text("changed")
    assert [each.path for each in history.changed_files(first, history.mark("last"))] == ["src/a.py"]


def test_stopped_mark_leaves_nothing(history, root):
    asked = itertools.count()
    with pytest.raises(DsaError, match="was stopped"):
        history.mark("first", stop=lambda: next(asked) > 1)
    assert history.unkept(history.mark("second")) == ""


def test_call_stopped_in_advance_does_not_touch_the_workspace(root, tmp_path):
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


def test_progress_is_shown_after_two_seconds_and_cleared(monkeypatch):
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


def test_work_and_undo_both_report_files_that_are_not_stored(tmp_path):
    code = typed_in(tmp_path)
    sparse(tmp_path / "work" / "a", FIT + 5)
    write = calls(("write_file", {"path": "a.txt", "content": "one\n"}))
    told = "these files are not stored, so no diff shows their changes and no undo restores them: 5 files beyond 500 MB of content, as a/f100"
    done = code("Do it", "--mode", "full-auto", script=(PLAN, write, write, DONE))
    assert done.stdout.count(f"  {told}") == 1
    assert told in code("last", command="undo").stdout


def test_ctrl_c_ends_the_first_scan_before_anything_is_done(tmp_path):
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
