"""The process that reads a conversation's data: queries come on standard input, results go to standard output.

SQL is code: DuckDB's limit of memory does not count long texts, and neither its parser nor its text functions can be stopped. So it
runs apart, with the system's limit of memory; whoever asks ends the process when the time is up, and starts another one.
A request is one line of JSON. An answer is one line of JSON, and after it as many bytes of CSV as that line says. The process ends with its
input, and after an error of memory.
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

from machines.chat.sql.query import SqlAnswer, SqlError, SqlFailure, SqlRequest, json_of, profiled
from machines.chat.sql.statements import Statement, asked, checked, csv_lines, kind_of, plain_text, preview

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DUCKDB_MEMORY = "512MB"
PROCESS_MEMORY_BYTES = 2_500_000_000  # DuckDB and its tables of time zones take 0.8 GB of addresses at rest
_MOST_WRITTEN = 100_000  # bytes: what the process complains of
MOST_COLUMNS = 500
MOST_LISTED = 1_000  # rows of a statement that must run as it stands
_MOST_NAME, _MOST_MESSAGE, _MOST_TABLES = 120, 700, 20
_RESULT = "temp.main.result_of_the_query"
_LOCKED: dict[str, str | int | float | list[str]] = {
    "enable_external_access": False, "autoinstall_known_extensions": False, "autoload_known_extensions": False,
    "memory_limit": DUCKDB_MEMORY, "threads": 1, "temp_directory": "",
}  # fmt: skip


def connected(path: str) -> "DuckDBPyConnection":
    """Open a database to be read, with nothing else of this machine, and nothing that a statement can change."""
    import duckdb

    connection = duckdb.connect(path, read_only=True, config=_LOCKED)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")
    return connection


def queried(connection: "DuckDBPyConnection", sql: str, limit: int, keep: int) -> tuple[SqlAnswer, bytes]:
    """Run a query; return what is told of its result, and its CSV. Raises SqlError and DuckDB's errors."""
    statement = checked(connection, sql)
    names, types = _kept_as_table(connection, statement)
    columns = _unique(names)
    kinds = [kind_of(name) for name in types]
    intent = profiled(connection, _RESULT, columns, types, statement.tables)
    cells = ", ".join(asked(f"c{number}", name) for number, name in enumerate(types))
    read = connection.execute(f"SELECT {cells} FROM {_RESULT} LIMIT {max(keep, limit)}")  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    first = read.fetchmany(limit)
    csv, kept = csv_lines(columns, _up_to(keep, first, read), kinds)
    named = map(_cut, types)
    return SqlAnswer(columns, named, preview(first, kinds), intent.row_count, kept, intent, len(csv)), csv


def _kept_as_table(connection: "DuckDBPyConnection", statement: Statement) -> tuple[list[str], list[str]]:
    """Run a query once, keep its result as a table with the columns c0, c1, ..; give names and types as it had them."""
    import duckdb

    if statement.as_it_stands:
        return _listed(connection, statement.sql)
    part = f"(\n{statement.sql}\n)"  # in lines of its own: it may end with a comment
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {part}").fetchall()  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
        _not_too_wide(len(described))
        columns = ", ".join(f"c{number}" for number in range(len(described)))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_RESULT} AS SELECT * FROM {part} AS query({columns})")  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    except duckdb.Error as error:
        error.args = (re.sub(r"^LINE (\d+):", _line_before, str(error), flags=re.MULTILINE),)
        raise
    return [column[0] for column in described], [column[1] for column in described]


def _listed(connection: "DuckDBPyConnection", sql: str) -> tuple[list[str], list[str]]:
    """Run what cannot stand in another query, or would list the table of its own result; its rows are few."""
    run = connection.execute(sql)
    names, types = [column[0] for column in run.description], [str(column[1]) for column in run.description]
    rows = run.fetchmany(MOST_LISTED + 1)
    _not_too_wide(len(names))
    if len(rows) > MOST_LISTED:
        raise SqlError("sql_too_large", f"this lists more than {MOST_LISTED:,} rows: add a LIMIT or a WHERE")
    types = ["INTEGER" if name == '"NULL"' else name for name in types]
    described = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {_RESULT} ({described})")
    if rows:
        connection.executemany(f"INSERT INTO {_RESULT} VALUES ({', '.join('?' for _ in names)})", rows)  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    return names, types


def _not_too_wide(columns: int) -> None:
    if columns > MOST_COLUMNS:
        text = f"the result has {columns:,} columns, at most {MOST_COLUMNS} are given: name those you need"
        raise SqlError("sql_too_large", text)


def _up_to(most: int, first: list[Any], read: "DuckDBPyConnection") -> Iterator[Any]:
    yield from first[:most]
    while rows := read.fetchmany(1_000):
        yield from rows


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_NAME else name[:_MOST_NAME] + "\N{HORIZONTAL ELLIPSIS}"


def _unique(names: list[str]) -> list[str]:
    """Cut very long names; number those that are there before, in whatever letter case, as DuckDB does."""
    taken: set[str] = set()
    found = []
    for name in map(_cut, names):
        number, given = 0, name
        while given.lower() in taken:
            number += 1
            given = f"{name}_{number}"
        taken.add(given.lower())
        found.append(given)
    return found


def answered(connection: "DuckDBPyConnection", request: SqlRequest) -> tuple[SqlAnswer | SqlFailure, bytes]:
    """Answer a request: `query` a result or an error, `parse` the parser's error or nothing."""
    import duckdb

    try:
        if request.do == "parse":
            plain_text(request.sql)
            connection.extract_statements(request.sql)
            return SqlAnswer(), b""
        return queried(connection, request.sql, request.limit, request.keep)
    except SqlError as error:
        return SqlFailure(error.code, str(error)), b""
    except (duckdb.OutOfMemoryException, MemoryError):
        text = "the query needs more memory than it may have: read fewer rows or columns, add a LIMIT, or aggregate"
        return SqlFailure("sql_too_large", text, ends=True), b""
    except duckdb.PermissionException as error:
        text = f"only the loaded tables are read (SHOW TABLES lists them), no files and no network: {_message(error)}"
        return SqlFailure("not_allowed", text), b""
    except duckdb.CatalogException as error:
        return SqlFailure("sql_error", _message(error) + _there_is(connection)), b""
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


def _there_is(connection: "DuckDBPyConnection") -> str:
    """Name the first tables, for whoever has named one that is not there."""
    found = connection.execute(f"SELECT name FROM (SHOW TABLES) LIMIT {_MOST_TABLES + 1}").fetchall()  # noqa: S608  # a number of ours
    if not found:
        return "\nThere are no tables: no data is loaded"
    more = ["\N{HORIZONTAL ELLIPSIS}"] if len(found) > _MOST_TABLES else []
    return f"\nThe tables are: {', '.join([row[0] for row in found[:_MOST_TABLES]] + more)}"


def _line_before(found: re.Match[str]) -> str:
    """Count lines as the query has them; the caret below stays where it points."""
    return f"LINE {max(1, int(found[1]) - 1)}:".ljust(len(found[0]))


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (PROCESS_MEMORY_BYTES, PROCESS_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_by_itself(timeout_s: float) -> None:
    """Have the system end this process a while after the time is up, should whoever asks be gone; 0: never."""
    signal.setitimer(signal.ITIMER_REAL, timeout_s and timeout_s + 5)


def _requests() -> SimpleQueue[SqlRequest]:
    """Read requests beside the queries, so that the process ends with its input also in the middle of one."""
    queue: SimpleQueue[SqlRequest] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            queue.put(SqlRequest(**json.loads(line)))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return queue


def serve(path: str) -> None:
    """Answer requests until the input ends."""
    _limit_memory()
    sys.setrecursionlimit(6_000)  # a syntax tree of DuckDB's greatest depth, as JSON
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    connection = connected(path)
    requests = _requests()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # DuckDB writes a bar of progress to standard output
    while True:
        request = requests.get()
        _end_by_itself(request.timeout_s)
        said, csv = answered(connection, request)
        _end_by_itself(0)
        answers.write(json_of(said) + b"\n" + csv)
        answers.flush()
        if isinstance(said, SqlFailure) and said.ends:
            os._exit(0)
