"""What a command may not change in the workspace: the history, the settings, and the records of the one who runs it.

Takes the workspace and names in it, gives what is to be shown without leave to write; afterwards what has been made in the place of a name
that was not there is removed, and links are as they were. It does not know how a command is run.
"""

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from dsa.edge.sandbox.folders import _flatten

#: Protected always.
ALWAYS = (".git", ".dsa", ".agent_context", "agent_ledger.log")
_CLEANING_S = 10.0


class Protected:
    """Names in a workspace, as they are before a command. Raises ValueError for a name that leads out of it."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root = root
        self._links: dict[Path, str] = {}
        self._absent: list[Path] = []
        kept: set[str] = set()
        for name in dict.fromkeys((*ALWAYS, *names)):
            path = Path(os.path.normpath(root / name))
            if not path.is_relative_to(root) or path == root:
                raise ValueError(f"'{name}' is no path inside the workspace that could be protected")
            kept |= self._looked_at(path)
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
        """Remove what was made under a protected name, set links as they were; name what was changed so."""
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
        return tuple(str(path.relative_to(self._root)) for path in changed)


def _removed(path: Path) -> None:
    """Remove a file, a link or a folder, however deep and closed it is. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o700)
    _flatten(path, time.monotonic() + _CLEANING_S)
    shutil.rmtree(path)
