"""Pages: Markdown files with blocks about machines between markers, as they are and as they should be.

    <!-- dsa:diagram machine.md format=svg -->
    (what dsa writes)
    <!-- /dsa -->

`read_markers` returns the blocks of a text, and what is wrong with its markers; `MarkedText.with_contents` returns the text with new contents. Everything
outside the blocks stays byte for byte. markdown-it finds the markers, so code on a page is not a marker. `draft` returns a page as it should be,
to be written or only compared. A `Library` reads and checks each document once for all pages.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from dsa.checks.report import CheckReport, check
from dsa.checks.search.exploration import automatic
from dsa.docs.blocks import CheckedDocument, SvgDiagram, is_fresh, is_sealed, label_of, markdown, parts_of, seal_svg
from dsa.edge.document_files import locate_from, read_bytes, read_document
from dsa.edge.files import files_below, replace_file
from dsa.edge.images import portable_svg
from dsa.edge.processes import compile_library
from dsa.errors import DocumentError, DsaError, Span
from dsa.lang import MOST_CHARACTERS, machine_of, read_machine, read_spec
from dsa.machine import Machine
from dsa.targets import dot
from dsa.text import closest

#: The blocks, each with its options. An option is a flag (no values), one of several values, or any text (None).
BLOCKS: Mapping[str, Mapping[str, tuple[str, ...] | None]] = {
    "diagram": {"format": ("mermaid", "svg"), "direction": ("TB", "BT", "LR", "RL"), "file": None},
    "table": {"grouped": (), "rows": ()},
    "verdicts": {"format": ("table", "line")},
    "scenarios": {},
}
EXAMPLE = "<!-- dsa:diagram machine.md -->"
END = "<!-- /dsa -->"

_LINE_END = re.compile(r"\r\n?|\n")
#: The beginning of a marker, correct or not.
_LIKE_MARKER = re.compile(r"<!--\s*(?:/\s*dsa\b|dsa\s*:)")
_MARKER = re.compile(r"<!--\s*(?:(?P<end>/dsa)|dsa:(?P<words>(?:(?!-->)[^\r\n])*?))\s*-->")
_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')


@attrs.frozen
class MarkerFault:
    """A fault of a marker, or of the document that it names: its place, the reason, and what to write instead."""

    span: Span
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.span}: {self.message}\n        hint: {self.hint}"


@attrs.frozen
class MarkedBlock:
    """A block of a page: its kind, its document, its options (a flag has no text), and the lines of its markers from 1."""

    kind: str
    document: str
    options: tuple[tuple[str, str], ...]
    span: Span
    last: int

    def option(self, name: str) -> str | None:
        """Return the text of an option; None if it is missing."""
        return dict(self.options).get(name)

    @property
    def line(self) -> int:
        """The line of the opening marker."""
        return self.span.line


@attrs.frozen
class MarkedText:
    """A text, its blocks in order, and the faults of its markers."""

    text: str
    blocks: tuple[MarkedBlock, ...] = ()
    faults: tuple[MarkerFault, ...] = ()

    def with_contents(self, contents: Iterable[str]) -> str:
        r"""Return the text with new contents, one for each block, an empty line before and behind them.

        A content has plain `\n` between its lines and none at its end; in the text its lines end as the line of the opening marker does.
        """
        lines = _lines(self.text)
        pieces: list[str] = []
        position = 0
        for block, content in zip(self.blocks, contents, strict=True):
            pieces += [*lines[position : block.line], _inside(lines, block, content)]
            position = block.last - 1
        return "".join([*pieces, *lines[position:]])

    def stale(self, contents: Iterable[str]) -> tuple[bool, ...]:
        """Return for each block whether a new content would change it."""
        lines = _lines(self.text)
        pairs = zip(self.blocks, contents, strict=True)
        return tuple("".join(lines[b.line : b.last - 1]) != _inside(lines, b, content) for b, content in pairs)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, each with its line end."""
    return [f"{line}{end}" for line, end in zip(_LINE_END.split(text), [*_LINE_END.findall(text), ""], strict=True)]


def _inside(lines: list[str], block: MarkedBlock, content: str) -> str:
    """Return the text between the markers of a block with this content."""
    opening = lines[block.line - 1]
    end = opening[len(opening.rstrip("\r\n")) :]
    return "".join(f"{line}{end}" for line in ("", *content.split("\n"), ""))


def may_have_markers(text: str) -> bool:
    """Return whether anything in a text looks like a marker; if not, it need not be read."""
    return _LIKE_MARKER.search(text) is not None


def read_markers(text: str, path: str) -> MarkedText:
    """Read the markers of a page. Any text is a page; `faults` has one fault for each wrong marker."""
    if not may_have_markers(text):
        return MarkedText(text)
    reader = _Reader(_LINE_END.split(text), path)
    for token, line in _places(text):
        reader.take(token, line)
    return MarkedText(text, *reader.end())


def _places(text: str) -> Iterator[tuple[Token, int]]:
    """Yield the pieces of HTML that look like markers, with their lines from 0."""
    # A byte order mark is not a part of the text, and would keep a marker in the first line from being one.
    for token in MarkdownIt("commonmark").enable("table").parse(text.removeprefix("\ufeff")):
        line = token.map[0] if token.map else 0
        if token.type == "html_block" and _LIKE_MARKER.search(token.content):
            yield token, line
        for child in token.children or ():
            if child.type == "html_inline" and _LIKE_MARKER.search(child.content):
                yield child, line


class BlockError(DsaError):
    """Raised when an opening marker cannot be read, or the content of its block cannot be made. `hint` says what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class _Reader:
    """A reader that takes one marker after the other, and knows the open block."""

    def __init__(self, lines: list[str], path: str) -> None:
        self._lines, self._path = lines, path
        self._open: MarkedBlock | None = None
        self._is_skipped = False  # the last opening marker has a fault: what closes it is not a second one
        self._blocks: list[MarkedBlock] = []
        self._faults: list[MarkerFault] = []
        self._next = 0

    def take(self, token: Token, line: int) -> None:
        """Take a piece of HTML that looks like a marker, and the line from 0 in which it, or the text around it, begins."""
        match = _MARKER.fullmatch(token.content.strip())
        if token.type != "html_block" or token.level or match is None:
            self._report_misplaced(line, is_end=re.match(r"<!--\s*/", token.content.strip()) is not None)
        elif match["end"]:
            self._close(self._span(line))
        else:
            self._begin(match["words"], self._span(line))

    def end(self) -> tuple[tuple[MarkedBlock, ...], tuple[MarkerFault, ...]]:
        """Return the blocks and the faults, after the last marker."""
        if self._open is not None:
            self._not_closed(self._open, "the end of the page")
        return tuple(self._blocks), tuple(self._faults)

    def _begin(self, words: str, span: Span) -> None:
        if self._open is not None:
            self._not_closed(self._open, f"the next one in line {span.line}")
            self._open = None
        try:
            self._open = _block(words, span)
        except BlockError as wrong:
            self._fault(span, str(wrong), wrong.hint)
        self._is_skipped = self._open is None

    def _close(self, span: Span) -> None:
        if self._open is not None:
            self._blocks.append(attrs.evolve(self._open, last=span.line))
        elif not self._is_skipped:
            self._fault(span, "this marker closes nothing", f"open a block before it, such as {EXAMPLE}, or delete it")
        self._open, self._is_skipped = None, False

    def _not_closed(self, block: MarkedBlock, before: str) -> None:
        message = f"the block {block.kind} is not closed before {before}"
        self._fault(block.span, message, f"write {END} in a line of its own where the block ends")

    def _report_misplaced(self, line: int, *, is_end: bool) -> None:
        """Report a marker that is not alone in its line, or not at the left margin, or not complete."""
        there = [at for at in range(max(line, self._next), len(self._lines)) if _LIKE_MARKER.search(self._lines[at])]
        place = there[0] if there else line
        self._next = place + 1
        if not (is_end and self._is_skipped):
            message = (
                "this marker is not read: it is not complete, or inside a list, a quotation, a table or other HTML"
            )
            alone = "in one line of its own at the left margin, with an empty line before it"
            self._fault(self._span(place), message, f"write {END if is_end else EXAMPLE} {alone}")
        self._open, self._is_skipped = None, not is_end

    def _span(self, line: int) -> Span:
        source = self._lines[line]
        match = _LIKE_MARKER.search(source)
        start = match.start() if match else 0
        end = source.find("-->", start)
        return Span(self._path, line + 1, start + 1, (len(source) if end < 0 else end + len("-->")) + 1, source)

    def _fault(self, span: Span, message: str, hint: str) -> None:
        self._faults.append(MarkerFault(span, message, hint))


def _block(words: str, span: Span) -> MarkedBlock:
    """Return the block that an opening marker begins. Raises BlockError."""
    if words.count('"') % 2:
        raise BlockError("a quotation mark is not closed", 'write "two words", or no quotation mark at all')
    kind, *rest = [word.replace('"', "") for word in _WORD.findall(words)] or [""]
    if kind not in BLOCKS:
        raise BlockError(f"there is no block '{kind}'", closest(kind, BLOCKS))
    if not rest:
        hint = f"write <!-- dsa:{kind} PATH -->, where PATH is a path from the folder of this page, or the name of a shipped machine"
        raise BlockError(f"the block {kind} does not name a document", hint)
    document, *option_words = rest
    options = tuple(_option(kind, each) for each in option_words)
    names = [name for name, _ in options]
    for name in names:
        if names.count(name) > 1:
            raise BlockError(f"the option '{name}' is there twice", "delete one of them")
    _require_sense(dict(options))
    return MarkedBlock(kind, document, options, span, span.line)


def _option(kind: str, word: str) -> tuple[str, str]:
    """Return the name and the text of an option. Raises BlockError."""
    name, equals, text = word.partition("=")
    options = BLOCKS[kind]
    if name not in options:
        raise BlockError(f"the block {kind} has no option '{name}'", closest(name, options, "it has no options"))
    values = options[name]
    if values == ():
        if equals:
            raise BlockError(f"the option '{name}' takes no value", f"write {name} alone")
    elif not text or (values is not None and text not in values):
        message = f"'{text}' is not a value of the option '{name}'" if text else f"the option '{name}' needs a value"
        raise BlockError(
            message, "write file=NAME.svg" if values is None else f"write one of {name}={f', {name}='.join(values)}"
        )
    return name, text


def _require_sense(options: Mapping[str, str]) -> None:
    """Raise BlockError when the options of a diagram contradict each other."""
    is_svg = options.get("format") == "svg"
    if "file" in options and not is_svg:
        raise BlockError(
            "only a diagram with format=svg is written to a file", "add format=svg, or delete the option 'file'"
        )
    if "direction" in options and is_svg:
        raise BlockError("the option 'direction' is for Mermaid", "delete direction, or delete format=svg")


_FILE = re.compile(r"[\w+-][\w ./+-]*\.svg")
#: The name endings of pages in a folder.
PAGES = (".md", ".markdown")


class Library:
    """The documents and drawings of several pages. A document is read once and checked at most once; a drawing shows one machine."""

    def __init__(self) -> None:
        self._documents: dict[Path, CheckedDocument] = {}
        self._drawings: dict[Path, PageDrawing] = {}

    def document(self, folder: Path, name: str) -> CheckedDocument:
        """Return a document by its path from a page's folder, or its name if it is shipped. Raises BlockError, also if it is not a machine."""
        try:
            path = locate_from(folder, name)
            key = path.resolve()
            if key not in self._documents:
                self._documents[key] = _document(name, path)
        except DocumentError as fault:
            raise BlockError(
                str(fault), "write a path from the folder of this page, or the name of a shipped machine"
            ) from fault
        return self._documents[key]

    def drawing(self, folder: Path, part: SvgDiagram) -> "PageDrawing":
        """Return the drawing of a diagram on a page in a folder. Raises BlockError if it must not be written."""
        path = folder / part.file
        if not _FILE.fullmatch(part.file) or ".." in path.relative_to(folder).parts or not path.parent.is_dir():
            raise BlockError(
                f"'{part.file}' is not a name for a drawing",
                "write file=NAME.svg, in the folder of this page or below it",
            )
        if path.is_symlink() or not path.parent.resolve().is_relative_to(folder.resolve()):
            raise BlockError(f"{part.file} is a link, or its folder is a link", "write file=NAME.svg with another name")
        before = read_bytes(path) if path.exists() else None
        if before is not None and not is_sealed(before.decode("utf-8", "replace")):
            raise BlockError(
                f"{part.file} exists already, and dsa docs did not draw it", "write file=NAME.svg with another name"
            )
        new = PageDrawing(path, before, label_of(part.machine), dot(part.machine))
        drawing = self._drawings.setdefault(path.resolve(), new)
        if drawing.drawn_from != new.drawn_from:
            raise BlockError(f"{part.file} is the drawing of another block", "write file=NAME.svg with another name")
        return drawing


def _document(name: str, path: Path) -> CheckedDocument:
    result = read_document(str(path))
    if result.machine is None:
        diagnostics = result.diagnostics
        more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
        raise BlockError(
            f"{name} is not a machine: {diagnostics[0].message}{more}", f"`dsa check {path}` shows where the errors are"
        )
    return CheckedDocument(result.machine, result.diagnostics, _check)


def _check(machine: Machine) -> CheckReport:
    """Check a machine without a time limit, so that a page does not depend on the speed of the computer."""
    return check(machine, engine=automatic(compile_library))


@attrs.frozen
class PageDrawing:
    """An SVG file beside a page: its path, its content now (None if it is missing), its label and its source."""

    path: Path
    before: bytes | None
    label: str
    drawn_from: str

    @property
    def is_stale(self) -> bool:
        """Whether it has to be drawn again."""
        return self.before is None or not is_fresh(self.before.decode("utf-8", "replace"), self.drawn_from)

    def write(self) -> None:
        """Draw the file, unless another page has done it. Raises DsaError, DocumentError or OSError; the file then stays as it was."""
        if self.path.exists() and is_fresh(self.path.read_bytes().decode("utf-8", "replace"), self.drawn_from):
            return
        text = seal_svg(portable_svg(self.drawn_from), self.label, self.drawn_from)
        replace_file(self.path, text.encode("utf-8"), self.before)


@attrs.frozen
class BlockState:
    """A block of a page, whether it is stale, and its drawing when it has one in a file."""

    block: MarkedBlock
    is_stale: bool
    drawing: PageDrawing | None = None


@attrs.frozen
class PageDraft:
    """A page as it is and as it should be. If there are faults, nothing may be written."""

    path: Path
    before: bytes
    text: str
    blocks: tuple[BlockState, ...] = ()
    faults: tuple[MarkerFault, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether the page, or a drawing beside it, has to be written."""
        return any(state.is_stale for state in self.blocks)

    def write(self) -> None:
        """Write the drawings and then the page, each whole or not at all. Raises DsaError, DocumentError or OSError."""
        for state in self.blocks:
            if state.drawing is not None and state.drawing.is_stale:
                state.drawing.write()
        content = self.text.encode("utf-8")
        if content != self.before:
            replace_file(self.path, content, self.before)


def pages_in(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the pages at paths, each once: files in the given order, and the Markdown files of folders in the order of their names.

    Hidden files and folders, `node_modules` and links in a folder are left out.
    """
    visited_paths: set[Path] = set()
    for path in paths:
        for page in files_below(path, PAGES) if path.is_dir() else (path,):
            if (key := page.resolve()) not in visited_paths:
                visited_paths.add(key)
                yield page


def draft(path: Path, library: Library) -> PageDraft:
    """Return a page as it should be; `faults` has those of its markers. Raises DocumentError if it cannot be read."""
    before = read_bytes(path)
    text = before.decode("utf-8", "replace")
    if not may_have_markers(text):
        return PageDraft(path, before, text)
    if text.encode("utf-8") != before:
        raise DocumentError(str(path), "is not UTF-8 text")
    if len(text) > MOST_CHARACTERS:
        raise DocumentError(str(path), f"has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}")
    return _PageDrafter(path, before, read_markers(text, str(path)), library).draft()


class _PageDrafter:
    """A maker of a page's draft, which collects the faults."""

    def __init__(self, path: Path, before: bytes, page: MarkedText, library: Library) -> None:
        self._path, self._before, self._page, self._library = path, before, page, library
        self._faults = list(page.faults)

    def draft(self) -> PageDraft:
        """Return the draft."""
        pairs = [self._content(block) for block in self._page.blocks]
        if self._faults:
            return PageDraft(self._path, self._before, self._page.text, (), tuple(sorted(self._faults, key=_place)))
        contents = [content for content, _ in pairs]
        text = self._page.with_contents(contents)
        if not self._means_the_same(text):
            span = self._page.blocks[0].span
            fault = MarkerFault(
                span, "the blocks change what this document means", "keep blocks out of the sections of a machine"
            )
            return PageDraft(self._path, self._before, self._page.text, (), (fault,))
        states = [
            BlockState(block, is_stale or (drawing is not None and drawing.is_stale), drawing)
            for block, is_stale, (_, drawing) in zip(self._page.blocks, self._page.stale(contents), pairs, strict=True)
        ]
        return PageDraft(self._path, self._before, text, tuple(states))

    def _content(self, block: MarkedBlock) -> tuple[str, PageDrawing | None]:
        """Return the content of a block and its drawing; an empty content if there is a fault."""
        try:
            document = self._library.document(self._path.parent, block.document)
            parts = parts_of(block.kind, dict(block.options), document)
            drawings = [
                self._library.drawing(self._path.parent, part) for part in parts if isinstance(part, SvgDiagram)
            ]
        except BlockError as fault:
            self._faults.append(MarkerFault(block.span, str(fault), fault.hint))
            return "", None
        return markdown(parts), drawings[0] if drawings else None

    def _means_the_same(self, text: str) -> bool:
        """Return whether a page that is a machine document itself, or a spec, is the same one with its new blocks."""
        name, reference = str(self._path), machine_of(self._page.text)
        if reference is None:
            return read_machine(self._page.text, name).machine == read_machine(text, name).machine
        try:
            machine = self._library.document(self._path.parent, reference[0]).machine
        except BlockError:
            return True  # a spec without its machine means nothing
        return read_spec(self._page.text, machine, name).machine == read_spec(text, machine, name).machine


def _place(fault: MarkerFault) -> tuple[int, int]:
    return fault.span.line, fault.span.column
