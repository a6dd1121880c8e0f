"""Git tools for a model, in real repositories: what they show, what they commit, and what a commit leaves alone."""

import shutil
from pathlib import Path

import pytest
from git_workspaces import GitTools, git, make_repository, make_submodule, make_work_tree, refused


@pytest.fixture
def root(tmp_path):
    """Return a repository of one commit."""
    return make_repository(tmp_path / "work")


@pytest.fixture
def tools(root):
    return GitTools(root)


# -- repositories


def test_each_call_without_a_repository_says_so(tmp_path):
    tools = GitTools(tmp_path)
    for call in (tools.git_status, tools.git_diff, tools.git_log, lambda: tools.git_commit("x")):
        assert refused(call) == "no_repository"


def test_repository_without_commits_can_be_read_and_committed_to(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    tools = GitTools(tmp_path)
    assert tools.git_status() == {
        "branch": "main", "commit": None, "clean": True, "staged": [], "changed": [], "untracked": [], "conflicts": [],
    }  # fmt: skip
    assert tools.git_log() == {"commits": []}
    assert tools.git_diff()["diff"] == ""
    (tmp_path / "a").write_text("a", "utf-8")
    made = tools.git_commit("first")
    assert made["files"] == ["a"]
    assert (
        git(tmp_path, "log", "--format=%H %an <%ae> %s", "main").split("\n")[0]
        == f"{made['commit']} dsa <dsa@localhost> first"
    )
    assert git(tmp_path, "status", "--short") == ""


def test_commit_uses_the_user_settings_of_the_repository(root, tools):
    git(root, "config", "user.name", "Ada\n[core]\n\tfsmonitor = x")
    git(root, "config", "user.email", "ada@example.org")
    (root / "a.py").write_text("2\n", "utf-8")
    tools.git_commit("second")
    assert "<ada@example.org>" in git(root, "log", "-1", "--format=%an <%ae>")


def test_repository_with_sha256_ids_is_supported(tmp_path):
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "a").write_text("a", "utf-8")
    assert len(GitTools(tmp_path).git_commit("first")["commit"]) == 64
    assert git(tmp_path, "status", "--short") == ""


def test_linked_work_tree_is_supported(root, tmp_path):
    git(root, "worktree", "add", "-q", "-b", "side", tmp_path / "side")
    control = root / ".git" / "worktrees" / "side"
    (tmp_path / "side" / "a.py").write_text("2\n", "utf-8")
    tools = GitTools(tmp_path / "side")
    assert tools.git_status()["branch"] == "side"
    made = tools.git_commit("on the side")
    assert git(root, "rev-parse", "side").strip() == made["commit"] != git(root, "rev-parse", "main").strip()
    assert git(tmp_path / "side", "status", "--short") == git(root, "status", "--short") == ""
    # Newer versions of git write relative paths when configured to.
    (tmp_path / "side" / ".git").write_text("gitdir: ../work/.git/worktrees/side\n", "utf-8")
    (control / "gitdir").write_text("../../../../side/.git\n", "utf-8")
    assert tools.git_log()["commits"][0]["subject"] == "on the side"


@pytest.mark.parametrize("folder", [".", "deep"])
def test_workspace_in_a_submodule_is_supported(tmp_path, folder):
    module = make_submodule(tmp_path)
    root = module / folder
    root.mkdir(exist_ok=True)
    (root / "new.py").write_text("2\n", "utf-8")
    tools = GitTools(root)
    assert (tools.git_status()["branch"], tools.git_status()["untracked"]) == ("main", ["new.py"])
    made = tools.git_commit("in the library")
    assert made["files"] == ["new.py"]
    assert git(module, "rev-parse", "main").strip() == made["commit"] == tools.git_log()["commits"][0]["commit"]
    assert git(module, "status", "--short") == ""
    assert git(tmp_path / "top", "status", "--short") == " M libs/lib\n"


def test_submodule_with_a_detached_head_is_supported(tmp_path):
    root = make_submodule(tmp_path)
    git(root, "checkout", "-q", "--detach")
    (root / "a.py").write_text("2\n", "utf-8")
    made = GitTools(root).git_commit("on no branch")
    assert (GitTools(root).git_status()["branch"], git(root, "rev-parse", "HEAD").strip()) == (None, made["commit"])
    assert git(root, "rev-parse", "main").strip() != made["commit"]


def test_submodule_of_a_work_tree_or_with_worktree_settings_is_supported(tmp_path):
    root = make_submodule(tmp_path)
    git(root, "sparse-checkout", "set", "--cone")
    assert "core.worktree" not in git(root, "config", "--list", "--local")
    assert GitTools(root).git_status()["branch"] == "main"
    git(tmp_path / "top", "worktree", "add", "-q", tmp_path / "side")
    git(tmp_path / "side", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    side = tmp_path / "side" / "libs" / "lib"
    (side / "a.py").write_text("2\n", "utf-8")
    made = GitTools(side).git_commit("on the side")
    assert git(side, "rev-parse", "HEAD").strip() == made["commit"] != git(root, "rev-parse", "HEAD").strip()


@pytest.mark.parametrize("make", [make_submodule, make_work_tree])
def test_missing_repository_of_a_submodule_or_work_tree_is_reported(tmp_path, make):
    root = make(tmp_path)
    shutil.rmtree(tmp_path / "top" / ".git")
    assert refused(GitTools(root).git_status) == "unsafe_repository"


def test_shallow_clone_with_packed_refs_is_supported(root, tmp_path):
    git(root, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", tmp_path / "clone")
    git(tmp_path / "clone", "pack-refs", "--all")
    tools = GitTools(tmp_path / "clone")
    assert [commit["subject"] for commit in tools.git_log()["commits"]] == ["second"]
    (tmp_path / "clone" / "a.py").write_text("2\n", "utf-8")
    tools.git_commit("third")
    assert git(tmp_path / "clone", "status", "--short") == ""


def test_split_index_is_supported(root, tools):
    git(root, "update-index", "--split-index")
    (root / "a.py").write_text("2\n", "utf-8")
    assert tools.git_status()["changed"] == [{"path": "a.py", "change": "changed"}]
    tools.git_commit("second")
    assert git(root, "status", "--short") == ""


# -- a workspace within a bigger repository


@pytest.fixture
def inner(root):
    """Return a workspace in a repository that has changes elsewhere."""
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "x.py").write_text("1\n", "utf-8")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "sub")
    (root / "a.py").write_text("outside\n", "utf-8")
    (root / "new.py").write_text("outside\n", "utf-8")
    (root / "b.py").write_text("outside, staged\n", "utf-8")
    git(root, "add", "b.py")
    (root / "sub" / "x.py").write_text("2\n", "utf-8")
    (root / "sub" / "deep" / "y.py").write_text("1\n", "utf-8")
    return root / "sub"


def test_only_changes_in_the_workspace_are_shown(inner):
    tools = GitTools(inner)
    said = tools.git_status()
    assert (said["changed"], said["staged"]) == ([{"path": "x.py", "change": "changed"}], [])
    assert said["untracked"] == ["deep/y.py"]
    assert "outside" not in str(tools.git_diff()) + str(tools.git_diff(staged=True)) + str(
        tools.git_diff(against="HEAD~1")
    )
    assert "+++ b/x.py\n" in tools.git_diff()["diff"]
    assert [commit["subject"] for commit in tools.git_log()["commits"]] == ["sub"]


def test_only_changes_in_the_workspace_are_committed(root, inner):
    made = GitTools(inner).git_commit("inner")
    assert made["files"] == ["deep/y.py", "x.py"]
    assert git(root, "show", "--name-only", "--format=", "HEAD").split() == ["sub/deep/y.py", "sub/x.py"]
    assert git(root, "status", "--short") == " M a.py\nM  b.py\n?? new.py\n"


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "deep/../../a.py", "a\0b"])
def test_paths_outside_the_workspace_are_refused(inner, path):
    tools = GitTools(inner)
    for call in (tools.git_diff, lambda path: tools.git_log(5, path), lambda path: tools.git_commit("x", [path])):
        assert refused(call, path) in ("path_outside_workspace", "bad_path")


# -- looking


def test_status_lists_every_kind_of_change(root, tools):
    (root / "a.py").unlink()
    (root / "b.py").write_text("2\n", "utf-8")
    git(root, "add", "b.py")
    (root / "b.py").write_text("3\n", "utf-8")
    git(root, "mv", "c.py", "d.py")
    (root / "é\n.py").write_text("1\n", "utf-8")
    (root / ".dsa").mkdir()
    (root / ".dsa" / "ledger").write_text("ours", "utf-8")
    (root / "ignored").write_text("x", "utf-8")
    (root / ".git" / "info" / "exclude").write_text("ignored\n", "utf-8")
    said = tools.git_status()
    assert said == {
        "branch": "main",
        "commit": git(root, "rev-parse", "HEAD").strip(),
        "clean": False,
        "staged": [
            {"path": "b.py", "change": "changed"},
            {"path": "c.py", "change": "deleted"},
            {"path": "d.py", "change": "added"},
        ],
        "changed": [{"path": "a.py", "change": "deleted"}, {"path": "b.py", "change": "changed"}],
        "untracked": ["é\\n.py"],
        "conflicts": [],
    }


def test_diff_covers_staged_unstaged_and_committed_changes(root, tools):
    (root / "a.py").write_text("2\n", "utf-8")
    git(root, "add", "a.py")
    (root / "a.py").write_text("3\n", "utf-8")
    (root / "b.py").write_bytes(b"\0")
    said = tools.git_diff()
    assert said["files"] == [{"path": "a.py", "added": 1, "deleted": 1}, {"path": "b.py", "binary": True}]
    assert "-2\n+3\n" in said["diff"]
    assert "-1\n+2\n" in tools.git_diff(staged=True)["diff"]
    assert "-1\n+3\n" in tools.git_diff(against="HEAD")["diff"]
    assert "-1\n+2\n" in tools.git_diff(staged=True, against="main")["diff"]
    assert tools.git_diff("b.py")["files"] == [{"path": "b.py", "binary": True}]
    assert tools.git_diff(str(root / "b.py"))["files"] == [{"path": "b.py", "binary": True}]


@pytest.mark.parametrize(
    "name", ["nobody", "-p", "--output=x", "HEAD:a.py", "HEAD..main", ":/first", "", 7, "a b", "HEAD\n", "x" * 300]
)
def test_invalid_revision_is_refused(root, tools, name):
    assert refused(tools.git_diff, against=name) == "bad_revision"


def test_long_diff_keeps_its_beginning_and_end(root, tools):
    (root / "a.py").write_text("".join(f"line {number}\n" for number in range(20_000)), "utf-8")
    said = tools.git_diff()
    assert len(said["diff"]) < 25_000
    assert said["omitted_bytes"] > 100_000
    assert f"[.. {said['omitted_bytes']:,} bytes left out ..]" in said["diff"]
    of_both = f"{said['omitted_bytes']:,} bytes of the diff and 0 files of the list"
    assert said["left_out"] == f"{of_both} are left out: name a path to see its part"
    assert "+line 1\n" in said["diff"]
    assert said["diff"].endswith("+line 19999\n")
    assert "bytes left out" in said["diff"]


def test_only_the_first_of_many_files_are_listed(root, tools):
    for number in range(450):
        (root / f"n{number:03}").write_text("x", "utf-8")
    said = tools.git_status()
    assert (len(said["untracked"]), said["not_shown"]) == (200, {"untracked": 250})
    assert said["left_out"].startswith("250 more untracked are not shown: ")
    made = tools.git_commit("many")
    assert (len(made["files"]), made["not_shown"]) == (200, 250)


def test_log_lists_commits_within_count_and_path(root, tools):
    (root / "a.py").write_text("2\n", "utf-8")
    git(root, "commit", "-q", "-a", "-m", "second\n\nbody\x1b[2J\n\nmore")
    git(root, "commit", "-q", "--allow-empty", "-m", "x" * 3_000)
    third, second, first = tools.git_log()["commits"]
    assert (second["subject"], second["body"], second["author"]) == ("second", "body\\x1b[2J\n\nmore", "Person")
    assert (first["subject"], first["body"]) == ("first", "")
    assert third["subject"].endswith("x [.. 2,000 characters left out ..]")
    assert first["commit"] == git(root, "rev-parse", "HEAD~2").strip()
    one = tools.git_log(1)
    assert (len(one["commits"]), one["left_out"]) == (
        1,
        "older commits are not shown: set a larger count, up to 100, or a path",
    )
    assert "left_out" not in tools.git_log(3)
    assert [commit["subject"] for commit in tools.git_log(10, "a.py")["commits"]] == ["second", "first"]
    assert tools.git_log(10, "nothing.py") == {"commits": []}


@pytest.mark.parametrize("count", [0, -1, 101, "5", None, True, 1.5])
def test_invalid_count_is_refused(tools, count):
    assert refused(tools.git_log, count) == "bad_count"


# -- committing


def test_all_changed_and_new_files_are_committed(root, tools):
    (root / "a.py").write_text("2\n", "utf-8")
    (root / "b.py").unlink()
    (root / "new").mkdir()
    (root / "new" / "-x [a]*.py").write_text("1\n", "utf-8")
    (root / ".dsa").mkdir()
    (root / ".dsa" / "ledger").write_text("ours", "utf-8")
    made = tools.git_commit("  second\n\n# not a comment\n")
    assert made["files"] == ["a.py", "b.py", "new/-x [a]*.py"]
    assert "left_staged" not in made
    assert git(root, "log", "-1", "--format=%B", made["commit"]) == "second\n\n# not a comment\n\n"
    assert git(root, "status", "--short") == "?? .dsa/\n"
    assert git(root, "reflog", "-1", "--format=%gs") == "commit: second\n"


def test_staged_changes_stay_staged(root, tools):
    (root / "a.py").write_text("2\n", "utf-8")
    (root / "new").write_text("staged\n", "utf-8")
    git(root, "add", "a.py", "new")
    (root / "a.py").write_text("3\n", "utf-8")
    (root / "b.py").write_text("2\n", "utf-8")
    before = git(root, "diff", "--cached")
    made = tools.git_commit("second")
    assert (made["files"], made["left_staged"]) == (["b.py"], ["a.py", "new"])
    assert git(root, "diff", "--cached") == before
    assert git(root, "status", "--short") == "MM a.py\nA  new\n"


def test_named_paths_are_committed_as_on_disk_even_when_staged(root, tools):
    (root / "a.py").write_text("2\n", "utf-8")
    (root / "b.py").write_text("2\n", "utf-8")
    (root / "dir").mkdir()
    (root / "dir" / "x").write_text("2\n", "utf-8")
    git(root, "add", "a.py", "b.py")
    (root / "a.py").write_text("3\n", "utf-8")
    made = tools.git_commit("second", ["a.py", "dir"])
    assert made["files"] == ["a.py", "dir/x"]
    assert git(root, "show", "HEAD:a.py") == "3\n"
    assert git(root, "status", "--short") == "M  b.py\n"


def test_file_replaced_by_a_folder_is_committed(root, tools):
    (root / "a.py").unlink()
    (root / "a.py").mkdir()
    (root / "a.py" / "inner").write_text("x", "utf-8")
    assert tools.git_commit("second")["files"] == ["a.py", "a.py/inner"]
    assert git(root, "status", "--short") == ""


@pytest.mark.parametrize("paths", [["a.py", "typo.py"], ["."], ["ignored"], ["a.py"], None])
def test_commit_without_changes_is_refused(root, tools, paths):
    (root / ".git" / "info" / "exclude").write_text("ignored\n", "utf-8")
    (root / "ignored").write_text("x", "utf-8")
    if paths and len(paths) == 2:
        (root / "a.py").write_text("2\n", "utf-8")
    head = git(root, "rev-parse", "HEAD")
    assert refused(tools.git_commit, "second", paths) == "nothing_to_commit"
    assert git(root, "rev-parse", "HEAD") == head


@pytest.mark.parametrize("message", ["", " \n", None, 7, "a\0b", "x" * 10_001])
def test_invalid_message_is_refused(root, tools, message):
    (root / "a.py").write_text("2\n", "utf-8")
    assert refused(tools.git_commit, message) == "bad_message"


@pytest.mark.parametrize("paths", [[], 7, {}, [7], [""]])
def test_invalid_paths_are_refused(tools, paths):
    assert refused(tools.git_commit, "x", paths) == "bad_path"


def test_commit_without_a_branch_moves_head(root, tools):
    git(root, "checkout", "-q", "--detach")
    (root / "a.py").write_text("2\n", "utf-8")
    made = tools.git_commit("second")
    assert tools.git_status()["branch"] is None
    assert git(root, "rev-parse", "HEAD").strip() == made["commit"]
    assert git(root, "rev-list", "--count", "main").strip() == "1"
    assert not (root / ".git" / "HEAD.lock").exists()


@pytest.mark.parametrize("lock", ["HEAD.lock", "refs/heads/main.lock"])
def test_lock_of_another_git_is_reported_and_left_in_place(root, tools, lock):
    if lock == "HEAD.lock":
        git(root, "checkout", "-q", "--detach")
    (root / ".git" / lock).write_text("", "utf-8")
    (root / "a.py").write_text("2\n", "utf-8")
    assert refused(tools.git_commit, "second") == "moved"
    assert (root / ".git" / lock).exists()
    assert git(root, "rev-list", "--count", "HEAD").strip() == "1"


def test_locked_index_is_reported(root, tools):
    (root / ".git" / "index.lock").write_text("", "utf-8")
    (root / "a.py").write_text("2\n", "utf-8")
    assert "holds the index" in tools.git_commit("second")["note"]
    assert git(root, "log", "-1", "--format=%s").strip() == "second"


def test_unfinished_merge_is_left_alone(root, tools):
    git(root, "checkout", "-q", "-b", "side")
    (root / "a.py").write_text("side\n", "utf-8")
    git(root, "commit", "-q", "-a", "-m", "side")
    git(root, "checkout", "-q", "main")
    (root / "a.py").write_text("main\n", "utf-8")
    git(root, "commit", "-q", "-a", "-m", "main")
    git(root, "merge", "side", check=False)
    said = tools.git_status()
    assert (said["conflicts"], said["under_way"]) == (["a.py"], "a merge")
    assert refused(tools.git_commit, "merged") == "under_way"
    (root / ".git" / "MERGE_HEAD").unlink()
    assert refused(tools.git_commit, "merged") == "under_way"


def test_nested_repository_is_left_alone(root, tools):
    git(root, "init", "-q", "nested")
    (root / "nested" / "x").write_text("x", "utf-8")
    (root / "a.py").write_text("2\n", "utf-8")
    assert tools.git_commit("second")["files"] == ["a.py"]


def test_huge_file_is_not_committed(root, tools):
    with (root / "huge").open("wb") as file:
        file.truncate(50_000_001)
    assert refused(tools.git_commit, "second") == "too_large"


def test_call_has_a_time_limit(root):
    assert refused(GitTools(root, timeout_s=1e-9).git_status) == "git_timeout"


def test_no_temporary_file_is_left(root, tools, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(Path(root, ".git").iterdir())
    (root / "a.py").write_text("2\n", "utf-8")
    tools.git_commit("second")
    tools.git_diff()
    assert refused(tools.git_commit, "second") == "nothing_to_commit"
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert sorted(Path(root, ".git").iterdir()) == before
