"""A file tree of its own: empty but for what a Python program needs, which cannot be written.

Takes paths, changes the process that calls it. What is in the tree has the same path as outside. `/own` is empty, for each call to
mount its own there; `/tmp` leads to it, unless something that is shown lies in `/tmp`. There is no `/proc`.
"""

import os
import stat
from collections.abc import Iterable, Mapping

from dsa.edge.sandbox.inside import kernel

#: Where the tree is put together, where only this process sees it: on top of the first of these in which nothing lies that is shown.
_PLACES = ("/tmp", "/mnt", "/media", "/srv", "/opt", "/var/tmp", "/home")  # noqa: S108
OWN = "/own"
_FIXED = kernel.READ_ONLY_ATTR | kernel.NO_SUID_ATTR
FOLDERS = (OWN, "/dev")  # in every tree


def become_its_root(visible: Iterable[str], links: Mapping[str, str]) -> None:
    """Put the tree together and make it this process's: mounts must be its own already. Raises OSError."""
    shown = tuple(visible)
    at = next(place for place in _PLACES if _is_free(place, shown))
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tree", at, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, "mode=0755,size=1m")
    for folder in FOLDERS:
        os.makedirs(f"{at}{folder}", exist_ok=True)  # noqa: PTH103  # pathlib is slow to import
    for path in shown:
        _show(path, f"{at}{path}")
    for path, target in links.items():
        os.makedirs(os.path.dirname(f"{at}{path}"), exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(target, f"{at}{path}")  # noqa: PTH211
    kernel.make_root(at)
    kernel.protect("/", _FIXED | kernel.NO_DEVICES_ATTR)


def _is_free(place: str, shown: Iterable[str]) -> bool:
    return os.path.isdir(place) and not any(f"{path}/".startswith(f"{place}/") for path in shown)  # noqa: PTH112


def _show(path: str, place: str) -> None:
    mode = os.stat(path).st_mode  # noqa: PTH116
    if stat.S_ISDIR(mode):
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o444))
    kernel.mount(path, place, None, kernel.BIND | kernel.RECURSIVE)
    is_device = stat.S_ISCHR(mode)
    kernel.protect(place, _FIXED | (0 if is_device else kernel.NO_DEVICES_ATTR), recursive=True)


def mount_own_folder(size_bytes: int, files: int) -> None:
    """Give the process that calls it an empty folder of bounded size, gone with its last process, and go there."""
    options = f"mode=0777,size={size_bytes},nr_inodes={files}"
    kernel.mount("own", OWN, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, options)
    os.chdir(OWN)
