"""Repositories in which the git tools work, a person's own git beside them, and how a call was refused."""

import subprocess

import pytest

from dsa.errors import ToolError
from machines.coding.tools import git_tools
from machines.tool_use.records import as_data


class GitTools(git_tools.GitTools):
    """The git tools, which give JSON as models get it."""

    def git_status(self):
        return as_data(super().git_status())

    def git_diff(self, *arguments, **named):
        return as_data(super().git_diff(*arguments, **named))

    def git_log(self, *arguments, **named):
        return as_data(super().git_log(*arguments, **named))

    def git_commit(self, *arguments, **named):
        return as_data(super().git_commit(*arguments, **named))


def git(folder, *arguments, check=True):
    command = ["git", "-c", "user.name=Person", "-c", "user.email=p@example.org", "-C", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout


def refused(call, *arguments, **named):
    with pytest.raises(ToolError) as error:
        call(*arguments, **named)
    assert 10 < len(str(error.value)) < 300
    return error.value.code


def make_repository(folder):
    """Make a repository of one commit."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("a.py", "b.py", "c.py"):
        (folder / name).write_text("1\n", "utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def make_submodule(folder):
    """Make a repository with another one as its submodule; return the submodule, on its branch."""
    library, top = make_repository(folder / "library"), make_repository(folder / "top")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "libs/lib")
    git(top, "commit", "-q", "-m", "with a library")
    return top / "libs" / "lib"


def make_work_tree(folder):
    """Make a repository with a further work tree; give that one, on a branch of its own."""
    git(make_repository(folder / "top"), "worktree", "add", "-q", "-b", "side", folder / "side")
    return folder / "side"
