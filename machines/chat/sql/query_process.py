"""The query process of a conversation: queries come on standard input, results go to standard output.

SQL is code: DuckDB's memory limit does not count long texts, and nothing can stop its parser or its text functions. So queries run in a process
of their own with the system's memory limit; the parent kills it at the time limit and starts another one. A request is one line of JSON. An answer
is one line of JSON, followed by the number of bytes of CSV that the line says. The process ends with its input, and after a memory error.
"""

import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dsa.errors import ToolError
from machines.chat.sql.query import SqlAnswer, SqlFailure, SqlRequest, duckdb_extension, json_of, profile
from machines.chat.sql.statements import Statement, check_statement, csv_lines, kind_of, plain_text, preview, select_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DUCKDB_MEMORY = "512MB"
PROCESS_MEMORY_BYTES = 2_500_000_000  # DuckDB and its time zones use 0.8 GB of address space when idle
_MOST_ERROR_OUTPUT = 100_000  # bytes of error output
MOST_COLUMNS = 500
MOST_LIST_ROWS = 1_000  # rows of a statement that must run unchanged
_MOST_NAME, _MOST_MESSAGE, _MOST_TABLES = 120, 700, 20
_RESULT = "temp.main.result_of_the_query"
_SETTINGS: dict[str, str | int | float | list[str]] = {
    "enable_external_access": False, "autoinstall_known_extensions": False, "autoload_known_extensions": False,
    "memory_limit": DUCKDB_MEMORY, "threads": 1, "temp_directory": "",
}  # fmt: skip


def connect(path: str) -> "DuckDBPyConnection":
    """Open a database read-only, without access to anything else, and with locked settings."""
    duckdb = duckdb_extension()

    connection: DuckDBPyConnection = duckdb.connect(path, read_only=True, config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")
    return connection


def run_query(connection: "DuckDBPyConnection", sql: str, limit: int, keep: int) -> tuple[SqlAnswer, bytes]:
    """Run a query; return its answer and its CSV. Raises ToolError and DuckDB's errors."""
    statement = check_statement(connection, sql)
    names, types = _store_result(connection, statement)
    columns = _unique(names)
    kinds = [kind_of(name) for name in types]
    intent = profile(connection, _RESULT, columns, types, statement.tables)
    cells = ", ".join(select_of(f"c{number}", name) for number, name in enumerate(types))
    cursor = connection.execute(f"SELECT {cells} FROM {_RESULT} LIMIT {max(keep, limit)}")  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    first = cursor.fetchmany(limit)
    csv, csv_rows = csv_lines(columns, _up_to(keep, first, cursor), kinds)
    short_types = map(_shorten, types)
    return SqlAnswer(columns, short_types, preview(first, kinds), intent.row_count, csv_rows, intent, len(csv)), csv


def _store_result(connection: "DuckDBPyConnection", statement: Statement) -> tuple[list[str], list[str]]:
    """Run a query into a temporary table with the columns c0, c1, ..; return the original names and types."""
    duckdb = duckdb_extension()

    if statement.as_it_stands:
        return _store_list(connection, statement.sql)
    part = f"(\n{statement.sql}\n)"  # on lines of its own, because it may end with a comment
    try:
        description = connection.execute(f"DESCRIBE SELECT * FROM {part}").fetchall()  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
        _not_too_wide(len(description))
        columns = ", ".join(f"c{number}" for number in range(len(description)))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_RESULT} AS SELECT * FROM {part} AS query({columns})")  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    except duckdb.Error as error:
        error.args = (re.sub(r"^LINE (\d+):", _line_before, str(error), flags=re.MULTILINE),)
        raise
    return [column[0] for column in description], [column[1] for column in description]


def _store_list(connection: "DuckDBPyConnection", sql: str) -> tuple[list[str], list[str]]:
    """Run a statement that cannot be a subquery, or would list the temporary table; it must have few rows."""
    cursor = connection.execute(sql)
    names, types = [column[0] for column in cursor.description], [str(column[1]) for column in cursor.description]
    rows = cursor.fetchmany(MOST_LIST_ROWS + 1)
    _not_too_wide(len(names))
    if len(rows) > MOST_LIST_ROWS:
        raise ToolError(
            f"the statement lists more than {MOST_LIST_ROWS:,} rows: add a LIMIT or a WHERE", code="sql_too_large"
        )
    types = ["INTEGER" if name == '"NULL"' else name for name in types]
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {_RESULT} ({columns})")
    if rows:
        connection.executemany(f"INSERT INTO {_RESULT} VALUES ({', '.join('?' for _ in names)})", rows)  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    return names, types


def _not_too_wide(columns: int) -> None:
    if columns > MOST_COLUMNS:
        text = f"the result has {columns:,} columns, but the limit is {MOST_COLUMNS}: name the ones you need"
        raise ToolError(text, code="sql_too_large")


def _up_to(most: int, first: list[Any], cursor: "DuckDBPyConnection") -> Iterator[Any]:
    yield from first[:most]
    while rows := cursor.fetchmany(1_000):
        yield from rows


def _shorten(name: str) -> str:
    return name if len(name) <= _MOST_NAME else name[:_MOST_NAME] + "\N{HORIZONTAL ELLIPSIS}"


def _unique(names: list[str]) -> list[str]:
    """Return unique names, very long ones cut. Repeated names, in any letter case, get numbers as in DuckDB."""
    taken_names: set[str] = set()
    result = []
    for name in map(_shorten, names):
        number, candidate = 0, name
        while candidate.lower() in taken_names:
            number += 1
            candidate = f"{name}_{number}"
        taken_names.add(candidate.lower())
        result.append(candidate)
    return result


def answer_request(connection: "DuckDBPyConnection", request: SqlRequest) -> tuple[SqlAnswer | SqlFailure, bytes]:
    """Answer a request: `query` with a result or an error, `parse` with the parser's error or nothing."""
    duckdb = duckdb_extension()

    try:
        if request.do == "parse":
            plain_text(request.sql)
            connection.extract_statements(request.sql)
            return SqlAnswer(), b""
        return run_query(connection, request.sql, request.limit, request.keep)
    except ToolError as error:
        return SqlFailure(error.code, str(error)), b""
    except (duckdb.OutOfMemoryException, MemoryError):
        text = "the query needs too much memory: read fewer rows or columns, add a LIMIT, or aggregate"
        return SqlFailure("sql_too_large", text, ends=True), b""
    except duckdb.PermissionException as error:
        text = f"a query can only read the loaded tables (SHOW TABLES lists them), no files and no network: {_message(error)}"
        return SqlFailure("not_allowed", text), b""
    except duckdb.CatalogException as error:
        return SqlFailure("sql_error", _message(error) + _tables_hint(connection)), b""
    except duckdb.Error as error:
        return SqlFailure(
            "sql_too_large" if "Max expression depth" in str(error) else "sql_error", _message(error)
        ), b""
    finally:
        connection.execute(f"DROP TABLE IF EXISTS {_RESULT}")


def _message(error: Exception) -> str:
    """Return DuckDB's message, shortened, without the folder of the data."""
    text = re.sub(r"\n\n+", "\n", str(error).strip()).replace(str(Path.cwd()), "")
    text = re.sub(r'Did you mean "(duckdb|pg|pragma|sqlite|information_schema)_?[^\n]*\n', "", text)
    return text if len(text) <= _MOST_MESSAGE else text[:_MOST_MESSAGE] + "\N{HORIZONTAL ELLIPSIS}"


def _tables_hint(connection: "DuckDBPyConnection") -> str:
    """Return a hint with the first tables, for a query with an unknown one."""
    tables = connection.execute(f"SELECT name FROM (SHOW TABLES) LIMIT {_MOST_TABLES + 1}").fetchall()  # noqa: S608  # a number of ours
    if not tables:
        return "\nThere are no tables, because no data is loaded"
    more = ["\N{HORIZONTAL ELLIPSIS}"] if len(tables) > _MOST_TABLES else []
    return f"\nThe tables are: {', '.join([row[0] for row in tables[:_MOST_TABLES]] + more)}"


def _line_before(match: re.Match[str]) -> str:
    """Return the prefix of an error line with the query's own line number, at the same width, so that the caret below still fits."""
    return f"LINE {max(1, int(match[1]) - 1)}:".ljust(len(match[0]))


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (PROCESS_MEMORY_BYTES, PROCESS_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_ERROR_OUTPUT, _MOST_ERROR_OUTPUT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_by_itself(timeout_s: float) -> None:
    """Let the system end this process some seconds after the time limit, in case the parent is gone; 0 switches that off."""
    signal.setitimer(signal.ITIMER_REAL, timeout_s and timeout_s + 5)


def _requests() -> SimpleQueue[SqlRequest]:
    """Return a queue that a thread fills with requests, so that the process ends with its input even during a query."""
    queue: SimpleQueue[SqlRequest] = SimpleQueue()

    def read_requests() -> None:
        for line in sys.stdin.buffer:
            queue.put(SqlRequest(**json.loads(line)))
        os._exit(0)

    threading.Thread(target=read_requests, daemon=True).start()
    return queue


def serve(path: str) -> None:
    """Answer requests until the input ends."""
    _limit_memory()
    sys.setrecursionlimit(6_000)  # for a syntax tree of DuckDB's greatest depth, as JSON
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    connection = connect(path)
    requests = _requests()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # DuckDB writes a progress bar to standard output
    while True:
        request = requests.get()
        _end_by_itself(request.timeout_s)
        answer, csv = answer_request(connection, request)
        _end_by_itself(0)
        answers.write(json_of(answer) + b"\n" + csv)
        answers.flush()
        if isinstance(answer, SqlFailure) and answer.ends:
            os._exit(0)
