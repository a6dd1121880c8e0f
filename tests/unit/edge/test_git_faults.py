"""Paths that are not a repository of artifacts, damaged repositories, and a disk that fails."""

import errno
import os

import pytest
from artifact_runs import RUN, attempt, by_hand, filled, git, loose_files, memory_folder, require_clean
from os_calls import handled

from dsa.edge.git_artifacts import GitArtifacts, run_ids
from dsa.runtime.run_store import StoreError

BRANCH = f"runs/{RUN}"


@pytest.fixture
def repository():
    with memory_folder() as folder:
        yield folder / "artifacts.git"


# -- unsuitable and damaged repositories ------------------------------------------------------------------------------


def test_variables_of_a_git_hook_are_ignored(repository, tmp_path, monkeypatch):
    """`dsa run` in a hook of another repository: git sets these for its hooks."""
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "other/.git/objects"))
    monkeypatch.setenv("GIT_INDEX_FILE", "index")
    _, made = filled(repository, 2)
    git(repository, "gc", "-q", "--prune=now")
    assert GitArtifacts(repository, RUN).get_provenance(made[1].artifact_id) == made
    assert run_ids(repository) == (RUN,)
    assert not list((tmp_path / "other/.git/objects").glob("??/*"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: path.write_text("x"),
            "this is not a bare git repository; write the path of one, or a path that does not exist yet",
        ),
        (lambda path: (path / "sub").mkdir(parents=True), "this is not a bare git repository"),
        (lambda path: git(path.parent, "init", "-q", path.name), "this is not a bare git repository"),
        (
            lambda path: git(path.parent, "init", "-q", "--bare", "--object-format=sha256", path.name),
            "bare=True, objectformat=sha256, refstorage=files",
        ),
    ],
    ids=["file", "folder", "working tree", "sha256"],
)
def test_unsuitable_repository_is_refused_and_left_alone(repository, make, message):
    make(repository)
    left = sorted(repository.rglob("*"))
    with pytest.raises(StoreError, match=message) as refused:
        GitArtifacts(repository, RUN)
    assert str(refused.value).startswith(f"{repository}: ")
    assert sorted(repository.rglob("*")) == left


def test_empty_folder_becomes_the_repository(repository):
    repository.mkdir()
    filled(repository, 1)
    require_clean(repository)
    assert [path.name for path in repository.parent.iterdir()] == [repository.name]


def test_bare_repository_made_by_git_is_accepted(repository):
    git(repository.parent, "init", "-q", "--bare", repository.name)
    _, made = filled(repository, 2)
    assert GitArtifacts(repository, RUN).get_provenance(made[1].artifact_id) == made


def test_flipped_byte_is_noticed(repository):
    """Whichever object it is in: it is reported, and never read as something else."""
    _, made = filled(repository, 1)
    for path in loose_files(repository):
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            path.chmod(0o644)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreError, match=f"object {path.parent.name}{path.name} is damaged"):
                GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id)
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="is damaged"):
            GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id)
        path.write_bytes(whole)
    assert GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id) == made[0]


def test_object_in_the_place_of_another_is_noticed(repository):
    _, made = filled(repository, 1)
    files = loose_files(repository)
    whole = {path: path.read_bytes() for path in files}
    for path, other in zip(files, files[1:] + files[:1], strict=True):
        path.chmod(0o644)
        path.write_bytes(whole[other])
        with pytest.raises(StoreError, match="its content does not match its id"):
            GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id)
        path.write_bytes(whole[path])


def test_missing_object_is_reported(repository):
    _, made = filled(repository, 1)
    for path in loose_files(repository):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(StoreError, match=r"is missing|git rev-list failed"):
            GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id)
        path.write_bytes(whole)


def test_text_replaced_under_the_same_name_is_reported(repository):
    """The branch is rewritten, with the messages as they were."""
    _, made = filled(repository, 1)
    blob = git(repository, "hash-object", "-w", "--stdin", given=b"other").strip()
    tree = git(repository, "mktree", given=f"100644 blob {blob}\timpl\n".encode()).strip()
    message = git(repository, "log", "-1", "--format=%B", f"{BRANCH}~1").encode()
    commit = git(repository, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", tree, given=message).strip()
    git(repository, "update-ref", f"refs/heads/{BRANCH}", commit)
    with pytest.raises(StoreError, match="does not match its digest"):
        GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("x\n\nDsa-Record: artifact\nRun: r", "is not a complete record: the trailer Artifact is missing"),
        (
            "x\n\nDsa-Record: verdict\nStep: s\nAttempt: 1\nArtifact: 00ff\nSeconds: 0\nKey: k",
            "names artifact 00ff, which is not in the run",
        ),
        (
            "x\n\nDsa-Record: verdict\nStep: s\nAttempt: one\nKey: k\nArtifact: 00",
            "is not a complete record: invalid literal",
        ),
    ],
)
def test_invalid_record_is_reported_with_its_commit(repository, message, told):
    store, _ = filled(repository, 1)
    commit = by_hand(repository, message)
    with pytest.raises(StoreError, match=f"commit {commit} ({told})"):
        store.attempts()


# -- a disk that fails ------------------------------------------------------------------------------------------------


def failing(name, number, fault):
    """Make the n-th call of a name fail, and each after it."""
    counted = [0]

    def handle(called, arguments, perform):
        counted[0] += called == name
        if called == name and counted[0] >= number:
            raise OSError(fault, os.strerror(fault))
        return perform()

    return handled(handle)


def calls_of_a_store(name, folder):
    store, made = filled(folder / "counted.git", 1)
    seen = []

    def handle(called, arguments, perform):
        seen.append(called)
        return perform()

    with handled(handle):
        store.store(attempt(2, made[0]))
    return seen.count(name)


def test_full_disk_is_reported_loses_nothing_and_recovers_with_space(repository, tmp_path):
    store, made = filled(repository, 1)
    for number in range(1, calls_of_a_store("write", tmp_path) + 1):
        with pytest.raises(OSError, match="No space left"), failing("write", number, errno.ENOSPC):
            store.store(attempt(number + 1, made[0]))
        require_clean(repository)
        assert [a.version for a in store.attempts()] == [1]
        assert not [*repository.rglob("tmp_obj*"), *repository.rglob("*.lock")]
    assert store.store(attempt(2, made[0])) == GitArtifacts(repository, RUN).store(attempt(2, made[0]))
    assert [a.version for a in store.attempts()] == [1, 2]


def test_handle_is_unusable_after_a_failed_sync(repository, tmp_path):
    """The result of a second fsync of the same file means nothing: the system may have dropped what it could not write."""
    _, made = filled(repository, 1)
    for number in range(1, calls_of_a_store("fsync", tmp_path) + 1):
        store = GitArtifacts(repository, RUN)
        with (
            pytest.raises(OSError, match="the disk could not store the data"),
            failing("fsync", number, errno.EIO),
        ):
            store.store(attempt(number + 1, made[0]))
        with pytest.raises(StoreError, match="the disk has failed before"):
            store.store(attempt(number + 1, made[0]))
        assert GitArtifacts(repository, RUN).get_artifact(made[0].artifact_id) == made[0]
        assert GitArtifacts(repository, RUN).store(attempt(number + 1, made[0])).version == number + 1
        require_clean(repository)


def test_torn_object_of_the_same_name_is_written_again(repository):
    """Such an object is left by git, or a copying tool, that had not synced it before the power failed."""
    store, made = filled(repository, 1)
    again = attempt(2, made[0])
    store.store(again)
    for path in set(loose_files(repository)):
        path.chmod(0o644)
    git(repository, "update-ref", f"refs/heads/{BRANCH}", f"{BRANCH}~1")
    reachable = git(repository, "rev-list", "--objects", "--no-object-names", BRANCH).split()
    torn = [path for path in loose_files(repository) if path.parent.name + path.name not in reachable]
    kinds = {path: git(repository, "cat-file", "-t", path.parent.name + path.name).strip() for path in torn}
    assert sorted(kinds.values()) == ["blob", "commit", "tree"]
    for path, kind in kinds.items():
        if kind != "commit":  # a commit of another second is a different one, so this one is not written again
            path.write_bytes(b"")
    GitArtifacts(repository, RUN).store(again)
    require_clean(repository)
