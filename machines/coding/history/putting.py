"""Putting files of a workspace back as they were: each only where it still is as it is expected to be.

Takes an open workspace, paths, and contents; raises `InTheWay` and changes nothing where something else is found. No link is followed, and
nothing that was not expected is written over.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import attrs

from dsa.edge.locking import locked
from dsa.errors import DsaError
from machines.coding.history.looking import LINK, SPECIAL, HistoryError, blob_id, read_file
from machines.coding.tools.beneath import Beneath
from machines.coding.tools.errors import ToolError
from machines.coding.tools.opening import NEW
from machines.coding.tools.writing import sweep, temporary_name, write_whole

_CLOSED = 0o700
#: Mode and blob id of a file; None where there is none.
Kept = tuple[str, str] | None


class InTheWay(DsaError):  # noqa: N818  # it says what was found
    """Raised when a file is not as it is expected to be; the text says how it is."""


@attrs.frozen
class Content:
    """What a file is to be: git's mode, permissions (a link has none), and bytes."""

    mode: str
    permissions: int
    data: bytes


def put(workspace: Beneath, path: str, expected: Kept, wanted: Content) -> None:
    """Write a file or a link, whole or not at all, into a folder that is there. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        _require(folder, name, expected)
        sweep(folder)
        temporary = temporary_name()
        try:
            with _written(folder, temporary, wanted):
                if expected is not None or not _linked(folder, temporary, name):
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise InTheWay("something else stands there now") from None
        except FileNotFoundError:
            raise InTheWay("somebody else has swept the folder meanwhile: undo once more") from None
        except IsADirectoryError:
            raise InTheWay("there is a folder now") from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)


def remove(workspace: Beneath, path: str, expected: Kept) -> None:
    """Take a file or a link away. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        _require(folder, name, expected)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_special(workspace: Beneath, path: str, kind: str) -> None:
    """Take away what is no file: a pipe, a socket, a device. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise InTheWay("it is gone") from None
        if SPECIAL.get(stat.S_IFMT(found.st_mode)) != kind:
            raise InTheWay("something else stands there now")
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_folder(workspace: Beneath, path: str) -> bool:
    """Take a folder away if nothing is in it; tell whether it is gone."""
    *above, name = path.split("/")
    try:
        with workspace.folder(above) as folder:
            os.rmdir(name, dir_fd=folder)
    except (ToolError, OSError):  # not empty, not there, no folder: it is nothing that we may take away
        return False
    return True


def make_folder(workspace: Beneath, parts: Sequence[str], permissions: Mapping[str, int]) -> None:
    """Make a folder and those that lead there, unless they are there, with permissions by path. Raises InTheWay."""
    for number in range(1, len(parts) + 1):
        bits = permissions.get("/".join(parts[:number]), _CLOSED)
        with _opened(workspace, parts[: number - 1]) as above:
            try:
                os.mkdir(parts[number - 1], bits, dir_fd=above)
            except FileExistsError:
                continue
            os.fsync(above)
        permit_folder(workspace, parts[:number], bits)


def permit_folder(workspace: Beneath, parts: Sequence[str], permissions: int) -> None:
    """Have a folder have permissions. Raises InTheWay."""
    with _opened(workspace, parts) as folder:
        os.fchmod(folder, permissions)


@contextmanager
def _opened(workspace: Beneath, parts: Sequence[str]) -> Iterator[int]:
    try:
        with workspace.folder(parts) as folder:
            yield folder
    except ToolError as error:
        raise InTheWay(str(error)) from error
    except PermissionError as error:
        raise InTheWay("the system does not let us change it") from error


def _require(folder: int, name: str, expected: Kept) -> None:
    """Raise InTheWay unless a file is as it is expected to be."""
    try:
        found = read_file(folder, name)
    except (HistoryError, OSError) as error:
        raise InTheWay(f"it is something else now: {error}") from error
    if found is None:
        is_there = _exists(folder, name)
        if is_there or expected is not None:
            raise InTheWay("something else stands there now" if is_there else "it is gone")
    elif expected is None:
        raise InTheWay("there is another file now")
    elif (found[0], blob_id(found[1])) != expected:
        raise InTheWay("it was changed since")


def _linked(folder: int, temporary: str, name: str) -> bool:
    """Give a file a name that nothing has; False where there are no links. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except PermissionError:  # some file systems have none
        return False
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _written(folder: int, name: str, wanted: Content) -> Iterator[None]:
    """Write a file or a link under a name of its own; a file is held, so that nobody sweeps it away."""
    if wanted.mode == LINK:
        os.symlink(os.fsdecode(wanted.data), name, dir_fd=folder)
        yield
        return
    file = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        locked(file)
        write_whole(file, wanted.data)
        os.fchmod(file, wanted.permissions)
        os.fsync(file)
        yield
    finally:
        os.close(file)
