"""What has changed between two states of a workspace, file by file.

Takes snapshots, gives values. Pure.
"""

from collections.abc import Iterator

import attrs

from machines.coding.history.looking import SPECIAL
from machines.coding.history.putting import Kept
from machines.coding.history.snapshots import Snapshot


@attrs.frozen
class Changed:
    """A file that is another at two marks: (ids of) its contents as blobs, None where there was none.

    Modes are git's: 100644, 100755 for what can be run, 120000 for a link, whose content is where it leads.
    """

    path: str
    before: str | None
    after: str | None
    mode_before: str | None = None
    mode_after: str | None = None

    def first(self) -> Kept:
        """Give mode and id before."""
        return (self.mode_before, self.before) if self.mode_before and self.before else None

    def last(self) -> Kept:
        """Give mode and id after."""
        return (self.mode_after, self.after) if self.mode_after and self.after else None


@attrs.frozen
class Conflict:
    """A file that was left alone, and why."""

    path: str
    reason: str


def changes(first: Snapshot, last: Snapshot) -> tuple[Changed, ...]:
    """Give what is another in two states, by path: contents, modes, permissions, and what is no file."""
    nothing = (None, None)
    found = []
    paths = first.files.keys() | last.files.keys() | first.left_out.keys() | last.left_out.keys()
    for path in sorted(paths):
        (mode, before), (mode_after, after) = first.files.get(path, nothing), last.files.get(path, nothing)
        is_other = (mode, before) != (mode_after, after) or special(first, path) != special(last, path)
        if is_other or is_permitted_otherwise(first, last, path):
            found.append(Changed(path, before, after, mode, mode_after))
    return tuple(found)


def permitted(first: Snapshot, last: Snapshot) -> Iterator[tuple[str, int, int]]:
    """Give the files and folders that have other permissions, by path, with those before and after: but for what git tells by a file's mode."""
    for path in sorted(first.permissions.keys() & last.permissions.keys()):
        old, new = first.permissions[path], last.permissions[path]
        if old != new and first.files.get(path, ("", ""))[0] == last.files.get(path, ("", ""))[0]:
            yield path or ".", old, new


def is_permitted_otherwise(first: Snapshot, last: Snapshot, path: str) -> bool:
    """Tell whether permissions differ; what had none that are known is left as it is."""
    old, new = first.permissions.get(path), last.permissions.get(path)
    return old is not None and new is not None and old != new


def special(state: Snapshot, path: str) -> str | None:
    """Give what stands at a path and is no file; None for all else."""
    kind = state.left_out.get(path)
    return kind if kind in SPECIAL.values() else None
