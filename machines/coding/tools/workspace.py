"""The file tools of the coding machine, within one folder.

Takes that folder, and calls (`arguments`); gives what each call gave, or ToolError with what is allowed instead.
Everything is reached beneath a descriptor of the folder (`beneath`): that is the boundary. What the guard says before a call (`fault`) is
advice. Who asks, and whether he may, is not known here.
"""

import difflib
import hashlib
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from machines.coding.tools import file_arguments, file_view
from machines.coding.tools.file_view import (
    BOM,
    FileText,
    FolderListing,
    Matches,
    bytes_of,
    digest_of,
    form_of,
    refuse_missing,
    search_files,
    with_line_ends,
)
from machines.coding.tools.file_writer import refuse_unwritable, settle, twins_of, write_all
from machines.coding.tools.planted_files import is_head
from machines.coding.tools.workspace_boundary import Beneath, WorkspaceGoneError
from machines.coding.tools.workspace_paths import (
    PROTECTED_NAMES,
    Protection,
    WorkspaceToolError,
    file_parts_of,
    parts_of,
    path_text,
    shown_path,
)

_LINES_COMPARED, _WIDTH_COMPARED = 2_000, 120
_LINES_SHOWN = 6


def edit_text(name: str, text: str, old: str, new: str, *, everywhere: bool) -> str:
    """Return the text of file `name` with `old` replaced by `new`.

    Raises ToolError: `not_found`, with the lines that are most alike; `ambiguous`, with the lines where it stands; `bad_arguments`.
    """
    if not old:
        raise WorkspaceToolError(
            "bad_arguments", "'old' is empty: give the text to replace, or write the whole file with write_file"
        )
    match = next((way for way in _ways(text, old) if way in text), None)
    if match is None:
        raise WorkspaceToolError("not_found", _missing(name, text, old))
    replacement = with_line_ends(new, _ending(text, match))
    if replacement == match:
        raise WorkspaceToolError("bad_arguments", "'old' and 'new' are the same: nothing would change")
    count = text.count(match)
    if count > 1 and not everywhere:
        lines = ", ".join(map(str, _places(text, match)[:20]))
        more = "give more of the lines around the one that is meant, or say all=true"
        raise WorkspaceToolError("ambiguous", f"'old' stands {count} times in '{name}' (lines {lines}): {more}")
    return text.replace(match, replacement)


def _ways(text: str, old: str) -> tuple[str, ...]:
    r"""Return `old` as it may stand in the text: with each line ending, and as it was file_arguments.

    Whole `\r\n` come first: a `\n` at the start of `old` is not the second half of one.
    """
    endings = ("\r\n", "\n") if "\r\n" in text else ("\n",)
    return *(with_line_ends(old, ending) for ending in endings), old


def _ending(text: str, match: str) -> str:
    """Return the line ending of the place, else the one that the text has most often."""
    place = match if "\n" in match else text
    pairs = place.count("\r\n")
    return "\r\n" if 2 * pairs > place.count("\n") else "\n"


def _places(text: str, match: str) -> list[int]:
    """Return the lines, from 1, in which it begins."""
    lines, line, at = [], 1, 0
    while (onward := text.find(match, at)) >= 0:
        line += text.count("\n", at, onward)
        lines.append(line)
        line += match.count("\n")
        at = onward + len(match)
    return lines


def _missing(name: str, text: str, old: str) -> str:
    """Return that it is not there, and what is instead."""
    lines = text.split("\n")
    if not _is_mixed(text):
        lines = [line.removesuffix("\r") for line in lines]
    hint = "its line ends are mixed, \\r\\n and \\n: give one line, or several with their ends as read_file shows them"
    message = f"'old' does not stand in '{name}'{f' ({hint})' if _is_mixed(text) else ''}"
    span = _but_for_whitespace(lines, old)
    if span is not None:
        first, last = span
        return f"{message}, but for whitespace it does. Copy it exactly from there:\n{_numbered_lines(lines, range(first, last + 1))}"
    alike = _alike(lines, old)
    if alike:
        return f"{message}. Most alike are:\n{_numbered_lines(lines, alike)}"
    return f"{message}, nor anything like it ({len(text)} chars, {text.count(chr(10)) + 1} lines): read the file again"


def _is_mixed(text: str) -> bool:
    return 0 < text.count("\r\n") < text.count("\n")


def _but_for_whitespace(lines: Sequence[str], old: str) -> tuple[int, int] | None:
    """Return the first and last line, from 0, where `old` stands when whitespace makes no difference."""
    compact_lines = [(number, "".join(line.split())) for number, line in enumerate(lines) if line.strip()]
    compact_old = "".join(old.split())
    compact_text = "".join(line for _, line in compact_lines)
    at = compact_text.find(compact_old) if compact_old else -1
    if at < 0:
        return None
    first, last, passed = -1, -1, 0
    for number, line in compact_lines:
        passed += len(line)
        if first < 0 and passed > at:
            first = number
        if passed >= at + len(compact_old):
            last = number
            break
    return first, last


def _alike(lines: Sequence[str], old: str) -> list[int]:
    """Return the lines, from 0, that are most like the longest line of `old`."""
    target = max(old.split("\n"), key=lambda line: len(line.strip())).strip()[:_WIDTH_COMPARED]
    candidates: dict[str, int] = {}
    for number, line in enumerate(lines[:_LINES_COMPARED]):
        candidates.setdefault(line.strip()[:_WIDTH_COMPARED], number)
    return sorted(candidates[line] for line in difflib.get_close_matches(target, list(candidates), n=3, cutoff=0.6))


def _numbered_lines(lines: Sequence[str], numbers: Sequence[int]) -> str:
    entries = [
        f"{number + 1}: {shown_path(lines[number][:200], plain_chars=chr(9))}" for number in numbers[:_LINES_SHOWN]
    ]
    return "\n".join(entries) + ("\n.." if len(numbers) > _LINES_SHOWN else "")


_MOST_COMPARED = 3_000


def unified_diff(name: str, before: bytes | None, after: bytes) -> str:
    """Return the difference of a file, with the place of each line; None before is a new file.

    What is written stands there whole, whatever its length: a person lets it happen, or not, by what is seen.
    """
    if before is not None and before == after:
        return f"{name}: stays as it is\n"
    head = f"--- {'/dev/null' if before is None else name}\n+++ {name}\n"
    if before is not None and b"\0" in before[:8_192]:
        return f"{head}(binary, {len(before)} bytes, is replaced)\n" + added_lines(after)
    return head + _shown_lines(_body(_lines(before or b""), _lines(after)))


def added_lines(after: bytes) -> str:
    """Return the text that a file has afterwards, each line as one that is added."""
    return _shown_lines([f"+{line}" for line in _lines(after)])


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []


def _body(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the lines of the difference. What is equal at both ends is left out first: comparing takes long."""
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    least = min(len(old), len(new)) - start
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = next((n for n, (a, b) in enumerate(pairs) if n >= least or a != b), least)
    first, last = max(0, start - 3), max(0, end - 3)
    one, other = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(one), len(other)) > _MOST_COMPARED:
        return [
            f"@@ {len(one)} lines from line {first + 1} are replaced by {len(other)} @@",
            *(f"+{line}" for line in other),
        ]
    if one == other:
        return ["(the line break at the end is another)"]
    steps = list(difflib.SequenceMatcher(None, one, other, autojunk=True).get_grouped_opcodes(3))
    return [line for group in steps for line in _hunk(group, one, other, first)]


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], one: Sequence[str], other: Sequence[str], first: int
) -> list[str]:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    lines = [f"@@ -{_span(first + i1, i2 - i1)} +{_span(first + j1, j2 - j1)} @@"]
    for kind, a, b, c, d in group:
        if kind == "equal":
            lines += [f" {line}" for line in one[a:b]]
            continue
        lines += [f"-{line}" for line in one[a:b]] + [f"+{line}" for line in other[c:d]]
    return lines


def _span(start: int, count: int) -> str:
    """Write where lines are, counted from 1; none are behind the line before, as in git's."""
    return f"{start + 1 if count else start},{count}"


def _shown_lines(lines: Sequence[str]) -> str:
    return "".join(f"{shown_path(line, plain_chars=chr(9))}\n" for line in lines)


#: What the guard `inside_workspace` refuses. Other faults of a call are the tool's to tell.
_BOUNDARY = frozenset({"bad_path", "linked_file", "path_outside_workspace", "protected_path"})
_LARGEST_COMPARED = 4_000_000


@attrs.frozen
class FileEdit:
    """What a call does to a file. `before` and `after` are SHA-256 in hex, None where there is no file."""

    path: str
    before: str | None
    after: str | None


@attrs.frozen
class FileChanges:
    """What a call has done to files, in a sentence and by file."""

    result: str
    changes: tuple[FileEdit, ...]


class Workspace:
    """A folder in which files are read and written. May be used from any thread.

    `protected` are glob patterns of files that are never written, besides `PROTECTED_NAMES`: without '/' they are of a name in any folder, with
    it of a path (`tests/**`); they cover what lies in a folder, and letter case makes no difference. `by_walk` opens paths name by name,
    as is done where the kernel cannot do it in one. Raises OSError when the folder cannot be opened, ValueError for an empty pattern.
    """

    def __init__(
        self, root: Path, protected_patterns: Iterable[str] = PROTECTED_NAMES, *, by_walk: bool = False
    ) -> None:
        self._protection = Protection.of(protected_patterns)
        self._root = root
        self._roots = tuple(dict.fromkeys((str(root.absolute()), str(root.resolve()))))
        self._beneath = Beneath(root, by_walk=by_walk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._beneath.close()

    def apply(
        self, call: file_arguments.FileCall, plan: Sequence[FileEdit] = ()
    ) -> FolderListing | FileText | Matches | FileChanges:
        """Do a call, and return what it gave. Raises ToolError.

        With `plan`, what has happened already is not done again and gives the same; a file that is neither as it was nor as it
        will be refuses the call (`changed_since`).
        """
        match call:
            case file_arguments.ListDir():
                return self.list_folder(call)
            case file_arguments.ReadFile():
                return self._read(call)
            case file_arguments.Search():
                return search_files(
                    self._beneath, self._parts(call.path), call.pattern, call.glob, is_regex=call.is_regex, max_results=call.max_results
                )  # fmt: skip
        return self.write(call, plan)

    def list_folder(self, call: file_arguments.ListDir) -> FolderListing:
        """List a folder, as `apply` does."""
        return file_view.list_folder(self._beneath, self._parts(call.path), call.offset)

    def write(self, call: file_arguments.WriteCall, plan: Sequence[FileEdit] = ()) -> FileChanges:
        """Do a call that writes, as `apply` does."""
        paths = self._written_paths(call)
        if plan and self._is_done(paths, plan):
            changes = tuple(plan)
            contents = {parts: bytes_of(self._beneath, parts) for parts in paths}
        else:
            contents = self._contents(call, paths)
            changes = self._changes(contents)
            if plan:
                changes = _checked_plan(changes, plan)
            write_all(self._beneath, {parts: data for parts, data in contents.items() if self._differs(parts, data)})
        if plan:  # then it may be the second time
            settle(self._beneath, paths)
        return FileChanges(_sentence(call, changes, [contents[parts] for parts in paths]), changes)

    def plan(self, call: file_arguments.FileCall) -> tuple[FileEdit, ...]:
        """Return what a writing tool would change as files are now; nothing for another tool. Raises ToolError as the call would."""
        if not isinstance(call, file_arguments.WriteCall):
            return ()
        return self._changes(self._contents(call, self._written_paths(call)))

    def diff(self, call: file_arguments.FileCall) -> str:
        """Return what a writing tool would change as text, for a person. Raises ToolError as the call would."""
        if not isinstance(call, file_arguments.WriteCall):
            return ""
        diffs = []
        for parts, data in self._contents(call, self._written_paths(call)).items():
            status = self._beneath.look(parts)
            if status is not None and status.st_size > _LARGEST_COMPARED:
                diffs.append(
                    f"{path_text(parts)}: {status.st_size} bytes are replaced by {len(data)}\n{added_lines(data)}"
                )
                continue
            before = None if status is None else bytes_of(self._beneath, parts, _LARGEST_COMPARED)
            diffs.append(unified_diff(path_text(parts), before, data))
        return "".join(diffs)

    def fault(self, call: file_arguments.FileCall) -> str:
        """Return why a call would leave the workspace or write what is protected, as files are now; '' if it would not. Raises nothing."""
        try:
            self._refuse(call)
        except WorkspaceToolError as error:
            return str(error) if error.code in _BOUNDARY else ""
        except (OSError, WorkspaceGoneError) as error:
            return f"the path cannot be looked at: {error}"
        return ""

    def exists(self, path: str) -> bool:
        """Return whether a file or folder stands there that the tools reach. Raises nothing for a bad path: nothing stands there."""
        try:
            return self._beneath.look(self._parts(path)) is not None
        except WorkspaceToolError:
            return False

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file, at most 64 MB. Raises ToolError."""
        return bytes_of(self._beneath, self._file_parts(path))

    def known_as(self, path: str) -> str:
        """Return a path as it is recorded, however it was written; of one that is none of the workspace what is left of it by name."""
        try:
            return path_text(self._parts(path))
        except WorkspaceToolError:
            return posixpath.normpath(path)

    def _parts(self, path: object) -> tuple[str, ...]:
        return parts_of(path, self._roots)

    def _file_parts(self, path: object) -> tuple[str, ...]:
        return file_parts_of(path, self._roots)

    def _read(self, call: file_arguments.ReadFile) -> FileText:
        parts = self._file_parts(call.path)
        refuse_missing(self._beneath, parts)
        return file_view.read(self._beneath, parts, call.max_bytes, call.offset)

    def _contents(
        self, call: file_arguments.WriteCall, paths: Sequence[tuple[str, ...]]
    ) -> dict[tuple[str, ...], bytes]:
        """Return what a call would write. Raises ToolError where it cannot."""
        if isinstance(call, file_arguments.Edit):
            return {paths[0]: self._edit(paths[0], call)}
        files = zip(paths, call.files, strict=True)
        return {
            parts: file_arguments.encode(self._in_form_of_file(parts, file.content), path_text(parts))
            for parts, file in files
        }

    def _in_form_of_file(self, parts: tuple[str, ...], content: str) -> str:
        """Return a content with the BOM and the line ends of the file that it replaces."""
        if self._beneath.look(parts) is None:
            return content
        with self._beneath.file(parts) as (file, _):
            return form_of(file).format(content)

    def _written_paths(self, call: file_arguments.WriteCall) -> list[tuple[str, ...]]:
        """Return the files of a call. Raises ToolError where one may not be written."""
        create_dirs = isinstance(call, file_arguments.Edit) or call.create_dirs
        paths = [self._writable(path, create_dirs=create_dirs) for path in call.paths]
        file_arguments.refuse_overlap(paths)
        return paths

    def _writable(self, path: str, *, create_dirs: bool = True) -> tuple[str, ...]:
        parts = self._file_parts(path)
        self._protection.check(parts)
        if is_head(parts[-1]):
            text = f"'{path_text(parts)}' would make its folder a git repository, whose settings run programs: use another name"
            raise WorkspaceToolError("protected_path", text)
        status = self._beneath.look(parts)
        refuse_unwritable(status, parts, self._twins(status, parts))
        if not create_dirs and self._beneath.look(parts[:-1]) is None:
            text = f"there is no folder '{path_text(parts[:-1])}': say create_dirs=true to make it"
            raise WorkspaceToolError("no_such_folder", text)
        return parts

    def _twins(self, status: os.stat_result | None, parts: Sequence[str]) -> int:
        """Count the names of a file that the next write in its folder takes away."""
        if status is None or status.st_nlink == 1:
            return 0
        with self._beneath.folder(parts[:-1]) as folder:
            return twins_of(folder, status)

    def _edit(self, parts: tuple[str, ...], call: file_arguments.Edit) -> bytes:
        name = path_text(parts)
        refuse_missing(self._beneath, parts)
        data = bytes_of(self._beneath, parts, file_arguments.LARGEST_FILE)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            text = f"'{name}' is no UTF-8 text: it cannot be edited, only written anew"
            raise WorkspaceToolError("binary_file", text) from error
        bom = BOM if text.startswith(BOM) else ""
        old, new = call.old.removeprefix(bom), call.new.removeprefix(bom)
        return file_arguments.encode(bom + edit_text(name, text.removeprefix(bom), old, new, everywhere=call.all), name)

    def _changes(self, contents: Mapping[tuple[str, ...], bytes]) -> tuple[FileEdit, ...]:
        return tuple(
            FileEdit(path_text(parts), digest_of(self._beneath, parts), hashlib.sha256(data).hexdigest())
            for parts, data in contents.items()
        )

    def _differs(self, parts: tuple[str, ...], data: bytes) -> bool:
        return digest_of(self._beneath, parts) != hashlib.sha256(data).hexdigest()

    def _is_done(self, paths: Sequence[tuple[str, ...]], plan: Sequence[FileEdit]) -> bool:
        """Return whether all that was planned has happened already."""
        if [path_text(parts) for parts in paths] != [change.path for change in plan]:
            return False
        return all(digest_of(self._beneath, p) == change.after for p, change in zip(paths, plan, strict=True))

    def _refuse(self, call: file_arguments.FileCall) -> None:
        """Raise ToolError where a call must not use a path."""
        if isinstance(call, file_arguments.WriteCall):
            for path in call.paths:
                self._writable(path)
            return
        parts = self._parts(call.path)
        if not isinstance(call, file_arguments.ReadFile):
            file_view.refuse_closed(parts)
        self._beneath.look(parts)


def _sentence(call: file_arguments.WriteCall, changes: Sequence[FileEdit], contents: Sequence[bytes]) -> str:
    """Return what was done, the same when it is done a second time; `contents` are what the files hold now."""
    if isinstance(call, file_arguments.Edit):
        lines = len(contents[0].splitlines())
        return f"Edited {changes[0].path}: it has {lines} {'line' if lines == 1 else 'lines'} now"
    files = zip(call.files, changes, contents, strict=True)
    phrases = [
        f"{len(file.content)} chars to {change.path}{_form_note(file.content, data)}" for file, change, data in files
    ]
    same = "; it was the same before" if len(changes) == 1 and changes[0].before == changes[0].after else ""
    many = f"{len(phrases)} files: " if len(phrases) > 1 else ""
    return f"Wrote {many}{', '.join(phrases)}{same}"


def _form_note(content: str, data: bytes) -> str:
    """Return what a file has of the one that it replaces, where that was not asked for."""
    text = data.decode("utf-8", "replace")
    notes = ["its BOM"] if text.startswith(BOM) > content.startswith(BOM) else []
    notes += ["its line ends \\r\\n"] if text.count("\r\n") > content.count("\r\n") else []
    return f" (which keeps {' and '.join(notes)})" if notes else ""


def _checked_plan(changes: Sequence[FileEdit], plan: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Return what was planned, where the files and the call still are what they were then. Raises ToolError."""
    if [(c.path, c.after) for c in changes] != [(p.path, p.after) for p in plan]:
        names = ", ".join(change.path for change in changes)
        text = f"{names}: not as it was when this call was looked at; read it, and call again"
        raise WorkspaceToolError("changed_since", text)
    for change, edit in zip(changes, plan, strict=True):
        if change.before not in (edit.before, edit.after):
            text = f"'{change.path}' was changed since this call was looked at: read it, and call again"
            raise WorkspaceToolError("changed_since", text)
    return tuple(plan)
