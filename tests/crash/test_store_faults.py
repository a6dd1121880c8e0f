"""Faults at every call by which the durable store changes the disk: kill -9, torn writes, failing syncs, a full disk.

Nothing that was acknowledged is lost, no recorded result is executed again, what was in doubt is reported, every run finishes; what
that means is in store_lives.py. Power cuts are tested in test_store_power.py: here the system keeps what was written.
"""

import os
import random
import shutil
import subprocess
from contextlib import contextmanager

import attrs
import pytest
from artifact_runs import memory_folder
from fault_shim import CALLS, MEMORY, Fault
from nursery import Nursery
from store_lives import Story

from dsa.edge.stores.sqlite_store import SqliteStore

FULL = {"kinds": ("write", "create", "rename"), "error": "ENOSPC"}
#: What goes wrong, and how many faults have to fire when it goes wrong at every call: more than 500 in all.
KINDS = {
    "killed before a call": (Fault("before"), 100),
    "killed after a call": (Fault("after"), 100),
    "killed in the middle of a write": (Fault("torn", kinds=("write",)), 70),
    "a sync fails once": (Fault("once", kinds=("sync",)), 15),
    "every sync fails from then on": (Fault("ever", kinds=("sync",)), 15),
    "a call fails once": (Fault("once"), 100),
    "every call fails from then on": (Fault("ever"), 100),
    "the disk is full once": (Fault("once", **FULL), 70),
    "the disk is full from then on": (Fault("ever", **FULL), 70),
}
#: By how many calls two lives may differ: the data contains times, and may need a page more or less.
GIVE = 6
DISK_BYTES = 2**19
CASES = pytest.mark.parametrize("kind", KINDS)
AT_BOUNDARIES = "killed at a boundary of an effect"
TAKEN_UP = "while a run is resumed"
IN_MEMORY = "killed at a write to shared memory"
AT_CHECKPOINT = "killed during a checkpoint"
REALLY_FULL = "a disk that is really full"


@pytest.fixture(scope="module")
def nursery():
    with Nursery("store_victim.py") as started:
        yield started


@pytest.fixture
def stories(nursery):
    """Return stories, each in a folder that is gone when the next one begins."""

    def begin():
        while True:
            with memory_folder() as folder:
                yield Story(nursery, folder)

    begun = begin()
    yield begun
    begun.close()


def census(stories, kinds=CALLS):
    """Count the calls and the boundaries of a life without faults."""
    ended = next(stories).live(Fault(kinds=kinds))
    assert ended.last("rest") == "finished"
    return ended.last("seen"), ended.last("boundaries")


def lived_through(stories, plan):
    """Run a story for each list of lives, to its end; return how many faults fired."""
    number = 0
    for planned, story in zip(plan, stories, strict=False):
        for life in planned:
            ended = story.live(**life)
            assert ended.last("fault", "StoreError") in {"StoreError", "DocumentError"}, ended.told
        number += story.finish()
    return number


def at_calls(fault, chosen):
    return [[{"fault": attrs.evolve(fault, at=at)}] for at in chosen]


@CASES
def test_fault_at_some_calls_loses_nothing(stories, fired, kind):
    fault, at_least = KINDS[kind]
    seen, _ = census(stories, fault.kinds)
    plan = at_calls(fault, range(random.Random(seen).randint(1, 6), seen - GIVE, max(2, at_least // 6)))
    number = lived_through(stories, plan)
    fired(kind, len(plan), number)
    assert number == len(plan) > 3


@pytest.mark.full
@CASES
def test_fault_at_every_call_loses_nothing(stories, fired, kind):
    fault, at_least = KINDS[kind]
    seen, _ = census(stories, fault.kinds)
    number = lived_through(stories, at_calls(fault, range(1, seen + 1)))
    fired(kind, seen, number)
    assert number >= max(at_least, seen - GIVE)


def test_fault_kinds_require_more_than_500_faults_in_all():
    assert sum(at_least for _, at_least in KINDS.values()) > 500


# -- at the boundaries of effects -------------------------------------------------------------------------------------


def test_kill_at_some_boundaries_of_effects_loses_nothing(stories, fired):
    _, boundaries = census(stories)
    plan = [[{"boundary": number}] for number in range(1, boundaries + 1, 4)]
    number = lived_through(stories, plan)
    fired(AT_BOUNDARIES, len(plan), number)
    assert number == len(plan) > 10


@pytest.mark.full
def test_kill_at_every_boundary_of_every_effect_loses_nothing(stories, fired):
    """Before it happens, after it happened, and after each entry that is acknowledged: the intent, the result, the next event."""
    _, boundaries = census(stories)
    number = lived_through(stories, [[{"boundary": number}] for number in range(1, boundaries + 1)])
    fired(AT_BOUNDARIES, boundaries, number)
    assert number == boundaries > 45


def test_kill_while_repeating_an_effect_in_doubt_is_reported_each_time(stories, fired):
    """The note that it is in doubt must be durable before it is performed, or the second time is never reported."""
    plan = [[{"boundary": first}, {"boundary": second}] for first in (8, 11, 23) for second in (2, 3)]
    number = lived_through(stories, plan)
    fired(TAKEN_UP, 2 * len(plan), number)
    assert number == 2 * len(plan)


# -- while a run is resumed -------------------------------------------------------------------------------------------


@pytest.mark.full
def test_fault_at_every_call_while_a_run_is_resumed_loses_nothing(stories, fired):
    """Cut off with results that were not fed, with effects in doubt of each kind, and in the middle of a transaction."""
    planned = number = 0
    for first in [{"boundary": 8}, {"boundary": 23}, {"boundary": 31}, {"fault": Fault("torn", 60)}]:
        story = next(stories)
        story.live(**first)
        plan = [[first, {"fault": Fault("before", at)}] for at in range(1, story.live().last("seen") + 1)]
        planned, number = planned + 2 * len(plan), number + lived_through(stories, plan)
    fired(TAKEN_UP, planned, number)
    assert number > planned - 4 * GIVE > 500


def random_lives(seed, seen, boundaries):
    """Return two or three lives with a fault each: those after the first resume a run."""
    chance = random.Random(seed)

    def life(calls):
        if chance.random() < 0.25:
            return {"boundary": chance.randint(1, min(calls, boundaries))}
        fault, _ = chance.choice(list(KINDS.values()))
        return {"fault": attrs.evolve(fault, at=chance.randint(1, calls))}

    return [life(seen), *(life(40) for _ in range(chance.randint(1, 2)))]


def disturbed_again_and_again(stories, seeds):
    """Run a story of random lives for each seed; return how many faults were planned, and how many fired."""
    numbers = census(stories)
    plan = [random_lives(seed, *numbers) for seed in seeds]
    return sum(map(len, plan)), lived_through(stories, plan)


def test_faults_while_a_run_is_resumed_lose_nothing(stories, fired):
    planned, number = disturbed_again_and_again(stories, range(14))
    fired(TAKEN_UP, planned, number)
    assert number > 20


@pytest.mark.full
def test_many_faults_while_a_run_is_resumed_lose_nothing(stories, fired):
    planned, number = disturbed_again_and_again(stories, range(1_000, 1_120))
    fired(TAKEN_UP, planned, number)
    assert number > 200


# -- in memory that processes share -----------------------------------------------------------------------------------


@contextmanager
def looked_on(story):
    """Let another reader keep the file open, so that shared memory survives when its writer is killed."""
    with SqliteStore(story.root / "ledger.db") as story.onlooker:
        story.onlooker.runs()
        yield


def killed_in_memory(stories, chosen):
    """Run stories with a kill at a write to shared memory; return how many fired."""
    number = 0
    for at, story in zip(chosen, stories, strict=False):
        with looked_on(story):
            story.live(Fault("before", at, MEMORY))
            number += story.finish()
    return number


def stores_seen(stories):
    story = next(stories)
    with looked_on(story):
        return story.live(Fault(kinds=MEMORY)).last("seen")


def test_kill_at_some_writes_to_shared_memory_loses_nothing(stories, fired):
    seen = stores_seen(stories)
    chosen = range(5, seen - 2 * GIVE, seen // 7)
    number = killed_in_memory(stories, chosen)
    fired(IN_MEMORY, len(chosen), number)
    assert number >= 6


@pytest.mark.full
def test_kill_at_every_write_to_shared_memory_loses_nothing(stories, fired):
    seen = stores_seen(stories)
    number = killed_in_memory(stories, range(1, seen + 1))
    fired(IN_MEMORY, seen, number)
    assert number > seen - 2 * GIVE > 10


# -- a checkpoint in the middle of a run ------------------------------------------------------------------------------


def large(stories):
    """Make the answer of one effect so large that the log is written back into the database during the run."""
    for story in stories:
        story.order["size"] = 4_500_000
        yield story


@pytest.mark.full
def test_kill_during_a_checkpoint_loses_nothing(stories, fired):
    stories = large(stories)
    seen, _ = census(stories)
    assert seen > 3_000  # more than a thousand pages are written twice
    plan = [
        *at_calls(Fault("before"), range(20, seen - 30, seen // 20)),
        *at_calls(Fault("torn", kinds=("write",)), range(25, seen - 30, seen // 20)),
    ]
    number = lived_through(stories, plan)
    fired(AT_CHECKPOINT, len(plan), number)
    assert number == len(plan) >= 40


# -- a disk that is really full ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Return a disk of half a megabyte. Only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: a disk that is really full, because mount is refused: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def filled_up(stories, disk, spaces):
    """Run stories on a disk with only these bytes left, which is cleared after their first life; return how many found it full."""
    found_full = 0
    for space, story in zip(spaces, stories, strict=False):
        story.root, ballast = disk / "runs", disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, DISK_BYTES - space)
        ended = story.live()
        found_full += ended.last("fault") is not None
        ballast.unlink()
        if ended.last("rest") != "finished":
            story.finish()
        shutil.rmtree(story.root, ignore_errors=True)
    return found_full


def test_run_continues_when_a_full_disk_has_space_again(stories, small_disk, fired):
    spaces = range(20_480, 180_000, 24_576)
    number = filled_up(stories, small_disk, spaces)
    fired(REALLY_FULL, len(spaces), number)
    assert number >= 5


@pytest.mark.full
def test_run_continues_wherever_a_full_disk_stopped_it(stories, small_disk, fired):
    spaces = range(4_096, 270_000, 4_096)
    number = filled_up(stories, small_disk, spaces)
    fired(REALLY_FULL, len(spaces), number)
    assert number >= 38
