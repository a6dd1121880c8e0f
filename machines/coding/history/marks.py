"""What an agent has changed in a workspace, as git keeps it: marked, compared, and put back.

Takes the folder of the workspace, and one of our own for a bare repository (never the workspace's); gives ids of commits, differences, and
what was put back: each file only if it still is as it was at the second mark. Nothing of the
workspace is written but by `undo`. `git --git-dir=FOLDER log runs/workspace` shows the marks.
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

from machines.coding.history import snapshots
from machines.coding.history.snapshots import InTheWay, Kept, Snapshot, Snapshots
from machines.coding.history.workspace_scan import (
    IGNORED,
    PROGRAM,
    SPECIAL,
    FileState,
    HistoryError,
    IgnoreRule,
    ScanBudget,
    WorkspaceState,
    is_named,
    look,
    parts_of,
    rules_of,
    unkept,
)
from machines.coding.tools.file_writer import sweep
from machines.coding.tools.git_process import GitBounds, ran
from machines.coding.tools.workspace_boundary import ROOT, Beneath
from machines.coding.tools.workspace_paths import WorkspaceToolError


@attrs.frozen
class ChangedFile:
    """A file that is another at two marks: (ids of) its contents as blobs, None where there was none.

    Modes are git's: 100644, 100755 for what can be run, 120000 for a link, whose content is where it leads.
    """

    path: str
    before: str | None
    after: str | None
    mode_before: str | None = None
    mode_after: str | None = None

    def first(self) -> Kept:
        """Return mode and id before."""
        return (self.mode_before, self.before) if self.mode_before and self.before else None

    def last(self) -> Kept:
        """Return mode and id after."""
        return (self.mode_after, self.after) if self.mode_after and self.after else None


@attrs.frozen
class Conflict:
    """A file that was left alone, and why."""

    path: str
    reason: str


def changes(first: Snapshot, last: Snapshot) -> tuple[ChangedFile, ...]:
    """Return what is another in two states, by path: contents, modes, permissions, and what is no file."""
    nothing = (None, None)
    found = []
    paths = first.files.keys() | last.files.keys() | first.left_out.keys() | last.left_out.keys()
    for path in sorted(paths):
        (mode, before), (mode_after, after) = first.files.get(path, nothing), last.files.get(path, nothing)
        is_other = (mode, before) != (mode_after, after) or special(first, path) != special(last, path)
        if is_other or is_permitted_otherwise(first, last, path):
            found.append(ChangedFile(path, before, after, mode, mode_after))
    return tuple(found)


def permitted(first: Snapshot, last: Snapshot) -> Iterator[tuple[str, int, int]]:
    """Yield the files and folders that have other permissions, by path, with those before and after: but for what git tells by a file's mode."""
    for path in sorted(first.permissions.keys() & last.permissions.keys()):
        old, new = first.permissions[path], last.permissions[path]
        if old != new and first.files.get(path, ("", ""))[0] == last.files.get(path, ("", ""))[0]:
            yield path or ".", old, new


def is_permitted_otherwise(first: Snapshot, last: Snapshot, path: str) -> bool:
    """Return whether permissions differ; what had none that are known is left as it is."""
    old, new = first.permissions.get(path), last.permissions.get(path)
    return old is not None and new is not None and old != new


def special(state: Snapshot, path: str) -> str | None:
    """Return what stands at a path and is no file; None for all else."""
    kind = state.left_out.get(path)
    return kind if kind in SPECIAL.values() else None


#: Stand for the id of a content that was there and is not kept, and of one of which nobody knows whether it was.
UNKEPT, UNKNOWN = "not kept", "not known"


def lost(first: Snapshot, last: Snapshot) -> list[str]:
    """Return the paths of what was not kept for a .gitignore named it when the run began, and is gone, or kept from now on."""
    return sorted(path for path, why in first.left_out.items() if why == IGNORED and path not in last.left_out)


def told(first: Snapshot, last: Snapshot, was_ignored: Callable[[str], bool]) -> tuple[ChangedFile, ...]:
    """Return the files that are others in two states as people and models are told of them: what is not kept was there all the same.

    Of one that `was_ignored` at first nobody knows whether it was there.
    """
    known = []
    for each in changes(first, last):
        before, after = each.before or _unkept_in(first, each.path), each.after or _unkept_in(last, each.path)
        is_unknown = before is None and after is not None and was_ignored(each.path)
        known.append(attrs.evolve(each, before=UNKNOWN if is_unknown else before, after=after))
    gone = [ChangedFile(path, UNKEPT, None) for path in lost(first, last) if path not in last.files]
    return tuple(sorted([*known, *gone], key=lambda each: each.path))


def _unkept_in(state: Snapshot, path: str) -> str | None:
    """Return what stands for the content of a file that is left out, or lies in a folder that is; None where nothing is known to be there."""
    parts = path.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return UNKEPT if any(each in state.left_out for each in above) else None


@attrs.define
class IgnoredIn:
    """Tells which paths the `.gitignore` files of a state name, as far as they are kept."""

    snapshots: Snapshots
    state: Snapshot
    _known: dict[str, tuple[IgnoreRule, ...]] = attrs.field(factory=dict, init=False)

    def __call__(self, path: str) -> bool:
        """Return whether a path is named, or a folder above it."""
        parts, names = parts_of(path), path.split("/")
        chain = []
        for depth in range(len(parts)):
            if rules := self._rules("/".join([*names[:depth], ".gitignore"])):
                chain.append((depth, rules))
            if is_named(chain, parts[: depth + 1], is_folder=depth + 1 < len(parts)):
                return True
        return False

    def _rules(self, ignore: str) -> tuple[IgnoreRule, ...]:
        if ignore not in self._known:
            mode, blob = self.state.files.get(ignore, ("", ""))
            self._known[ignore] = rules_of(self.snapshots.content(blob)) if mode.startswith("100") else ()
        return self._known[ignore]


# -- calls under way --------------------------------------------------------------------------------------------------


@attrs.frozen
class CallMark:
    """A call: the mark before it, which of the files that it names were not there, and the mark after it, empty before it was over."""

    key: str
    before: str
    made: tuple[str, ...] = ()
    after: str = ""


class BegunCalls:
    """The last call of each run by the key of its effect (`RUN/SEQ/ORDINAL`): what it has changed is known although it was cut off.

    They are kept in a folder that is made when one is. A file that a power cut has torn or taken says nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, call: CallMark) -> None:
        """Keep a call, in the place of the one before it."""
        self._folder.mkdir(exist_ok=True)
        path = self._path(call.key)
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        new.write_text(json.dumps(attrs.asdict(call)), "utf-8")
        new.replace(path)

    def find(self, key: str) -> CallMark | None:
        """Return a call; None where another one was the last, or none was."""
        try:
            said = json.loads(self._path(key).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return CallMark(key, said["before"], tuple(said["made"]), said["after"]) if said["key"] == key else None

    def _path(self, key: str) -> Path:
        return self._folder / f"{key.partition('/')[0]}.json"


# -- undoing ----------------------------------------------------------------------------------------------------------


@attrs.define
class UndoPlan:
    """One undo: from `last` back to `first`, in a workspace that is as at `now`; `made` are files that were not there at first."""

    snapshots: Snapshots
    workspace: Beneath
    first: Snapshot
    last: Snapshot
    now: Snapshot
    was_ignored: Callable[[str], bool]
    made: frozenset[str] = frozenset()
    restored: list[str] = attrs.field(factory=list)
    removed: list[str] = attrs.field(factory=list)
    conflicts: list[Conflict] = attrs.field(factory=list)

    def files(self) -> None:
        """Take away what was made, then put back what was changed or taken away."""
        open_ones = [change for change in changes(self.first, self.last) if self._is_open(change)]
        for change in [change for change in open_ones if change.before is None]:
            self._each(change)
        self.conflicts += [Conflict(path, _GONE) for path in lost(self.first, self.last) if not self._is_there(path)]
        made = self.last.folders.keys() - self.first.folders.keys()
        for folder in sorted(made, key=lambda path: (-path.count("/"), path)):  # the deepest first
            snapshots.remove_folder(self.workspace, folder)
        for change in [change for change in open_ones if change.before is not None]:
            self._each(change)
        for folder in sorted({change.path.rpartition("/")[0] for change in changes(self.first, self.last)}):
            self._swept(folder)

    def _is_there(self, path: str) -> bool:
        try:
            return self.workspace.look(path.split("/")) is not None
        except WorkspaceToolError:
            return False

    def _swept(self, folder: str) -> None:
        """Take away what an undo that was killed has left, also where nothing is left to put back."""
        with (
            suppress(WorkspaceToolError, OSError),
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
                    snapshots.make_folder(self.workspace, parts, self.first.permissions)
                    with self.workspace.folder(parts):
                        pass
                elif before is not None and before != after and self.now.permissions.get(folder) == after:
                    snapshots.permit_folder(self.workspace, parts, before)
            except (InTheWay, WorkspaceToolError) as found:
                self.conflicts.append(Conflict(folder, str(found)))

    def _is_open(self, change: ChangedFile) -> bool:
        """Return whether a file is still to be put back, and may be."""
        path = change.path
        if self.now.files.get(path) == change.first() and self.now.left_out.get(path) == special(self.first, path):
            was_changed = change.first() != change.last() or special(self.first, path) != special(self.last, path)
            return not was_changed and self._has_permissions_of_last(path)
        reason = self._left_out_now(path) or self._unknown_before(change)
        if reason is not None:
            self.conflicts.append(Conflict(path, reason))
        return reason is None

    def _has_permissions_of_last(self, path: str) -> bool:
        """Return whether permissions that alone have changed are to be put back."""
        first, last, now = (state.permissions.get(path) for state in (self.first, self.last, self.now))
        if now not in {first, last}:
            self.conflicts.append(Conflict(path, "its permissions were changed since"))
        return now == last

    def _left_out_now(self, path: str) -> str | None:
        """Return why a file is not known now; what is no file, and was made, is taken away."""
        made = special(self.last, path)
        why = self.now.left_out.get(path)
        return None if made is not None and made == why else why

    def _unknown_before(self, change: ChangedFile) -> str | None:
        """Return why nobody knows what a file was like at first, or why it is not made again."""
        if gone := special(self.first, change.path):
            return f"it was {gone}: that is not made again"
        if change.before is not None or change.path in self.made:
            return None
        parts = change.path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        if why := next((self.first.left_out[path] for path in above if path in self.first.left_out), None):
            return f"what it was before is not kept: {why}"
        if self.was_ignored(change.path):
            return "a .gitignore named it before: it may have been there already"
        return None

    def _each(self, change: ChangedFile) -> None:
        path, target, expected = change.path, change.first(), change.last()
        try:
            if made := special(self.last, path):
                snapshots.remove_special(self.workspace, path, made)
            if target is not None:
                mode, blob = target
                snapshots.make_folder(self.workspace, path.split("/")[:-1], self.first.permissions)
                wanted = snapshots.Content(mode, self._permissions(path, mode), self.snapshots.content(blob))
                snapshots.put(self.workspace, path, expected, wanted)
                self.restored.append(path)
            else:
                if not made:
                    snapshots.remove(self.workspace, path, expected)
                self.removed.append(path)
        except InTheWay as found:
            self.conflicts.append(Conflict(path, str(found)))

    def _permissions(self, path: str, mode: str) -> int:
        """Return what a file may be used for: as at first, less what somebody has taken away since the last."""
        first = self.first.permissions.get(path, 0o700 if mode == PROGRAM else 0o600)
        last, now = self.last.permissions.get(path), self.now.permissions.get(path)
        if now is None or now == last:
            return first
        return first & (now | (now & 0o444) >> 2 if mode == PROGRAM else now)


_GONE = f"it is gone, and what it was is not kept: {IGNORED}"
_SEEN = "dsa-seen.json"
_AT_ONCE_BYTES = 8_000_000  # Ctrl-C waits until so much is written
_MOST_NAMES, _MOST_TOLD = 1_000, 10
_DIFF = (
    "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
_DIFF_S = 60.0


@attrs.frozen
class Undone:
    """What an undo has done: `before` and `after` are marks of the workspace then. `restored` and `removed` are paths of files."""

    before: str
    after: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


class WorkspaceHistory:
    """The history of a workspace. May be used from any thread, and by several processes: one call runs at a time.

    Left out are `.git` and what other programs keep for themselves (`TOOL_FOLDERS`), what a `.gitignore` names and was not there before, unless
    a call names it; files of more than 5 MB, what is beyond 500 MB in all or is not read within a minute (`looking.MOST_BYTES`, `MOST_S`), pipes and the like; `left_out` names those that somebody could miss. Permissions are kept beside what git keeps of
    them. Raises ArtifactStoreError when `folder` is something else, OSError when `root` is no folder.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._snapshots = Snapshots(folder.absolute())
        self._begun = BegunCalls(self._snapshots.folder / "begun")
        self.root = root
        self._thread = threading.RLock()
        found = folder.stat()
        self._own = (found.st_dev, found.st_ino)
        self._newest: Snapshot | None = None
        self._seen: Mapping[str, FileState] = {}
        #: Is called with how far a long look at the workspace is, and with nothing when it is over.
        self.progress: Callable[[str], object] = str

    def mark(self, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> str:
        """Write down what the workspace is like, and return the id of the commit; an unchanged one gets none.

        `text` says what has happened, `also` names files that are looked at although they would be left out. Raises HistoryError for a workspace
        of too many files, and where `stop` says so meanwhile.
        """
        with self._thread, self._snapshots.held() as tip:
            return self._mark(tip, text, also, stop).commit

    # -- calls ----------------------------------------------------------------------------------------------------------

    def begin(self, key: str, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> CallMark:
        """Mark the workspace before a call, which will write the files `also`; one that is begun again was begun the first time.

        Raises HistoryError for a workspace of too many files.
        """
        known = self._begun.find(key)
        if known is not None:
            return known
        with self._thread, self._snapshots.held() as tip:
            now = self._mark(tip, text, also, stop)
        made = tuple(path for path in also if path not in now.files and path not in now.left_out)
        call = CallMark(key, now.commit, made)
        self._begun.keep(call)
        return call

    def end(self, call: CallMark, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool) -> CallMark:
        """Mark the workspace after a call. Raises HistoryError for a workspace of too many files."""
        over = attrs.evolve(call, after=self.mark(text, also, stop))
        self._begun.keep(over)
        return over

    def cut_off(self, key: str, stop: Callable[[], bool] = bool) -> CallMark | None:
        """Return a call that was under way with what it has changed: all that is others than before it, where nobody saw its end.

        None where it had not begun. Raises HistoryError for a workspace of too many files.
        """
        call = self._begun.find(key)
        return call if call is None or call.after else self.end(call, "after a call that was cut off", stop=stop)

    # -- what marks say -------------------------------------------------------------------------------------------------

    def left_out(self, mark: str) -> Mapping[str, str]:
        """Return the paths that a mark lacks, with why."""
        return self._read(mark).left_out

    def unkept(self, mark: str) -> str:
        """Say in a line which files a mark lacks because there was too much of them; nothing where it lacks none."""
        return unkept(self._read(mark).left_out)

    def changed(self, first: str, last: str, made: Collection[str] = ()) -> tuple[ChangedFile, ...]:
        """Return the files that are others at two marks, or may be used by others, by path. Raises HistoryError for an id that is no mark.

        A content that was there and is not kept is UNKEPT; UNKNOWN where a `.gitignore` named it at first, unless it is among those that are known to be `made`.
        """
        then, now = self._read(first), self._read(last)
        was_ignored = IgnoredIn(self._snapshots, then)
        return told(then, now, lambda path: path not in made and was_ignored(path))

    def lost(self, first: str, last: str) -> str:
        """Say in a line what is gone between two marks and was not kept; nothing where nothing is."""
        then, now = self._read(first), self._read(last)
        paths = [path for path in lost(then, now) if path not in now.files]
        more = f" and {len(paths) - _MOST_TOLD:,} more" if len(paths) > _MOST_TOLD else ""
        gone = f"gone, and not put back by an undo, for {IGNORED}: {', '.join(paths[:_MOST_TOLD])}{more}"
        return gone if paths else ""

    def diff(self, first: str, last: str, *, most_bytes: int = 1_000_000) -> str:
        """Return what has changed between two marks as `git diff` writes it; of a longer text its beginning and its end.

        Raises HistoryError for an id that is no mark.
        """
        then, now = self._read(first), self._read(last)
        new = {path: why for path, why in now.left_out.items() if path not in then.left_out}
        more = [f"Not kept: {path} ({why})\n" for path, why in islice(new.items(), _MOST_NAMES)]
        more += [f"Not kept: {len(new) - _MOST_NAMES:,} more files\n"] if len(new) > _MOST_NAMES else []
        more += [
            f"Not kept: {path} is gone ({IGNORED})\n"
            for path in islice(lost(then, now), _MOST_NAMES)
            if path not in now.files
        ]
        more += [f"Permissions of {path}: {old:04o}, then {new:04o}\n" for path, old, new in permitted(then, now)]
        command = ["-c", "core.quotePath=false", *_DIFF, first, last]
        bounds = GitBounds(_DIFF_S, most_bytes // 2, most_bytes // 2)
        done = ran(command, folder=self._snapshots.folder, bounds=bounds, GIT_DIR=str(self._snapshots.folder))
        if done.code:
            raise HistoryError(f"git diff-tree failed: {done.complaint}")
        return done.text() + "".join(more)

    def undo(self, first: str, last: str, made: Collection[str] = ()) -> Undone:
        """Put back what has changed between two marks: each file only if it still is as it was at `last`.

        `made` are files that were not there before, whatever a `.gitignore` says of them. Others are conflicts, and left alone. Marks the workspace before and after it: nothing is lost, and an undo can be undone. One that
        was killed can be done again. Raises HistoryError for an id that is no mark.
        """
        then, now = self._read(first), self._read(last)
        with self._thread, self._snapshots.held() as tip:
            before = self._mark(tip, f"before an undo of {first[:12]}..{last[:12]}")
            workspace = Beneath(self.root)
            try:
                was_ignored = IgnoredIn(self._snapshots, then)
                undoing = UndoPlan(self._snapshots, workspace, then, now, before, was_ignored, frozenset(made))
                undoing.files()
                undoing.folders()
            finally:
                workspace.close()
            after = self._mark(before.commit, f"after an undo of {first[:12]}..{last[:12]}")
        return Undone(
            before.commit, after.commit, tuple(undoing.restored), tuple(undoing.removed), tuple(undoing.conflicts)
        )

    # -- marking, while the branch is held ----------------------------------------------------------------------------

    def _mark(
        self, tip: str | None, text: str, also: Collection[str] = (), stop: Callable[[], bool] = bool
    ) -> Snapshot:
        newest = self._known(tip)
        fresh = _Fresh(self._snapshots, newest.objects if newest else set[str])
        root, effort = os.open(self.root, ROOT), ScanBudget(stop, self.progress)
        try:
            folders, left_out = (newest.folders, newest.left_out) if newest else ({}, None)
            sight = look(root, self._seen, frozenset(folders), fresh.keep, self._own, also, left_out, effort)
        finally:
            effort.end()
            os.close(root)
        if newest is None or not _is_same(sight, newest, self._seen):
            fresh.write()
            newest = self._snapshots.write(_state(sight), newest, text, now_s=time.time())
            self._seen = sight.files
            self._save(newest)
        self._newest, self._seen = newest, sight.files
        return newest

    def _known(self, tip: str | None) -> Snapshot | None:
        """Return the newest snapshot, and know what was seen of it: by this process, or by the last one that has written it down."""
        if tip is None:
            self._newest, self._seen = None, {}
        elif self._newest is None or self._newest.commit != tip:
            self._newest = self._snapshots.read(tip)
            self._seen = self._saved(self._newest)
        return self._newest

    def _read(self, mark: str) -> Snapshot:
        with self._thread:
            newest = self._newest
            return newest if newest is not None and newest.commit == mark else self._snapshots.read(mark)

    # -- what was seen, for the next process; without it all files are read again -----------------------------------------

    def _save(self, newest: Snapshot) -> None:
        path = self._snapshots.folder / _SEEN
        seen = {path: [*file.stamp, file.settled] for path, file in self._seen.items()}
        said = {"commit": newest.commit, "root": str(self.root), "seen": seen}
        new = path.with_name(f"{_SEEN}.{token_hex(4)}.new")
        new.write_text(json.dumps(said), "utf-8")
        new.replace(path)

    def _saved(self, newest: Snapshot) -> dict[str, FileState]:
        unknown = {
            path: FileState((0, 0, 0, 0, 0), mode, blob, settled=False) for path, (mode, blob) in newest.files.items()
        }
        try:
            said = json.loads((self._snapshots.folder / _SEEN).read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # a power cut may leave it torn
            return unknown
        if (said["commit"], said["root"]) != (newest.commit, str(self.root)) or said["seen"].keys() != unknown.keys():
            return unknown
        return {
            path: FileState((mode, size, changed, made, number), *newest.files[path], settled=settled)
            for path, (mode, size, changed, made, number, settled) in said["seen"].items()
        }


class _Fresh:
    """Contents that were read, written as they come: those that the newest snapshot has already are not."""

    def __init__(self, snapshots: Snapshots, known: Callable[[], set[str]]) -> None:
        self._snapshots, self._asked = snapshots, known
        self._known: set[str] | None = None
        self._bodies: dict[str, bytes] = {}
        self._size_bytes = 0

    def keep(self, blob: str, content: bytes) -> None:
        """Take a content."""
        if self._known is None:
            self._known = self._asked()
        if blob not in self._known:
            self._known.add(blob)
            self._bodies[blob] = content
            self._size_bytes += len(content)
            if self._size_bytes > _AT_ONCE_BYTES:
                self.write()

    def write(self) -> None:
        """Write what was taken."""
        self._snapshots.write_objects("blob", self._bodies)
        self._bodies, self._size_bytes = {}, 0


def _state(sight: WorkspaceState) -> Snapshot:
    files = {path: (file.mode, file.blob) for path, file in sight.files.items()}
    permissions = {path: bits for path, file in sight.files.items() if (bits := file.permissions) is not None}
    return Snapshot("", files, dict.fromkeys(sight.folders, ""), sight.left_out, permissions | sight.folders)


def _is_same(sight: WorkspaceState, newest: Snapshot, seen: Mapping[str, FileState]) -> bool:
    if len(sight.files) != len(newest.files) or sight.folders.keys() != newest.folders.keys():
        return False
    if sight.left_out != newest.left_out:
        return False
    if any(newest.permissions.get(path) != bits for path, bits in sight.folders.items()):
        return False
    return all(
        file is seen.get(path)
        or (newest.files.get(path), newest.permissions.get(path)) == ((file.mode, file.blob), file.permissions)
        for path, file in sight.files.items()
    )
