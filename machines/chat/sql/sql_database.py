"""The data of a conversation, to be asked in SQL: loaded once, then only read.

Takes data files and a folder, gives `SqlDatabase`. Queries run in a process of their own (`child`), which is started at once, and
again after a query that had to be ended. The tables are a copy: results of a conversation are of it, also when a file has changed since.
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

from machines.chat.sql.data_files import TableInfo, loaded
from machines.chat.sql.query import (
    QueryIntent,
    SqlAnswer,
    SqlError,
    SqlFailure,
    SqlRequest,
    json_of,
    read_answer,
    started,
)

_START = "from machines.chat.sql.query_process import serve; serve"
_PARSE_S = 10.0
_PIECE_BYTES = 1 << 20


@attrs.frozen
class SqlResult:
    """What a query gave.

    `types` are DuckDB's names of types. `preview` has at most `limit` rows of JSON values, and fewer where they are long; `row_count` is
    how many rows the query has, `kept` how many of them are in `csv`.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    preview: tuple[tuple[object, ...], ...]
    row_count: int
    kept: int
    csv: bytes = attrs.field(repr=False)
    intent: QueryIntent


class SqlDatabase:
    """Tables loaded from files, to be read with SQL. May be used from any thread; one query runs at a time.

    `folder` is the conversation's own: it holds the copy of the data. If there is one of the same sources, or no source is named, it
    is used as it is, also when a source has changed or is gone; `changed` names these. Other sources are loaded anew. Raises
    LoadError when a source cannot be loaded.
    """

    def __init__(self, sources: Sequence[Path], folder: Path) -> None:
        copy = loaded(sources, folder)
        self.tables: tuple[TableInfo, ...] = copy.tables
        self.fingerprint: str = copy.digest
        self.changed: tuple[str, ...] = copy.changed
        self._path = copy.path
        self._one_at_a_time = threading.Lock()
        self._child: _Child | None = _Child(self._path)  # it starts while nobody waits for it yet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, *, limit: int = 100, timeout_s: float = 30.0, keep: int = 10_000) -> SqlResult:
        """Run one query that reads. Raises SqlError; the next query works as if there had been none."""
        said, csv = self._asked(SqlRequest("query", sql, timeout_s, max(0, limit), max(0, keep)))
        assert said.intent is not None, "a query is told with what it is about"
        return SqlResult(said.columns, said.types, said.preview, said.row_count, said.kept, csv, said.intent)

    def parse(self, sql: str) -> None:
        """Have DuckDB parse a text. Raises SqlError; nothing is run."""
        self._asked(SqlRequest("parse", sql, _PARSE_S))

    def interrupt(self) -> None:
        """End the query that is running, from another thread: it raises SqlError `sql_interrupted`. None running: nothing happens."""
        child = self._child
        if child is not None and self._one_at_a_time.locked():
            child.end("sql_interrupted", "the query was interrupted")

    def close(self) -> None:
        """End the process that reads the data, and a query that is running. A later query starts it again."""
        self.interrupt()
        with self._one_at_a_time:
            self._let_go()

    def _asked(self, request: SqlRequest) -> tuple[SqlAnswer, bytes]:
        with self._one_at_a_time:
            if self._child is None or self._child.is_over():
                self._let_go()
                self._child = _Child(self._path)
            try:
                said, csv = self._child.asked(request)
            except (SqlError, RuntimeError):
                self._let_go()
                raise
            if isinstance(said, SqlFailure) and said.ends:
                self._let_go()
        if isinstance(said, SqlFailure):
            raise SqlError(said.code, said.message)
        return said, csv

    def _let_go(self) -> None:
        if self._child is not None:
            self._child.end("sql_interrupted", "the data is closed")
            self._child.gone()
            self._child = None


class _Child:
    """A process that answers requests about one database, one at a time, until it is ended."""

    def __init__(self, path: Path) -> None:
        self._why: tuple[str, str] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `gone`
        self._process = started(f"{_START}({path.name!r})", path.parent, self._complaints)

    def asked(self, request: SqlRequest) -> tuple[SqlAnswer | SqlFailure, bytes]:
        """Return the answer. Raises SqlError when the process was ended, or has ended by itself."""
        assert self._process.stdin is not None
        deadline = time.monotonic() + request.timeout_s
        try:
            self._process.stdin.write(json_of(request) + b"\n")
            self._process.stdin.flush()
            line, behind = self._line(deadline)
            said = read_answer(line)
            csv = self._rest(behind, said.csv_bytes, deadline)
        except (BrokenPipeError, EOFError) as error:
            raise SqlError(*self._reason()) from error
        except TimeoutError:
            limit = f"{request.timeout_s:g} s"
            self.end("sql_timeout", f"the query was ended after {limit}: read less, filter earlier, or join on keys")
            raise SqlError(*self._reason()) from None
        return said, csv

    def _line(self, deadline: float) -> tuple[bytes, bytes]:
        """Read a line; give it, and what came behind it."""
        read = b""
        while b"\n" not in read:
            read += self._piece(deadline)
        line, _, behind = read.partition(b"\n")
        return line, behind

    def _rest(self, begun: bytes, size: int, deadline: float) -> bytes:
        """Read until there are so many bytes."""
        pieces = [begun]
        left = size - len(begun)
        while left > 0:
            pieces.append(self._piece(deadline))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _piece(self, deadline: float) -> bytes:
        """Wait for output and read it. Raises TimeoutError, EOFError."""
        assert self._process.stdout is not None
        waiting, file = select.poll(), self._process.stdout.fileno()
        waiting.register(file, select.POLLIN)
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        if piece := os.read(file, _PIECE_BYTES):
            return piece
        raise EOFError

    def _reason(self) -> tuple[str, str]:
        code = self._process.wait()
        if self._why is not None:
            return self._why
        if code > 0:  # no signal: a fault of ours, or of the installation
            self._complaints.seek(0)
            raise RuntimeError(
                f"the process that reads data failed: {self._complaints.read().decode(errors='replace')}"
            )
        return "sql_too_large", f"DuckDB broke down over this query (exit code {code}): write a smaller or simpler one"

    def is_over(self) -> bool:
        """Return whether the process was ended, or has ended."""
        return self._why is not None or self._process.poll() is not None

    def end(self, code: str, message: str) -> None:
        """End the process; the first reason is told."""
        self._why = self._why or (code, message)
        self._process.kill()

    def gone(self) -> None:
        """Wait until the process is gone, and close what leads to it."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            with suppress(BrokenPipeError):  # what was not written yet is of no use to anybody
                pipe.close()  # type: ignore[union-attr]  # both are pipes
