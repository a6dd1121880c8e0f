"""The same run in several processes with different hash seeds: byte for byte the same ledger and reports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "printed_runs.py"


def start(folder, seed):
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.Popen([sys.executable, PROGRAM, folder], stdout=subprocess.PIPE, env=environment)


def output_of(process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output


@pytest.mark.parametrize(
    "seeds", [("1", "12345"), pytest.param(("1", "2", "3", "12345"), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_ledger_is_the_same_in_every_process(tmp_path, seeds):
    first = output_of(start(tmp_path, "0"))  # this process stores the ledgers that the others replay
    others = [start(tmp_path, seed) for seed in seeds]
    assert {output_of(process) == first for process in others} == {True}
    assert first.count(b'{"kind":"machine"') == 36  # 6 machines, 3 lives each, each of them lived and replayed
    assert first.count(b'{"kind":"resumed"') > 20
