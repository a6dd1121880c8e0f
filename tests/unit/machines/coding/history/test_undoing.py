"""Undo: what it restores, what it leaves alone, and that it can be repeated after a kill. Files and processes are real."""

import os
import shutil
import signal
import stat
import subprocess
import sys

import pytest
from file_tools import FileTools
from workspaces import change_all, state
from workspaces import git_of_history as git

from machines.coding.history import UNKEPT, UNKNOWN, Conflict, WorkspaceHistory, workspace_scan
from machines.coding.history.workspace_scan import LARGEST_BYTES


def test_undo_restores_everything(history, root):
    before = state(root)
    first = history.mark("first")
    change_all(root)
    changed = state(root)
    last = history.mark("last")
    undone = history.undo(first, last)
    assert state(root) == before
    assert (undone.before, undone.conflicts) == (last, ())
    assert undone.restored_paths == ("link", "run.sh", "src/a.py", "src/b.py")
    assert undone.removed_paths == ("new/inner/c.py",)
    assert history.changed_files(first, undone.after) == ()
    again = history.undo(undone.before, undone.after)
    assert again.conflicts == ()
    assert state(root) == changed


def test_repeated_undo_does_nothing(history, root):
    first = history.mark("first")
    change_all(root)
    last = history.mark("last")
    history.undo(first, last)
    again = history.undo(first, last)
    assert (again.restored_paths, again.removed_paths, again.conflicts) == ((), (), ())
    assert again.before == again.after


def test_files_changed_by_a_person_since_are_left_alone(history, root):
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
        Conflict("made", "it was changed again later"),
        Conflict("link", "another file is at this path now"),
        Conflict("run.sh", "it was changed again later"),
        Conflict("src/a.py", "it was changed again later"),
        Conflict("src/b.py", "it is gone"),
    )
    assert (undone.restored_paths, undone.removed_paths) == ((), ("made2",))
    del before["made2"]
    assert state(root) == before
    assert "by a person" in history.diff(last, undone.before)


def test_only_changes_between_the_marks_are_undone(history, root):
    (root / "earlier").write_text("1", "utf-8")
    first = history.mark("first")
    (root / "src" / "a.py").write_text("between", "utf-8")
    last = history.mark("last")
    (root / "later").write_text("1", "utf-8")
    assert history.undo(first, last).restored_paths == ("src/a.py",)
    assert (root / "later").exists()
    assert (root / "earlier").exists()


@pytest.mark.parametrize("back", [False, True])
def test_files_folders_and_links_that_swapped_places_are_restored(history, root, back):
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


def test_folder_with_other_files_stays(history, root):
    first = history.mark("first")
    (root / "new" / "__pycache__").mkdir(parents=True)
    (root / "new" / "__pycache__" / "x.pyc").write_text("x", "utf-8")
    (root / "new" / "x.py").write_text("x", "utf-8")
    assert history.undo(first, history.mark("last")).removed_paths == ("new/x.py",)
    assert (root / "new" / "__pycache__" / "x.pyc").exists()


def test_file_ignored_at_the_start_is_not_treated_as_created(history, root):
    (root / ".gitignore").write_text(".env\nkeys/\n", "utf-8")
    (root / ".env").write_text("a person's", "utf-8")
    (root / "keys").mkdir()
    (root / "keys" / "k").write_text("a person's", "utf-8")
    first = history.mark("first")
    (root / ".gitignore").write_text("", "utf-8")
    last = history.mark("last")
    assert [each.path for each in history.changed_files(first, last)] == [".gitignore"]
    undone = history.undo(first, last)
    assert undone.conflicts == ()
    assert (root / ".env").read_text("utf-8") == (root / "keys" / "k").read_text("utf-8") == "a person's"
    assert undone.restored_paths == (".gitignore",)


#: What happens to a .gitignore that has named data.txt and kept/ from the beginning.
AFTERWARDS = {
    "the rules stay": {},
    "the rules change": {".gitignore": "*.log\n"},
    "the rules are deleted": {".gitignore": None},
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_deleted_ignored_file_is_reported_and_listed(history, root, name):
    (root / ".gitignore").write_text("data.txt\nkept/\n", "utf-8")
    (root / "data.txt").write_text("precious", "utf-8")
    (root / "kept" / "deep").mkdir(parents=True)
    for path in ("kept/deep/a.txt", "kept/b.txt"):
        (root / path).write_text("precious", "utf-8")
    first = history.mark("first")
    for path, text in AFTERWARDS[name].items():
        (root / path).unlink()
        if text is not None:
            (root / path).write_text(text, "utf-8")
    between = history.mark("between")
    assert {each.path for each in history.changed_files(first, between)} <= {".gitignore"}  # nothing is new
    (root / "data.txt").unlink()
    (root / "kept" / "deep" / "a.txt").unlink()
    last = history.mark("last")
    gone = ["data.txt", "kept/deep/a.txt"]
    assert [(each.path, each.before, each.after) for each in history.changed_files(between, last)] == [
        (path, UNKEPT, None) for path in gone
    ]
    assert history.lost_text(between, last).endswith(": data.txt, kept/deep/a.txt")
    assert "Not stored: data.txt is gone" in history.diff(first, last)
    assert {each.path for each in history.undo(first, last).conflicts} == set(gone)
    (root / "data.txt").write_text("put back by a person", "utf-8")
    assert [each.path for each in history.undo(first, last).conflicts] == gone[1:]


@pytest.mark.parametrize("rules", ["data.txt\n", "*\n"])
def test_deleted_file_is_restored_whatever_gitignore_says_meanwhile(history, root, rules):
    (root / "data.txt").write_text("precious", "utf-8")
    first = history.mark("first")
    (root / ".gitignore").write_text(rules, "utf-8")
    history.mark("between")
    (root / "data.txt").unlink()
    undone = history.undo(first, history.mark("last"))
    assert "data.txt" in undone.restored_paths
    assert (root / "data.txt").read_text("utf-8") == "precious"


def test_file_that_may_have_existed_before_is_not_called_new(history, root):
    (root / ".gitignore").write_text("later.txt\n", "utf-8")
    history.mark("first")
    (root / "later.txt").write_text("ignored", "utf-8")
    first = history.mark("before")
    (root / ".gitignore").unlink()
    (root / "really.txt").write_text("new", "utf-8")
    last = history.mark("last")
    known = {each.path: each.before for each in history.changed_files(first, last)}
    assert (known["later.txt"], known["really.txt"]) == (UNKNOWN, None)
    assert history.changed_files(first, last, new_paths=["later.txt"])[1].before is None


def test_too_large_file_is_neither_new_nor_removed(history, root):
    (root / "shrinks").write_bytes(b"x" * (LARGEST_BYTES + 1))
    first = history.mark("first")
    (root / "shrinks").write_text("small", "utf-8")
    (root / "src" / "a.py").write_bytes(b"x" * (LARGEST_BYTES + 1))
    found = {each.path: (each.before, each.after) for each in history.changed_files(first, history.mark("last"))}
    assert found["shrinks"][0] == found["src/a.py"][1] == UNKEPT


def test_ignored_names_are_limited_and_the_rest_is_reported(history, root, monkeypatch):
    monkeypatch.setattr(workspace_scan, "MOST_IGNORED", 3)
    (root / ".gitignore").write_text("many/\n", "utf-8")
    (root / "many").mkdir()
    for number in range(5):
        (root / "many" / f"{number}.txt").write_text("x", "utf-8")
    mark = history.mark("first")
    assert list(history.left_out(mark).values()).count(workspace_scan.IGNORED_AT_START) == 3
    assert "not checked for loss: files beyond" in history.unkept(mark)
    (root / "many" / "0.txt").unlink()
    assert "not checked for loss" in history.unkept(history.mark("last"))


def test_files_that_were_or_are_too_large_are_left_alone(history, root):
    (root / "shrinks").write_bytes(b"x" * (LARGEST_BYTES + 1))
    first = history.mark("first")
    (root / "shrinks").write_text("small", "utf-8")
    (root / "src" / "a.py").write_bytes(b"x" * (LARGEST_BYTES + 1))
    undone = history.undo(first, history.mark("last"))
    assert {conflict.path for conflict in undone.conflicts} == {"shrinks", "src/a.py"}
    assert (root / "shrinks").read_text("utf-8") == "small"
    assert (root / "src" / "a.py").stat().st_size == LARGEST_BYTES + 1


# -- permissions, pipes and sockets


@pytest.mark.parametrize("earlier", [0o640, 0o600, 0o444, 0o664, 0o750, 0o777])
@pytest.mark.parametrize("how", ["written", "opened", "gone", "replaced by a link", "in a folder that is gone"])
def test_permissions_of_a_file_are_restored(history, root, earlier, how):
    file = root / "src" / "a.py"
    file.chmod(earlier)
    (root / "src").chmod(0o700)
    before = state(root)
    first = history.mark("first")
    if how in ("gone", "replaced by a link"):
        file.unlink()
    if how == "written":
        file.write_text("by the agent", "utf-8")
        file.chmod(0o666)
    elif how == "opened":
        file.chmod(0o606)
    elif how == "replaced by a link":
        file.symlink_to("b.py")
    elif how == "in a folder that is gone":
        shutil.rmtree(root / "src")
    undone = history.undo(first, history.mark("last"))
    assert undone.conflicts == ()
    assert "src/a.py" in undone.restored_paths
    assert state(root) == before


def test_permissions_of_a_folder_are_restored(history, root):
    (root / "src").chmod(0o700)
    first = history.mark("first")
    (root / "src").chmod(0o777)
    (root / "src" / "a.py").write_text("by the agent", "utf-8")
    history.undo(first, history.mark("last"))
    assert (root / "src").stat().st_mode & 0o777 == 0o700


def test_permissions_that_a_person_has_tightened_since_stay(history, root):
    first = history.mark("first")
    (root / "src" / "a.py").write_text("by the agent", "utf-8")
    (root / "src" / "b.py").chmod(0o666)
    (root / "run.sh").chmod(0o644)
    last = history.mark("last")
    for name in ("src/a.py", "src/b.py", "run.sh"):
        (root / name).chmod(0o600)
    undone = history.undo(first, last)
    assert undone.conflicts == (Conflict("src/b.py", "its permissions were changed again later"),)
    assert undone.restored_paths == ("run.sh", "src/a.py")
    modes = {name: (root / name).stat().st_mode & 0o777 for name in ("src/a.py", "src/b.py", "run.sh")}
    assert modes == {"src/a.py": 0o600, "src/b.py": 0o600, "run.sh": 0o700}
    again = history.undo(first, last)
    assert (again.restored_paths, again.removed_paths) == ((), ())


def test_umask_does_not_change_restored_permissions(history, root):
    (root / "src").chmod(0o777)
    (root / "src" / "a.py").chmod(0o666)
    before = state(root)
    first = history.mark("first")
    shutil.rmtree(root / "src")
    last = history.mark("last")
    earlier = os.umask(0o077)
    try:
        history.undo(first, last)
    finally:
        os.umask(earlier)
    assert state(root) == before


def make_special(path, kind):
    os.mknod(path, {"a pipe": stat.S_IFIFO, "a socket": stat.S_IFSOCK}[kind] | 0o600)


@pytest.mark.parametrize("kind", ["a pipe", "a socket"])
def test_pipe_or_socket_that_was_created_is_removed(history, root, kind):
    before = state(root)
    first = history.mark("first")
    (root / "made").mkdir()
    make_special(root / "made" / "it", kind)
    (root / "src" / "a.py").unlink()
    make_special(root / "src" / "a.py", kind)
    last = history.mark("last")
    assert [change.path for change in history.changed_files(first, last)] == ["made/it", "src/a.py"]
    assert f"Not stored: made/it ({kind})\n" in history.diff(first, last)
    undone = history.undo(first, last)
    assert (undone.removed_paths, undone.restored_paths, undone.conflicts) == (("made/it",), ("src/a.py",), ())
    assert state(root) == before
    again = history.undo(first, last)
    assert (again.removed_paths, again.restored_paths, again.conflicts) == ((), (), ())


def test_pipe_that_the_agent_did_not_create_is_left_alone(history, root):
    for name in ("own", "gone"):
        make_special(root / name, "a pipe")
    (root / ".gitignore").write_text("hidden\n", "utf-8")
    make_special(root / "hidden", "a pipe")
    first = history.mark("first")
    (root / "gone").unlink()
    make_special(root / "made", "a pipe")
    (root / ".gitignore").unlink()
    last = history.mark("last")
    (root / "made").unlink()
    (root / "made").write_text("by a person", "utf-8")
    undone = history.undo(first, last)
    assert undone.conflicts == (
        Conflict("gone", "it was a pipe, which an undo cannot create"),
        Conflict("made", "something else is at this path now"),
    )
    assert {path.name for path in root.iterdir()} >= {"own", "hidden", "made"}
    assert (root / "made").read_text("utf-8") == "by a person"


# -- processes that are killed

KILLED = """
import os, signal, sys
from pathlib import Path
from machines.coding.history import WorkspaceHistory
work, first, last, at = sys.argv[1:]
history = WorkspaceHistory(Path(work) / "history", Path(work) / "work")
left = int(at) if at.isdigit() else 0
def hook(event, arguments):
    global left
    if event == at and ".dsa~" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
    if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "subprocess.Popen"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
history.undo(first, last)
print("done")
"""


def killed(folder, first, last, at):
    """Undo in a process that is killed at a system call; return whether it got that far."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, first, last, str(at)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) in ((0, "done\n"), (-signal.SIGKILL, "")), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("by", ["another undo", "a write"])
def test_second_name_that_a_killed_undo_left_is_removed(tmp_path, root, by):
    history = WorkspaceHistory(tmp_path / "history", root)
    first = history.mark("first")
    (root / "src" / "a.py").unlink()
    last = history.mark("last")
    assert killed(tmp_path, first, last, "os.remove")
    assert (root / "src" / "a.py").stat().st_nlink == 2
    if by == "another undo":
        WorkspaceHistory(tmp_path / "history", root).undo(first, last)
    else:
        with FileTools(root) as workspace:
            assert workspace.fault("write_file", {"path": "src/a.py", "content": "x"}) == ""
            workspace.write_file("src/a.py", "x")
    assert (root / "src" / "a.py").stat().st_nlink == 1
    assert list(root.rglob(".dsa~*")) == []


def test_file_with_hard_links_that_no_undo_left_is_still_refused(tmp_path, root):
    os.link(root / "src" / "a.py", root / "src" / f".dsa~{'0' * 32}")
    os.link(root / "src" / "a.py", tmp_path / "outside.py")
    with FileTools(root) as workspace:
        assert "3 hard links" in workspace.fault("write_file", {"path": "src/a.py", "content": "x"})


@pytest.mark.parametrize("step", [17, pytest.param(5, marks=pytest.mark.full)])
def test_undo_killed_anywhere_can_be_repeated(tmp_path, root, fired, step):
    original = state(root)
    history = WorkspaceHistory(tmp_path / "history", root)
    first = history.mark("first")
    change_all(root)
    last = history.mark("last")
    (root / "by_person").write_text("x", "utf-8")
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-kept", symlinks=True)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    at = 1
    while True:
        shutil.rmtree(tmp_path)
        shutil.copytree(kept, tmp_path, symlinks=True)
        if not killed(tmp_path, first, last, at):
            break
        again = WorkspaceHistory(tmp_path / "history", root)
        assert again.undo(first, last).conflicts == ()
        (root / "by_person").unlink()
        assert state(root) == original
        git(tmp_path, "fsck", "--full", "--strict")
        at += step
    fired("undo killed at a call of the system", at // step, at // step)
    assert at > 40
    shutil.rmtree(kept)
