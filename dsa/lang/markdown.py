"""Markdown: the sections, tables and lines of a text, each with its place. The module knows nothing of machines.

markdown-it finds the blocks, so a table, heading or list is one exactly if GitHub shows it as one: tables inside lists, quotes, fences and comments are
prose. This module splits the cells itself, because it needs their columns.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate
from types import MappingProxyType

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from dsa.errors import Span

#: The indices of each family, by its name, and the index that a family stands for.
Families = Mapping[str, tuple[int | str, ...]]
Indices = Mapping[str, int | str]
_NO_FAMILIES: Families = MappingProxyType({})
_NO_INDICES: Indices = MappingProxyType({})

#: The space characters at the edges of a cell: those of CommonMark and of JavaScript's trim, fewer than Python's.
_SPACE = " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_NEWLINE = re.compile(r"\r\n?|\n")
_BACKTICKS = re.compile("`+")


@attrs.frozen
class Cell:
    r"""A piece of one line: its text without `\|` escapes, and its place.

    `escapes` are the positions in `text` of pipes that were written `\|`, so that columns stay true. A bullet or a
    heading may span several lines: `continuations` has the offset in `text` at which each further line starts, and its piece.
    `families` are those that the text may name, and `indices` the values that the free ones among them stand for.
    """

    text: str
    path: str
    line: int
    column: int
    source: str
    escapes: tuple[int, ...] = ()
    continuations: tuple[tuple[int, "Cell"], ...] = ()
    families: Families = attrs.field(default=_NO_FAMILIES, eq=False, repr=False)
    indices: Indices = attrs.field(default=_NO_INDICES, eq=False, repr=False)

    def span(self, start: int = 0, end: int | None = None) -> Span:
        """Return the place of `text[start:end]`; if it spans several lines, its part on the first."""
        stop = len(self.text) if end is None else end
        if not self.continuations and not self.escapes:
            first = self.column + start
            return Span(self.path, self.line, first, max(self.column + stop, first), self.source)
        for offset, piece in reversed(self.continuations):
            if start >= offset:
                return piece.span(start - offset, stop - offset)
            stop = min(stop, offset - 1)
        return Span(
            self.path, self.line, self._column(start), max(self._column(stop), self._column(start)), self.source
        )

    def at_indices(self, families: Families, indices: Indices) -> "Cell":
        """Return the cell with the families that it may name, and the indices of the free ones. There may be thousands, and `attrs.evolve` is slow."""
        return Cell(
            self.text,
            self.path,
            self.line,
            self.column,
            self.source,
            self.escapes,
            self.continuations,
            families=families,
            indices=indices,
        )

    def _column(self, offset: int) -> int:
        column = self.column + offset
        return column + sum(1 for escape in self.escapes if escape < offset) if self.escapes else column

    @property
    def plain(self) -> str:
        """The text without backticks around the whole cell."""
        runs = _BACKTICKS.findall(self.text)
        if len(runs) > 1 and self.text[0] == self.text[-1] == "`" and runs[0] == runs[-1] and runs[0] not in runs[1:-1]:
            return self.text[len(runs[0]) : -len(runs[0])].strip()
        return self.text


@attrs.frozen
class TableRow:
    """The cells of one line of a table."""

    cells: tuple[Cell, ...]
    span: Span


@attrs.frozen
class MarkdownTable:
    """A header and its rows; `first` and `last` are its lines, the alignment row included."""

    header: TableRow
    rows: tuple[TableRow, ...]
    first: int
    last: int


@attrs.frozen
class Heading:
    """A heading of any level; `last` is its last line, which an underlined heading has below its title."""

    level: int
    title: Cell
    last: int


@attrs.frozen
class Bullet:
    """An item of a list that is not nested; continued lines are joined by spaces."""

    text: Cell


@attrs.frozen
class ParagraphLine:
    """A line of a paragraph."""

    text: Cell


@attrs.frozen
class Fence:
    """A fenced code block; `content` ends with its newline, `body` are its lines."""

    content: str
    opening: Cell
    body: tuple[Cell, ...]


@attrs.frozen
class IndentedLine:
    """A line of an indented code block."""

    text: Cell


Block = MarkdownTable | Heading | Bullet | ParagraphLine | Fence | IndentedLine


@attrs.frozen
class Section:
    """A second-level heading and the blocks under it. The heading is split at its first colon: `kind: name`."""

    heading: Cell
    kind: str
    name: str
    blocks: tuple[Block, ...]
    first: int
    last: int

    @property
    def tables(self) -> tuple[MarkdownTable, ...]:
        """The tables of the section."""
        return tuple(block for block in self.blocks if isinstance(block, MarkdownTable))


@attrs.frozen
class MarkdownDocument:
    """A whole text: its first-level headings, the blocks before the first section, and the sections."""

    path: str
    lines: tuple[str, ...]
    titles: tuple[Cell, ...]
    preamble: tuple[Block, ...]
    sections: tuple[Section, ...]

    @property
    def start(self) -> Span:
        """The first line, for findings about the document as a whole."""
        first = self.lines[0] if self.lines else ""
        return Span(self.path, 1, 1, max(2, len(first) + 1), first)


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark").enable("table")
    reader.core.ruler.enableOnly(["normalize", "block"])
    return reader


def read(text: str, path: str) -> MarkdownDocument:
    """Read a text into its blocks. Any text is a document; nothing is raised."""
    if text.startswith("\ufeff"):  # a byte order mark is not a part of the text; a space keeps the columns
        text = text.replace("\ufeff", " ", 1)
    lines = tuple(_NEWLINE.split(text))
    titles: list[Cell] = []
    groups: list[tuple[Heading | None, list[Block]]] = [(None, [])]
    for block in _blocks(_reader().parse(text), path, lines):
        if isinstance(block, Heading) and block.level == 1:
            titles.append(block.title)
        if isinstance(block, Heading) and block.level <= 2:  # noqa: PLR2004  (sections are second-level headings)
            groups.append((block, []))
        else:
            groups[-1][1].append(block)
    preamble = tuple(b for heading, blocks in groups if heading is None or heading.level == 1 for b in blocks)
    starts = [heading.title.line for heading, _ in groups if heading] + [len(lines) + 1]
    sections = [
        _section(heading, blocks, starts[place])
        for place, (heading, blocks) in enumerate(groups[1:], start=1)
        if heading is not None and heading.level == 2  # noqa: PLR2004
    ]
    return MarkdownDocument(path, lines, tuple(titles), preamble, tuple(sections))


def _section(heading: Heading, blocks: list[Block], end: int) -> Section:
    kind, _, name = heading.title.text.partition(":")
    plain = attrs.evolve(heading.title, text=name.strip()).plain
    return Section(heading.title, kind.strip().lower(), plain, tuple(blocks), heading.last, end - 1)


def _blocks(tokens: list[Token], path: str, lines: tuple[str, ...]) -> Iterator[Block]:
    """Yield the blocks that are not nested in another, except for the items of lists."""
    depth_of_items = 2  # bullet_list_open, list_item_open, then the item's paragraph
    for place, token in enumerate(tokens):
        if token.map is None:
            continue
        first, last = token.map
        if token.type == "table_open" and token.level == 0:
            yield _table(path, lines, first, last)
        elif token.type == "heading_open" and token.level == 0:
            content = tokens[place + 1].content
            yield Heading(int(token.tag[1:]), _join(path, lines, _first_shown(lines, first), content.split("\n")), last)
        elif token.type == "fence" and token.level == 0:
            inside = token.content.split("\n")[:-1]
            body = tuple(_piece(path, lines, first + 1 + place, content) for place, content in enumerate(inside))
            yield Fence(token.content, Cell(lines[first], path, first + 1, 1, lines[first]), body)
        elif token.type == "code_block" and token.level == 0:
            for index in range(first, last):
                yield IndentedLine(_piece(path, lines, index, lines[index].strip()))
        elif token.type == "paragraph_open" and token.level == 0:
            for offset, content in enumerate(tokens[place + 1].content.split("\n")):
                yield ParagraphLine(_piece(path, lines, _first_shown(lines, first) + offset, content.strip()))
        elif (
            token.type == "paragraph_open"
            and token.level == depth_of_items
            and tokens[place - 1].type == "list_item_open"
        ):
            yield Bullet(_join(path, lines, _first_shown(lines, first), tokens[place + 1].content.split("\n")))


def _first_shown(lines: tuple[str, ...], index: int) -> int:
    """Return the first line that is not blank: markdown-it drops lines of form feeds and the like from a block's start."""
    while index + 1 < len(lines) and not lines[index].strip():
        index += 1
    return index


def _piece(path: str, lines: tuple[str, ...], index: int, content: str) -> Cell:
    """Return a cell for a text that starts somewhere on a line."""
    source = lines[index] if index < len(lines) else ""
    start = source.find(content.split("\n", maxsplit=1)[0][:20]) if content else -1
    return Cell(content, path, index + 1, max(0, start) + 1, source)


def _join(path: str, lines: tuple[str, ...], index: int, contents: list[str]) -> Cell:
    """Return the lines of an item or a heading as one text, joined by spaces."""
    pieces = [_piece(path, lines, index + place, content.strip()) for place, content in enumerate(contents)]
    offsets = accumulate(len(piece.text) + 1 for piece in pieces[:-1])
    text = " ".join(piece.text for piece in pieces)
    return attrs.evolve(pieces[0], text=text, continuations=tuple(zip(offsets, pieces[1:], strict=True)))


def _table(path: str, lines: tuple[str, ...], first: int, last: int) -> MarkdownTable:
    rows = [
        TableRow(split_row(lines[i], path, i + 1), _content(path, lines, i)) for i in (first, *range(first + 2, last))
    ]
    return MarkdownTable(rows[0], tuple(rows[1:]), first + 1, last)


def _content(path: str, lines: tuple[str, ...], index: int) -> Span:
    source = lines[index]
    return Span(path, index + 1, len(source) - len(source.lstrip(_SPACE)) + 1, len(source.rstrip(_SPACE)) + 1, source)


def split_row(source: str, path: str, line: int) -> tuple[Cell, ...]:
    r"""Split a line of a table into cells as GitHub does: at every `|` that has no backslash before it."""
    begin, stop = len(source) - len(source.lstrip(_SPACE)), len(source.rstrip(_SPACE))
    edges = [i for i in range(begin, stop) if source[i] == "|" and (i == begin or source[i - 1] != "\\")]
    starts, ends = [begin, *(edge + 1 for edge in edges)], [*edges, stop]
    pieces = list(zip(starts, ends, strict=True))
    if pieces and not source[slice(*pieces[0])].strip(_SPACE):
        pieces = pieces[1:]
    if pieces and not source[slice(*pieces[-1])].strip(_SPACE) and edges and edges[-1] == stop - 1:
        pieces = pieces[:-1]
    return tuple(_cell(source, start, end, path, line) for start, end in pieces)


def _cell(source: str, start: int, end: int, path: str, line: int) -> Cell:
    raw = source[start:end]
    text = raw.strip(_SPACE)
    indent = len(raw) - len(raw.lstrip(_SPACE)) if text else min(1, len(raw))
    if "\\|" not in text:
        return Cell(text, path, line, start + indent + 1, source)
    parts = text.split("\\|")
    escapes = tuple(sum(len(part) for part in parts[: i + 1]) + i for i in range(len(parts) - 1))
    return Cell("|".join(parts), path, line, start + indent + 1, source, escapes)
