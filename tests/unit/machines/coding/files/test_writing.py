"""Writing files: messages, contents on disk, and planned changes. Attacks on it are in `security/`."""

import json
import stat

import pytest
from artifact_runs import memory_folder
from file_tools import FileTools, contents, prepared, refused, sha
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.tools.workspace import FileEdit


def test_file_is_written_with_the_message_of_the_seed(workspace, tmp_path):
    found = workspace.write_file("hello.py", "print('Hello, World!')")
    assert found == {
        "result": "Wrote 22 chars to hello.py",
        "changes": [{"path": "hello.py", "before": None, "after": sha("print('Hello, World!')")}],
    }
    assert contents(tmp_path) == {"hello.py": b"print('Hello, World!')"}
    assert workspace.write_file("hello.py", "é\r\n")["changes"][0]["before"] == sha("print('Hello, World!')")
    assert contents(tmp_path) == {"hello.py": b"\xc3\xa9\r\n"}
    assert workspace.write_file("hello.py", "é\r\n")["result"].endswith("; it was the same before")


def test_folders_are_created_unless_create_dirs_is_false(workspace, tmp_path):
    code, text = refused(workspace.write_file, "a/b/c.py", "x", create_dirs=False)
    assert (code, text) == ("no_such_folder", "there is no folder 'a/b': set create_dirs=true to create it")
    assert contents(tmp_path) == {}
    workspace.write_file("a/b/c.py", "x")
    workspace.write_file("a/b/d.py", "y", create_dirs=False)
    assert contents(tmp_path) == {"a/b/c.py": b"x", "a/b/d.py": b"y"}


def test_permissions_of_an_overwritten_file_are_preserved(workspace, tmp_path):
    for mode in (0o600, 0o755, 0o4755):
        (tmp_path / "run").write_text("old")
        (tmp_path / "run").chmod(mode)
        workspace.write_file("run", f"new {mode}")
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == mode & 0o777


def test_new_file_has_the_default_permissions(workspace, tmp_path):
    workspace.write_file("a", "x")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize(
    ("before", "content", "after", "kept"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n", " (which keeps its line ends \\r\\n)"),
        (b"a\r\nb", "x\r\ny", b"x\r\ny", ""),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n", " (which keeps its BOM)"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n", ""),
        (
            b"\xef\xbb\xbfa\r\n",
            "x\ny\r\n",
            b"\xef\xbb\xbfx\r\ny\r\n",
            " (which keeps its BOM and its line ends \\r\\n)",
        ),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n", ""),
        (b"a", "x\r\n", b"x\r\n", ""),
    ],
)
def test_file_keeps_its_bom_and_line_ends(workspace, tmp_path, before, content, after, kept):
    (tmp_path / "a").write_bytes(before)
    call = {"path": "a", "content": content}
    planned = workspace.plan("write_file", call)
    done = workspace.apply("write_file", call, planned)
    assert (tmp_path / "a").read_bytes() == after
    assert done["result"] == f"Wrote {len(content)} chars to a{kept}"
    assert workspace.apply("write_file", call, planned) == done
    shown = workspace.read_file("a")["content"]
    assert workspace.write_file("a", shown)["result"].endswith("; it was the same before")
    assert (tmp_path / "a").read_bytes() == after


@given(st.text("ab\r\n", max_size=12), st.booleans())
def test_file_that_is_read_and_written_back_is_unchanged(text, has_bom):
    with memory_folder() as folder, FileTools(folder) as workspace:
        data = b"\xef\xbb\xbf" * has_bom + text.encode()
        (folder / "a").write_bytes(data)
        workspace.write_file("a", workspace.read_file("a")["content"])
        assert (folder / "a").read_bytes() == data


def test_several_files_each_keep_their_line_ends(workspace, tmp_path):
    (tmp_path / "a").write_bytes(b"1\r\n")
    (tmp_path / "b").write_bytes(b"1\n")
    written = workspace.write_files([{"path": name, "content": "x\ny\n"} for name in "abc"])
    assert contents(tmp_path) == {"a": b"x\r\ny\r\n", "b": b"x\ny\n", "c": b"x\ny\n"}
    kept = "4 chars to a (which keeps its line ends \\r\\n), 4 chars to b, 4 chars to c"
    assert written["result"] == f"Wrote 3 files: {kept}"


def test_folders_and_read_only_files_are_not_overwritten(workspace, tmp_path):
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
def test_invalid_calls_change_nothing(workspace, tmp_path, tool, arguments, code):
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


def test_planned_changes_are_the_changes_made(workspace, tmp_path):
    prepared(tmp_path / "here")
    (tmp_path / "a").write_text("x")
    for tool, arguments in (
        ("write_file", {"path": "b/c", "content": "1"}),
        ("write_files", {"files": [{"path": "a", "content": "2"}, {"path": "d", "content": "3"}]}),
        ("edit", {"path": "a", "old": "2", "new": "4"}),
    ):
        before = contents(tmp_path)
        planned = workspace.plan(tool, arguments)
        shown = workspace.diff(tool, arguments)
        assert contents(tmp_path) == before
        assert all(f"+++ {change.path}\n" in shown for change in planned)
        done = workspace.apply(tool, arguments, planned)
        assert [FileEdit(**said) for said in json.loads(json.dumps(done["changes"]))] == list(planned)
        assert [workspace.digest(change.path) for change in planned] == [change.after for change in planned]
        assert workspace.apply(tool, arguments, planned) == done
    assert workspace.plan("read_file", {"path": "a"}) == ()
    assert workspace.diff("list_dir", {}) == ""


def test_call_is_refused_when_its_files_have_changed_since(workspace, tmp_path):
    (tmp_path / "a").write_text("one two")
    calls = {
        "edit": {"path": "a", "old": "two", "new": "2"},
        "write_file": {"path": "a", "content": "new"},
        "write_files": {"files": [{"path": "b", "content": ""}, {"path": "a", "content": "new"}]},
    }
    plans = {tool: workspace.plan(tool, arguments) for tool, arguments in calls.items()}
    (tmp_path / "a").write_text("one two three")
    for tool, arguments in calls.items():
        assert refused(workspace.apply, tool, arguments, plans[tool])[0] == "changed_since"
    assert contents(tmp_path) == {"a": b"one two three"}
    other = workspace.plan("write_file", {"path": "c", "content": ""})
    assert refused(workspace.apply, "write_file", calls["write_file"], other)[0] == "changed_since"
