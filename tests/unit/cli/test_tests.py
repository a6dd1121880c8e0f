"""`dsa tests`: what it prints is a document's scenarios, what it writes is a test file that runs."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from dsa.cli.tests import command
from dsa.edge.files import locate
from dsa.lang import loads

DOOR = """# door
## Transitions
| source | event | effects | target |
| - | - | - | - |
| closed | push | | open |
| open | after 30s | ring | closed |
| closed | lock | | locked |
"""


@pytest.fixture
def dsa(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "door.md").write_text(DOOR)

    def run(*arguments):
        done = CliRunner().invoke(command, arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


def test_a_tour_is_printed_as_scenarios_that_run_as_written(dsa):
    done = dsa("workflow", "--refused", "--param", "rmax=1")
    assert done.exit_code == 0
    text = locate("workflow").read_text()
    machine = loads(f"{text}\n\n{done.stdout}")
    assert len(machine.scenarios) == 24
    assert dict(machine.scenarios[0].parameters) == {"rmax.g_test": 1, "rmax.g_impl": 1}
    assert done.stderr == (
        "24 tests, 586 steps: they take all 25 rows and all 73 transitions of 35 configurations at "
        "rmax.g_test = 1, rmax.g_impl = 1, grants = 1.\n"
    )


def test_a_pytest_file_runs_and_finds_what_is_wrong(dsa, tmp_path):
    assert dsa("door.md", "-o", "test_door.py").exit_code == 0
    written = (tmp_path / "test_door.py").read_text()
    assert 'TESTS = """\npush; after 30s of open; lock\n"""' in written
    assert run_pytest(tmp_path) == "1 passed"
    (tmp_path / "test_door.py").write_text(written.replace("Stepped(MACHINE)", 'Stepped(dsa.load("broken.md"))'))
    (tmp_path / "broken.md").write_text(DOOR.replace("ring", "knock"))
    assert run_pytest(tmp_path) == "1 failed"


def run_pytest(folder):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:dsa", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()[-1].partition(" in ")[0]


def test_a_complete_suite_says_what_passing_it_means(dsa, tmp_path):
    done = dsa("dual_state", "--complete", "--extra", "1", "--param", "rmax=1", "-o", "test_it.py")
    assert "at most 1 more states than the table equals it at rmax = 1" in done.stderr
    written = (tmp_path / "test_it.py").read_text()
    assert "MACHINE = dsa.load('dual_state').at({'rmax': 1})" in written
    assert written.count("\nspecification") + written.count("\nartifact") + written.count("\nverdict") == 221
    assert run_pytest(tmp_path) == "221 passed"


def test_what_is_observed_is_chosen(dsa):
    assert (
        "shows its state, satisfied, what is pending"
        in dsa("dual_state", "--complete", "--observe", "pending, state, satisfied").stderr
    )
    assert (
        "shows its state, satisfied, retries, what is pending, the reason"
        in dsa("dual_state", "--complete", "--observe", "all").stderr
    )


def test_scenarios_go_into_a_file_that_is_not_there_yet(dsa, tmp_path):
    assert dsa("door.md", "-o", "more.md").exit_code == 0
    assert (tmp_path / "more.md").read_text().startswith("## Scenario: tour 1\n")
    done = dsa("door.md", "-o", "more.md")
    assert (done.exit_code, "is there already; nothing was written" in done.stderr) == (2, True)


AMBIGUOUS = """# two
## States
| state | kind |
| - | - |
| a | initial |
| a.b | initial |
| a.c | |
| d | |
## Transitions
| source | event | target |
| - | - | - |
| a.b | after 5s | a.c |
| a | after 5s | d |
| d | go | a |
"""


def test_what_no_scenario_can_say_is_said(dsa, tmp_path):
    (tmp_path / "two.md").write_text(AMBIGUOUS)
    assert "no scenario can say" in dsa("two.md").stderr
    assert dsa("two.md", "-o", "test_two.py").exit_code == 0
    assert run_pytest(tmp_path) == "1 passed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["door.md", "--extra", "1"], "--extra and --observe are for --complete"),
        (["door.md", "--complete", "--refused"], "--refused is for a tour"),
        (["door.md", "-o", "x.txt"], "ends in .py (pytest) or .md"),
        (["door.md", "--complete", "--observe", "colour"], "there is state, pending, reasons, all"),
    ],
)
def test_misuse_is_told(dsa, arguments, said):
    done = dsa(*arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_what_cannot_be_told_apart_is_told():
    code = "from dsa.cli.main import main; main()"
    command_line = [sys.executable, "-c", code, "tests", "workflow", "--complete"]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("generating.g_test and generating.g_impl differ only in the verdicts they ask for")
    assert "--observe state" in done.stderr
