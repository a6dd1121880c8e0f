"""Many runs at once in one process on one store: all finish, none costs an open file, and memory grows by what a run is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_runs import memory_folder

import dsa

PROGRAM = Path(__file__).with_name("many_runs.py")


@pytest.mark.parametrize("size", [100, pytest.param(2_000, marks=pytest.mark.full)])
def test_all_runs_finish(told, size):
    environment = {**os.environ, "PYTHONPATH": f"{Path(dsa.__file__).parent.parent}:{PROGRAM.parent.parent}"}
    with memory_folder() as folder:
        command = [sys.executable, PROGRAM, folder / "runs", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        took = json.loads(done.stdout)
    assert took["finished"] == took["most_at_once"] == size
    assert took["entries"] == took["expected"]
    assert took["most_times"] == 2, "`weigh` fails once and is tried again; nothing else is performed twice"
    each_kb, effects_per_s = took["memory_kb"] / size, took["effects"] / took["seconds"]
    told(
        f"{size} runs at once: {took['seconds']:.1f} s, {effects_per_s:.0f} durable effects/s, {size / took['seconds']:.0f} runs/s; "
        f"memory {took['memory_kb'] / 1024:.0f} MiB, {each_kb:.0f} KiB a run; file {took['size_bytes'] / size / 1024:.1f} KiB a run"
    )
    assert each_kb < 200
