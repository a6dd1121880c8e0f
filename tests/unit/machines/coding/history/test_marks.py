"""Marks of a workspace: what is stored, and what is compared. Files, links and repositories are real."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspaces import git_of_history as git
from workspaces import state

from dsa.errors import DsaError
from dsa.runtime.run_store import StoreError
from machines.coding.history import ChangedFile, WorkspaceHistory
from machines.coding.history.workspace_scan import IGNORED_AT_START, LARGEST_BYTES, FileState, blob_id, look

UNKNOWN = "0" * 40


def paths(changes):
    return [change.path for change in changes]


# -- marking


def test_unchanged_workspace_has_the_same_mark(history, root, tmp_path):
    first = history.mark("as it was")
    assert history.mark("nothing done") == first
    assert WorkspaceHistory(tmp_path / "history", root).mark("another process") == first
    assert git(tmp_path, "log", "--format=%H %s", "runs/workspace") == f"{first} as it was\n"


def test_git_finds_the_files_as_they_are(history, tmp_path):
    mark = history.mark("one\n\ntwo\0\x1b[2J")
    listed = git(tmp_path, "ls-tree", "-r", mark)
    assert [line.split()[0] + " " + line.split()[3] for line in listed.splitlines()] == [
        "120000 link",
        "100755 run.sh",
        "100644 src/a.py",
        "100644 src/b.py",
    ]
    assert git(tmp_path, "cat-file", "-p", f"{mark}:link") == "src/a.py"
    assert git(tmp_path, "log", "-1", "--format=%B", mark).startswith("one\n\ntwo  [2J\n")
    git(tmp_path, "fsck", "--full", "--strict")


def test_every_kind_of_change_is_found(history, root):
    first = history.mark("first")
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    (root / "src" / "b.py").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "link").unlink()
    (root / "link").symlink_to("src/b.py")
    (root / "new").mkdir()
    (root / "new" / "c.py").write_text("c\n", "utf-8")
    last = history.mark("last")
    script = blob_id(b"#!/bin/sh\n")
    assert history.changed_files(first, last) == (
        ChangedFile("link", blob_id(b"src/a.py"), blob_id(b"src/b.py"), "120000", "120000"),
        ChangedFile("new/c.py", None, blob_id(b"c\n"), None, "100644"),
        ChangedFile("run.sh", script, script, "100755", "100644"),
        ChangedFile("src/a.py", blob_id(b"a = 1\n"), blob_id(b"a = 2\n"), "100644", "100644"),
        ChangedFile("src/b.py", blob_id(b"b = 1\n"), None, "100644", None),
    )
    assert paths(history.changed_files(last, first)) == paths(history.changed_files(first, last))


def test_change_of_equal_size_and_time_is_found(history, root):
    file = root / "src" / "a.py"
    first = history.mark("first")
    before = file.stat()
    file.write_text("a = 3\n", "utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert paths(history.changed_files(first, history.mark("last"))) == ["src/a.py"]


def test_changes_in_quick_succession_are_all_found(history, root):
    marks = []
    for number in range(200):
        (root / "src" / "a.py").write_text(f"{number:04}", "utf-8")
        marks.append(history.mark(str(number)))
    assert len(set(marks)) == 200


def test_empty_folder_changes_the_mark(history, root):
    first = history.mark("first")
    (root / "empty" / "inner").mkdir()
    last = history.mark("last")
    assert last != first
    assert history.changed_files(first, last) == ()


def test_file_names_of_any_bytes_are_recorded_and_undone(history, root):
    first = history.mark("first")
    for name in (b"new\nline", b"\xff\xfe", b" ", "é\u202e".encode(), b"-rf", b'"', b"a\\b"):
        (root / os.fsdecode(name)).write_text("x", "utf-8")
    before = state(root)
    last = history.mark("last")
    assert len(history.changed_files(first, last)) == 7
    assert history.diff(first, last).count("diff --git") == 7
    undone = history.undo(first, last)
    assert len(undone.removed_paths) == 7
    history.undo(undone.before, undone.after)
    assert state(root) == before


def test_ignored_large_and_special_files_are_left_out(history, root):
    for name in (".git", ".dsa", ".agent_context", "src/__pycache__", ".venv", "node_modules", ".mypy_cache", "build"):
        (root / name).mkdir()
        (root / name / "x").write_text("x", "utf-8")
    (root / "agent_ledger.log").write_text("x", "utf-8")
    (root / "own").mkdir()
    (root / "own" / "pyvenv.cfg").write_text("", "utf-8")
    (root / ".gitignore").write_text("build/\n*.log\n", "utf-8")
    (root / "src" / "x.log").write_text("x", "utf-8")
    (root / "big").write_bytes(b"x" * (LARGEST_BYTES + 1))
    (root / "fits").write_bytes(b"x" * LARGEST_BYTES)
    os.mkfifo(root / "pipe")
    mark = history.mark("mark")
    (root / ".gitignore").unlink()
    for path in (root / "fits", root / "src" / "a.py", root / "src" / "b.py", root / "run.sh", root / "link"):
        path.unlink()
    after = history.mark("all gone")
    assert paths(history.changed_files(mark, after)) == [
        ".gitignore", "fits", "link", "run.sh", "src/a.py", "src/b.py",
    ]  # fmt: skip
    assert dict(history.left_out(mark)) == dict(history.left_out(after)) == {
        "big": "over 5,000,000 bytes", "own": "a virtual environment", "pipe": "a pipe", "build/x": IGNORED_AT_START, "src/x.log": IGNORED_AT_START,
    }  # fmt: skip


def test_history_folder_inside_the_workspace_is_left_out(root):
    history = WorkspaceHistory(root / "kept", root)
    first = history.mark("first")
    assert history.mark("last") == first


def test_file_that_gitignore_names_later_is_still_tracked(history, root):
    first = history.mark("first")
    (root / ".gitignore").write_text("*\n", "utf-8")
    (root / "src" / "a.py").write_text("hidden\n", "utf-8")
    (root / "new").write_text("x", "utf-8")
    last = history.mark("last")
    assert paths(history.changed_files(first, last)) == ["src/a.py"]


def test_many_files_are_stored_and_restored(history, root, tmp_path):
    for number in range(500):
        (root / f"d{number % 7}").mkdir(exist_ok=True)
        (root / f"d{number % 7}" / f"f{number}").write_bytes(b"%d" % number * (number * 3))
    first = history.mark("many")
    git(tmp_path, "fsck", "--full", "--strict")
    shutil.rmtree(root / "d3")
    before = history.mark("fewer")
    assert len(history.undo(first, before).restored_paths) == 71
    assert history.changed_files(first, history.mark("again")) == ()


@pytest.mark.parametrize("name", ["src/a.py", "run.sh", "src"])
def test_permissions_that_git_does_not_store_count_as_a_change(history, root, tmp_path, name):
    first = history.mark("first")
    (root / name).chmod(0o700 if name != "src/a.py" else 0o600)
    last = history.mark("last")
    assert last != first
    assert paths(history.changed_files(first, last)) == ([name] if name != "src" else [])
    assert history.diff(first, last).startswith(
        f"Permissions of {name}: 0{'644' if name == 'src/a.py' else '755'}, then 0"
    )
    assert WorkspaceHistory(tmp_path / "history", root).mark("another process") == last
    (tmp_path / "history" / "dsa-seen.json").unlink()
    assert WorkspaceHistory(tmp_path / "history", root).mark("all read again") == last


def test_files_written_for_people_do_not_change_the_mark(history, root):
    first = history.mark("first")
    (root / "agent_ledger.log").write_text("WROTE a\n", "utf-8")
    (root / ".agent_context").mkdir()
    (root / ".agent_context" / "state.json").write_text("{}", "utf-8")
    assert history.mark("last") == first


# -- the cache of files between two processes


@pytest.mark.parametrize("torn", [None, b"", b'{"commit": "', b'{"commit": "", "root": "", "seen": {}}'])
def test_workspace_is_read_again_when_its_cache_is_lost_or_torn(history, root, tmp_path, torn):
    first = history.mark("first")
    seen = tmp_path / "history" / "dsa-seen.json"
    seen.unlink() if torn is None else seen.write_bytes(torn)
    again = WorkspaceHistory(tmp_path / "history", root)
    assert again.mark("nothing done") == first
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    assert paths(again.changed_files(first, again.mark("last"))) == ["src/a.py"]


def test_two_handles_see_the_marks_of_each_other(history, root, tmp_path):
    other = WorkspaceHistory(tmp_path / "history", root)
    first = history.mark("first")
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    second = other.mark("second")
    assert history.mark("nothing done") == second
    (root / "src" / "a.py").write_text("a = 1\n", "utf-8")
    third = history.mark("third")
    assert other.changed_files(first, third) == ()
    assert git(tmp_path, "rev-list", "--count", "runs/workspace") == "3\n"


def test_folder_other_than_a_bare_repository_is_refused(tmp_path, root):
    with pytest.raises(StoreError, match="not a bare git repository"):
        WorkspaceHistory(root, root)


def test_missing_git_is_reported_with_what_to_install(root, tmp_path):
    code = "import sys; from pathlib import Path; from machines.coding.history import WorkspaceHistory; WorkspaceHistory(Path(sys.argv[1]), Path(sys.argv[2]))"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "GIT_PYTHON_REFRESH": "quiet"}
    command = [sys.executable, "-c", code, tmp_path / "history", root]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "StoreError" in done.stderr.splitlines()[-1]
    assert "there is no `git` on the PATH: install it" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize("bad", ["", "HEAD", "--help", "0" * 39, UNKNOWN, "blob"])
def test_invalid_mark_is_refused(history, bad):
    mark = history.mark("mark")
    bad = blob_id(b"a = 1\n") if bad == "blob" else bad
    for ask in (history.changed_files, history.diff, history.undo):
        with pytest.raises(DsaError):
            ask(mark, bad)
        with pytest.raises(DsaError):
            ask(bad, mark)


# -- differences


def test_diff_has_names_and_lines(history, root):
    first = history.mark("first")
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    (root / "é.bin").write_bytes(b"\0\1")
    (root / "big").write_bytes(b"x" * (LARGEST_BYTES + 1))
    text = history.diff(first, history.mark("last"))
    assert "diff --git a/src/a.py b/src/a.py" in text
    assert "-a = 1\n+a = 2\n" in text
    assert "Binary files /dev/null and b/é.bin differ" in text
    assert text.endswith("Not stored: big (over 5,000,000 bytes)\n")


def test_gitattributes_of_the_workspace_hide_nothing(history, root):
    first = history.mark("first")
    (root / ".gitattributes").write_text("* -diff binary eol=crlf working-tree-encoding=UTF-16\n", "utf-8")
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    assert "-a = 1\n+a = 2\n" in history.diff(first, history.mark("last"))


def test_long_diff_keeps_its_beginning_and_end(history, root):
    first = history.mark("first")
    (root / "long").write_text("".join(f"line {number}\n" for number in range(10_000)), "utf-8")
    text = history.diff(first, history.mark("last"), most_bytes=2_000)
    assert len(text) < 2_100
    assert "+line 1\n" in text
    assert "+line 9999\n" in text
    assert "bytes left out" in text


# -- when a file is read again


def looked(folder, before):
    opened = os.open(folder, os.O_RDONLY)
    try:
        return look(opened, before, frozenset(), lambda _blob, _content: None, (0, 0))
    finally:
        os.close(opened)


@pytest.mark.parametrize("other", [None, 0, 1, 2, 3, 4])
def test_file_is_read_again_when_any_of_its_metadata_differs(root, other):
    found = (root / "run.sh").stat()
    stamp = [found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    if other is not None:
        stamp[other] += 1
    seen = FileState(tuple(stamp), "100755", UNKNOWN, is_settled=True)
    blob = looked(root, {"run.sh": seen}).files["run.sh"].blob
    assert blob == (UNKNOWN if other is None else blob_id(b"#!/bin/sh\n"))


def test_file_that_was_just_written_is_not_settled(tmp_path):
    (tmp_path / "new").write_text("x", "utf-8")
    assert not looked(tmp_path, {}).files["new"].is_settled
    assert looked(Path(os.__file__).parent / "json", {}).files["decoder.py"].is_settled
