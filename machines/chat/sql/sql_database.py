"""The SQL database of a conversation: its data, loaded once and then read-only.

`SqlDatabase` takes data files and a folder. Queries run in a process of their own (`query_process`), which starts at once, and again after a query that
had to be stopped. The tables are a copy, so results stay the same when a file changes later.
"""

import os
import select
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import attrs

from machines.chat.sql.data_files import TableInfo, load_data
from machines.chat.sql.query import (
    QueryIntent,
    SqlAnswer,
    SqlError,
    SqlFailure,
    SqlRequest,
    json_of,
    read_answer,
    start_process,
)

_START = "from machines.chat.sql.query_process import serve; serve"
_PARSE_S = 10.0
_PIECE_BYTES = 1 << 20


@attrs.frozen
class SqlResult:
    """The result of a query.

    `types` are DuckDB types. `preview` has at most `limit` rows of JSON values, fewer when they are long. `row_count` is the number of
    rows of the query, `csv_rows` the number of those in `csv`.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    preview: tuple[tuple[object, ...], ...]
    row_count: int
    csv_rows: int
    csv: bytes = attrs.field(repr=False)
    intent: QueryIntent


class SqlDatabase:
    """Tables from files, for SQL. Any thread may use them; one query runs at a time.

    `folder` is the conversation's own and contains the copy of the data. A copy of the same sources is used unchanged, also when
    `sources` is empty, and even if a source has changed or is missing; `changed_sources` names these. Other sources are loaded. Raises
    LoadError when a source cannot be loaded.
    """

    def __init__(self, sources: Sequence[Path], folder: Path) -> None:
        copy = load_data(sources, folder)
        self.tables: tuple[TableInfo, ...] = copy.tables
        self.fingerprint: str = copy.digest
        self.changed_sources: tuple[str, ...] = copy.changed_sources
        self._path = copy.path
        self._one_at_a_time = threading.Lock()
        self._child: _Child | None = _Child(self._path)  # it starts before the first query needs it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, *, limit: int = 100, timeout_s: float = 30.0, keep: int = 10_000) -> SqlResult:
        """Run one query. Raises SqlError; that does not affect the next query."""
        answer, csv = self._send(SqlRequest("query", sql, timeout_s, max(0, limit), max(0, keep)))
        assert answer.intent is not None, "an answer to `query` has an intent"
        return SqlResult(
            answer.columns, answer.types, answer.preview, answer.row_count, answer.csv_rows, csv, answer.intent
        )

    def parse(self, sql: str) -> None:
        """Parse a text with DuckDB, without running it. Raises SqlError."""
        self._send(SqlRequest("parse", sql, _PARSE_S))

    def interrupt(self) -> None:
        """Stop the running query, if there is one, from another thread: it raises SqlError `sql_interrupted`."""
        child = self._child
        if child is not None and self._one_at_a_time.locked():
            child.end("sql_interrupted", "the query was interrupted")

    def close(self) -> None:
        """End the query process and a running query. A later query starts it again."""
        self.interrupt()
        with self._one_at_a_time:
            self._stop_child()

    def _send(self, request: SqlRequest) -> tuple[SqlAnswer, bytes]:
        with self._one_at_a_time:
            if self._child is None or self._child.is_over():
                self._stop_child()
                self._child = _Child(self._path)
            try:
                answer, csv = self._child.answer(request)
            except (SqlError, RuntimeError):
                self._stop_child()
                raise
            if isinstance(answer, SqlFailure) and answer.ends:
                self._stop_child()
        if isinstance(answer, SqlFailure):
            raise SqlError(answer.code, answer.message)
        return answer, csv

    def _stop_child(self) -> None:
        if self._child is not None:
            self._child.end("sql_interrupted", "the data is closed")
            self._child.wait_closed()
            self._child = None


class _Child:
    """A process that answers requests about one database, one at a time, until it is ended."""

    def __init__(self, path: Path) -> None:
        self._why: tuple[str, str] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # `wait_closed` closes it
        self._process = start_process(f"{_START}({path.name!r})", path.parent, self._complaints)

    def answer(self, request: SqlRequest) -> tuple[SqlAnswer | SqlFailure, bytes]:
        """Return the answer. Raises SqlError when the process was killed or has crashed."""
        assert self._process.stdin is not None
        deadline = time.monotonic() + request.timeout_s
        try:
            self._process.stdin.write(json_of(request) + b"\n")
            self._process.stdin.flush()
            line, behind = self._line(deadline)
            answer = read_answer(line)
            csv = self._rest(behind, answer.csv_bytes, deadline)
        except (BrokenPipeError, EOFError) as error:
            raise SqlError(*self._reason()) from error
        except TimeoutError:
            limit = f"{request.timeout_s:g} s"
            self.end("sql_timeout", f"the query was stopped after {limit}: read less, filter earlier, or join on keys")
            raise SqlError(*self._reason()) from None
        return answer, csv

    def _line(self, deadline: float) -> tuple[bytes, bytes]:
        """Read a line; return it, and the bytes after it."""
        data = b""
        while b"\n" not in data:
            data += self._piece(deadline)
        line, _, behind = data.partition(b"\n")
        return line, behind

    def _rest(self, start: bytes, size: int, deadline: float) -> bytes:
        """Return `size` bytes, which start with those that were read already."""
        pieces = [start]
        left = size - len(start)
        while left > 0:
            pieces.append(self._piece(deadline))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _piece(self, deadline: float) -> bytes:
        """Wait for output and read it. Raises TimeoutError, EOFError."""
        assert self._process.stdout is not None
        poll, file = select.poll(), self._process.stdout.fileno()
        poll.register(file, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        if piece := os.read(file, _PIECE_BYTES):
            return piece
        raise EOFError

    def _reason(self) -> tuple[str, str]:
        code = self._process.wait()
        if self._why is not None:
            return self._why
        if code > 0:  # not a signal: a fault of dsa, or of the installation
            self._complaints.seek(0)
            raise RuntimeError(
                f"the process that reads data failed: {self._complaints.read().decode(errors='replace')}"
            )
        return "sql_too_large", f"DuckDB crashed in this query (exit code {code}): write a smaller or simpler one"

    def is_over(self) -> bool:
        """Return whether the process has ended."""
        return self._why is not None or self._process.poll() is not None

    def end(self, code: str, message: str) -> None:
        """Kill the process; the first reason counts."""
        self._why = self._why or (code, message)
        self._process.kill()

    def wait_closed(self) -> None:
        """Wait for the end of the process, and close its pipes."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            with suppress(BrokenPipeError):  # nobody needs the unwritten rest
                pipe.close()  # type: ignore[union-attr]  # both are pipes
