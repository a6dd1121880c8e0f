"""What a statement is, before it runs: whether it only reads, and which tables. DuckDB's own parser tells.

Takes SQL and a connection, gives the query to run, or raises SqlError. Nothing is run or bound here. What may be called of table
functions is listed; the connection is locked besides, so a name that is missing here opens no file.
"""

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from dsa.runtime.speech import is_unicode
from machines.chat.sql.errors import SqlError

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
    """Give kind and text of each token, comments left out; kinds are DuckDB's names (`keyword`, `identifier`, ..)."""
    import duckdb

    data = sql.encode()
    found = duckdb.tokenize(sql)
    ends = [start for start, _ in found[1:]] + [len(data)]
    texts = [(kind.name, data[start:end].decode().rstrip()) for (start, kind), end in zip(found, ends)]  # noqa: B905  # none: no end
    return [(kind, text) for kind, text in texts if kind != "comment"]


def normal_sql(sql: str) -> str:
    """Give a text that is equal for SQL that differs in comments, white space, letter case and the last semicolon only.

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
    """Give the one query of a text. Raises SqlError: empty_sql, several_statements, not_a_query, not_allowed, sql_too_large.

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
    """Give DuckDB's name of a kind of statement; some kinds have none in Python (UPDATE EXTENSIONS)."""
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
    """Give the statement that EXPLAIN is about, put together from its tokens."""
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
    """Look at the syntax tree of a query: refuse what does more than read tables, give the tables."""
    said = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    try:
        tree = json.loads(said)
        seen = _Seen()
        if not tree["error"]:
            seen.walk(tree["statements"], frozenset())
    except RecursionError:
        raise SqlError("sql_too_large", "the query is nested too deeply: write it in steps, with WITH") from None
    if tree["error"]:
        raise SqlError("not_a_query", f"{tree['error_message']}: {ALLOWED}")
    return Statement(_bare(sql), tuple(sorted(seen.tables)), seen.lists_tables)


def _bare(sql: str) -> str:
    """Give the only statement of a text, without the semicolons around it."""
    import duckdb

    data = sql.encode()
    starts = [start for start, kind in duckdb.tokenize(sql) if kind.name != "comment"]
    first = next(n for n, start in enumerate(starts) if data[start : start + 1] != b";")
    end = next((start for start in starts[first:] if data[start : start + 1] == b";"), len(data))
    return data[starts[first] if first else 0 : end].decode()


class _Seen:
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
