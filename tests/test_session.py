"""The session that `conftest.py` makes: it is copied beside a small suite of its own, which another process runs."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from sample_sizes import sample_size

CASES = """
import asyncio, os, signal, subprocess, sys, threading
import pytest
import sample_sizes
from hypothesis import given, strategies

LIMITED = pytest.mark.limit(1)
ASKS = "import signal; print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGINT) is signal.default_int_handler)"

@LIMITED
def test_loop():
    async def waits():
        while True:
            await asyncio.sleep(0)
    asyncio.run(waits())

@LIMITED
@given(strategies.integers())
def test_hypothesis(number):
    threading.Event().wait()

@pytest.fixture
def slow():
    threading.Event().wait()

@LIMITED
def test_fixture(slow):
    pass

def test_hangup():
    os.kill(os.getpid(), signal.SIGHUP)

def test_sizes():
    assert sample_sizes.sample_size(1, full=2) == 2

def test_program():
    assert subprocess.check_output([sys.executable, "-c", ASKS], text=True) == "SIG_DFL True\\n"
"""


def ignoring():
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def test_hanging_tests_end_and_ignored_signals_reach_programs(tmp_path):
    for name in ("conftest.py", "sample_sizes.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = limit(seconds)\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "test_cases.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | {"COLUMNS": "200"},
        preexec_fn=ignoring,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    summary = [
        line.partition(" - ") for line in done.stdout.splitlines() if line.startswith(("FAILED test", "ERROR test"))
    ]
    assert {what: error for what, _, error in summary} == {
        f"{kind} test_cases.py::{name}": f"conftest.TimeLimitError: {phase} of test_cases.py::{name} takes more than 1 s"
        for kind, name, phase in [
            ("FAILED", "test_loop", "the call"),
            ("FAILED", "test_hypothesis", "the call"),
            ("ERROR", "test_fixture", "the set-up"),
        ]
    }, done.stdout + done.stderr
    assert "2 failed, 3 passed, 1 error" in done.stdout


def test_random_cases_are_drawn_in_full_in_full_test_runs(pytestconfig):
    assert sample_size(1, full=2) == (1 if pytestconfig.option.markexpr == "not full" else 2)
