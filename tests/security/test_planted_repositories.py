"""Repositories that a command plants below the workspace's root, so that git runs a program of theirs for anyone who looks there.

Files, commands and git are real.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ordinary_user
import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox.command_sandbox import probe_commands
from machines.coding.tools.command_runner import ProtectedState, run
from machines.coding.tools.program_rules import Rules

PLANTED = [
    ".venv/.GIT", "bare/HEAD", "closed/in/.dsa~left", "closed/in/.git", "closed/in/__pycache__", "file/.git", "half/refs", "led/HEAD", "link/.git", "looks/like/HEAD", "node_modules/lib/.git",
    "src/.agent_context", "src/deep/er/.git", "store/commondir", "sub/.git",
]  # fmt: skip


@pytest.mark.parametrize("user", ["root", "user"])
def test_repositories_planted_by_a_command_are_removed(user):
    if why := probe_commands().fault:
        pytest.skip(f"{NOT_TESTED} in the sandbox for commands: {why}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        said = json.loads(ordinary_user.run("planting.py", f"{folder}/work", is_root=user == "root"))
    assert sorted(said["removed"]) == PLANTED
    assert said["again"] == []
    assert said["started"] == []
    assert said["said"] == ["Read-only file system"] * 3 + ["WROTE store/commondir"] + ["Device or resource busy"] * 2
    assert said["mode"] == "0"
    assert said["kept"] == [True] * 5


def test_moved_repository_is_not_removed(tmp_path):
    """Nothing keeps an unconfined command from moving a repository."""
    subprocess.run(["git", "init", "-q", tmp_path / "own"], check=True)
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    code = "import os; os.rename('own', 'moved'); os.rename('bare', 'moved too')"
    ran = run(("python", "-c", code), root=tmp_path, rules=Rules(code=True), is_unconfined=True)
    assert (ran.code, ran.removed_paths) == (0, ())
    assert (tmp_path / "moved" / ".git" / "config").is_file()
    assert (tmp_path / "moved too" / "HEAD").is_file()


def test_report_of_many_removed_repositories_names_the_first_50(tmp_path):
    before = ProtectedState(tmp_path, ())
    for number in range(60):
        (tmp_path / f"{number:02}\n" / ".git").mkdir(parents=True)
    told = before.restore()
    assert (told[0], len(told), told[-1]) == ("00\\n/.git", 51, "and 10 more")
    assert list(tmp_path.rglob(".git")) == []


def test_folders_with_too_long_paths_do_not_stop_the_cleanup(tmp_path):
    before = ProtectedState(tmp_path, ())
    deep = "import os\nfor _ in range(700): os.mkdir('ddddddd'); os.chdir('ddddddd')\nos.mkdir('.git')"
    subprocess.run([sys.executable, "-c", deep], cwd=tmp_path, check=True)
    (tmp_path / "ddddddd" / ".git").mkdir()
    assert before.restore() == ("ddddddd/.git",)
    subprocess.run(["rm", "-rf", tmp_path / "ddddddd"], check=True)
