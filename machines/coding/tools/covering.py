"""Which files of a workspace are protected: found by a walk over all of it, of which a file costs a microsecond.

Takes the workspace and its protection, gives paths. Most names can be the end of no pattern, which one expression tells; the others are judged
as `paths` judges them. No link is followed.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from machines.coding.tools.paths import Pattern, Protection

#: Names that mean another one on some file system (`paths`): they are always judged.
_ODD = re.compile(r"[~:]|[ .]\Z")


def covered_below(root: str, protection: Protection) -> list[str]:
    """Give the paths of what is protected and there, seen from a folder, sorted; of a protected folder the folder alone."""
    may_end = _ends(protection.patterns)
    found: list[str] = []
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(root, prefix)) as entries:  # noqa: PTH118  # gone, or not for us
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if _may_be(entry.name, may_end) and protection.covers(path.split("/")):
                    found.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
    return sorted(found)


def _may_be(name: str, may_end: re.Pattern[str]) -> bool:
    return not name.isascii() or may_end.match(name.lower()) is not None or _ODD.search(name) is not None


def _ends(patterns: Iterable[Pattern]) -> re.Pattern[str]:
    """Give an expression of the names, in small letters, that paths of these patterns end with."""
    return re.compile("|".join(_end(pattern.text) for pattern in patterns))


def _end(text: str) -> str:
    ends: Iterator[str] = (name for name in reversed(text.split("/")) if name not in ("", ".", "**"))
    end = next(ends, "*")
    return fnmatch.translate(end.lower()) if end.isascii() and not _ODD.search(end) else ""
