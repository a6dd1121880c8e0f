"""Repositories in which the git tools work, a person's own git beside them, and how a call was refused."""

import subprocess

import pytest

from machines.coding.tools.errors import ToolError


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
