"""Blocks: the parts of a page that show a machine (its diagram, its table, its verdicts, its scenarios), as Markdown and as pictures.

`parts_of` returns frozen values without any syntax, so that Markdown and Sphinx show the same. Their texts are plain; a writer escapes them. The same
document gives the same parts on every computer: they have no times, paths or line numbers. `inline` and `seal_svg` take the text that a renderer wrote:
it has no references to other hosts, and records what it was drawn from. `figure` draws a diagram as HTML, on this computer.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import cast
from xml.etree import ElementTree as ET

import attrs

from dsa.checks.report import CheckReport, PropertyResult, explored_text, rest_texts, totals_text
from dsa.edge.images import portable_svg
from dsa.errors import Diagnostic
from dsa.lang.document_writer import STEP_COLUMNS, scenario_cells, scenario_settings, step_cells
from dsa.machine import Machine
from dsa.targets import dot
from dsa.targets.mermaid import Direction, mermaid
from dsa.trace import ROW_COLUMNS, escape_cell, show_values, table_lines, transition_cells

#: Characters that are Markdown in the middle of a sentence; an underscore only at the edge of a word.
_SPECIAL = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)")


def _cells(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


def _rows(rows: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, rows))


@attrs.frozen
class Sentence:
    """A paragraph."""

    text: str


@attrs.frozen
class Caption:
    """A line above a grid: a name in bold, and more text."""

    name: str
    more: str = ""


@attrs.frozen
class Grid:
    """A table. `code` are the columns that are written as code."""

    header: tuple[str, ...] = attrs.field(converter=_cells)
    rows: tuple[tuple[str, ...], ...] = attrs.field(converter=_rows)
    code: frozenset[str] = frozenset()


@attrs.frozen
class MermaidDiagram:
    """A machine as a diagram that the page's reader draws."""

    machine: Machine
    direction: Direction = "TB"


@attrs.frozen
class SvgDiagram:
    """A machine as a drawing; `file` is its path from the page's folder."""

    machine: Machine
    file: str


Part = Sentence | Caption | Grid | MermaidDiagram | SvgDiagram


def markdown(parts: Iterable[Part], draw: Callable[[MermaidDiagram | SvgDiagram], str] | None = None) -> str:
    """Return parts as Markdown, with an empty line between them and none at the end. `draw` replaces the writer of diagrams."""
    return "\n\n".join(_text(part, draw or diagram_text) for part in parts)


def label_of(machine: Machine) -> str:
    """Return the label of a machine's picture, for people who do not see it."""
    return f"The states of {machine.name} and the rows between them"


def diagram_text(part: MermaidDiagram | SvgDiagram) -> str:
    """Write a diagram as Markdown: a fence of Mermaid, or an image in a file."""
    if isinstance(part, SvgDiagram):
        file = f"<{part.file}>" if " " in part.file else part.file
        return f"![{_plain(label_of(part.machine))}]({file})"
    text = mermaid(part.machine, direction=part.direction)
    return f"```mermaid\n{text}```"


def _text(part: Part, draw: Callable[[MermaidDiagram | SvgDiagram], str]) -> str:
    match part:
        case Sentence(text):
            return _plain(text)
        case Caption(name, more):
            return f"**{_plain(name)}**{f' {_plain(more)}' if more else ''}"
        case Grid(header, rows, code):
            cells = [
                [_cell(text, is_code=name in code) for name, text in zip(header, row, strict=True)] for row in rows
            ]
            return "\n".join(table_lines(header, cells))
        case MermaidDiagram() | SvgDiagram():
            return draw(part)


def _cell(text: str, *, is_code: bool) -> str:
    """Return a cell as in documents, without comments, which could be markers of the page."""
    if is_code and "`" not in text:
        return f"`{escape_cell(text)}`" if text else ""
    return escape_cell(text).replace("<!--", "&lt;!--")


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text.replace("<", "&lt;"))


Options = Mapping[str, str]


@attrs.frozen
class CheckedDocument:
    """A document for blocks: its machine, the diagnostics of its reading, and its checks, run at first use."""

    machine: Machine
    diagnostics: tuple[Diagnostic, ...]
    checks: Callable[[Machine], CheckReport]

    @cached_property
    def report(self) -> CheckReport:
        """Everything that the checks find."""
        return self.checks(self.machine)


def parts_of(kind: str, options: Options, document: CheckedDocument) -> tuple[Part, ...]:
    """Return the parts of a block; kinds and options are those of `dsa.docs.pages.BLOCKS`."""
    match kind:
        case "diagram":
            return (_diagram(options, document.machine),)
        case "table":
            return _table(options, document.machine)
        case "verdicts":
            return _verdicts(options, document)
        case _:
            return _scenarios(document.machine)


def _diagram(options: Options, machine: Machine) -> Part:
    if options.get("format") == "svg":
        return SvgDiagram(machine, options.get("file") or f"{machine.name}.svg")
    return MermaidDiagram(machine, cast(Direction, options.get("direction", "TB")))


def _table(options: Options, machine: Machine) -> tuple[Part, ...]:
    """Return the Steps of a workflow; for any other machine, or as an option, the rows, in one grid or in one for each source."""
    if machine.steps and not {"rows", "grouped"} & options.keys():
        return (_grid(STEP_COLUMNS, step_cells(machine)),)
    cells = [tuple(transition_cells(row).values()) for row in machine.transitions]
    if "grouped" not in options:
        return (Grid(ROW_COLUMNS, cells),)
    sources = dict.fromkeys(row[0] for row in cells)
    grids = [
        (Caption(source), _grid(ROW_COLUMNS[1:], [row[1:] for row in cells if row[0] == source])) for source in sources
    ]
    return tuple(part for pair in grids for part in pair)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """Return a grid without empty columns."""
    places = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return Grid([header[place] for place in places], [[row[place] for place in places] for row in rows])


def _verdicts(options: Options, document: CheckedDocument) -> tuple[Part, ...]:
    report = document.report
    totals = Sentence(f"Checked: {totals_text((*document.diagnostics, *report.diagnostics), report)}.")
    if options.get("format") == "line":
        return (totals,)
    parts: list[Part] = [Sentence(f"Explored: {'; '.join(map(explored_text, report.explorations))}.")]
    if report.properties:
        rows = [(result.text, result.verdict, _note(result, report)) for result in report.properties]
        header = ("property", "verdict", "note") if any(note for _, _, note in rows) else ("property", "verdict")
        parts.append(Grid(header, [row[: len(header)] for row in rows], frozenset({"property"})))
    rests = (Sentence(f"It {line}.") for line in rest_texts(report))
    return (*parts, *rests, totals)


def _note(result: PropertyResult, report: CheckReport) -> str:
    """Return a note: what a verdict relies on, why it is not HOLDS, and its parameter values if it is not about all explored ones."""
    valuations = tuple(tuple(exploration.parameters.items()) for exploration in report.explorations)
    at = "; ".join(filter(None, map(show_values, result.values))) if result.values != valuations else ""
    remarks = [
        f"if {result.condition}" if result.condition else "",
        result.reason,
        f"assuming {'; '.join(result.assumes)}" if result.assumes else "",
        f"at {at}" if at else "",
    ]
    return ", ".join(filter(None, remarks))


def _scenarios(machine: Machine) -> tuple[Part, ...]:
    parts: list[Part] = []
    for scenario in machine.scenarios:
        settings = scenario_settings(scenario)
        parts += [Caption(scenario.name, f"at {settings}" if settings else ""), Grid(*scenario_cells(scenario))]
    return tuple(parts) or (Sentence("The machine has no scenarios."),)


_NAMESPACE = "http://www.w3.org/2000/svg"
_BETWEEN = re.compile(r">\s*\n\s*<")
_SEAL = re.compile(r"\n<!-- dsa docs: drawn from ([0-9a-f]{64}), drawing ([0-9a-f]{64}) -->\n\Z")


def inline(svg: str, label: str) -> str:
    """Return a renderer's SVG as one `svg` element for HTML.

    It has no references to other hosts (the doctype, the namespaces), and no ids or tooltips, as a page may have several pictures. `label` is
    for people who do not see it.
    """
    root = ET.fromstring(svg)  # noqa: S314  (our renderer wrote it)
    for parent in list(root.iter()):
        parent.tag = parent.tag.removeprefix(f"{{{_NAMESPACE}}}")
        parent.attrib.pop("id", None)
        for child in [child for child in parent if child.tag == f"{{{_NAMESPACE}}}title"]:
            parent.remove(child)
    root.attrib |= {"role": "img", "aria-label": label, "style": "max-width: 100%; height: auto"}
    return _BETWEEN.sub(">\n<", ET.tostring(root, encoding="unicode").strip())


def seal_svg(svg: str, label: str, drawn_from: str) -> str:
    """Return the text of an SVG file that ends with the digests of its source and of the drawing."""
    drawing = inline(svg, label).replace("<svg ", f'<svg xmlns="{_NAMESPACE}" ', 1)
    return f"{drawing}\n<!-- dsa docs: drawn from {_digest(drawn_from)}, drawing {_digest(drawing)} -->\n"


def is_sealed(text: str) -> bool:
    """Return whether `seal_svg` wrote a text, even if it has changed since."""
    return _SEAL.search(text) is not None


def is_fresh(text: str, drawn_from: str) -> bool:
    """Return whether a file was drawn from this text and has not changed since. It calls no renderer, so their releases do not matter."""
    seal = _SEAL.search(text)
    return seal is not None and seal.groups() == (_digest(drawn_from), _digest(text[: seal.start()]))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8")).hexdigest()


def figure(part: MermaidDiagram | SvgDiagram) -> str:
    """Return a diagram of either kind as a `figure` element without empty lines, which would end it in Markdown. Raises DsaError."""
    return f'<figure class="dsa-diagram">{inline(portable_svg(dot(part.machine)), label_of(part.machine))}</figure>'
