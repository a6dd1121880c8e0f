"""Paths and what they mean; patterns and what they cover."""

import pytest
from each_row import each_row
from file_tools import FileTools, given_or_refused, refused
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.tools.workspace_boundary import PathPattern, parts_of, path_text


@each_row(
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
def test_path_is_read_as_parts_below_the_workspace(path, parts):
    assert parts_of(path, ["/some/space"]) == parts
    assert parts_of(path_text(parts)) == parts


def test_path_has_one_name_however_it_is_written(workspace, tmp_path):
    for written in ("a/b.txt", "./a//b.txt", "././a/./c/../b.txt", f"{tmp_path}/a/b.txt", f"/{tmp_path}/./a/b.txt"):
        assert workspace.known_as(written) == "a/b.txt"
    assert workspace.known_as(f"{tmp_path}/") == workspace.known_as(".") == "."
    assert workspace.known_as("../x") == workspace.known_as("./y/../../x") == "../x"
    assert workspace.known_as(f"{tmp_path.parent}//other") == f"{tmp_path.parent}/other"


def test_absolute_path_is_read_relative_to_the_workspace(workspace, tmp_path):
    workspace.write_file(str(tmp_path / "src" / "a.py"), "x")
    assert workspace.read_file("src/a.py")["content"] == "x"
    code, text = refused(workspace.write_file, f"{tmp_path}beside/a.py", "x")
    assert code == "path_outside_workspace"
    assert "absolute" in text


@given(st.text(alphabet="a./ ~:\\\0\n\udc80é", max_size=20) | st.text(max_size=20))
def test_any_path_stays_inside_or_is_refused(text):
    parts, error = given_or_refused(parts_of, text, ["/a"])
    if error is not None:
        assert error.code in ("bad_path", "path_outside_workspace")
        assert str(error).isprintable()
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)
    assert not path_text(parts).isprintable() or "\\" in path_text(parts) or parts_of(path_text(parts)) == parts


@each_row(
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
def test_pattern_covers_only_its_paths(pattern, covered, free):
    made = PathPattern(pattern)
    assert [path for path in [*covered, *free] if made.covers(path.split("/"))] == covered


@pytest.mark.parametrize("pattern", ["", "/", ".", "./"])
def test_pattern_that_names_nothing_is_refused_at_once(tmp_path, pattern):
    with pytest.raises(ValueError, match="it has no name of a file or folder"):
        FileTools(tmp_path, [pattern])
