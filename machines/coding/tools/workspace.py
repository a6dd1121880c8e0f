"""The file tools of the coding machine, within one folder.

`Workspace` takes calls (`file_arguments`), and returns their results or raises ToolError with what is allowed instead. Every access goes through a
descriptor of the folder (`workspace_boundary`), which is the boundary; the guard's `fault` before a call is advice. Permissions are checked elsewhere.
"""

import difflib
import hashlib
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from dsa.errors import DsaError, ToolError
from dsa.text import plural
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
from machines.coding.tools.workspace_boundary import (
    PROTECTED_NAMES,
    Beneath,
    Protection,
    file_parts_of,
    parts_of,
    path_text,
    shown_path,
)

_LINES_COMPARED, _WIDTH_COMPARED = 2_000, 120
_LINES_SHOWN = 6


def edit_text(name: str, text: str, old: str, new: str, *, everywhere: bool) -> str:
    """Return the text of file `name` with `old` replaced by `new`.

    Raises ToolError: `not_found`, with the most similar lines; `ambiguous`, with the lines of the matches; `bad_arguments`.
    """
    if not old:
        raise ToolError(
            "'old' is empty: name the text to replace, or write the whole file with write_file", code="bad_arguments"
        )
    match = next((way for way in _ways(text, old) if way in text), None)
    if match is None:
        raise ToolError(_missing(name, text, old), code="not_found")
    replacement = with_line_ends(new, _ending(text, match))
    if replacement == match:
        raise ToolError("'old' and 'new' are the same: nothing would change", code="bad_arguments")
    count = text.count(match)
    if count > 1 and not everywhere:
        lines = ", ".join(map(str, _places(text, match)[:20]))
        more = "add the lines around the right place to 'old', or set all=true"
        raise ToolError(f"'old' occurs {count} times in '{name}' (lines {lines}): {more}", code="ambiguous")
    return text.replace(match, replacement)


def _ways(text: str, old: str) -> tuple[str, ...]:
    r"""Return the forms that `old` may have in the text: with each line ending, and unchanged.

    `\r\n` comes first, so that a `\n` at the start of `old` does not match the second half of one.
    """
    endings = ("\r\n", "\n") if "\r\n" in text else ("\n",)
    return *(with_line_ends(old, ending) for ending in endings), old


def _ending(text: str, match: str) -> str:
    """Return the line ending of the match, or the most frequent one of the text."""
    place = match if "\n" in match else text
    pairs = place.count("\r\n")
    return "\r\n" if 2 * pairs > place.count("\n") else "\n"


def _places(text: str, match: str) -> list[int]:
    """Return the lines, from 1, in which matches begin."""
    lines, line, at = [], 1, 0
    while (onward := text.find(match, at)) >= 0:
        line += text.count("\n", at, onward)
        lines.append(line)
        line += match.count("\n")
        at = onward + len(match)
    return lines


def _missing(name: str, text: str, old: str) -> str:
    """Return a message about a text that was not found, with the most similar lines."""
    lines = text.split("\n")
    if not _is_mixed(text):
        lines = [line.removesuffix("\r") for line in lines]
    hint = "its line ends are mixed, \\r\\n and \\n: use one line, or several lines with the line ends that read_file shows"
    message = f"'old' does not occur in '{name}'{f' ({hint})' if _is_mixed(text) else ''}"
    span = _but_for_whitespace(lines, old)
    if span is not None:
        first, last = span
        return f"{message}, except with other whitespace. Copy the text exactly from these lines:\n{_numbered_lines(lines, range(first, last + 1))}"
    alike = _alike(lines, old)
    if alike:
        return f"{message}. The most similar lines are:\n{_numbered_lines(lines, alike)}"
    return f"{message}, and neither does a similar text ({len(text)} chars, {text.count(chr(10)) + 1} lines): read the file again"


def _is_mixed(text: str) -> bool:
    return 0 < text.count("\r\n") < text.count("\n")


def _but_for_whitespace(lines: Sequence[str], old: str) -> tuple[int, int] | None:
    """Return the first and last line, from 0, of the match when whitespace does not matter."""
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
    """Return the lines, from 0, that are most similar to the longest line of `old`."""
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
    """Return the diff of a file with line numbers; None before is a new file.

    New lines are shown whole, whatever their length, because a person decides by what the diff shows.
    """
    if before is not None and before == after:
        return f"{name}: stays as it is\n"
    head = f"--- {'/dev/null' if before is None else name}\n+++ {name}\n"
    if before is not None and b"\0" in before[:8_192]:
        return f"{head}(binary, {len(before)} bytes, is replaced)\n" + added_lines(after)
    return head + _shown_lines(_body(_lines(before or b""), _lines(after)))


def added_lines(after: bytes) -> str:
    """Return the new text of a file as added lines."""
    return _shown_lines([f"+{line}" for line in _lines(after)])


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []


def _body(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the lines of the diff. Equal lines at both ends are skipped first, because comparing takes long."""
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
        return ["(only the line break at the end changes)"]
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
    """Return the position of lines, counted from 1; for no lines, that of the line before, as in git."""
    return f"{start + 1 if count else start},{count}"


def _shown_lines(lines: Sequence[str]) -> str:
    return "".join(f"{shown_path(line, plain_chars=chr(9))}\n" for line in lines)


#: The codes that the guard `inside_workspace` refuses. The tool itself reports other faults.
_BOUNDARY = frozenset({"bad_path", "linked_file", "path_outside_workspace", "protected_path"})
_LARGEST_COMPARED = 4_000_000


@attrs.frozen
class FileEdit:
    """The change of a file by a call. `before` and `after` are SHA-256 in hex, or None when there is no file."""

    path: str
    before: str | None
    after: str | None


@attrs.frozen
class FileChanges:
    """The changes of a call, in a sentence and by file."""

    result: str
    changes: tuple[FileEdit, ...]


class Workspace:
    """A folder in which files are read and written. Any thread may use it.

    `protected_patterns` are glob patterns of files that are never written, besides `PROTECTED_NAMES`: one without '/' matches a name in any folder, one with '/' a
    path (`tests/**`); they cover everything in a folder, and ignore letter case. `by_walk` opens paths name by name, as on kernels that cannot do it in one call. Raises
    OSError when the folder cannot be opened, ValueError for an empty pattern.
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
        """Close the folder."""
        self._beneath.close()

    def apply(
        self, call: file_arguments.FileCall, plan: Sequence[FileEdit] = ()
    ) -> FolderListing | FileText | Matches | FileChanges:
        """Make a call, and return its result. Raises ToolError.

        With a `plan`, changes that have already happened are not made again, and the result is the same; a file in neither its old nor its new state refuses the call
        (`changed_since`).
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
        """Return the listing of a folder, as `apply` does."""
        return file_view.list_folder(self._beneath, self._parts(call.path), call.offset)

    def write(self, call: file_arguments.WriteCall, plan: Sequence[FileEdit] = ()) -> FileChanges:
        """Make a call that writes, as `apply` does."""
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
        if plan:  # it may be the second time
            settle(self._beneath, paths)
        return FileChanges(_sentence(call, changes, [contents[parts] for parts in paths]), changes)

    def plan(self, call: file_arguments.FileCall) -> tuple[FileEdit, ...]:
        """Return the changes that a writing tool would make now; none for another tool. Raises ToolError as the call would."""
        if not isinstance(call, file_arguments.WriteCall):
            return ()
        return self._changes(self._contents(call, self._written_paths(call)))

    def diff(self, call: file_arguments.FileCall) -> str:
        """Return the changes that a writing tool would make, as text for a person. Raises ToolError as the call would."""
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
        """Return why a call would leave the workspace or write a protected file now, or an empty text. Raises nothing."""
        try:
            self._refuse(call)
        except ToolError as error:
            return str(error) if error.code in _BOUNDARY else ""
        except (OSError, DsaError) as error:
            return f"the path cannot be checked: {error}"
        return ""

    def exists(self, path: str) -> bool:
        """Return whether the tools reach a file or folder at a path. Raises nothing for a bad path."""
        try:
            return self._beneath.look(self._parts(path)) is not None
        except ToolError:
            return False

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file, at most 64 MB. Raises ToolError."""
        return bytes_of(self._beneath, self._file_parts(path))

    def known_as(self, path: str) -> str:
        """Return a path as it is recorded, however it was written; for a path outside of the workspace, its normal form."""
        try:
            return path_text(self._parts(path))
        except ToolError:
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
        """Return the contents that a call would write. Raises ToolError when it cannot."""
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
        """Return the files of a call. Raises ToolError when one may not be written."""
        create_dirs = isinstance(call, file_arguments.Edit) or call.create_dirs
        paths = [self._writable(path, create_dirs=create_dirs) for path in call.paths]
        file_arguments.refuse_overlap(paths)
        return paths

    def _writable(self, path: str, *, create_dirs: bool = True) -> tuple[str, ...]:
        parts = self._file_parts(path)
        self._protection.check(parts)
        if is_head(parts[-1]):
            text = f"'{path_text(parts)}' would make its folder a git repository, whose settings can run programs: use another name"
            raise ToolError(text, code="protected_path")
        status = self._beneath.look(parts)
        refuse_unwritable(status, parts, self._twins(status, parts))
        if not create_dirs and self._beneath.look(parts[:-1]) is None:
            text = f"there is no folder '{path_text(parts[:-1])}': set create_dirs=true to create it"
            raise ToolError(text, code="no_such_folder")
        return parts

    def _twins(self, status: os.stat_result | None, parts: Sequence[str]) -> int:
        """Return the number of a file's names that the next write in its folder removes."""
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
            text = f"'{name}' is not UTF-8 text: it cannot be edited, only written as a whole"
            raise ToolError(text, code="binary_file") from error
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
        """Return whether the whole plan has happened already."""
        if [path_text(parts) for parts in paths] != [change.path for change in plan]:
            return False
        return all(digest_of(self._beneath, p) == change.after for p, change in zip(paths, plan, strict=True))

    def _refuse(self, call: file_arguments.FileCall) -> None:
        """Raise ToolError when a call must not use a path."""
        if isinstance(call, file_arguments.WriteCall):
            for path in call.paths:
                self._writable(path)
            return
        parts = self._parts(call.path)
        if not isinstance(call, file_arguments.ReadFile):
            file_view.refuse_closed(parts)
        self._beneath.look(parts)


def _sentence(call: file_arguments.WriteCall, changes: Sequence[FileEdit], contents: Sequence[bytes]) -> str:
    """Return a sentence about a call, equal when it is repeated; `contents` are those of the files now."""
    if isinstance(call, file_arguments.Edit):
        lines = len(contents[0].splitlines())
        return f"Edited {changes[0].path}: it has {plural(lines, 'line')} now"
    files = zip(call.files, changes, contents, strict=True)
    phrases = [
        f"{len(file.content)} chars to {change.path}{_form_note(file.content, data)}" for file, change, data in files
    ]
    same = "; it was the same before" if len(changes) == 1 and changes[0].before == changes[0].after else ""
    many = f"{len(phrases)} files: " if len(phrases) > 1 else ""
    return f"Wrote {many}{', '.join(phrases)}{same}"


def _form_note(content: str, data: bytes) -> str:
    """Return a note on what the new file has kept of the old one although the content did not have it."""
    text = data.decode("utf-8", "replace")
    notes = ["its BOM"] if text.startswith(BOM) > content.startswith(BOM) else []
    notes += ["its line ends \\r\\n"] if text.count("\r\n") > content.count("\r\n") else []
    return f" (which keeps {' and '.join(notes)})" if notes else ""


def _checked_plan(changes: Sequence[FileEdit], plan: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Return the plan, if the files and the call are still as they were then. Raises ToolError."""
    if [(c.path, c.after) for c in changes] != [(p.path, p.after) for p in plan]:
        names = ", ".join(change.path for change in changes)
        text = f"{names}: changed since this call was checked; read again, and repeat the call"
        raise ToolError(text, code="changed_since")
    for change, edit in zip(changes, plan, strict=True):
        if change.before not in (edit.before, edit.after):
            text = f"'{change.path}' has changed since this call was checked: read it, and call again"
            raise ToolError(text, code="changed_since")
    return tuple(plan)
