"""Faults at every call by which the git store changes the disk: kill -9, torn writes, failing syncs, a full disk.

Nothing that was acknowledged is lost, `git fsck` finds no fault, and the next process continues. Power cuts are tested in test_git_power.py;
here the system keeps what was written.
"""

import random
import subprocess
import sys

import attrs
import pytest
from artifact_runs import RUN, attempt, memory_folder, require_clean, said_of
from fault_shim import Fault
from nursery import FOLDER, Nursery

from dsa.edge.git_artifacts import GitArtifacts

NAME = "a.git"
#: What goes wrong, and how many faults have to fire when it goes wrong at every call.
KINDS = {
    "git: killed before a call": (Fault("before", name=NAME), 120),
    "git: killed after a call": (Fault("after", name=NAME), 120),
    "git: killed in the middle of a write": (Fault("torn", kinds=("write",), name=NAME), 15),
    "git: a sync fails once": (Fault("once", kinds=("sync",), name=NAME), 45),
    "git: the disk is full from then on": (
        Fault("ever", kinds=("write", "create", "rename"), error="ENOSPC", name=NAME),
        70,
    ),
}
CASES = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def nursery():
    with Nursery("git_victim.py") as started:
        yield started


def lived_through(nursery, lives):
    """Run a process with each fault, one after the other, on one repository; check what they leave. Return how many fired."""
    with memory_folder() as folder:
        repository = folder / NAME
        ended = [nursery.live(fault=fault, repository=str(repository), attempts=3) for fault in lives]
        for each in ended:
            assert each.killed or each.last("rest") or each.last("fault") in {"OSError", "SyncFailed"}, each.told
        examine(repository, ended)
        return sum(each.fired for each in ended)


def examine(repository, ended):
    """Check what is left as the next process would, and continue."""
    if repository.exists():
        require_clean(repository)
    store = GitArtifacts(repository, RUN, lock_patience_s=0)
    kept = {attempt.artifact_id: attempt for attempt in store.attempts()}
    for artifact_id in (artifact_id for each in ended for artifact_id in each.all("stored")):
        found = store.get_artifact(artifact_id)
        assert found.content == attempt(found.version).content
    for artifact_id in (artifact_id for each in ended for artifact_id in each.all("judged")):
        assert kept[artifact_id].verdicts == (said_of(kept[artifact_id].artifact("")),)
    last = None
    for number in range(1, 5):
        last = store.store(attempt(number, last), "llm")
        store.record_verdict(said_of(last))
    assert [a.version for a in GitArtifacts(repository, RUN).lineage(last.artifact_id)] == [1, 2, 3, 4]
    require_clean(repository)


def calls_of(nursery, fault):
    """Count the calls of a process without faults."""
    with memory_folder() as folder:
        ended = nursery.live(fault=attrs.evolve(fault, mode="never"), repository=str(folder / NAME), attempts=3)
    assert ended.last("rest") == "finished"
    return ended.last("seen")


@CASES
def test_fault_at_some_calls_loses_nothing(nursery, fired, kind):
    fault, _ = KINDS[kind]
    plan = [[attrs.evolve(fault, at=at)] for at in range(2, calls_of(nursery, fault) + 1, 23)]
    number = sum(lived_through(nursery, lives) for lives in plan)
    fired(kind, len(plan), number)
    assert number == len(plan) > 0


@CASES
@pytest.mark.full
def test_fault_at_every_call_loses_nothing(nursery, fired, kind):
    fault, at_least = KINDS[kind]
    calls = calls_of(nursery, fault)
    number = sum(lived_through(nursery, [attrs.evolve(fault, at=at)]) for at in range(1, calls + 1))
    fired(kind, calls, number)
    assert number == calls >= at_least


def several(nursery, seeds):
    """Run processes with faults one after the other on one repository; return how many faults were planned, and how many fired."""
    planned = number = 0
    for chance in map(random.Random, seeds):
        kinds = [fault for fault, _ in KINDS.values()]
        lives = [attrs.evolve(chance.choice(kinds), at=chance.randint(1, 60)) for _ in range(chance.randint(2, 4))]
        planned, number = planned + len(lives), number + lived_through(nursery, lives)
    return planned, number


def test_several_faults_in_a_row_lose_nothing(nursery, fired):
    planned, number = several(nursery, range(10))
    fired("git: while it goes on after a fault", planned, number)
    assert number > 15


@pytest.mark.full
def test_many_faults_in_a_row_lose_nothing(nursery, fired):
    planned, number = several(nursery, range(1_000, 1_120))
    fired("git: while it goes on after a fault", planned, number)
    assert number > 200


ENDLESS = """
import sys
from artifact_runs import RUN, attempt
from dsa.edge.git_artifacts import GitArtifacts
store, made = GitArtifacts(sys.argv[1], RUN), None
for number in range(1, 100_000):
    made = store.store(attempt(number, made))
    print(made.artifact_id, flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_kill_from_outside_at_any_moment_loses_nothing(fired, seed):
    chosen = random.Random(seed)
    with memory_folder() as folder:
        command = [sys.executable, "-c", ENDLESS, folder / NAME]
        environment = {"PYTHONPATH": f"{FOLDER.parent}:{FOLDER.parent.parent}", "PATH": "/usr/bin:/bin"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            told = [process.stdout.readline().strip() for _ in range(chosen.randint(1, 200))]
            for _ in range(chosen.randint(0, 20_000)):
                pass
            process.kill()
            told += [line.strip() for line in process.stdout if line.endswith("\n")]
        require_clean(folder / NAME)
        store = GitArtifacts(folder / NAME, RUN, lock_patience_s=0)
        assert [a.artifact_id for a in store.lineage(told[-1])] == told
        assert store.store(attempt(7)).version == 7
        fired("git: killed from outside", 1, int(process.returncode == -9))
