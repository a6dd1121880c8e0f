"""What the SQL tool raises: each with a code that programs read, and a message that a language model can act on.

Processes of our own that read data apart from the conversation: with little of an environment, ended by whoever started them.

What is said to them and by them is lines of JSON, of frozen classes. They start while somebody waits, so nothing is loaded to write and read these.

The data intent summary of a query (seed 002, workstream E): what was read, by what, which figures, how much, over what time.

`profiled` takes a connection and a table that holds the result; the rest are values. Nothing is guessed from names alone, except that
numbers named like an id or a part of a date are no figures to add up.

Requests to the process that reads data, and its answers: each is a line of JSON, of an answer also the CSV behind it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import attrs

from dsa.errors import DsaError
from machines.tool_use.records import on_one_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Every code of a SqlError, and when it is raised.
CODES: dict[str, str] = {
    "empty_sql": "There is no statement: nothing, white space, or comments only.",
    "several_statements": "There are several statements.",
    "not_a_query": "The statement is none that only reads.",
    "not_allowed": "The query reads what is no loaded table: files, the network, settings and places of this machine.",
    "sql_error": "DuckDB cannot read or run the query; the message is DuckDB's.",
    "sql_timeout": "The query was still running at its time limit, and was ended.",
    "sql_too_large": "The SQL, what the query needs in memory, or its result is too large.",
    "sql_interrupted": "The query was ended by `Database.interrupt`.",
}


class SqlError(DsaError):
    """Raised when a query is refused or fails. `code` is one of CODES."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class LoadError(DsaError):
    """Raised when a source of data cannot be loaded. `source` is the file, `reason` what is wrong with it."""

    code = "load_error"

    def __init__(self, source: Path | str, reason: str) -> None:
        self.source = on_one_line(str(source))
        self.reason = reason
        super().__init__(f"{self.source}: {reason}")


T = TypeVar("T")


def started(call: str, folder: Path, complaints: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start Python in a folder, with pipes to its input and from its output, and have it run `call`, a line of code."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100  # zip files too, as they are
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # our own interpreter and text
        [sys.executable, "-P", "-c", call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        cwd=folder,
        env={**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        start_new_session=True,
    )


def json_of(record: object, indent: int | None = None) -> bytes:
    """Return a record as JSON, those in it too."""
    return json.dumps(record, default=lambda each: attrs.asdict(each, recurse=False), indent=indent).encode()


def records(kind: type[T], given: Iterable[T | Mapping[str, object]]) -> tuple[T, ...]:
    """Return records, which may be as JSON has them."""
    return tuple(kind(**each) if isinstance(each, Mapping) else each for each in given)


def texts(given: Iterable[str]) -> tuple[str, ...]:
    """Return texts; lists are what JSON has. To be used as a converter."""
    return tuple(given)


MOST_COLUMNS = 24
_NUMERIC = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|BIGNUM|FLOAT|DOUBLE|DECIMAL\(.*)$")
#: DuckDB's types of whole numbers.
WHOLE = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|BIGNUM)$")
_NAMING = re.compile(r"(VARCHAR|BOOLEAN|UUID|ENUM\(.*|ENUM)$", re.DOTALL)
_TIME = re.compile(r"(DATE|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?)$")
_NAMED_LIKE_A_KEY = re.compile(
    r"(.*[_\W])?(id|key|code|zip|postcode|year|quarter|month|week|day|hour|weekday)$|.*[a-z](Id|ID)$", re.IGNORECASE
)
#: Whole numbers with at most so many values, each on average so often, name groups: cylinders, ratings.
_FEW_VALUES, _OFTEN = 20, 10
_GRAINS = ("year", "month", "day", "hour", "minute", "second")


@attrs.frozen
class TimeScope:
    """First and last point in time of a column, as ISO text, and the guessed grain: year, month, week, day, .. or empty."""

    column: str
    first: str
    last: str
    grain: str


def _scopes(given: Iterable[TimeScope]) -> tuple[TimeScope, ...]:
    return records(TimeScope, given)


@attrs.frozen
class QueryIntent:
    """What a result is about, as events have it. At most MOST_COLUMNS columns are told; `columns_left_out` is how many are not.

    `dimensions` are columns that name groups, `measures` those that are added up or averaged; columns of time stand in
    `time_scope` alone.
    """

    datasets: tuple[str, ...] = attrs.field(converter=texts)
    columns: tuple[str, ...] = attrs.field(converter=texts)
    columns_left_out: int
    dimensions: tuple[str, ...] = attrs.field(converter=texts)
    measures: tuple[str, ...] = attrs.field(converter=texts)
    row_count: int
    time_scope: tuple[TimeScope, ...] = attrs.field(converter=_scopes)


def profiled(
    connection: "DuckDBPyConnection", table: str, columns: Sequence[str], types: Sequence[str], datasets: Sequence[str]
) -> QueryIntent:
    """Read a result that stands in a table with the columns c0, c1, .. and say what it is about."""
    told = list(enumerate(zip(columns, types, strict=True)))[:MOST_COLUMNS]
    asked = [text for number, (_, kind) in told for text in _asked(f"c{number}", kind)]
    answers = iter(connection.execute(f"SELECT {', '.join(['count(*)', *asked])} FROM {table}").fetchall()[0])  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    row_count = next(answers)
    dimensions, measures, scopes = [], [], []
    for _, (name, kind) in told:
        facts = [next(answers) for _ in _asked("", kind)]
        if _TIME.match(kind):
            scopes += [_scope(name, facts)] if facts[1] is not None else []
        elif _names_groups(name, kind, facts[0], row_count):
            dimensions.append(name)
        elif _NUMERIC.match(kind):
            measures.append(name)
    return QueryIntent(
        datasets[:MOST_COLUMNS], [name for _, (name, _) in told], len(columns) - len(told),
        dimensions, measures, row_count, scopes,
    )  # fmt: skip


def _asked(column: str, kind: str) -> list[str]:
    """Return what is asked of a column: how many values, about; of a time also first, last, and which grains fit."""
    if _TIME.match(kind):
        grains = [f"bool_and(TRY({column} = date_trunc('{grain}', {column})::{kind}))" for grain in _GRAINS]
        weekly = f"min(TRY(dayofweek({column}))) = max(TRY(dayofweek({column})))"  # fails at the ends of what there is
        texts = [f"min({column})::VARCHAR", f"max({column})::VARCHAR"]
        return [f"approx_count_distinct({column})", *texts, weekly, *grains]
    return [f"approx_count_distinct({column})"] if _NUMERIC.match(kind) or _NAMING.match(kind) else ["0"]


def _names_groups(name: str, kind: str, values: int, row_count: int) -> bool:
    if _NAMING.match(kind):
        return True
    if not WHOLE.match(kind):
        return False
    return bool(_NAMED_LIKE_A_KEY.match(name)) or (0 < values <= _FEW_VALUES and values * _OFTEN <= row_count)


def _scope(name: str, facts: Sequence[Any]) -> TimeScope:
    values, first, last, weekly, *fits = facts
    grain = next((grain for grain, fit in zip(_GRAINS, fits, strict=True) if fit), "")
    if grain == "day" and weekly and values > 2:  # noqa: PLR2004  # two days of a week can be by chance
        grain = "week"
    return TimeScope(name, iso(first), iso(last), grain if values > 1 else "")


def iso(text: str) -> str:
    """Return a point in time as ISO 8601 writes it, from DuckDB's text; what has no such form (infinity) stays."""
    return re.sub(r"^(\d{4,}-\d\d-\d\d) (\d\d:)", r"\1T\2", text)


@attrs.frozen
class SqlRequest:
    """What is to be done with a text of SQL: `query`, or `parse`. Where nobody ends the process it ends by itself some seconds after `timeout_s`.

    `limit` is how many rows are shown at most, `keep` how many are in the CSV.
    """

    do: str
    sql: str
    timeout_s: float
    limit: int = 0
    keep: int = 0


def _rows(given: Iterable[Iterable[object]]) -> tuple[tuple[object, ...], ...]:
    return tuple(map(tuple, given))


@attrs.frozen
class SqlAnswer:
    """What a query gave; of a text that was only parsed, nothing. `csv_bytes` is how many bytes of CSV are behind the line."""

    columns: tuple[str, ...] = attrs.field(default=(), converter=texts)
    types: tuple[str, ...] = attrs.field(default=(), converter=texts)
    preview: tuple[tuple[object, ...], ...] = attrs.field(default=(), converter=_rows)
    row_count: int = 0
    kept: int = 0
    intent: QueryIntent | None = None
    csv_bytes: int = 0


@attrs.frozen
class SqlFailure:
    """Why there is no answer: a code of `errors.CODES`, and the message. `ends`: the process ends after it."""

    code: str
    message: str
    ends: bool = False
    csv_bytes: int = 0


def read_answer(line: bytes) -> SqlAnswer | SqlFailure:
    """Read what stands on a line."""
    said = json.loads(line)
    if "code" in said:
        return SqlFailure(**said)
    return SqlAnswer(**{**said, "intent": said["intent"] and QueryIntent(**said["intent"])})
