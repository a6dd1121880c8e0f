"""Which folders have to be synced for a name to be on the disk."""

import os

from dsa.edge.files import folders_above, sync_folder


def test_all_folders_up_to_the_top_of_the_file_system_are_above(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = list(folders_above(tmp_path / "link" / "b"))
    assert found[:3] == [tmp_path.resolve() / "a", tmp_path.resolve(), tmp_path.resolve().parent]
    assert {folder.stat().st_dev for folder in found} == {tmp_path.stat().st_dev}
    assert found[-1].is_mount()
    for folder in found:
        sync_folder(folder)


def test_what_nobody_may_read_is_the_end(tmp_path, monkeypatch):
    """Root may read everything, so the system is asked in its place."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path.resolve())
    assert list(folders_above(tmp_path / "a" / "b")) == [tmp_path.resolve() / "a"]
