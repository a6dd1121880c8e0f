"""What an undo puts back, what it leaves alone, and that it can be done again when it was killed. Files and processes are real."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from workspaces import change_all, make_workspace, state

from machines.coding.history import Conflict, History
from machines.coding.history.looking import LARGEST_BYTES


@pytest.fixture
def root(tmp_path):
    return make_workspace(tmp_path / "work")


@pytest.fixture
def history(tmp_path, root):
    return History(tmp_path / "history", root)


def git(tmp_path, *arguments):
    done = subprocess.run(
        ["git", f"--git-dir={tmp_path / 'history'}", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_an_undo_puts_all_back(history, root):
    before = state(root)
    first = history.mark("first")
    change_all(root)
    changed = state(root)
    last = history.mark("last")
    undone = history.undo(first, last)
    assert state(root) == before
    assert (undone.before, undone.conflicts) == (last, ())
    assert undone.restored == ("link", "run.sh", "src/a.py", "src/b.py")
    assert undone.removed == ("new/inner/c.py",)
    assert history.changed(first, undone.after) == ()
    again = history.undo(undone.before, undone.after)
    assert again.conflicts == ()
    assert state(root) == changed


def test_an_undo_that_is_done_already_does_nothing(history, root):
    first = history.mark("first")
    change_all(root)
    last = history.mark("last")
    history.undo(first, last)
    again = history.undo(first, last)
    assert (again.restored, again.removed, again.conflicts) == ((), (), ())
    assert again.before == again.after


def test_what_somebody_has_changed_since_is_left_alone(history, root):
    first = history.mark("first")
    for name in ("src/a.py", "src/b.py", "run.sh", "made", "made2"):
        (root / name).write_text("by the agent", "utf-8")
    (root / "link").unlink()
    last = history.mark("last")
    (root / "src" / "a.py").write_text("by a person", "utf-8")
    (root / "src" / "b.py").unlink()
    (root / "run.sh").chmod(0o600)
    (root / "made").write_text("by a person", "utf-8")
    (root / "link").write_text("by a person", "utf-8")
    before = state(root)
    undone = history.undo(first, last)
    assert undone.conflicts == (
        Conflict("made", "it was changed since"),
        Conflict("link", "there is another file now"),
        Conflict("run.sh", "it was changed since"),
        Conflict("src/a.py", "it was changed since"),
        Conflict("src/b.py", "it is gone"),
    )
    assert (undone.restored, undone.removed) == ((), ("made2",))
    del before["made2"]
    assert state(root) == before
    assert "by a person" in history.diff(last, undone.before)


def test_only_what_is_between_the_marks_is_undone(history, root):
    (root / "earlier").write_text("1", "utf-8")
    first = history.mark("first")
    (root / "src" / "a.py").write_text("between", "utf-8")
    last = history.mark("last")
    (root / "later").write_text("1", "utf-8")
    assert history.undo(first, last).restored == ("src/a.py",)
    assert (root / "later").exists()
    assert (root / "earlier").exists()


@pytest.mark.parametrize("back", [False, True])
def test_files_folders_and_links_in_each_others_place(history, root, back):
    one = state(root)
    first = history.mark("first")
    shutil.rmtree(root / "src")
    (root / "src").write_text("a file now", "utf-8")
    (root / "run.sh").unlink()
    (root / "run.sh").mkdir()
    (root / "run.sh" / "inner").write_text("in a folder now", "utf-8")
    (root / "empty").rmdir()
    (root / "empty").symlink_to("run.sh")
    two = state(root)
    last = history.mark("last")
    undone = history.undo(first, last)
    assert undone.conflicts == ()
    assert state(root) == one
    if back:
        assert history.undo(undone.before, undone.after).conflicts == ()
        assert state(root) == two


def test_a_folder_that_holds_more_stays(history, root):
    first = history.mark("first")
    (root / "new" / "__pycache__").mkdir(parents=True)
    (root / "new" / "__pycache__" / "x.pyc").write_text("x", "utf-8")
    (root / "new" / "x.py").write_text("x", "utf-8")
    assert history.undo(first, history.mark("last")).removed == ("new/x.py",)
    assert (root / "new" / "__pycache__" / "x.pyc").exists()


def test_a_file_that_was_named_before_is_not_taken_for_made(history, root):
    (root / ".gitignore").write_text(".env\nkeys/\n", "utf-8")
    (root / ".env").write_text("a person's", "utf-8")
    (root / "keys").mkdir()
    (root / "keys" / "k").write_text("a person's", "utf-8")
    first = history.mark("first")
    (root / ".gitignore").write_text("", "utf-8")
    last = history.mark("last")
    undone = history.undo(first, last)
    assert {conflict.path for conflict in undone.conflicts} == {".env", "keys/k"}
    assert (root / ".env").read_text("utf-8") == (root / "keys" / "k").read_text("utf-8") == "a person's"
    assert undone.restored == (".gitignore",)


def test_files_that_were_or_are_too_large_are_left_alone(history, root):
    (root / "shrinks").write_bytes(b"x" * (LARGEST_BYTES + 1))
    first = history.mark("first")
    (root / "shrinks").write_text("small", "utf-8")
    (root / "src" / "a.py").write_bytes(b"x" * (LARGEST_BYTES + 1))
    undone = history.undo(first, history.mark("last"))
    assert {conflict.path for conflict in undone.conflicts} == {"shrinks", "src/a.py"}
    assert (root / "shrinks").read_text("utf-8") == "small"
    assert (root / "src" / "a.py").stat().st_size == LARGEST_BYTES + 1


# -- processes that are killed

KILLED = """
import os, signal, sys
from pathlib import Path
from machines.coding.history import History
work, first, last, at = sys.argv[1:]
history = History(Path(work) / "history", Path(work) / "work")
left = int(at)
def hook(event, arguments):
    global left
    if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "subprocess.Popen"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
history.undo(first, last)
print("done")
"""


def killed(folder, first, last, at):
    """Have an undo done by a process that is killed at a call of the system; tell whether it came so far."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, first, last, str(at)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) in ((0, "done\n"), (-signal.SIGKILL, "")), done.stderr
    return done.returncode != 0


def test_an_undo_that_was_killed_anywhere_can_be_done_again(tmp_path, root, fired):
    original = state(root)
    history = History(tmp_path / "history", root)
    first = history.mark("first")
    change_all(root)
    last = history.mark("last")
    (root / "by_person").write_text("x", "utf-8")
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-kept", symlinks=True)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    at, step = 1, 9
    while True:
        shutil.rmtree(tmp_path)
        shutil.copytree(kept, tmp_path, symlinks=True)
        if not killed(tmp_path, first, last, at):
            break
        again = History(tmp_path / "history", root)
        assert again.undo(first, last).conflicts == ()
        (root / "by_person").unlink()
        assert {path: it for path, it in state(root).items() if ".dsa~" not in path} == original
        git(tmp_path, "fsck", "--full", "--strict")
        at += step
    fired("undo killed at a call of the system", at // step, at // step)
    assert at > 40
    shutil.rmtree(kept)
