"""What a command may not change in the workspace: the history, the settings, and the records of the one who runs it.

Takes the workspace and names in it, gives what is to be shown without leave to write; afterwards what has been made in the place of a name
that was not there is removed, and links are as they were. So is, at any depth, what git would take for a repository. It does not know how a
command is run.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from dsa.edge.sandbox.folders import flatten
from machines.coding.tools.paths import PROTECTED, shown
from machines.coding.tools.planted import SETTINGS, looked

_CLEANING_S = 10.0
_MOST_TOLD = 50


class Protected:
    """Names in a workspace, as they are before a command. Raises ValueError for a name that leads out of it."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root = root
        self._links: dict[Path, str] = {}
        self._absent: list[Path] = []
        kept: set[str] = set()
        for name in dict.fromkeys((*PROTECTED, *names)):
            path = Path(os.path.normpath(root / name))
            if not path.is_relative_to(root) or path == root:
                raise ValueError(f"'{name}' is no path inside the workspace that could be protected")
            kept |= self._looked_at(path)
        with looked(str(root)) as self._sight:
            bare = [shape.folder for shape in self._sight.shapes.values() if shape.is_repository]
            inside = (f"{folder}/{name}" for folder in bare for name in SETTINGS)
            for found in (*self._sight.named.values(), *inside):
                kept |= self._looked_at(Path(found))
        self.kept = tuple(sorted(kept))

    def _looked_at(self, path: Path) -> set[str]:
        """Note what is there; give what can be mounted."""
        if link := self._link_in(path):
            self._links[link] = str(link.readlink())
            real = Path(os.path.realpath(path))
            inside = real.is_relative_to(self._root) and real != self._root and real.exists()
            return {str(real)} if inside else set()
        if not os.path.lexists(path):
            self._absent.append(path)
            return set()
        return {str(path)}

    def _link_in(self, path: Path) -> Path | None:
        """Give the first symbolic link on the way to a path."""
        way = [path, *path.parents]
        return next(
            (
                each
                for each in reversed(way)
                if each.is_relative_to(self._root) and each != self._root and each.is_symlink()
            ),
            None,
        )

    def restored(self) -> tuple[str, ...]:
        """Remove what was made under a protected name, and what makes a folder a repository; set links as they were.

        Names what was changed so, of very much the first.
        """
        changed = [path for path in self._absent if not self._link_in(path.parent) and os.path.lexists(path)]
        for path in changed:
            _removed(path)
        for link, target in self._links.items():
            if self._link_in(link.parent) or (link.is_symlink() and str(link.readlink()) == target):
                continue
            if os.path.lexists(link):
                _removed(link)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
            changed.append(link)
        return _told([str(path.relative_to(self._root)) for path in (*changed, *self._planted_removed())])

    def _planted_removed(self) -> list[Path]:
        with looked(str(self._root)) as sight:
            own = {str(link) for link in self._links}
            planted = [Path(path) for path in sight.planted_since(self._sight) if path not in own]
            for path in planted:
                _removed(path)
        return planted


def _told(paths: Sequence[str]) -> tuple[str, ...]:
    more = len(paths) - _MOST_TOLD
    return (*map(shown, paths[:_MOST_TOLD]), *([f"and {more:,} more"] if more > 0 else []))


def _removed(path: Path) -> None:
    """Remove a file, a link or a folder, however deep and closed it is, also from a closed folder. Raises OSError."""
    above = stat.S_IMODE(path.parent.stat().st_mode)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        path.parent.chmod(above | stat.S_IRWXU)
    try:
        _removed_from_open(path)
    finally:
        if stat.S_IMODE(path.parent.stat().st_mode) != above:
            path.parent.chmod(above)


def _removed_from_open(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o700)
    flatten(path, time.monotonic() + _CLEANING_S)
    shutil.rmtree(path)
