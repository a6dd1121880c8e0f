"""The door between processes: many runs in one folder from several of them, and a removal that is killed in the middle."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_runs import memory_folder

import dsa

PROGRAM = Path(__file__).with_name("crowded_door.py")
PROCESSES, EACH = 4, 50


def program(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(dsa.__file__).parent.parent)}
    command = [sys.executable, PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def listed(folder):
    async def whole():
        async with dsa.open_runs(folder, must_exist=True) as runs:
            return await runs.list()

    return asyncio.run(whole())


def test_200_runs_from_4_processes_are_all_there():
    with memory_folder() as folder:
        processes = [program("start", folder / "runs", EACH) for _ in range(PROCESSES)]
        said = [line for process in processes for line in process.communicate(timeout=300)[0].splitlines()]
        assert all(process.returncode == 0 for process in processes)
        found = listed(folder / "runs")
        assert len(found) == len(said) == PROCESSES * EACH
        assert {each.run for each in found} == {line.split()[0] for line in said}
        assert {(each.status, each.summary.outcome, each.entries) for each in found} == {("finished", "over", 7)}


@pytest.mark.parametrize("boundary", range(4))
def test_removal_killed_in_the_middle_leaves_no_half_run(boundary, tmp_path):
    folder = tmp_path / "runs"
    started = program("start", folder, 2)
    gone, other = (line.split()[0] for line in started.communicate(timeout=60)[0].splitlines())
    removing = program("remove", folder, gone, boundary)
    removing.communicate(timeout=60)
    assert removing.returncode == (0 if boundary == 3 else -9)
    found = {each.run: each.status for each in listed(folder)}
    if boundary == 0:
        assert found == {gone: "finished", other: "finished"}
        assert len(dsa_replayed(folder, gone)) == 7
    else:
        assert found == {other: "finished"}
    assert len(dsa_replayed(folder, other)) == 7


def dsa_replayed(folder, run):
    async def whole():
        async with dsa.open_runs(folder, must_exist=True) as runs:
            return runs.get(run).run.ledger

    return asyncio.run(whole())
