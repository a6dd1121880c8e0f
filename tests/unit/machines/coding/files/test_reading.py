"""Listing folders and reading files: results and messages."""

import os

import pytest
from file_tools import refused, sha


def test_folder_is_listed_by_name_with_kinds_and_sizes(workspace, tmp_path):
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


def test_files_written_for_people_are_not_listed(workspace, tmp_path):
    (tmp_path / "agent_ledger.log").write_text("x")
    (tmp_path / ".agent_context").mkdir()
    (tmp_path / ".agent_context" / "state.json").write_text("{}")
    assert workspace.list_dir()["entries"] == []
    assert refused(workspace.list_dir, ".agent_context")[0] == "protected_path"
    assert "there is no 'agent_ledger.lo': list" in refused(workspace.read_file, "agent_ledger.lo")[1].replace(";", ":")
    assert workspace.read_file("agent_ledger.log")["content"] == "x"


def test_long_list_says_how_many_more_there_are(workspace, tmp_path):
    for number in range(203):
        (tmp_path / f"{number:03}").touch()
    found = workspace.list_dir()
    assert [entry["name"] for entry in found["entries"]] == [f"{number:03}" for number in range(200)]
    assert (found["more"], found["result"]) == (3, "203 entries in .; 3 more are not shown: continue with offset=200")
    rest = workspace.apply("list_dir", {"offset": 200})
    assert (len(rest["entries"]), rest["more"]) == (3, 0)
    assert rest["result"] == "203 entries in .; those before number 201 are not shown"


def test_list_of_a_file_or_a_missing_or_protected_folder_is_refused(workspace, tmp_path):
    (tmp_path / "a.py").touch()
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    assert refused(workspace.list_dir, "a.py") == ("not_a_folder", "'a.py' is not a folder: read it with read_file")
    assert refused(workspace.list_dir, "x")[0] == "no_such_file"
    assert refused(workspace.list_dir, ".git/hooks")[0] == "protected_path"


def test_file_is_read_with_its_size_and_lines(workspace, tmp_path):
    (tmp_path / "a.py").write_bytes("x = 'é'\r\ny".encode())
    assert workspace.read_file("a.py") == {
        "content": "x = 'é'\ny",
        "size_bytes": 11,
        "lines": 2,
        "result": "Read a.py: 11 bytes, 2 lines; its lines end in \\r\\n, shown as \\n",
        "truncated": False,
        "next_offset": None,
    }
    (tmp_path / "empty").touch()
    assert workspace.read_file("empty")["result"] == "Read empty: 0 bytes, 0 lines"
    assert workspace.read_file("a.py", offset=50)["content"] == ""
    assert workspace.read_bytes("a.py") == "x = 'é'\r\ny".encode()


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 4, 5, 7, 100])
def test_pieces_of_a_file_make_up_the_whole_file(workspace, tmp_path, max_bytes):
    text = "aé日𝄞\n" * 5
    (tmp_path / "a.txt").write_text(text, "utf-8")
    pieces, offset = [], 0
    while offset is not None:
        piece = workspace.read_file("a.txt", max_bytes, offset)
        assert piece["truncated"] == (piece["next_offset"] is not None)
        pieces.append(piece["content"])
        offset = piece["next_offset"]
    assert "".join(pieces) == text


@pytest.mark.parametrize("max_bytes", [4, 5, 6, 7, 100])
def test_windows_file_is_read_in_pieces_with_plain_line_ends(workspace, tmp_path, max_bytes):
    text = "ab\n\n日c\n" * 4 + "end"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    pieces, offset = [], 0
    while offset is not None:
        piece = workspace.read_file("a.txt", max_bytes, offset)
        pieces.append(piece["content"])
        offset = piece["next_offset"]
    assert "".join(pieces) == text
    assert "; it begins with a BOM, which is not shown; its lines end in \\r\\n, shown as \\n" in piece["result"]


@pytest.mark.parametrize("before", range(1 << 20, (1 << 20) - 3, -1))
def test_line_ends_are_recognised_anywhere_in_a_large_file(workspace, tmp_path, before):
    (tmp_path / "a.txt").write_bytes(b"x" * before + b"\r\ny")
    assert workspace.read_file("a.txt", 100, before - 1)["content"] == "x\ny"


def test_mixed_line_ends_are_shown_as_they_are(workspace, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\nc")
    found = workspace.read_file("a.txt")
    assert found["content"] == "a\r\nb\nc"
    assert found["result"].endswith("; its line ends are mixed, \\r\\n and \\n, and shown as they are")


def test_cut_file_says_its_true_size_and_how_to_read_on(workspace, tmp_path):
    (tmp_path / "a.txt").write_text("ab\ncd\nef\n")
    assert workspace.read_file("a.txt", 4)["result"] == (
        "Read a.txt: 9 bytes, 3 lines; bytes 0 to 4 are shown; continue with offset=4"
    )


def test_binary_file_is_refused_and_invalid_utf_8_is_replaced(workspace, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"ab\0c")
    (tmp_path / "b.txt").write_bytes("a".encode("utf-16"))
    (tmp_path / "c.txt").write_bytes("caf\xe9 \xe0".encode("latin-1"))
    assert refused(workspace.read_file, "a.bin") == (
        "binary_file",
        "'a.bin' is not text (4 bytes): it cannot be shown",
    )
    assert "of UTF-16" in refused(workspace.read_file, "b.txt")[1]
    found = workspace.read_file("c.txt")
    assert found["content"] == "caf\ufffd \ufffd"
    assert found["result"].endswith("it is not all UTF-8: 2 characters are shown as \ufffd")


def test_missing_file_is_reported_with_similar_names(workspace, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "hello.py").touch()
    text = "there is no 'src/helo.py'; there is 'src/hello.py'"
    assert refused(workspace.read_file, "src/helo.py") == ("no_such_file", text)
    assert refused(workspace.edit, "src/helo.py", "a", "b") == ("no_such_file", text)
    assert "nor a folder 'scr'" in refused(workspace.read_file, "scr/hello.py")[1]
    assert refused(workspace.read_file, "src")[0] == "not_a_file"
    assert refused(workspace.read_file, "src/hello.py/x")[0] == "not_a_folder"


def test_digest_and_exists_answer_for_any_path(workspace, tmp_path):
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "link").symlink_to("a.py")
    assert workspace.digest("a.py") == sha("x")
    assert workspace.digest("b.py") is None
    assert workspace.digest("b/c.py") is None
    assert [workspace.exists(path) for path in ("a.py", ".", "b.py", "link", "../x", "")] == [True, True] + [False] * 4
