"""What git, and we, would take settings from below a workspace: found by a walk over all of its folders, those that are ignored too.

Takes the workspace, gives what stands in it under a protected name, and folders that are repositories by what is in them: git takes a folder for
one that has HEAD, objects and refs (gitrepository-layout(5)), and then has programs run that its `config` names, for whoever asks for the
status there. No link is followed. What is known by its number is the same when it was moved. What is done about it is not known here.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs

from machines.coding.tools.paths import PROTECTED, Protection

#: What in a repository has programs run, or leads to another one.
SETTINGS = ("HEAD", "config", "config.worktree", "commondir", "hooks")
_PARTS = ("head", "commondir", "refs", "objects")
_ALWAYS = Protection.of(())

#: Device and number of a file.
Number = tuple[int, int]


@attrs.frozen
class Shape:
    """A folder in which there is something that repositories have: `names` as they are written, by how they are compared."""

    folder: str
    names: dict[str, str]

    @property
    def is_repository(self) -> bool:
        """Tell whether git would take it for a repository without a work tree."""
        return "head" in self.names and ("commondir" in self.names or {"objects", "refs"} <= self.names.keys())

    def added(self, before: "Shape | None") -> str | None:
        """Give the path of what has made it a repository; None if it is none, or was one."""
        if not self.is_repository or (before is not None and before.is_repository):
            return None
        known = before.names if before is not None else {}
        return next(f"{self.folder}/{self.names[part]}" for part in _PARTS if part in self.names and part not in known)


@attrs.frozen
class Sight:
    """What was found: paths of protected names, the uppermost only, and shapes of folders, each by its number."""

    named: dict[Number, str] = attrs.field(factory=dict)
    shapes: dict[Number, Shape] = attrs.field(factory=dict)

    def planted_since(self, before: "Sight") -> list[str]:
        """Give the paths of what has come since, and would be read."""
        new = {path for number, path in self.named.items() if number not in before.named}
        new |= {path for number, shape in self.shapes.items() if (path := shape.added(before.shapes.get(number)))}
        return sorted(new)


@contextmanager
def looked(root: str) -> Iterator[Sight]:
    """Look at a workspace. Folders that are closed to their owner are open to us until the end, and then as they were."""
    closed: list[tuple[str, int]] = []
    found = Sight()
    try:
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            _open_up(folder, closed)
            # Gone, of somebody else, or too long a path: for git too.
            with suppress(OSError), os.scandir(folder) as entries:
                waiting += _inside(folder, entries, found)
        yield found
    finally:
        for folder, mode in reversed(closed):
            with suppress(FileNotFoundError):
                os.chmod(folder, mode)  # noqa: PTH101  (a walk of many)


def _inside(folder: str, entries: Iterator[os.DirEntry[str]], found: Sight) -> list[str]:
    """Take down what is in a folder; give the folders to look at next."""
    further, parts = [], {}
    for entry in entries:
        name = entry.name
        if is_named(name):
            found.named[_number(entry.stat(follow_symlinks=False))] = entry.path
        elif entry.is_dir(follow_symlinks=False):
            further.append(entry.path)
        if (plain := name.lower()) in _PARTS:
            parts[plain] = name
    if parts:
        found.shapes[_number(os.stat(folder))] = Shape(folder, parts)  # noqa: PTH116
    return further


def is_named(name: str) -> bool:
    """Tell whether a name is protected always."""
    return name.lower() in PROTECTED if name.isascii() else _ALWAYS.covers((name,))


def is_head(name: str) -> bool:
    """Tell whether a file of this name is what makes a folder a repository."""
    return name.lower() == "head"


def _number(found: os.stat_result) -> Number:
    return found.st_dev, found.st_ino


def _open_up(folder: str, closed: list[tuple[str, int]]) -> None:
    if not os.access(folder, os.R_OK | os.X_OK):
        with suppress(OSError):
            mode = stat.S_IMODE(os.lstat(folder).st_mode)
            os.chmod(folder, mode | stat.S_IRWXU)  # noqa: PTH101
            closed.append((folder, mode))
