"""Locks on open files (flock(2)), which the system gives back when a process ends, however it ends.

Takes descriptors, tells whether they are locked. POSIX alone has them: elsewhere `NoLocksError` says what follows.

Folders whose names are on the disk: whoever syncs a file has still to have the names synced that lead to it.

Takes paths, gives folders and syncs them. It knows nothing of what they hold.
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
    """Lock a file if nobody else holds it; tell whether that went well. `is_shared`: others may hold it so too. Raises NoLocksError."""
    how = _fcntl()
    try:
        how.flock(file, (how.LOCK_SH if is_shared else how.LOCK_EX) | how.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    """Return a lock back. Raises NoLocksError."""
    how = _fcntl()
    how.flock(file, how.LOCK_UN)


def _fcntl() -> Any:  # noqa: ANN401  (a module)
    if _FCNTL is None:
        raise NoLocksError
    return _FCNTL


def sync_folder(folder: Path) -> None:
    """Have the names that stand in a folder put on disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def folders_above(path: Path) -> Iterator[Path]:
    """Yield the folders that hold the names which lead to a path, the nearest first, up to the top of its file system.

    One that may not be read is the end too: nobody who may not read it has made what leads on from there.
    """
    device = path.stat().st_dev
    for folder in path.resolve().parents:
        if folder.stat().st_dev != device or not os.access(folder, os.R_OK):
            return
        yield folder


def files_below(folder: Path, endings: Collection[str]) -> Iterator[Path]:
    """Return the files below a folder whose names end so, in the order of their names. Raises OSError for a folder that may not be read.

    Hidden files and folders, `node_modules` and links are left out: they are somebody else's, or found elsewhere.
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
