"""Statements: the check of SQL before it runs, and the cells of its result as SQL, as JSON values and as CSV.

`checked` takes SQL and a connection, and returns the query with its tables, or raises ToolError. DuckDB's own parser decides whether it only reads; nothing
runs here. Table functions need permission by name; the connection is locked too, so a function that this list forgets opens no file.

Equal rows give equal bytes of CSV on any machine and any Python: lines end with LF; the text is UTF-8; floats are the shortest digits that read
back equal; an empty cell is NULL, `""` is an empty text; a text is quoted only when it must be.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs

from dsa.errors import ToolError
from dsa.text import is_unicode
from machines.chat.sql.query import WHOLE, duckdb_extension, iso

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from duckdb import Statement as Parsed

MOST_CHARACTERS = 100_000
ADVICE = "write one query that only reads: SELECT, WITH, VALUES, FROM, SUMMARIZE, DESCRIBE, SHOW TABLES, or EXPLAIN without ANALYZE"
#: Table functions that read no files and show no paths of this machine.
TABLE_FUNCTIONS = {
    "duckdb_columns", "duckdb_constraints", "duckdb_functions", "duckdb_keywords", "duckdb_schemas", "duckdb_tables", "duckdb_types",
    "duckdb_views", "generate_series", "generate_subscripts", "json_each", "json_tree", "pg_timezone_names", "pragma_table_info",
    "range", "repeat", "repeat_row", "unnest",
}  # fmt: skip
#: Functions that show settings, write logs, or run SQL from a text.
FORBIDDEN_FUNCTIONS = {
    "current_setting", "getenv", "json_execute_serialized_sql", "parse_duckdb_log_message", "query", "query_table", "write_log",
}  # fmt: skip
#: Views of DuckDB that show settings or paths.
FORBIDDEN_VIEWS = {"duckdb_databases", "duckdb_logs", "pg_prepared_statements", "pg_settings", "pragma_database_list"}
_FILE = re.compile(r"[/\\.:*?]")  # in the name of a table: DuckDB reads such a name as a file or an address
#: Views and functions that list tables: they must not show our temporary table.
_LISTS = ("duckdb_", "information_schema", "pg_", "pragma_", "sqlite_")


Tree = Any  # JSON


@attrs.frozen
class Statement:
    """A query: its text without a semicolon, the tables that it reads, and whether it must run unchanged.

    `as_it_stands` is true for a statement that cannot be a subquery (EXPLAIN), or that lists tables.
    """

    sql: str
    tables: tuple[str, ...]
    as_it_stands: bool


def tokens(sql: str) -> list[tuple[str, str]]:
    """Return kind and text of each token, without comments; kinds are DuckDB's names (`keyword`, `identifier`, ..)."""
    duckdb = duckdb_extension()

    data = sql.encode()
    starts = duckdb.tokenize(sql)
    ends = [start for start, _ in starts[1:]] + [len(data)]
    texts = [(kind.name, data[start:end].decode().rstrip()) for (start, kind), end in zip(starts, ends)]  # noqa: B905  # none: no end
    return [(kind, text) for kind, text in texts if kind != "comment"]


def normal_sql(sql: str) -> str:
    """Return a text for comparisons: equal for SQL that differs only in comments, white space, letter case and the last semicolon.

    Letter case matters in texts and in quoted names; only ASCII letters are lowered, as in DuckDB. SQL that is too
    long to run is returned unchanged.
    """
    if len(sql) > MOST_CHARACTERS or not is_unicode(sql):
        return sql
    parts = tokens(sql)
    while parts and parts[-1][1] == ";":
        parts.pop()
    lowered_kinds = {"keyword", "identifier"}
    small = (
        text.encode().lower().decode() if kind in lowered_kinds and not text.startswith('"') else text
        for kind, text in parts
    )
    return " ".join(small)


def check_statement(connection: "DuckDBPyConnection", sql: str) -> Statement:
    """Return the one query of a text. Raises ToolError: empty_sql, several_statements, not_a_query, not_allowed, sql_too_large.

    Raises DuckDB's own errors too.
    """
    plain_text(sql)
    statements = connection.extract_statements(sql)
    parts = tokens(sql)
    if not statements:
        raise ToolError(f"there is no SQL: {ADVICE}", code="empty_sql")
    if len(statements) > 1:
        raise ToolError(
            f"{len(statements)} statements in one call, but only one is allowed: {ADVICE}", code="several_statements"
        )
    if statements[0].named_parameters:
        raise ToolError("the query has placeholders (?, $1, $name): write the values themselves", code="sql_error")
    kind = _kind(statements[0])
    if kind == "EXPLAIN":
        inner = check_statement(connection, _inner_statement(parts))
        return Statement(sql, inner.tables, as_it_stands=True)
    if kind == "MULTI":
        text = "PIVOT needs its values written out: PIVOT t ON column IN ('a', 'b') USING sum(x)"
        raise ToolError(text, code="not_a_query")
    if kind != "SELECT":
        raise ToolError(
            f"{parts[0][1].upper()[:20] if parts else 'this'} is not allowed, because the data is read-only: {ADVICE}",
            code="not_a_query",
        )
    return _query_statement(connection, sql)


def _kind(statement: "Parsed") -> str:
    """Return DuckDB's name of the kind of a statement; empty for kinds without a name in Python (UPDATE EXTENSIONS)."""
    try:
        return str(statement.type.name)
    except ValueError:
        return ""


def plain_text(sql: str) -> None:
    """Raise ToolError for a text that the parser must not get: empty, too long, not UTF-8."""
    if not sql.strip():
        raise ToolError(f"there is no SQL: {ADVICE}", code="empty_sql")
    if len(sql) > MOST_CHARACTERS:
        raise ToolError(f"the SQL has {len(sql):,} characters; write at most {MOST_CHARACTERS:,}", code="sql_too_large")
    if "\0" in sql or not is_unicode(sql):
        raise ToolError(
            "the SQL has an invalid character (NUL, or half of a surrogate pair): leave it out", code="sql_error"
        )


def _inner_statement(parts: list[tuple[str, str]]) -> str:
    """Return the statement after EXPLAIN, joined from its tokens."""
    rest = parts[1:]
    if rest and rest[0][1] == "(":
        end = next((n for n, (_, text) in enumerate(rest) if text == ")"), 0)
        options, rest = rest[: end + 1], rest[end + 1 :]
    else:
        options = rest[:1]
    if any(text.lower() in ("analyze", "analyse") for _, text in options):
        raise ToolError("EXPLAIN ANALYZE runs the query: write EXPLAIN, or the query itself", code="not_a_query")
    return " ".join(text for _, text in rest)


def _query_statement(connection: "DuckDBPyConnection", sql: str) -> Statement:
    """Return a query with the tables in its syntax tree. Raises ToolError when it does more than read tables."""
    tree_json = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    try:
        tree = json.loads(tree_json)
        names = _StatementNames()
        if not tree["error"]:
            names.walk(tree["statements"], frozenset())
    except RecursionError:
        raise ToolError("the query is nested too deep: write it in steps, with WITH", code="sql_too_large") from None
    if tree["error"]:
        raise ToolError(f"{tree['error_message']}: {ADVICE}", code="not_a_query")
    return Statement(_bare(sql), tuple(sorted(names.tables)), names.lists_tables)


def _bare(sql: str) -> str:
    """Return the only statement of a text, without the semicolons around it."""
    duckdb = duckdb_extension()

    data = sql.encode()
    starts = [start for start, kind in duckdb.tokenize(sql) if kind.name != "comment"]
    first = next(n for n, start in enumerate(starts) if data[start : start + 1] != b";")
    end = next((start for start in starts[first:] if data[start : start + 1] == b";"), len(data))
    return data[starts[first] if first else 0 : end].decode()


class _StatementNames:
    """The names in a syntax tree: tables that are not its own WITH, and whether it lists tables."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.lists_tables = False

    def walk(self, node: Tree, withs: frozenset[str]) -> None:
        """Visit a part of the tree; `withs` are the names of the enclosing WITH clauses, in lower case."""
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
            raise ToolError(
                f"{kind.split('_', maxsplit=1)[0]} is not allowed, because the data is read-only: {ADVICE}",
                code="not_a_query",
            )
        if kind == "SHOW_REF" and node.get("query") is None:
            self.lists_tables = True
        elif kind == "TABLE_FUNCTION":
            self._call(node["function"]["function_name"].lower(), TABLE_FUNCTIONS)
        elif node.get("class") == "FUNCTION":
            self._call(node["function_name"].lower(), None)
        elif kind == "BASE_TABLE":
            self._table(node["table_name"], node["schema_name"], withs)

    def _call(self, name: str, names: set[str] | None) -> None:
        self.lists_tables |= names is not None and name.startswith(_LISTS)
        if name in FORBIDDEN_FUNCTIONS or (names is not None and name not in names):
            raise ToolError(
                f"{name}() is not allowed: read only the loaded tables (SHOW TABLES lists them)", code="not_allowed"
            )

    def _table(self, name: str, schema: str, withs: frozenset[str]) -> None:
        if _FILE.search(name):
            raise ToolError(
                f"'{name[:200]}' is not a loaded table: files and addresses cannot be read (SHOW TABLES lists the tables)",
                code="not_allowed",
            )
        if name.lower() in FORBIDDEN_VIEWS:
            raise ToolError(
                f"{name} is not allowed: read only the loaded tables (SHOW TABLES lists them)", code="not_allowed"
            )
        if f"{schema}.{name}".lower().lstrip(".").startswith(_LISTS):
            self.lists_tables = True
        elif schema or name.lower() not in withs:
            self.tables.add(name)


# --- cells ---

MOST_CELL = 100_000  # characters of a cell
MOST_PREVIEW = 20_000  # characters of JSON
MOST_CSV_BYTES = 8_000_000
_CELLS = (1_000, 300, 100, 30)  # characters of a cell in the preview; the first that fits is used
_SAFE_WHOLE = 2**53  # most readers of JSON change larger numbers
_BEGIN = "=+\\-@\uff1d\uff0b\uff0d\uff20"  # also the full-width forms, which some versions of Excel accept too
_FORMULA = re.compile(rf"[{_BEGIN}\r\n]")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?%?\Z")
#: A formula after a separator of other countries; the text up to the next separator is not a number.
_FORMULA_BEHIND = re.compile(rf'([;\t]"?)(?=[{_BEGIN}])(?![+-]?\d+([.,]\d+)?([eE][+-]?\d+)?%?"?(?:[;\t]|\r?\Z))')
_SEPARATOR = re.compile(r"[;\t]")
_MUST_QUOTE = re.compile(r'[",\r\n]|^\s|\s$|^$')
_CELL = re.compile(r'"(?:[^"]|"")*"|[^,\n"]+')
_MAYBE_FORMULA = re.compile(rf'(?:^|[,;\t\n])"?[{_BEGIN}\t\r\n]')
_NESTED_TYPES = re.compile(r"(STRUCT|MAP|UNION|VARIANT)\b|.*\]$", re.DOTALL)
Json = Any  # JSON
Cell = Any  # a value from DuckDB
_MARK = "\N{HORIZONTAL ELLIPSIS}"


def kind_of(type_name: str) -> str:
    """Return the kind of a DuckDB type: whole, float, bool, decimal, nested, bytes, time, text."""
    if WHOLE.match(type_name):
        return "whole"
    if _NESTED_TYPES.match(type_name):
        return "nested"
    plain = {"BOOLEAN": "bool", "FLOAT": "float", "DOUBLE": "float", "JSON": "nested", "BLOB": "bytes"}
    if type_name.startswith(("DATE", "TIME")):
        return "time"
    return plain.get(type_name, "decimal" if type_name.startswith("DECIMAL") else "text")


def select_of(column: str, type_name: str) -> str:
    """Return the SQL that reads a column without loss; a very long text is cut, with its length."""
    kind = kind_of(type_name)
    if kind in ("whole", "bool") or type_name == "DOUBLE":
        return column
    if kind == "bytes":
        beginning = f"'0x' || hex({column}[1:32])"
        return f"CASE WHEN octet_length({column}) > 32 THEN {beginning} || '{_MARK} (' || octet_length({column}) || ' bytes)' ELSE {beginning} END"
    text = f"CAST({f'to_json({column})' if kind == 'nested' else column} AS VARCHAR)"
    if kind in ("decimal", "time", "float"):
        return text
    short_text = f"left({text}, {MOST_CELL}) || '{_MARK} (' || length({text}) || ' characters)'"
    return f"CASE WHEN strlen({text}) > {MOST_CELL} THEN {short_text} ELSE {text} END"


def json_cell(cell: Cell, kind: str, most: int) -> Json:
    """Return a cell as a JSON value of about `most` characters at most; a cut text ends with a mark."""
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
            return _nested_value(cell, most)
        case "text":
            return _shorten(cell, most)
    return _number(cell)


def _number(value: Cell) -> Json:
    """Return a number that JSON holds without loss, or its digits as a text; NaN and infinity are texts."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _SAFE_WHOLE else str(value)
    if isinstance(value, Decimal):
        near = float(value)
        return near if math.isfinite(near) and Decimal(repr(near)) == value else str(value)
    return value if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")


def _nested_value(text: str, most: int) -> Json:
    if len(text) > most:
        return _shorten(text, most)
    try:
        return _walk(json.loads(text, parse_float=Decimal))
    except (ValueError, RecursionError):  # cut by the query, or nested too deep
        return _shorten(text, most)


def _walk(value: Json) -> Json:
    if isinstance(value, list):
        return [_walk(part) for part in value]
    if isinstance(value, dict):
        return {_shorten(name, MOST_CELL): _walk(part) for name, part in value.items()}
    return value if value is None else _number(value)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + _MARK


def preview(rows: Sequence[Sequence[Any]], kinds: Sequence[str]) -> list[list[Any]]:
    """Return rows as JSON values of at most MOST_PREVIEW characters: long cells are cut first, then rows are left out."""
    result: list[list[Any]] = []
    for most in _CELLS:
        result = [[json_cell(cell, kind, most) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
        if _length(result) <= MOST_PREVIEW:
            return result
    while result and _length(result) > MOST_PREVIEW:
        result = result[: len(result) * 3 // 4]
    return result


def _length(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def csv_lines(columns: Sequence[str], rows: Iterator[Sequence[Any]], kinds: Sequence[str]) -> tuple[bytes, int]:
    """Return a CSV with a header, and its number of rows: as many as fit into MOST_CSV_BYTES."""
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
    """Return a CSV without formulas: a text that a spreadsheet would run gets an apostrophe before it; numbers stay.

    Such a text begins with = + - @ or a line end, and is not a number. The same holds after semicolons and tabs, where spreadsheets separate cells in
    countries with a decimal comma. Programs that read the CSV see the apostrophe too. A CSV that is not UTF-8 stays unchanged.
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
    is_formula = first and _FORMULA.match(text) and not _NUMBER.match(first)
    return quote + ("'" if is_formula else "") + _FORMULA_BEHIND.sub(r"\1'", text)


def _text(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _MUST_QUOTE.search(text) else text
