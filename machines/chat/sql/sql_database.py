"""The SQL database of a conversation: its data, loaded once and then read-only.

`SqlDatabase` takes data files and a folder. Queries run in processes of their own (`query_process`). The first one starts at once, another one when a query
arrives while the others are busy, or after a query that had to be stopped. The tables are a copy, so results stay the same when a file changes later.
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

from dsa.errors import ToolError
from machines.chat.sql.data_files import TableInfo, load_data
from machines.chat.sql.query import QueryIntent, SqlAnswer, SqlFailure, SqlRequest, json_of, read_answer, start_process

_START = "from machines.chat.sql.query_process import serve; serve"
_PARSE_S = 10.0
_PIECE_BYTES = 1 << 20
#: The number of query processes; another query waits until one of them is free.
MOST_PROCESSES = 4
#: The shortest time for which a process waits for the next query, in seconds; it ends before twice that time is over. A conversation may rest for ever.
IDLE_S = 300.0


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
    """Tables from files, for SQL. Any thread may use them; queries of several threads run side by side.

    `folder` is the conversation's own and contains the copy of the data. A copy of the same sources is used unchanged, also when
    `sources` is empty, and even if a source has changed or is missing; `changed_sources` names these. Other sources are loaded. Raises
    DocumentError when a source cannot be loaded.
    """

    def __init__(self, sources: Sequence[Path], folder: Path) -> None:
        copy = load_data(sources, folder)
        self.tables: tuple[TableInfo, ...] = copy.tables
        self.fingerprint: str = copy.digest
        self.changed_sources: tuple[str, ...] = copy.changed_sources
        self._path = copy.path
        self._lock, self._slots = threading.Lock(), threading.BoundedSemaphore(MOST_PROCESSES)
        self._idle = list[_Child]()
        self._timer: threading.Timer | None = None
        self._wait_for_query(_Child(self._path))  # so that it is ready for the first query
        self._busy: dict[_Child, object] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(
        self, sql: str, *, limit: int = 100, timeout_s: float = 30.0, keep: int = 10_000, owner: object = None
    ) -> SqlResult:
        """Run one query. Raises ToolError; that does not affect other queries. `owner` is a name for `interrupt`."""
        answer, csv = self._send(SqlRequest("query", sql, timeout_s, max(0, limit), max(0, keep)), owner)
        assert answer.intent is not None, "an answer to `query` has an intent"
        return SqlResult(
            answer.columns, answer.types, answer.preview, answer.row_count, answer.csv_rows, csv, answer.intent
        )

    def parse(self, sql: str) -> None:
        """Parse a text with DuckDB, without running it. Raises ToolError."""
        self._send(SqlRequest("parse", sql, _PARSE_S), None)

    def interrupt(self, owner: object = None) -> None:
        """Stop the running queries of an owner, or all, from another thread: they raise ToolError `sql_interrupted`."""
        with self._lock:
            for child, of in self._busy.items():
                if owner is None or of == owner:
                    child.end("sql_interrupted", "the query was interrupted")

    def close(self) -> None:
        """End the query processes and the running queries. A later query starts a process again."""
        self.interrupt()
        with self._lock:
            idle, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for child in idle:
            child.close()

    def _send(self, request: SqlRequest, owner: object) -> tuple[SqlAnswer, bytes]:
        with self._slots:
            child = self._begin(owner)
            try:
                answer, csv = child.answer(request)
            finally:
                self._finish(child)
        if isinstance(answer, SqlFailure):
            raise ToolError(answer.message, code=answer.code)
        return answer, csv

    def _begin(self, owner: object) -> "_Child":
        """Return a process that waits for a query, or a new one."""
        with self._lock:
            child = self._idle.pop() if self._idle else _Child(self._path)
            if child.is_over():
                child.close()
                child = _Child(self._path)
            self._busy[child] = owner
        return child

    def _finish(self, child: "_Child") -> None:
        """Let a process wait for the next query, or end it."""
        with self._lock:
            del self._busy[child]
            is_kept = child.is_ready and not child.is_over()
            if is_kept:
                self._wait_for_query(child)
        if not is_kept:
            child.close()

    def _wait_for_query(self, child: "_Child") -> None:
        """Keep a process for the next query, and end it if none comes for long."""
        child.idle_since_s = time.monotonic()
        self._idle.append(child)
        if self._timer is None:
            self._timer = threading.Timer(IDLE_S, self._end_idle)
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self) -> None:
        """End the processes that no query has needed for long."""
        with self._lock:
            self._timer, since_s = None, time.monotonic() - IDLE_S
            idle, self._idle = self._idle, []
            for child in idle:
                if child.idle_since_s > since_s:
                    self._wait_for_query(child)
        for child in idle:
            if child.idle_since_s <= since_s:
                child.close()


class _Child:
    """A process that answers requests about one database, one at a time, until it is ended."""

    def __init__(self, path: Path) -> None:
        self._why: tuple[str, str] | None = None
        #: Whether it has answered its last request, and waits for the next one.
        self.is_ready = True
        self.idle_since_s = 0.0
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # `wait_closed` closes it
        self._process = start_process(f"{_START}({path.name!r})", path.parent, self._complaints)

    def answer(self, request: SqlRequest) -> tuple[SqlAnswer | SqlFailure, bytes]:
        """Return the answer. Raises ToolError when the process was killed or has crashed."""
        assert self._process.stdin is not None
        self.is_ready = False
        deadline = time.monotonic() + request.timeout_s
        try:
            self._process.stdin.write(json_of(request) + b"\n")
            self._process.stdin.flush()
            line, behind = self._line(deadline)
            answer = read_answer(line)
            csv = self._rest(behind, answer.csv_bytes, deadline)
        except (BrokenPipeError, EOFError) as error:
            raise self._end_error() from error
        except TimeoutError:
            limit = f"{request.timeout_s:g} s"
            self.end("sql_timeout", f"the query was stopped after {limit}: read less, filter earlier, or join on keys")
            raise self._end_error() from None
        self.is_ready = not (isinstance(answer, SqlFailure) and answer.ends)
        return answer, csv

    def _line(self, deadline: float) -> tuple[bytes, bytes]:
        """Read a line; return it, and the bytes after it."""
        data = b""
        while b"\n" not in data:
            data += self._piece(deadline)
        line, _, behind = data.partition(b"\n")
        return line, behind

    def _rest(self, start: bytes, size: int, deadline: float) -> bytes:
        """Return `size` bytes, which start with those that were already read."""
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

    def _end_error(self) -> ToolError:
        code = self._process.wait()
        if self._why is not None:
            return ToolError(self._why[1], code=self._why[0])
        if code > 0:  # not a signal: a fault of dsa, or of the installation
            self._complaints.seek(0)
            raise RuntimeError(
                f"the process that reads data failed: {self._complaints.read().decode(errors='replace')}"
            )
        crash = f"DuckDB crashed in this query (exit code {code}): write a smaller or simpler one"
        return ToolError(crash, code="sql_too_large")

    def is_over(self) -> bool:
        """Return whether the process has ended."""
        return self._why is not None or self._process.poll() is not None

    def end(self, code: str, message: str) -> None:
        """Kill the process; the first reason counts."""
        self._why = self._why or (code, message)
        self._process.kill()

    def close(self) -> None:
        """End the process, wait for its end, and close its pipes."""
        self.end("sql_interrupted", "the data is closed")
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            with suppress(BrokenPipeError):  # nobody needs the unwritten rest
                pipe.close()  # type: ignore[union-attr]  # both are pipes


def compiles(sql: str, database: SqlDatabase) -> str | None:
    """Return the parser's error in one line, or None. Nothing runs, and tables and columns are not checked."""
    try:
        database.parse(sql)
    except ToolError as error:
        return " ".join(str(error).split())
    return None
