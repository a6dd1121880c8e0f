"""Files of this machine: locks, replacement in one step, syncing, and listing.

A file that is replaced has the whole new content afterwards, or is as it was: the new content is written beside it, synced, and renamed in one step. A
power cut may leave the old content, never half of the new. A synced file is lost in a power cut if the names that lead to it are not on disk:
`sync_folder` and `folders_above` help to write them. Locks are those of flock(2): the system drops one when its process ends, however it ends. Only POSIX
has them; on other systems DsaError is raised.
"""

import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dsa.errors import DocumentError, DsaError

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


def try_lock(file: int, *, is_shared: bool = False) -> bool:
    """Lock a file if nobody else holds the lock; return whether this succeeded. Several may hold an `is_shared` lock. Raises DsaError."""
    how = _fcntl()
    try:
        how.flock(file, (how.LOCK_SH if is_shared else how.LOCK_EX) | how.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    """Release a lock. Raises DsaError."""
    how = _fcntl()
    how.flock(file, how.LOCK_UN)


def _fcntl() -> Any:  # noqa: ANN401  (a module)
    if _FCNTL is None:
        raise DsaError(
            "this system has no flock(2), which keeps two processes from writing to one run; on Windows, use WSL",
            code="NoLocksError",
        )
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

    It stops at a folder that this user may not read, because this user cannot have made those above it.
    """
    device = path.stat().st_dev
    for folder in path.resolve().parents:
        if folder.stat().st_dev != device or not os.access(folder, os.R_OK):
            return
        yield folder


def files_below(folder: Path, endings: Collection[str]) -> Iterator[Path]:
    """Yield the files below a folder whose names have one of these endings, in order. Raises OSError for a folder that cannot be read.

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


_NEW_FILE = 0o666


def replace_file(path: Path, content: bytes, before: bytes | None) -> None:
    """Replace a file that was read as `before`, or make one that did not exist (None). A link stays; the file that it leads to is replaced.

    Raises DocumentError, and changes nothing, when the file may not be written or has changed since it was read; OSError when writing fails.
    """
    target = path.resolve()
    if _content(target) != before:
        raise DocumentError(str(path), "it was changed in the meantime; nothing was written; try again")
    if before is not None and not os.access(target, os.W_OK):
        raise DocumentError(str(path), "the file is not writable")
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(target))
        os.replace(temporary, target)  # noqa: PTH105  (what mkstemp gives is a text)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _mode(path: Path) -> int:
    """Return the permissions of a file; if there is none, those that a new one gets."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return _NEW_FILE & ~mask
