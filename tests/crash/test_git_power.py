"""A power cut after every change that the git store makes to the disk: what was acknowledged is there, and it goes on.

The disk is the one of power_cuts.py, which forgets as much as POSIX lets it.
"""

import os
import random
import shutil
import stat

import pytest
from artifact_runs import RUN, attempt, memory_folder, require_clean, said_of
from power_cuts import played

from dsa.edge.git import GitArtifacts


def nothing_kept():
    """Of what was not synced nothing is there."""
    return False


def all_kept():
    """Everything is there, as after kill -9."""
    return True


def examine(folder, told):
    """Open what a cut has left, look, and go on."""
    repository = folder / "a.git"
    if repository.exists():
        require_clean(repository)
    store = GitArtifacts(repository, RUN, lock_patience_s=0)
    assert {a.artifact_id for a in store.attempts()} >= set(told["stored"])
    assert {a.artifact_id for a in store.attempts() if a.verdicts} >= set(told["judged"])
    for artifact_id in told["stored"]:
        found = store.get_artifact(artifact_id)
        assert found.content == attempt(found.version).content
    last = None
    for number in range(1, 4):
        last = store.store(attempt(number, last))
        store.record_verdict(said_of(last))
    assert len(GitArtifacts(repository, RUN).get_provenance(last.artifact_id)) == 3
    require_clean(repository)


def played_through(every, keepings, attempts=2):
    """Store a run, cut the power after each `every`-th change in each of the ways; give how many cuts were looked at."""
    told, cuts = {"stored": [], "judged": []}, []
    with memory_folder() as folder:
        disk_folder = folder / "disk"
        disk_folder.mkdir()

        def cut(disk):
            if disk.changes % every == 0:
                for keeps in keepings:
                    image = folder / f"cut{len(cuts)}"
                    disk.write_image(image, keeps)
                    cuts.append((image, {name: list(ids) for name, ids in told.items()}))

        with played(disk_folder, cut):
            store, made = GitArtifacts(disk_folder / "a.git", RUN), None
            for number in range(1, attempts + 1):
                made = store.store(attempt(number, made))
                told["stored"].append(made.artifact_id)
                store.record_verdict(said_of(made))
                told["judged"].append(made.artifact_id)
        for image, then in cuts:
            examine(image, then)
            shutil.rmtree(image)
    return len(cuts)


def test_a_power_cut_after_some_changes_loses_nothing():
    chance = random.Random(3)
    assert played_through(6, [nothing_kept, lambda: chance.random() < 0.5]) > 30


@pytest.mark.full
def test_a_power_cut_after_every_change_loses_nothing():
    chance = random.Random(4)
    some = [lambda share=share: chance.random() < share for share in (0.1, 0.5, 0.5, 0.9)]
    assert played_through(1, [nothing_kept, all_kept, *some]) > 600


def test_the_disk_that_forgets_is_one():
    """What the others believe in: unsynced names and data are lost, synced ones are not."""
    with memory_folder() as folder:
        (folder / "disk").mkdir()
        with played(folder / "disk", lambda _: None) as disk:
            (folder / "disk/d").mkdir()
            for name in ("synced", "not named", "torn"):
                descriptor = os.open(folder / "disk/d" / name, os.O_CREAT | os.O_WRONLY, 0o666)
                os.write(descriptor, b"whole")
                if name != "torn":
                    os.fsync(descriptor)
                os.close(descriptor)
                if name == "synced":
                    for path in ("disk/d", "disk"):
                        descriptor = os.open(folder / path, os.O_RDONLY)
                        os.fsync(descriptor)
                        os.close(descriptor)
            (folder / "disk/d/synced").rename(folder / "disk/d/renamed")
        disk.write_image(folder / "least", nothing_kept)
        disk.write_image(folder / "most", all_kept)
        assert [(p.name, p.read_bytes()) for p in (folder / "least/d").iterdir()] == [("synced", b"whole")]
        assert sorted(p.name for p in (folder / "most/d").iterdir()) == ["not named", "renamed", "torn"]
        assert stat.S_ISDIR((folder / "least/d").stat().st_mode)


class Ended(BaseException):
    """The process ends here."""


def test_what_is_found_stored_is_put_on_disk_before_it_is_acknowledged():
    """A process has moved the ref and ended before it synced the folder; the next one finds the record there."""
    with memory_folder() as folder:
        (folder / "disk").mkdir()
        repository = folder / "disk/a.git"

        def end_at_rename(disk):
            if disk.last == ("rename", RUN):
                raise Ended

        with played(folder / "disk", end_at_rename) as disk, pytest.raises(Ended):
            GitArtifacts(repository, RUN).store(attempt(1))
        with disk.recorded():
            disk.cut = lambda _: None
            made = GitArtifacts(repository, RUN).store(attempt(1))
        disk.write_image(folder / "image", nothing_kept)
        assert GitArtifacts(folder / "image/a.git", RUN).get_artifact(made.artifact_id) == made
