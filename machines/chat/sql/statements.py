"""What a statement is, before it runs: whether it only reads, and which tables. DuckDB's own parser tells.

Takes SQL and a connection, gives the query to run, or raises SqlError. Nothing is run or bound here. What may be called of table
functions is listed; the connection is locked besides, so a name that is missing here opens no file.

Cells of a result: as DuckDB is asked for them, as JSON values for a preview, as text for a CSV.

The CSV is the same bytes for the same rows, whatever machine or version of Python: lines end with LF; the text is UTF-8; floats are the
shortest digits that read back equal; nothing stands for NULL, `""` for an empty text; a text is quoted where it must be.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs

from dsa.runtime.speech import is_unicode
from machines.chat.sql.query import WHOLE, SqlError, iso

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from duckdb import Statement as Parsed

MOST_CHARACTERS = 100_000
ALLOWED = "write one query that reads: SELECT, WITH, VALUES, FROM, SUMMARIZE, DESCRIBE, SHOW TABLES, or EXPLAIN without ANALYZE"
#: Table functions that read no file and show no path of this machine.
TABLE_FUNCTIONS = {
    "duckdb_columns", "duckdb_constraints", "duckdb_functions", "duckdb_keywords", "duckdb_schemas", "duckdb_tables", "duckdb_types",
    "duckdb_views", "generate_series", "generate_subscripts", "json_each", "json_tree", "pg_timezone_names", "pragma_table_info",
    "range", "repeat", "repeat_row", "unnest",
}  # fmt: skip
#: Functions that show settings, write logs, or run SQL that stands in a text.
REFUSED_FUNCTIONS = {
    "current_setting", "getenv", "json_execute_serialized_sql", "parse_duckdb_log_message", "query", "query_table", "write_log",
}  # fmt: skip
#: Views of DuckDB that show settings or paths.
REFUSED_VIEWS = {"duckdb_databases", "duckdb_logs", "pg_prepared_statements", "pg_settings", "pragma_database_list"}
_FILE = re.compile(r"[/\\.:*?]")  # in a name of a table: no table of ours has it, DuckDB takes it for a file or address
#: Views and functions that list tables: what runs beside the query must not show in them.
_LISTS = ("duckdb_", "information_schema", "pg_", "pragma_", "sqlite_")


Tree = Any  # as json reads it


@attrs.frozen
class Statement:
    """One query: its text without a semicolon, the tables that it reads, and whether it must run as it stands.

    `as_it_stands` are those that cannot stand in another query (EXPLAIN), or that list tables.
    """

    sql: str
    tables: tuple[str, ...]
    as_it_stands: bool


def tokens(sql: str) -> list[tuple[str, str]]:
    """Return kind and text of each token, comments left out; kinds are DuckDB's names (`keyword`, `identifier`, ..)."""
    import duckdb

    data = sql.encode()
    found = duckdb.tokenize(sql)
    ends = [start for start, _ in found[1:]] + [len(data)]
    texts = [(kind.name, data[start:end].decode().rstrip()) for (start, kind), end in zip(found, ends)]  # noqa: B905  # none: no end
    return [(kind, text) for kind, text in texts if kind != "comment"]


def normal_sql(sql: str) -> str:
    """Return a text that is equal for SQL that differs in comments, white space, letter case and the last semicolon only.

    Letter case counts in texts and in quoted names; only ASCII letters are made small, as DuckDB does. SQL that is too
    long to be run is given as it is.
    """
    if len(sql) > MOST_CHARACTERS or not is_unicode(sql):
        return sql
    found = tokens(sql)
    while found and found[-1][1] == ";":
        found.pop()
    folded = {"keyword", "identifier"}
    small = (
        text.encode().lower().decode() if kind in folded and not text.startswith('"') else text for kind, text in found
    )
    return " ".join(small)


def checked(connection: "DuckDBPyConnection", sql: str) -> Statement:
    """Return the one query of a text. Raises SqlError: empty_sql, several_statements, not_a_query, not_allowed, sql_too_large.

    DuckDB's own errors are raised as they are.
    """
    plain_text(sql)
    parsed = connection.extract_statements(sql)
    found = tokens(sql)
    if not parsed:
        raise SqlError("empty_sql", f"there is no SQL: {ALLOWED}")
    if len(parsed) > 1:
        raise SqlError("several_statements", f"{len(parsed)} statements in one call: {ALLOWED}, and one in each call")
    if parsed[0].named_parameters:
        raise SqlError("sql_error", "the query has placeholders (?, $1, $name): write the values themselves")
    kind = _kind(parsed[0])
    if kind == "EXPLAIN":
        inner = checked(connection, _explained(found))
        return Statement(sql, inner.tables, as_it_stands=True)
    if kind == "MULTI":
        text = "PIVOT needs its values written out: PIVOT t ON column IN ('a', 'b') USING sum(x)"
        raise SqlError("not_a_query", text)
    if kind != "SELECT":
        raise SqlError(
            "not_a_query",
            f"{found[0][1].upper()[:20] if found else 'this'} is not done here, data is only read: {ALLOWED}",
        )
    return _read(connection, sql)


def _kind(statement: "Parsed") -> str:
    """Return DuckDB's name of a kind of statement; some kinds have none in Python (UPDATE EXTENSIONS)."""
    try:
        return str(statement.type.name)
    except ValueError:
        return ""


def plain_text(sql: str) -> None:
    """Raise SqlError when a text is not given to the parser at all: empty, too long, not UTF-8."""
    if not sql.strip():
        raise SqlError("empty_sql", f"there is no SQL: {ALLOWED}")
    if len(sql) > MOST_CHARACTERS:
        raise SqlError("sql_too_large", f"the SQL has {len(sql):,} characters; at most {MOST_CHARACTERS:,} are read")
    if "\0" in sql or not is_unicode(sql):
        raise SqlError("sql_error", "the SQL has a character that is no text (NUL, or half of a pair): leave it out")


def _explained(found: list[tuple[str, str]]) -> str:
    """Return the statement that EXPLAIN is about, put together from its tokens."""
    rest = found[1:]
    if rest and rest[0][1] == "(":
        end = next((n for n, (_, text) in enumerate(rest) if text == ")"), 0)
        options, rest = rest[: end + 1], rest[end + 1 :]
    else:
        options = rest[:1]
    if any(text.lower() in ("analyze", "analyse") for _, text in options):
        raise SqlError("not_a_query", "EXPLAIN ANALYZE runs the query: write EXPLAIN, or the query itself")
    return " ".join(text for _, text in rest)


def _read(connection: "DuckDBPyConnection", sql: str) -> Statement:
    """Look at the syntax tree of a query: refuse what does more than read tables, return the tables."""
    said = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    try:
        tree = json.loads(said)
        seen = _StatementNames()
        if not tree["error"]:
            seen.walk(tree["statements"], frozenset())
    except RecursionError:
        raise SqlError("sql_too_large", "the query is nested too deeply: write it in steps, with WITH") from None
    if tree["error"]:
        raise SqlError("not_a_query", f"{tree['error_message']}: {ALLOWED}")
    return Statement(_bare(sql), tuple(sorted(seen.tables)), seen.lists_tables)


def _bare(sql: str) -> str:
    """Return the only statement of a text, without the semicolons around it."""
    import duckdb

    data = sql.encode()
    starts = [start for start, kind in duckdb.tokenize(sql) if kind.name != "comment"]
    first = next(n for n, start in enumerate(starts) if data[start : start + 1] != b";")
    end = next((start for start in starts[first:] if data[start : start + 1] == b";"), len(data))
    return data[starts[first] if first else 0 : end].decode()


class _StatementNames:
    """What a syntax tree names: tables that are no WITH of it, and whether it lists tables."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.lists_tables = False

    def walk(self, node: Tree, withs: frozenset[str]) -> None:
        """Go through a part of the tree; `withs` are the names that WITH has given around it, in small letters."""
        if isinstance(node, list):
            for part in node:
                self.walk(part, withs)
        elif isinstance(node, dict):
            for entry in (node.get("cte_map") or {}).get("map", ()):
                name = entry["key"].lower()
                body = entry["value"]["query_node" if "query_node" in entry["value"] else "query"]
                self.walk(body, withs | {name} if "RECURSIVE" in json.dumps(body.get("type", "")) else withs)
                withs |= {name}
            self._look(node, withs)
            for key, part in node.items():
                if key != "cte_map":
                    self.walk(part, withs)

    def _look(self, node: Tree, withs: frozenset[str]) -> None:
        kind = str(node.get("type", ""))
        if kind.endswith("_QUERY_NODE"):  # INSERT, UPDATE, DELETE, MERGE in a WITH
            raise SqlError(
                "not_a_query", f"{kind.split('_', maxsplit=1)[0]} is not done here, data is only read: {ALLOWED}"
            )
        if kind == "SHOW_REF" and node.get("query") is None:
            self.lists_tables = True
        elif kind == "TABLE_FUNCTION":
            self._call(node["function"]["function_name"].lower(), TABLE_FUNCTIONS)
        elif node.get("class") == "FUNCTION":
            self._call(node["function_name"].lower(), None)
        elif kind == "BASE_TABLE":
            self._table(node["table_name"], node["schema_name"], withs)

    def _call(self, name: str, allowed: set[str] | None) -> None:
        self.lists_tables |= allowed is not None and name.startswith(_LISTS)
        if name in REFUSED_FUNCTIONS or (allowed is not None and name not in allowed):
            raise SqlError(
                "not_allowed", f"{name}() is not used here: only the loaded tables are read (SHOW TABLES lists them)"
            )

    def _table(self, name: str, schema: str, withs: frozenset[str]) -> None:
        if _FILE.search(name):
            raise SqlError(
                "not_allowed",
                f"'{name[:200]}' is no loaded table: files and addresses are not read (SHOW TABLES lists the tables)",
            )
        if name.lower() in REFUSED_VIEWS:
            raise SqlError(
                "not_allowed", f"{name} is not shown here: only the loaded tables are read (SHOW TABLES lists them)"
            )
        if f"{schema}.{name}".lower().lstrip(".").startswith(_LISTS):
            self.lists_tables = True
        elif schema or name.lower() not in withs:
            self.tables.add(name)


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
    """Return how a column of a DuckDB type is handled: whole, float, bool, decimal, nested, bytes, time, text."""
    if WHOLE.match(type_name):
        return "whole"
    if _NESTED.match(type_name):
        return "nested"
    plain = {"BOOLEAN": "bool", "FLOAT": "float", "DOUBLE": "float", "JSON": "nested", "BLOB": "bytes"}
    if type_name.startswith(("DATE", "TIME")):
        return "time"
    return plain.get(type_name, "decimal" if type_name.startswith("DECIMAL") else "text")


def asked(column: str, type_name: str) -> str:
    """Return the SQL that reads a column without loss, or says how much of a very long text is left out."""
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
    """Return a cell as a JSON value of at most about so many characters; what is cut ends with a mark."""
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
    """Return a number that JSON keeps without loss, else its digits as a text; NaN and infinity are texts."""
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
    """Return rows as JSON values, together at most MOST_PREVIEW characters: long cells are cut first, then rows left out."""
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
    """Return a CSV with a header, and how many rows it has: as many as MOST_CSV_BYTES hold."""
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
    """Return a CSV without formulas: a text that a spreadsheet would run gets an apostrophe before it; numbers stay as they are.

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
