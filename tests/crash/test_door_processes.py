"""The door between processes: many runs in one folder from several of them, and a removal that is killed in the middle."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_runs import memory_folder

import dsa

PROGRAM = Path(__file__).with_name("crowded_door.py")
PROCESSES = 4


def program(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(dsa.__file__).parent.parent)}
    command = [sys.executable, PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def listed(folder):
    async def whole():
        async with dsa.open_runs(folder, must_exist=True) as runs:
            return await runs.list()

    return asyncio.run(whole())


@pytest.mark.parametrize("each", [15, pytest.param(50, marks=pytest.mark.full)])
def test_runs_from_4_processes_are_all_there(each):
    with memory_folder() as folder:
        processes = [program("start", folder / "runs", each) for _ in range(PROCESSES)]
        said = [line for process in processes for line in process.communicate(timeout=300)[0].splitlines()]
        assert all(process.returncode == 0 for process in processes)
        found = listed(folder / "runs")
        assert len(found) == len(said) == PROCESSES * each
        assert {one.run for one in found} == {line.split()[0] for line in said}
        assert {(one.status, one.summary.outcome, one.entries) for one in found} == {("finished", "over", 7)}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A folder with two runs, and their ids."""
    folder = tmp_path_factory.mktemp("two") / "runs"
    started = program("start", folder, 2)
    return folder, [line.split()[0] for line in started.communicate(timeout=60)[0].splitlines()]


@pytest.mark.parametrize("boundary", range(4))
def test_removal_killed_in_the_middle_leaves_no_half_run(boundary, two_runs, tmp_path):
    folder, (gone, other) = tmp_path / "runs", two_runs[1]
    shutil.copytree(two_runs[0], folder)
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
