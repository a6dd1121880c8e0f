"""Which sections there are, which columns each knows, and a section's tables as records by column.

Takes sections, gives records; a header or a row that does not fit goes to the findings.
"""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from dsa.errors import Span
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell, Indented, Line, Row, Section, Table
from dsa.words import closest, nearest

NOTE = "note"


@attrs.frozen
class Columns:
    """The columns of a section. `filled` are required and never empty, `required` may be empty in a row."""

    filled: tuple[str, ...]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column, in canonical order, without the note."""
        return self.filled + self.required + self.optional


COLUMNS: dict[str, Columns] = {
    "parameters": Columns(("parameter", "domain", "default")),
    "variables": Columns(("variable", "domain", "initial"), optional=("scope",)),
    "events": Columns(("event", "from"), optional=("otherwise",)),
    "guards": Columns(("guard",), ("judges",), ("is", "options", "uses", "verdicts", "pass", "fatal")),
    "generators": Columns(("generator",), optional=("is", "options")),
    "effects": Columns(("effect",), optional=("kind", "in doubt", "time limit", "retries", "on failure")),
    "states": Columns(("state",), optional=("kind",)),
    "transitions": Columns(("source", "event", "target"), optional=("if", "update", "effects")),
    "steps": Columns(("step",), optional=("requires", "generator", "guard", "uses", "rmax", "task", "optional")),
    "cases": Columns(("call", "expected")),
    "scenario": Columns(("percept",), ("action",), ("state", "deps")),
}
#: In a Steps document every guard is a part of a step's guard, so nothing need be said of what it judges.
PARTS = Columns(("guard",), optional=("judges", "is", "options", "uses", "verdicts", "pass", "fatal"))
SECTIONS = frozenset(COLUMNS) | {"properties", "prompt", "constraints"}
#: Words of other tools for our columns, for hints.
_MEANT = {
    "guard": "if", "condition": "if", "when": "if", "action": "effects", "actions": "effects",
    "assignments": "update", "to": "target", "next": "target", "state": "source", "comment": "note",
    "remarks": "note", "description": "note",
}  # fmt: skip
#: What somebody means who leaves a cell empty, by the section's first column and the cell's.
_EMPTY = {
    (
        "source",
        "event",
    ): "a row waits for something: an event from outside, an answer of an effect, or a timer, 'after 1s'",
    ("source", "target"): "write '=' to stay",
}
#: Columns of other tools for which there is another place here.
_ELSEWHERE = {
    "entry": "effects stand in the rows that lead into a state",
    "exit": "effects stand in the rows that lead out of a state",
    "do": "what goes on in a state is an effect with answers, in the row that leads into it",
    "invoke": "what goes on in a state is an effect with answers, in the row that leads into it",
    "history": "remember the state in a variable, and write a row for each value",
}
NAMED = frozenset({"cases", "prompt"})


@attrs.frozen
class Record:
    """One row of a table by column; a column that the table leaves out reads as an empty cell."""

    cells: Mapping[str, Cell]
    span: Span

    def __getitem__(self, column: str) -> Cell:
        found = self.cells.get(column)
        here = self.span
        return found if found is not None else Cell("", here.path, here.line, here.column, here.text)


def records(
    section: Section, columns: Columns, findings: Findings, extra: frozenset[str] = frozenset()
) -> list[Record]:
    """Give the rows of all tables of a section. `extra` are further columns allowed (a scenario's variables)."""
    found = []
    for table in section.tables:
        header = _header(table, section, columns, findings, extra)
        made = [_record(row, header, columns, findings) if header else None for row in table.rows]
        found += [record for record in made if record is not None]
        for row, record in zip(table.rows, made, strict=True):
            if record is None:
                findings.doubt(row.span.text)
    if section.tables:
        _require_inside(section, findings)
    return found


def _require_inside(section: Section, findings: Findings) -> None:
    """Report rows that a table lost to an empty line or to indentation: GitHub shows them as prose, nobody reads them."""
    last_line = 0
    for block in section.blocks:
        if not isinstance(block, Line | Indented) or not block.text.text.startswith("|"):
            continue
        findings.doubt(block.text.text)
        if block.text.line != last_line + 1:
            ended = max((table.last for table in section.tables if table.last < block.text.line), default=None)
            message = "this row stands outside its table" + (f", which ended at line {ended}" if ended else "")
            hint = "take out the empty line before it, or its indentation"
            findings.error("DSA105", message, block.text.span(), hint)
        last_line = block.text.line


def declaring(found: Iterable[Record], findings: Findings) -> Iterator[Record]:
    """Give the rows that declare something; the names in one that turns out to have a fault are in doubt."""
    for record in found:
        before = findings.count
        yield record
        if findings.count > before:
            findings.doubt(record.span.text)


def _header(
    table: Table, section: Section, columns: Columns, findings: Findings, extra: frozenset[str]
) -> list[str] | None:
    names = [cell.text.strip("`* ").lower() for cell in table.header.cells]
    raw = [cell.text.strip("`* ") for cell in table.header.cells]
    names = [word if word in extra else name for word, name in zip(raw, names, strict=True)]
    allowed = {*columns.all, NOTE, *extra}
    for name, cell in zip(names, table.header.cells, strict=True):
        if name not in allowed:
            meant = _MEANT.get(name)
            hint = f"did you mean '{meant}'?" if meant in allowed else _ELSEWHERE.get(name) or closest(name, allowed)
            message = f"section {section.kind} has no column '{name}'"
            findings.error("DSA103", message, cell.span(), hint, about=cell.text if extra else "")
        elif names.count(name) > 1:
            findings.error("DSA103", f"the column '{name}' stands twice", cell.span())
    missing = [column for column in columns.filled + columns.required if column not in names]
    strangers = [name for name in names if name not in allowed]
    for column in missing:
        if nearest(column, strangers) or column in map(_MEANT.get, strangers):
            continue  # it is there, under a wrong name
        message = f"section {section.kind} needs a column '{column}'"
        hint = f"required: {', '.join(columns.filled + columns.required)}"
        findings.error("DSA104", message, table.header.span, hint)
    return None if missing else names


def _record(row: Row, names: list[str], columns: Columns, findings: Findings) -> Record | None:
    if len(row.cells) != len(names):
        count = len(row.cells)
        message = f"this row has {count} cell{'s' if count > 1 else ''}, the header has {len(names)}"
        hint = (
            r"an empty cell is '| |'; a pipe inside a cell is '\|'; 'or' is written 'or'; a table ends at an empty line"
        )
        findings.error("DSA105", message, row.span, hint)
        return None
    cells = dict(zip(names, row.cells, strict=True))
    empty = [column for column in columns.filled if not cells[column].text.strip("` ,")]
    for column in empty:
        hint = _EMPTY.get((columns.filled[0], column), "")
        findings.error("DSA106", f"the column '{column}' must not be empty", cells[column].span(), hint)
    return None if empty else Record(cells, row.span)
