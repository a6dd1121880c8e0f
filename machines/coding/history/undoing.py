"""One undo: what has changed between two states of a workspace is put back, each file only if it still is as it was at the second.

Takes snapshots and an open workspace, gives what was put back and what was left alone. Nothing is given more permissions than it had at first,
nor any that somebody has taken away since. Marks are not known here.
"""

from contextlib import suppress

import attrs

from machines.coding.history import putting
from machines.coding.history.changes import Changed, Conflict, changes, special
from machines.coding.history.ignoring import is_named, parts_of, rules_of
from machines.coding.history.looking import PROGRAM
from machines.coding.history.putting import InTheWay
from machines.coding.history.snapshots import Snapshot, Snapshots
from machines.coding.tools.beneath import Beneath
from machines.coding.tools.errors import ToolError
from machines.coding.tools.writing import sweep


@attrs.define
class Undoing:
    """One undo: from `last` back to `first`, in a workspace that is as at `now`; `made` are files that were not there at first."""

    snapshots: Snapshots
    workspace: Beneath
    first: Snapshot
    last: Snapshot
    now: Snapshot
    made: frozenset[str] = frozenset()
    restored: list[str] = attrs.field(factory=list)
    removed: list[str] = attrs.field(factory=list)
    conflicts: list[Conflict] = attrs.field(factory=list)

    def files(self) -> None:
        """Take away what was made, then put back what was changed or taken away."""
        open_ones = [change for change in changes(self.first, self.last) if self._is_open(change)]
        for change in [change for change in open_ones if change.before is None]:
            self._each(change)
        made = self.last.folders.keys() - self.first.folders.keys()
        for folder in sorted(made, key=lambda path: (-path.count("/"), path)):  # the deepest first
            putting.remove_folder(self.workspace, folder)
        for change in [change for change in open_ones if change.before is not None]:
            self._each(change)
        for folder in sorted({change.path.rpartition("/")[0] for change in changes(self.first, self.last)}):
            self._swept(folder)

    def _swept(self, folder: str) -> None:
        """Take away what an undo that was killed has left, also where nothing is left to put back."""
        with (
            suppress(ToolError, OSError),
            self.workspace.folder([part for part in folder.split("/") if part]) as opened,
        ):
            sweep(opened)

    def folders(self) -> None:
        """Make the folders again that were taken away, and let nobody into others who was kept out."""
        for folder in sorted(self.first.folders):
            parts = [part for part in folder.split("/") if part]
            before, after = self.first.permissions.get(folder), self.last.permissions.get(folder)
            try:
                if folder not in self.last.folders:
                    putting.make_folder(self.workspace, parts, self.first.permissions)
                    with self.workspace.folder(parts):
                        pass
                elif before is not None and before != after and self.now.permissions.get(folder) == after:
                    putting.permit_folder(self.workspace, parts, before)
            except (InTheWay, ToolError) as found:
                self.conflicts.append(Conflict(folder, str(found)))

    def _is_open(self, change: Changed) -> bool:
        """Tell whether a file is still to be put back, and may be."""
        path = change.path
        if self.now.files.get(path) == change.first() and self.now.left_out.get(path) == special(self.first, path):
            was_changed = change.first() != change.last() or special(self.first, path) != special(self.last, path)
            return not was_changed and self._has_permissions_of_last(path)
        reason = self._left_out_now(path) or self._unknown_before(change)
        if reason is not None:
            self.conflicts.append(Conflict(path, reason))
        return reason is None

    def _has_permissions_of_last(self, path: str) -> bool:
        """Tell whether permissions that alone have changed are to be put back."""
        first, last, now = (state.permissions.get(path) for state in (self.first, self.last, self.now))
        if now not in {first, last}:
            self.conflicts.append(Conflict(path, "its permissions were changed since"))
        return now == last

    def _left_out_now(self, path: str) -> str | None:
        """Tell why a file is not known now; what is no file, and was made, is taken away."""
        made = special(self.last, path)
        why = self.now.left_out.get(path)
        return None if made is not None and made == why else why

    def _unknown_before(self, change: Changed) -> str | None:
        """Tell why nobody knows what a file was like at first, or why it is not made again."""
        if gone := special(self.first, change.path):
            return f"it was {gone}: that is not made again"
        if change.before is not None or change.path in self.made:
            return None
        parts = change.path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        if why := next((self.first.left_out[path] for path in above if path in self.first.left_out), None):
            return f"what it was before is not kept: {why}"
        if self._was_ignored(change.path):
            return "a .gitignore named it before: it may have been there already"
        return None

    def _was_ignored(self, path: str) -> bool:
        parts = parts_of(path)
        chain = []
        for depth in range(len(parts)):
            ignore = "/".join([*path.split("/")[:depth], ".gitignore"])
            mode, blob = self.first.files.get(ignore, ("", ""))
            if mode.startswith("100"):
                chain.append((depth, rules_of(self.snapshots.content(blob))))
            if is_named(chain, parts[: depth + 1], is_folder=depth + 1 < len(parts)):
                return True
        return False

    def _each(self, change: Changed) -> None:
        path, target, expected = change.path, change.first(), change.last()
        try:
            if made := special(self.last, path):
                putting.remove_special(self.workspace, path, made)
            if target is not None:
                mode, blob = target
                putting.make_folder(self.workspace, path.split("/")[:-1], self.first.permissions)
                wanted = putting.Content(mode, self._permissions(path, mode), self.snapshots.content(blob))
                putting.put(self.workspace, path, expected, wanted)
                self.restored.append(path)
            else:
                if not made:
                    putting.remove(self.workspace, path, expected)
                self.removed.append(path)
        except InTheWay as found:
            self.conflicts.append(Conflict(path, str(found)))

    def _permissions(self, path: str, mode: str) -> int:
        """Give what a file may be used for: as at first, less what somebody has taken away since the last."""
        first = self.first.permissions.get(path, 0o700 if mode == PROGRAM else 0o600)
        last, now = self.last.permissions.get(path), self.now.permissions.get(path)
        if now is None or now == last:
            return first
        return first & (now | (now & 0o444) >> 2 if mode == PROGRAM else now)
