"""The inbox of a run in the durable store: messages that wait, and those that were taken, with what came of them.

A row is sealed by a hash. What was deleted behind the store's back is missed by its sender alone.
"""

import hashlib
import sqlite3
from collections.abc import Sequence

from dsa.runtime.journal import DamageError, Message, StoreError, Taking, message_line, message_of

_COLUMNS = "number, message, run, line, outcome, seal"
_Row = tuple[int, str, int, str, str | None, bytes]


def post(connection: sqlite3.Connection, number: int, message: Message) -> None:
    """Put a message into the inbox of a run, unless it is there. Raises TooLargeError, or StoreError for another one of that id."""
    found = _found(connection, message.id)
    if found is not None:
        if found[2] != number or not message_of(found[3]).repeats(message):
            raise StoreError(
                f"there is another message with the id {message.id}: a message that is not a repetition needs a new id"
            )
        return
    (last,) = connection.execute("SELECT max(number) FROM inbox").fetchone()
    _write(connection, ((last or 0) + 1, message.id, number, message_line(message), None))


def waiting(connection: sqlite3.Connection, number: int, run: str) -> tuple[Message, ...]:
    """Return the messages that wait for a run, as they were posted."""
    query = f"SELECT {_COLUMNS} FROM inbox WHERE run = ? AND outcome IS NULL ORDER BY number"  # noqa: S608
    rows = [_require_sound(row, run) for row in connection.execute(query, (number,))]
    return tuple(message_of(row[3]) for row in rows)


def counts(connection: sqlite3.Connection) -> dict[int, int]:
    """Return how many messages wait, by the number of their run."""
    return dict(connection.execute("SELECT run, count(*) FROM inbox WHERE outcome IS NULL GROUP BY run"))


def take(connection: sqlite3.Connection, number: int, run: str, taking: Sequence[Taking]) -> None:
    """Write what came of messages that waited for a run. Raises StoreError if one does not."""
    for message, outcome in taking:
        found = _found(connection, message)
        if found is None or found[2] != number or found[4] is not None:
            raise StoreError(f"message {message} does not wait for run {run}; nothing was written")
        _write(connection, (*found[:4], outcome))


def outcome_of(connection: sqlite3.Connection, message: str) -> str | None:
    """Return what came of a message, None while it waits. Raises StoreError if there is none of that id."""
    found = _found(connection, message)
    if found is None:
        raise StoreError(f"there is no message {message}; was its run removed?")
    return found[4]


def delete(connection: sqlite3.Connection, number: int) -> None:
    """Delete all messages to a run."""
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))


def _found(connection: sqlite3.Connection, message: str) -> _Row | None:
    found = connection.execute(f"SELECT {_COLUMNS} FROM inbox WHERE message = ?", (message,)).fetchone()  # noqa: S608
    return None if found is None else _require_sound(found, None)


def _write(connection: sqlite3.Connection, row: tuple[int, str, int, str, str | None]) -> None:
    connection.execute("INSERT OR REPLACE INTO inbox VALUES (?, ?, ?, ?, ?, ?)", (*row, _seal(row)))


def _seal(row: Sequence[object]) -> bytes:
    return hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest()


def _require_sound(row: _Row, run: str | None) -> _Row:
    if _seal(row[:-1]) != row[-1]:
        raise DamageError(f"message {row[1]} was changed", run)
    return row
