"""The program itself: how it finds a command."""

import gc
import subprocess
import sys

from click.testing import CliRunner

from dsa.cli.main import program


def test_a_command_runs_with_the_collector_on_and_what_was_loaded_out_of_its_way():
    code = (
        "import gc, dsa.cli.check as check; from dsa.cli.main import main\n"
        "check.command.callback = lambda **_: print(gc.isenabled(), gc.get_freeze_count() > 1_000)\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "check", "m.md"], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_the_collector_is_left_alone_inside_another_program():
    before = gc.get_freeze_count()
    assert CliRunner().invoke(program, ["check", "--help"]).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == before


def test_it_runs_as_a_module_too():
    done = subprocess.run([sys.executable, "-m", "dsa", "chekc"], capture_output=True, text=True, check=False)
    assert (done.returncode, "did you mean 'check'?" in done.stderr) == (2, True)
