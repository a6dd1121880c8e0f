"""Calls that fail or are killed at each system call that changes the disk: all is done, or nothing."""

import errno
import os
import signal

import pytest
from file_tools import FileTools, contents, prepared
from os_calls import handled

from dsa.errors import ToolError

FILES = [
    {"path": "one.py", "content": "new 1"},
    {"path": "x/y/two.py", "content": "new 2"},
    {"path": "sub/three.py", "content": "new 3"},
]


NEW = {"one.py": b"new 1", "sub/three.py": b"new 3", "x/y/two.py": b"new 2"}


OLD = {"one.py": b"old 1", "sub/three.py": b"old 3"}


CALLS = {
    "write_files": {"files": FILES},
    "write_file": FILES[1],
    "edit": {"path": "one.py", "old": "old", "new": "newer"},
}


AFTER = {"write_files": NEW, "write_file": {**OLD, "x/y/two.py": b"new 2"}, "edit": {**OLD, "one.py": b"newer 1"}}


def changes_made(tool, tmp_path):
    """List the system calls that change the disk, except for closing."""
    prepared(tmp_path / "counted")
    made = []

    def handle(name, _arguments, perform):
        made.append(name)
        return perform()

    with FileTools(tmp_path / "counted") as opened, handled(handle):
        opened.apply(tool, CALLS[tool])
    return [name for name in made if name != "close"]


@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_error_at_any_system_call_leaves_all_old_or_all_new(tmp_path, tool, number):
    calls = changes_made(tool, tmp_path)
    assert "rename" in calls
    for failing in range(len(calls)):
        folder = tmp_path / str(failing)
        prepared(folder)
        left = [failing]

        def handle(name, _arguments, perform, left=left):
            if name != "close":
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(number, os.strerror(number))
            return perform()

        with FileTools(folder) as opened, handled(handle), pytest.raises((ToolError, OSError)) as raised:
            opened.apply(tool, CALLS[tool])
        found = {path: data for path, data in contents(folder).items() if ".dsa~" not in path}
        assert found in (OLD, AFTER[tool]), calls[failing]
        last = max(at for at, name in enumerate(calls) if name == "rename")
        if failing <= last:
            assert contents(folder) == OLD, f"{failing}: {calls[failing]}"
            assert sorted(path.name for path in folder.iterdir()) == ["one.py", "sub"]
            assert isinstance(raised.value, ToolError) == (number == errno.ENOSPC)


def killed_at(folder, tool, planned, failing):
    """Do a call in a process that is killed right before its n-th change of the disk; return whether it was killed."""
    child = os.fork()
    if child == 0:
        left = [failing]

        def handle(name, _arguments, perform):
            if name != "close":
                left[0] -= 1
                if left[0] == -1:
                    os.kill(os.getpid(), signal.SIGKILL)
            return perform()

        try:
            with FileTools(folder) as opened, handled(handle):
                opened.apply(tool, CALLS[tool], planned)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("tool", CALLS)
def test_call_killed_anywhere_can_be_repeated_with_the_same_result(tmp_path, tool):
    calls = changes_made(tool, tmp_path)
    partly = 0
    for failing in range(len(calls)):
        folder = tmp_path / str(failing)
        prepared(folder)
        with FileTools(folder) as opened:
            planned = opened.plan(tool, CALLS[tool])
            assert killed_at(folder, tool, planned, failing)
            found = {path: data for path, data in contents(folder).items() if ".dsa~" not in path}
            whole = {path: (OLD.get(path), AFTER[tool].get(path)) for path in {*OLD, *AFTER[tool]}}
            assert all(found.get(path) in states for path, states in whole.items()), "a file is neither old nor new"
            partly += found not in (OLD, AFTER[tool])
            again = opened.apply(tool, CALLS[tool], planned)
        assert contents(folder) == AFTER[tool], f"{failing}: {calls[failing]}"
        prepared(tmp_path / f"{failing} quietly")
        with FileTools(tmp_path / f"{failing} quietly") as opened:
            assert opened.apply(tool, CALLS[tool]) == again
    assert bool(partly) == (tool == "write_files")


@pytest.mark.parametrize("tool", CALLS)
def test_contents_are_synced_before_the_first_rename_and_names_after_all(tmp_path, tool):
    calls = changes_made(tool, tmp_path)
    first, last = calls.index("rename"), max(at for at, name in enumerate(calls) if name == "rename")
    assert "write" not in calls[first:]
    made = calls[:first].count("open")
    assert calls[:first].count("fsync") == made + calls[:first].count("mkdir")
    assert calls[:first][-1] == "fsync"
    assert calls[last:].count("fsync") == calls.count("rename")


def test_only_leftovers_of_the_tools_are_removed(workspace, tmp_path):
    for name in (".env", ".dsa~notes", ".dsa~" + "f" * 31, "x.dsa~" + "f" * 32, ".dsa~" + "f" * 32):
        (tmp_path / name).write_text("kept")
    workspace.write_file("a", "x")
    assert sorted(contents(tmp_path)) == [".dsa~" + "f" * 31, ".dsa~notes", ".env", "a", "x.dsa~" + "f" * 32]


def test_call_that_finds_its_work_done_still_syncs_it(tmp_path):
    """The process that wrote the file may have died before it synced the folders above."""
    prepared(tmp_path)
    with FileTools(tmp_path) as opened:
        planned = opened.plan("write_file", CALLS["write_file"])
        opened.apply("write_file", CALLS["write_file"], planned)
        synced = []

        def handle(name, arguments, perform):
            if name != "close":
                synced.append((name, os.fstat(arguments[0]).st_ino))
            return perform()

        with handled(handle):
            opened.apply("write_file", CALLS["write_file"], planned)
    assert synced == [("fsync", folder.stat().st_ino) for folder in (tmp_path, tmp_path / "x", tmp_path / "x" / "y")]


def test_file_that_another_process_is_writing_is_not_removed(tmp_path):
    names = []

    def handle(name, arguments, perform):
        made = perform()
        if name == "open" and not names:
            names.append(arguments[0])
            with FileTools(tmp_path) as other:
                other.write_file("other", "y")
        return made

    with FileTools(tmp_path) as opened, handled(handle):
        opened.write_file("own", "x")
    assert contents(tmp_path) == {"other": b"y", "own": b"x"}
