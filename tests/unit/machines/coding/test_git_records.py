"""Git tools and files written for people, which they leave out; paths that look like patterns."""

import pytest
from git_workspaces import GitTools, git, make_repository, refused


@pytest.fixture
def root(tmp_path):
    return make_repository(tmp_path / "work")


@pytest.mark.parametrize("folder", [".", "deep"])
def test_files_written_for_people_are_neither_shown_nor_committed(root, folder):
    records = ("agent_ledger.log", ".agent_context/state.json", "Agent_Ledger.LOG", "more/agent_ledger.log")
    top = root / folder
    for name in (*records, "kept"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("1\n", "utf-8")
    tools = GitTools(top)
    prefix = "" if folder == "." else "deep/"
    assert tools.git_status()["untracked"] == ["kept"]
    assert tools.git_commit("ours")["files"] == ["kept"]
    assert refused(tools.git_commit, "theirs", list(records)) == "nothing_to_commit"
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "by a person")
    for name in (*records, "kept"):
        (top / name).write_text("2\n", "utf-8")
    assert [each["path"] for each in tools.git_status()["changed"]] == ["kept"]
    said = tools.git_diff()
    assert said["files"] == [{"path": "kept", "added": 1, "deleted": 1}]
    assert said["diff"].count("diff --git") == 1
    assert tools.git_diff(against="HEAD")["diff"].count("diff --git") == 1
    assert tools.git_diff("agent_ledger.log")["diff"] == ""
    assert tools.git_commit("again")["files"] == ["kept"]
    assert git(root, "show", "--name-only", "--format=", "HEAD") == f"{prefix}kept\n"


def test_path_that_looks_like_a_pattern_is_read_as_a_path(root):
    names = (":(glob)*.py", "*.py", "[ab].py", ":!a.py")
    for name in names:
        (root / name).write_text("1\n", "utf-8")
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "odd")
    for name in (*names, "a.py"):
        (root / name).write_text("2\n", "utf-8")
    for name in names:
        assert [each["path"] for each in GitTools(root).git_diff(name)["files"]] == [name]
