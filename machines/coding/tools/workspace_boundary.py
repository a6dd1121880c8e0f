"""The boundary of the workspace: paths that a model has written as names, the patterns of files that are never written, and `Beneath`, which opens the files.

`parts_of` returns the names that lead from the workspace to a file. It reads no file, and removes `..` by name, because `Beneath` follows no links.

`Beneath` opens files beneath a folder, and no others, whatever other processes do to the files meanwhile. It takes the names of a path, and yields descriptors. It follows no links, at the end of the path or on the way; it does not
wait for a FIFO, and does not take over a terminal. The kernel checks a whole path in one call if it can (openat2, Linux 5.6); otherwise each name is opened from
the folder before it.

The constants of the second half are flags for `os.open`, which Python has only where the system does. `CAN_OPEN` is false when one is missing; then nothing may be opened.
"""

import ctypes
import errno
import fnmatch
import os
import re
import stat
import struct
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import attrs

from dsa.errors import DsaError, ToolError

#: Never written, at any depth, in addition to the user's patterns.
PROTECTED_NAMES = (".git", ".dsa", ".agent_context", "agent_ledger.log")
#: Our records in a workspace for people. They are not part of the work, so no tool shows them, and their changes do not count.
RECORDS = PROTECTED_NAMES[2:]
#: Folders and files that other programs can create again. They are left out at any depth.
TOOL_FOLDERS = frozenset({
    ".git", ".dsa", *RECORDS, "__pycache__", ".venv", "node_modules", ".cache", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints", ".eggs", ".ds_store",
})  # fmt: skip
#: Folders that tools neither list nor search. A file in one may be read by its path.
CLOSED_FOLDERS = frozenset({".git", ".dsa"})
#: The prefix of temporary files.
TEMPORARY = ".dsa~"
#: The most bytes of a path, and the most names.
LONGEST_PATH, DEEPEST = 4_000, 64
_LONGEST_NAME, _LONGEST_SHOWN = 255, 120
_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BESIDE = "write it relative to the workspace, such as 'src/app.py'"


def shown_path(text: str, plain_chars: str = "") -> str:
    """Return a text with everything escaped that does not print, except the characters in `plain_chars`: line breaks, controls, bad bytes."""
    return "".join(c if c.isprintable() or c in plain_chars else ascii(c)[1:-1] for c in text)


def path_text(parts: Sequence[str]) -> str:
    """Return a path as it is shown and recorded; the workspace itself is '.'. If all of it prints, `parts_of` reads it back."""
    text = shown_path("/".join(parts))
    needs_dot = text.startswith("~") or _DRIVE.match(text) or not text.strip()
    return f"./{text}" if parts and needs_dot else text or "."


def parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of a path from the workspace on; none for the workspace itself.

    An absolute path is read as a relative one if it begins with one of `roots`. Raises ToolError `bad_path`, `path_outside_workspace`.
    """
    text = _require_path(path)
    pieces = [piece for piece in text.split("/") if piece not in ("", ".")]
    if text.startswith("/"):
        pieces = _below(pieces, roots, text)
    parts: list[str] = []
    for piece in pieces:
        if piece != "..":
            parts.append(piece)
        elif parts:
            parts.pop()
        else:
            raise ToolError(f"'{_cut(text)}' leads out of the workspace: {_BESIDE}", code="path_outside_workspace")
    if len(parts) > DEEPEST:
        raise ToolError(f"'{_cut(text)}' is too deep: a path can have at most {DEEPEST} names", code="bad_path")
    return tuple(parts)


def file_parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the path of a file. Raises ToolError as `parts_of`, and `not_a_file`."""
    parts = parts_of(path, roots)
    if not parts or str(path).endswith(("/", "/.", "/..")):
        raise ToolError(
            f"'{_cut(str(path))}' is the path of a folder; a file is needed, such as 'src/app.py'", code="not_a_file"
        )
    return parts


def _require_path(path: object) -> str:
    """Return a text that can be a path. Raises ToolError."""
    if not isinstance(path, str) or not path.strip():
        raise ToolError("a path is needed, such as 'src/app.py'", code="bad_path")
    for wrong, why in (
        ("\0" in path, "has a NUL character"),
        ("\\" in path, "has a backslash; folders are written with '/'"),
        (_URL.match(path), "is a URL, not a path"),
        (any("\ud800" <= c <= "\udfff" for c in path), "has half a character (a lone surrogate)"),
    ):
        if wrong:
            raise ToolError(f"'{_cut(path)}' {why}: {_BESIDE}", code="bad_path")
    if _DRIVE.match(path) or path.startswith("~"):
        raise ToolError(f"'{_cut(path)}' is not a path in the workspace: {_BESIDE}", code="path_outside_workspace")
    if len(path.encode()) > LONGEST_PATH or any(len(name.encode()) > _LONGEST_NAME for name in path.split("/")):
        raise ToolError(f"'{_cut(path)}' is too long: a name can have at most {_LONGEST_NAME} bytes", code="bad_path")
    return path


def _below(pieces: list[str], roots: Iterable[str], text: str) -> list[str]:
    """Return the names after the workspace's own path. Raises ToolError when the path begins otherwise."""
    for root in roots:
        above = [piece for piece in root.split("/") if piece]
        if pieces[: len(above)] == above:
            return pieces[len(above) :]
    raise ToolError(f"'{_cut(text)}' is an absolute path: {_BESIDE}", code="path_outside_workspace")


def _cut(text: str) -> str:
    return shown_path(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..")


@attrs.frozen
class PathPattern:
    """A glob pattern: `*`, `?`, `[..]` in a name, `**` for folders at any depth. Without `/` it matches a name in any folder.

    Letter case makes no difference, nor do characters that some file systems ignore in names.
    """

    text: str
    _globs: tuple[str, ...] = attrs.field(init=False, repr=False, eq=False)
    _names: tuple[re.Pattern[str] | None, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        """Translate the pattern, name by name; None is `**`. Raises ValueError for a pattern that names nothing."""
        names = [name for name in self.text.split("/") if name not in ("", ".")]
        if not names:
            raise ValueError(f"'{self.text}' is not a pattern: it has no name of a file or folder")
        if ".." in names or names[0].startswith("~"):
            raise ValueError(f"'{self.text}' leads out of the workspace: write a pattern relative to its root")
        if "/" not in self.text.rstrip("/"):
            names = ["**", *names]
        globs = tuple(name if name == "**" else _plain(name) for name in names)
        patterns = tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in globs)
        object.__setattr__(self, "_globs", globs)
        object.__setattr__(self, "_names", patterns)

    def matches(self, parts: Sequence[str]) -> bool:
        """Return whether it matches a path."""
        return self.is_whole(self._lengths(parts)[-1])

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether it matches a path, or a folder above it."""
        return any(self.is_whole(positions) for positions in self._lengths(parts)[1:])

    def _lengths(self, parts: Sequence[str]) -> list[frozenset[int]]:
        """Return, for each number of names of the path, the positions in the pattern that they reach."""
        lengths = [self.start]
        for part in parts:
            lengths.append(self.onward(lengths[-1], part))
        return lengths

    # -- name by name -------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> frozenset[int]:
        """The positions of the workspace itself, whose path has no names."""
        return self._with_nothing({0})

    def onward(self, positions: frozenset[int], name: str | None) -> frozenset[int]:
        """Return the positions after one more name; None is a name that only `**` can match."""
        plain = None if name is None else _plain(name)
        left = [(at, self._names[at]) for at in positions if at < len(self._names)]
        return self._with_nothing({at if each is None else at + 1 for at, each in left if _stands_for(each, plain)})

    def is_whole(self, positions: frozenset[int]) -> bool:
        """Return whether the positions include the end of the pattern."""
        return len(self._names) in positions

    def next_names(self, positions: frozenset[int]) -> list[str]:
        """Return the globs at the positions, except `**`, in the form in which names are compared."""
        return [self._globs[at] for at in positions if at < len(self._names) and self._names[at] is not None]

    def _with_nothing(self, places: set[int]) -> frozenset[int]:
        """Add the positions after a `**` that matches no name."""
        for at in range(len(self._names)):
            if at in places and self._names[at] is None:
                places.add(at + 1)
        return frozenset(places)


def _stands_for(pattern: re.Pattern[str] | None, name: str | None) -> bool:
    return pattern is None or (name is not None and pattern.match(name) is not None)


@lru_cache(4096)  # each call compares the same few names with every pattern
def _plain(name: str) -> str:
    """Return a name as the least precise file system sees it, without letter case, invisible characters, and dots at the end."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf").casefold()
    plain = plain.split(":")[0] or plain  # a stream of NTFS: `.git::$INDEX_ALLOCATION`
    return re.sub(r"^git~\d$", ".git", plain.rstrip(" .") or plain)


@attrs.frozen
class Protection:
    """The files that are never written: `PROTECTED_NAMES`, and those of the user's patterns."""

    patterns: tuple[PathPattern, ...]

    @classmethod
    def of(cls, further: Iterable[str]) -> "Protection":
        """Return a protection with these patterns too."""
        return cls(tuple(PathPattern(text) for text in dict.fromkeys((*PROTECTED_NAMES, *further))))

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The paths of patterns that are not globs."""
        return tuple(each.text.lstrip("/") for each in self.patterns if not any(sign in each.text for sign in "*?["))

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether a path is protected."""
        return any(pattern.covers(parts) for pattern in self.patterns)

    def check(self, parts: Sequence[str]) -> None:
        """Raise ToolError for a file that may not be written: `protected_path`, or `bad_path` for a name that does not print."""
        for pattern in self.patterns:
            if pattern.covers(parts):
                text = f"'{path_text(parts)}' is protected ('{shown_path(pattern.text)}') and is never written: write another file"
                raise ToolError(text, code="protected_path")
        if any(is_temporary(part) for part in parts):
            raise ToolError(f"names that begin with '{TEMPORARY}' are reserved for the tools", code="protected_path")
        if not all(part.isprintable() for part in parts):
            raise ToolError(
                f"'{path_text(parts)}' has characters that do not print: leave them out of the name", code="bad_path"
            )


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file."""
    return _plain(name).startswith(TEMPORARY)


def is_closed(parts: Sequence[str]) -> bool:
    """Return whether a path is, or is in, a folder that is not listed or searched."""
    return any(_plain(part) in CLOSED_FOLDERS for part in parts)


def is_record(parts: Iterable[str]) -> bool:
    """Return whether a path is, or is in, one of RECORDS; letter case makes no difference."""
    return any(part.casefold() in RECORDS for part in parts)


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
                "this system cannot open files beneath an open folder (openat), so dsa cannot confine a model to a folder here; on Windows, use WSL",
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
                f"too many files or folders are open at once, at '{name}': split the work into several calls",
                code="too_large",
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
