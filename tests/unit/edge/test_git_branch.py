import multiprocessing
import threading

import pytest
from artifact_runs import git, open_files
from os_calls import before, handled

from dsa.edge.git_artifacts import Branch, make_ready
from dsa.edge.git_objects import DurableObjects
from dsa.runtime.run_store import StoreError

REF = "refs/heads/runs/r"


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "a.git"
    make_ready(path, "r")
    return path


@pytest.fixture
def commits(repository):
    objects = DurableObjects(repository)
    tree = objects.write("tree", b"")
    who = b"n <e> 1 +0000"
    return [
        objects.write("commit", b"tree %s\nauthor %s\ncommitter %s\n\n%d\n" % (tree.encode(), who, who, number))
        for number in range(3)
    ]


def test_branch_moves_only_from_the_expected_commit(repository, commits):
    branch = Branch(repository, "r", 1)
    with branch.hold():
        assert branch.read() is None
        assert not branch.advance(commits[0], commits[1])
        assert branch.advance(None, commits[0])
        assert not branch.advance(None, commits[1])
        assert branch.read() == commits[0] == git(repository, "rev-parse", REF).strip()
        git(repository, "update-ref", REF, commits[1])
        assert not branch.advance(commits[0], commits[2])
        assert branch.read() == commits[1]
    assert sorted(path.name for path in (repository / "refs/heads/runs").iterdir()) == ["r"]


def test_packed_ref_is_found(repository, commits):
    branch = Branch(repository, "r", 1)
    for run in ("r", "rr", "r2"):
        with Branch(repository, run, 1).hold():
            Branch(repository, run, 1).advance(None, commits[0])
    git(repository, "pack-refs", "--all", "--prune")
    assert not (repository / "refs/heads/runs").exists()
    assert branch.read() == commits[0]
    assert Branch(repository, "2", 1).read() is None
    with branch.hold():
        assert branch.advance(commits[0], commits[1])
    assert git(repository, "rev-parse", REF).strip() == commits[1]


def test_branch_moves_while_git_packs_refs(repository, commits):
    branch = Branch(repository, "r", 1)
    with branch.hold():
        branch.advance(None, commits[0])
        with before("open", "r.lock", lambda: git(repository, "pack-refs", "--all", "--prune")):
            assert branch.advance(commits[0], commits[1])
        assert branch.read() == commits[1]
    assert git(repository, "rev-parse", REF).strip() == commits[1]


def test_ref_packed_right_after_it_moved_is_still_found(repository, commits):
    """Git also removes the folder, which is then empty."""
    branch = Branch(repository, "r", 1)
    with branch.hold():
        branch.advance(None, commits[0])
        with before("close", "", lambda: git(repository, "pack-refs", "--all", "--prune")):
            assert branch.advance(commits[0], commits[1])
        assert not (repository / "refs/heads/runs").exists()
        assert branch.read() == commits[1]
        assert branch.advance(commits[1], commits[2])
    assert git(repository, "rev-parse", REF).strip() == commits[2]


def test_lock_taken_by_git_right_after_ours_stays(repository, commits):
    branch, lock = Branch(repository, "r", 1), repository / f"{REF}.lock"

    def handle(name, arguments, perform):
        result = perform()
        if name == "rename":
            lock.touch()
        return result

    with branch.hold(), handled(handle):
        assert branch.advance(None, commits[0])
    assert lock.exists()


def test_git_cannot_move_a_branch_that_is_being_moved(repository, commits):
    branch, refused = Branch(repository, "r", 1), []

    def try_it():
        with pytest.raises(AssertionError, match="File exists"):
            git(repository, "update-ref", REF, commits[2])
        refused.append(True)

    with branch.hold(), before("rename", "runs/r", try_it):
        assert branch.advance(None, commits[0])
    assert refused
    assert git(repository, "rev-parse", REF).strip() == commits[0]


@pytest.mark.parametrize("content", ["", "0" * 40 + "\n"])
def test_lock_of_git_is_waited_for_then_reported_and_never_removed(repository, commits, content):
    lock = repository / f"{REF}.lock"
    lock.parent.mkdir()
    lock.write_text(content)
    branch = Branch(repository, "r", 0)
    with branch.hold(), pytest.raises(StoreError, match=r"git holds .*r\.lock; if no git process is running here"):
        branch.advance(None, commits[0])
    assert lock.read_text() == content
    assert [path.name for path in lock.parent.iterdir()] == [lock.name]

    patient, done = Branch(repository, "r", 60), []
    with patient.hold(), before("open", "r.lock", lock.unlink):
        done.append(patient.advance(None, commits[0]))
    assert done == [True]


def test_lock_left_by_a_killed_process_of_ours_is_removed(repository, commits):
    lock = repository / f"{REF}.lock"
    lock.parent.mkdir()
    lock.write_text(commits[2])
    lock.chmod(0o744)
    assert git(repository, "for-each-ref") == "", "git takes it for no ref"
    branch = Branch(repository, "r", 0)
    with branch.hold():
        assert branch.advance(None, commits[0])
    assert [path.name for path in lock.parent.iterdir()] == ["r"]


def test_lock_is_not_removed_where_every_file_is_executable(repository, commits):
    lock = repository / f"{REF}.lock"
    lock.parent.mkdir()
    lock.touch()
    lock.chmod(0o755)
    (repository / "config").chmod(0o755)
    branch = Branch(repository, "r", 0)
    with branch.hold(), pytest.raises(StoreError, match="git holds"):
        branch.advance(None, commits[0])


def test_lock_is_marked_executable_and_a_ref_never(repository, commits):
    branch, modes, lock = Branch(repository, "r", 0), [], repository / f"{REF}.lock"
    with branch.hold(), before("rename", "r.lock", lambda: modes.append(lock.stat().st_mode & 0o100)):
        branch.advance(None, commits[0])
    assert modes == [0o100]
    assert (repository / REF).stat().st_mode & 0o111 == 0


def hold(repository, ready):
    with Branch(repository, "r", 60).hold():
        ready.set()
        threading.Event().wait()


def test_run_is_held_by_one_process_and_freed_by_its_death(repository):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold, args=(repository, ready), daemon=True)
    holder.start()
    try:
        assert ready.wait(60)
        refused = pytest.raises(StoreError, match="another process is writing to this run and does not end")
        with refused, Branch(repository, "r", 0).hold():
            pass
        with Branch(repository, "q", 0).hold():
            pass
    finally:
        holder.kill()
        holder.join()
    with Branch(repository, "r", 60).hold():
        pass


@pytest.mark.parametrize("content", ["", "ref: refs/heads/runs/q\n", "x" * 40])
def test_invalid_ref_is_reported(repository, content):
    ref = repository / REF
    ref.parent.mkdir()
    ref.write_text(content)
    with pytest.raises(StoreError, match=f"{REF} has no commit id"):
        Branch(repository, "r", 1).read()


def test_descriptors_are_closed(repository, commits):
    branch, opened = Branch(repository, "r", 1), open_files()
    with branch.hold():
        branch.advance(None, commits[0])
        branch.sync()
    assert open_files() == opened
