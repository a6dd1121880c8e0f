"""Faults at every call by which the durable store changes the disk: kill -9, torn writes, failing syncs, a full disk.

Nothing that was acknowledged is lost, no recorded result is executed again, what was in doubt is reported, every run finishes; what
that means is in tests/store_lives.py. What a power cut leaves is test_store_power.py's: here the system keeps what was written.
"""

import os
import random
import shutil
import subprocess

import attrs
import pytest
from artifact_runs import memory_folder
from fault_shim import CALLS, MEMORY, Fault
from store_lives import Nursery, Story

from dsa.edge.stores.sqlite import SqliteStore

FULL = {"kinds": ("write", "create"), "error": "ENOSPC"}
#: What goes wrong, and how many faults have to fire when it goes wrong at every call.
KINDS = {
    "killed before a call": (Fault("before"), 100),
    "killed after a call": (Fault("after"), 100),
    "killed in the middle of a write": (Fault("torn", kinds=("write",)), 70),
    "a sync fails once": (Fault("once", kinds=("sync",)), 10),
    "every sync fails from then on": (Fault("ever", kinds=("sync",)), 10),
    "a call fails once": (Fault("once"), 100),
    "every call fails from then on": (Fault("ever"), 100),
    "the disk is full once": (Fault("once", **FULL), 70),
    "the disk is full from then on": (Fault("ever", **FULL), 70),
}
#: By how many calls two lives may differ: what is written tells the time, and may need a page more or less.
GIVE = 6
DISK_BYTES = 2**19
CASES = pytest.mark.parametrize(("fault", "at_least"), KINDS.values(), ids=KINDS)


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as started:
        yield started


@pytest.fixture
def stories(nursery):
    """Give stories, each in a folder that is gone when the next one begins."""

    def begin():
        while True:
            with memory_folder() as folder:
                yield Story(nursery, folder)

    return begin()


def census(stories, kinds=CALLS):
    """Count the calls and the boundaries of a life that nothing befalls."""
    said = next(stories).live(Fault(kinds=kinds))
    assert said["rest"] == "finished"
    return said["seen"], said["boundaries"]


def lived_through(stories, plan):
    """Have a story of each list of lives, and what it takes to finish; give how many faults fired."""
    fired = lives = 0
    for planned, story in zip(plan, stories, strict=False):
        for life in planned:
            said = story.live(**life)
            assert said.get("fault", "StoreError") in {"StoreError", "DocumentError"}, said
        fired += story.finish()
        lives += story.lives
    print(f"{fired} faults fired in {len(plan)} stories of {lives} lives")
    return fired


def at_calls(fault, chosen):
    return [[{"fault": attrs.evolve(fault, at=at)}] for at in chosen]


@CASES
def test_a_fault_at_some_calls_loses_nothing(stories, fault, at_least):
    seen, _ = census(stories, fault.kinds)
    plan = at_calls(fault, range(random.Random(seen).randint(1, 6), seen - GIVE, max(2, at_least // 6)))
    assert lived_through(stories, plan) == len(plan) > 5


@pytest.mark.full
@CASES
def test_a_fault_at_every_call_loses_nothing(stories, fault, at_least):
    seen, _ = census(stories, fault.kinds)
    assert seen >= at_least
    assert lived_through(stories, at_calls(fault, range(1, seen + 1))) > seen - GIVE


def test_so_many_faults_are_meant_by_every_call():
    assert sum(at_least for _, at_least in KINDS.values()) > 500


# -- at the boundaries of effects -------------------------------------------------------------------------------------


def test_a_kill_at_some_boundaries_of_effects_loses_nothing(stories):
    _, boundaries = census(stories)
    plan = [[{"boundary": number}] for number in range(1, boundaries + 1, 4)]
    assert lived_through(stories, plan) == len(plan) > 10


@pytest.mark.full
def test_a_kill_at_every_boundary_of_every_effect_loses_nothing(stories):
    """Before it happens, after it happened, and after each entry that is acknowledged: the intent, the result, the next event."""
    _, boundaries = census(stories)
    assert lived_through(stories, [[{"boundary": number}] for number in range(1, boundaries + 1)]) == boundaries > 45


def test_a_kill_while_an_effect_in_doubt_is_performed_again_is_reported_each_time(stories):
    """The note that it is in doubt must be durable before it is performed, or nobody learns of the second time."""
    plan = [[{"boundary": first}, {"boundary": second}] for first in (8, 11, 23) for second in (2, 3)]
    assert lived_through(stories, plan) == 2 * len(plan)


# -- while a run is taken up again ------------------------------------------------------------------------------------


def random_lives(seed, seen, boundaries):
    """Give two or three lives with a fault each: after the first they take up a run."""
    chance = random.Random(seed)

    def life(calls):
        if chance.random() < 0.25:
            return {"boundary": chance.randint(1, min(calls, boundaries))}
        fault, _ = chance.choice(list(KINDS.values()))
        return {"fault": attrs.evolve(fault, at=chance.randint(1, calls))}

    return [life(seen), *(life(40) for _ in range(chance.randint(1, 2)))]


def test_faults_while_a_run_is_taken_up_again_lose_nothing(stories):
    numbers = census(stories)
    assert lived_through(stories, [random_lives(seed, *numbers) for seed in range(14)]) > 20


@pytest.mark.full
def test_many_faults_while_a_run_is_taken_up_again_lose_nothing(stories):
    numbers = census(stories)
    assert lived_through(stories, [random_lives(seed, *numbers) for seed in range(1_000, 1_300)]) > 500


# -- in memory that processes share -----------------------------------------------------------------------------------


def looked_on(stories, chosen):
    """Have stories with a kill at a store to shared memory, which lives on because somebody else has the file open, and reads it."""
    fired = 0
    for at, story in zip(chosen, stories, strict=False):
        with SqliteStore(story.root / "ledger.db") as story.onlooker:
            story.onlooker.runs()
            story.live(Fault("before", at, MEMORY))
            fired += story.finish()
    print(f"{fired} kills at stores to shared memory")
    return fired


def stores_seen(stories):
    story = next(stories)
    with SqliteStore(story.root / "ledger.db") as story.onlooker:
        story.onlooker.runs()
        return story.live(Fault(kinds=MEMORY))["seen"]


def test_a_kill_at_some_stores_to_shared_memory_loses_nothing(stories):
    seen = stores_seen(stories)
    assert looked_on(stories, range(5, seen - 2 * GIVE, seen // 7)) >= 6


@pytest.mark.full
def test_a_kill_at_many_stores_to_shared_memory_loses_nothing(stories):
    seen = stores_seen(stories)
    assert looked_on(stories, range(1, seen + 1)) > seen - 2 * GIVE > 10


# -- a checkpoint in the middle of a run ------------------------------------------------------------------------------


def large(stories):
    """Have the answer of one effect so large that the log is written back into the database while the run goes on."""
    for story in stories:
        story.order["size"] = 4_500_000
        yield story


@pytest.mark.full
def test_a_kill_during_a_checkpoint_loses_nothing(stories):
    stories = large(stories)
    seen, _ = census(stories)
    assert seen > 3_000  # more than a thousand pages are written twice
    plan = [
        *at_calls(Fault("before"), range(20, seen - 30, seen // 60)),
        *at_calls(Fault("torn", kinds=("write",)), range(25, seen - 30, seen // 60)),
    ]
    assert lived_through(stories, plan) == len(plan) > 100


# -- a disk that is really full ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Give a disk of half a megabyte. Only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: a disk that is really full, because mount is refused: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def filled_up(stories, disk, spaces):
    """Have stories on a disk with so many bytes left, which is cleared after their first life; give how many found it full."""
    found_full = 0
    for space, story in zip(spaces, stories, strict=False):
        story.root, ballast = disk / "runs", disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, DISK_BYTES - space)
        said = story.live()
        found_full += "fault" in said
        ballast.unlink()
        if said.get("rest") != "finished":
            story.finish()
        shutil.rmtree(story.root, ignore_errors=True)
    return found_full


def test_a_run_goes_on_when_a_full_disk_has_space_again(stories, small_disk):
    assert filled_up(stories, small_disk, range(20_480, 250_000, 40_960)) >= 5


@pytest.mark.full
def test_a_run_goes_on_wherever_a_full_disk_stopped_it(stories, small_disk):
    assert filled_up(stories, small_disk, range(4_096, 270_000, 4_096)) >= 55
