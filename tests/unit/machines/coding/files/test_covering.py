"""Protected paths of a workspace: one quick look at names finds exactly those that the patterns cover."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from machines.coding.tools.planted_files import RepositoryShape, scan_planted
from machines.coding.tools.workspace_boundary import Protection

NAMES = (
    "a",
    "A.lock",
    "x.LOCK",
    "tests",
    "Tests",
    "test_a.py",
    ".git",
    ".GIT",
    ".git.",
    "git~1",
    ".g\u200cit",
    "docs",
    "é.lock",
    "a:b",
    "agent_ledger.log",
)
PATTERNS = (
    "*.lock", "tests", "tests/*", "tests/docs/*.lock", "a/**/tests/*", "/tests/test_*.py", "docs/**", "**/docs", "tests/**/test_*.py", "[a-b]", "a.", "É.lock", "a:b", "**", "./a", "x.l?ck", "DOCS/",
)  # fmt: skip


def covered_below(root, protection):
    """Return the protected paths of a folder, the topmost only."""
    with scan_planted(str(root), protection) as sight:
        return sorted(str(Path(path).relative_to(root)) for path in sight.protected_numbers)


def covered_slowly(root, protection):
    """Judge each path, whatever its name."""
    paths = [path.relative_to(root).parts for path in root.rglob("*")]
    covered = [parts for parts in paths if protection.covers(parts)]
    return sorted("/".join(parts) for parts in covered if not any(parts[:n] in covered for n in range(len(parts))))


@given(
    st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), max_size=8),
    st.lists(st.sampled_from(PATTERNS), max_size=3),
)
def test_quick_scan_finds_every_protected_path(tmp_path_factory, paths, patterns):
    root = tmp_path_factory.mktemp("covered")
    for path in paths:
        Path(root, *path).mkdir(parents=True, exist_ok=True)
    protection = Protection.of(patterns)
    assert covered_below(root, protection) == covered_slowly(root, protection)


def test_protected_links_are_listed_and_not_followed(tmp_path):
    (tmp_path / "outside" / ".git").mkdir(parents=True)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "inside" / ".dsa").symlink_to(tmp_path / "outside")
    assert covered_below(tmp_path / "inside", Protection.of(())) == [".dsa"]


def test_every_name_of_a_protected_file_is_found(tmp_path):
    """Each path is mounted separately: through an unlisted one the file could be written."""
    (tmp_path / "a.lock").write_text("x")
    (tmp_path / "b.lock").hardlink_to(tmp_path / "a.lock")
    assert covered_below(tmp_path, Protection.of(["*.lock"])) == ["a.lock", "b.lock"]


def test_new_part_of_a_repository_was_missing_before():
    before = RepositoryShape("here", {"head": "HEAD", "refs": "refs"})
    now = RepositoryShape("here", {**before.names, "objects": "Objects"})
    assert now.new_part(before) == "here/Objects"
    assert now.new_part(None) == "here/HEAD"
    assert before.new_part(None) is None
    assert now.new_part(now) is None
