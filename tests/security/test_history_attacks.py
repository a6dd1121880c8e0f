"""Attacks on the history of a workspace by someone who can write into it: nothing outside is read, stored or written."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from machines.coding.history import WorkspaceHistory

SECRET = "s3cret-outside"


@pytest.fixture
def root(tmp_path):
    """Return a workspace with a repository of its own, beside what is not the workspace's."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET, "utf-8")
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("1\n", "utf-8")
    return folder


@pytest.fixture
def history(tmp_path, root):
    return WorkspaceHistory(tmp_path / "history", root)


def outside(tmp_path):
    return {str(path): path.read_bytes() for path in (tmp_path / "outside").rglob("*") if path.is_file()}


def test_targets_of_links_are_not_stored(history, root, tmp_path):
    first = history.mark("first")
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / ".gitignore").symlink_to(tmp_path / "outside" / "secret")
    last = history.mark("last")
    assert [change.path for change in history.changed_files(first, last)] == [".gitignore", "file", "folder"]
    assert SECRET not in history.diff(first, last)


def test_folder_that_became_a_link_is_not_written_through(history, root, tmp_path):
    (root / "dir").mkdir()
    (root / "dir" / "secret").write_text("1\n", "utf-8")
    (root / "dir" / "gone").write_text("1\n", "utf-8")
    first = history.mark("first")
    (root / "dir" / "secret").write_text("2\n", "utf-8")
    (root / "dir" / "gone").unlink()
    (root / "dir" / "made").write_text("2\n", "utf-8")
    last = history.mark("last")
    shutil.move(root / "dir", root / "moved")
    (tmp_path / "outside" / "made").write_text("2\n", "utf-8")
    (root / "dir").symlink_to(tmp_path / "outside")
    before = outside(tmp_path)
    undone = history.undo(first, last)
    assert {conflict.path for conflict in undone.conflicts} == {"dir/secret", "dir/gone"}
    assert outside(tmp_path) == before
    assert (undone.restored_paths, undone.removed_paths) == ((), ())


def test_file_that_became_a_link_is_not_written_through(history, root, tmp_path):
    first = history.mark("first")
    (root / "a.txt").write_text("by the agent\n", "utf-8")
    last = history.mark("last")
    (root / "a.txt").unlink()
    (tmp_path / "outside" / "equal").write_text("by the agent\n", "utf-8")
    (root / "a.txt").symlink_to(tmp_path / "outside" / "equal")
    undone = history.undo(first, last)
    assert [conflict.path for conflict in undone.conflicts] == ["a.txt"]
    assert (tmp_path / "outside" / "equal").read_text("utf-8") == "by the agent\n"


def test_file_hard_linked_from_outside_is_not_written_into(history, root, tmp_path):
    (tmp_path / "outside" / "twin").write_text("1\n", "utf-8")
    os.link(tmp_path / "outside" / "twin", root / "twin")
    first = history.mark("first")
    (root / "twin").unlink()
    (root / "twin").write_text("by the agent\n", "utf-8")
    last = history.mark("last")
    (root / "twin").unlink()
    (tmp_path / "outside" / "other").write_text("by the agent\n", "utf-8")
    os.link(tmp_path / "outside" / "other", root / "twin")
    assert history.undo(first, last).restored_paths == ("twin",)
    assert (tmp_path / "outside" / "other").read_text("utf-8") == "by the agent\n"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_special_file_or_folder_in_place_of_a_file_is_left_alone(history, root, kind):
    first = history.mark("first")
    (root / "b.txt").unlink()
    last = history.mark("last")
    if kind == "folder":
        (root / "b.txt").mkdir()
    else:
        os.mknod(root / "b.txt", (stat.S_IFIFO if kind == "pipe" else stat.S_IFSOCK) | 0o600)
    assert [conflict.path for conflict in history.undo(first, last).conflicts] == ["b.txt"]
    assert not (root / "b.txt").is_file()


def test_git_folder_of_the_workspace_is_not_stored(history, root):
    first = history.mark("first")
    (root / ".git" / "hooks" / "post-commit").write_text("x", "utf-8")
    (root / ".GIT").mkdir(exist_ok=True)
    (root / ".GIT" / "config").write_text("x", "utf-8")
    assert history.mark("last") == first


def test_git_settings_have_no_effect_on_the_history(history, root, tmp_path, monkeypatch):
    program, mark = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\necho x >> {mark}\n", "utf-8")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "filter.x.clean", "diff.external"):
        subprocess.run(["git", "-C", root, "config", name, program], check=True)
    (root / ".gitattributes").write_text("* filter=x\n", "utf-8")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    first = history.mark("first")
    (root / "a.txt").write_text("3\n", "utf-8")
    last = history.mark("last")
    assert "+3\n" in history.diff(first, last)
    history.undo(first, last)
    assert not mark.exists()


def test_very_deep_folder_is_left_out(history, root):
    opened = os.open(root, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d" * 20, dir_fd=opened)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(opened)
    mark = history.mark("deep")
    assert list(history.left_out(mark).values()) == ["deeper than 100 folders"]
    subprocess.run(["rm", "-rf", root], check=True)


def test_text_of_a_mark_cannot_forge_its_metadata(history):
    mark = history.mark('x\n\nLeft-Out: {"a.txt": "forged"}\n\ntree 0')
    assert dict(history.left_out(mark)) == {}
    assert not history.diff(mark, mark)


SWAPPED = """
import os, sys
from pathlib import Path
from machines.coding.history import WorkspaceHistory
work = Path(sys.argv[1])
history = WorkspaceHistory(work / "history", work / "work")
def hook(event, arguments):
    if event == "open" and arguments[0] in ("dir", "file") and (work / "work" / arguments[0]).exists():
        path = work / "work" / arguments[0]
        if not path.is_symlink():
            path.rename(work / f"{path.name}-moved")
            path.symlink_to(work / "outside" if path.name == "dir" else work / "outside" / "secret")
sys.addaudithook(hook)
history.mark("while somebody swaps")
"""


def test_path_swapped_for_a_link_during_the_scan_is_not_read(root, tmp_path):
    (root / "dir").mkdir()
    (root / "file").write_text("1\n", "utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", SWAPPED, tmp_path], check=True, env=environment, timeout=60)
    assert (root / "dir").is_symlink()
    assert (root / "file").is_symlink()
    command = ["git", f"--git-dir={tmp_path / 'history'}", "grep", SECRET, "runs/workspace"]
    assert subprocess.run(command, capture_output=True, check=False).stdout == b""
    listed = subprocess.run(
        [*command[:2], "ls-tree", "-r", "--name-only", "runs/workspace"], capture_output=True, check=True
    )
    assert listed.stdout.split() == [b"a.txt", b"b.txt"]
