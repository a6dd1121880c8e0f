import errno
import hashlib
import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machines.chat.chat_session import Files
from machines.chat.conversation import Inventory, NewArtifact

CONTENT = b"a,b\n1,2\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def inventory_of(files, *pairs):
    """Store contents under names, as artifacts."""
    inventory = Inventory()
    for name, content in pairs:
        digest = files.keep(content)
        inventory.add(
            NewArtifact(name, "csv", digest, len(content), name), call_id="c1", producer="sql", created_at="then"
        )
    return inventory


def here(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def shown(tmp_path):
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "files").iterdir())}


def test_content_is_stored_under_its_digest_and_read_back(tmp_path):
    files = Files(tmp_path)
    assert files.keep(CONTENT) == DIGEST
    assert files.content(DIGEST) == CONTENT
    assert files.path(DIGEST).read_bytes() == CONTENT
    assert here(tmp_path / "contents") == [DIGEST]


def test_same_content_is_written_once(tmp_path):
    Files(tmp_path).keep(CONTENT)
    before = (tmp_path / "contents" / DIGEST).stat()
    Files(tmp_path).keep(CONTENT)
    after = (tmp_path / "contents" / DIGEST).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert here(tmp_path / "contents") == [DIGEST]


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_file_is_stored_whole_or_not_at_all(tmp_path, monkeypatch, fails):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    files = Files(tmp_path)
    with monkeypatch.context() as patch:
        if fails == "write":
            opened = os.fdopen
            patch.setattr(os, "fdopen", lambda *given: _Full(opened(*given)))
        else:
            patch.setattr(os, fails, full)
        with pytest.raises(OSError, match="no space left"):
            files.keep(CONTENT)
    assert here(tmp_path / "contents") == []
    assert files.keep(CONTENT) == DIGEST
    assert files.content(DIGEST) == CONTENT


class _Full:
    """A file on a disk that is full after a few bytes."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *given):
        return self._file.__exit__(*given)

    def write(self, content):
        self._file.write(content[:3])
        raise OSError(errno.ENOSPC, "no space left")


def test_content_is_synced_before_its_rename_and_the_folder_after(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace

    def noted(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", lambda *given: (done.append("named"), replace(*given)))
    Files(tmp_path).keep(CONTENT)
    assert done == ["file", "named", "folder"]


def test_changed_or_missing_content_is_reported(tmp_path):
    files = Files(tmp_path)
    files.keep(CONTENT)
    files.path(DIGEST).write_bytes(b"other")
    with pytest.raises(ValueError, match="has changed since it was written"):
        files.content(DIGEST)
    files.path(DIGEST).unlink()
    with pytest.raises(FileNotFoundError):
        files.content(DIGEST)


def test_artifacts_are_published_under_their_names(tmp_path):
    files = Files(tmp_path)
    files.publish(inventory_of(files, ("a.csv", b"1"), ("b.png", b"2")))
    assert shown(tmp_path) == {"a.csv": b"1", "b.png": b"2"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.csv", "a.csv", "a.csv"], ["a.csv", "a_a2.csv", "a_a3.csv"]),
        (["figure", "figure"], ["figure", "figure_a2"]),
        (["a.csv", "a_a3.csv", "a.csv"], ["a.csv", "a_a3.csv", "a_a3_2.csv"]),
        (["a.tar.gz", "a.tar.gz"], ["a.tar.gz", "a.tar_a2.gz"]),
    ],
)
def test_clashing_names_get_the_artifact_id(tmp_path, names, expected):
    files = Files(tmp_path)
    inventory = inventory_of(files, *((name, str(at).encode()) for at, name in enumerate(names)))
    files.publish(inventory)
    assert [each.file_name for each in inventory] == expected
    assert shown(tmp_path) == {name: str(at).encode() for at, name in enumerate(expected)}


@settings(max_examples=25)  # each writes files and syncs them
@given(st.lists(st.sampled_from(["a.csv", "a_a2.csv", "a_a3.csv", "a_a3_2.csv", "a", "a_a2"]), max_size=7), st.data())
def test_each_artifact_has_its_own_file_also_after_a_restart(tmp_path_factory, names, data):
    folder = tmp_path_factory.mktemp("files")
    files = Files(folder)
    inventory = inventory_of(files, *((name, str(at).encode()) for at, name in enumerate(names)))
    cut = data.draw(st.integers(0, len(names)))
    files.publish(list(inventory)[:cut])
    files.publish(inventory)
    again = Files(folder)
    again.publish(inventory)
    for at, each in enumerate(inventory):
        assert (folder / "files" / each.file_name).read_bytes() == str(at).encode()
        assert again.public_path(each) == files.public_path(each)
    assert len(here(folder / "files")) == len(names)


def test_published_file_is_not_written_again(tmp_path):
    files = Files(tmp_path)
    inventory = inventory_of(files, ("a.csv", b"1"))
    files.publish(inventory)
    (tmp_path / "files" / "a.csv").write_bytes(b"changed by hand")
    files.publish(inventory)
    Files(tmp_path).publish(inventory)
    assert shown(tmp_path) == {"a.csv": b"changed by hand"}
