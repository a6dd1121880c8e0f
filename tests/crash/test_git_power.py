"""A power cut after every change that the git store makes to the disk: what was acknowledged is there, and the next process continues.

The calls are those of real processes, logged by the library of faults.c; what a cut may leave of them is said in power_cuts.py.
"""

import shutil

import pytest
from artifact_runs import RUN, attempt, memory_folder, require_clean, said_of
from fault_shim import Fault, logged
from nursery import Nursery
from power_cuts import Disk, all_kept, kept_up_to, nothing_kept, some_kept

from dsa.edge.git_artifacts import GitArtifacts

NAME = "there/a.git"


@pytest.fixture(scope="module")
def nursery():
    with Nursery("git_victim.py") as started:
        yield started


def examine(folder, told):
    """Open what a cut has left, check it, and continue."""
    repository = folder / NAME
    if repository.exists():
        require_clean(repository)
    store = GitArtifacts(repository, RUN, lock_patience_s=0)
    found = store.attempts()
    assert {each.artifact_id for each in found} >= set(told["stored"])
    assert {each.artifact_id for each in found if each.verdicts} >= set(told["judged"])
    for artifact_id in told["stored"]:
        artifact = store.get_artifact(artifact_id)
        assert artifact.content == attempt(artifact.version).content
    last = None
    for number in range(1, 4):
        last = store.store(attempt(number, last))
        store.record_verdict(said_of(last))
    assert len(GitArtifacts(repository, RUN).get_provenance(last.artifact_id)) == 3
    require_clean(repository)


def cut(nursery, lives, every, keepings):
    """Run the lives, then one without a fault; cut the power after each `every`-th change in each of the ways, and after what is acknowledged.

    Gives how many cuts were looked at. `keepings` None: every suffix of what was not synced is lost.
    """
    with memory_folder() as folder, memory_folder() as place:
        order = {"repository": str(folder / NAME), "attempts": 2, "log": str(place / "log"), "logged": str(folder)}
        assert all(nursery.live(fault=fault, **order).fired for fault in lives)
        assert nursery.live(**order).last("rest") == "finished"
        disk, told, cuts = Disk(folder), {"stored": [], "judged": []}, 0
        for call in logged(place / "log"):
            if call.kind == "M":
                what, artifact_id = call.data.decode().split(" ")
                told[what].append(artifact_id)
                ways = [nothing_kept]  # before anything follows the reported record
            elif disk.follow(call) and disk.age % every == 0:
                ways = keepings or [all_kept, *map(kept_up_to, disk.still_young())]
            else:
                ways = []
            for keeps in ways:
                cuts += 1
                image = place / "image"
                image.mkdir()
                disk.leave(image, keeps)
                examine(image, told)
                shutil.rmtree(image)
    return cuts


def test_power_cut_after_some_changes_loses_nothing(nursery, figures):
    cuts = cut(nursery, [], 6, [nothing_kept, some_kept(1)])
    assert cuts > 30
    figures("power cuts", "git: at some changes", images=cuts)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("after", 1, ("create",), name="/there"), id="made a folder"),
        pytest.param(Fault("before", 1, ("sync",), name="/objects"), id="made the repository"),
        pytest.param(Fault("after", 1, ("rename",), name=f"{RUN}.lock"), id="moved the branch"),
        pytest.param(Fault("once", 20, ("sync",), name=NAME), id="could not sync"),
    ],
)
def test_power_cut_after_a_fault_loses_nothing(nursery, figures, fault):
    """The next process sees what this one has left, and must not build on it before it is on the disk."""
    cuts = cut(nursery, [fault], 9, [nothing_kept])
    assert cuts > 10
    figures("power cuts", "git: after a fault", images=cuts)


@pytest.mark.full
def test_power_cut_after_every_change_loses_nothing(nursery, figures):
    cuts = cut(nursery, [], 1, [nothing_kept, *(some_kept(seed) for seed in range(4))])
    assert cuts > 500
    figures("power cuts", "git: at every change, with parts lost", images=cuts)


@pytest.mark.full
def test_power_cut_that_drops_any_suffix_of_unsynced_changes_loses_nothing(nursery, figures):
    cuts = cut(nursery, [], 1, None)
    assert cuts > 400
    figures("power cuts", "git: every suffix of what was not synced", images=cuts)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["before", "once"])
@pytest.mark.parametrize("at", range(1, 46, 4))
def test_power_cut_after_every_change_following_a_fault_loses_nothing(nursery, figures, mode, at):
    cuts = cut(nursery, [Fault(mode, at, ("sync",), name="/there")], 6, [nothing_kept, some_kept(at)])
    assert cuts > 20
    figures("power cuts", "git: after a fault", images=cuts)
