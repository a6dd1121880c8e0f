"""`dsa tests`: it prints scenarios of a document, or writes a test file that runs."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from dsa.cli.check import command as check
from dsa.cli.tests import command
from dsa.edge.document_files import locate
from dsa.lang import format_document, loads

DOOR = """# door
## States
| state | kind |
| - | - |
| closed | initial |
| open | |
| locked | final |
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


def test_tour_is_printed_as_valid_scenarios(dsa):
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


def test_written_tests_run_in_pytest_and_find_faults(dsa, tmp_path):
    assert dsa("door.md", "-o", "test_door.py").exit_code == 0
    written = (tmp_path / "test_door.py").read_text()
    assert 'TESTS = """\npush; after 30s of open; lock\n"""' in written
    wrong = written.replace("ReplayedMachine(MACHINE)", 'ReplayedMachine(dsa.load("broken.md"))')
    (tmp_path / "test_wrong.py").write_text(wrong)
    (tmp_path / "broken.md").write_text(DOOR.replace("ring", "knock"))
    complete = dsa("dual_state", "--complete", "--param", "rmax=1", "-o", "test_complete.py")
    assert "at most 0 more states than the table, it is equivalent to the table at rmax = 1" in complete.stderr
    written = (tmp_path / "test_complete.py").read_text()
    assert "MACHINE = dsa.load('dual_state').at({'rmax': 1})" in written
    assert written.count("\nspecification") + written.count("\nartifact") + written.count("\nverdict") == 42
    (tmp_path / "two.md").write_text(AMBIGUOUS)
    assert dsa("two.md", "-o", "test_two.py").exit_code == 0
    assert dsa("door.md", "-o", "tour.md").exit_code == 0
    files = ["test_door.py", "test_wrong.py", "test_complete.py", "test_two.py", "tour.md"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", *files],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [line.startswith("FAILED test_wrong.py::") for line in failed] == [True, True]
    summary = done.stdout.splitlines()[-1]
    # 1 + 42 + 1, walks in three files, and of tour.md its check and scenario
    assert summary.partition(" in ")[0] == "2 failed, 49 passed"


def test_observed_values_can_be_chosen(dsa):
    assert (
        "and its state, satisfied, the pending effects"
        in dsa("dual_state", "--complete", "--observe", "pending, state, satisfied").stderr
    )
    assert (
        "and its state, satisfied, retries, the pending effects, the reason"
        in dsa("dual_state", "--complete", "--observe", "all").stderr
    )


@pytest.mark.parametrize("options", [[], ["--refused"], ["--complete"], ["--param", "rmax=1"]], ids=" ".join)
def test_scenarios_are_written_as_a_spec_that_passes(dsa, tmp_path, options):
    (tmp_path / "specs").mkdir()
    (tmp_path / "my_own_machine.md").write_text(locate("dual_state").read_text())
    assert dsa("my_own_machine.md", *options, "-o", "specs/tour.md").exit_code == 0
    text = (tmp_path / "specs" / "tour.md").read_text()
    assert "\n\nMachine: ../my_own_machine.md\n\n" in text
    assert format_document(text) == text
    checked = CliRunner().invoke(check, ["specs/tour.md"])
    assert checked.exit_code == 0, checked.output
    scenarios = text.count("## Scenario: ")
    assert scenarios >= 5
    assert f"{scenarios + 3} of {scenarios + 3} scenarios pass" in checked.output  # and the machine's own


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("dual_state", "dual_state"),
        ("specs/dual_state", "dual_state"),
        ("deep/spec.md", "door.md"),
        ("deep/other.md", "dual_state"),
    ],
)
def test_written_spec_names_the_machine_and_not_another_spec(dsa, tmp_path, file, named):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "spec.md").write_text("# spec\n\nMachine: ../door.md\n\n## Properties\n- possible locked\n")
    (tmp_path / "deep" / "other.md").write_text("# spec\n\nMachine: dual_state\n\n## Properties\n- possible failed\n")
    assert dsa(file, "-o", "tour.md").exit_code == 0
    assert f"\nMachine: {named}\n" in (tmp_path / "tour.md").read_text()
    assert CliRunner().invoke(check, ["tour.md"]).exit_code == 0


@pytest.mark.parametrize("name", ["more.md", "test_more.py"])
def test_existing_file_is_overwritten_only_with_force(dsa, tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = dsa("door.md", "-o", name)
    assert (done.exit_code, "nothing was written; --force overwrites it" in done.stderr) == (2, True)
    assert (tmp_path / name).read_text() == "mine"
    assert dsa("door.md", "-o", name, "--force").exit_code == 0
    assert "mine" not in (tmp_path / name).read_text()


def test_machine_is_never_overwritten(dsa, tmp_path):
    done = dsa("door.md", "-o", "../" + tmp_path.name + "/door.md", "--force")
    assert (done.exit_code, "is the input file itself" in done.stderr) == (2, True)
    assert (tmp_path / "door.md").read_text() == DOOR


def test_tests_that_cannot_be_scenarios_are_reported(dsa, tmp_path):
    (tmp_path / "two.md").write_text(AMBIGUOUS)
    assert "1 of 1 tests cannot be scenarios" in dsa("two.md").stderr
    assert dsa("two.md", "-o", "tour.md").exit_code == 2
    assert not (tmp_path / "tour.md").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["door.md", "--extra", "1"], "--extra and --observe are for --complete"),
        (["door.md", "--complete", "--refused"], "--refused is for a tour"),
        (["door.md", "-o", "x.txt"], "ends in .py (pytest) or .md"),
        (["door.md", "--complete", "--observe", "colour"], "known here: 'all', 'pending', 'reasons', 'state'"),
    ],
)
def test_misuse_is_reported(dsa, arguments, said):
    done = dsa(*arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_indistinguishable_states_are_reported():
    code = "from dsa.cli.main import main; main()"
    command_line = [sys.executable, "-c", code, "tests", "workflow", "--complete"]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("generating.g_test and generating.g_impl differ only in the verdicts they ask for")
    assert "--observe state" in done.stderr
