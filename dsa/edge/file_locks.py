"""Locks on open files (flock(2)), and folders whose names are synced to disk.

The system drops a lock when its process ends, in whatever way. Only POSIX has such locks; elsewhere `NoLocksError` is raised.

A synced file is lost in a power cut if the names that lead to it are not on disk. `sync_folder` and `folders_above` put them there.
"""

import os
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dsa.errors import DsaError

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


class NoLocksError(DsaError):
    """Raised where the system has no locks that end with their process."""

    def __init__(self) -> None:
        super().__init__("this system has no flock(2), by which runs are kept from each other; on Windows, WSL has it")


def try_lock(file: int, *, is_shared: bool = False) -> bool:
    """Lock a file if nobody else holds the lock; return whether this succeeded. Several may hold an `is_shared` lock. Raises NoLocksError."""
    how = _fcntl()
    try:
        how.flock(file, (how.LOCK_SH if is_shared else how.LOCK_EX) | how.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    """Release a lock. Raises NoLocksError."""
    how = _fcntl()
    how.flock(file, how.LOCK_UN)


def _fcntl() -> Any:  # noqa: ANN401  (a module)
    if _FCNTL is None:
        raise NoLocksError
    return _FCNTL


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def folders_above(path: Path) -> Iterator[Path]:
    """Yield the folders above a path, the nearest first, up to the top of its file system.

    It stops at a folder that this user may not read: this user cannot have made what lies above.
    """
    device = path.stat().st_dev
    for folder in path.resolve().parents:
        if folder.stat().st_dev != device or not os.access(folder, os.R_OK):
            return
        yield folder


def files_below(folder: Path, endings: Collection[str]) -> Iterator[Path]:
    """Yield the files below a folder whose names have one of these endings, in order. Raises OSError for a folder that may not be read.

    Hidden files and folders, `node_modules` and links are left out.
    """
    with os.scandir(folder) as entries:
        sorted_entries = sorted((entry for entry in entries if not entry.is_symlink()), key=lambda entry: entry.name)
    for entry in sorted_entries:
        if entry.name.startswith(".") or entry.name == "node_modules":
            continue
        if entry.is_dir():
            yield from files_below(Path(entry.path), endings)
        elif entry.name.endswith(tuple(endings)) and entry.is_file():
            yield Path(entry.path)
