"""Pages: Markdown files with blocks about machines, as they are and as they should be.

Takes paths, returns drafts of pages; a draft is written or only looked at. Documents are read, and checked, once for all pages.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from dsa.checks.report import CheckReport, check
from dsa.checks.search.exploration import automatic
from dsa.docs.blocks import MachineDocument, parts_of
from dsa.docs.inline_svg import is_fresh, is_sealed, sealed
from dsa.docs.markers import MarkedBlock, MarkedText, MarkerFault, marked, may_have_markers
from dsa.docs.parts import SvgDiagram, label_of, markdown
from dsa.edge.document_files import locate_from, read_bytes, read_document
from dsa.edge.file_locks import files_below
from dsa.edge.images import portable_svg
from dsa.edge.processes import compiled
from dsa.edge.replacement import replace_file
from dsa.errors import DocumentError, DsaError
from dsa.lang import MOST_CHARACTERS, machine_of, read_machine, read_spec
from dsa.machine import Machine
from dsa.targets import dot

_FILE = re.compile(r"[\w+-][\w ./+-]*\.svg")
#: How the names of pages end in a folder.
PAGES = (".md", ".markdown")


class BlockError(DsaError):
    """Raised when the content of a block cannot be made. `hint` says what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Library:
    """Documents and drawings of several pages: a document is read once and checked at most once, a drawing is of one machine."""

    def __init__(self) -> None:
        self._documents: dict[Path, MachineDocument] = {}
        self._drawings: dict[Path, PageDrawing] = {}

    def document(self, folder: Path, name: str) -> MachineDocument:
        """Return a document by its path from a page's folder, or its name if it is shipped. Raises BlockError, also when it is not a machine."""
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
        """Return the drawing of a diagram on a page in a folder. Raises BlockError where it must not be written."""
        path = folder / part.file
        if not _FILE.fullmatch(part.file) or ".." in path.relative_to(folder).parts or not path.parent.is_dir():
            raise BlockError(
                f"'{part.file}' is not a name for a drawing", "write file=NAME.svg, below the folder of this page"
            )
        if path.is_symlink() or not path.parent.resolve().is_relative_to(folder.resolve()):
            raise BlockError(
                f"{part.file} is a link, or in a folder that is one", "write file=NAME.svg with another name"
            )
        before = read_bytes(path) if path.exists() else None
        if before is not None and not is_sealed(before.decode("utf-8", "replace")):
            raise BlockError(
                f"{part.file} is there, and dsa docs has not drawn it", "write file=NAME.svg with another name"
            )
        new = PageDrawing(path, before, label_of(part.machine), dot(part.machine))
        found = self._drawings.setdefault(path.resolve(), new)
        if found.drawn_from != new.drawn_from:
            raise BlockError(f"{part.file} is the drawing of another block", "write file=NAME.svg with another name")
        return found


def _document(name: str, path: Path) -> MachineDocument:
    reading = read_document(str(path))
    if reading.machine is None:
        found = reading.diagnostics
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise BlockError(f"{name} is not a machine: {found[0].message}{more}", f"`dsa check {path}` says where")
    return MachineDocument(reading.machine, reading.diagnostics, _checked)


def _checked(machine: Machine) -> CheckReport:
    """Check a machine without a limit of time: what a page says does not depend on how fast its machine is."""
    return check(machine, engine=automatic(compiled))


@attrs.frozen
class PageDrawing:
    """An SVG file beside a page: where it is, what is in it now (None: nothing), what it is to be drawn from."""

    path: Path
    before: bytes | None
    label: str
    drawn_from: str

    @property
    def is_stale(self) -> bool:
        """Whether it has to be drawn again."""
        return self.before is None or not is_fresh(self.before.decode("utf-8", "replace"), self.drawn_from)

    def write(self) -> None:
        """Draw it, unless that was done for another page. Raises RenderError, DocumentError or OSError; the file is then as it was."""
        if self.path.exists() and is_fresh(self.path.read_bytes().decode("utf-8", "replace"), self.drawn_from):
            return
        text = sealed(portable_svg(self.drawn_from), self.label, self.drawn_from)
        replace_file(self.path, text.encode("utf-8"), self.before)


@attrs.frozen
class BlockState:
    """A block of a page, whether it is stale, and its drawing when it has one in a file."""

    block: MarkedBlock
    is_stale: bool
    drawing: PageDrawing | None = None


@attrs.frozen
class PageDraft:
    """A page as it is and as it should be. Where there are faults, nothing may be written."""

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
        """Write the drawings and then the page, each whole or not at all. Raises RenderError, DocumentError or OSError."""
        for state in self.blocks:
            if state.drawing is not None and state.drawing.is_stale:
                state.drawing.write()
        content = self.text.encode("utf-8")
        if content != self.before:
            replace_file(self.path, content, self.before)


def pages_in(paths: Sequence[Path]) -> Iterator[Path]:
    """Return the pages at paths, each once: files as they are named, in folders the Markdown files, in the order of their names.

    Hidden files and folders, `node_modules` and links in a folder are left out.
    """
    seen: set[Path] = set()
    for path in paths:
        for page in files_below(path, PAGES) if path.is_dir() else (path,):
            if (key := page.resolve()) not in seen:
                seen.add(key)
                yield page


def draft(path: Path, library: Library) -> PageDraft:
    """Return a page as it should be. Raises DocumentError when it cannot be read; what is wrong with its markers is in `faults`."""
    before = read_bytes(path)
    text = before.decode("utf-8", "replace")
    if not may_have_markers(text):
        return PageDraft(path, before, text)
    if text.encode("utf-8") != before:
        raise DocumentError(str(path), "is not UTF-8 text")
    if len(text) > MOST_CHARACTERS:
        raise DocumentError(str(path), f"has {len(text):,} characters, and pages of {MOST_CHARACTERS:,} are read")
    return _Drafting(path, before, marked(text, str(path)), library).draft()


class _Drafting:
    """Makes the contents of a page's blocks one after the other, and collects what is wrong."""

    def __init__(self, path: Path, before: bytes, page: MarkedText, library: Library) -> None:
        self._path, self._before, self._page, self._library = path, before, page, library
        self._faults = list(page.faults)

    def draft(self) -> PageDraft:
        """Return the draft."""
        made = [self._content(block) for block in self._page.blocks]
        if self._faults:
            return PageDraft(self._path, self._before, self._page.text, (), tuple(sorted(self._faults, key=_place)))
        contents = [content for content, _ in made]
        text = self._page.with_contents(contents)
        if not self._means_the_same(text):
            span = self._page.blocks[0].span
            fault = MarkerFault(
                span, "the blocks change what this document means", "keep blocks out of the sections of a machine"
            )
            return PageDraft(self._path, self._before, self._page.text, (), (fault,))
        states = [
            BlockState(block, is_stale or (drawing is not None and drawing.is_stale), drawing)
            for block, is_stale, (_, drawing) in zip(self._page.blocks, self._page.stale(contents), made, strict=True)
        ]
        return PageDraft(self._path, self._before, text, tuple(states))

    def _content(self, block: MarkedBlock) -> tuple[str, PageDrawing | None]:
        """Return the content of a block and its drawing; nothing where there is a fault."""
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
            return True  # a spec of nothing means nothing
        return read_spec(self._page.text, machine, name).machine == read_spec(text, machine, name).machine


def _place(fault: MarkerFault) -> tuple[int, int]:
    return fault.span.line, fault.span.column
