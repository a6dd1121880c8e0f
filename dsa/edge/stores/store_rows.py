"""The rows of the durable store: runs, commits, large texts and inboxes, and the hashes that seal them.

A run has one row for itself, one for each commit, and one that seals its end. The hash of a commit's row covers the row before. The sealing row stands
behind the last commit, so that an append changes one page of the file; it also has the summary, so that a list of runs decodes no entries.

Large texts are stored apart from their lines, once, under their SHA-256: a conversation that each line repeats costs its length once.

An inbox has the messages of a run, waiting or taken, with their outcomes. Each is sealed by a hash. If a message is deleted behind the store's back,
only its sender misses it.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import attrs

from dsa.immutable import without_collector
from dsa.runtime.json_text import json_string, value_of
from dsa.runtime.ledger import Entry, Ledger, commit_entries
from dsa.runtime.run_store import (
    DamageError,
    InboxMessage,
    LeaseLostError,
    MessageOutcome,
    StoredRun,
    StoreError,
    commit_line,
    first_link,
    message_line,
    message_of,
    next_link,
)

#: Lines up to this length stay as they are; in longer ones, texts from the second length on are kept apart (characters).
LONG_LINE, LONG_TEXT = 4_096, 1_024
_KEY = re.compile(r"\$+content")
#: A reference, and a key that looks like one, in a line. Quotes in texts are escaped, so neither matches inside a text.
_REFERENCE = re.compile(r'\{"\$content":"([0-9a-f]{64})"\}')
_ESCAPED_KEY = re.compile(r'([{,]")\$(\$+content":)')


def address(text: str) -> bytes:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def apart(line: str) -> tuple[str, dict[bytes, str]]:
    """Return a line with references in place of its large texts, and these texts by address. A short line stays as it is."""
    if len(line) <= LONG_LINE:
        return line, {}
    texts: dict[bytes, str] = {}

    def short(value: object) -> object:
        if isinstance(value, str) and len(value) >= LONG_TEXT:
            texts[address(value)] = value
            return {"$content": address(value).hex()}
        if isinstance(value, dict):
            return {f"${key}" if _KEY.fullmatch(key) else key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    short_line = _dumps(short(json.loads(line)))
    return (short_line, texts) if texts else (line, {})


def together(line: str, quoted_at: Callable[[bytes], str]) -> str:
    """Undo `apart`; `quoted_at` returns the text at an address, as JSON."""
    whole = _REFERENCE.sub(lambda match: quoted_at(bytes.fromhex(match[1])), line)
    return _ESCAPED_KEY.sub(r"\1\2", whole) if _ESCAPED_KEY.search(line) else whole


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


#: The place of a row of entries is its run's number times this, plus its position. One number keeps rows of a page's size on one page.
SPAN = 2**36
#: The position of the row that seals the end of a run.
END = SPAN - 1
#: Stands in the row of a removed run in place of its machine's address.
REMOVED_MACHINE = b""

RUN_COLUMNS = "number, run, machine, epoch, holder"
_END_LINE = re.compile(r"(\d+) ([0-9a-f]{64}) (.*)", re.DOTALL)
_ADD = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)"
_ADD_BOTH = f"{_ADD}, (?, ?, ?, ?, ?)"
_SEAL_QUERY = "SELECT link FROM entries WHERE place = ?"
_ROWS = "SELECT place, epoch, short, line, link FROM entries WHERE place BETWEEN ? AND ? ORDER BY place"
_LAST_BEFORE = "SELECT place, link FROM entries WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 2"
_Columns = tuple[Any, ...]
_NO_ROW = (0, 0, 0, "", b"")
#: How many rows are decoded at once.
_BATCH = 100


@attrs.frozen
class RunRow:
    """A run's row in the table of runs."""

    number: int
    run: str
    machine: bytes
    epoch: int
    holder: str | None

    @property
    def seal(self) -> bytes:
        """The hash of the whole row."""
        text = f"{self.number} {self.epoch} {self.machine.hex()} {self.holder!r} {self.run}"
        return hashlib.sha256(text.encode()).digest()

    def is_sound(self, seal: object) -> bool:
        """Return whether the seal fits the row; a damaged row may hold anything."""
        kinds = (type(self.number), type(self.run), type(self.machine), type(self.epoch))
        return kinds == (int, str, bytes, int) and self.seal == seal

    def require_sound(self, seal: object) -> None:
        """Raise DamageError unless the seal fits the row."""
        if not self.is_sound(seal):
            raise DamageError("its row in the table of runs was changed", str(self.run))

    def replace(self, connection: sqlite3.Connection, after: "RunRow") -> None:
        """Write another row in place of this one. Raises LeaseLostError when this one has been replaced."""
        values = (after.machine, after.epoch, after.holder, after.seal, self.number, self.epoch)
        update = "UPDATE runs SET machine = ?, epoch = ?, holder = ?, seal = ? WHERE number = ? AND epoch = ?"
        if connection.execute(update, values).rowcount != 1:
            raise LeaseLostError(self.run)


class EndRow:
    """The end of a run: the number of entries, the hash of the last commit, the summary's line, and their seal."""

    __slots__ = ("epoch", "head", "length", "number", "seal", "summary")

    def __init__(self, number: int, epoch: int, length: int, head: bytes, summary: str = "") -> None:
        self.number, self.epoch, self.length, self.head, self.summary = number, epoch, length, head, summary
        self.seal = hashlib.sha256(b"%d %d %d %b%b" % (number, epoch, length, head, summary.encode())).digest()

    @property
    def place(self) -> int:
        """The place of the row."""
        return self.number * SPAN + END

    def columns(self) -> _Columns:
        """Return the row."""
        return self.place, self.epoch, 0, f"{self.length} {self.head.hex()} {self.summary}", self.seal

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the row by itself."""
        connection.execute(_ADD, self.columns())

    def require(self, connection: sqlite3.Connection, run: str) -> None:
        """Raise LeaseLostError unless this is the end of the run.

        If it is not, another process is the writer now, or this one was interrupted (Ctrl-C) right after a commit.
        """
        if connection.execute(_SEAL_QUERY, (self.place,)).fetchone() != (self.seal,):
            raise LeaseLostError(run)


def end_in(columns: _Columns, run: str, epoch: int) -> EndRow:
    """Return the end of a run from its row, () if there is none. Raises DamageError unless the row is as written under the epoch."""
    place, _, _, line, _ = columns or _NO_ROW
    match = _END_LINE.fullmatch(line) if isinstance(line, str) else None
    if match is not None and place % SPAN == END and line.isascii():
        end = EndRow(place // SPAN, epoch, int(match[1]), bytes.fromhex(match[2]), match[3])
        if end.columns() == columns:
            return end
    raise DamageError("the row that seals its end was changed", run)


# -- writing -------------------------------------------------------------------------------------------------------------


class StoreCommit:
    """Entries and a summary to be written at the end of a run. None: the previous summary stays."""

    __slots__ = ("_row", "after", "before", "run", "texts")

    def __init__(self, run: str, end: EndRow, entries: Sequence[Entry], summary: str | None) -> None:
        self.run, self.before = run, end
        summary_line = end.summary if summary is None else summary
        self.texts: dict[bytes, str] = {}
        self._row: _Columns = ()
        self.after = end
        if entries:
            line = commit_line(run, entries)
            link, (short, self.texts) = next_link(end.head, end.epoch, line), apart(line)
            self._row = (end.number * SPAN + end.length, end.epoch, bool(self.texts), short, link)
            self.after = EndRow(end.number, end.epoch, end.length + len(entries), link, summary_line)
        elif summary_line != end.summary:
            self.after = EndRow(end.number, end.epoch, end.length, end.head, summary_line)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write both rows in one statement. Raises LeaseLostError unless the run still ends where it did."""
        self.before.require(connection, self.run)
        if self._row:
            connection.execute(_ADD_BOTH, (*self._row, *self.after.columns()))
        elif self.after is not self.before:
            self.after.write(connection)


def store_texts(connection: sqlite3.Connection, texts: dict[bytes, str]) -> None:
    """Write the large texts that are not stored yet."""
    contents = [(at, text.encode("utf-8", "surrogatepass")) for at, text in texts.items()]
    connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", contents)


def delete_entries(connection: sqlite3.Connection, number: int) -> None:
    """Delete all entries of a run, and its end."""
    connection.execute("DELETE FROM entries WHERE place BETWEEN ? AND ?", (number * SPAN, number * SPAN + END))


# -- reading -------------------------------------------------------------------------------------------------------------


def read_run(
    connection: sqlite3.Connection, row: RunRow, snapshot: StoredRun | None = None
) -> tuple[StoredRun, EndRow]:
    """Read a run and its end. All links of its chain are verified, or those after the snapshot."""
    if snapshot is None or snapshot.run != row.run:
        text = content_at(connection, row.machine, row.run)
        snapshot = StoredRun(row.run, text, Ledger(), row.epoch, head=first_link(row.run, text))
    entries, end = _read_verified(connection, row, len(snapshot.entries), snapshot.head)
    return StoredRun(row.run, snapshot.text, snapshot.entries.extend(entries), row.epoch, row.holder, end.head), end


def entries_after(connection: sqlite3.Connection, row: RunRow, position: int) -> tuple[Entry, ...]:
    """Read the entries from a position on. Links are verified from the commit of that position."""
    first = row.number * SPAN
    last, *before = connection.execute(_LAST_BEFORE, (first, first + min(max(position, 0), END - 1))).fetchall() or [
        (first, b"")
    ]
    start = last[0] - first if before else 0
    link = before[0][1] if before else first_link(row.run, content_at(connection, row.machine, row.run))
    entries, _ = _read_verified(connection, row, start, link)
    return tuple(entries[max(position - start, 0) :])


def _read_verified(connection: sqlite3.Connection, row: RunRow, start: int, link: bytes) -> tuple[list[Entry], EndRow]:
    """Read a run's entries from the start of a commit on. `link` is the hash of the commit before."""
    first, position, count, entries = row.number * SPAN, start, 0, list[Entry]()
    with without_collector():
        *rows, end = connection.execute(_ROWS, (first + start, first + END)).fetchall() or [()]
        lines, head = _sound_lines(connection, row.run, rows, link)
        for (place, *_), value in zip(rows, _values(lines), strict=False):
            if place - first != position:
                break
            entries.extend(commit_entries(value))
            position, count = start + len(entries), count + 1
    if count < len(rows):
        raise DamageError("from here on it is not what was written", row.run, position)
    end_row = end_in(end, row.run, row.epoch)
    if (end_row.length, end_row.head) != (position, head):
        raise DamageError(f"its end is not what was written: {position} entries are there", row.run)
    return entries, end_row


def _sound_lines(
    connection: sqlite3.Connection, run: str, rows: list[_Columns], link: bytes
) -> tuple[list[str], bytes]:
    """Return the lines of rows up to the first damaged one, and the hash of the last of them."""
    lines, quoted_at = list[str](), lru_cache(None)(lambda at: json_string(content_at(connection, at, run)))
    for _, epoch, is_short, line, row_link in rows:
        try:
            whole = together(line, quoted_at) if is_short else line
            computed_link = next_link(link, epoch, whole)
        except (ValueError, TypeError, AttributeError):  # the bytes of a damaged row may be anything
            break
        if computed_link != row_link:
            break
        lines.append(whole)
        link = computed_link
    return lines, link


def _values(lines: list[str]) -> Iterator[Any]:
    """Read lines of JSON, many at once: this is quicker, and their keys share storage."""
    for begin in range(0, len(lines), _BATCH):
        yield from value_of(f"[{','.join(lines[begin : begin + _BATCH])}]")


def content_at(connection: sqlite3.Connection, at: bytes, run: str) -> str:
    """Return the text at an address. Raises DamageError."""
    row = connection.execute("SELECT content FROM contents WHERE address = ?", (at,)).fetchone()
    content = b"" if row is None or not isinstance(row[0], bytes) else row[0]
    if row is None or hashlib.sha256(content).digest() != at:
        raise DamageError(f"the text under {at.hex()[:12]} is {'missing' if row is None else 'changed'}", run)
    return content.decode("utf-8", "surrogatepass")


_COLUMNS = "number, message, run, line, outcome, seal"
_Row = tuple[int, str, int, str, str | None, bytes]


def post(connection: sqlite3.Connection, number: int, message: InboxMessage) -> None:
    """Put a message into the inbox of a run, unless it is there. Raises StoreError if it is too long, or for another message with that id."""
    row = _find(connection, message.id)
    if row is not None:
        if row[2] != number or not message_of(row[3]).repeats(message):
            raise StoreError(
                f"there is another message with the id {message.id}: a message that is not a repetition needs a new id"
            )
        return
    (last,) = connection.execute("SELECT max(number) FROM inbox").fetchone()
    _write(connection, ((last or 0) + 1, message.id, number, message_line(message), None))


def waiting_messages(connection: sqlite3.Connection, number: int, run: str) -> tuple[InboxMessage, ...]:
    """Return the messages that wait for a run, in the order they were posted."""
    query = f"SELECT {_COLUMNS} FROM inbox WHERE run = ? AND outcome IS NULL ORDER BY number"  # noqa: S608
    rows = [_require_sound(row, run) for row in connection.execute(query, (number,))]
    return tuple(message_of(row[3]) for row in rows)


def counts(connection: sqlite3.Connection) -> dict[int, int]:
    """Return how many messages wait, by the number of their run."""
    return dict(connection.execute("SELECT run, count(*) FROM inbox WHERE outcome IS NULL GROUP BY run"))


def take(connection: sqlite3.Connection, number: int, run: str, outcomes: Sequence[MessageOutcome]) -> None:
    """Write the outcomes of messages that waited for a run. Raises StoreError if one does not wait."""
    for message, outcome in outcomes:
        row = _find(connection, message)
        if row is None or row[2] != number or row[4] is not None:
            raise StoreError(f"message {message} does not wait for run {run}; nothing was written")
        _write(connection, (*row[:4], outcome))


def outcome_of(connection: sqlite3.Connection, message: str) -> str | None:
    """Return the outcome of a message; None while it waits. Raises StoreError if no message has that id."""
    row = _find(connection, message)
    if row is None:
        raise StoreError(f"there is no message {message}; was its run removed?")
    return row[4]


def delete(connection: sqlite3.Connection, number: int) -> None:
    """Delete all messages to a run."""
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))


def _find(connection: sqlite3.Connection, message: str) -> _Row | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM inbox WHERE message = ?", (message,)).fetchone()  # noqa: S608
    return None if row is None else _require_sound(row, None)


def _write(connection: sqlite3.Connection, row: tuple[int, str, int, str, str | None]) -> None:
    connection.execute("INSERT OR REPLACE INTO inbox VALUES (?, ?, ?, ?, ?, ?)", (*row, _seal(row)))


def _seal(row: Sequence[object]) -> bytes:
    return hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest()


def _require_sound(row: _Row, run: str | None) -> _Row:
    if _seal(row[:-1]) != row[-1]:
        raise DamageError(f"message {row[1]} was changed", run)
    return row
