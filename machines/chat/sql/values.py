"""Cells of a result: as DuckDB is asked for them, as JSON values for a preview, as text for a CSV.

The CSV is the same bytes for the same rows, whatever machine or version of Python: lines end with LF; the text is UTF-8; floats are the
shortest digits that read back equal; nothing stands for NULL, `""` for an empty text; a text is quoted where it must be.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from machines.chat.sql.intent import WHOLE, iso

MOST_CELL = 100_000  # characters of a cell that are kept at all
MOST_PREVIEW = 20_000  # characters of JSON
MOST_CSV_BYTES = 8_000_000
_CELLS = (1_000, 300, 100, 30)  # characters of a preview's cell, tried in turn
_SAFE_WHOLE = 2**53  # larger ones are no number to most readers of JSON
_BEGIN = "=+\\-@\uff1d\uff0b\uff0d\uff20"  # also as Chinese and Japanese keyboards have them, which some versions of Excel take for the same
_FORMULA = re.compile(rf"[{_BEGIN}\r\n]")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?%?\Z")
#: A formula behind what separates cells in other countries, and is no number up to the next such place.
_FORMULA_BEHIND = re.compile(rf'([;\t]"?)(?=[{_BEGIN}])(?![+-]?\d+([.,]\d+)?([eE][+-]?\d+)?%?"?(?:[;\t]|\r?\Z))')
_SEPARATOR = re.compile(r"[;\t]")
_MUST_QUOTE = re.compile(r'[",\r\n]|^\s|\s$|^$')
_CELL = re.compile(r'"(?:[^"]|"")*"|[^,\n"]+')
_MAYBE_FORMULA = re.compile(rf'(?:^|[,;\t\n])"?[{_BEGIN}\t\r\n]')
_NESTED = re.compile(r"(STRUCT|MAP|UNION|VARIANT)\b|.*\]$", re.DOTALL)
Json = Any  # as json reads and writes it
Cell = Any  # as DuckDB gives it
_MARK = "\N{HORIZONTAL ELLIPSIS}"


def kind_of(type_name: str) -> str:
    """Give how a column of a DuckDB type is handled: whole, float, bool, decimal, nested, bytes, time, text."""
    if WHOLE.match(type_name):
        return "whole"
    if _NESTED.match(type_name):
        return "nested"
    plain = {"BOOLEAN": "bool", "FLOAT": "float", "DOUBLE": "float", "JSON": "nested", "BLOB": "bytes"}
    if type_name.startswith(("DATE", "TIME")):
        return "time"
    return plain.get(type_name, "decimal" if type_name.startswith("DECIMAL") else "text")


def asked(column: str, type_name: str) -> str:
    """Give the SQL that reads a column without loss, or says how much of a very long text is left out."""
    kind = kind_of(type_name)
    if kind in ("whole", "bool") or type_name == "DOUBLE":
        return column
    if kind == "bytes":
        shown = f"'0x' || hex({column}[1:32])"
        return f"CASE WHEN octet_length({column}) > 32 THEN {shown} || '{_MARK} (' || octet_length({column}) || ' bytes)' ELSE {shown} END"
    text = f"CAST({f'to_json({column})' if kind == 'nested' else column} AS VARCHAR)"
    if kind in ("decimal", "time", "float"):
        return text
    cut = f"left({text}, {MOST_CELL}) || '{_MARK} (' || length({text}) || ' characters)'"
    return f"CASE WHEN strlen({text}) > {MOST_CELL} THEN {cut} ELSE {text} END"


def shown(cell: Cell, kind: str, most: int) -> Json:
    """Give a cell as a JSON value of at most about so many characters; what is cut ends with a mark."""
    if cell is None:
        return None
    match kind:
        case "float":
            return _number(float(cell))
        case "decimal":
            return _number(Decimal(cell))
        case "time":
            return iso(cell)
        case "nested":
            return _nested(cell, most)
        case "text":
            return _cut(cell, most)
    return _number(cell)


def _number(value: Cell) -> Json:
    """Give a number that JSON keeps without loss, else its digits as a text; NaN and infinity are texts."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _SAFE_WHOLE else str(value)
    if isinstance(value, Decimal):
        near = float(value)
        return near if math.isfinite(near) and Decimal(repr(near)) == value else str(value)
    return value if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")


def _nested(text: str, most: int) -> Json:
    if len(text) > most:
        return _cut(text, most)
    try:
        return _walk(json.loads(text, parse_float=Decimal))
    except (ValueError, RecursionError):  # cut by the query, or deeper than JSON is read
        return _cut(text, most)


def _walk(value: Json) -> Json:
    if isinstance(value, list):
        return [_walk(part) for part in value]
    if isinstance(value, dict):
        return {_cut(name, MOST_CELL): _walk(part) for name, part in value.items()}
    return value if value is None else _number(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + _MARK


def preview(rows: Sequence[Sequence[Any]], kinds: Sequence[str]) -> list[list[Any]]:
    """Give rows as JSON values, together at most MOST_PREVIEW characters: long cells are cut first, then rows left out."""
    told: list[list[Any]] = []
    for most in _CELLS:
        told = [[shown(cell, kind, most) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
        if _length(told) <= MOST_PREVIEW:
            return told
    while told and _length(told) > MOST_PREVIEW:
        told = told[: len(told) * 3 // 4]
    return told


def _length(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def csv_lines(columns: Sequence[str], rows: Iterator[Sequence[Any]], kinds: Sequence[str]) -> tuple[bytes, int]:
    """Give a CSV with a header, and how many rows it has: as many as MOST_CSV_BYTES hold."""
    lines = [(",".join(_text(name) for name in columns) + "\n").encode()]
    size = len(lines[0])
    for row in rows:
        line = (",".join(_field(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + "\n").encode()
        size += len(line)
        if size > MOST_CSV_BYTES:
            break
        lines.append(line)
    return b"".join(lines), len(lines) - 1


def _field(cell: Cell, kind: str) -> str:
    if cell is None:
        return ""
    match kind:
        case "float":
            return repr(float(cell))
        case "bool":
            return "true" if cell else "false"
        case "time":
            return iso(cell)
        case "whole" | "decimal":
            return str(cell)
    return _text(cell)


def for_spreadsheets(csv: bytes) -> bytes:
    """Give a CSV without formulas: a text that a spreadsheet would run gets an apostrophe before it; numbers stay as they are.

    That is a text which begins with = + - @ or the end of a line, and is no number, also behind semicolons and tabs: where commas are in numbers, spreadsheets
    separate cells there, and some leave out tabs at the beginning. Whoever reads the CSV back sees the apostrophe too. What is no UTF-8 stays as it is.
    """
    try:
        text = csv.decode()
    except UnicodeDecodeError:
        return csv
    if not _MAYBE_FORMULA.search(text):
        return csv
    return _CELL.sub(_without_formula, text).encode()


def _without_formula(cell: re.Match[str]) -> str:
    quote, text = ('"', cell[0][1:]) if cell[0].startswith('"') else ("", cell[0])
    first = _SEPARATOR.split(text.removesuffix(quote).removesuffix("\r"), maxsplit=1)[0]
    begins = first and _FORMULA.match(text) and not _NUMBER.match(first)
    return quote + ("'" if begins else "") + _FORMULA_BEHIND.sub(r"\1'", text)


def _text(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _MUST_QUOTE.search(text) else text
