"""The file tools of the coding machine, by what they give, say and leave on disk. Attacks on them are in `security/`."""

import errno
import hashlib
import itertools
import json
import os
import signal
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_calls import handled

from machines.coding.tools.diffing import unified
from machines.coding.tools.editing import edited
from machines.coding.tools.errors import ToolError
from machines.coding.tools.paths import Pattern, named, parts_of
from machines.coding.tools.workspace import Change, Workspace


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def workspace(request, tmp_path):
    with Workspace(tmp_path, by_walk=request.param) as opened:
        yield opened


def refused(call, *arguments, **options):
    with pytest.raises(ToolError) as error:
        call(*arguments, **options)
    return error.value.code, str(error.value)


def given_or_refused(call, *arguments, **options):
    """Give what a call gives and None, or None and its ToolError."""
    try:
        return call(*arguments, **options), None
    except ToolError as error:
        return None, error


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def contents(folder):
    """Give every file below a folder with its bytes, those that are being written too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# Paths, as texts


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a.py", ("a.py",)),
        ("./src//app.py", ("src", "app.py")),
        ("src/../a.py", ("a.py",)),
        (".", ()),
        ("src/..", ()),
        ("/some/space/a.py", ("a.py",)),
        ("//some/./space//src/a.py", ("src", "a.py")),
        ("/some/space", ()),
        ("./~x", ("~x",)),
        ("./C:x", ("C:x",)),
        ("späße/日本.py", ("späße", "日本.py")),
    ],
)
def test_what_a_path_means(path, parts):
    assert parts_of(path, ["/some/space"]) == parts
    assert parts_of(named(parts)) == parts


def test_an_absolute_path_is_taken_as_it_is_seen_from_the_workspace(workspace, tmp_path):
    workspace.write_file(str(tmp_path / "src" / "a.py"), "x")
    assert workspace.read_file("src/a.py")["content"] == "x"
    code, text = refused(workspace.write_file, f"{tmp_path}beside/a.py", "x")
    assert code == "path_outside_workspace"
    assert "absolute" in text


@given(st.text(alphabet="a./ ~:\\\0\n\udc80é", max_size=20) | st.text(max_size=20))
def test_any_text_is_names_that_stay_inside_or_is_refused(text):
    parts, error = given_or_refused(parts_of, text, ["/a"])
    if error is not None:
        assert error.code in ("bad_path", "path_outside_workspace")
        assert str(error).isprintable()
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)
    assert not named(parts).isprintable() or "\\" in named(parts) or parts_of(named(parts)) == parts


@pytest.mark.parametrize(
    ("pattern", "covered", "free"),
    [
        ("*.lock", ["a.lock", "x/y/b.LOCK"], ["a.lock.py", "lock"]),
        ("tests", ["tests", "tests/a.py", "x/tests/y/z"], ["test", "tests.py", "mytests/a"]),
        ("tests/*.py", ["tests/a.py"], ["x/tests/a.py", "tests/x/a.py", "tests"]),
        ("/conftest.py", ["conftest.py"], ["x/conftest.py"]),
        ("tests/**/test_*.py", ["tests/test_a.py", "tests/x/y/test_b.py"], ["tests/a.py", "test_a.py"]),
        ("**/secret", ["secret", "a/b/secret/c"], ["secrets"]),
        ("docs/**", ["docs/a", "docs/a/b"], ["doc", "x/docs"]),
        ("[ab]?.py", ["a1.py", "x/b2.py"], ["c1.py", "a.py"]),
    ],
)
def test_patterns(pattern, covered, free):
    made = Pattern(pattern)
    assert [path for path in [*covered, *free] if made.covers(path.split("/"))] == covered


@pytest.mark.parametrize("pattern", ["", "/", ".", "./"])
def test_a_pattern_that_names_nothing_is_told_at_once(tmp_path, pattern):
    with pytest.raises(ValueError, match="names nothing"):
        Workspace(tmp_path, [pattern])


# Lists


def test_a_folder_is_listed_by_name_with_kinds_and_sizes(workspace, tmp_path):
    for name in (".git", ".dsa", "src"):
        (tmp_path / name).mkdir()
    (tmp_path / "b.py").write_text("abc")
    (tmp_path / "link").symlink_to("b.py")
    (tmp_path / (".dsa~" + "0" * 32)).write_text("")
    os.mkfifo(tmp_path / "pipe")
    assert workspace.list_dir() == {
        "result": "5 entries in .",
        "entries": [
            {"name": ".git/", "kind": "folder"},
            {"name": "b.py", "kind": "file", "size_bytes": 3},
            {"name": "link", "kind": "link", "size_bytes": 4},
            {"name": "pipe", "kind": "other", "size_bytes": 0},
            {"name": "src/", "kind": "folder"},
        ],
        "more": 0,
    }
    assert workspace.list_dir("src")["result"] == "0 entries in src"


def test_a_long_list_says_how_many_more_there_are(workspace, tmp_path):
    for number in range(203):
        (tmp_path / f"{number:03}").touch()
    found = workspace.list_dir()
    assert [entry["name"] for entry in found["entries"]] == [f"{number:03}" for number in range(200)]
    assert (found["more"], found["result"]) == (3, "203 entries in .; 3 more are not shown")


def test_what_cannot_be_listed(workspace, tmp_path):
    (tmp_path / "a.py").touch()
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    assert refused(workspace.list_dir, "a.py") == ("not_a_folder", "'a.py' is no folder: read it with read_file")
    assert refused(workspace.list_dir, "x")[0] == "no_such_file"
    assert refused(workspace.list_dir, ".git/hooks")[0] == "protected_path"


# Reading


def test_a_file_is_read_with_its_size_and_lines(workspace, tmp_path):
    (tmp_path / "a.py").write_bytes("x = 'é'\r\ny".encode())
    assert workspace.read_file("a.py") == {
        "content": "x = 'é'\r\ny",
        "size_bytes": 11,
        "lines": 2,
        "result": "Read a.py: 11 bytes, 2 lines",
        "truncated": False,
        "next_offset": None,
    }
    (tmp_path / "empty").touch()
    assert workspace.read_file("empty")["result"] == "Read empty: 0 bytes, 0 lines"
    assert workspace.read_file("a.py", offset=50)["content"] == ""
    assert workspace.read_bytes("a.py") == "x = 'é'\r\ny".encode()


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 4, 5, 7, 100])
def test_a_file_read_in_pieces_is_the_file(workspace, tmp_path, max_bytes):
    text = "aé日𝄞\n" * 5
    (tmp_path / "a.txt").write_text(text, "utf-8")
    pieces, offset = [], 0
    while offset is not None:
        piece = workspace.read_file("a.txt", max_bytes, offset)
        assert piece["truncated"] == (piece["next_offset"] is not None)
        pieces.append(piece["content"])
        offset = piece["next_offset"]
    assert "".join(pieces) == text


def test_a_cut_says_the_true_size_and_how_to_read_on(workspace, tmp_path):
    (tmp_path / "a.txt").write_text("ab\ncd\nef\n")
    assert workspace.read_file("a.txt", 4)["result"] == (
        "Read a.txt: 9 bytes, 3 lines; bytes 0 to 4 are shown; read on with offset=4"
    )


def test_what_is_no_text(workspace, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"ab\0c")
    (tmp_path / "b.txt").write_bytes("a".encode("utf-16"))
    (tmp_path / "c.txt").write_bytes("caf\xe9 \xe0".encode("latin-1"))
    assert refused(workspace.read_file, "a.bin") == (
        "binary_file",
        "'a.bin' is no text (4 bytes): it cannot be shown",
    )
    assert "of UTF-16" in refused(workspace.read_file, "b.txt")[1]
    found = workspace.read_file("c.txt")
    assert found["content"] == "caf\ufffd \ufffd"
    assert found["result"].endswith("it is not all UTF-8: 2 characters are shown as \ufffd")


def test_a_missing_file_is_told_with_those_that_are_alike(workspace, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "hello.py").touch()
    text = "there is no 'src/helo.py'; there is 'src/hello.py'"
    assert refused(workspace.read_file, "src/helo.py") == ("no_such_file", text)
    assert refused(workspace.edit, "src/helo.py", "a", "b") == ("no_such_file", text)
    assert "nor a folder 'scr'" in refused(workspace.read_file, "scr/hello.py")[1]
    assert refused(workspace.read_file, "src")[0] == "not_a_file"
    assert refused(workspace.read_file, "src/hello.py/x")[0] == "not_a_folder"


def test_what_others_ask_of_a_file(workspace, tmp_path):
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "link").symlink_to("a.py")
    assert workspace.digest("a.py") == sha("x")
    assert workspace.digest("b.py") is None
    assert workspace.digest("b/c.py") is None
    assert [workspace.exists(path) for path in ("a.py", ".", "b.py", "link", "../x", "")] == [True, True] + [False] * 4


# Writing


def test_a_file_is_written_as_the_seed_says(workspace, tmp_path):
    found = workspace.write_file("hello.py", "print('Hello, World!')")
    assert found == {
        "result": "Wrote 22 chars to hello.py",
        "changes": [{"path": "hello.py", "before": None, "after": sha("print('Hello, World!')")}],
    }
    assert contents(tmp_path) == {"hello.py": b"print('Hello, World!')"}
    assert workspace.write_file("hello.py", "é\r\n")["changes"][0]["before"] == sha("print('Hello, World!')")
    assert contents(tmp_path) == {"hello.py": b"\xc3\xa9\r\n"}
    assert workspace.write_file("hello.py", "é\r\n")["result"].endswith("; it was the same before")


def test_folders_are_made_unless_that_is_not_wanted(workspace, tmp_path):
    code, text = refused(workspace.write_file, "a/b/c.py", "x", create_dirs=False)
    assert (code, text) == ("no_such_folder", "there is no folder 'a/b': say create_dirs=true to make it")
    assert contents(tmp_path) == {}
    workspace.write_file("a/b/c.py", "x")
    workspace.write_file("a/b/d.py", "y", create_dirs=False)
    assert contents(tmp_path) == {"a/b/c.py": b"x", "a/b/d.py": b"y"}


def test_the_mode_of_a_file_is_kept(workspace, tmp_path):
    for mode in (0o600, 0o755, 0o4755):
        (tmp_path / "run").write_text("old")
        (tmp_path / "run").chmod(mode)
        workspace.write_file("run", f"new {mode}")
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == mode & 0o777


def test_a_new_file_has_the_mode_of_any_new_file(workspace, tmp_path):
    workspace.write_file("a", "x")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_what_is_not_written_over(workspace, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "kept").write_text("old")
    (tmp_path / "kept").chmod(0o444)
    assert refused(workspace.write_file, "folder", "x")[0] == "not_a_file"
    assert refused(workspace.write_file, "folder/", "x")[0] == "not_a_file"
    assert refused(workspace.write_file, "new/", "x")[0] == "not_a_file"
    assert refused(workspace.write_file, "kept", "x")[0] == "read_only"
    assert refused(workspace.write_file, "kept/x", "x")[0] == "not_a_folder"
    assert contents(tmp_path) == {"kept": b"old"}


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("write_file", {"path": "a", "content": "x" * 1_000_001}, "too_large"),
        ("write_file", {"path": "a", "content": "\ud800"}, "bad_arguments"),
        ("write_file", {"path": "a", "content": 3}, "bad_arguments"),
        ("write_file", {"path": "a"}, "bad_arguments"),
        ("write_file", {"path": "a", "content": "", "create_dirs": "yes"}, "bad_arguments"),
        ("write_file", {"path": "a", "content": "", "mode": 1}, "bad_arguments"),
        ("write_file", {"content": ""}, "bad_path"),
        ("write_files", {"files": []}, "bad_arguments"),
        ("write_files", {"files": "a"}, "bad_arguments"),
        ("write_files", {"files": [{"path": "a"}]}, "bad_arguments"),
        ("write_files", {"files": [{"path": "a", "content": ""}, {"path": "./a", "content": ""}]}, "bad_arguments"),
        ("write_files", {"files": [{"path": "a", "content": ""}, {"path": "a/b", "content": ""}]}, "bad_arguments"),
        ("write_files", {"files": [{"path": f"{n}", "content": ""} for n in range(101)]}, "too_large"),
        (
            "write_files",
            {"files": [{"path": "a", "content": ""}, {"path": "../b", "content": ""}]},
            "path_outside_workspace",
        ),
        ("edit", {"path": "old", "old": "", "new": "x"}, "bad_arguments"),
        ("edit", {"path": "old", "old": "x", "new": "x"}, "bad_arguments"),
        ("edit", {"path": "old", "old": "x", "new": "y", "all": 1}, "bad_arguments"),
        ("edit", {"path": "old", "old": "x", "new": "y" * 1_000_001}, "too_large"),
        ("read_file", {"path": "old", "max_bytes": "all"}, "bad_arguments"),
        ("read_file", {"path": "old", "max_bytes": True}, "bad_arguments"),
        ("search", {"pattern": ""}, "bad_pattern"),
        ("search", {"pattern": "a\nb"}, "bad_pattern"),
        ("search", {"pattern": "a", "glob": "/"}, "bad_arguments"),
        ("search", {"pattern": "x" * 1_001}, "bad_pattern"),
        ("delete_file", {"path": "old"}, "unknown_tool"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_calls_that_cannot_be_meant_change_nothing(workspace, tmp_path, tool, arguments, code):
    (tmp_path / "old").write_text("x")
    said, text = refused(workspace.apply, tool, arguments)
    assert said == code
    assert len(text) < 300
    assert contents(tmp_path) == {"old": b"x"}


def test_several_files_are_written_at_once(workspace, tmp_path):
    (tmp_path / "b").write_text("old")
    found = workspace.write_files([{"path": "x/a", "content": "1"}, {"path": "b", "content": "22"}])
    assert workspace.write_files([{"path": "c", "content": "1"}])["result"] == "Wrote 1 chars to c"
    (tmp_path / "c").unlink()
    assert found["result"] == "Wrote 2 files: 1 chars to x/a, 2 chars to b"
    assert [change["before"] for change in found["changes"]] == [None, sha("old")]
    assert contents(tmp_path) == {"x/a": b"1", "b": b"22"}


# All or nothing: at each call by which the disk is changed


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


def prepared(folder):
    (folder / "sub").mkdir(parents=True)
    (folder / "one.py").write_text("old 1")
    (folder / "sub" / "three.py").write_text("old 3")


def changes_made(tool, tmp_path):
    """Count the calls that change the disk, closing aside."""
    prepared(tmp_path / "counted")
    made = []

    def handle(name, _arguments, perform):
        made.append(name)
        return perform()

    with Workspace(tmp_path / "counted") as opened, handled(handle):
        opened.apply(tool, CALLS[tool])
    return [name for name in made if name != "close"]


@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_an_error_at_any_call_leaves_all_old_or_all_new(tmp_path, tool, number):
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

        with Workspace(folder) as opened, handled(handle), pytest.raises((ToolError, OSError)) as raised:
            opened.apply(tool, CALLS[tool])
        found = {path: data for path, data in contents(folder).items() if ".dsa~" not in path}
        assert found in (OLD, AFTER[tool]), calls[failing]
        last = max(at for at, name in enumerate(calls) if name == "rename")
        if failing <= last:
            assert contents(folder) == OLD, f"{failing}: {calls[failing]}"
            assert sorted(path.name for path in folder.iterdir()) == ["one.py", "sub"]
            assert isinstance(raised.value, ToolError) == (number == errno.ENOSPC)


def killed_at(folder, tool, planned, failing):
    """Do a call in a process that is killed right before its n-th change of the disk; tell whether it was."""
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
            with Workspace(folder) as opened, handled(handle):
                opened.apply(tool, CALLS[tool], planned)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("tool", CALLS)
def test_a_call_that_was_killed_anywhere_is_done_again_to_the_same_end(tmp_path, tool):
    calls = changes_made(tool, tmp_path)
    partly = 0
    for failing in range(len(calls)):
        folder = tmp_path / str(failing)
        prepared(folder)
        with Workspace(folder) as opened:
            planned = opened.planned(tool, CALLS[tool])
            assert killed_at(folder, tool, planned, failing)
            found = {path: data for path, data in contents(folder).items() if ".dsa~" not in path}
            whole = {path: (OLD.get(path), AFTER[tool].get(path)) for path in {*OLD, *AFTER[tool]}}
            assert all(found.get(path) in states for path, states in whole.items()), "a file is neither old nor new"
            partly += found not in (OLD, AFTER[tool])
            again = opened.apply(tool, CALLS[tool], planned)
        assert contents(folder) == AFTER[tool], f"{failing}: {calls[failing]}"
        prepared(tmp_path / f"{failing} quietly")
        with Workspace(tmp_path / f"{failing} quietly") as opened:
            assert opened.apply(tool, CALLS[tool]) == again
    assert bool(partly) == (tool == "write_files")


@pytest.mark.parametrize("tool", CALLS)
def test_all_is_on_disk_before_the_first_name_and_the_names_are_in_the_end(tmp_path, tool):
    calls = changes_made(tool, tmp_path)
    first, last = calls.index("rename"), max(at for at, name in enumerate(calls) if name == "rename")
    assert "write" not in calls[first:]
    made = calls[:first].count("open")
    assert calls[:first].count("fsync") == made + calls[:first].count("mkdir")
    assert calls[:first][-1] == "fsync"
    assert calls[last:].count("fsync") == calls.count("rename")


def test_only_what_the_tools_left_is_taken_away(workspace, tmp_path):
    for name in (".env", ".dsa~notes", ".dsa~" + "f" * 31, "x.dsa~" + "f" * 32, ".dsa~" + "f" * 32):
        (tmp_path / name).write_text("kept")
    workspace.write_file("a", "x")
    assert sorted(contents(tmp_path)) == [".dsa~" + "f" * 31, ".dsa~notes", ".env", "a", "x.dsa~" + "f" * 32]


def test_what_is_found_done_is_on_disk_too(tmp_path):
    """Who did it may have died before the names that lead to the file were synced."""
    prepared(tmp_path)
    with Workspace(tmp_path) as opened:
        planned = opened.planned("write_file", CALLS["write_file"])
        opened.apply("write_file", CALLS["write_file"], planned)
        synced = []

        def handle(name, arguments, perform):
            if name != "close":
                synced.append((name, os.fstat(arguments[0]).st_ino))
            return perform()

        with handled(handle):
            opened.apply("write_file", CALLS["write_file"], planned)
    assert synced == [("fsync", folder.stat().st_ino) for folder in (tmp_path, tmp_path / "x", tmp_path / "x" / "y")]


def test_what_another_process_is_writing_is_not_swept_away(tmp_path):
    names = []

    def handle(name, arguments, perform):
        made = perform()
        if name == "open" and not names:
            names.append(arguments[0])
            with Workspace(tmp_path) as other:
                other.write_file("other", "y")
        return made

    with Workspace(tmp_path) as opened, handled(handle):
        opened.write_file("own", "x")
    assert contents(tmp_path) == {"other": b"y", "own": b"x"}


# What was planned


def test_what_is_planned_is_what_happens(workspace, tmp_path):
    prepared(tmp_path / "here")
    (tmp_path / "a").write_text("x")
    for tool, arguments in (
        ("write_file", {"path": "b/c", "content": "1"}),
        ("write_files", {"files": [{"path": "a", "content": "2"}, {"path": "d", "content": "3"}]}),
        ("edit", {"path": "a", "old": "2", "new": "4"}),
    ):
        before = contents(tmp_path)
        planned = workspace.planned(tool, arguments)
        shown = workspace.diff(tool, arguments)
        assert contents(tmp_path) == before
        assert all(f"+++ {change.path}\n" in shown for change in planned)
        done = workspace.apply(tool, arguments, planned)
        assert [Change.from_json(said) for said in json.loads(json.dumps(done["changes"]))] == list(planned)
        assert [workspace.digest(change.path) for change in planned] == [change.after for change in planned]
        assert workspace.apply(tool, arguments, planned) == done
    assert workspace.planned("read_file", {"path": "a"}) == ()
    assert workspace.diff("list_dir", {}) == ""


def test_a_call_is_not_done_when_its_files_have_changed_since(workspace, tmp_path):
    (tmp_path / "a").write_text("one two")
    calls = {
        "edit": {"path": "a", "old": "two", "new": "2"},
        "write_file": {"path": "a", "content": "new"},
        "write_files": {"files": [{"path": "b", "content": ""}, {"path": "a", "content": "new"}]},
    }
    plans = {tool: workspace.planned(tool, arguments) for tool, arguments in calls.items()}
    (tmp_path / "a").write_text("one two three")
    for tool, arguments in calls.items():
        assert refused(workspace.apply, tool, arguments, plans[tool])[0] == "changed_since"
    assert contents(tmp_path) == {"a": b"one two three"}
    other = workspace.planned("write_file", {"path": "c", "content": ""})
    assert refused(workspace.apply, "write_file", calls["write_file"], other)[0] == "changed_since"


def test_a_difference_is_shown_for_a_person(workspace, tmp_path):
    (tmp_path / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 30)))
    assert workspace.diff("edit", {"path": "a.py", "old": "line 10\n", "new": "line ten\n"}) == (
        "--- a.py\n+++ a.py\n@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
    )
    assert (
        workspace.diff("write_file", {"path": "b.py", "content": "x\n"})
        == "--- /dev/null\n+++ b.py\n@@ -1,0 +1,1 @@\n+x\n"
    )
    same = (tmp_path / "a.py").read_text()
    assert workspace.diff("write_file", {"path": "a.py", "content": same}) == "a.py: stays as it is\n"
    assert "end is another" in workspace.diff("write_file", {"path": "a.py", "content": same[:-1]})


def test_a_difference_is_bounded_and_cannot_repaint_a_terminal(workspace, tmp_path):
    (tmp_path / "many").write_text("".join(f"{n % 7}{n}\n" for n in range(60_000)))
    (tmp_path / "bin").write_bytes(b"\0" * 10)
    shown = workspace.diff("write_file", {"path": "many", "content": "".join(f"{n % 5}{n}\n" for n in range(60_000))})
    assert len(shown) < 10_000
    assert "more lines are not shown" in shown
    assert "binary, 10 bytes" in workspace.diff("write_file", {"path": "bin", "content": "x"})
    shown = workspace.diff("write_file", {"path": "a", "content": "\x1b[2J\u202e" + "x" * 1_000})
    assert "+\\x1b[2J\\u202exxx" in shown
    assert "(706 more chars)" in shown


def rebuilt(before, shown):
    """Do what a difference says."""
    old, new, at = before.split("\n"), [], 0
    for line in shown.splitlines()[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].split(",")[0][1:]) - 1
            new += old[at:start]
            at = start
        elif line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        if line[0] in " +":
            new.append(line[1:])
    return "\n".join([*new, *old[at:]])


LINES = st.lists(st.sampled_from("abc"), min_size=1, max_size=30).map("\n".join)


@given(LINES, LINES)
def test_a_difference_leads_from_one_text_to_the_other(before, after):
    shown = unified("x", f"{before}\n".encode(), f"{after}\n".encode())
    if before == after:
        assert shown == "x: stays as it is\n"
    else:
        assert rebuilt(before, shown) == after


@given(
    st.text(alphabet="ab\n", max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=4),
    st.text("abc\n", max_size=4),
)
def test_an_edit_is_a_replacement_with_any_line_endings(text, old, new):
    for crlf, ending in itertools.product((False, True), repeat=2):
        there, asked = text.replace("\n", "\r\n") if crlf else text, old.replace("\n", "\r\n") if ending else old
        found, error = given_or_refused(edited, "x", there, asked, new, everywhere=True)
        if error is not None:
            assert error.code == ("not_found" if old not in text else "bad_arguments")
            continue
        wanted = text.replace(old, new)
        assert found == (wanted.replace("\n", "\r\n") if crlf and "\n" in text else wanted)


# Edits


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\nb\nc\n", "b", "B", "a\nB\nc\n"),
        ("a\nb\nc\n", "a\nb\n", "", "c\n"),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"),
        ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("a\r\nb\nc\nd\n", "a\nb", "x\ny", "x\r\ny\nc\nd\n"),
        ("\ufeffa\n", "a", "b", "\ufeffb\n"),
        ("é日𝄞", "日", "x", "éx𝄞"),
        ("no end", "end", "end\n", "no end\n"),
    ],
)
def test_an_edit_keeps_all_else(workspace, tmp_path, text, old, new, after):
    (tmp_path / "a").write_bytes(text.encode())
    assert workspace.edit("a", old, new)["result"].startswith("Edited a: it has ")
    assert (tmp_path / "a").read_bytes().decode() == after


def test_an_edit_of_what_stands_several_times(workspace, tmp_path):
    (tmp_path / "a").write_text("x = 1\ny = 2\nx = 1\nx = 1\n")
    code, text = refused(workspace.edit, "a", "x = 1", "x = 2")
    assert (code, text) == (
        "ambiguous",
        "'old' stands 3 times in 'a' (lines 1, 3, 4): give more of the lines around the one that is meant, or say all=true",
    )
    assert workspace.edit("a", "x = 1", "x = 2", all=True)["result"] == "Edited a: it has 4 lines now"
    assert (tmp_path / "a").read_text() == "x = 2\ny = 2\nx = 2\nx = 2\n"


def test_an_edit_of_what_is_not_there_shows_what_is(workspace, tmp_path):
    (tmp_path / "a").write_text("def total(items):\n    return sum(items)\n\n\ndef mean(items):\n\treturn 0\n")
    code, text = refused(workspace.edit, "a", "def totals(items):\n  return sum(item)", "")
    assert code == "not_found"
    assert text == "'old' does not stand in 'a'. Most alike are:\n1: def total(items):\n5: def mean(items):"
    spaced = refused(workspace.edit, "a", "def total( items ):\n  return sum(items)", "")[1]
    assert spaced == (
        "'old' does not stand in 'a', but for whitespace it does. Copy it exactly from there:\n"
        "1: def total(items):\n2:     return sum(items)"
    )
    assert "5: def mean(items):\n6: \treturn 0" in refused(workspace.edit, "a", "def mean(items):\n    return 0", "")[1]
    assert "nor anything like it" in refused(workspace.edit, "a", "§§§§§§§§§§§§", "")[1]


def test_a_file_that_is_no_text_is_not_edited(workspace, tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xe9")
    assert refused(workspace.edit, "a", "caf", "x")[0] == "binary_file"
    (tmp_path / "b").write_bytes(b"x" * 1_000_001)
    assert refused(workspace.edit, "b", "x", "y")[0] == "too_large"


# Search


@pytest.fixture
def searched(workspace, tmp_path):
    for path, data in {
        "a.py": b"import os\r\nprint(os.name)\r\n",
        "src/b.py": b"import re\n",
        "src/deep/c.txt": b"an import here\n",
        "bin": b"import \0",
        "large": b"import\n" * 200_000,
        ".git/config": b"import\n",
        ".dsa/run": b"import\n",
        "node_modules/x.js": b"import\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return workspace


@pytest.mark.parametrize(("pattern", "is_regex"), [("import", False), ("^(an )?import\\b", True)])
def test_lines_are_found_by_text_and_by_expression(searched, pattern, is_regex):
    assert searched.search(pattern, is_regex=is_regex) == {
        "result": "3 lines in 3 files; passed over: 1 binary, 3 folders that are not searched, 1 over 1 MB",
        "matches": ["a.py:1: import os", "src/b.py:1: import re", "src/deep/c.txt:1: an import here"],
        "more": False,
        "skipped": {"binary": 1, "folders that are not searched": 3, "over 1 MB": 1},
    }


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"path": "src"}, ["src/b.py", "src/deep/c.txt"]),
        ({"path": "src/b.py"}, ["src/b.py"]),
        ({"path": "node_modules"}, ["node_modules/x.js"]),
        ({"glob": "*.py"}, ["a.py", "src/b.py"]),
        ({"glob": "src/**/*.txt"}, ["src/deep/c.txt"]),
        ({"glob": "src/*"}, ["src/b.py"]),
        ({"max_results": 2}, ["a.py", "src/b.py"]),
    ],
)
def test_a_search_can_be_narrowed(searched, options, files):
    for is_regex in (False, True):
        found = searched.search("import", is_regex=is_regex, **options)
        assert [line.split(":")[0] for line in found["matches"]] == files
        assert found["more"] == ("max_results" in options)


def test_a_search_that_finds_nothing_says_what_may_have_been_meant(searched):
    assert searched.search("print|re", "src")["result"] == (
        "no line in 2 files has it as it is written (for an expression say is_regex=true)"
    )
    assert searched.search("nothing", "src")["result"] == "no line in 2 files has it"
    assert refused(searched.search, "x", "nowhere")[0] == "no_such_file"
    assert refused(searched.search, "x", ".git")[0] == "protected_path"
    assert refused(searched.search, "x", ".git/config")[0] == "protected_path"


def test_long_lines_are_cut_around_what_was_found(workspace, tmp_path):
    (tmp_path / "a").write_text("x" * 5_000 + "needle" + "y" * 5_000)
    for is_regex in (False, True):
        (line,) = workspace.search("needle", is_regex=is_regex)["matches"]
        assert line.startswith("a:1: ..xxx")
        assert line.endswith("yyy..")
        assert "needle" in line
        assert len(line) < 220


@pytest.mark.parametrize("pattern", ["(", "*", "a{99999999999}", "(?P<x", "(" * 500 + ")" * 500, "\\"])
def test_an_expression_that_is_none_is_told(workspace, tmp_path, pattern):
    (tmp_path / "a").write_text("x")
    code, text = refused(workspace.search, pattern, is_regex=True)
    assert code == "bad_pattern"
    assert "is_regex=false" in text


# The guard


@pytest.mark.parametrize(
    ("tool", "arguments", "faulty"),
    [
        ("read_file", {"path": "a"}, False),
        ("read_file", {"path": "missing"}, False),
        ("read_file", {"path": ".git/config"}, False),
        ("write_file", {"path": ".git/config"}, True),
        ("read_file", {"path": "../a"}, True),
        ("read_file", {}, True),
        ("list_dir", {}, False),
        ("list_dir", {"path": None}, False),
        ("list_dir", {"path": ".dsa"}, True),
        ("search", {"pattern": "x"}, False),
        ("search", {"pattern": "x", "path": ".git"}, True),
        ("edit", {"path": "a", "old": "not there", "new": ""}, False),
        ("edit", {"path": "guarded/test_a.py", "old": "x", "new": ""}, True),
        ("write_files", {"files": [{"path": "a"}, {"path": "link"}]}, True),
        ("write_files", {"files": [{"path": "a"}, {"path": "b"}]}, False),
        ("write_files", {"files": 3}, False),
        ("write_file", {"path": "folder"}, False),
        ("write_file", {"path": 3}, True),
        ("run_cmd", {"cmd": "../../x"}, False),
    ],
)
def test_the_guard_refuses_what_leads_out_and_nothing_else(tmp_path, tool, arguments, faulty):
    (tmp_path / "a").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    with Workspace(tmp_path, ["guarded/test_*.py"]) as opened:
        assert bool(opened.fault(tool, arguments)) == faulty
