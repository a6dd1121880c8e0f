"""The folders that have to be synced for a name to be on the disk."""

import os

from dsa.edge.files import folders_above, sync_folder


def test_folders_above_reach_up_to_the_mount_point(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = list(folders_above(tmp_path / "link" / "b"))
    assert found[:3] == [tmp_path.resolve() / "a", tmp_path.resolve(), tmp_path.resolve().parent]
    assert {folder.stat().st_dev for folder in found} == {tmp_path.stat().st_dev}
    assert found[-1].is_mount()
    for folder in found:
        sync_folder(folder)


def test_folders_above_end_at_an_unreadable_folder(tmp_path, monkeypatch):
    """Root may read everything, so the test replaces `os.access`."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path.resolve())
    assert list(folders_above(tmp_path / "a" / "b")) == [tmp_path.resolve() / "a"]
