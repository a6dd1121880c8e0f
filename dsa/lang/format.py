"""Documents to the same documents with their tables laid out: columns aligned, expressions spaced alike.

Takes text, gives text. Only the lines of tables in sections of the language change; prose, notes, other tables and line
ends stay byte for byte. Applied twice it changes nothing more. It asks nothing of the document's meaning, so a document
with faults is laid out too.
"""

import re
from collections.abc import Callable

from dsa.expr import unparse
from dsa.lang import cells
from dsa.lang.columns import COLUMNS
from dsa.lang.exprs import Parser, UnreadableError
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell, Table, read
from dsa.tables import escaped, table_lines

_LINE_END = re.compile(r"\r\n|\r|\n")


def formatted(text: str) -> str:
    """Lay out a document."""
    pieces = _LINE_END.split(text)
    ends = [*_LINE_END.findall(text), ""]
    document = read(text, "")
    for section in document.sections:
        if section.kind in COLUMNS:
            for table in section.tables:
                pieces[table.first - 1 : table.last] = _laid_out(table, pieces[table.first : table.first + 1][0])
    return "".join(piece + end for piece, end in zip(pieces, ends, strict=True))


def _laid_out(table: Table, rule: str) -> list[str]:
    """Lay out one table; one whose rows do not fit its header keeps its lines, except for the space around them."""
    header = [escaped(cell.text) for cell in table.header.cells]
    if any(len(row.cells) != len(header) for row in table.rows):
        return [table.header.span.text, rule, *(row.span.text for row in table.rows)]
    columns = [name.strip("`* ").lower() for name in header]
    rows = [[_cell(cell, column) for cell, column in zip(row.cells, columns, strict=True)] for row in table.rows]
    lines = table_lines(header, rows)
    return [lines[0], _with_alignment(lines[1], rule), *lines[2:]]


def _with_alignment(line: str, rule: str) -> str:
    """Keep the colons that align columns on a page."""
    marks = [mark.strip() for mark in rule.strip().strip("|").split("|")]
    dashes = line.strip("| ").split(" | ")
    kept = []
    for mark, dash in zip(marks, dashes, strict=True):
        left, right = (":" if mark.startswith(":") else "-"), (":" if mark.endswith(":") else "-")
        kept.append(left + dash[1:-1] + right)
    return "| " + " | ".join(kept) + " |"


def _cell(cell: Cell, column: str) -> str:
    """Give a cell's canonical text: an expression with its usual spacing, anything else as it stands."""
    if not cell.text or "`" in cell.text:
        return escaped(cell.text)
    write = _WRITERS.get(column)
    return escaped((write(cell) if write else None) or cell.text)


def _expression(cell: Cell) -> str | None:
    try:
        parser = Parser(cell)
        expr = parser.expression()
        parser.end()
    except UnreadableError:
        return None
    return unparse(expr)


def _condition(cell: Cell) -> str | None:
    words = cell.text.split(maxsplit=1)
    if words[:1] != ["else"]:
        return _expression(cell)
    return None if cells.condition(cell, Findings()) is None else " ".join(cell.text.split())


def _list(cell: Cell) -> str | None:
    return ", ".join(part.strip() for part in cell.text.split(","))


_WRITERS: dict[str, Callable[[Cell], str | None]] = {
    "if": _condition, "initial": _expression, "source": _list, "event": _list, "effects": _list,
}  # fmt: skip
