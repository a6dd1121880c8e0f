"""How what lies in a workspace is opened: no link is followed, a FIFO does not hold us up, a terminal does not become ours.

Flags for `os.open`, which Python has only where the system does. Where one is missing nothing may be opened: `CAN_OPEN` says so.

The boundary of the workspace: opens what lies beneath a folder, and nothing else, whatever somebody does to the files meanwhile.

Takes names (`paths.parts_of`), gives descriptors. No link is followed, at the end or on the way. The kernel sees to it in one call where it
can (openat2, Linux 5.6); else each name is opened from the folder before it. What tools do with what was opened is theirs.
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

from dsa.errors import DsaError
from machines.coding.tools.workspace_paths import LONGEST_PATH, WorkspaceToolError, path_text

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
_FOLDER_ALONE = getattr(os, "O_DIRECTORY", 0)
_OURS = getattr(os, "O_CLOEXEC", 0)  # Python sees to it in its own calls, not in the kernel's that it does not know

#: A folder, by a name that is no link or that whoever runs us has given · a folder in it · one on the way, where that is enough
ROOT = os.O_RDONLY | _FOLDER_ALONE | _OURS
FOLDER = ROOT | NO_LINK
STEP = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER_ALONE | _OURS
#: A file to be read · a new file to be written
READ = os.O_RDONLY | NO_LINK | _AT_ONCE | getattr(os, "O_NOCTTY", 0) | _OURS
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | _OURS

#: Whether this system opens files beneath a folder that is held open, and leaves links alone
CAN_OPEN = bool(NO_LINK and _AT_ONCE and _FOLDER_ALONE) and os.open in os.supports_dir_fd


_OPENAT2 = 437
_BENEATH = 0x08 | 0x04 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_TRIES = 64


class WorkspaceGoneError(DsaError):
    """Raised when the workspace itself is deleted, or was closed. No call of a model can be blamed."""


class Beneath:
    """A folder, held open: it stays the same one when it is moved, and when another is put in its place.

    `by_walk` opens name by name although the kernel could do it in one. Raises OSError when the folder cannot be opened, ToolError `not_here` where
    the system has no such way.
    """

    def __init__(self, root: Path, *, by_walk: bool = False) -> None:
        if not CAN_OPEN:
            raise WorkspaceToolError(
                "not_here",
                "this system opens no file beneath a folder that is held open (openat), so a model is not kept in one; on Windows, WSL does",
            )
        self._root: int | None = os.open(root, ROOT)
        self.by_walk = by_walk or not _kernel_can(self._root)

    def fileno(self) -> int:
        """Return the descriptor of the folder. Raises WorkspaceGoneError once it is closed."""
        if self._root is None:
            raise WorkspaceGoneError("the workspace is closed")
        return self._root

    def close(self) -> None:
        """Let go of the folder. A second time nothing happens."""
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
                raise WorkspaceToolError(
                    "not_a_file", f"'{path_text(parts)}' is {_kind(status.st_mode)}, not a regular file"
                )
            yield descriptor, status
        finally:
            os.close(descriptor)

    def look(self, parts: Sequence[str]) -> os.stat_result | None:
        """Return what stands at a path, None for nothing. Raises ToolError, also where it is a link."""
        if not parts:
            return os.fstat(self.fileno())
        try:
            status = self._stat(parts)
        except FileNotFoundError:
            return None
        except WorkspaceToolError as error:
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
        """Have an error of the system say what it means for a call: raise ToolError, WorkspaceGoneError, or what no call can help."""
        try:
            yield
        except OSError as error:
            raise self._explanation(error, parts) from error

    def _explanation(self, error: OSError, parts: Sequence[str]) -> DsaError:
        if error.errno == errno.ENOENT and os.fstat(self.fileno()).st_nlink == 0:
            return WorkspaceGoneError("the folder of the workspace was deleted")
        return _tool_error(error, parts)

    def _stat(self, parts: Sequence[str]) -> os.stat_result:
        """Look at a path, from the folder above it: many times in a round, so without a context manager."""
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


def _tool_error(error: OSError, parts: Sequence[str]) -> WorkspaceToolError:
    """Return what an error means for a call. One that no call can help is raised again as it is."""
    name = path_text(parts)
    match error.errno:
        case errno.ENOENT:
            return WorkspaceToolError("no_such_file", f"there is no '{name}'")
        case errno.ELOOP | errno.EXDEV:
            text = f"'{name}' leads over a symbolic link: links are not followed; use the path of the file itself"
            return WorkspaceToolError("path_outside_workspace", text)
        case errno.ENOTDIR:
            return WorkspaceToolError("not_a_folder", f"'{name}', or a name in it, is a file and not a folder")
        case errno.EISDIR | errno.ENXIO | errno.ENODEV:
            return WorkspaceToolError("not_a_file", f"'{name}' is not a regular file")
        case errno.ENAMETOOLONG:
            return WorkspaceToolError("bad_path", f"'{name}' is too long")
        case errno.EACCES | errno.EPERM:
            return WorkspaceToolError("no_permission", f"the system does not let us open or change '{name}'")
        case errno.EMFILE | errno.ENFILE:
            return WorkspaceToolError(
                "too_large", f"too many files or folders at once, at '{name}': do it in several calls"
            )
        case errno.ENOSPC | errno.EDQUOT | errno.EROFS | errno.EFBIG:
            return WorkspaceToolError("cannot_write", f"'{name}' cannot be written: {os.strerror(error.errno)}")
    raise error


def _open_by_walk(root: int, parts: Sequence[str], flags: int) -> int:
    """Open name by name, each from the folder before it."""
    if len(os.fsencode("/".join(parts))) > LONGEST_PATH:  # as the kernel would
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    at = os.open(".", STEP if parts else flags, dir_fd=root)
    for number, part in enumerate(parts, 1):
        try:
            onward = os.open(part, (flags if number == len(parts) else STEP) | NO_LINK, dir_fd=at)
        except NotADirectoryError as error:  # so is a link where a folder is asked for
            status = os.stat(part, dir_fd=at, follow_symlinks=False)
            raise OSError(errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.ENOTDIR, error.strerror) from error
        finally:
            os.close(at)
        at = onward
    return at


def _open_in_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Have the kernel open the whole path."""
    path = os.fsencode("/".join(parts) or ".")
    how = struct.pack("QQQ", flags, 0, _BENEATH)
    for _ in range(_TRIES):
        descriptor = int(_libc().syscall(_OPENAT2, root, ctypes.c_char_p(path), how, len(how)))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: somebody moves folders about
            break
    raise OSError(number, os.strerror(number))


def _kernel_can(root: int) -> bool:
    """Return whether the kernel has openat2, and lets us call it."""
    if sys.platform != "linux" or os.uname().machine == "alpha":  # where its number is another
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
    """Return what a list of names says of one: file, folder, link or other."""
    return {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}.get(stat.S_IFMT(mode), "other")
