"""Edits of files, and their diffs."""

import itertools

import pytest
from file_tools import given_or_refused, refused
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.tools.workspace import edit_text, unified_diff


def test_diff_is_shown_for_a_person(workspace, tmp_path):
    (tmp_path / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 30)))
    assert workspace.diff("edit", {"path": "a.py", "old": "line 10\n", "new": "line ten\n"}) == (
        "--- a.py\n+++ a.py\n@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
    )
    assert (
        workspace.diff("write_file", {"path": "b.py", "content": "x\n"})
        == "--- /dev/null\n+++ b.py\n@@ -0,0 +1,1 @@\n+x\n"
    )
    same = (tmp_path / "a.py").read_text()
    assert workspace.diff("write_file", {"path": "a.py", "content": same}) == "a.py: stays as it is\n"
    assert "line break at the end changes" in workspace.diff("write_file", {"path": "a.py", "content": same[:-1]})


def test_diff_shows_all_new_content_and_cannot_repaint_a_terminal(workspace, tmp_path):
    """A person approves what the diff shows: nothing may hide behind a cut."""
    (tmp_path / "many").write_text("".join(f"{n % 7}{n}\n" for n in range(60_000)))
    (tmp_path / "bin").write_bytes(b"\0" * 10)
    (tmp_path / "huge").write_text("x" * 4_000_001)
    hidden = "import os; print('hidden')"
    contents = {
        "many": "".join(f"{n % 5}{n}\n" for n in range(2_000)) + hidden,
        "new": "\n" * 2_000 + hidden,
        "long": "x = 1" + " " * 600 + hidden,
        "bin": hidden,
        "huge": hidden,
    }
    for path, content in contents.items():
        assert hidden in workspace.diff("write_file", {"path": path, "content": content}), path
    assert "binary, 10 bytes" in workspace.diff("write_file", {"path": "bin", "content": "x"})
    assert "+\\x1b[2J\\u202exxx" in workspace.diff("write_file", {"path": "a", "content": "\x1b[2J\u202exxx"})


def rebuilt(before, shown):
    """Apply a diff."""
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
def test_diff_leads_from_one_text_to_the_other(before, after):
    shown = unified_diff("x", f"{before}\n".encode(), f"{after}\n".encode())
    if before == after:
        assert shown == "x: stays as it is\n"
    else:
        assert rebuilt(before, shown) == after


@given(
    st.text(alphabet="ab\n", max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=4),
    st.text("abc\n", max_size=4),
)
def test_edit_is_a_replacement_with_any_line_endings(text, old, new):
    for crlf, ending in itertools.product((False, True), repeat=2):
        there, asked = text.replace("\n", "\r\n") if crlf else text, old.replace("\n", "\r\n") if ending else old
        found, error = given_or_refused(edit_text, "x", there, asked, new, everywhere=True)
        if error is not None:
            assert error.code == ("not_found" if old not in text else "bad_arguments")
            continue
        wanted = text.replace(old, new)
        assert found == (wanted.replace("\n", "\r\n") if crlf and "\n" in text else wanted)


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
        ("\ufeffa\r\nb\r\n", "\ufeffa\nb", "x\ny", "\ufeffx\r\ny\r\n"),
        ("\ufeffa\n", "\ufeffa", "b", "\ufeffb\n"),
        ("\ufeffa\n", "a", "\ufeffb", "\ufeffb\n"),
        ("é日𝄞", "日", "x", "éx𝄞"),
        ("no end", "end", "end\n", "no end\n"),
    ],
)
def test_edit_keeps_everything_else(workspace, tmp_path, text, old, new, after):
    (tmp_path / "a").write_bytes(text.encode())
    assert workspace.edit("a", old, new)["result"].startswith("Edited a: it has ")
    assert (tmp_path / "a").read_bytes().decode() == after


def test_edit_of_a_text_that_occurs_several_times_needs_all(workspace, tmp_path):
    (tmp_path / "a").write_text("x = 1\ny = 2\nx = 1\nx = 1\n")
    code, text = refused(workspace.edit, "a", "x = 1", "x = 2")
    assert (code, text) == (
        "ambiguous",
        "'old' occurs 3 times in 'a' (lines 1, 3, 4): add the lines around the right place to 'old', or set all=true",
    )
    assert workspace.edit("a", "x = 1", "x = 2", all=True)["result"] == "Edited a: it has 4 lines now"
    assert (tmp_path / "a").read_text() == "x = 2\ny = 2\nx = 2\nx = 2\n"


def test_edit_of_a_missing_text_shows_similar_lines(workspace, tmp_path):
    (tmp_path / "a").write_text("def total(items):\n    return sum(items)\n\n\ndef mean(items):\n\treturn 0\n")
    code, text = refused(workspace.edit, "a", "def totals(items):\n  return sum(item)", "")
    assert code == "not_found"
    assert text == "'old' does not occur in 'a'. The most similar lines are:\n1: def total(items):\n5: def mean(items):"
    spaced = refused(workspace.edit, "a", "def total( items ):\n  return sum(items)", "")[1]
    assert spaced == (
        "'old' does not occur in 'a', except with other whitespace. Copy the text exactly from these lines:\n"
        "1: def total(items):\n2:     return sum(items)"
    )
    assert "5: def mean(items):\n6: \treturn 0" in refused(workspace.edit, "a", "def mean(items):\n    return 0", "")[1]
    assert "and neither does a similar text" in refused(workspace.edit, "a", "§§§§§§§§§§§§", "")[1]


def test_edit_of_a_missing_text_mentions_mixed_line_ends(workspace, tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\nthree\r\nfour\n")
    hint = "its line ends are mixed, \\r\\n and \\n: use one line, or several lines with the line ends that read_file shows"
    code, text = refused(workspace.edit, "a", "one\ntwo\nthree", "x")
    assert code == "not_found"
    assert text == (
        f"'old' does not occur in 'a' ({hint}), except with other whitespace. Copy the text exactly from these lines:\n"
        "1: one\\r\n2: two\n3: three\\r"
    )
    assert hint in refused(workspace.edit, "a", "§§§§§§§§§§§§", "x")[1]
    workspace.edit("a", "one\r\ntwo\nthree", "1\n2")
    (tmp_path / "b").write_bytes(b"one\r\ntwo\r\n")
    assert "mixed" not in refused(workspace.edit, "b", "one two", "x")[1]


def test_binary_or_too_large_file_is_not_edited(workspace, tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xe9")
    assert refused(workspace.edit, "a", "caf", "x")[0] == "binary_file"
    (tmp_path / "b").write_bytes(b"x" * 1_000_001)
    assert refused(workspace.edit, "b", "x", "y")[0] == "too_large"
