import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsa.edge.git_objects import file_name, name_of, path_parts

NAMES = st.text(st.characters(exclude_categories=()), max_size=700)
NASTY = [
    "", ".", "..", ".git", "a..b", "x.lock", ".lock", "lock", "a/b", "/", "~", "@", "@{", "HEAD", "-x", "%", "%25", "a b",
    "é", "\ud800", "\0", "\n", "x.", "+1", "a" * 200, "a" * 201, "." * 450, "x" * 198 + ".lock", "a" * 196 + ".lock.lock",
]  # fmt: skip


def all_examples(test):
    for name in NASTY:
        test = example(name)(test)
    return test


@all_examples
@given(NAMES)
def test_every_name_is_read_back_from_its_path(name):
    assert name_of(path_parts(name)) == name


@all_examples
@given(NAMES)
def test_path_is_plain_ascii_that_fits_a_file_system(name):
    for part in (*path_parts(name), file_name(name)):
        assert 0 < len(part) <= 230
        assert part.isascii()
        assert part.isprintable()
        assert not set(part) & set(' ~^:?*[\\/"<>|')
        assert not part.startswith(".")
        assert not part.endswith((".", ".lock"))
    assert "+" not in "".join(path_parts(name))


@given(NAMES, NAMES)
@example("a" * 200, "a" * 201)
@example("", "%")
@example("a/b", "a")
def test_no_path_is_a_prefix_of_another(one, other):
    if one != other:
        first, second = path_parts(one), path_parts(other)
        assert first != second[: len(first)]
        assert file_name(one) != file_name(other)


@pytest.mark.parametrize("name", NASTY, ids=range(len(NASTY)))
def test_path_is_a_valid_branch_name_for_git(name):
    ref = "refs/heads/runs/" + "/".join(path_parts(name))
    assert subprocess.run(["git", "check-ref-format", ref], check=False).returncode == 0


def test_plain_names_stay_unchanged():
    assert path_parts("20260131T120000-dual_state-9f3a1c") == ("20260131T120000-dual_state-9f3a1c",)
    assert path_parts("g_test.v2") == ("g_test.v2",)
