import os
import sys
import tempfile
from pathlib import Path

from dsa.edge.sandbox.inside import confinement
from dsa.edge.sandbox.rungs import OWN, interpreter, visible


def test_only_python_its_library_and_shared_libraries_are_visible():
    shown = visible()
    assert any(os.__file__.startswith(path) for path in shown.paths)
    assert any(interpreter().startswith(path) for path in shown.paths)
    for private in (Path.home(), Path("/etc"), Path("/usr"), Path("/tmp"), Path("/")):
        assert str(private) not in shown.paths
    assert not any(path.startswith(f"{sys.prefix}/") for path in shown.paths) or sys.prefix == sys.base_prefix


def test_visible_paths_are_not_nested_and_not_links():
    paths = visible().paths
    assert all(os.path.realpath(path) == path for path in paths)
    assert not [path for path in paths for other in paths if path.startswith(f"{other}/")]


def test_links_keep_their_targets():
    links = dict(visible().links)
    assert (links.pop("/tmp"), links.pop("/dev/shm")) == (OWN, OWN)
    assert links
    for path, target in links.items():
        assert Path(path).is_symlink()
        assert target == str(Path(path).readlink())


def test_folder_below_tmp_is_visible_at_its_own_path():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shown = visible((folder,))
    assert os.path.realpath(folder) in shown.paths
    assert "/tmp" not in shown.links
    assert shown.links["/dev/shm"] == OWN


def test_both_sides_use_the_same_private_folder():
    assert confinement.OWN == OWN


def test_more_folders_can_be_shown(tmp_path):
    assert str(tmp_path.resolve()) in visible((str(tmp_path),)).paths
