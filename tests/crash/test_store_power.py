"""A power cut after every call by which the durable store changes the disk: what was acknowledged is there, and the run goes on.

The calls are those of real processes, logged by the library of faults.c; what a cut may leave of them is said in tests/cut_disks.py.
"""

import random
import shutil
from pathlib import Path

import pytest
from artifact_runs import memory_folder
from cut_disks import Disk
from fault_shim import Call, Fault, logged
from store_lives import Nursery, Story

from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.ledger import dump_line


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as started:
        yield started


def nothing_kept(_):
    """Of what was not synced nothing is there."""
    return 0


def all_kept(_):
    """Everything is there, as after kill -9."""
    return 1


def some_kept(seed):
    """Some is there, some is not, some writes are torn."""
    chance = random.Random(seed)
    return lambda _: chance.choice([0, 0.5, 1, 1])


class Cuts:
    """Plays the log of a story, cuts the power, and looks at what is left."""

    def __init__(self, story, place):
        self.story, self.place = story, place
        self.disk = Disk(str(story.folder))
        self.said = {}  # by life, what it was told is durable
        self.cuts = self.resumed = 0

    def play(self, every, keepings, resume_every):
        changes = 0
        for call in logged(Path(self.story.order["log"])):
            if call.kind == "M":
                life, line = call.data.decode().split(" ", 1)
                self.said.setdefault(life, []).append(line)
            elif self.disk.follow(call) and ("ledger.db" in call.path or call.kind in "DF"):
                changes += 1
                if changes % every == 0:
                    for number, keeps in enumerate(keepings):
                        self._cut(keeps, resume=(self.cuts + number) % resume_every == 0)
        return self

    def _cut(self, keeps, *, resume):
        self.cuts += 1
        image = self.place / "image"
        image.mkdir()
        self.disk.leave(image, keeps)
        for shared in image.rglob("*-shm"):
            shared.write_bytes(random.Random(self.cuts).randbytes(shared.stat().st_size))
        performed = self.disk.seen.get(str(self.story.performed))
        if performed is not None:  # what was done in the world is done
            (image / "performed.txt").write_bytes(performed.left(all_kept))
        self._look(image)
        if resume:
            self._resume(image)
        shutil.rmtree(image)

    def _look(self, image):
        found = []
        if (image / "runs").exists():
            with SqliteStore(image / "runs" / "ledger.db") as store:
                for run in store.runs():
                    found += [dump_line(entry) for entry in store.read(run).entries]
        for lines in self.said.values():
            assert found[: len(lines)] == lines, f"cut {self.cuts}: {len(lines)} acknowledged, {len(found)} there"

    def _resume(self, image):
        self.resumed += 1
        after = Story(self.story.nursery, image)
        after.order["size"], after.lives = self.story.order["size"], self.story.lives
        after.entries = after.read()
        after.finish()


def cut(nursery, lives, every, keepings, *, resume_every=25, **order):
    """Have a story, cut the power at each `every`-th change in each of the ways; give the cuts."""
    with memory_folder() as folder, memory_folder() as place:
        story = Story(nursery, folder, log=str(place / "log"), logged=str(folder), **order)
        for life in lives:
            story.live(**life)
        story.finish()
        played = Cuts(story, place).play(every, keepings, resume_every)
    print(f"{played.cuts} power cuts, {played.resumed} runs taken up after one")
    return played


def test_a_power_cut_at_some_changes_loses_nothing(nursery):
    played = cut(nursery, [], 4, [nothing_kept, all_kept, some_kept(1)])
    assert played.cuts > 90
    assert played.resumed >= 4


def test_a_power_cut_after_a_kill_loses_nothing(nursery):
    """What a killed process wrote and never synced is there for the next one, which must not build on it before it is durable."""
    killed = [{"fault": Fault("before", 90)}]
    assert cut(nursery, killed, 7, [nothing_kept, some_kept(2)]).cuts > 50


@pytest.mark.full
def test_a_power_cut_at_every_change_loses_nothing(nursery):
    keepings = [nothing_kept, all_kept, *(some_kept(seed) for seed in range(8))]
    played = cut(nursery, [], 1, keepings, resume_every=10)
    assert played.cuts > 1_400
    assert played.resumed > 100


@pytest.mark.full
@pytest.mark.parametrize("at", range(20, 160, 12))
def test_a_power_cut_at_every_change_after_a_kill_loses_nothing(nursery, at):
    keepings = [nothing_kept, some_kept(at), some_kept(at + 1)]
    assert cut(nursery, [{"fault": Fault("before", at)}], 2, keepings).cuts > 200


@pytest.mark.full
def test_a_power_cut_around_a_checkpoint_loses_nothing(nursery):
    played = cut(nursery, [], 29, [nothing_kept, some_kept(3)], resume_every=20, size=4_500_000)
    assert played.cuts > 200


def test_the_disk_that_forgets_is_one():
    """What the others believe in."""
    disk = Disk("/d")
    for kind, path, offset, data in [
        ("C", "/d/a", 0, b""), ("W", "/d/a", 0, b"old"), ("F", "/d/a", 0, b""), ("F", "/d", 0, b""),
        ("W", "/d/a", 1, b"EW"), ("C", "/d/b", 0, b""), ("W", "/d/b", 2, b"x"), ("F", "/d/b", 0, b""),
    ]:  # fmt: skip
        assert disk.follow(Call(kind, path, offset, data))
    assert not disk.follow(Call("C", "/elsewhere", 0, b""))
    expected = {nothing_kept: {"a": b"old"}, all_kept: {"a": b"oEW", "b": b"\0\0x"}, lambda _: 0.5: {"a": b"oEd"}}
    for keeps, left in expected.items():
        with memory_folder() as folder:
            disk.leave(folder, keeps)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == left
