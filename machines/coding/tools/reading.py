"""The tools that look at one file or folder, and what others need to know of a file.

Takes a workspace held open (`beneath`) and paths by their names, gives records whose `result` is a sentence for the model.
Every amount is bounded, and what was left out is said.
"""

import codecs
import difflib
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import attrs

from machines.coding.tools.beneath import Beneath, kind_of
from machines.coding.tools.errors import ToolError
from machines.coding.tools.paths import is_closed, is_record, is_temporary, named, shown

#: How much may be asked for at once. No character has more than 4 bytes.
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
class Listing:
    """What stands in a folder, and how many names follow that are not shown."""

    result: str
    entries: tuple[ListedName, ...]
    more: int


@attrs.frozen
class FileText:
    """The text of a file, or a part of it. `lines` is None for a very large file, `next_offset` where nothing follows."""

    content: str
    size_bytes: int
    lines: int | None
    result: str
    truncated: bool
    next_offset: int | None


@attrs.frozen
class TextForm:
    """How a file writes its text: how many LF and CR it has, how many pairs of CR and LF, whether a BOM stands before it."""

    lines: int
    breaks: int
    returns: int
    pairs: int
    has_bom: bool

    @property
    def is_crlf(self) -> bool:
        """Whether every line ends in CRLF, and no CR stands elsewhere: then nothing is lost where they are written as LF."""
        return 0 < self.pairs == self.breaks == self.returns

    @property
    def is_mixed(self) -> bool:
        """Whether some lines end in CRLF and others do not."""
        return 0 < self.pairs < self.breaks

    def fitted(self, text: str) -> str:
        """Return a text as a file of this form writes it."""
        text = with_line_ends(text, "\r\n") if self.is_crlf else text
        return BOM + text.removeprefix(BOM) if self.has_bom else text


def with_line_ends(text: str, ending: str) -> str:
    """Return a text with all its lines ended in one way."""
    return text.replace("\r\n", "\n").replace("\n", ending)


def listed(beneath: Beneath, parts: Sequence[str], offset: int = 0) -> Listing:
    """Give what stands in a folder, by name, but for the first `offset` names. Raises ToolError."""
    refuse_closed(parts)
    found = beneath.look(parts)
    if found is not None and kind_of(found.st_mode) != "folder":
        raise ToolError("not_a_folder", f"'{named(parts)}' is no folder: read it with read_file")
    names = [(name, entry) for name, entry in names_in(beneath, parts) if not _is_hidden(name)]
    entries = tuple(_entry(name, entry) for name, entry in names[offset : offset + _MOST_NAMES])
    end = offset + len(entries)
    more = max(0, len(names) - end)
    said = f"{len(names)} {'entry' if len(names) == 1 else 'entries'} in {named(parts)}"
    if offset:
        said += f"; those before number {offset + 1} are not shown"
    if more:
        said += f"; {more} more are not shown: go on with offset={end}"
    return Listing(said, entries, more)


def refuse_closed(parts: Sequence[str]) -> None:
    """Raise ToolError where a folder is not listed or searched."""
    if is_closed(parts) or is_record(parts):
        raise ToolError(
            "protected_path", f"the inside of '{named(parts)}' is not listed or searched; the rest of the workspace is"
        )


def names_in(beneath: Beneath, parts: Sequence[str]) -> list[tuple[str, os.stat_result]]:
    """Give every name in a folder, sorted, with what it is of. Raises ToolError."""
    found = []
    with beneath.folder(parts) as folder, beneath.explained(parts):
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  # of a descriptor
            with suppress(FileNotFoundError):  # gone by now
                found.append((name, os.stat(name, dir_fd=folder, follow_symlinks=False)))
    return found


def _is_hidden(name: str) -> bool:
    """Tell whether a name is not listed: `.git` itself is."""
    return is_temporary(name) or is_record((name,)) or (is_closed((name,)) and name.casefold() != ".git")


def _entry(name: str, found: os.stat_result) -> ListedName:
    kind = kind_of(found.st_mode)
    return ListedName(f"{shown(name)}/", kind) if kind == "folder" else ListedName(shown(name), kind, found.st_size)


def read(beneath: Beneath, parts: Sequence[str], max_bytes: int, offset: int) -> FileText:
    """Give the text of a file from byte `offset` on, at most `max_bytes` of it (4 or more). Raises ToolError, `binary_file` for what is no text."""
    name = named(parts)
    with beneath.file(parts) as (file, found):
        head = os.pread(file, _LOOKED_AT, 0)
        if b"\0" in head:
            raise ToolError(
                "binary_file", f"'{name}' is no text ({found.st_size} bytes{_of_utf16(head)}): it cannot be shown"
            )
        data = _read_at(file, offset, max_bytes)
        size = max(found.st_size, offset + len(data) if data else 0)
        form = form_of(file) if size <= _MOST_WHOLE else None
    whole = len(data) < max_bytes or offset + len(data) >= size
    if form is not None and form.is_crlf and not whole:
        data = data.removesuffix(b"\r")  # its other half comes the next time
    text, used = _decoded(data, whole=whole)
    end = offset + used
    said = _sentence(name, text, offset, end, size, form)
    if form is not None:
        text = text.removeprefix(BOM) if form.has_bom and not offset else text
        text = with_line_ends(text, "\n") if form.is_crlf else text
    lines = None if form is None else form.lines
    return FileText(text, size, lines, said, end < size, end if end < size else None)


def _sentence(name: str, text: str, offset: int, end: int, size: int, form: TextForm | None) -> str:
    """Say what was read, how its text is written where that is not usual, and where to read on."""
    counted = "" if form is None else f", {form.lines} {'line' if form.lines == 1 else 'lines'}"
    said = f"Read {name}: {size} bytes{counted}{_unusual(form)}"
    if offset or end < size:
        said += f"; bytes {offset} to {end} are shown"
    if end < size:
        said += f"; read on with offset={end}"
    if "\ufffd" in text:
        said += f"; it is not all UTF-8: {text.count(chr(0xFFFD))} characters are shown as \ufffd"
    return said


def _unusual(form: TextForm | None) -> str:
    told = "; it begins with a BOM, which is not shown" if form is not None and form.has_bom else ""
    if form is not None and form.is_crlf:
        told += "; its lines end in \\r\\n, shown as \\n"
    if form is not None and form.is_mixed:
        told += "; its line ends are mixed, \\r\\n and \\n, and shown as they are"
    return told


def _decoded(data: bytes, *, whole: bool) -> tuple[str, int]:
    """Give the text, and how many bytes it is of: a character that is cut off at the end is left for the next time."""
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
    """Return the form of an open file. A line without an end counts as one."""
    breaks, returns, pairs, last = 0, 0, 0, b"\n"
    for piece in pieces_of(file):
        breaks += piece.count(b"\n")
        returns += piece.count(b"\r")
        pairs += piece.count(b"\r\n") + (last == b"\r" and piece.startswith(b"\n"))
        last = piece[-1:]
    has_bom = os.pread(file, len(codecs.BOM_UTF8), 0) == codecs.BOM_UTF8
    return TextForm(breaks + (last != b"\n"), breaks, returns, pairs, has_bom)


def pieces_of(file: int) -> Iterator[bytes]:
    """Give the bytes of an open file from the start, in pieces; its position stays as it is."""
    at = 0
    while piece := os.pread(file, _PIECE, at):
        yield piece
        at += len(piece)


def refuse_missing(beneath: Beneath, parts: Sequence[str]) -> None:
    """Raise ToolError where nothing stands at a path, with the names beside it that are alike."""
    if beneath.look(parts) is not None:
        return
    said = f"there is no '{named(parts)}'"
    above = parts[:-1]
    if beneath.look(above) is None:
        raise ToolError("no_such_file", f"{said}, nor a folder '{named(above)}': see what there is with list_dir")
    names = [name for name, _ in names_in(beneath, above) if not _is_hidden(name)]
    alike = difflib.get_close_matches(parts[-1], names[:_MOST_COMPARED], n=3)
    told = [f"'{named((*above, name))}'" for name in alike]
    raise ToolError(
        "no_such_file", f"{said}; there is {', '.join(told)}" if told else f"{said}: see what there is with list_dir"
    )


def digest_of(beneath: Beneath, parts: Sequence[str]) -> str | None:
    """Give the SHA-256 of a file in hex, None where there is none. Raises ToolError."""
    if beneath.look(parts) is None:
        return None
    hashed = hashlib.sha256()
    with beneath.file(parts) as (file, _):
        for piece in pieces_of(file):
            hashed.update(piece)
    return hashed.hexdigest()


def bytes_of(beneath: Beneath, parts: Sequence[str], most: int = _MOST_WHOLE) -> bytes:
    """Give all bytes of a file. Raises ToolError, `too_large` for more than `most`."""
    with beneath.file(parts) as (file, found):
        data = _read_at(file, 0, most + 1)
    if len(data) > most:
        raise ToolError("too_large", f"'{named(parts)}' has {found.st_size} bytes; {most} can be taken at once")
    return data
