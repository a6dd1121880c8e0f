"""Parts: what the content of a block consists of, and how Markdown spells it.

Frozen values without any syntax, so that Markdown and Sphinx show the same. Their texts are plain; whoever spells them escapes them.
"""

import re
from collections.abc import Callable, Iterable

import attrs

from dsa.machine import Machine
from dsa.targets.mermaid import Direction, mermaid
from dsa.trace import escaped, table_lines

#: What Markdown would take for its own in the middle of a sentence; an underscore only at the edge of a word.
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
    """A line above a grid: a name in bold, and what is said of it."""

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


def markdown(parts: Iterable[Part], drawn: Callable[[MermaidDiagram | SvgDiagram], str] | None = None) -> str:
    """Write parts as Markdown, an empty line between them and none at the end. `drawn` writes diagrams otherwise."""
    return "\n\n".join(_text(part, drawn or diagram_text) for part in parts)


def label_of(machine: Machine) -> str:
    """Return what is said of a picture of a machine to people who do not see it."""
    return f"The states of {machine.name} and the rows between them"


def diagram_text(part: MermaidDiagram | SvgDiagram) -> str:
    """Write a diagram as Markdown: a fence of Mermaid, or an image in a file."""
    if isinstance(part, SvgDiagram):
        file = f"<{part.file}>" if " " in part.file else part.file
        return f"![{_plain(label_of(part.machine))}]({file})"
    text = mermaid(part.machine, direction=part.direction)
    return f"```mermaid\n{text}```"


def _text(part: Part, drawn: Callable[[MermaidDiagram | SvgDiagram], str]) -> str:
    match part:
        case Sentence(text):
            return _plain(text)
        case Caption(name, more):
            return f"**{_plain(name)}**{f' {_plain(more)}' if more else ''}"
        case Grid(header, rows, code):
            spelled = [
                [_cell(text, is_code=name in code) for name, text in zip(header, row, strict=True)] for row in rows
            ]
            return "\n".join(table_lines(header, spelled))
        case MermaidDiagram() | SvgDiagram():
            return drawn(part)


def _cell(text: str, *, is_code: bool) -> str:
    """Write a cell as documents have it; a comment in it would be one of the page, or even a marker."""
    if is_code and "`" not in text:
        return f"`{escaped(text)}`" if text else ""
    return escaped(text).replace("<!--", "&lt;!--")


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text.replace("<", "&lt;"))
