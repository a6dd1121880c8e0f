"""A file tree of its own: empty but for what a Python program needs, which cannot be written.

Takes paths, changes the process that calls it. What is in the tree has the same path as outside. `/tmp` is empty, for each call to
mount its own there. There is no `/proc`.
"""

import os
import stat
from collections.abc import Iterable, Mapping

from dsa.edge.sandbox.inside import kernel

_AT = "/tmp"  # noqa: S108  # any folder: the tree is put together on top of it, where only this process sees it
_FIXED = kernel.READ_ONLY_ATTR | kernel.NO_SUID_ATTR
FOLDERS = ("/tmp", "/dev")  # noqa: S108  # in every tree
LINKS = {"/dev/shm": "/tmp"}  # noqa: S108  # where the C library keeps semaphores


def become_its_root(visible: Iterable[str], links: Mapping[str, str]) -> None:
    """Put the tree together and make it this process's: mounts must be its own already. Raises OSError."""
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tree", _AT, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, "mode=0755,size=1m")
    for folder in FOLDERS:
        os.makedirs(f"{_AT}{folder}", exist_ok=True)  # noqa: PTH103  # pathlib is slow to import
    for path in visible:
        _show(path, f"{_AT}{path}")
    for path, target in (LINKS | dict(links)).items():
        os.makedirs(os.path.dirname(f"{_AT}{path}"), exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(target, f"{_AT}{path}")  # noqa: PTH211
    kernel.make_root(_AT)
    kernel.protect("/", _FIXED | kernel.NO_DEVICES_ATTR)


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
    """Give the process that calls it an empty `/tmp` of bounded size, gone with its last process, and go there."""
    options = f"mode=0777,size={size_bytes},nr_inodes={files}"
    kernel.mount("own", "/tmp", "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, options)  # noqa: S108
    os.chdir("/tmp")  # noqa: S108
