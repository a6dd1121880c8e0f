"""The reading tools: `list_folder`, `read` and `search_files`, and facts about files for the other tools.

They take an open workspace (`beneath`) and the names of a path, and return records whose `result` is a sentence for the model. Every amount is limited; the
result says what is missing.

Regular expressions are RE2's, whose time is proportional to the text: Python's `re` can take forever even with short expressions and lines.
"""

import codecs
import difflib
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from dsa.errors import ToolError
from dsa.runtime.secrets import compile_pattern
from dsa.text import plural
from machines.coding.tools.workspace_boundary import (
    DEEPEST,
    Beneath,
    PathPattern,
    is_closed,
    is_record,
    is_temporary,
    kind_of,
    path_text,
    shown_path,
)

#: The limits of `max_bytes`. No character has more than 4 bytes.
LEAST_READ, MOST_READ = 4, 1_000_000
_MOST_NAMES, _MOST_COMPARED = 200, 1_000
_MOST_WHOLE = 64_000_000
_PIECE = 1_048_576
_LOOKED_AT = 8_192
BOM = "\ufeff"


@attrs.frozen
class ListedName:
    """A name in a folder. `kind` is file, folder, link or other; a folder has no size."""

    name: str
    kind: str
    size_bytes: int | None = None


@attrs.frozen
class FolderListing:
    """The names in a folder, and the number of those that follow."""

    result: str
    entries: tuple[ListedName, ...]
    more: int


@attrs.frozen
class FileText:
    """The text of a file, or a part of it. `lines` is None for a very large file, `next_offset` is None at the end."""

    content: str
    size_bytes: int
    lines: int | None
    result: str
    truncated: bool
    next_offset: int | None


@attrs.frozen
class TextForm:
    """The form of a text: its lines, the number of LF, of CR and of pairs of both, and whether it starts with a BOM."""

    lines: int
    breaks: int
    returns: int
    pairs: int
    has_bom: bool

    @property
    def is_crlf(self) -> bool:
        """Whether every line ends in CRLF, and there is no other CR: then a text with LF can be written back without loss."""
        return 0 < self.pairs == self.breaks == self.returns

    @property
    def is_mixed(self) -> bool:
        """Whether some lines end in CRLF and others do not."""
        return 0 < self.pairs < self.breaks

    def format(self, text: str) -> str:
        """Return a text in this form."""
        text = with_line_ends(text, "\r\n") if self.is_crlf else text
        return BOM + text.removeprefix(BOM) if self.has_bom else text


def with_line_ends(text: str, ending: str) -> str:
    """Return a text with the same ending on all lines."""
    return text.replace("\r\n", "\n").replace("\n", ending)


def list_folder(beneath: Beneath, parts: Sequence[str], offset: int = 0) -> FolderListing:
    """Return the names in a folder, without the first `offset`. Raises ToolError."""
    refuse_closed(parts)
    status = beneath.look(parts)
    if status is not None and kind_of(status.st_mode) != "folder":
        raise ToolError(f"'{path_text(parts)}' is not a folder: read it with read_file", code="not_a_folder")
    names = [(name, entry) for name, entry in names_in(beneath, parts) if not _is_hidden(name)]
    entries = tuple(_entry(name, entry) for name, entry in names[offset : offset + _MOST_NAMES])
    end = offset + len(entries)
    more = max(0, len(names) - end)
    result = f"{len(names)} {'entry' if len(names) == 1 else 'entries'} in {path_text(parts)}"
    if offset:
        result += f"; those before number {offset + 1} are not shown"
    if more:
        result += f"; {more} more are not shown: continue with offset={end}"
    return FolderListing(result, entries, more)


def refuse_closed(parts: Sequence[str]) -> None:
    """Raise ToolError for a folder that is not listed or searched."""
    if is_closed(parts) or is_record(parts):
        raise ToolError(
            f"the contents of '{path_text(parts)}' are not listed or searched; the rest of the workspace is",
            code="protected_path",
        )


def names_in(beneath: Beneath, parts: Sequence[str]) -> list[tuple[str, os.stat_result]]:
    """Return every name in a folder, sorted, with its status. Raises ToolError."""
    entries = []
    with beneath.folder(parts) as folder, beneath.explain_errors(parts):
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  # of a descriptor
            with suppress(FileNotFoundError):  # gone by now
                entries.append((name, os.stat(name, dir_fd=folder, follow_symlinks=False)))
    return entries


def _is_hidden(name: str) -> bool:
    """Return whether a name is not listed; `.git` itself is."""
    return is_temporary(name) or is_record((name,)) or (is_closed((name,)) and name.casefold() != ".git")


def _entry(name: str, status: os.stat_result) -> ListedName:
    kind = kind_of(status.st_mode)
    return (
        ListedName(f"{shown_path(name)}/", kind)
        if kind == "folder"
        else ListedName(shown_path(name), kind, status.st_size)
    )


def read(beneath: Beneath, parts: Sequence[str], max_bytes: int, offset: int) -> FileText:
    """Return the text of a file from byte `offset` on, at most `max_bytes` of it (4 or more). Raises ToolError, `binary_file` when it is not text."""
    name = path_text(parts)
    with beneath.file(parts) as (file, status):
        head = os.pread(file, _LOOKED_AT, 0)
        if b"\0" in head:
            raise ToolError(
                f"'{name}' is not text ({status.st_size} bytes{_of_utf16(head)}): it cannot be shown",
                code="binary_file",
            )
        data = _read_at(file, offset, max_bytes)
        size = max(status.st_size, offset + len(data) if data else 0)
        form = form_of(file) if size <= _MOST_WHOLE else None
    whole = len(data) < max_bytes or offset + len(data) >= size
    if form is not None and form.is_crlf and not whole:
        data = data.removesuffix(b"\r")  # its other half comes with the next part
    text, used_bytes = _decode(data, whole=whole)
    end = offset + used_bytes
    result = _sentence(name, text, offset, end, size, form)
    if form is not None:
        text = text.removeprefix(BOM) if form.has_bom and not offset else text
        text = with_line_ends(text, "\n") if form.is_crlf else text
    lines = None if form is None else form.lines
    return FileText(text, size, lines, result, end < size, end if end < size else None)


def _sentence(name: str, text: str, offset: int, end: int, size: int, form: TextForm | None) -> str:
    """Return a sentence on what was read, its form if that is unusual, and where to continue."""
    line_count = "" if form is None else f", {plural(form.lines, 'line')}"
    sentence = f"Read {name}: {size} bytes{line_count}{_unusual(form)}"
    if offset or end < size:
        sentence += f"; bytes {offset} to {end} are shown"
    if end < size:
        sentence += f"; continue with offset={end}"
    if "\ufffd" in text:
        sentence += f"; it is not all UTF-8: {text.count(chr(0xFFFD))} characters are shown as \ufffd"
    return sentence


def _unusual(form: TextForm | None) -> str:
    notes = "; it begins with a BOM, which is not shown" if form is not None and form.has_bom else ""
    if form is not None and form.is_crlf:
        notes += "; its lines end in \\r\\n, shown as \\n"
    if form is not None and form.is_mixed:
        notes += "; its line ends are mixed, \\r\\n and \\n, and shown as they are"
    return notes


def _decode(data: bytes, *, whole: bool) -> tuple[str, int]:
    """Return the text, and the number of its bytes: a character that is cut at the end is left for the next call."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=whole)
    left = len(decoder.getstate()[0])
    return text, len(data) - left


def _of_utf16(head: bytes) -> str:
    return ", of UTF-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""


def _read_at(file: int, offset: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.pread(file, min(most, _PIECE), offset)):
        pieces.append(piece)
        offset += len(piece)
        most -= len(piece)
    return b"".join(pieces)


def form_of(file: int) -> TextForm:
    """Return the form of an open file. A last line without an end counts."""
    breaks, returns, pairs, last = 0, 0, 0, b"\n"
    for piece in pieces_of(file):
        breaks += piece.count(b"\n")
        returns += piece.count(b"\r")
        pairs += piece.count(b"\r\n") + (last == b"\r" and piece.startswith(b"\n"))
        last = piece[-1:]
    has_bom = os.pread(file, len(codecs.BOM_UTF8), 0) == codecs.BOM_UTF8
    return TextForm(breaks + (last != b"\n"), breaks, returns, pairs, has_bom)


def pieces_of(file: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from the start; its position does not change."""
    at = 0
    while piece := os.pread(file, _PIECE, at):
        yield piece
        at += len(piece)


def refuse_missing(beneath: Beneath, parts: Sequence[str]) -> None:
    """Raise ToolError when a path does not exist, with similar names beside it."""
    if beneath.look(parts) is not None:
        return
    message = f"there is no '{path_text(parts)}'"
    above = parts[:-1]
    if beneath.look(above) is None:
        raise ToolError(
            f"{message}, nor a folder '{path_text(above)}': find the right folder with list_dir", code="no_such_file"
        )
    names = [name for name, _ in names_in(beneath, above) if not _is_hidden(name)]
    alike = difflib.get_close_matches(parts[-1], names[:_MOST_COMPARED], n=3)
    suggestions = [f"'{path_text((*above, name))}'" for name in alike]
    raise ToolError(
        f"{message}; there is {', '.join(suggestions)}" if suggestions else f"{message}: list the folder with list_dir",
        code="no_such_file",
    )


def digest_of(beneath: Beneath, parts: Sequence[str]) -> str | None:
    """Return the SHA-256 of a file in hex, or None when it does not exist. Raises ToolError."""
    if beneath.look(parts) is None:
        return None
    digest = hashlib.sha256()
    with beneath.file(parts) as (file, _):
        for piece in pieces_of(file):
            digest.update(piece)
    return digest.hexdigest()


def bytes_of(beneath: Beneath, parts: Sequence[str], most: int = _MOST_WHOLE) -> bytes:
    """Return all bytes of a file. Raises ToolError, `too_large` for more than `most`."""
    with beneath.file(parts) as (file, status):
        data = _read_at(file, 0, most + 1)
    if len(data) > most:
        raise ToolError(
            f"'{path_text(parts)}' has {status.st_size} bytes; at most {most} can be read at once", code="too_large"
        )
    return data


#: The most lines that are returned, and that are counted.
MOST_RESULTS, _MOST_COUNTED = 1_000, 10_000
_MOST_FILES, _MOST_BYTES, _LARGEST_FILE = 20_000, 32_000_000, 1_000_000
_LONGEST_PATTERN, _LONGEST_LINE, _BEFORE = 1_000, 200, 60
_TIME_LIMIT_S = 10.0
#: Folders with the output of programs. They are searched when `path` leads into them.
_PASSED_OVER = frozenset({".venv", "node_modules", "__pycache__"} | {f".{n}_cache" for n in ("mypy", "ruff", "pytest")})

_Hit = tuple[int, int, int]


@attrs.frozen
class Matches:
    """The matching lines, as `file:line: text`. `more`: there are others; `skipped` counts what was not searched, by kind."""

    result: str
    matches: tuple[str, ...]
    more: bool
    skipped: Mapping[str, int]


def search_files(
    beneath: Beneath, parts: Sequence[str], pattern: str, glob: str, *, is_regex: bool, max_results: int
) -> Matches:
    """Return the lines that contain a text, or match an expression. Raises ToolError, `bad_pattern` or `too_slow` for an expression."""
    if not pattern or len(pattern) > _LONGEST_PATTERN or "\n" in pattern:
        text = f"the pattern must be one line of at most {_LONGEST_PATTERN} chars, and not empty"
        raise ToolError(text, code="bad_pattern")
    refuse_closed(parts)
    reader = _FolderReader(beneath, _glob(glob))
    names, texts = [], []
    for name, text in reader.texts(parts):
        names.append(name)
        texts.append(text)
    all_hits = _regex_hits(pattern, texts, _MOST_COUNTED) if is_regex else _text_hits(pattern, texts, _MOST_COUNTED)
    hits = all_hits[:max_results]
    more = len(all_hits) - len(hits)
    files = len({number for number, _, _ in hits})
    result = f"{plural(len(hits), 'line')} in {plural(files, 'file')}"
    if more:
        least = "at least " if len(all_hits) == _MOST_COUNTED else ""
        result += f"; {least}{more:,} more are not shown: narrow path, glob or pattern"
    if not hits:
        result = f"no line in {plural(len(texts), 'file')} contains the pattern{_hint(pattern, is_regex=is_regex)}"
    skip_counts = dict(sorted(reader.skip_counts.items()))
    if skip_counts:
        result += f"; skipped: {', '.join(f'{count} {what}' for what, count in skip_counts.items())}"
    return Matches(result, tuple(_lines(hits, names, texts)), bool(more), skip_counts)


@attrs.frozen
class _FolderReader:
    """A reader of the texts below a folder, in the order of their names. It counts what it skips."""

    beneath: Beneath
    glob: PathPattern | None
    skip_counts: Counter[str] = attrs.field(factory=Counter)

    def texts(self, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each file, up to the limits."""
        taken_bytes = 0
        for number, file in enumerate(self._files(tuple(parts))):
            if number >= _MOST_FILES or taken_bytes >= _MOST_BYTES:
                self.skip_counts["or more files: there are too many, so name a path or a glob"] += 1
                return
            data = self._data(file)
            if data is not None:
                taken_bytes += len(data)
                yield path_text(file), data.decode("utf-8", "replace")

    def _data(self, file: Sequence[str]) -> bytes | None:
        try:
            data = bytes_of(self.beneath, file, _LARGEST_FILE)
        except ToolError as error:
            large = error.code == "too_large"
            self.skip_counts[f"over {_LARGEST_FILE // 1_000_000} MB" if large else "that cannot be read"] += 1
            return None
        if b"\0" in data[:8_192]:
            self.skip_counts["binary"] += 1
            return None
        return data

    def _files(self, top: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield every regular file below a folder, or the file itself. Raises ToolError when the path does not exist."""
        status = self.beneath.look(top)
        if status is None:
            raise ToolError(f"there is no '{path_text(top)}'", code="no_such_file")
        stack = [(top, kind_of(status.st_mode))]
        while stack:
            parts, kind = stack.pop()
            if kind == "folder":
                stack += reversed(self._inside(parts))
            elif kind == "file" and (self.glob is None or self.glob.matches(parts)):
                yield parts
            elif kind != "file":
                self.skip_counts["links and other special files"] += 1

    def _inside(self, parts: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
        """Return the names in a folder with their kinds, without those that are not searched."""
        if len(parts) >= DEEPEST:
            self.skip_counts["folders that are too deep"] += 1
            return []
        try:
            names = names_in(self.beneath, parts)
        except ToolError:  # gone by now, or too long a path
            self.skip_counts["folders that cannot be read"] += 1
            return []
        entries = []
        for name, status in names:
            kind = kind_of(status.st_mode)
            if is_temporary(name) or is_record((name,)):
                continue
            if is_closed((name,)) or (kind == "folder" and name in _PASSED_OVER):
                self.skip_counts["folders that are not searched"] += 1
            else:
                entries.append(((*parts, name), kind))
        return entries


def _glob(text: str) -> PathPattern | None:
    if not text:
        return None
    try:
        return PathPattern(text)
    except ValueError as error:
        raise ToolError(
            f"'glob' must be a pattern of paths, such as '*.py' or 'src/**/*.py'; {error}", code="bad_arguments"
        ) from error


def _text_hits(pattern: str, texts: Sequence[str], most: int) -> list[_Hit]:
    hits = []
    for number, text in enumerate(texts):
        if pattern not in text:
            continue
        for at, line in enumerate(text.split("\n")):
            column = line.find(pattern)
            if column >= 0:
                hits.append((number, at, column))
                if len(hits) >= most:
                    return hits
    return hits


def _regex_hits(pattern: str, texts: Sequence[str], most: int) -> list[_Hit]:
    try:
        expression = compile_pattern(pattern)
    except ValueError as error:
        text = f"{shown_path(str(error))[:300]}. To find the pattern as a text, set is_regex=false"
        raise ToolError(text, code="bad_pattern") from error
    hits: list[_Hit] = []
    ends_s = time.monotonic() + _TIME_LIMIT_S
    for number, text in enumerate(texts):
        if time.monotonic() > ends_s:
            raise ToolError(f"the search took more than {_TIME_LIMIT_S:g} s: narrow path or glob", code="too_slow")
        for at, line in enumerate(text.encode().split(b"\n")):
            match = expression.search(line.removesuffix(b"\r"))
            if match is not None:
                hits.append((number, at, len(line[: match.start()].decode())))
                if len(hits) >= most:
                    return hits
    return hits


def _lines(hits: Sequence[_Hit], names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return each hit as a line, cut around the match."""
    split = {number: texts[number].split("\n") for number in {number for number, _, _ in hits}}
    lines = []
    for number, at, column in hits:
        line = split[number][at].removesuffix("\r")
        start = 0 if len(line) <= _LONGEST_LINE else max(0, min(column - _BEFORE, len(line) - _LONGEST_LINE))
        end = start + _LONGEST_LINE
        cut = f"{'..' if start else ''}{line[start:end]}{'..' if end < len(line) else ''}"
        lines.append(f"{names[number]}:{at + 1}: {shown_path(cut, plain_chars=chr(9))}")
    return lines


def _hint(pattern: str, *, is_regex: bool) -> str:
    """Return a hint for a search without a match."""
    if not is_regex and re.search(r"[\\|*+?^$\[(]", pattern):
        return " as a text (for a regular expression, set is_regex=true)"
    return ""
