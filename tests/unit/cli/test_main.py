"""The program itself: the garbage collector, and how it starts and exits."""

import gc
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dsa.cli.main import program


def test_command_runs_with_the_collector_on_and_loaded_objects_frozen():
    code = (
        "import gc, dsa.cli.check as check; from dsa.cli.main import main\n"
        "check.command.callback = lambda **_: print(gc.isenabled(), gc.get_freeze_count() > 1_000)\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "check", "m.md"], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_collector_is_unchanged_inside_another_program():
    before = gc.get_freeze_count()
    assert CliRunner().invoke(program, ["check", "--help"]).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before  # objects that are freed are no longer counted


def test_program_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "dsa", "chekc"], capture_output=True, text=True, check=False)
    assert (done.returncode, "did you mean 'check'?" in done.stderr) == (2, True)


ENDING = """
import asyncio, atexit, sys, time
from dsa.cli.main import main
from dsa.edge.event_loop import in_thread
atexit.register(print, "taken apart")
async def play():
    call = asyncio.create_task(in_thread(lambda: time.sleep({seconds})))
    await asyncio.sleep(0.1)
asyncio.run(play())
time.sleep(0.1)
sys.argv = ["dsa", "--version"]
main()
"""


@pytest.mark.parametrize(("seconds", "is_taken_apart"), [(0, True), (600, False)])
def test_program_exits_normally_unless_a_call_was_abandoned(seconds, is_taken_apart):
    said = subprocess.run(
        [sys.executable, "-c", ENDING.format(seconds=seconds)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ("taken apart" in said.stdout) is is_taken_apart
