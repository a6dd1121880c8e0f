"""The sandbox's side of a call: one process runs the code, another, which the code cannot reach, gathers what it left.

Its text is run by `dsa.edge.sandbox`; it must not import anything of this package. `run` forks: the child makes the table and runs the
code, and says how that went in a file without a name; the parent waits, ends everything that goes on, and only then looks at the
working folder. It reports a line of JSON, and after it the bytes of all files: `{"status": .., "said": .., "files": [[path, what, size], ..]}`.
"""

import ast
import contextlib
import csv
import functools
import gc
import io
import json
import linecache
import os
import random
import re
import signal
import stat
import sys
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn
from weakref import WeakSet

_NAME = "<code>"
_MOST_SAID, _MOST_TEXT, _MOST_NAME, _MOST_PLACES = 64_000, 4_000, 100, 8
_MOST_ROWS = 20
_MOST_DEPTH, _MOST_ENTRIES = 3, 2_000
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"}  # fmt: skip
_REALS = {"DOUBLE", "FLOAT", "REAL", "DECIMAL"}
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"}
_TIMES_WITH_ZONE = {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"}


class _Table(NamedTuple):
    """A table for the code: names, the database's names of types, and CSV with a line of names first."""

    columns: list[str]
    types: list[str]
    csv: str


class _CodeJob(NamedTuple):
    """What is to be run: code over a table, after `prepare` where no process is kept warm. So much is gathered at most."""

    code: str
    table: _Table | None
    prepare: str
    most_files: int
    most_bytes: int


def _job(payload: str) -> _CodeJob:
    said = json.loads(payload)
    return _CodeJob(**{**said, "table": said["table"] and _Table(**said["table"])})


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `code`, `table` (columns, types, csv; or null), `prepare`, `most_files` and `most_bytes`."""
    job = _job(payload)
    if "matplotlib.pyplot" not in sys.modules:  # no process is kept warm here
        exec(job.prepare, {"__name__": "prepare"})  # noqa: S102  # the package's own text
    os.mkdir("work")  # noqa: PTH102  # pathlib follows links
    os.mkdir("tmp")  # noqa: PTH102
    folder = os.open("work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    said = os.open("said", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink("said")  # noqa: PTH108
    _write(said, bytes(_MOST_SAID))  # its place is taken now: the code may fill the disk
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits is not to be interrupted by the code
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(result_fd)
        os.close(folder)
        _Session(job, said).end()
    status = _ended(child)
    _end_all(child)
    text = os.pread(said, _MOST_SAID, 0).rstrip(b"\0").decode("utf-8", "replace")
    found = _gathered(folder, job.most_files, job.most_bytes)
    files = [[path, what, size] for path, what, size, _ in found]
    _write(result_fd, json.dumps({"status": status, "said": text, "files": files}).encode() + b"\n")
    for *_, content in found:
        _write(result_fd, content)


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


# -- waiting, and ending ----------------------------------------------------------------------------------------------


def _ended(child: int) -> int:
    """Wait for the code's process; give its exit status, or minus the signal that killed it."""
    while True:
        process, status = os.waitpid(-1, 0)  # as the first of its namespace this one is left the orphans of others
        if process == child:
            return os.waitstatus_to_exitcode(status)


def _end_all(child: int) -> None:
    """Kill what the code has left running, so that nothing changes while it is gathered.

    Where this is the first process of a namespace these are all there are; elsewhere, the child's group: the rest is killed after the report.
    """
    alone = os.getpid() == 1
    with contextlib.suppress(OSError):
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL) if alone else os.killpg(child, signal.SIGKILL)
            process, _ = os.waitpid(-1, 0 if alone else os.WNOHANG)  # ChildProcessError when there is none
            if not process:
                return


# -- gathering --------------------------------------------------------------------------------------------------------

_Found = tuple[str, str, int, bytes]


def _gathered(folder: int, most_files: int, most_bytes: int) -> list[_Found]:
    """Return each file as path, what it is, size and content, by path; without content where there are too many, or too much of it."""
    found: list[tuple[str, str, int, int]] = []
    seen = 0
    for path, what, size, opened in _entries(folder, "", 1):
        found.append((path, what, size, opened))
        seen += size
        if len(found) > most_files or seen > most_bytes:
            return sorted((path, what, size, b"") for path, what, size, _ in found)
    return sorted((path, what, *_content(opened, size)) for path, what, size, opened in found)


def _entries(folder: int, above: str, depth: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield path, what it is, size and an open file of everything that is no folder."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            path = above + entry.name
            state = entry.stat(follow_symlinks=False)
            if number >= _MOST_ENTRIES:
                yield path, "one of too many", 0, -1
                return
            if not stat.S_ISDIR(state.st_mode):
                yield path, *_opened(folder, entry.name, state)
                continue
            inner = _open(folder, entry.name, os.O_DIRECTORY) if depth < _MOST_DEPTH else -1
            if inner < 0:
                yield path, "a folder that is too deep, or closed", 0, -1
                continue
            yield from _entries(inner, f"{path}/", depth + 1)
            os.close(inner)


def _opened(folder: int, name: str, state: os.stat_result) -> tuple[str, int, int]:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "file"}
    what = kinds.get(stat.S_IFMT(state.st_mode), "a device")
    if what != "file":
        return what, 0, -1
    if state.st_nlink != 1:
        return "a second name of another file", 0, -1
    file = _open(folder, name, os.O_NONBLOCK)
    if file < 0 or not stat.S_ISREG(os.fstat(file).st_mode):
        return "a file that cannot be read", 0, -1
    return "file", os.fstat(file).st_size, file


def _open(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError:
        return -1


def _content(file: int, size: int) -> tuple[int, bytes]:
    pieces = bytearray()
    while file >= 0 and len(pieces) < size and (piece := os.read(file, size - len(pieces))):
        pieces += piece
    return len(pieces), bytes(pieces)


# -- running the code -------------------------------------------------------------------------------------------------


class _Explanation(NamedTuple):
    """What was raised: its types, the innermost first; the message; and where in the code, as line and function."""

    types: list[str]
    message: str
    places: list[tuple[int, str]]


def _end(value: str = "", error: _Explanation | None = None, fault: str = "") -> bytes:
    """Return how the code ended: the value of its last expression, what it raised, or why there is no table for it."""
    return json.dumps({"value": value, "error": error and error._asdict(), "fault": fault}).encode()


class _Session:
    """The process that runs the code. All that it says may be the code's own words."""

    def __init__(self, job: _CodeJob, said: int) -> None:
        self._job = job
        self._said = said
        self._saved: WeakSet[Any] = WeakSet()

    def end(self) -> NoReturn:
        """Run the code, say how that went, and end this process: exit handlers and threads of the code do not go on."""
        try:
            module = self._begun()
            fault = _put_table(module, self._job.table)
            end = _end(fault=fault) if fault else _end(self._run(module))
        except BaseException as error:  # noqa: BLE001  # SystemExit too
            end = _end(error=_explained(error))
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os.pwrite(self._said, end, 0)
        os._exit(0)

    def _begun(self) -> types.ModuleType:
        """Make everything like new: folder, streams, random numbers, and the module that the code is."""
        import matplotlib.pyplot as plt
        import numpy as np
        import pandas as pd
        from matplotlib.figure import Figure

        os.setsid()
        os.environ["HOME"] = os.environ["TMPDIR"] = os.path.abspath("tmp")  # noqa: PTH100
        os.chdir("work")
        sys.path.insert(0, "")
        sys.dont_write_bytecode = True
        sys.argv = [""]
        sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # that of all code that does not say which
        Figure.savefig = _noting(Figure.savefig, self._saved)  # type: ignore[method-assign]
        plt.show = lambda *_, **__: self._save_figures()  # a function: matplotlib notes a signature in it
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        module.__dict__.update(pd=pd, np=np, plt=plt)
        lines = self._job.code.splitlines(keepends=True)
        linecache.cache[_NAME] = (len(self._job.code), None, lines, _NAME)
        return module

    def _run(self, module: types.ModuleType) -> str:
        """Run all, return the value of a last expression as text."""
        body, last = _parts(self._job.code)
        value = ""
        try:
            exec(body, module.__dict__)  # noqa: S102  # what this process is for
            value = _shown(eval(last, module.__dict__)) if last else ""  # noqa: S307  # same
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        self._save_figures()
        module.__dict__.clear()  # closes the files that the code has left open
        gc.collect()
        return value

    def _save_figures(self) -> None:
        """Save the open figures that nobody has saved. It stands in for `plt.show`, too."""
        import matplotlib.pyplot as plt

        for number in plt.get_fignums():
            figure = plt.figure(number)
            if figure not in self._saved:
                names = (f"figure_{n}.png" for n in range(1, 1000))
                figure.savefig(next(name for name in names if not os.path.lexists(name)))


def _stream(file: int) -> Any:  # noqa: ANN401  # a text file
    """Open anew what was opened when it led elsewhere; by lines, so that prints and warnings stay in order."""
    return open(file, "w", 1, "utf-8", "replace", closefd=False)  # an open file


def _noting(save: Callable[..., Any], saved: "WeakSet[Any]") -> Callable[..., Any]:
    @functools.wraps(save)
    def noted(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # matplotlib's
        result = save(self, *arguments, **options)
        saved.add(self)
        return result

    return noted


def _parts(code: str) -> tuple[Any, Any]:
    """Compile what is run for what it does, and the last expression, whose value is shown."""
    tree = ast.parse(code, _NAME)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), _NAME, "eval")  # type: ignore[attr-defined]
    return compile(tree, _NAME, "exec"), last


def _shown(value: Any) -> str:  # noqa: ANN401  # anything at all
    """Write a value like a notebook does: tables short, drawings not at all, no addresses of memory."""
    import pandas as pd

    if value is None or _is_drawing(value):
        return ""
    if isinstance(value, pd.DataFrame | pd.Series):
        wide = {"max_cols": _MOST_ROWS, "max_colwidth": 80} if value.ndim > 1 else {}
        text = value.to_string(max_rows=_MOST_ROWS, **wide)
        size = " x ".join(map(str, value.shape))
        text += f"\n[{size}]" if len(value) > _MOST_ROWS else ""
    else:
        text = repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text[: 4 * _MOST_TEXT])[:_MOST_TEXT]


def _is_drawing(value: Any) -> bool:  # noqa: ANN401
    if type(value).__module__.startswith("matplotlib."):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_drawing, value))
    is_array = hasattr(value, "flat") and getattr(getattr(value, "dtype", None), "kind", "") == "O"
    return is_array and bool(value.size) and all(map(_is_drawing, value.flat))


def _explained(error: BaseException) -> _Explanation:
    """Return its types, message, and where in the code it was."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  # a message may lie in wait too
        message = ""
    places, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _NAME:
            places.append((trace.tb_lineno, trace.tb_frame.f_code.co_name[:_MOST_NAME]))
        trace = trace.tb_next
    if len(places) > _MOST_PLACES:
        places = places[: _MOST_PLACES // 2] + places[-_MOST_PLACES // 2 :]
    names = [kind.__name__[:_MOST_NAME] for kind in type(error).__mro__][:_MOST_PLACES]
    return _Explanation(names, message[:_MOST_TEXT], places)


# -- the table --------------------------------------------------------------------------------------------------------


def _put_table(module: types.ModuleType, table: _Table | None) -> str:
    """Put the table where the code looks for it; tell why it cannot be."""
    if table is None:
        return ""
    try:
        frame = _frame(table)
    except (ValueError, csv.Error) as error:
        return str(error)
    module.__dict__.update(LATEST_SQL_RESULT=frame, df=frame.copy())
    return ""


def _frame(table: _Table) -> Any:  # noqa: ANN401  # a DataFrame
    import pandas as pd

    rows, columns = _rows(table.csv)[1:], table.columns
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise ValueError(f"row {number} of the table has {len(row)} cells, and there are {len(columns)} columns")
    cells = [[row[n] for row in rows] for n in range(len(columns))]
    series = [_column(kind, values) for kind, values in zip(table.types, cells, strict=True)]
    frame = pd.DataFrame(dict(enumerate(series)), index=range(len(rows)))  # names may be there twice
    frame.columns = pd.Index(columns)
    return frame


def _rows(text: str) -> list[list[str | None]]:
    """Read CSV: a cell with nothing in it is null; one of two quotes is an empty text."""
    csv.field_size_limit(sys.maxsize)
    if not re.search(r'(^|,)""(,|\r?$)', text, re.MULTILINE):
        read = csv.reader(io.StringIO(text, newline=""), strict=True)
        return [[cell or None for cell in row] or [None] for row in read]
    rows: list[list[str | None]] = [[]]
    for cell in re.finditer(r'(?:"((?:[^"]|"")*+)"|([^,\r\n]*+))(,|\r?\n|\Z)', text):
        if cell.start() == len(text) and not rows[-1]:
            break
        quoted, plain, end = cell.groups()
        rows[-1].append(quoted.replace('""', '"') if quoted is not None else plain or None)
        if end != ",":
            rows.append([])
    return [row for row in rows if row]


def _column(kind: str, values: list[str | None]) -> Any:  # noqa: ANN401  # a Series
    """Make a column of the type that the database says; of what does not fit it, text."""
    import pandas as pd

    base = kind.upper().partition("(")[0].strip()
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        if base in _INTEGERS and not kind.endswith("]"):
            return _integers([None if value is None else int(value) for value in values])
        if base in _REALS and not kind.endswith("]"):
            if base == "DECIMAL" and any(value is not None and _is_longer(value) for value in values):
                return pd.Series([None if value is None else Decimal(value) for value in values], dtype=object)
            return pd.Series([float("nan") if value is None else float(value) for value in values], dtype="float64")
        if base == "BOOLEAN":
            truths = [None if value is None else {"true": True, "false": False}.get(value.lower()) for value in values]
            return pd.Series(truths, dtype="boolean" if None in truths else "bool")
        if base in _TIMES | _TIMES_WITH_ZONE:
            texts = pd.Series(values, dtype=object)
            return pd.to_datetime(texts, format="ISO8601", utc=base in _TIMES_WITH_ZONE)
    return pd.Series(values) if any(value is not None for value in values) else pd.Series(values, dtype=object)


def _is_longer(value: str) -> bool:
    """Return whether a number has more digits than a float keeps."""
    return Decimal(repr(float(value))) != Decimal(value)


def _integers(values: list[int | None]) -> Any:  # noqa: ANN401  # a Series
    """Return them in eight bytes; those that are larger as Python's own, which lose nothing."""
    import pandas as pd

    has_nulls = None in values
    for dtype in ("Int64", "UInt64") if has_nulls else ("int64", "uint64"):
        with contextlib.suppress(OverflowError):
            return pd.Series(values, dtype=dtype)
    return pd.Series(values, dtype=object)
