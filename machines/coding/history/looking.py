"""What stands in a workspace, as git would keep it: found by looking at every file, read again only where it may have changed.

Takes an open folder and what was seen the last time, gives every file with its mode and its id as a blob. No link is followed, also when
folders are replaced by links meanwhile. Where contents are kept is not known here.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import attrs

from dsa.errors import DsaError
from machines.coding.history.ignoring import Rule, is_named, parts_of, rules_of
from machines.coding.tools.opening import FOLDER, READ
from machines.coding.tools.paths import RECORDS, TEMPORARY

FILE, PROGRAM, LINK = "100644", "100755", "120000"
LARGEST_BYTES = 5_000_000
#: Left out wherever they stand: what other programs keep for themselves, and can make again.
CLOSED = frozenset({
    ".git", ".dsa", *RECORDS, "__pycache__", ".venv", "node_modules", ".cache", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints", ".eggs", ".ds_store",
})  # fmt: skip
#: What is no file, as it is told why it is left out.
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_PERMISSIONS = 0o777
_DEEPEST = 100
_MOST = 100_000
_IGNORE, _VIRTUAL = ".gitignore", "pyvenv.cfg"
#: A file that was changed so short before it was read may be changed once more without a change of its times.
_TICK_NS, _SECOND_NS = 50_000_000, 1_000_000_000

#: What changes with a file: mode, size in bytes, times of change of content and of the file in ns, number.
Stamp = tuple[int, int, int, int, int]


class HistoryError(DsaError):
    """Raised when what a workspace was like cannot be kept, or is not known."""


@attrs.frozen(slots=True)
class Seen:
    """A file as it was seen. `settled`: as long as its stamp is the same, so is its content."""

    stamp: Stamp
    mode: str
    blob: str
    settled: bool

    @property
    def permissions(self) -> int | None:
        """Who may do what with it; None for a link."""
        return None if self.mode == LINK else self.stamp[0] & _PERMISSIONS


@attrs.define
class Sight:
    """Everything that was seen. `folders` are all of them with their permissions, empty ones and the workspace itself ('') too.

    `left_out` says why a file is not among `files`.
    """

    files: dict[str, Seen] = attrs.field(factory=dict)
    folders: dict[str, int] = attrs.field(factory=dict)
    left_out: dict[str, str] = attrs.field(factory=dict)


def blob_id(content: bytes) -> str:
    """Give the id that git gives to a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def look(
    root: int,
    before: Mapping[str, Seen],
    folders: frozenset[str],
    keep: Callable[[str, bytes], None],
    own: tuple[int, int],
    also: Collection[str] = (),
) -> Sight:
    """Give what stands in a folder.

    `before` are the files of the last time, `folders` those that held them: they are looked at also when a `.gitignore` names them now, as
    git does, and so are the files `also`, wherever they lie. `keep` is given the id and the content of each file that had to be read. `own` is
    device and number of a folder that is left out. Raises HistoryError for more files than can be kept.
    """
    above = {"/".join(parts[:depth]) for parts in (path.split("/") for path in also) for depth in range(1, len(parts))}
    looking = _Looking(before, folders, frozenset(also), above, keep, own)
    looking.folder(root, "", ())
    return looking.sight


def read_file(folder: int, name: str) -> tuple[str, bytes] | None:
    """Give mode and content of a file or link, None where neither is. Raises OSError, and HistoryError for one that is too large."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return LINK, os.fsencode(os.readlink(name, dir_fd=folder))
        if not stat.S_ISREG(found.st_mode):
            return None
        read = _read(folder, name)
    except FileNotFoundError:
        return None
    if read is None:
        raise HistoryError(f"'{name}' is larger than {LARGEST_BYTES:,} bytes, or no regular file any more")
    return _mode(read[0].st_mode), read[1]


@attrs.define
class _Looking:
    before: Mapping[str, Seen]
    folders: frozenset[str]
    also: frozenset[str]
    above: Collection[str]
    keep: Callable[[str, bytes], None]
    own: tuple[int, int]
    sight: Sight = attrs.field(factory=Sight)

    def folder(
        self, opened: int, prefix: str, chain: Sequence[tuple[int, tuple[Rule, ...]]], *, is_closed: bool = False
    ) -> None:
        """Look at everything in a folder; `prefix` ends with a slash, or is empty. `chain` are the rules of the folders above it.

        In one that `is_closed` only what was asked for is looked at, or was looked at the last time.
        """
        with os.scandir(opened) as entries:
            listed = list(entries)
        here, names = prefix[:-1], {entry.name for entry in listed}
        if here and _VIRTUAL in names and f"{prefix}{_VIRTUAL}" not in self.before:
            if here not in self.folders and here not in self.above:
                self.sight.left_out[here] = "a virtual environment"
                return
            is_closed = True
        found = [
            entry
            for entry in listed
            if not (is_closed or _is_closed(entry.name)) or self._is_wanted(prefix + entry.name)
        ]
        self.sight.folders[here] = os.fstat(opened).st_mode & _PERMISSIONS
        rules = self._rules(opened) if _IGNORE in names else ()
        chain = [*chain, (prefix.count("/"), rules)] if rules else chain
        for entry in found:
            path = prefix + entry.name
            is_wanted = self._is_wanted(path)
            if entry.is_dir(follow_symlinks=False):
                if is_wanted or not _is_ignored(chain, path, is_folder=True):
                    self._into(opened, path, chain, is_closed=is_closed or _is_closed(entry.name))
            elif is_wanted or not _is_ignored(chain, path, is_folder=False):
                with suppress(FileNotFoundError):  # gone since it was listed
                    self._file(opened, entry.name, path, entry.stat(follow_symlinks=False))
        if len(self.sight.files) > _MOST:
            raise HistoryError(
                f"the workspace has more than {_MOST:,} files: name what is not worked on in a .gitignore"
            )

    def _is_wanted(self, path: str) -> bool:
        """Tell whether something is looked at whatever its name is."""
        return path in self.before or path in self.folders or path in self.also or path in self.above

    def _rules(self, opened: int) -> tuple[Rule, ...]:
        try:
            read = _read(opened, _IGNORE)
        except OSError:  # a link, as git has it, or gone, or not for us: it names nothing
            return ()
        return rules_of(read[1]) if read else ()

    def _into(self, above: int, path: str, chain: Sequence[tuple[int, tuple[Rule, ...]]], *, is_closed: bool) -> None:
        if path.count("/") >= _DEEPEST:
            self.sight.left_out[path] = f"deeper than {_DEEPEST} folders"
            return
        try:
            opened = os.open(path.rpartition("/")[2], FOLDER, dir_fd=above)
        except (FileNotFoundError, NotADirectoryError):  # gone, or something else, since it was listed
            return
        except PermissionError:
            self.sight.left_out[path] = "cannot be read"
            return
        try:
            found = os.fstat(opened)
            if (found.st_dev, found.st_ino) != self.own:
                self.folder(opened, path + "/", chain, is_closed=is_closed)
        finally:
            os.close(opened)

    def _file(self, folder: int, name: str, path: str, found: os.stat_result) -> None:
        seen = self.before.get(path)
        if seen is not None and seen.settled and seen.stamp == _stamp(found):
            self.sight.files[path] = seen
        elif stat.S_ISLNK(found.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            self._keep(path, LINK, target, found, settled=True)  # a link is never changed, only replaced
        elif stat.S_ISREG(found.st_mode):
            self._regular(folder, name, path)
        else:
            self.sight.left_out[path] = SPECIAL[stat.S_IFMT(found.st_mode)]

    def _regular(self, folder: int, name: str, path: str) -> None:
        now_ns = time.time_ns()
        try:
            read = _read(folder, name)
        except FileNotFoundError:
            return
        except OSError as fault:
            self.sight.left_out[path] = f"cannot be read: {fault.strerror}"
            return
        if read is None:
            self.sight.left_out[path] = f"over {LARGEST_BYTES:,} bytes"
            return
        found, content = read
        tick_ns = _TICK_NS if found.st_ctime_ns % _SECOND_NS else 2 * _SECOND_NS  # such a file system counts seconds
        self._keep(path, _mode(found.st_mode), content, found, settled=found.st_ctime_ns < now_ns - tick_ns)

    def _keep(self, path: str, mode: str, content: bytes, found: os.stat_result, *, settled: bool) -> None:
        blob = blob_id(content)
        self.keep(blob, content)
        self.sight.files[path] = Seen(_stamp(found), mode, blob, settled)


def _read(folder: int, name: str) -> tuple[os.stat_result, bytes] | None:
    """Read a regular file, with how it was before that; None when it is none, or too large. Raises OSError."""
    opened = os.open(name, READ, dir_fd=folder)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_BYTES:
            return None
        content = bytearray()
        while len(content) <= LARGEST_BYTES and (piece := os.read(opened, max(found.st_size - len(content), 0) + 1)):
            content += piece
    finally:
        os.close(opened)
    return (found, bytes(content)) if len(content) <= LARGEST_BYTES else None


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _mode(mode: int) -> str:
    return PROGRAM if mode & stat.S_IXUSR else FILE


def _is_closed(name: str) -> bool:
    return name.lower() in CLOSED or name.startswith(TEMPORARY)


def _is_ignored(chain: Sequence[tuple[int, tuple[Rule, ...]]], path: str, *, is_folder: bool) -> bool:
    return bool(chain) and is_named(chain, parts_of(path), is_folder=is_folder)
