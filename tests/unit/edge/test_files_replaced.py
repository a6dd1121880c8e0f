"""Files are replaced whole or not at all."""

import errno
import os

import pytest

from dsa.edge.files import replace_file
from dsa.errors import DocumentError


def test_file_is_replaced_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"old")
    path.chmod(0o640)
    replace_file(path, b"new\r\n", b"old")
    assert path.read_bytes() == b"new\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_new_file_gets_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "a.svg", b"new", None)
    finally:
        os.umask(before)
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == 0o640


def test_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "a.md").write_bytes(b"old")
    (tmp_path / "link.md").symlink_to("a.md")
    replace_file(tmp_path / "link.md", b"new", b"old")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "a.md").read_bytes() == b"new"


@pytest.mark.parametrize("before", [b"what was read", None])
def test_file_changed_in_the_meantime_is_left(tmp_path, before):
    path = tmp_path / "a.md"
    path.write_bytes(b"theirs")
    with pytest.raises(DocumentError, match=r"a\.md: it was changed in the meantime"):
        replace_file(path, b"new", before)
    assert path.read_bytes() == b"theirs"


@pytest.mark.parametrize("call", ["fsync", "replace", "fdopen"])
def test_failed_write_leaves_the_file_unchanged(tmp_path, monkeypatch, call):
    path = tmp_path / "a.md"
    path.write_bytes(b"old")

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new", b"old")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_read_only_file_is_left_unchanged(tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(DocumentError, match="may not be written"):
        replace_file(path, b"new", b"old")
    assert path.read_bytes() == b"old"
