"""Queries: the errors, the requests and the answers of the SQL tool, and the data intent summary (seed 002, workstream E).

The processes that read data have a small environment, and take and return lines of JSON made of the frozen classes here; an answer has CSV after its
line. These processes start while the user waits, so the module imports little. `profiled` makes the summary of a result: datasets, dimensions,
measures, row count, time scope. It judges by values, with one exception: numbers named like an id or a part of a date are not measures.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, TypeVar

import attrs

from dsa.errors import DocumentError
from dsa.text import on_one_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: The codes of errors of queries, with explanations.
CODES: dict[str, str] = {
    "empty_sql": "There is no statement: nothing, white space, or only comments.",
    "several_statements": "There are several statements.",
    "not_a_query": "The statement does more than read.",
    "not_allowed": "The query reads more than the loaded tables: files, the network, settings or paths of this machine.",
    "sql_error": "DuckDB cannot read or run the query; the message is DuckDB's.",
    "sql_timeout": "The query reached its time limit and was stopped.",
    "sql_too_large": "The SQL, the memory that the query needs, or its result is too large.",
    "sql_interrupted": "The query was stopped by `SqlDatabase.interrupt`.",
}


def load_error(source: Path | str, reason: str) -> DocumentError:
    """Return the error for a source of data that cannot be loaded."""
    return DocumentError(on_one_line(str(source)), reason, code="LoadError")


# --- processes and their JSON ---

T = TypeVar("T")


def start_process(call: str, folder: Path, complaints: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start Python in a folder, with pipes for input and output, and run `call`, a line of code."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100  # zip files too
    environment = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # our own interpreter and text
        [sys.executable, "-P", "-c", call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        cwd=folder,
        env={**environment, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        start_new_session=True,
    )


def duckdb_extension() -> ModuleType:
    """Return the extension module of the package duckdb, which has all that is used here. Importing the package itself takes three times as long."""
    try:
        import _duckdb
    except ImportError:  # another release of duckdb has it elsewhere
        import duckdb

        return duckdb
    return _duckdb


def json_of(record: object, indent: int | None = None) -> bytes:
    """Return a record, with the records inside it, as JSON."""
    return json.dumps(record, default=lambda each: attrs.asdict(each, recurse=False), indent=indent).encode()


def records(kind: type[T], values: Iterable[T | Mapping[str, object]]) -> tuple[T, ...]:
    """Return records, from records or from their JSON."""
    return tuple(kind(**each) if isinstance(each, Mapping) else each for each in values)


def texts(values: Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple; a converter for JSON lists."""
    return tuple(values)


# --- the data intent summary ---

MOST_COLUMNS = 24
_NUMERIC = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|BIGNUM|FLOAT|DOUBLE|DECIMAL\(.*)$")
#: DuckDB's types of whole numbers.
WHOLE = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|BIGNUM)$")
_NAME_TYPES = re.compile(r"(VARCHAR|BOOLEAN|UUID|ENUM\(.*|ENUM)$", re.DOTALL)
_TIME = re.compile(r"(DATE|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?)$")
_KEY_NAME = re.compile(
    r"(.*[_\W])?(id|key|code|zip|postcode|year|quarter|month|week|day|hour|weekday)$|.*[a-z](Id|ID)$", re.IGNORECASE
)
#: Whole numbers with at most 20 values, each on average 10 times, name groups: cylinders, ratings.
_FEW_VALUES, _OFTEN = 20, 10
_GRAINS = ("year", "month", "day", "hour", "minute", "second")


@attrs.frozen
class TimeScope:
    """The first and last time in a column, as ISO text, and the estimated grain: year, month, week, day, .. or empty."""

    column: str
    first: str
    last: str
    grain: str


def _scopes(values: Iterable[TimeScope]) -> tuple[TimeScope, ...]:
    return records(TimeScope, values)


@attrs.frozen
class QueryIntent:
    """The summary of a result, for events. It has at most MOST_COLUMNS columns; `columns_left_out` counts the others.

    `dimensions` are columns that name groups, `measures` are columns to add up or average; columns of time are only in
    `time_scope`.
    """

    datasets: tuple[str, ...] = attrs.field(converter=texts)
    columns: tuple[str, ...] = attrs.field(converter=texts)
    columns_left_out: int
    dimensions: tuple[str, ...] = attrs.field(converter=texts)
    measures: tuple[str, ...] = attrs.field(converter=texts)
    row_count: int
    time_scope: tuple[TimeScope, ...] = attrs.field(converter=_scopes)


def profile(
    connection: "DuckDBPyConnection", table: str, columns: Sequence[str], types: Sequence[str], datasets: Sequence[str]
) -> QueryIntent:
    """Return the summary of a result in a table with the columns c0, c1, .."""
    shown_columns = list(enumerate(zip(columns, types, strict=True)))[:MOST_COLUMNS]
    selections = [text for number, (_, kind) in shown_columns for text in _fact_selections(f"c{number}", kind)]
    answers = iter(connection.execute(f"SELECT {', '.join(['count(*)', *selections])} FROM {table}").fetchall()[0])  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    row_count = next(answers)
    dimensions, measures, scopes = [], [], []
    for _, (name, kind) in shown_columns:
        facts = [next(answers) for _ in _fact_selections("", kind)]
        if _TIME.match(kind):
            scopes += [_scope(name, facts)] if facts[1] is not None else []
        elif _names_groups(name, kind, facts[0], row_count):
            dimensions.append(name)
        elif _NUMERIC.match(kind):
            measures.append(name)
    return QueryIntent(
        datasets[:MOST_COLUMNS], [name for _, (name, _) in shown_columns], len(columns) - len(shown_columns),
        dimensions, measures, row_count, scopes,
    )  # fmt: skip


def _fact_selections(column: str, kind: str) -> list[str]:
    """Return the SQL for the facts of a column: the approximate number of values; for times also first, last, and the grains that fit."""
    if _TIME.match(kind):
        grains = [f"bool_and(TRY({column} = date_trunc('{grain}', {column})::{kind}))" for grain in _GRAINS]
        weekly = f"min(TRY(dayofweek({column}))) = max(TRY(dayofweek({column})))"  # fails at the first and last dates of DuckDB
        texts = [f"min({column})::VARCHAR", f"max({column})::VARCHAR"]
        return [f"approx_count_distinct({column})", *texts, weekly, *grains]
    return [f"approx_count_distinct({column})"] if _NUMERIC.match(kind) or _NAME_TYPES.match(kind) else ["0"]


def _names_groups(name: str, kind: str, values: int, row_count: int) -> bool:
    if _NAME_TYPES.match(kind):
        return True
    if not WHOLE.match(kind):
        return False
    return bool(_KEY_NAME.match(name)) or (0 < values <= _FEW_VALUES and values * _OFTEN <= row_count)


def _scope(name: str, facts: Sequence[Any]) -> TimeScope:
    values, first, last, weekly, *fits = facts
    grain = next((grain for grain, fit in zip(_GRAINS, fits, strict=True) if fit), "")
    if grain == "day" and weekly and values > 2:  # noqa: PLR2004  # two days can fall on the same weekday by chance
        grain = "week"
    return TimeScope(name, iso(first), iso(last), grain if values > 1 else "")


def iso(text: str) -> str:
    """Return a time in DuckDB's text as ISO 8601; other texts (infinity) stay."""
    return re.sub(r"^(\d{4,}-\d\d-\d\d) (\d\d:)", r"\1T\2", text)


# --- requests and answers ---


@attrs.frozen
class SqlRequest:
    """A request to `query` or `parse` a text of SQL. The process ends by itself some seconds after `timeout_s`.

    `limit` is the largest number of rows in the preview, `keep` the largest in the CSV.
    """

    do: str
    sql: str
    timeout_s: float
    limit: int = 0
    keep: int = 0


def _rows(values: Iterable[Iterable[object]]) -> tuple[tuple[object, ...], ...]:
    return tuple(map(tuple, values))


@attrs.frozen
class SqlAnswer:
    """The answer to a query; empty for `parse`. `csv_bytes` is the length of the CSV after the line."""

    columns: tuple[str, ...] = attrs.field(default=(), converter=texts)
    types: tuple[str, ...] = attrs.field(default=(), converter=texts)
    preview: tuple[tuple[object, ...], ...] = attrs.field(default=(), converter=_rows)
    row_count: int = 0
    csv_rows: int = 0
    intent: QueryIntent | None = None
    csv_bytes: int = 0


@attrs.frozen
class SqlFailure:
    """The reason why there is no answer: a code of CODES, and a message. With `ends` the process ends after it."""

    code: str
    message: str
    ends: bool = False
    csv_bytes: int = 0


def read_answer(line: bytes) -> SqlAnswer | SqlFailure:
    """Return the answer on a line."""
    data = json.loads(line)
    if "code" in data:
        return SqlFailure(**data)
    return SqlAnswer(**{**data, "intent": data["intent"] and QueryIntent(**data["intent"])})
