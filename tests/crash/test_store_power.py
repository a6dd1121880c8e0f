"""A power cut after every call by which the durable store changes the disk: what was acknowledged is there, and the run continues.

The calls are those of real processes, logged by the library of faults.c; what a cut may leave of them is said in power_cuts.py.
"""

import random
import shutil
from pathlib import Path

import parcels
import pytest
from artifact_runs import memory_folder
from fault_shim import Call, Fault, logged
from nursery import Nursery
from power_cuts import Disk, all_kept, kept_up_to, nothing_kept, some_kept
from store_lives import Story

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EffectEntry, dump_line

#: The number of syncs in a story without faults.
SYNCS = 20


@pytest.fixture(scope="module")
def nursery():
    with Nursery("store_victim.py") as started:
        yield started


class Cuts:
    """Plays the log of a story, cuts the power after each `every`-th change of the store and after all that it reports as durable, and checks what is left."""

    def __init__(self, story, place, every, keepings, resume_every):
        self.story, self.place, self.disk = story, place, Disk(story.folder)
        self.every, self.keepings, self.resume_every = every, keepings, resume_every
        self.said = {}  # by life, the entries that it reported as durable
        self.ages = []  # of the changes of the store
        self.cuts = self.resumed = 0

    def play(self):
        is_news = False
        for call in logged(Path(self.story.order["log"])):
            if call.kind == "M":
                life, line = call.data.decode().split(" ", 1)
                self.said.setdefault(life, []).append(line)
            elif is_news:
                self._cut(nothing_kept)  # before anything follows the reported entry
            is_news = call.kind == "M"
            if self.disk.follow(call) and ("ledger.db" in call.path or call.path == str(self.story.root)):
                self.ages.append(self.disk.age)
                if len(self.ages) % self.every == 0:
                    for keeps in self.keepings or self._suffixes():
                        self._cut(keeps)
        return self

    def _suffixes(self):
        """Return what forgets the youngest changes of the store, for each number of them that a cut may undo."""
        young = set(self.disk.still_young())
        return [all_kept, *(kept_up_to(age) for age in self.ages if age in young)]

    def _cut(self, keeps):
        self.cuts += 1
        image = self.place / "image"
        image.mkdir()
        self.disk.leave(image, keeps)
        for shared in image.rglob("*-shm"):
            shared.write_bytes(random.Random(self.cuts).randbytes(shared.stat().st_size))
        performed = self.disk.find(self.story.performed)
        if performed is not None:  # effects in the world are not undone
            (image / "performed.txt").write_bytes(performed.left(all_kept))
        self._look(image)
        if self.cuts % self.resume_every == 0:
            self._resume(image)
        shutil.rmtree(image)

    def _look(self, image):
        found = []
        if (image / "runs").exists():
            with SqliteStore(image / "runs" / "ledger.db") as store:
                for run in store.runs():
                    found += store.read(run).entries
        lines = [dump_line(entry) for entry in found]
        for said in self.said.values():
            assert lines[: len(said)] == said, f"cut {self.cuts}: {len(said)} acknowledged, {len(lines)} there"
        intents = {entry.key for entry in found if isinstance(entry, EffectEntry)}
        assert {key for _, key in parcels.performed(image / "performed.txt")} <= intents, f"cut {self.cuts}"

    def _resume(self, image):
        self.resumed += 1
        after = Story(self.story.nursery, image)
        after.order["size"], after.lives = self.story.order["size"], self.story.lives
        after.entries = after.read()
        after.finish()


def cut(nursery, lives, every, keepings, *, resume_every=25, **order):
    """Run a story, cut the power at each `every`-th change in each of the ways (None: every suffix is lost); return the cuts."""
    with memory_folder() as folder, memory_folder() as place:
        story = Story(nursery, folder, log=str(place / "log"), logged=str(folder), **order)
        for fault in lives:
            story.live(fault)
        assert story.finish() == len(lives)
        return Cuts(story, place, every, keepings, resume_every).play()


def tell(figures, what, played):
    figures("power cuts", f"store: {what}", images=played.cuts, resumed=played.resumed)


def test_power_cut_at_some_changes_loses_nothing(nursery, figures):
    played = cut(nursery, [], 6, [nothing_kept, all_kept, some_kept(1)])
    assert played.cuts > 50
    assert played.resumed >= 2
    tell(figures, "at some changes", played)


def test_power_cut_after_a_kill_loses_nothing(nursery, figures):
    """The next process sees data that a killed one wrote and never synced; it must not build on the data before it is durable."""
    played = cut(nursery, [Fault("before", 90)], 9, [nothing_kept, some_kept(2)])
    assert played.cuts > 30
    tell(figures, "after a kill", played)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_power_cut_after_a_kill_at_the_beginning_loses_nothing(nursery, at):
    """The killed process has made the folder, or the file, and has not synced its name."""
    assert cut(nursery, [Fault("after", at, ("create",), name="/runs")], 9, [nothing_kept]).cuts > 15


@pytest.mark.parametrize("at", [1, 12])
def test_power_cut_after_a_failed_sync_loses_nothing(nursery, figures, at):
    """The data it should have put on the disk is lost, though every program still reads it."""
    played = cut(nursery, [Fault("once", at, ("sync",))], 6, [nothing_kept, some_kept(3)])
    assert played.cuts > 40
    tell(figures, "after a sync that failed", played)


@pytest.mark.full
def test_power_cut_that_drops_any_suffix_of_unsynced_changes_loses_nothing(nursery, figures):
    played = cut(nursery, [], 1, None, resume_every=10)
    assert played.cuts > 400
    assert played.resumed > 40
    tell(figures, "at every change, any suffix of what was not synced lost", played)


@pytest.mark.full
def test_power_cut_at_every_change_loses_nothing(nursery, figures):
    keepings = [nothing_kept, *(some_kept(seed) for seed in range(8))]
    played = cut(nursery, [], 1, keepings, resume_every=10)
    assert played.cuts > 1_000
    assert played.resumed > 100
    tell(figures, "at every change, with parts lost", played)


@pytest.mark.full
@pytest.mark.parametrize("at", [*range(1, 20, 2), *range(20, 124, 8)])
def test_power_cut_at_every_change_after_a_kill_loses_nothing(nursery, figures, at):
    keepings = [nothing_kept, some_kept(at), some_kept(at + 1)]
    played = cut(nursery, [Fault("before", at, name="/runs")], 2, keepings)
    assert played.cuts > 150
    tell(figures, "after a kill", played)


@pytest.mark.full
def test_story_has_at_most_20_syncs(nursery):
    with memory_folder() as folder:
        story = Story(nursery, folder)
        story.live(Fault("once", SYNCS + 1, ("sync",)))
        assert story.finish() == 0


@pytest.mark.full
@pytest.mark.parametrize("at", range(1, SYNCS + 1))
def test_power_cut_at_every_change_after_a_failed_sync_loses_nothing(nursery, figures, at):
    keepings = [nothing_kept, some_kept(at)]
    played = cut(nursery, [Fault("once", at, ("sync",))], 2, keepings)
    assert played.cuts > 100
    tell(figures, "after a sync that failed", played)


@pytest.mark.full
def test_power_cut_around_a_checkpoint_loses_nothing(nursery, figures):
    played = cut(nursery, [], 29, [nothing_kept, some_kept(3)], resume_every=20, size=4_500_000)
    assert played.cuts > 200
    tell(figures, "around a checkpoint", played)


def test_simulated_disk_forgets_unsynced_changes():
    """The other tests rely on this disk."""
    disk = Disk("/d")
    for kind, path, offset, data in [
        ("C", "/d/a", 0o600, b""), ("W", "/d/a", 0, b"old"), ("F", "/d/a", 0, b""), ("F", "/d", 0, b""),
        ("W", "/d/a", 1, b"EW"), ("C", "/d/b", 0o600, b""), ("W", "/d/b", 2, b"x"), ("F", "/d/b", 0, b""),
        ("R", "/d/b", 0, b"/d/c"), ("D", "/d/f", 0, b""), ("C", "/d/f/x", 0o600, b""), ("R", "/d/f", 0, b"/d/g"),
    ]:  # fmt: skip
        assert disk.follow(Call(kind, path, offset, data))
    assert not disk.follow(Call("C", "/elsewhere", 0, b""))
    assert disk.still_young() == [5, 6, 9, 10, 11, 12]
    expected = {
        nothing_kept: {"a": b"old"},
        all_kept: {"a": b"oEW", "c": b"\0\0x", "g/x": b""},
        lambda _: 0.5: {"a": b"oEd"},
        kept_up_to(9): {"a": b"oEW", "b": b"\0\0x"},
    }
    for keeps, left in expected.items():
        assert files_left(disk, keeps) == left
    assert disk.follow(Call("X", "/d/a", 0, b""))
    assert disk.follow(Call("F", "/d/a", 0, b""))
    assert files_left(disk, all_kept)["a"] == b"old"


def files_left(disk, keeps):
    with memory_folder() as folder:
        disk.leave(folder, keeps)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
