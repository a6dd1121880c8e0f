"""The scan of a workspace: its files with modes and blob ids, as git would store them.

`look` takes an open folder and the result of the last scan. It looks at every file, and reads those that may have changed. It never follows a link, even when
a folder is replaced by a link during the scan. The caller stores the contents.

`rules_of` and `is_named` judge paths by `.gitignore` files as git does (gitignore(5), wildmatch.c), without a process. Matching takes time in proportion to
pattern and path, whatever the pattern, so a pattern cannot be slow.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice

import attrs

from dsa.errors import DsaError
from machines.coding.tools.workspace_boundary import FOLDER, READ, TEMPORARY, TOOL_FOLDERS

_ANY = re.compile(rb".*", re.DOTALL)
_NOTHING = re.compile(rb"(?!)")
_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t", b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9", b"graph": rb"!-~",
    b"lower": rb"a-z", b"print": rb" -~", b"punct": rb"!-/:-@\[-`{-~", b"space": rb" \t-\r", b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip


@attrs.frozen
class IgnoreRule:
    """One line of a `.gitignore`.

    `parts` match the parts of a path, one by one; None matches any number of them. A line without a slash (`by_name`) matches the last part alone.
    """

    parts: tuple[re.Pattern[bytes] | None, ...]
    by_name: bool
    is_negated: bool
    folders_only: bool

    def matches(self, path: Sequence[bytes], *, is_folder: bool) -> bool:
        """Return whether it names a path, which has parts below the folder of the `.gitignore`."""
        if self.folders_only and not is_folder:
            return False
        return _match(self.parts, path[-1:] if self.by_name else path)


def rules_of(text: bytes) -> tuple[IgnoreRule, ...]:
    """Return the rules of a `.gitignore`; a line that means nothing to git matches nothing."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rules = (_rule(line.removesuffix(b"\r")) for line in lines if line and not line.startswith(b"#"))
    return tuple(rule for rule in rules if rule is not None)


#: The rules of the folders above a path, from the top, each with the length of the folder's path.
RuleChain = Sequence[tuple[int, tuple[IgnoreRule, ...]]]


def is_named(chain: RuleChain, parts: Sequence[bytes], *, is_folder: bool) -> bool:
    """Return whether rules name a path; the folders above it do not count.

    `chain` has the rules of the folders above it, the topmost first, each with its depth. The last matching line decides, and lines of the nearest folder come
    before all others.
    """
    for depth, rules in reversed(chain):
        below = parts[depth:]
        for rule in reversed(rules):
            if rule.matches(below, is_folder=is_folder):
                return not rule.is_negated
    return False


def parts_of(path: str) -> tuple[bytes, ...]:
    """Return the parts of a path as the system stores them."""
    return tuple(os.fsencode(path).split(b"/"))


def _rule(line: bytes) -> IgnoreRule | None:
    line = _without_spaces(line)
    is_negated = line.startswith(b"!")
    line = line[1:] if is_negated else line
    folders_only = line.endswith(b"/")
    line = line[:-1] if folders_only else line
    by_name = b"/" not in line
    if not line.removeprefix(b"/"):
        return None
    try:
        parts = list(_parts(line.removeprefix(b"/")))
    except ValueError:  # it can match nothing
        return None
    if by_name:
        parts = [part or _ANY for part in parts]
    elif parts[-1] is None:
        parts.append(_ANY)  # at least one part is below a folder
    return IgnoreRule(tuple(parts), by_name, is_negated, folders_only)


def _without_spaces(line: bytes) -> bytes:
    """Return a line without the spaces at its end, except one after a backslash."""
    match = re.match(rb"(?:\\.|[^\\ ]|\\\Z| +(?=[^ ]))*", line, re.DOTALL)
    return match[0] if match else b""


def _match(patterns: Sequence[re.Pattern[bytes] | None], path: Sequence[bytes]) -> bool:
    at = start = 0
    star, count = -1, len(patterns)
    position = 0
    while position < len(path):
        part = patterns[at] if at < count else _NOTHING
        if part is None:
            star, start = at, position
            at += 1
        elif part.fullmatch(path[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            start += 1  # the last `**` takes one part more
            at, position = star + 1, start
        else:
            return False
    return all(part is None for part in patterns[at:])


def _parts(pattern: bytes) -> Iterator[re.Pattern[bytes] | None]:
    """Yield the pattern of each part of a path. Raises ValueError for a pattern that can match nothing."""
    pieces: list[bytes] = []
    for piece in _pieces(pattern):
        if piece == b"/":
            yield _part_pattern(pieces)
            pieces = []
        else:
            pieces.append(piece)
    yield _part_pattern(pieces)


def _pieces(pattern: bytes) -> Iterator[bytes]:
    """Yield the pieces of a pattern: `/`, `*`, or a regular expression of one byte."""
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"\\":
            byte = pattern[at : at + 1]
            at += 1
            if not byte:
                raise ValueError("the pattern cannot match anything")
            yield byte if byte == b"/" else re.escape(byte)
        elif byte == b"[":
            expression, at = _class(pattern, at)
            yield expression
        elif byte in b"*/":
            yield byte
        else:
            yield b"." if byte == b"?" else re.escape(byte)


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Read a bracket expression from after its bracket; return it, and where it ends."""
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    members, first, last = b"", True, None
    while first or pattern[at : at + 1] != b"]":
        name = re.compile(rb"\[:([a-z]*):\]").match(pattern, at)
        if name is not None:
            if name[1] not in _CLASSES:
                raise ValueError("the pattern cannot match anything")
            members, at, last = members + _CLASSES[name[1]], name.end(), None
        elif pattern[at : at + 1] == b"-" and last is not None and pattern[at + 1 : at + 2] not in (b"]", b""):
            end, at = _literal(pattern, at + 1)
            members += _range(last, end)
            last = None
        else:
            last, at = _literal(pattern, at)
            members += re.escape(last)
        first = False
    members = members.replace(b"&&", rb"&\&").replace(b"||", rb"|\|")  # `re` may give them a meaning in classes
    return b"[" + (b"^" if is_negated else b"") + members + b"]", at + 1


def _literal(pattern: bytes, at: int) -> tuple[bytes, int]:
    at += pattern[at : at + 1] == b"\\"
    if not pattern[at : at + 1]:
        raise ValueError("the pattern cannot match anything")
    return pattern[at : at + 1], at + 1


def _range(first: bytes, last: bytes) -> bytes:
    return re.escape(first) + b"-" + re.escape(last) if first <= last else b""


def _part_pattern(pieces: Sequence[bytes]) -> re.Pattern[bytes] | None:
    """Return the pattern of one part of a path; None for `**`.

    The text between two stars is searched once, as far left as possible: that is enough, and takes no more time.
    """
    if len(pieces) > 1 and set(pieces) == {b"*"}:
        return None
    runs: list[bytes] = [b""]
    for piece in pieces:
        if piece == b"*":
            runs.append(b"")
        else:
            runs[-1] += piece
    head, *rest = runs
    if not rest:
        return re.compile(head, re.DOTALL)
    middle = b"".join(b"(?>.*?" + run + b")" for run in rest[:-1] if run)
    return re.compile(head + middle + b".*" + rest[-1], re.DOTALL)


FILE, PROGRAM, LINK = "100644", "100755", "120000"
LARGEST_BYTES = 5_000_000
#: The limit of the stored content in bytes, and of the time for reading new files in seconds.
MOST_BYTES, MOST_S = 500_000_000, 60.0
BEYOND, LATE = f"beyond {MOST_BYTES // 1_000_000} MB of content", f"not read within {MOST_S:g} s"
#: The reason for a file that a .gitignore named at the first scan. It stays left out; its name is recorded, so that its loss is noticed.
IGNORED_AT_START, MOST_IGNORED = "a .gitignore named it when the run began", 10_000
TOO_MANY_IGNORED = f"beyond {MOST_IGNORED:,} names that a .gitignore named when the run began"
_SMALL_BYTES = 64_000  # code comes before data
#: Special files, with the reasons for leaving them out.
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_PERMISSIONS = 0o777
_DEEPEST = 100
_MOST = 100_000
_IGNORE, _VIRTUAL = ".gitignore", "pyvenv.cfg"
#: A file that changed just before it was read may change again without a change of its times.
_TICK_NS, _SECOND_NS = 50_000_000, 1_000_000_000

_QUIET_S, _EVERY_S = 2.0, 0.5

#: Mode, size in bytes, times of change of content and of the file in ns, number: a changed file has another stamp.
Stamp = tuple[int, int, int, int, int]


def history_error(message: str) -> DsaError:
    """Return the error for a state of a workspace that cannot be stored, or is not known."""
    return DsaError(message, code="HistoryError")


def unkept(left_out: Mapping[str, str]) -> str:
    """Return a line about the files that were left out because of a limit, or an empty text."""
    paths_by_reason = {
        why: sorted(path for path, reason in left_out.items() if reason == why) for why in (BEYOND, LATE)
    }
    phrases = [
        f"{len(paths):,} file{'' if len(paths) == 1 else 's'} {why}, as {', '.join(paths[:3])}"
        for why, paths in paths_by_reason.items()
        if paths
    ]
    lines = (
        [f"these files are not stored, so no diff shows their changes and no undo restores them: {'; '.join(phrases)}"]
        if phrases
        else []
    )
    lines += [
        f"not checked for loss: files {why}, such as {path}"
        for path, why in left_out.items()
        if why == TOO_MANY_IGNORED
    ]
    return "; ".join(lines)


@attrs.define
class ScanBudget:
    """The limits of a scan. `stop` returns whether to stop it; `tell` is called with the progress, after two seconds and then every half second."""

    stop: Callable[[], bool] = bool
    tell: Callable[[str], object] = str
    room_bytes: int = MOST_BYTES
    _began_s: float = attrs.field(factory=lambda: time.monotonic(), init=False)  # noqa: PLW0108  (looked up when it is called)
    _told_s: float = attrs.field(default=_QUIET_S - _EVERY_S, init=False)
    _files: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self._began_s > MOST_S

    def go_on(self, size: int = 0) -> None:
        """Count a file, and the bytes read of it. Raises DsaError when the scan was stopped."""
        if self.stop():
            raise history_error("the scan of the workspace was stopped")
        self._files, self._bytes = self._files + (not size), self._bytes + size
        taken_s = time.monotonic() - self._began_s
        if taken_s >= self._told_s + _EVERY_S:
            self._told_s = taken_s
            progress = f"{self._files:,} files, {self._bytes / 1e6:,.0f} MB"
            self.tell(f"scanning the workspace, so that changes can be undone: {progress}, {taken_s:.0f} s")

    def end(self) -> None:
        """Clear the progress."""
        if self._told_s >= _QUIET_S:
            self.tell("")


@attrs.frozen(slots=True)
class FileState:
    """A file at the time of a scan. With `is_settled`, an equal stamp means equal content."""

    stamp: Stamp
    mode: str
    blob: str
    is_settled: bool

    @property
    def permissions(self) -> int | None:
        """The permissions, or None for a link."""
        return None if self.mode == LINK else self.stamp[0] & _PERMISSIONS


@attrs.define
class WorkspaceState:
    """The result of a scan. `folders` are all folders with their permissions, including empty ones and the workspace itself ('').

    `left_out` are the paths of other files, with the reasons.
    """

    files: dict[str, FileState] = attrs.field(factory=dict)
    folders: dict[str, int] = attrs.field(factory=dict)
    left_out: dict[str, str] = attrs.field(factory=dict)


def blob_id(content: bytes) -> str:
    """Return git's id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def look(
    root: int,
    before: Mapping[str, FileState],
    folders: frozenset[str],
    keep: Callable[[str, bytes], None],
    own: tuple[int, int],
    also: Collection[str] = (),
    left_out: Mapping[str, str] | None = None,
    effort: ScanBudget | None = None,
) -> WorkspaceState:
    """Return the state of a folder; `left_out` is None for the first scan.

    The stored content is limited: files of the last scan and those of `also` come first, then small files, then the others by size. A file that was `left_out`
    for lack of room or time stays left out, so that it never seems to be new. So does a file that a .gitignore named at the first scan, whatever it says later.

    `before` are the files of the last scan, and `folders` are their folders: both are scanned even if a `.gitignore` names them now, as in git, and so are the
    files of `also`. `keep` is called with the id and the content of each file that was read. `own` is device and number of a folder to leave out. Raises
    DsaError for more files than can be stored.
    """
    above = {"/".join(parts[:depth]) for parts in (path.split("/") for path in also) for depth in range(1, len(parts))}
    effort = effort or ScanBudget()
    effort.room_bytes -= sum(state.stamp[1] for state in before.values())
    ignored_names = _IgnoredNames.of(left_out, own)
    scan = _Scan(before, folders, frozenset(also), above, keep, own, left_out or {}, effort, ignored_names)
    scan.folder(root, "", ())
    scan.large_ones(root)
    scan.sight.left_out |= ignored_names.left_out() | {
        path: why for path, why in (left_out or {}).items() if why == TOO_MANY_IGNORED
    }
    return scan.sight


def read_file(folder: int, name: str) -> tuple[str, bytes] | None:
    """Return mode and content of a file or link, or None for anything else. Raises OSError, and DsaError for a file that is too large."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return LINK, os.fsencode(os.readlink(name, dir_fd=folder))
        if not stat.S_ISREG(status.st_mode):
            return None
        file = _read(folder, name)
    except FileNotFoundError:
        return None
    if file is None:
        raise history_error(f"'{name}' is larger than {LARGEST_BYTES:,} bytes, or is no longer a regular file")
    return _mode(file[0].st_mode), file[1]


@attrs.define
class _IgnoredNames:
    """The paths that existed and were ignored at the first scan. Later scans look only for `known_names`, by folder."""

    known_names: Mapping[str, Collection[str]] | None
    own: tuple[int, int]
    paths: set[str] = attrs.field(factory=set)
    beyond: str = ""

    @classmethod
    def of(cls, left_out: Mapping[str, str] | None, own: tuple[int, int]) -> "_IgnoredNames":
        """Return the names of the last scan, from its `left_out`; None at the first scan."""
        if left_out is None:
            return cls(None, own)
        known_names: dict[str, set[str]] = {}
        for path in (path for path, why in left_out.items() if why == IGNORED_AT_START):
            while path and path.rpartition("/")[2] not in known_names.setdefault(path.rpartition("/")[0], set()):
                folder, _, name = path.rpartition("/")
                known_names[folder].add(name)
                path = folder  # noqa: PLW2901  (up to the top)
        return cls(known_names, own)

    def has(self, path: str) -> bool:
        """Return whether a file was ignored at the first scan, and record that it still exists."""
        folder, _, name = path.rpartition("/")
        is_known = self.known_names is not None and name in self.known_names.get(folder, ())
        if is_known:
            self.paths.add(path)
        return is_known

    def file(self, path: str) -> None:
        """Record a file that is ignored now, if this is the first scan."""
        if self.known_names is not None:
            self.has(path)
        elif len(self.paths) < MOST_IGNORED:
            self.paths.add(path)
        else:
            self.beyond = self.beyond or path

    def folder(self, above: int, path: str) -> None:
        """Record the files in a folder that is ignored now, except those of other programs."""
        is_of_none = self.known_names is not None and path not in self.known_names
        if self.beyond or is_of_none or path.count("/") >= _DEEPEST:
            return
        try:
            descriptor = os.open(path.rpartition("/")[2], FOLDER, dir_fd=above)
        except OSError:  # gone, replaced, or not readable
            return
        try:
            for name, mode in () if self._is_left_out(descriptor) else self._inside(descriptor, path):
                take = self.folder if stat.S_ISDIR(mode) else lambda _, inner: self.file(inner)
                take(descriptor, f"{path}/{name}")
        finally:
            os.close(descriptor)

    def _is_left_out(self, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == self.own or _has(descriptor, _VIRTUAL)

    def _inside(self, descriptor: int, path: str) -> Iterator[tuple[str, int]]:
        """Yield the names in a folder with their modes: at the first scan up to the limit, later the known ones."""
        if self.known_names is not None:
            names = sorted(self.known_names[path])
        else:
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in islice(entries, MOST_IGNORED + 1) if not _is_closed(entry.name))
        for name in names:
            with suppress(FileNotFoundError):
                yield name, os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode

    def left_out(self) -> dict[str, str]:
        """Return the paths with the reason."""
        return dict.fromkeys(sorted(self.paths), IGNORED_AT_START) | (
            {self.beyond: TOO_MANY_IGNORED} if self.beyond else {}
        )


@attrs.define
class _Scan:
    before: Mapping[str, FileState]
    folders: frozenset[str]
    also: frozenset[str]
    above: Collection[str]
    keep: Callable[[str, bytes], None]
    own: tuple[int, int]
    left_out: Mapping[str, str]
    effort: ScanBudget
    ignored_names: _IgnoredNames
    sight: WorkspaceState = attrs.field(factory=WorkspaceState)
    later: list[tuple[int, str]] = attrs.field(factory=list)

    def folder(self, descriptor: int, prefix: str, chain: RuleChain, *, is_closed: bool = False) -> None:
        """Scan a folder; `prefix` ends with a slash, or is empty. `chain` has the rules of the folders above it.

        In a folder that `is_closed` only the files of `also` and of the last scan are scanned.
        """
        with os.scandir(descriptor) as entries:
            all_entries = list(entries)
        here, names = prefix[:-1], {entry.name for entry in all_entries}
        if here and _VIRTUAL in names and f"{prefix}{_VIRTUAL}" not in self.before:
            if here not in self.folders and here not in self.above:
                self.sight.left_out[here] = "a virtual environment"
                return
            is_closed = True
        entries_to_scan = [
            entry
            for entry in all_entries
            if not (is_closed or _is_closed(entry.name)) or self._is_wanted(prefix + entry.name)
        ]
        self.sight.folders[here] = os.fstat(descriptor).st_mode & _PERMISSIONS
        rules = self._rules(descriptor) if _IGNORE in names else ()
        chain = [*chain, (prefix.count("/"), rules)] if rules else chain
        for entry in entries_to_scan:
            path = prefix + entry.name
            is_wanted = self._is_wanted(path)
            if entry.is_dir(follow_symlinks=False):
                if is_wanted or not _is_ignored(chain, path, is_folder=True):
                    self._into(descriptor, path, chain, is_closed=is_closed or _is_closed(entry.name))
                else:
                    self.ignored_names.folder(descriptor, path)
            elif not is_wanted and _is_ignored(chain, path, is_folder=False):
                self.ignored_names.file(path)
            elif is_wanted or not self.ignored_names.has(path):
                with suppress(FileNotFoundError):  # gone since it was listed
                    self._file(descriptor, entry.name, path, entry.stat(follow_symlinks=False))
        if len(self.sight.files) + len(self.sight.left_out) + len(self.later) > _MOST:
            raise history_error(
                f"the workspace has more than {_MOST:,} files: use a .gitignore to leave out those that are not part of the work"
            )

    def _is_wanted(self, path: str) -> bool:
        """Return whether a path is scanned whatever its name."""
        return path in self.before or path in self.folders or path in self.also or path in self.above

    def _rules(self, descriptor: int) -> tuple[IgnoreRule, ...]:
        try:
            file = _read(descriptor, _IGNORE)
        except OSError:  # a link, gone, or not readable: it names nothing, as in git
            return ()
        return rules_of(file[1]) if file else ()

    def _into(self, above: int, path: str, chain: RuleChain, *, is_closed: bool) -> None:
        if path.count("/") >= _DEEPEST:
            self.sight.left_out[path] = f"deeper than {_DEEPEST} folders"
            return
        try:
            descriptor = os.open(path.rpartition("/")[2], FOLDER, dir_fd=above)
        except (FileNotFoundError, NotADirectoryError):  # gone or replaced since it was listed
            return
        except PermissionError:
            self.sight.left_out[path] = "cannot be read"
            return
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self.own:
                self.folder(descriptor, path + "/", chain, is_closed=is_closed)
        finally:
            os.close(descriptor)

    def _file(self, folder: int, name: str, path: str, status: os.stat_result) -> None:
        self.effort.go_on()
        earlier = self.before.get(path)
        if earlier is not None and earlier.is_settled and earlier.stamp == _stamp(status):
            self.sight.files[path] = earlier
        elif stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            self._keep(path, LINK, target, status, is_settled=True)  # a link is never changed, only replaced
        elif stat.S_ISREG(status.st_mode):
            self._read_within_bounds(folder, name, path, status.st_size)
        else:
            self.sight.left_out[path] = SPECIAL[stat.S_IFMT(status.st_mode)]

    def _read_within_bounds(self, folder: int, name: str, path: str, size: int) -> None:
        """Read a file of the last scan or of `also`; read another one if there is room, and large ones later."""
        if path in self.before or path in self.also:
            self._regular(folder, name, path)
        elif (why := self.left_out.get(path)) in {BEYOND, LATE}:
            self.sight.left_out[path] = why
        elif _SMALL_BYTES < size <= LARGEST_BYTES:
            self.later.append((size, path))
        else:
            self._new(folder, name, path, size)

    def _new(self, folder: int, name: str, path: str, size: int) -> None:
        """Read a new file, if there is room and time."""
        if size <= LARGEST_BYTES and (size > self.effort.room_bytes or self.effort.is_late):
            self.sight.left_out[path] = BEYOND if size > self.effort.room_bytes else LATE
            return
        self._regular(folder, name, path)
        if path in self.sight.files:
            self.effort.room_bytes -= self.sight.files[path].stamp[1]

    def large_ones(self, root: int) -> None:
        """Read the large new files, the smaller ones first."""
        for size, path in sorted(self.later):
            self.effort.go_on()
            *above, name = path.split("/")
            with ExitStack() as stack, suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # gone since
                folder = root
                for part in above:
                    folder = os.open(part, FOLDER, dir_fd=folder)
                    stack.callback(os.close, folder)
                self._new(folder, name, path, size)

    def _regular(self, folder: int, name: str, path: str) -> None:
        now_ns = time.time_ns()
        try:
            file = _read(folder, name)
        except FileNotFoundError:
            return
        except OSError as fault:
            self.sight.left_out[path] = f"cannot be read: {fault.strerror}"
            return
        if file is None:
            self.sight.left_out[path] = f"over {LARGEST_BYTES:,} bytes"
            return
        status, content = file
        # The times of this file system are in seconds.
        tick_ns = _TICK_NS if status.st_ctime_ns % _SECOND_NS else 2 * _SECOND_NS
        self._keep(path, _mode(status.st_mode), content, status, is_settled=status.st_ctime_ns < now_ns - tick_ns)

    def _keep(self, path: str, mode: str, content: bytes, status: os.stat_result, *, is_settled: bool) -> None:
        self.effort.go_on(len(content))
        blob = blob_id(content)
        self.keep(blob, content)
        self.sight.files[path] = FileState(_stamp(status), mode, blob, is_settled)


def _read(folder: int, name: str) -> tuple[os.stat_result, bytes] | None:
    """Return the status and the content of a regular file; None for anything else, and for a file that is too large. Raises OSError."""
    descriptor = os.open(name, READ, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_BYTES:
            return None
        content = bytearray()
        while len(content) <= LARGEST_BYTES and (
            piece := os.read(descriptor, max(status.st_size - len(content), 0) + 1)
        ):
            content += piece
    finally:
        os.close(descriptor)
    return (status, bytes(content)) if len(content) <= LARGEST_BYTES else None


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _mode(mode: int) -> str:
    return PROGRAM if mode & stat.S_IXUSR else FILE


def _is_closed(name: str) -> bool:
    return name.lower() in TOOL_FOLDERS or name.startswith(TEMPORARY)


def _is_ignored(chain: RuleChain, path: str, *, is_folder: bool) -> bool:
    return bool(chain) and is_named(chain, parts_of(path), is_folder=is_folder)
