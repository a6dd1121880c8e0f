"""Planted files: what a command must not leave below a workspace. A walk over all folders finds it, including the ignored ones.

`scan_planted` takes the workspace and returns its protected files; its folders that look like repositories; files that no diff shows; and folders of installed
programs that have changed. Git treats a folder with HEAD, objects and refs as a repository (gitrepository-layout(5)), and `git status` there runs the programs
that its `config` names. No diff shows bytecode, which Python runs in place of the source beside it, and files under the temporary names of our tools. The walk
follows no links. A protected file is known by its device and number, also after a move.
"""

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import attrs

from machines.coding.tools.workspace_boundary import TEMPORARY, PathPattern, Protection

#: The positions in each pattern that a path has reached.
Positions = tuple[frozenset[int], ...]


@attrs.define(eq=False)
class FolderPath:
    """The path of a folder, with the positions in each pattern that it has reached. `into` returns the paths of its entries."""

    patterns: Sequence[PathPattern]
    positions: Positions
    _cache: dict[Positions, "FolderPath"]
    _names: frozenset[str] = attrs.field(init=False)
    _globs: re.Pattern[str] | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Collect the next names of the patterns: plain ones in a set, the others in one expression."""
        names = {
            name for pattern, at in zip(self.patterns, self.positions, strict=True) for name in pattern.next_names(at)
        }
        globs = sorted(name for name in names if set(name) & set("*?["))
        self._names = frozenset(names.difference(globs))
        self._globs = re.compile("|".join(map(fnmatch.translate, globs))) if globs else None

    @classmethod
    def of(cls, protection: Protection) -> "FolderPath":
        """Return the path of the workspace itself."""
        return cls(protection.patterns, tuple(pattern.start for pattern in protection.patterns), {})

    def into(self, name: str, small: str) -> "FolderPath | None":
        """Return the path of an entry by its name, and its name in small letters; None if it is protected."""
        may_go_on = small in self._names or (self._globs is not None and self._globs.match(small))
        return self._child(name) if may_go_on or _is_odd(name) else self._unnamed_child

    @cached_property
    def _unnamed_child(self) -> "FolderPath | None":
        """The path of an entry that no pattern names."""
        return self._child(None)

    def _child(self, name: str | None) -> "FolderPath | None":
        positions = tuple(pattern.onward(at, name) for pattern, at in zip(self.patterns, self.positions, strict=True))
        if any(pattern.is_whole(at) for pattern, at in zip(self.patterns, positions, strict=True)):
            return None
        if positions not in self._cache:
            self._cache[positions] = FolderPath(self.patterns, positions, self._cache)
        return self._cache[positions]


def _is_odd(name: str) -> bool:
    """Return whether a name may mean another one on some file system (`workspace_boundary`), so that patterns always check it."""
    return not name.isascii() or "~" in name or ":" in name or name[-1] in " ."


#: The parts of a repository that can start programs, or lead to another repository.
SETTINGS = ("HEAD", "config", "config.worktree", "commondir", "hooks")
_PARTS = ("head", "commondir", "refs", "objects")
_BYTECODE, _CACHE, _VIRTUAL = ".pyc", "__pycache__", "pyvenv.cfg"
#: Folders of programs that the history leaves out.
_PROGRAM_FOLDERS = frozenset({".venv", "node_modules", ".tox", ".nox", ".eggs"})

#: Device and number of a file.
Number = tuple[int, int]
#: Number, mode, size in bytes, times of change of content and of the file in ns; of a folder the number alone.
Stamp = tuple[int, ...]


@attrs.frozen
class RepositoryShape:
    """A folder with parts of a repository: `names` are the written names, by their names in small letters."""

    folder: str
    names: dict[str, str]

    @property
    def is_repository(self) -> bool:
        """Return whether git would take it for a bare repository."""
        return "head" in self.names and ("commondir" in self.names or {"objects", "refs"} <= self.names.keys())

    def new_part(self, before: "RepositoryShape | None") -> str | None:
        """Return the path of the part that made it a repository; None if it is not one, or was one before."""
        if not self.is_repository or (before is not None and before.is_repository):
            return None
        old_names = before.names if before is not None else {}
        return next(
            f"{self.folder}/{self.names[part]}" for part in _PARTS if part in self.names and part not in old_names
        )


@attrs.frozen
class ProtectedFiles:
    """The result of a scan: numbers of protected files by path, only the topmost, and shapes of folders by their numbers.

    `links` are the paths of protected links. `unseen` are files that no diff shows, by path; `changed_folders` are folders of installed programs with a change since
    a time.
    """

    protected_numbers: dict[str, Number] = attrs.field(factory=dict)
    links: set[str] = attrs.field(factory=set)
    shapes: dict[Number, RepositoryShape] = attrs.field(factory=dict)
    unseen: dict[str, Stamp] = attrs.field(factory=dict)
    changed_folders: set[str] = attrs.field(factory=set)

    def name(self, entry: os.DirEntry[str]) -> None:
        """Record a protected file."""
        self.protected_numbers[entry.path] = _number(entry.stat(follow_symlinks=False))
        if entry.is_symlink():
            self.links.add(entry.path)

    def planted_since(self, before: "ProtectedFiles") -> list[str]:
        """Return the paths of new files that a program would read, only the topmost.

        A link is not known by its number: once it is removed, another file may get the same number, and no mount prevents that.
        """
        old_numbers = {number for path, number in before.protected_numbers.items() if path not in before.links}
        new = {path for path, number in self.protected_numbers.items() if number not in old_numbers}
        new |= {path for number, shape in self.shapes.items() if (path := shape.new_part(before.shapes.get(number)))}
        new |= {path for path, stamp in self.unseen.items() if before.unseen.get(path) != stamp}
        uppermost: list[str] = []
        for path in sorted(new, key=lambda path: path.split("/")):
            if not uppermost or not path.startswith(f"{uppermost[-1]}/"):
                uppermost.append(path)
        return uppermost


@contextmanager
def scan_planted(root: str, protection: Protection, since_ns: int | None = None) -> Iterator[ProtectedFiles]:
    """Scan a workspace. Folders that are closed to their owner are opened until the end, and then closed again.

    With `since_ns` the result has the folders of installed programs with a change at that time or later.
    """
    closed_folders: list[tuple[str, int]] = []
    findings = ProtectedFiles()
    try:
        stack = [_Folder(root, FolderPath.of(protection), since_ns)]
        while stack:
            folder = stack.pop()
            _open_up(folder.path, closed_folders)
            # Gone, not ours, or too long a path: for git too.
            with suppress(OSError), os.scandir(folder.path) as entries:
                stack += folder.look_into(entries, findings)
        yield findings
    finally:
        for path, mode in reversed(closed_folders):
            with suppress(FileNotFoundError):
                os.chmod(path, mode)  # noqa: PTH101  (a walk of many)


@attrs.frozen
class _Folder:
    """A folder to scan. `is_unseen`: no diff shows its files. `program_folder` is the folder of installed programs around it, or empty."""

    path: str
    way: FolderPath
    since_ns: int | None
    is_unseen: bool = False
    program_folder: str = ""

    def look_into(self, entries: Iterator[os.DirEntry[str]], findings: ProtectedFiles) -> "list[_Folder]":
        """Record its entries; return the folders to scan next."""
        further: list[_Folder] = []
        parts: dict[str, str] = {}
        for entry in entries:
            name = entry.name
            plain = name.lower()
            way = self.way.into(name, plain)
            if way is None:
                findings.name(entry)
            elif entry.is_dir(follow_symlinks=False):
                further.append(self._below(entry, plain, way))
            if self.is_unseen or plain.endswith((_BYTECODE, _CACHE)) or plain.startswith(TEMPORARY):
                self._note_unseen(entry, plain, findings)
            if self.program_folder or plain in _PROGRAM_FOLDERS:
                self._note_changed(self.program_folder or entry.path, entry, findings)
            if plain in _PARTS or plain == _VIRTUAL:
                parts[plain] = name
        if parts.pop(_VIRTUAL, "") and not self.program_folder:
            further = [attrs.evolve(each, program_folder=self.path) for each in further]
            for each in further:
                self._note_changed(self.path, Path(each.path), findings)
        if parts:
            findings.shapes[_number(os.stat(self.path))] = RepositoryShape(self.path, parts)  # noqa: PTH116
        return further

    def _below(self, entry: os.DirEntry[str], plain: str, way: FolderPath) -> "_Folder":
        is_unseen = self.is_unseen or plain == _CACHE or plain.startswith(TEMPORARY)
        program_folder = self.program_folder or (entry.path if plain in _PROGRAM_FOLDERS else "")
        return _Folder(entry.path, way, self.since_ns, is_unseen, program_folder)

    def _note_unseen(self, entry: os.DirEntry[str], plain: str, findings: ProtectedFiles) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (self.is_unseen or plain == _CACHE or plain.startswith(TEMPORARY) or not is_folder):
            return  # a folder with such a name
        with suppress(FileNotFoundError):  # another process has removed it
            at = entry.stat(follow_symlinks=False)
            times = () if is_folder else (at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
            findings.unseen[entry.path] = (*_number(at), *times)

    def _note_changed(self, program_folder: str, entry: os.DirEntry[str] | Path, findings: ProtectedFiles) -> None:
        """Record that a folder of installed programs has changed; once it is recorded, the rest of it is skipped."""
        if self.since_ns is not None and program_folder not in findings.changed_folders:
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_ctime_ns >= self.since_ns:
                    findings.changed_folders.add(program_folder)


def is_head(name: str) -> bool:
    """Return whether a file of this name makes a folder a repository."""
    return name.lower() == "head"


def _number(status: os.stat_result) -> Number:
    return status.st_dev, status.st_ino


def _open_up(folder: str, closed_folders: list[tuple[str, int]]) -> None:
    if not os.access(folder, os.R_OK | os.X_OK):
        with suppress(OSError):
            mode = stat.S_IMODE(os.lstat(folder).st_mode)
            os.chmod(folder, mode | stat.S_IRWXU)  # noqa: PTH101
            closed_folders.append((folder, mode))
