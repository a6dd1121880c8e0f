"""One call at a time in a workspace, across threads and processes; waiting ends when it takes too long or the caller is stopped."""

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


def test_workspace_held_by_another_process_is_waited_for_but_not_forever(tmp_path, holder):
    with stop() as stopped:
        with (
            pytest.raises(ToolError, match="the workspace is in use"),
            alone(tmp_path, stopped, 0.2),
        ):
            pass
        threading.Timer(0.2, holder.stdin.close).start()
        with alone(tmp_path, stopped, 20):
            assert holder.wait(20) == 0


def test_dead_process_releases_the_workspace(tmp_path, holder):
    holder.kill()
    holder.wait()
    with stop() as stopped, alone(tmp_path, stopped, 20):
        pass


def test_stopped_caller_stops_waiting(tmp_path, holder):
    assert holder.poll() is None
    with stop() as stopped:
        threading.Timer(0.2, stopped.set).start()
        with pytest.raises(ToolError, match="in use by another"), alone(tmp_path, stopped, 60):
            pass


def test_two_callers_in_one_process_exclude_each_other(tmp_path):
    with stop() as one, stop() as other:
        with (
            alone(tmp_path, one),
            pytest.raises(ToolError, match="in use by another"),
            alone(tmp_path, other, 0.1),
        ):
            pass
        with alone(tmp_path, other, 0.1):
            pass
