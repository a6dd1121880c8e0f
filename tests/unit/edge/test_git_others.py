"""Others that use the repository: git with its gc, people, other handles, threads and processes."""

import gc
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from artifact_runs import (
    RUN,
    attempt,
    by_hand,
    filled,
    git,
    loose_files,
    memory_folder,
    open_files,
    require_clean,
    said_of,
)
from os_calls import before, handled

from dsa.edge.git_artifacts import GitArtifacts, run_ids
from dsa.runtime.run_store import StoreError

TESTS = Path(__file__).parents[2]
BRANCH = f"runs/{RUN}"


@pytest.fixture
def repository():
    with memory_folder() as folder:
        yield folder / "artifacts.git"


# -- git at work on it ------------------------------------------------------------------------------------------------


def test_clone_and_gc_keep_everything(repository, tmp_path):
    store, made = filled(repository, 5)
    before_gc = store.attempts()
    git(repository, "gc", "-q", "--prune=now")
    assert not loose_files(repository), "nothing is left to be read without git"
    assert not (repository / "refs/heads/runs" / RUN).exists()
    git(tmp_path, "clone", "-q", "--bare", str(repository), "copy.git")
    for path in (repository, tmp_path / "copy.git"):
        again = GitArtifacts(path, RUN)
        assert again.attempts() == before_gc
        assert again.get_provenance(made[-1].artifact_id) == made
        sixth = again.store(attempt(6, made[-1]))
        assert GitArtifacts(path, RUN).get_provenance(sixth.artifact_id) == [*made, sixth]
        require_clean(path)
    assert store.get_artifact(made[0].artifact_id) == made[0], "the handle from before goes on"
    assert store.get_artifact(sixth.artifact_id) == sixth
    git(tmp_path, "clone", "-q", str(repository), "worked")
    assert (tmp_path / "worked/impl").read_bytes().decode() == sixth.content, "a clone's files are what the run made"


def test_gc_between_two_records_loses_nothing(repository):
    store, made = filled(repository, 2)
    git(repository, "gc", "-q", "--prune=now")
    third = store.store(attempt(3, made[-1]))
    git(repository, "gc", "-q", "--prune=now")
    store.record_verdict(said_of(third))
    assert GitArtifacts(repository, RUN).get_provenance(third.artifact_id) == [*made, third]
    require_clean(repository)


def test_objects_that_gc_prunes_before_they_have_a_ref_are_rewritten(repository):
    store, made = filled(repository, 1)
    with before("open", f"{RUN}.lock", lambda: git(repository, "gc", "-q", "--prune=now")):
        second = store.store(attempt(2, made[0]))
    assert GitArtifacts(repository, RUN).get_provenance(second.artifact_id) == [made[0], second]
    require_clean(repository)


def test_ref_moves_only_to_objects_that_gc_has_left(repository):
    """The process ends as soon as the ref is moved, so that it can write nothing again."""
    store, made = filled(repository, 1)
    opened = [0]

    class Ended(BaseException):
        pass

    def handle(name, arguments, perform):
        if name == "open" and "tmp_obj" in str(arguments[0]):
            opened[0] += 1
            if opened[0] == 3:  # the text and its tree are there, the commit is not
                git(repository, "gc", "-q", "--prune=now")
        result = perform()
        if name == "rename" and str(arguments[1]).endswith(f"runs/{RUN}"):
            raise Ended
        return result

    with pytest.raises(Ended), handled(handle):
        store.store(attempt(2, made[0]))
    require_clean(repository)
    assert [a.version for a in GitArtifacts(repository, RUN).attempts()] == [1, 2]


def test_running_gc_is_waited_for_and_pruned_objects_are_rewritten(repository):
    """The simulated gc began before the ref was moved: it believes that the objects it removes are unreachable."""
    store, made = filled(repository, 1)
    known, note = set(loose_files(repository)), repository / "gc.pid"
    begins = lambda: note.write_text(f"{os.getpid()} {os.uname().nodename}")  # noqa: E731
    done, ref = [], repository / "refs/heads/runs" / RUN
    old = ref.read_text()
    with before("rename", f"runs/{RUN}", begins):
        writing = threading.Thread(target=lambda: done.append(store.store(attempt(2, made[0]))))
        writing.start()
        while ref.read_text() == old and writing.is_alive():
            pass
        for path in set(loose_files(repository)) - known:
            path.unlink()
        assert not done, "store has returned while gc ran"
        note.unlink()
        writing.join()
    assert GitArtifacts(repository, RUN).get_provenance(done[0].artifact_id) == [made[0], done[0]]
    require_clean(repository)


def test_killed_gc_is_not_waited_for(repository):
    store = GitArtifacts(repository, RUN, gc_patience_s=0)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (repository / "gc.pid").write_text(f"{process.pid} {os.uname().nodename}")
    store.store(attempt(1))


def test_endless_gc_is_reported(repository):
    (GitArtifacts(repository, RUN).path / "gc.pid").write_text(f"{os.getpid()} {os.uname().nodename}")
    with pytest.raises(StoreError, match=r"`git gc` is running; stop it, or remove .*gc.pid"):
        GitArtifacts(repository, RUN, gc_patience_s=0).store(attempt(1))
    (repository / "gc.pid").unlink()
    assert GitArtifacts(repository, RUN).store(attempt(1)) == GitArtifacts(repository, RUN).store(attempt(1))


# -- other writers ----------------------------------------------------------------------------------------------------


def test_two_handles_see_the_records_of_each_other(repository):
    one, made = filled(repository, 2)
    two = GitArtifacts(repository, RUN)
    third = two.store(attempt(3, made[1]))
    assert one.get_artifact(third.artifact_id) == third
    fourth = one.store(attempt(4, third))
    two.record_verdict(said_of(fourth))
    assert one.attempts()[-1].outcome == "failed"
    assert one.attempts() == two.attempts() == GitArtifacts(repository, RUN).attempts()


def test_manual_commit_stays_and_is_skipped(repository):
    store, made = filled(repository, 1)
    by_hand(repository)
    second = store.store(attempt(2, made[0]))
    with before("open", f"{RUN}.lock", lambda: by_hand(repository, "at the last moment")):
        third = store.store(attempt(3, second))
    assert GitArtifacts(repository, RUN).get_provenance(third.artifact_id) == [made[0], second, third]
    subjects = git(repository, "log", "--format=%s", BRANCH).splitlines()
    assert subjects[:4] == ["impl: attempt 3", "at the last moment", "impl: attempt 2", "by hand"]
    require_clean(repository)


def test_rewound_or_deleted_branch_is_read_again(repository):
    store, made = filled(repository, 3)
    git(repository, "update-ref", f"refs/heads/{BRANCH}", f"{BRANCH}~2")
    assert [a.version for a in store.attempts()] == [1, 2]
    with pytest.raises(KeyError):
        store.get_artifact(made[2].artifact_id)
    git(repository, "gc", "-q", "--prune=now")
    by_hand(repository)
    git(repository, "gc", "-q", "--prune=now")
    assert [a.version for a in store.attempts()] == [1, 2]
    git(repository, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert store.attempts() == ()
    assert store.store(attempt(1)) == made[0]
    assert [a.version for a in GitArtifacts(repository, RUN).attempts()] == [1]


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from artifact_runs import attempt, said_of
from dsa.edge.git_artifacts import GitArtifacts
sys.stdin.readline()
store, made = GitArtifacts(sys.argv[2], sys.argv[3]), None
for number in range(1, int(sys.argv[5]) + 1):
    made = store.store(attempt(number, made, step=sys.argv[4]))
    print(made.artifact_id, flush=True)
    store.record_verdict(said_of(made))
"""


def started_writers(repository, runs, count):
    """Start a process for each run; they begin together, with a repository that is not there yet."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(TESTS), str(repository), run, f"s{number}", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, run in enumerate(runs)
    ]
    for writer in made:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    return made


def told(writer):
    """Return the ids that a process reported as stored."""
    printed, _ = writer.communicate()
    assert writer.returncode == 0
    return printed.split()


def test_slower_of_two_creators_uses_the_repository_of_the_other(repository):
    made = []
    with before("rename", repository.name, lambda: made.append(filled(repository, 1)[1][0])):
        store = GitArtifacts(repository, "q")
    assert GitArtifacts(repository, RUN).attempts()[0].artifact_id == made[0].artifact_id
    store.store(attempt(1))
    assert run_ids(repository) == (RUN, "q")
    assert [path.name for path in repository.parent.iterdir()] == [repository.name]


@pytest.mark.parametrize("runs", [("r", "r"), ("r", "q")], ids=["one run", "two runs"])
def test_two_processes_lose_nothing(repository, runs):
    writers = started_writers(repository, runs, 100)
    ids = [told(writer) for writer in writers]
    for run, names in zip(runs, ids, strict=True):
        store = GitArtifacts(repository, run)
        assert [a.artifact_id for a in store.lineage(names[-1])] == names
        assert all(a.outcome == "failed" for a in store.lineage(names[-1]))
    assert len(git(repository, "log", "--branches", "--format=%H").split()) == 400
    require_clean(repository)


@pytest.mark.full
@pytest.mark.parametrize("runs", [("r", "r"), ("r", "q")], ids=["one run", "two runs"])
def test_two_processes_lose_nothing_while_gc_prunes(repository, runs):
    writers = started_writers(repository, runs, 100)
    rounds = 0
    while any(writer.poll() is None for writer in writers):
        if (repository / "objects").exists():
            git(repository, "gc", "-q", "--prune=now")
            rounds += 1
    assert rounds > 3
    for run, writer in zip(runs, writers, strict=True):
        names = told(writer)
        assert [a.artifact_id for a in GitArtifacts(repository, run).get_provenance(names[-1])] == names
    require_clean(repository)


def test_threads_can_share_a_handle(repository):
    store = GitArtifacts(repository, RUN)
    threads = [
        threading.Thread(target=lambda step=step: [store.store(attempt(n, step=step)) for n in range(1, 21)])
        for step in ("a", "b", "c")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((a.step, a.version) for a in GitArtifacts(repository, RUN).attempts()) == [
        (step, n) for step in "abc" for n in range(1, 21)
    ]


def test_many_runs_in_one_process_keep_no_file_open(repository):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # leftovers of other tests do not count
    already = open_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (already + 16, hard))
    try:
        stores = [GitArtifacts(repository, f"r{number}") for number in range(300)]
        made = [store.store(attempt(1)) for store in stores]
        assert [store.get_artifact(each.artifact_id) for store, each in zip(stores, made, strict=True)] == made
        assert open_files() <= already
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
