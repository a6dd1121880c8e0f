"""Requests to the process that reads data, and its answers: each is a line of JSON, of an answer also the CSV behind it."""

import json
from collections.abc import Iterable

import attrs

from machines.chat.sql.intent import Intent
from machines.chat.sql.process import texts


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
    intent: Intent | None = None
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
    return SqlAnswer(**{**said, "intent": said["intent"] and Intent(**said["intent"])})
