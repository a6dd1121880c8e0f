"""The data intent summary of a query (seed 002, workstream E): what was read, by what, which figures, how much, over what time.

`profiled` takes a connection and a table that holds the result; the rest are values. Nothing is guessed from names alone, except that
numbers named like an id or a part of a date are no figures to add up.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from machines.chat.sql.process import records, texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
class Intent:
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
) -> Intent:
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
    return Intent(
        datasets[:MOST_COLUMNS], [name for _, (name, _) in told], len(columns) - len(told),
        dimensions, measures, row_count, scopes,
    )  # fmt: skip


def _asked(column: str, kind: str) -> list[str]:
    """Give what is asked of a column: how many values, about; of a time also first, last, and which grains fit."""
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
    """Give a point in time as ISO 8601 writes it, from DuckDB's text; what has no such form (infinity) stays."""
    return re.sub(r"^(\d{4,}-\d\d-\d\d) (\d\d:)", r"\1T\2", text)
