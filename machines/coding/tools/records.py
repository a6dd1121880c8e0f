"""What we write into a workspace about the work on it, for people: it is no part of that work, so no tool shows it, and no change of it counts.

Takes names. What is written there is not known here.
"""

from collections.abc import Iterable

from machines.coding.tools.paths import PROTECTED

RECORDS = tuple(name for name in PROTECTED if name not in {".git", ".dsa"})


def is_record(parts: Iterable[str]) -> bool:
    """Tell whether a path is of, or in, such a file or folder; letter case makes no difference."""
    return any(part.casefold() in RECORDS for part in parts)
