"""The boundary of the workspace: opens files beneath a folder, and no others, whatever other processes do to the files meanwhile.

`Beneath` takes the names of a path (`workspace_paths.parts_of`), and yields descriptors. It follows no links, at the end of the path or on the way; it does not
wait for a FIFO, and does not take over a terminal. The kernel checks a whole path in one call if it can (openat2, Linux 5.6); otherwise each name is opened from
the folder before it.

The constants are flags for `os.open`, which Python has only where the system does. `CAN_OPEN` is false when one is missing; then nothing may be opened.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from dsa.errors import DsaError, ToolError
from machines.coding.tools.workspace_paths import LONGEST_PATH, path_text

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
_FOLDER_ALONE = getattr(os, "O_DIRECTORY", 0)
_OURS = getattr(os, "O_CLOEXEC", 0)  # Python sets it in its own calls, but not in openat2

#: The root folder, whose path the user chose · a folder in it · a folder on the way
ROOT = os.O_RDONLY | _FOLDER_ALONE | _OURS
FOLDER = ROOT | NO_LINK
STEP = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER_ALONE | _OURS
#: A file to be read · a new file to be written
READ = os.O_RDONLY | NO_LINK | _AT_ONCE | getattr(os, "O_NOCTTY", 0) | _OURS
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | _OURS

#: Whether this system can open files beneath an open folder without following links
CAN_OPEN = bool(NO_LINK and _AT_ONCE and _FOLDER_ALONE) and os.open in os.supports_dir_fd


_OPENAT2 = 437
_BENEATH = 0x08 | 0x04 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_TRIES = 64


def _gone_error(message: str) -> DsaError:
    """Return the error for a workspace that was itself deleted, or closed. It is not the fault of a call."""
    return DsaError(message, code="WorkspaceGoneError")


class Beneath:
    """An open folder: it stays the same one when it is moved or replaced.

    `by_walk` opens name by name although the kernel can do it in one call. Raises OSError when the folder cannot be opened, ToolError `not_here` when the
    system has no safe way.
    """

    def __init__(self, root: Path, *, by_walk: bool = False) -> None:
        if not CAN_OPEN:
            raise ToolError(
                "this system cannot open files beneath an open folder (openat), so it cannot keep a model in one; on Windows, WSL can",
                code="not_here",
            )
        self._root: int | None = os.open(root, ROOT)
        self.by_walk = by_walk or not _kernel_can(self._root)

    def fileno(self) -> int:
        """Return the descriptor of the folder. Raises DsaError once it is closed."""
        if self._root is None:
            raise _gone_error("the workspace is closed")
        return self._root

    def close(self) -> None:
        """Close the folder. A second call does nothing."""
        root, self._root = self._root, None
        if root is not None:
            os.close(root)

    @contextmanager
    def folder(self, parts: Sequence[str]) -> Iterator[int]:
        """Open a folder. Raises ToolError."""
        descriptor = self._descriptor(parts, ROOT)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def file(self, parts: Sequence[str]) -> Iterator[tuple[int, os.stat_result]]:
        """Open a regular file for reading. Raises ToolError, `not_a_file` for folders, FIFOs, devices and sockets."""
        descriptor = self._descriptor(parts, READ)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(
                    f"'{path_text(parts)}' is {_kind(status.st_mode)}, not a regular file", code="not_a_file"
                )
            yield descriptor, status
        finally:
            os.close(descriptor)

    def look(self, parts: Sequence[str]) -> os.stat_result | None:
        """Return the status of a path, or None when it does not exist. Raises ToolError, also for a link."""
        if not parts:
            return os.fstat(self.fileno())
        try:
            status = self._stat(parts)
        except FileNotFoundError:
            return None
        except ToolError as error:
            if error.code == "no_such_file":
                return None
            raise
        except OSError as error:
            raise _tool_error(error, parts) from error
        if stat.S_ISLNK(status.st_mode):
            raise _tool_error(OSError(errno.ELOOP, "a link"), parts)
        return status

    @contextmanager
    def explain_errors(self, parts: Sequence[str]) -> Iterator[None]:
        """Turn an error of the system into ToolError, or DsaError where the workspace is gone, or raise it unchanged when no call can help it."""
        try:
            yield
        except OSError as error:
            raise self._explanation(error, parts) from error

    def _explanation(self, error: OSError, parts: Sequence[str]) -> DsaError:
        if error.errno == errno.ENOENT and os.fstat(self.fileno()).st_nlink == 0:
            return _gone_error("the folder of the workspace was deleted")
        return _tool_error(error, parts)

    def _stat(self, parts: Sequence[str]) -> os.stat_result:
        """Return the status of a path, from the folder above it. It runs many times in a round, so it has no context manager."""
        if len(parts) == 1:
            return os.stat(parts[0], dir_fd=self.fileno(), follow_symlinks=False)
        above = self._descriptor(parts[:-1], ROOT)
        try:
            return os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)

    def _descriptor(self, parts: Sequence[str], flags: int) -> int:
        opener = _open_by_walk if self.by_walk else _open_in_kernel
        try:
            return opener(self.fileno(), parts, flags)
        except OSError as error:
            raise self._explanation(error, parts) from error


def _tool_error(error: OSError, parts: Sequence[str]) -> ToolError:
    """Return the meaning of an error for a call. An error that no call can help is raised unchanged."""
    name = path_text(parts)
    match error.errno:
        case errno.ENOENT:
            return ToolError(f"there is no '{name}'", code="no_such_file")
        case errno.ELOOP | errno.EXDEV:
            text = f"'{name}' leads through a symbolic link: links are not followed; use the path of the file itself"
            return ToolError(text, code="path_outside_workspace")
        case errno.ENOTDIR:
            return ToolError(f"'{name}', or a name in it, is a file and not a folder", code="not_a_folder")
        case errno.EISDIR | errno.ENXIO | errno.ENODEV:
            return ToolError(f"'{name}' is not a regular file", code="not_a_file")
        case errno.ENAMETOOLONG:
            return ToolError(f"'{name}' is too long", code="bad_path")
        case errno.EACCES | errno.EPERM:
            return ToolError(f"the system does not permit opening or changing '{name}'", code="no_permission")
        case errno.EMFILE | errno.ENFILE:
            return ToolError(
                f"too many files or folders at once, at '{name}': do it in several calls", code="too_large"
            )
        case errno.ENOSPC | errno.EDQUOT | errno.EROFS | errno.EFBIG:
            return ToolError(f"'{name}' cannot be written: {os.strerror(error.errno)}", code="cannot_write")
    raise error


def _open_by_walk(root: int, parts: Sequence[str], flags: int) -> int:
    """Open name by name, each from the folder before it."""
    if len(os.fsencode("/".join(parts))) > LONGEST_PATH:  # as the kernel would
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    at = os.open(".", STEP if parts else flags, dir_fd=root)
    for number, part in enumerate(parts, 1):
        try:
            onward = os.open(part, (flags if number == len(parts) else STEP) | NO_LINK, dir_fd=at)
        except NotADirectoryError as error:  # also for a link in place of a folder
            status = os.stat(part, dir_fd=at, follow_symlinks=False)
            raise OSError(errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.ENOTDIR, error.strerror) from error
        finally:
            os.close(at)
        at = onward
    return at


def _open_in_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Let the kernel open the whole path."""
    path = os.fsencode("/".join(parts) or ".")
    how = struct.pack("QQQ", flags, 0, _BENEATH)
    for _ in range(_TRIES):
        descriptor = int(_libc().syscall(_OPENAT2, root, ctypes.c_char_p(path), how, len(how)))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a folder was moved meanwhile
            break
    raise OSError(number, os.strerror(number))


def _kernel_can(root: int) -> bool:
    """Return whether the kernel has openat2, and permits the call."""
    if sys.platform != "linux" or os.uname().machine == "alpha":  # the call has another number there
        return False
    try:
        os.close(_open_in_kernel(root, (), ROOT))
    except OSError:
        return False
    return True


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def kind_of(mode: int) -> str:
    """Return the kind of a file in a listing: file, folder, link or other."""
    return {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}.get(stat.S_IFMT(mode), "other")
