"""A machine in a user's project: the real pytest collects it, tests it, and reports its coverage."""

import os
import subprocess
import sys

import pytest

DOOR = """# door

## States
| state  | kind    |
| ------ | ------- |
| closed | initial |
| open   |         |
| locked | final   |

## Transitions
| source | event | target |
| ------ | ----- | ------ |
| closed | push  | open   |
| open   | pull  | closed |
| closed | lock  | locked |
"""
CLAIMS = """
## Properties
- possible locked
- never open and locked

## Scenario: in and out
| percept | action | state  |
| ------- | ------ | ------ |
| push    |        | open   |
| pull    |        | closed |
"""
TOUR = """
import dsa
from dsa.testing import SteppedMachine, play, tour

def test_machine_does_what_its_table_says():
    door = dsa.load("gate.md")
    play(door, lambda: SteppedMachine(door), tour(door))
"""
RUN = """
import asyncio
import dsa
from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.run import begin

def test_a_real_run():
    run, commands = begin(dsa.load("door.md"), "r")
    driver = Driver(run, Bindings({}), MemoryArtifacts(), commands=commands)
    assert asyncio.run(driver.drive(dsa.Occurrence("lock"))).kind == "finished"
"""


@pytest.fixture
def project(tmp_path, tmp_path_factory):
    """A fresh project; return what pytest prints there, and its exit code."""

    def pytest_run(files, *arguments):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"COLUMNS": "100"}
        # Pytest removes only its own old folders.
        environment["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("temporary"))
        others = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]  # the plugin of Hypothesis imports all of it
        command = [sys.executable, "-m", "pytest", "-W", "error", *others, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout + done.stderr, done.returncode

    return pytest_run


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_machine_is_collected_and_coverage_counts_tests_and_runs(project, workers):
    files = {
        "door.md": DOOR + CLAIMS,
        "gate.md": DOOR.replace("# door", "# gate"),
        "test_run.py": RUN,
        "test_tour.py": TOUR,
    }
    printed, code = project(files, "-v", "--machine-coverage-min", "100", *workers)
    assert code == 0, printed
    items = ("check", "property: possible locked", "property: never open and locked", "scenario: in and out")
    passed = "PASSED door.md::{}" if workers else "door.md::{} PASSED"
    assert [item for item in items if passed.format(item) not in printed] == []
    assert "7 passed" in printed
    assert "door.md by tests      rows 1 of 3  states 2 of 3" in printed
    assert "door.md: all 3 rows are taken" in printed
    assert "gate.md by tests      rows 3 of 3  states 3 of 3" in printed


def test_too_little_coverage_fails(project):
    printed, code = project({"door.md": DOOR + CLAIMS}, "--machine-coverage-min", "90")
    assert code == 1
    assert "door.md by scenarios  rows 2 of 3  states 2 of 3  verdicts 0 of 0" in printed
    assert "door.md by tests      rows 0 of 3  states 0 of 3  verdicts 0 of 0" in printed
    assert "door.md: 1 of 3 rows not taken: line 15 (closed | lock | locked)" in printed
    assert "67 % of the rows of door.md are taken, 90 % are required" in printed


def test_spec_has_its_own_items_and_counts_for_its_machine(project):
    spec = "# door, checked\n\nMachine: ../door.md\n" + CLAIMS
    printed, code = project({"door.md": DOOR, "specs/door.md": spec}, "-v", "--machine-coverage")
    assert code == 0, printed
    assert "specs/door.md::property: possible locked PASSED" in printed
    assert "5 passed" in printed
    assert "door.md, specs/door.md by scenarios  rows 2 of 3" in printed


GUARDED = """# guarded

## Guards
| guard | judges | verdicts       |
| ----- | ------ | -------------- |
| g     | push   | passed, failed |

## Transitions
| source | event | if       | target |
| ------ | ----- | -------- | ------ |
| closed | push  | g.passed | open   |
| closed | push  | g.failed | =      |
| open   | pull  |          | closed |

## Properties
- open with probability >= 0.5
"""


def test_faults_are_reported_with_their_lines(project):
    """Claims that do not hold, errors of a table, and a property that cannot be judged because the odds of g are unknown."""
    wrong = CLAIMS.replace("never open and locked", "never locked").replace("| closed", "| open  ")
    files = {
        "door.md": DOOR + wrong,
        "overlap.md": DOOR + "| closed | push  | locked |\n",
        "twins/door.md": DOOR.replace("| open   | pull", "| opne   | pull"),
        "guarded.md": GUARDED,
    }
    printed, code = project(files)
    assert code == 1
    assert "door.md:19: never locked: VIOLATED" in printed
    assert "1  lock   locked  line 15" in printed
    assert "door.md:25: scenario 'in and out': the state after 'pull': expected 'open', but got 'closed'" in printed
    assert "overlap.md:16:1: error DSA304: the rows in lines 13 and 16 are enabled at the same time" in printed
    assert "opne" in printed
    assert "guarded.md:16: open with probability >= 0.5: UNKNOWN" in printed
    assert "5 failed, 3 passed" in printed


def test_one_fault_fails_one_item_and_skips_what_it_prevents(project):
    claims = CLAIMS.replace("never open and locked", "never locked").split("## Scenario")[0]
    printed, code = project({"door.md": DOOR + "| closed | push  | locked |\n" + claims}, "-rs")
    assert code == 1
    assert "not judged because of DSA304: see door.md::check" in printed
    assert "door.md:20: never locked: VIOLATED" in printed
    assert "2 failed, 1 skipped" in printed


def test_unknown_item_fails_if_the_faulty_one_is_not_selected(project):
    door = DOOR + "| closed | push  | locked |\n" + CLAIMS
    printed, code = project({"door.md": door}, "door.md::property: possible locked")
    assert (code, "1 failed" in printed) == (1, True)
    assert "no property can be shown to hold until this is fixed: rows enabled at once (DSA304)" in printed


OTHER = {
    "README.md": f"# how\n## Steps\n| step | what |\n| - | - |\n| 1 | go |\n\n```markdown\n{DOOR}\n```\n",
    "notes.md": "# notes\n\nMachine: the old one\n\n## Transitions\nNone yet.\n",
    "test_it.py": """
import sys

def test_plugin_loads_nothing_else():
    heavy = [name for name in sys.modules if name.startswith("dsa.") and not name.startswith("dsa.testing")]
    assert heavy == []
    assert sorted(name for name in sys.modules if name.startswith("dsa.")) == ["dsa.testing", "dsa.testing.pytest_plugin"]
""",
}


def test_other_projects_are_left_alone(project):
    printed, code = project(OTHER)
    assert (code, "1 passed" in printed) == (0, True), printed


def test_plugin_can_be_disabled(project):
    printed, _ = project({"door.md": DOOR}, "-p", "no:dsa")
    assert "no tests ran" in printed


def test_ini_option_turns_the_plugin_off(project):
    printed, _ = project({"door.md": DOOR, "pytest.ini": "[pytest]\ndsa_machines = false\n"})
    assert "no tests ran" in printed
