"""Faults that `dsa check` finds without exploring also stop everything that would run the table."""

import subprocess
import sys
from pathlib import Path

import pytest
from stored_runs import RUN, begun, keep

import dsa
from dsa.edge.document_files import load
from dsa.errors import MachineError
from dsa.runs.setup import RunSetup

FAULT = "DSA210: this row sets the workflow variable 'satisfied', but the row can also be taken when the verdict is g.failed"
COMMANDS = {"check": (1, ()), "run": (2, ("Write add",)), "sim": (2, ("--seeds", "1"))}


@pytest.fixture
def faulty(tmp_path):
    """Write the shipped machine with an additional update in the row for a failed guard."""
    text = (Path(dsa.__file__).parents[1] / "machines" / "dual_state" / "machine.md").read_text(encoding="utf-8")
    sound = "| g.failed and retries < rmax | retries += 1 "
    assert sound in text
    file = tmp_path / "faulty.md"
    file.write_text(text.replace(sound, f"{sound.rstrip()}; satisfied = true "), encoding="utf-8")
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_faulty_table(faulty, command):
    code, words = COMMANDS[command]
    done = subprocess.run(
        [Path(sys.executable).with_name("dsa"), command, faulty.name, *words],
        capture_output=True, text=True, cwd=faulty.parent, check=False,
    )  # fmt: skip
    assert (done.returncode, FAULT in done.stdout + done.stderr) == (code, True)
    assert "faulty.md:49:" in done.stdout + done.stderr
    assert not (faulty.parent / ".dsa").exists()


def test_start_refuses_faulty_table(faulty):
    with pytest.raises(MachineError, match="DSA210"):
        dsa.run(faulty, "Write add", bindings=dsa.Bindings({}), where="memory:")


def test_begin_refuses_faulty_machine(faulty):
    with dsa.open_runs("memory:") as runs, pytest.raises(MachineError, match="DSA210"):
        runs.begin(RunSetup(load(str(faulty)), dsa.Bindings({})))


def test_resume_refuses_faulty_table(faulty, tmp_path):
    text = faulty.read_text(encoding="utf-8")
    keep(tmp_path / ".dsa", begun(text).ledger, text)
    with dsa.open_runs(tmp_path / ".dsa") as runs, pytest.raises(MachineError, match="DSA210"):
        runs.hold(RUN)
