"""Marks: the states of a workspace in a git repository, their differences, and undo.

`WorkspaceHistory` takes the folder of the workspace, and a folder of our own for a bare repository (never the workspace's). It returns ids of commits,
differences, and the result of an undo, which restores a file only if it is still as it was at the second mark. Only `undo` writes into the
workspace. `git --git-dir=FOLDER log runs/workspace` shows the marks.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from secrets import token_hex

import attrs

from dsa.errors import ToolError
from machines.coding.history import snapshots
from machines.coding.history.snapshots import FileVersion, Snapshot, Snapshots
from machines.coding.history.workspace_scan import (
    IGNORED_AT_START,
    PROGRAM,
    SPECIAL,
    FileState,
    IgnoreRule,
    ScanBudget,
    WorkspaceState,
    history_error,
    is_named,
    look,
    parts_of,
    rules_of,
    unkept,
)
from machines.coding.tools.file_writer import sweep
from machines.coding.tools.git_process import GitBounds, run_git_process
from machines.coding.tools.workspace_boundary import ROOT, Beneath


@attrs.frozen
class ChangedFile:
    """A file that differs at two marks: the ids of its contents as blobs, or None when it did not exist.

    Modes are git's: 100644, 100755 for an executable, 120000 for a link, whose content is its target.
    """

    path: str
    before: str | None
    after: str | None
    mode_before: str | None = None
    mode_after: str | None = None

    def first(self) -> FileVersion:
        """Return mode and id at the first mark, or None."""
        return (self.mode_before, self.before) if self.mode_before and self.before else None

    def last(self) -> FileVersion:
        """Return mode and id at the last mark, or None."""
        return (self.mode_after, self.after) if self.mode_after and self.after else None


@attrs.frozen
class Conflict:
    """A file that an undo left alone, and the reason."""

    path: str
    reason: str


def changes(first: Snapshot, last: Snapshot) -> tuple[ChangedFile, ...]:
    """Return the differences of two states, by path: contents, modes, permissions, and special files."""
    nothing = (None, None)
    result = []
    paths = first.files.keys() | last.files.keys() | first.left_out.keys() | last.left_out.keys()
    for path in sorted(paths):
        (mode, before), (mode_after, after) = first.files.get(path, nothing), last.files.get(path, nothing)
        is_other = (mode, before) != (mode_after, after) or special(first, path) != special(last, path)
        if is_other or is_permitted_otherwise(first, last, path):
            result.append(ChangedFile(path, before, after, mode, mode_after))
    return tuple(result)


def permission_changes(first: Snapshot, last: Snapshot) -> Iterator[tuple[str, int, int]]:
    """Yield files and folders with changed permissions, by path, with the old and the new ones, except changes that git's mode shows."""
    for path in sorted(first.permissions.keys() & last.permissions.keys()):
        old, new = first.permissions[path], last.permissions[path]
        if old != new and first.files.get(path, ("", ""))[0] == last.files.get(path, ("", ""))[0]:
            yield path or ".", old, new


def is_permitted_otherwise(first: Snapshot, last: Snapshot, path: str) -> bool:
    """Return whether known permissions differ; False when either is unknown."""
    old, new = first.permissions.get(path), last.permissions.get(path)
    return old is not None and new is not None and old != new


def special(state: Snapshot, path: str) -> str | None:
    """Return the kind of a special file at a path, or None."""
    kind = state.left_out.get(path)
    return kind if kind in SPECIAL.values() else None


#: Stand for the id of an existing content that is not stored, and of one that may have existed.
UNKEPT, UNKNOWN = "not kept", "not known"


def lost_paths(first: Snapshot, last: Snapshot) -> list[str]:
    """Return the paths that were ignored at the start of the run, and are missing or stored now."""
    return sorted(path for path, why in first.left_out.items() if why == IGNORED_AT_START and path not in last.left_out)


def visible_changes(first: Snapshot, last: Snapshot, was_ignored: Callable[[str], bool]) -> tuple[ChangedFile, ...]:
    """Return the changed files for people and models; a file that is not stored counts as existing.

    A file that `was_ignored` at first may have existed.
    """
    result = []
    for each in changes(first, last):
        before, after = each.before or _unkept_in(first, each.path), each.after or _unkept_in(last, each.path)
        is_unknown = before is None and after is not None and was_ignored(each.path)
        result.append(attrs.evolve(each, before=UNKNOWN if is_unknown else before, after=after))
    missing = [ChangedFile(path, UNKEPT, None) for path in lost_paths(first, last) if path not in last.files]
    return tuple(sorted([*result, *missing], key=lambda each: each.path))


def _unkept_in(state: Snapshot, path: str) -> str | None:
    """Return UNKEPT for a file that is left out, or is in a folder that is left out; None for any other."""
    parts = path.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return UNKEPT if any(each in state.left_out for each in above) else None


@attrs.define
class IgnoredIn:
    """A predicate for paths that the stored `.gitignore` files of a state ignore."""

    snapshots: Snapshots
    state: Snapshot
    _rules_by_path: dict[str, tuple[IgnoreRule, ...]] = attrs.field(factory=dict, init=False)

    def __call__(self, path: str) -> bool:
        """Return whether a path or a folder above it is ignored."""
        parts, names = parts_of(path), path.split("/")
        chain = []
        for depth in range(len(parts)):
            if rules := self._rules("/".join([*names[:depth], ".gitignore"])):
                chain.append((depth, rules))
            if is_named(chain, parts[: depth + 1], is_folder=depth + 1 < len(parts)):
                return True
        return False

    def _rules(self, ignore: str) -> tuple[IgnoreRule, ...]:
        if ignore not in self._rules_by_path:
            mode, blob = self.state.files.get(ignore, ("", ""))
            self._rules_by_path[ignore] = rules_of(self.snapshots.content(blob)) if mode.startswith("100") else ()
        return self._rules_by_path[ignore]


# --- calls under way ---


@attrs.frozen
class CallMark:
    """A call: the mark before it, the files that it names and that did not exist, and the mark after it, empty until the call is over."""

    key: str
    before: str
    new_paths: tuple[str, ...] = ()
    after: str = ""


class CallRecords:
    """The last call of each run, by the key of its effect (`RUN/SEQ/ORDINAL`), so that the changes of an interrupted call are known.

    The records are in a folder, which is created with the first one. A file that a power cut has damaged counts as missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, call: CallMark) -> None:
        """Record a call, in place of the one before it."""
        self._folder.mkdir(exist_ok=True)
        path = self._path(call.key)
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        data = {"key": call.key, "before": call.before, "made": call.new_paths, "after": call.after}
        new.write_text(json.dumps(data), "utf-8")
        new.replace(path)

    def find(self, key: str) -> CallMark | None:
        """Return a call, or None when it was not the last one."""
        try:
            data = json.loads(self._path(key).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return CallMark(key, data["before"], tuple(data["made"]), data["after"]) if data["key"] == key else None

    def _path(self, key: str) -> Path:
        return self._folder / f"{key.partition('/')[0]}.json"


# --- undo ---


@attrs.define
class UndoPlan:
    """An undo from `last` back to `first`, in a workspace with the state `now`; `new_paths` are files that did not exist at first."""

    snapshots: Snapshots
    workspace: Beneath
    first: Snapshot
    last: Snapshot
    now: Snapshot
    was_ignored: Callable[[str], bool]
    new_paths: frozenset[str] = frozenset()
    restored_paths: list[str] = attrs.field(factory=list)
    removed_paths: list[str] = attrs.field(factory=list)
    conflicts: list[Conflict] = attrs.field(factory=list)

    def files(self) -> None:
        """Remove the new files, then restore the changed and removed ones."""
        open_ones = [change for change in changes(self.first, self.last) if self._is_open(change)]
        for change in [change for change in open_ones if change.before is None]:
            self._each(change)
        self.conflicts += [
            Conflict(path, _MISSING) for path in lost_paths(self.first, self.last) if not self._is_there(path)
        ]
        new_folders = self.last.folders.keys() - self.first.folders.keys()
        for folder in sorted(new_folders, key=lambda path: (-path.count("/"), path)):  # the deepest first
            snapshots.remove_folder(self.workspace, folder)
        for change in [change for change in open_ones if change.before is not None]:
            self._each(change)
        for folder in sorted({change.path.rpartition("/")[0] for change in changes(self.first, self.last)}):
            self._sweep(folder)

    def _is_there(self, path: str) -> bool:
        try:
            return self.workspace.look(path.split("/")) is not None
        except ToolError:
            return False

    def _sweep(self, folder: str) -> None:
        """Remove temporary files of a killed undo, even when there is nothing to restore."""
        with (
            suppress(ToolError, OSError),
            self.workspace.folder([part for part in folder.split("/") if part]) as descriptor,
        ):
            sweep(descriptor)

    def folders(self) -> None:
        """Create the removed folders again, and restore the permissions of the others."""
        for folder in sorted(self.first.folders):
            parts = [part for part in folder.split("/") if part]
            before, after = self.first.permissions.get(folder), self.last.permissions.get(folder)
            try:
                if folder not in self.last.folders:
                    snapshots.make_folder(self.workspace, parts, self.first.permissions)
                    with self.workspace.folder(parts):
                        pass
                elif before is not None and before != after and self.now.permissions.get(folder) == after:
                    snapshots.permit_folder(self.workspace, parts, before)
            except ToolError as error:
                self.conflicts.append(Conflict(folder, str(error)))

    def _is_open(self, change: ChangedFile) -> bool:
        """Return whether a file has to be restored, and can be."""
        path = change.path
        if self.now.files.get(path) == change.first() and self.now.left_out.get(path) == special(self.first, path):
            was_changed = change.first() != change.last() or special(self.first, path) != special(self.last, path)
            return not was_changed and self._has_permissions_of_last(path)
        reason = self._left_out_now(path) or self._unknown_before(change)
        if reason is not None:
            self.conflicts.append(Conflict(path, reason))
        return reason is None

    def _has_permissions_of_last(self, path: str) -> bool:
        """Return whether only permissions have changed, and can be restored."""
        first, last, now = (state.permissions.get(path) for state in (self.first, self.last, self.now))
        if now not in {first, last}:
            self.conflicts.append(Conflict(path, "its permissions were changed again later"))
        return now == last

    def _left_out_now(self, path: str) -> str | None:
        """Return why a file's state is unknown now, or None; a new special file can be removed."""
        special_kind = special(self.last, path)
        why = self.now.left_out.get(path)
        return None if special_kind is not None and special_kind == why else why

    def _unknown_before(self, change: ChangedFile) -> str | None:
        """Return why a file's first state is unknown or cannot be restored, or None."""
        if special_kind := special(self.first, change.path):
            return f"it was {special_kind}, which an undo cannot create"
        if change.before is not None or change.path in self.new_paths:
            return None
        parts = change.path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        if why := next((self.first.left_out[path] for path in above if path in self.first.left_out), None):
            return f"its earlier content is not stored: {why}"
        if self.was_ignored(change.path):
            return "a .gitignore named it before the first change, so it may have existed already"
        return None

    def _each(self, change: ChangedFile) -> None:
        path, target, current = change.path, change.first(), change.last()
        try:
            if special_kind := special(self.last, path):
                snapshots.remove_special(self.workspace, path, special_kind)
            if target is not None:
                mode, blob = target
                snapshots.make_folder(self.workspace, path.split("/")[:-1], self.first.permissions)
                content = snapshots.Content(mode, self._permissions(path, mode), self.snapshots.content(blob))
                snapshots.put(self.workspace, path, current, content)
                self.restored_paths.append(path)
            else:
                if not special_kind:
                    snapshots.remove(self.workspace, path, current)
                self.removed_paths.append(path)
        except ToolError as error:
            self.conflicts.append(Conflict(path, str(error)))

    def _permissions(self, path: str, mode: str) -> int:
        """Return the first permissions of a file, without those that were removed since the last mark."""
        first = self.first.permissions.get(path, 0o700 if mode == PROGRAM else 0o600)
        last, now = self.last.permissions.get(path), self.now.permissions.get(path)
        if now is None or now == last:
            return first
        return first & (now | (now & 0o444) >> 2 if mode == PROGRAM else now)


_MISSING = f"the file is missing, and its content is not stored, because {IGNORED_AT_START}"
_STATES_FILE = "dsa-seen.json"
_AT_ONCE_BYTES = 8_000_000  # Ctrl-C waits for one write of this size
_MOST_NAMES, _MOST_PATHS = 1_000, 10
_DIFF = (
    "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
_DIFF_S = 60.0


@attrs.frozen
class UndoResult:
    """The result of an undo: the marks of the workspace before and after it, the paths of restored and removed files, and the conflicts."""

    before: str
    after: str
    restored_paths: tuple[str, ...]
    removed_paths: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


class WorkspaceHistory:
    """The history of a workspace. Threads and processes may share it; one call runs at a time.

    It leaves out `.git` and the caches of other programs (`workspace_boundary.TOOL_FOLDERS`); ignored files, unless they were stored before or a call names them; files of
    more than 5 MB, content beyond 500 MB together or not read within a minute (`workspace_scan.MOST_BYTES`, `MOST_S`); and special files. `left_out` names
    those that a user could miss. Permissions are stored in addition to git's modes. Raises StoreError when `folder` is something else, OSError when
    `root` is not a folder.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._snapshots = Snapshots(folder.absolute())
        self._calls = CallRecords(self._snapshots.folder / "begun")
        self.root = root
        self._thread = threading.RLock()
        status = folder.stat()
        self._own = (status.st_dev, status.st_ino)
        self._newest: Snapshot | None = None
        self._states: Mapping[str, FileState] = {}
        #: Called with the progress of a long scan, and with an empty text when it is over.
        self.progress: Callable[[str], object] = str

    def mark(self, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> str:
        """Record the state of the workspace, and return the id of the commit; an unchanged workspace keeps its last one.

        `text` is the message, `also` names files to include even if they would be left out. Raises DsaError for a workspace with too many
        files, and when `stop` returns True meanwhile.
        """
        with self._thread, self._snapshots.hold() as tip:
            return self._mark(tip, text, also, stop).commit

    # --- calls ---

    def begin(self, key: str, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> CallMark:
        """Mark the workspace before a call that will write the files `also`. A second begin of the same call returns the first mark.

        Raises DsaError for a workspace with too many files.
        """
        earlier = self._calls.find(key)
        if earlier is not None:
            return earlier
        with self._thread, self._snapshots.hold() as tip:
            now = self._mark(tip, text, also, stop)
        new_paths = tuple(path for path in also if path not in now.files and path not in now.left_out)
        call = CallMark(key, now.commit, new_paths)
        self._calls.keep(call)
        return call

    def end(self, call: CallMark, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> CallMark:
        """Mark the workspace after a call. Raises DsaError for a workspace with too many files."""
        over = attrs.evolve(call, after=self.mark(text, also, stop))
        self._calls.keep(over)
        return over

    def interrupted_call(self, key: str, stop: Callable[[], bool] = bool) -> CallMark | None:
        """Return an interrupted call with a mark after it, or None when it had not begun. All differences since its start count as its own.

        Raises DsaError for a workspace with too many files.
        """
        call = self._calls.find(key)
        return call if call is None or call.after else self.end(call, "after an interrupted call", stop=stop)

    # --- facts of marks ---

    def left_out(self, mark: str) -> Mapping[str, str]:
        """Return the paths that a mark lacks, with the reasons."""
        return self._read(mark).left_out

    def unkept(self, mark: str) -> str:
        """Return a line about files that a mark lacks because of a limit, or an empty text."""
        return unkept(self._read(mark).left_out)

    def changed_files(self, first: str, last: str, new_paths: Collection[str] = ()) -> tuple[ChangedFile, ...]:
        """Return the files that differ at two marks in content or permissions, by path. Raises DsaError for an id that is not a mark.

        An existing content that is not stored is UNKEPT; it is UNKNOWN when a `.gitignore` named the file at first, unless the file is one of `new_paths`.
        """
        then, now = self._read(first), self._read(last)
        was_ignored = IgnoredIn(self._snapshots, then)
        return visible_changes(then, now, lambda path: path not in new_paths and was_ignored(path))

    def lost_text(self, first: str, last: str) -> str:
        """Return a line about files that disappeared between two marks and were not stored, or an empty text."""
        then, now = self._read(first), self._read(last)
        paths = [path for path in lost_paths(then, now) if path not in now.files]
        more = f" and {len(paths) - _MOST_PATHS:,} more" if len(paths) > _MOST_PATHS else ""
        text = f"missing, and an undo cannot restore it, because {IGNORED_AT_START}: {', '.join(paths[:_MOST_PATHS])}{more}"
        return text if paths else ""

    def diff(self, first: str, last: str, *, most_bytes: int = 1_000_000) -> str:
        """Return the changes between two marks in the form of `git diff`; a longer text is cut to its beginning and its end.

        Raises DsaError for an id that is not a mark.
        """
        then, now = self._read(first), self._read(last)
        new = {path: why for path, why in now.left_out.items() if path not in then.left_out}
        more = [f"Not stored: {path} ({why})\n" for path, why in islice(new.items(), _MOST_NAMES)]
        more += [f"Not stored: {len(new) - _MOST_NAMES:,} more files\n"] if len(new) > _MOST_NAMES else []
        more += [
            f"Not stored: {path} is gone ({IGNORED_AT_START})\n"
            for path in islice(lost_paths(then, now), _MOST_NAMES)
            if path not in now.files
        ]
        more += [
            f"Permissions of {path}: {old:04o}, then {new:04o}\n" for path, old, new in permission_changes(then, now)
        ]
        command = ["-c", "core.quotePath=false", *_DIFF, first, last]
        bounds = GitBounds(_DIFF_S, most_bytes // 2, most_bytes // 2)
        result = run_git_process(
            command, folder=self._snapshots.folder, bounds=bounds, GIT_DIR=str(self._snapshots.folder)
        )
        if result.code:
            raise history_error(f"git diff-tree failed: {result.complaint}")
        return result.text() + "".join(more)

    def undo(self, first: str, last: str, new_paths: Collection[str] = ()) -> UndoResult:
        """Undo the changes between two marks. A file is only restored if it is still as it was at `last`; others are conflicts, and left alone.

        `new_paths` are files that did not exist before, even if a `.gitignore` names them. The workspace is marked before and after the undo, so nothing is lost, and an
        undo can be undone. A killed undo can be repeated. Raises DsaError for an id that is not a mark.
        """
        then, now = self._read(first), self._read(last)
        with self._thread, self._snapshots.hold() as tip:
            before = self._mark(tip, f"before an undo of {first[:12]}..{last[:12]}")
            workspace = Beneath(self.root)
            try:
                was_ignored = IgnoredIn(self._snapshots, then)
                plan = UndoPlan(self._snapshots, workspace, then, now, before, was_ignored, frozenset(new_paths))
                plan.files()
                plan.folders()
            finally:
                workspace.close()
            after = self._mark(before.commit, f"after an undo of {first[:12]}..{last[:12]}")
        return UndoResult(
            before.commit, after.commit, tuple(plan.restored_paths), tuple(plan.removed_paths), tuple(plan.conflicts)
        )

    # --- marking, while this process holds the branch ---

    def _mark(
        self, tip: str | None, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool
    ) -> Snapshot:
        newest = self._newest_at(tip)
        fresh = _Fresh(self._snapshots, newest.objects if newest else set[str])
        root, effort = os.open(self.root, ROOT), ScanBudget(stop, self.progress)
        try:
            folders, left_out = (newest.folders, newest.left_out) if newest else ({}, None)
            sight = look(root, self._states, frozenset(folders), fresh.keep, self._own, also, left_out, effort)
        finally:
            effort.end()
            os.close(root)
        if newest is None or not _is_same(sight, newest, self._states):
            fresh.write()
            newest = self._snapshots.write(_state(sight), newest, text, now_s=time.time())
            self._states = sight.files
            self._save(newest)
        self._newest, self._states = newest, sight.files
        return newest

    def _newest_at(self, tip: str | None) -> Snapshot | None:
        """Return the newest snapshot, and load the file states that this process or the last one has recorded for it."""
        if tip is None:
            self._newest, self._states = None, {}
        elif self._newest is None or self._newest.commit != tip:
            self._newest = self._snapshots.read(tip)
            self._states = self._load_states(self._newest)
        return self._newest

    def _read(self, mark: str) -> Snapshot:
        with self._thread:
            newest = self._newest
            return newest if newest is not None and newest.commit == mark else self._snapshots.read(mark)

    # --- file states for the next process, which otherwise reads all files again ---

    def _save(self, newest: Snapshot) -> None:
        path = self._snapshots.folder / _STATES_FILE
        states = {path: [*file.stamp, file.is_settled] for path, file in self._states.items()}
        data = {"commit": newest.commit, "root": str(self.root), "seen": states}
        new = path.with_name(f"{_STATES_FILE}.{token_hex(4)}.new")
        new.write_text(json.dumps(data), "utf-8")
        new.replace(path)

    def _load_states(self, newest: Snapshot) -> dict[str, FileState]:
        unknown = {
            path: FileState((0, 0, 0, 0, 0), mode, blob, is_settled=False)
            for path, (mode, blob) in newest.files.items()
        }
        try:
            data = json.loads((self._snapshots.folder / _STATES_FILE).read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # a power cut may damage it
            return unknown
        if (data["commit"], data["root"]) != (newest.commit, str(self.root)) or data["seen"].keys() != unknown.keys():
            return unknown
        return {
            path: FileState((mode, size, changed_ns, created_ns, number), *newest.files[path], is_settled=is_settled)
            for path, (mode, size, changed_ns, created_ns, number, is_settled) in data["seen"].items()
        }


class _Fresh:
    """A writer for contents that the newest snapshot does not have yet."""

    def __init__(self, snapshots: Snapshots, known_ids: Callable[[], set[str]]) -> None:
        self._snapshots, self._read_known = snapshots, known_ids
        self._known_ids: set[str] | None = None
        self._bodies: dict[str, bytes] = {}
        self._size_bytes = 0

    def keep(self, blob: str, content: bytes) -> None:
        """Add a content."""
        if self._known_ids is None:
            self._known_ids = self._read_known()
        if blob not in self._known_ids:
            self._known_ids.add(blob)
            self._bodies[blob] = content
            self._size_bytes += len(content)
            if self._size_bytes > _AT_ONCE_BYTES:
                self.write()

    def write(self) -> None:
        """Write the added contents."""
        self._snapshots.write_objects("blob", self._bodies)
        self._bodies, self._size_bytes = {}, 0


def _state(sight: WorkspaceState) -> Snapshot:
    files = {path: (file.mode, file.blob) for path, file in sight.files.items()}
    permissions = {path: bits for path, file in sight.files.items() if (bits := file.permissions) is not None}
    return Snapshot("", files, dict.fromkeys(sight.folders, ""), sight.left_out, permissions | sight.folders)


def _is_same(sight: WorkspaceState, newest: Snapshot, states: Mapping[str, FileState]) -> bool:
    if len(sight.files) != len(newest.files) or sight.folders.keys() != newest.folders.keys():
        return False
    if sight.left_out != newest.left_out:
        return False
    if any(newest.permissions.get(path) != bits for path, bits in sight.folders.items()):
        return False
    return all(
        file is states.get(path)
        or (newest.files.get(path), newest.permissions.get(path)) == ((file.mode, file.blob), file.permissions)
        for path, file in sight.files.items()
    )
