"""Systems without POSIX functions, such as Windows: everything that needs no run works, and the rest gives a clear message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "without_posix.py"


def ran(folder, *arguments):
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "dual_state"], "5 of 5 properties HOLD"),
        (["prove", "dual_state"], "13 PROVED"),
        (["draw", "dual_state"], "stateDiagram-v2"),
        (["odds", "dual_state", "--pass", "g=0.7"], "0.9919"),
        (["mutate", "specs/dual_state"], "100.0%"),
        (["new", "review"], "review.md"),
        (["expand", "workflow"], "validating.g_impl"),
        (["sim", "dual_state", "--seeds", "3"], "all 54 hold"),
        (["guards"], "syntax"),
        (["code", "--help"], "Work on GOAL"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_commands_that_need_no_run_work(arguments, said, tmp_path):
    done = ran(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "dual_state", "two", "--model", "scripted:script.md"], "no flock(2)"),
        (["code", "Write a.py", "--model", "scripted:script.md"], "(openat)"),
        (["chat", "--ask", "why", "--model", "scripted:script.md"], "no flock(2)"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_run_is_refused_in_a_sentence(arguments, said, tmp_path):
    (tmp_path / "script.md").write_text("```\nx = 1\n```\n")
    done = ran(tmp_path, *arguments)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert "WSL" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_says_what_is_missing(tmp_path):
    assert "broken: .dsa: this system has no flock(2)" in ran(tmp_path, "doctor").stdout
