"""What a command may not change in the workspace: the history, the settings, the records of the one who runs it, and what patterns name.

Takes the workspace and patterns, gives what is to be shown without leave to write; afterwards what has come that they cover is removed, at any
depth, and links are as they were. So is what git would take for a repository, and what no diff shows. It does not know how a command is run.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from dsa.edge.sandbox.folders import flatten
from machines.coding.tools.paths import Protection, shown
from machines.coding.tools.planted import SETTINGS, looked

_CLEANING_S = 10.0
_MOST_TOLD = 50


class Protected:
    """What is protected in a workspace, as it is before a command. Raises ValueError for a pattern that names nothing in it."""

    def __init__(self, root: Path, patterns: Iterable[str]) -> None:
        self._root, self._protection = root, Protection.of(patterns)
        self._links: dict[Path, str] = {}
        self._absent: list[Path] = []
        kept: set[str] = set()
        for name in self._protection.plain_names:
            kept |= self._looked_at(Path(os.path.normpath(root / name)))
        with looked(str(root), self._protection) as self._sight:
            bare = [shape.folder for shape in self._sight.shapes.values() if shape.is_repository]
            inside = (f"{folder}/{name}" for folder in bare for name in SETTINGS)
            for found in (*self._sight.named, *inside):
                kept |= self._looked_at(Path(found))
        self.kept = tuple(sorted(kept))
        self.changed: tuple[str, ...] = ()
        # A command begins to write much later than the system's clock for files is behind.
        self._since_ns = time.time_ns()

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
        inside = (each for each in reversed(way) if each.is_relative_to(self._root) and each != self._root)
        return next((each for each in inside if each.is_symlink()), None)

    def restored(self) -> tuple[str, ...]:
        """Remove what is protected and was made, what makes a folder a repository, and what no diff shows; set links as they were.

        Names what was changed so, of very much the first. `changed` then names the folders of installed programs that are not as they were.
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
        with looked(str(self._root), self._protection, self._since_ns) as sight:
            own = {str(link) for link in self._links}
            planted = [Path(path) for path in sight.planted_since(self._sight) if path not in own]
            for path in planted:
                with suppress(FileNotFoundError):  # somebody else has taken it away
                    _removed(path)
        self.changed = _told(sorted(str(Path(folder).relative_to(self._root)) for folder in sight.changed))
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
