import os
import sys
import tempfile
from pathlib import Path

from dsa.edge.sandbox.inside import confinement
from dsa.edge.sandbox.rungs import OWN, interpreter, visible


def test_python_its_library_and_shared_libraries_are_visible_and_little_else():
    shown = visible()
    assert any(os.__file__.startswith(path) for path in shown.paths)
    assert any(interpreter().startswith(path) for path in shown.paths)
    for private in (Path.home(), Path("/etc"), Path("/usr"), Path("/tmp"), Path("/")):
        assert str(private) not in shown.paths
    assert not any(path.startswith(f"{sys.prefix}/") for path in shown.paths) or sys.prefix == sys.base_prefix


def test_no_path_lies_below_another_and_none_is_a_link():
    paths = visible().paths
    assert all(os.path.realpath(path) == path for path in paths)
    assert not [path for path in paths for other in paths if path.startswith(f"{other}/")]


def test_links_lead_to_what_is_visible():
    links = dict(visible().links)
    assert (links.pop("/tmp"), links.pop("/dev/shm")) == (OWN, OWN)
    assert links
    for path, target in links.items():
        assert Path(path).is_symlink()
        assert target == str(Path(path).readlink())


def test_what_lies_where_files_are_passed_is_shown_where_it_is():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shown = visible((folder,))
    assert os.path.realpath(folder) in shown.paths
    assert "/tmp" not in shown.links
    assert shown.links["/dev/shm"] == OWN


def test_both_sides_mean_the_same_folder():
    assert confinement.OWN == OWN


def test_more_folders_can_be_shown(tmp_path):
    assert str(tmp_path.resolve()) in visible((str(tmp_path),)).paths
