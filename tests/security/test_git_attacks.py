"""Attacks on git by someone who can write into the workspace: no planted program runs, and no path leads to another repository.

Each test of a planted program also shows that git, as people use it, runs it, so that its silence means something.
"""

import os
import shutil
import subprocess

import pytest
from git_workspaces import GitTools

from dsa.errors import ToolError
from machines.coding.history.workspace_scan import blob_id

SECRET = "s3cret-outside"


@pytest.fixture
def root(tmp_path):
    """Return a repository of one commit with a change in it, beside what is not the workspace's."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET, "utf-8")
    make_repository(folder)
    return folder


def make_repository(folder):
    git(folder, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("1\n", "utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "a.txt").write_text("2\n", "utf-8")


def git(folder, *arguments, check=True, **variables):
    """Run git as people do."""
    command = ["git", "-c", "user.name=Person", "-c", "user.email=p@example.org", "-C", folder, *arguments]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, check=check, stdin=subprocess.DEVNULL, env=environment, timeout=60
    )
    return done.stdout


@pytest.fixture
def planted(tmp_path):
    """Return a program that leaves a mark when it runs, and the mark."""
    program, mark = tmp_path / "program", tmp_path / "ran"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {mark}\n', "utf-8")
    program.chmod(0o755)
    return program, mark


def use_all(root):
    """Make every call of the tools, as a model would."""
    tools = GitTools(root)
    said = [
        tools.git_status(),
        tools.git_diff(),
        tools.git_diff(staged=True),
        tools.git_diff(against="HEAD"),
        tools.git_log(),
    ]
    said += [tools.git_log(5, "a.txt"), tools.git_diff("a.txt"), tools.git_commit("by the model")]
    (root / "new.txt").write_text("new\n", "utf-8")
    return [*said, tools.git_commit("once more", ["new.txt"]), tools.git_status()]


#: Settings of the repository; PROGRAM is put in. With each the command by which git is seen to run it.
SETTINGS = {
    "fsmonitor": ({"core.fsmonitor": "PROGRAM"}, ["status"]),
    "hooks elsewhere": ({"core.hooksPath": "HOOKS"}, ["commit", "-am", "x"]),
    "clean filter": ({"filter.x.clean": "PROGRAM"}, ["diff"]),
    "process filter": ({"filter.x.process": "PROGRAM"}, ["diff"]),
    "required filter": ({"filter.x.clean": "PROGRAM", "filter.x.required": "true"}, ["commit", "-am", "x"]),
    "smudge filter": ({"filter.x.smudge": "PROGRAM"}, ["checkout", "-f", "HEAD", "--", "a.txt"]),
    "external diff": ({"diff.external": "PROGRAM"}, ["diff"]),
    "diff driver": ({"diff.y.command": "PROGRAM"}, ["diff"]),
    "textconv": ({"diff.y.textconv": "PROGRAM"}, ["diff"]),
    "signing": ({"gpg.program": "PROGRAM", "commit.gpgSign": "true"}, ["commit", "-am", "x"]),
    "signing with ssh": (
        {"gpg.format": "ssh", "gpg.ssh.program": "PROGRAM", "commit.gpgSign": "true", "user.signingKey": "key::ssh-rsa x"},
        ["commit", "-am", "x"],
    ),
    "editor": ({"core.editor": "PROGRAM"}, ["commit", "-a"]),
    "alias": ({"alias.st": "!PROGRAM"}, ["st"]),
    "included": ({"include.path": "INCLUDED"}, ["status"]),
    "included by folder": ({"includeIf.gitdir:/.path": "INCLUDED"}, ["status"]),
    "maintenance": ({"core.hooksPath": "HOOKS", "gc.auto": "1", "gc.autoDetach": "false"}, ["gc", "--auto"]),
    "missing object": (
        {"remote.o.url": "ssh://x/y", "remote.o.promisor": "true", "extensions.partialClone": "o", "core.sshCommand": "PROGRAM"},
        ["cat-file", "-p", "1" * 40],
    ),
}  # fmt: skip


def plant(root, settings, program):
    hooks = root.parent / "hooks"
    hooks.mkdir()
    for name in (
        "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction", "pre-auto-gc",
    ):  # fmt: skip
        shutil.copy(program, hooks / name)
    included = root.parent / "included"
    included.write_text(f"[core]\n\tfsmonitor = {program}\n", "utf-8")
    (root / ".gitattributes").write_text("*.txt filter=x diff=y\n", "utf-8")
    git(root, "config", "core.repositoryFormatVersion", "1")
    for name, text in settings.items():
        value = text.replace("PROGRAM", str(program)).replace("HOOKS", str(hooks)).replace("INCLUDED", str(included))
        git(root, "config", name, value)
    os.utime(root / "b.txt", (1, 1))  # git has to read it again


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_of_the_repository_runs_a_program(root, planted, name, tmp_path):
    program, mark = planted
    settings, command = SETTINGS[name]
    plant(root, settings, program)
    if name == "maintenance":  # git counts the objects of one folder
        counted = [str(number) for number in range(3_000) if blob_id(str(number).encode()).startswith("17")]
        for content in counted:
            (root / ".git" / "content").write_text(content, "utf-8")
            git(root, "hash-object", "-w", root / ".git" / "content")
    use_all(root)
    assert not mark.exists()
    (root / "a.txt").write_text("3\n", "utf-8")
    git(root, *command, check=False, EDITOR="true")
    assert mark.exists(), "the plant does not work"


@pytest.mark.parametrize(
    "name",
    ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction"],
)
def test_no_hook_runs(root, planted, name):
    program, mark = planted
    shutil.copy(program, root / ".git" / "hooks" / name)
    use_all(root)
    assert not mark.exists()
    (root / "a.txt").write_text("3\n", "utf-8")
    git(root, "commit", "-am", "x")
    assert mark.exists(), "the plant does not work"


def test_signatures_are_not_verified(root, planted):
    program, mark = planted
    signed = git(root, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (root / ".git" / "signed").write_text(signed, "utf-8")
    commit = git(root, "hash-object", "-t", "commit", "-w", root / ".git" / "signed").strip()
    git(root, "update-ref", "HEAD", commit)
    git(root, "config", "log.showSignature", "true")
    git(root, "config", "gpg.program", str(program))
    use_all(root)
    assert not mark.exists()
    git(root, "log")
    assert mark.exists(), "the plant does not work"


def test_filter_of_a_nested_repository_does_not_run(root, planted):
    program, mark = planted
    (root / "nested").mkdir()
    make_repository(root / "nested")
    git(root, "add", "nested")
    git(root, "commit", "-q", "-m", "nested")
    (root / "nested" / ".gitattributes").write_text("*.txt filter=x\n", "utf-8")
    os.utime(root / "nested" / "b.txt", (1, 1))
    git(root / "nested", "config", "filter.x.clean", str(program))
    use_all(root)
    assert not mark.exists()
    git(root, "status")
    assert mark.exists(), "the plant does not work"


VARIABLES = {
    "GIT_EXTERNAL_DIFF": "PROGRAM",
    "GIT_SSH_COMMAND": "PROGRAM",
    "GIT_EDITOR": "PROGRAM",
    "GIT_PAGER": "PROGRAM",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "PROGRAM",
    "GIT_CONFIG_PARAMETERS": "'core.fsmonitor=PROGRAM'",
    "GIT_CONFIG_GLOBAL": "INCLUDED",
    "GIT_CONFIG_SYSTEM": "INCLUDED",
    "GIT_EXEC_PATH": "BIN",
    "GIT_TEMPLATE_DIR": "BIN",
    "GIT_TRACE": "OUT",
    "GIT_DIR": "OTHER",
    "GIT_WORK_TREE": "OUTSIDE",
    "GIT_INDEX_FILE": "OUT",
    "GIT_OBJECT_DIRECTORY": "OTHER",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "OTHER",
    "GIT_AUTHOR_NAME": "Mallory",
    "HOME": "BIN",
    "XDG_CONFIG_HOME": "BIN",
    "PATH": "BIN",
    "LD_PRELOAD": "OUT",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_environment_variables_have_no_effect(root, planted, monkeypatch, name):
    program, mark = planted
    places = {"OUT": root.parent / "out", "BIN": root.parent / "bin", "INCLUDED": root.parent / "included"}
    places |= {"OTHER": root.parent / "other", "OUTSIDE": root.parent / "outside", "PROGRAM": program}
    places["BIN"].mkdir()
    (places["BIN"] / "git").symlink_to(program)
    for path in (places["INCLUDED"], places["BIN"] / ".gitconfig"):
        path.write_text(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {places['BIN']}\n", "utf-8")
    together = {key for key in VARIABLES if key.startswith(("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY", "GIT_CONFIG_VALUE"))}
    for key in together if name == "GIT_CONFIG_COUNT" else {name}:
        monkeypatch.setenv(key, str(places.get(VARIABLES[key], VARIABLES[key].replace("PROGRAM", str(program)))))
    said = use_all(root)
    assert not mark.exists()
    assert not places["OUT"].exists()
    assert said[-1]["clean"]
    assert said[4]["commits"][0]["subject"] == "first"
    assert GitTools(root).git_log()["commits"][0]["author"] == "dsa"


def test_git_program_in_the_workspace_is_not_run(root, planted, monkeypatch):
    program, mark = planted
    shutil.copy(program, root / "git")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", f".:{root}:{os.environ['PATH']}")
    use_all(root)
    assert not mark.exists()


# -- repositories that are not the workspace's


def other(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    make_repository(folder)
    git(folder, "commit", "-qam", SECRET)
    return folder


def lead_by_link(root, stranger):
    shutil.rmtree(root / ".git")
    (root / ".git").symlink_to(stranger / ".git")


def lead_by_file(root, stranger):
    shutil.rmtree(root / ".git")
    (root / ".git").write_text(f"gitdir: {stranger / '.git'}\n", "utf-8")


def lead_by_work_tree_of_another(root, stranger):
    git(stranger, "worktree", "add", "-q", stranger.parent / "side")
    shutil.rmtree(root / ".git")
    (root / ".git").write_text(f"gitdir: {stranger / '.git' / 'worktrees' / 'side'}\n", "utf-8")


def lead_by_submodule_of_another(root, stranger):
    git(stranger, "config", "core.worktree", "../../elsewhere")
    lead_by_file(root, stranger)


def lead_by_control_folder_of_its_own(root, stranger):
    """The folder knows of the workspace, and the repository that it names does not know of the folder."""
    shutil.rmtree(root / ".git")
    (root / "control").mkdir()
    (root / ".git").write_text("gitdir: control\n", "utf-8")
    for name, text in {"gitdir": root / ".git", "commondir": stranger / ".git", "HEAD": "ref: refs/heads/main"}.items():
        (root / "control" / name).write_text(f"{text}\n", "utf-8")


def lead_by_part(part):
    def lead(root, stranger):
        path = root / ".git" / part
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.symlink_to(stranger / ".git" / part)

    return lead


def lead_by_alternates(root, stranger):
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{stranger / '.git' / 'objects'}\n", "utf-8")


LEADS = {
    "link": lead_by_link, "file": lead_by_file, "work tree": lead_by_work_tree_of_another, "submodule": lead_by_submodule_of_another,
    "control folder": lead_by_control_folder_of_its_own, "alternates": lead_by_alternates,
    **{part: lead_by_part(part) for part in (
        "objects", "refs", "refs/heads", "refs/heads/main", "index", "HEAD", "config", "logs", "logs/HEAD", "logs/refs/heads/main",
        "packed-refs", "info", "info/exclude", "shallow",
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", LEADS)
def test_workspace_cannot_lead_git_to_another_repository(root, tmp_path, name):
    stranger = other(tmp_path)
    for part in ("packed-refs", "shallow"):
        (stranger / ".git" / part).write_text("", "utf-8")
    LEADS[name](root, stranger)
    before = {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()}
    tools = GitTools(root)
    for call in (tools.git_status, tools.git_diff, tools.git_log, lambda: tools.git_commit("x")):
        with pytest.raises(ToolError) as refused:
            call()
        assert refused.value.code in ("unsafe_repository", "no_repository")
        assert SECRET not in str(refused.value)
    assert {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()} == before


def test_work_tree_configured_elsewhere_is_ignored(root, tmp_path):
    git(root, "config", "core.worktree", str(tmp_path / "outside"))
    said = use_all(root)
    assert "secret" not in str(said)
    assert said[0]["changed"] == [{"path": "a.txt", "change": "changed"}]


@pytest.mark.parametrize("name", ["HEAD", "config", "index", "packed-refs"])
def test_pipe_in_the_repository_does_not_block(root, name):
    (root / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(root / ".git" / name)
    with pytest.raises(ToolError) as refused:
        GitTools(root).git_status()
    assert refused.value.code in ("unsafe_repository", "no_repository")


@pytest.mark.parametrize("name", ["index", "HEAD", "config", "packed-refs", "refs/heads/main"])
def test_damaged_repository_is_reported(root, name):
    (root / ".git" / name).write_bytes(b"\xff\0" * 5_000)
    with pytest.raises(ToolError) as refused:
        use_all(root)
    assert refused.value.code in ("git_failed", "unsafe_repository", "no_repository", "bad_revision")
    assert len(str(refused.value)) < 700


def test_link_out_of_the_workspace_is_committed_as_a_link(root, tmp_path):
    (root / "link").symlink_to(tmp_path / "outside" / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    tools = GitTools(root)
    tools.git_commit("links")
    assert git(root, "ls-tree", "HEAD", "link", "folder").count("120000") == 2
    assert SECRET not in str(tools.git_diff(against="HEAD~1"))
    with pytest.raises(ToolError):
        tools.git_commit("x", ["folder/secret"])


def test_paths_are_taken_literally(root):
    (root / "*.txt").write_text("x", "utf-8")
    (root / ":(top)").write_text("x", "utf-8")
    tools = GitTools(root)
    assert tools.git_commit("stars", ["*.txt"])["files"] == ["*.txt"]
    assert tools.git_commit("magic", [":(top)"])["files"] == [":(top)"]
    assert tools.git_status()["changed"] == [{"path": "a.txt", "change": "changed"}]
