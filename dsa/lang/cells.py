"""Cells: readers of single table cells, the columns of each section, and the rows that rows with families stand for.

The functions take a `Cell` and return parts of declarations: names, lists, domains, updates, effects, options, numbers. Names stay as written;
`dsa.lang.document_reader` checks later that they are declared. On a fault they add a finding and return None.

`COLUMNS` lists the columns of each section. `records` returns the rows of a section by column, and reports headers and rows that do not fit.

Nothing after this module knows families (rules Fa1 to Fa5 of `specs/semantics.md`). `with_instances` turns a written record into one for each combination of
indices of the families that are free in it. Its cells carry these indices, so that the parser reads what they stand for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeVar

import attrs

from dsa.declarations import (
    EFFECT_COLUMNS,
    TIMER_PREFIX,
    Assign,
    Cancel,
    Emit,
    Family,
    Instance,
    Revoke,
    StateKind,
    parse_duration,
)
from dsa.errors import Span
from dsa.expr import TRUE, Arithmetic, BooleanDomain, Domain, EnumDomain, Expr, Name, RangeDomain
from dsa.lang.expression_parser import (
    INDEXED_NAME,
    KEYWORDS,
    MAX_NAME,
    NAME,
    ExpressionParser,
    Findings,
    UnreadableError,
    free_families,
)
from dsa.lang.markdown import Cell, Families, IndentedLine, MarkdownTable, ParagraphLine, Section, TableRow
from dsa.machine import duration_of
from dsa.text import closest, nearest, plural

T = TypeVar("T")
_KINDS: dict[str, StateKind] = {"initial": "initial", "final": "final", "": ""}


@attrs.frozen
class WrittenName:
    """A name as written, and its place."""

    name: str
    span: Span


#: A hint about two names in one cell, as for parallel regions.
_BESIDE = "names are separated by ','. A run is always in one state; for parallel work, emit several effects, or remember in variables what is done"


def parse_cell(
    cell: Cell, read: Callable[[ExpressionParser], T], findings: Findings, code: str = "DSA107", hint: str | None = None
) -> T | None:
    """Read a whole cell with a parser method; a fault becomes a diagnostic. `hint` is for surplus text at the end."""
    try:
        parser = ExpressionParser(cell)
        value = read(parser)
        parser.end(hint)
    except UnreadableError as fault:
        suggestion = (
            _BESIDE if code == "DSA107" and cell.text[fault.start : fault.start + 1] in {"&", "|", "+"} else fault.hint
        )
        findings.error(code, fault.message, cell.span(fault.start, fault.end), suggestion)
        return None
    return value


def one_name(cell: Cell, what: str, findings: Findings) -> str | None:
    """Read a cell that holds one name."""
    hint = "write one name, without spaces: letters, digits, '_' and '.'"
    return parse_cell(cell, lambda parser: parser.name(what).text, findings, hint=hint)


def declared_name(cell: Cell, what: str, findings: Findings) -> WrittenName | None:
    """Read the name that a row declares."""
    name = cell.text.strip("`").strip()
    if "[" in name and INDEXED_NAME.fullmatch(name):
        return _declared_member(cell, what, findings)
    if not NAME.fullmatch(name):
        hint = "a name is made of letters, digits and '_', and does not start with a digit; several such names may be joined by dots: a.b"
        findings.error("DSA203", f"'{name}' cannot name {what}", cell.span(), hint)
        return None
    if len(name) > MAX_NAME:
        findings.error("DSA203", f"a name has at most {MAX_NAME} characters", cell.span())
        return None
    if keywords := [part for part in name.split(".") if part in KEYWORDS]:
        findings.error("DSA203", f"'{keywords[0]}' is reserved and cannot name {what}", cell.span())
        return None
    return WrittenName(name, cell.span())


_WITH_INDEX = frozenset({"a variable", "an event", "an effect"})


def _declared_member(cell: Cell, what: str, findings: Findings) -> WrittenName | None:
    """Read the name of a member of a family that a row declares: `x[f]`, which stands for `x[2]`."""
    if what not in _WITH_INDEX:
        message = f"'{cell.plain}' cannot name {what}: only variables, events and effects have an index"
        findings.error(
            "DSA203",
            message,
            cell.span(),
            "for a value that differs from index to index, declare a variable such as x[f]",
        )
        return None
    name = parse_cell(cell, lambda parser: parser.name(what).text, findings, "DSA203")
    index = "" if name is None else name.partition("[")[2].removesuffix("]")
    if name is None or cell.plain.endswith("]"):
        choices = {str(index) for indices in cell.families.values() for index in indices}
        if name is None or not cell.families or index in choices:
            return None if name is None else WrittenName(name, cell.span())
        message = f"'{index}' in '{cell.plain}' is neither a family nor a value of a family"
        findings.error("DSA201", message, cell.span(), closest(index, [*cell.families, *choices]))
        return None
    findings.error("DSA203", f"'{cell.plain}' cannot name {what}", cell.span(), "the index comes last")
    return None


def read_items(parser: ExpressionParser, separator: str, read: Callable[[], T]) -> tuple[T, ...]:
    """Read items with a separator between them, up to the end of the cell; one after the last is allowed."""
    return tuple(item for items in read_groups(parser, separator, lambda: [read()]) for item in items)


def read_groups(parser: ExpressionParser, separator: str, read: Callable[[], list[T]]) -> list[list[T]]:
    """Read items as `read_items` does, where one as written may stand for several."""
    groups = []
    while parser.next.kind != "end":
        groups.append(read())
        if not parser.accept(separator):
            break
    return groups


def written_name(parser: ExpressionParser, cell: Cell, what: str) -> WrittenName:
    """Read a name of a cell."""
    token = parser.name(what)
    return WrittenName(token.text, cell.span(token.start, token.end))


def name_list(cell: Cell, what: str, findings: Findings) -> tuple[WrittenName, ...]:
    """Read comma-separated names; an empty cell has none."""

    def read(parser: ExpressionParser) -> tuple[WrittenName, ...]:
        return read_items(parser, ",", lambda: written_name(parser, cell, what))

    hint = "names have letters, digits, '_' and '.', and are separated by ','"
    return _once(parse_cell(cell, read, findings, hint=hint) or (), findings)


def _once(names: tuple[WrittenName, ...], findings: Findings) -> tuple[WrittenName, ...]:
    """Report names that are twice in one cell; return each once."""
    by_key: dict[str | int, WrittenName] = {}
    for name in names:
        same = duration_of(name.name) or name.name
        if same in by_key:
            findings.error("DSA202", f"'{name.name}' occurs twice in this cell", name.span)
        by_key.setdefault(same, name)
    return tuple(by_key.values())


def condition(cell: Cell, findings: Findings) -> tuple[bool, Expr] | None:
    """Read an `if` cell: whether it is an `else`, and the condition beside it, unresolved."""

    def read(parser: ExpressionParser) -> tuple[bool, Expr]:
        if parser.next.kind == "end":
            return False, TRUE
        if not parser.accept("else"):
            return False, parser.expression()
        if parser.next.kind == "end":
            return True, TRUE
        parser.expect("and", "write 'else' alone, or 'else and CONDITION'")
        rest = parser.conjunction()
        if parser.at("or"):
            parser.fail(
                "after 'else', only 'and' can join conditions", "put the rest in parentheses: else and (A or B)"
            )
        return True, rest

    return parse_cell(cell, read, findings, "DSA108")


def state_kind(cell: Cell, findings: Findings) -> tuple[StateKind, Expr | None]:
    """Read a `kind` cell: `initial`, `final`, `end when CONDITION`, the first and the last also together, or nothing; the condition is unresolved."""
    word = cell.text.strip("`").strip()
    if word in _KINDS:
        return _KINDS[word], None
    if "end" not in word.replace(",", " ").split():
        hint = f"leave the cell empty, or write one of: {', '.join(filter(None, _KINDS))}, end when CONDITION"
        findings.error("DSA107", f"this cell cannot contain '{word}'", cell.span(), hint)
        return "", None

    def read(parser: ExpressionParser) -> tuple[StateKind, Expr | None]:
        is_initial = parser.accept("initial")
        if is_initial:
            parser.expect(",", "initial, end when CONDITION")
        parser.expect("end", "a state with an end condition is not marked final; write: end when CONDITION")
        parser.expect("when", "end when CONDITION")
        return "initial" if is_initial else "", parser.expression()

    return parse_cell(cell, read, findings) or ("initial" if word.startswith("initial") else "", None)


def updates(cell: Cell, findings: Findings) -> tuple[Assign | Revoke, ...] | None:
    """Read an `update` cell: `x = 1; y += 1; revoke z`, unresolved."""

    def read(parser: ExpressionParser) -> tuple[Assign | Revoke, ...]:
        groups = read_groups(parser, ";", lambda: parser.each_index(lambda: _update(parser, cell)))
        return tuple(update for group in groups for update in group)

    return parse_cell(cell, read, findings, "DSA108", "updates are separated by ';'")


def _update(parser: ExpressionParser, cell: Cell) -> Assign | Revoke:
    start = parser.next.start
    if parser.accept("revoke"):
        token = parser.name("a workflow variable")
        return Revoke(token.text, span=cell.span(start, token.end))
    token = parser.name("a variable")
    span = cell.span(token.start, token.end)
    if parser.accept("="):
        return Assign(token.text, parser.expression(), span=span)
    for sign in ("+", "-"):
        if parser.accept(f"{sign}="):
            change = parser.sum()
            return Assign(token.text, Arithmetic(sign, Name(token.text, span=span), change, span=span), span=span)
    name = token.text
    parser.fail("expected '=', '+=' or '-='", f"write {name} = VALUE, {name} += 1 or {name} -= 1")


def effects(cell: Cell, findings: Findings) -> tuple[Emit | Cancel, ...]:
    """Read an `effects` cell: `a, b`, `cancel a`, `cancel`."""

    def read(parser: ExpressionParser) -> tuple[Emit | Cancel, ...]:
        groups = read_groups(parser, ",", lambda: parser.each_index(lambda: _effect(parser, cell)))
        return tuple(effect for group in groups for effect in group)

    return parse_cell(cell, read, findings, hint="effects are separated by ','") or ()


def _effect(parser: ExpressionParser, cell: Cell) -> Emit | Cancel:
    start = parser.next.start
    if not parser.accept("cancel"):
        token = parser.name("the name of an effect")
        return Emit(token.text, span=cell.span(token.start, token.end))
    if parser.next.kind == "end" or parser.at(","):
        return Cancel(None, span=cell.span(start, start + len("cancel")))
    token = parser.name("the name of an effect after 'cancel'")
    return Cancel(token.text, span=cell.span(start, token.end))


def domain(cell: Cell, findings: Findings) -> Domain | None:
    """Read a domain: `bool`, `low..high`, `low..`, `{x, y}`; bounds are unresolved expressions."""

    def read(parser: ExpressionParser) -> Domain:
        if parser.accept("bool"):
            return BooleanDomain()
        if parser.accept("{"):
            values = [parser.name("a value").text]
            while parser.accept(","):
                values.append(parser.name("a value").text)
            parser.expect("}")
            return EnumDomain(tuple(values))
        low = parser.sum()
        if not parser.accept(".."):
            raise UnreadableError(f"'{cell.plain}' is not a domain", 0, len(cell.text), forms)
        return RangeDomain(low, None if parser.next.kind == "end" else parser.sum())

    forms = "a domain is bool, low..high or {a, b}"
    result = parse_cell(cell, read, findings, hint=forms)
    if isinstance(result, EnumDomain) and len(set(result.values)) < len(result.values):
        findings.error("DSA202", "a value occurs twice in this domain", cell.span())
        return None
    return result


def events(cell: Cell, findings: Findings) -> tuple[WrittenName, ...]:
    """Read an `event` cell: names, or `after 30s`, comma-separated."""
    names: list[WrittenName] = []
    for text, offset in _pieces(cell, ","):
        is_whole = text == cell.text
        part = cell if is_whole else attrs.evolve(cell, text=text, column=cell.span(offset).column, escapes=())
        if text.split()[:1] != ["after"] and parse_duration(text):
            findings.error("DSA107", f"'{text}' is not an event", part.span(), f"a timer is written 'after {text}'")
        elif text.split()[:1] != ["after"]:
            names += name_list(part, "an event", findings)
        elif not parse_duration(duration := text.removeprefix("after").strip()):
            findings.error(
                "DSA107",
                f"'{text}' is not a timer",
                part.span(),
                "write a timer such as 'after 30s'; units: ms, s, m, h, d",
            )
        else:
            names.append(WrittenName(TIMER_PREFIX + duration, part.span()))
    return _once(tuple(names), findings)


def _pieces(cell: Cell, separator: str) -> list[tuple[str, int]]:
    """Cut a cell at a separator; return each piece without space and backticks around it, and its offset."""
    pieces, offset = [], 0
    for piece in cell.text.split(separator):
        text = piece.strip(" \t`")
        if text:
            pieces.append((text, offset + piece.index(text)))
        offset += len(piece) + len(separator)
    return pieces


def pairs(cell: Cell, separators: str, findings: Findings) -> tuple[tuple[str, str], ...]:
    """Read `key = value` pairs; keys are names, values any text without the separators."""
    return tuple((key, value.text) for key, value in pair_cells(cell, separators, findings))


def pair_cells(cell: Cell, separators: str, findings: Findings) -> list[tuple[str, Cell]]:
    """Read `key = value` pairs as `pairs` does; the values have their places."""
    values: dict[str, Cell] = {}
    separator = next((s for s in separators if s in cell.text), separators[0])
    indent = cell.text.index(cell.plain)
    inner = attrs.evolve(cell, text=cell.plain, column=cell.column + indent) if indent else cell
    for text, offset in _pieces(inner, separator):
        key, equals, value = (part.strip() for part in text.partition("="))
        span = inner.span(offset, offset + len(text))
        if not equals or not NAME.fullmatch(key) or not value:
            hint = f"pairs are separated by '{separator}'"
            findings.error("DSA107", f"'{text}' is not of the form key = value", span, hint)
        elif key in values:
            findings.error("DSA202", f"'{key}' is given twice", span)
        else:
            place = inner.span(offset + len(text) - len(value)).column
            values[key] = attrs.evolve(inner, text=value, column=place, escapes=())
    return list(values.items())


def one_of(cell: Cell, choices: tuple[str, ...], default: str, findings: Findings) -> str:
    """Read one of a few words; an empty cell means the default."""
    word = cell.text.strip("`").strip()
    if not word or word in choices:
        return word or default
    hint = f"leave the cell empty, or write {'one of: ' if len(choices) > 1 else ''}{', '.join(choices)}"
    findings.error("DSA107", f"this cell cannot contain '{word}'", cell.span(), hint)
    return default


def whole_number(cell: Cell, findings: Findings, least: int = 0) -> int | None:
    """Read a whole number from `least`; an empty cell is None."""
    return parse_cell(cell, lambda parser: parser.integer(least), findings) if cell.text else None


def duration_ms(cell: Cell, findings: Findings) -> int | None:
    """Read a duration with its unit; an empty cell is None."""
    text = cell.text.strip("`").strip()
    duration = parse_duration(text)
    if text and not duration:
        findings.error(
            "DSA107", f"'{text}' is not a duration", cell.span(), "write a duration such as 30s; units: ms, s, m, h, d"
        )
    return duration or None


def probabilities(cell: Cell, findings: Findings) -> tuple[float, ...]:
    """Read one probability, or several separated by commas, one per retry number."""

    def read(parser: ExpressionParser) -> tuple[float, ...]:
        numbers = [parser.number()]
        while parser.accept(","):
            numbers.append(parser.number())
        parser.end()
        return tuple(numbers)

    hint = "write numbers between 0 and 1, one for each retry, separated by ',', such as 0.9, 0.8"
    try:
        numbers = read(ExpressionParser(cell)) if cell.text else ()
    except UnreadableError as fault:
        findings.error("DSA107", "this is not a probability", cell.span(fault.start, fault.end), hint)
        return ()
    if any(value > 1 for value in numbers):
        findings.error("DSA205", "a probability lies between 0 and 1", cell.span(), hint)
        return ()
    return numbers


NOTE = "note"


@attrs.frozen
class Columns:
    """The columns of a section. `nonempty` ones are required and have no empty cells; `mandatory` ones are required."""

    nonempty: tuple[str, ...]
    mandatory: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column, in canonical order, without the note."""
        return self.nonempty + self.mandatory + self.optional


COLUMNS: dict[str, Columns] = {
    "families": Columns(("family", "index")),
    "parameters": Columns(("parameter", "domain", "default")),
    "variables": Columns(("variable", "domain", "initial"), optional=("scope",)),
    "events": Columns(("event", "from"), optional=("otherwise",)),
    "guards": Columns(("guard",), ("judges",), ("is", "options", "uses", "verdicts", "pass", "fatal")),
    "generators": Columns(("generator",), optional=("is", "options")),
    "effects": Columns(("effect",), optional=tuple(column.header for column in EFFECT_COLUMNS)),
    "states": Columns(("state",), optional=("kind",)),
    "transitions": Columns(("source", "event", "target"), optional=("if", "update", "effects")),
    "steps": Columns(("step",), optional=("requires", "generator", "guard", "uses", "rmax", "task", "optional")),
    "cases": Columns(("call", "expected")),
    "scenario": Columns(("percept",), ("action",), ("state", "deps")),
}
#: In a Steps document every guard is a part of a step's guard, so `judges` is optional.
PARTS = Columns(("guard",), optional=("judges", "is", "options", "uses", "verdicts", "pass", "fatal"))
SECTIONS = frozenset(COLUMNS) | {"properties", "prompt", "constraints"}
#: Columns of other tools with another name here, for hints.
_SYNONYMS = {
    "guard": "if", "condition": "if", "when": "if", "action": "effects", "actions": "effects",
    "assignments": "update", "to": "target", "next": "target", "state": "source", "comment": "note",
    "remarks": "note", "description": "note",
}  # fmt: skip
#: Hints for empty cells, by the section's first column and the cell's.
_EMPTY = {
    (
        "source",
        "event",
    ): "a row waits for something: an event from outside, an answer of an effect, or a timer such as 'after 1s'",
    ("source", "target"): "write '=' to stay",
}
#: Columns of other tools for things that have another place here.
_ELSEWHERE = {
    "entry": "effects belong in the rows that lead into a state",
    "exit": "effects belong in the rows that lead out of a state",
    "do": "for work in a state, emit an effect with answers in the row that leads into the state",
    "invoke": "for work in a state, emit an effect with answers in the row that leads into the state",
    "history": "remember the state in a variable, and write a row for each value",
}
NAMED_SECTIONS = frozenset({"cases", "prompt"})


@attrs.frozen
class TableRecord:
    """One row of a table by column; a column that the table leaves out reads as an empty cell.

    `instance` says which of the rows that a row written with families stands for this is.
    """

    cells: Mapping[str, Cell]
    span: Span
    instance: Instance = ()

    def __getitem__(self, column: str) -> Cell:
        cell = self.cells.get(column)
        here = self.span
        return cell if cell is not None else Cell("", here.path, here.line, here.column, here.text)


def records(
    section: Section, columns: Columns, findings: Findings, extra: frozenset[str] = frozenset()
) -> list[TableRecord]:
    """Return the rows of all tables of a section. `extra` columns are allowed too (a scenario's variables)."""
    result = []
    for table in section.tables:
        header = _header(table, section, columns, findings, extra)
        rows = [_record(row, header, columns, findings) if header else None for row in table.rows]
        result += [record for record in rows if record is not None]
        for row, record in zip(table.rows, rows, strict=True):
            if record is None:
                findings.doubt(row.span.text)
    if section.tables:
        _require_inside(section, findings)
    return result


def _require_inside(section: Section, findings: Findings) -> None:
    """Report rows that a table lost to an empty line or to indentation: GitHub shows them as prose, and they are not read."""
    last_line = 0
    for block in section.blocks:
        if not isinstance(block, ParagraphLine | IndentedLine) or not block.text.text.startswith("|"):
            continue
        findings.doubt(block.text.text)
        if block.text.line != last_line + 1:
            end = max((table.last for table in section.tables if table.last < block.text.line), default=None)
            message = "this row is outside its table" + (f", which ended at line {end}" if end else "")
            hint = "delete the empty line before this row, or the indentation of the row"
            findings.error("DSA105", message, block.text.span(), hint)
        last_line = block.text.line


def each_declaration(records: Iterable[TableRecord], findings: Findings) -> Iterator[TableRecord]:
    """Yield the rows of declarations. If the caller finds a fault in one, its names are in doubt."""
    for record in records:
        before = findings.count
        yield record
        if findings.count > before:
            findings.doubt(record.span.text)


def _header(
    table: MarkdownTable, section: Section, columns: Columns, findings: Findings, extra: frozenset[str]
) -> list[str] | None:
    names = [cell.text.strip("`* ").lower() for cell in table.header.cells]
    raw = [cell.text.strip("`* ") for cell in table.header.cells]
    names = [word if word in extra else name for word, name in zip(raw, names, strict=True)]
    known_names = {*columns.all, NOTE, *extra}
    for name, cell in zip(names, table.header.cells, strict=True):
        if name not in known_names:
            synonym = _SYNONYMS.get(name)
            hint = (
                f"did you mean '{synonym}'?"
                if synonym in known_names
                else _ELSEWHERE.get(name) or closest(name, known_names)
            )
            message = f"'{name}' is not a column that the section '{section.kind.capitalize()}' can have"
            findings.error("DSA103", message, cell.span(), hint, about=cell.text if extra else "")
        elif names.count(name) > 1:
            findings.error("DSA103", f"the column '{name}' occurs twice", cell.span())
    missing = [column for column in columns.nonempty + columns.mandatory if column not in names]
    strangers = [name for name in names if name not in known_names]
    for column in missing:
        if nearest(column, strangers) or column in map(_SYNONYMS.get, strangers):
            continue  # it is there, under a wrong name
        message = f"the section '{section.kind.capitalize()}' needs a column '{column}'"
        hint = f"required: {', '.join(columns.nonempty + columns.mandatory)}"
        findings.error("DSA104", message, table.header.span, hint)
    return None if missing else names


def _record(row: TableRow, names: list[str], columns: Columns, findings: Findings) -> TableRecord | None:
    if len(row.cells) != len(names):
        count = len(row.cells)
        message = f"this row has {plural(count, 'cell')}, the header has {len(names)}"
        hint = r"an empty cell is '| |'; a pipe inside a cell is '\|'; write 'or' instead of '||'; a table ends at an empty line"
        findings.error("DSA105", message, row.span, hint)
        return None
    cells = dict(zip(names, row.cells, strict=True))
    empty = [column for column in columns.nonempty if not cells[column].text.strip("` ,")]
    for column in empty:
        hint = _EMPTY.get((columns.nonempty[0], column), "")
        findings.error("DSA106", f"the column '{column}' must not be empty", cells[column].span(), hint)
    return None if empty else TableRecord(cells, row.span)


#: The most rows that the rows of a section stand for.
MOST_ROWS = 10_000
#: The columns in which a family may be named, by section. States, guards and parameters have none.
_FAMILY_COLUMNS = {
    "variables": ("variable", "domain", "initial"),
    "events": ("event", "from"),
    "effects": ("effect", "at once"),
    "states": ("kind",),
    "transitions": ("event", "if", "update", "effects"),
}
#: How a section calls one of its declarations.
_DECLARATION_WORDS = {"variables": "variable", "events": "event", "effects": "effect"}


def indices_of(families: Iterable[Family]) -> Families:
    """Return the indices of each family by its name."""
    return {family.name: family.indices for family in families}


def with_indices(cell: Cell, families: Families, instance: Instance = ()) -> Cell:
    """Return a cell that may name families, the free ones among them with these indices."""
    return cell.at_indices(families, dict(instance))


def instances(free: Iterable[str], families: Families) -> Iterator[Instance]:
    """Yield every combination of indices of some families, in the order of Families."""
    names = [name for name in families if name in set(free)]
    for indices in product(*(families[name] for name in names)):
        yield tuple(zip(names, indices, strict=True))


def with_instances(
    kind: str, records: Sequence[TableRecord], families: Families, findings: Findings
) -> list[TableRecord]:
    """Return the records that the records of a section stand for."""
    if not families or kind not in _FAMILY_COLUMNS:
        return list(records)
    result: list[TableRecord] = []
    for record in records:
        free = [] if kind == "states" else _free_in(record, kind, families)
        if kind in _DECLARATION_WORDS and not _is_declared_once(record, kind, free, findings):
            continue
        count = prod(len(families[name]) for name in free)
        if len(result) + count > MOST_ROWS:
            message = f"with this row, the families turn the section '{kind.capitalize()}' into more than {MOST_ROWS:,} rows; {count:,} of them come from this row"
            findings.error(
                "DSA114", message, record.span, "use fewer families in one row, or make the families smaller"
            )
            break
        result += _instances(record, kind, families, list(instances(free, families)))
    return result


def _instances(record: TableRecord, kind: str, families: Families, each: Sequence[Instance]) -> Iterator[TableRecord]:
    """Yield a record for each instance. Records share the cells in which they agree."""
    free = {column: free_families(cell.text, families) for column, cell in record.cells.items()}
    copies: dict[tuple[str, Instance], Cell] = {}
    for instance in each:
        cells = dict(record.cells)
        for column in _FAMILY_COLUMNS[kind]:
            if column in cells and cells[column].text:
                own = tuple(pair for pair in instance if pair[0] in free[column])
                if (column, own) not in copies:
                    copies[column, own] = cells[column].at_indices(families, dict(own))
                cells[column] = copies[column, own]
        yield TableRecord(cells, record.span, instance)


def _free_in(record: TableRecord, kind: str, families: Families) -> list[str]:
    names = {name for column in _FAMILY_COLUMNS[kind] for name in free_families(record[column].text, families)}
    return [name for name in families if name in names]


_FAMILY_INDEX = re.compile(r"\[\s*([A-Za-z_]\w*)")


def _is_declared_once(record: TableRecord, kind: str, free: Sequence[str], findings: Findings) -> bool:
    """Report a declaration in which a family is free that its name does not have as index: it would be declared several times."""
    word = _DECLARATION_WORDS[kind]
    cell = record[word]
    match = _FAMILY_INDEX.search(cell.text)
    strangers = [name for name in free if match is None or match[1] != name]
    if strangers:
        name = cell.text.strip("` ")
        message = (
            f"this row uses the family '{strangers[0]}', but {word} '{name}' is declared without '[{strangers[0]}]'"
        )
        base = name.partition("[")[0]
        findings.error(
            "DSA107",
            message,
            record.span,
            f"declare {base}[{strangers[0]}], or do not use '{strangers[0]}' in this row",
        )
        findings.doubt(record.span.text)
    return not strangers


def each_instance(cell: Cell, families: Families) -> list[tuple[Instance, Cell]]:
    """Return a text once for each combination of indices of the families that are free in it."""
    free = free_families(cell.text, families)
    return [(instance, with_indices(cell, families, instance)) for instance in instances(free, families)]
