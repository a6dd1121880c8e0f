"""One call at a time in a workspace: held against threads and processes, given up when it takes too long or the caller is stopped."""

import subprocess
import sys
import threading

import pytest

from dsa.edge.sandbox.command_sandbox import stop
from dsa.errors import ToolError
from machines.coding.tools.command_runner import alone

HOLDS = """import sys
from pathlib import Path
from dsa.edge.sandbox.command_sandbox import stop
from machines.coding.tools.command_runner import alone
with stop() as stopped, alone(Path(sys.argv[1]), stopped):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_waited_for_and_not_for_ever(tmp_path, holder):
    with stop() as stopped:
        with (
            pytest.raises(ToolError, match="the workspace is in use"),
            alone(tmp_path, stopped, 0.2),
        ):
            pass
        threading.Timer(0.2, holder.stdin.close).start()
        with alone(tmp_path, stopped, 20):
            assert holder.wait(20) == 0


def test_who_dies_lets_go(tmp_path, holder):
    holder.kill()
    holder.wait()
    with stop() as stopped, alone(tmp_path, stopped, 20):
        pass


def test_who_is_stopped_waits_no_longer(tmp_path, holder):
    assert holder.poll() is None
    with stop() as stopped:
        threading.Timer(0.2, stopped.set).start()
        with pytest.raises(ToolError, match="in use by another"), alone(tmp_path, stopped, 60):
            pass


def test_two_callers_of_one_process_are_held_apart(tmp_path):
    with stop() as one, stop() as other:
        with (
            alone(tmp_path, one),
            pytest.raises(ToolError, match="in use by another"),
            alone(tmp_path, other, 0.1),
        ):
            pass
        with alone(tmp_path, other, 0.1):
            pass
