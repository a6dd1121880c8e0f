"""The sandbox's side of a call: one process runs the code, and another, which the code cannot reach, collects the files.

`dsa.edge.sandbox` runs the text of this module; it must not import anything of this package. The process that forks each call runs `prepare` and
`rehearse` first, so that no call pays for the libraries; `prepare` fixes everything that would make equal calls differ. `run` forks. The child makes the table, runs the
code, and writes its report into an unnamed file. The parent waits, kills everything that still runs, and only then reads the
working folder. It writes a line of JSON and then the bytes of all files: `{"status": .., "said": .., "files": [[path, what, size], ..]}`.
"""

import ast
import contextlib
import csv
import functools
import gc
import importlib.util
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
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn
from weakref import WeakSet

_NAME = "<code>"
_MOST_REPORT, _MOST_TEXT, _MOST_NAME, _MOST_PLACES = 64_000, 4_000, 100, 8
_MOST_ROWS = 20
_MOST_DEPTH, _MOST_ENTRIES = 3, 2_000
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"}  # fmt: skip
_REALS = {"DOUBLE", "FLOAT", "REAL", "DECIMAL"}
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"}
_TIMES_WITH_ZONE = {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"}


class _Table(NamedTuple):
    """A table for the code: names, DuckDB types, and CSV with a header."""

    columns: list[str]
    types: list[str]
    csv: str


class _CodeJob(NamedTuple):
    """A job: code on a table, and the limits of the files."""

    code: str
    table: _Table | None
    most_files: int
    most_bytes: int


def _job(payload: str) -> _CodeJob:
    data = json.loads(payload)
    return _CodeJob(**{**data, "table": data["table"] and _Table(**data["table"])})


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `code`, `table` (columns, types, csv; or null), `most_files` and `most_bytes`."""
    job = _job(payload)
    if "matplotlib.pyplot" not in sys.modules:  # there is no warm process
        prepare()
    os.mkdir("work")  # noqa: PTH102  # pathlib follows links
    os.mkdir("tmp")  # noqa: PTH102
    folder = os.open("work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    report = os.open("said", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink("said")  # noqa: PTH108
    _write(report, bytes(_MOST_REPORT))  # reserve its space now: the code may fill the disk
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the code must not interrupt the waiting parent
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(result_fd)
        os.close(folder)
        _Session(job, report).end()
    status = _wait_for(child)
    _end_all(child)
    text = os.pread(report, _MOST_REPORT, 0).rstrip(b"\0").decode("utf-8", "replace")
    files_found = _collect(folder, job.most_files, job.most_bytes)
    files = [[path, what, size] for path, what, size, _ in files_found]
    _write(result_fd, json.dumps({"status": status, "said": text, "files": files}).encode() + b"\n")
    for *_, content in files_found:
        _write(result_fd, content)


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


# --- waiting and ending ---


def _wait_for(child: int) -> int:
    """Wait for the code's process; return its exit status, or the negative number of the signal that killed it."""
    while True:
        process, status = os.waitpid(-1, 0)  # as the first process of its namespace this one inherits orphans
        if process == child:
            return os.waitstatus_to_exitcode(status)


def _end_all(child: int) -> None:
    """Kill all processes that the code left, so that no file changes while it is read.

    The first process of a namespace kills all others; elsewhere it kills the child's group, and the sandbox kills the rest after the report.
    """
    alone = os.getpid() == 1
    with contextlib.suppress(OSError):
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL) if alone else os.killpg(child, signal.SIGKILL)
            process, _ = os.waitpid(-1, 0 if alone else os.WNOHANG)  # ChildProcessError when there is none
            if not process:
                return


# --- collecting files ---

_FileContent = tuple[str, str, int, bytes]


def _collect(folder: int, most_files: int, most_bytes: int) -> list[_FileContent]:
    """Return the files as path, kind of entry, size and content, sorted by path. Beyond the limits they have no content."""
    entries: list[tuple[str, str, int, int]] = []
    total = 0
    for path, what, size, file in _entries(folder, "", 1):
        entries.append((path, what, size, file))
        total += size
        if len(entries) > most_files or total > most_bytes:
            return sorted((path, what, size, b"") for path, what, size, _ in entries)
    return sorted((path, what, *_content(file, size)) for path, what, size, file in entries)


def _entries(folder: int, above: str, depth: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield path, kind of entry, size and an open file for everything but folders."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            path = above + entry.name
            state = entry.stat(follow_symlinks=False)
            if number >= _MOST_ENTRIES:
                yield path, "one of too many entries", 0, -1
                return
            if not stat.S_ISDIR(state.st_mode):
                yield path, *_open_entry(folder, entry.name, state)
                continue
            inner = _open(folder, entry.name, os.O_DIRECTORY) if depth < _MOST_DEPTH else -1
            if inner < 0:
                yield path, "a folder that is too deep, or cannot be read", 0, -1
                continue
            yield from _entries(inner, f"{path}/", depth + 1)
            os.close(inner)


def _open_entry(folder: int, name: str, state: os.stat_result) -> tuple[str, int, int]:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "file"}
    what = kinds.get(stat.S_IFMT(state.st_mode), "a device")
    if what != "file":
        return what, 0, -1
    if state.st_nlink != 1:
        return "a hard link to another file", 0, -1
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


# --- running the code ---


class _Explanation(NamedTuple):
    """An exception: its types, the most specific first; the message; and its places in the code, as line and function."""

    types: list[str]
    message: str
    places: list[tuple[int, str]]


def _end(value: str = "", error: _Explanation | None = None, fault: str = "") -> bytes:
    """Return the report of the code: the value of its last expression, its exception, or why it has no table."""
    return json.dumps({"value": value, "error": error and error._asdict(), "fault": fault}).encode()


class _Session:
    """The process that runs the code. The code can forge everything that it reports."""

    def __init__(self, job: _CodeJob, report: int) -> None:
        self._job = job
        self._report = report
        self._saved_figures: WeakSet[Any] = WeakSet()

    def end(self) -> NoReturn:
        """Run the code, write the report, and end this process without the code's exit handlers and threads."""
        try:
            module = self._set_up()
            fault = _put_table(module, self._job.table)
            end = _end(fault=fault) if fault else _end(self._run_code(module))
        except BaseException as error:  # noqa: BLE001  # SystemExit too
            end = _end(error=_explanation(error))
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os.pwrite(self._report, end, 0)
        os._exit(0)

    def _set_up(self) -> types.ModuleType:
        """Set up folder, streams, random numbers, and the module of the code."""
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
        np.random.seed(0)  # noqa: NPY002  # for code that does not make a generator of its own
        Figure.savefig = _recording(Figure.savefig, self._saved_figures)  # type: ignore[method-assign]
        plt.show = lambda *_, **__: self._save_figures()  # a function, because matplotlib stores a signature in it
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        module.__dict__.update(pd=pd, np=np, plt=plt)
        lines = self._job.code.splitlines(keepends=True)
        linecache.cache[_NAME] = (len(self._job.code), None, lines, _NAME)
        return module

    def _run_code(self, module: types.ModuleType) -> str:
        """Run the code; return the value of its last expression as text."""
        body, last = _parts(self._job.code)
        value = ""
        try:
            exec(body, module.__dict__)  # noqa: S102  # what this process is for
            value = _display_text(eval(last, module.__dict__)) if last else ""  # noqa: S307  # same
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        self._save_figures()
        module.__dict__.clear()  # close the files that the code left open
        gc.collect()
        return value

    def _save_figures(self) -> None:
        """Save the open figures that are not saved yet. This replaces `plt.show` too."""
        import matplotlib.pyplot as plt

        for number in plt.get_fignums():
            figure = plt.figure(number)
            if figure not in self._saved_figures:
                names = (f"figure_{n}.png" for n in range(1, 1000))
                figure.savefig(next(name for name in names if not os.path.lexists(name)))


def _stream(file: int) -> Any:  # noqa: ANN401  # a text file
    """Open a standard stream again, because it leads elsewhere now; line-buffered, so that prints and warnings stay in order."""
    return open(file, "w", 1, "utf-8", "replace", closefd=False)  # an open file


def _recording(save: Callable[..., Any], figures: "WeakSet[Any]") -> Callable[..., Any]:
    @functools.wraps(save)
    def save_and_record(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # matplotlib's
        result = save(self, *arguments, **options)
        figures.add(self)
        return result

    return save_and_record


def _parts(code: str) -> tuple[Any, Any]:
    """Compile the statements, and the last expression, whose value is shown."""
    tree = ast.parse(code, _NAME)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), _NAME, "eval")  # type: ignore[attr-defined]
    return compile(tree, _NAME, "exec"), last


def _display_text(value: Any) -> str:  # noqa: ANN401  # anything at all
    """Return a value as a notebook shows it: tables shortened, no drawings, no memory addresses."""
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


def _explanation(error: BaseException) -> _Explanation:
    """Return the description of an exception."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  # even the message may raise
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


# --- the table ---


def _put_table(module: types.ModuleType, table: _Table | None) -> str:
    """Put the table into the code's module; return why that is impossible, or an empty text."""
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
            raise ValueError(f"row {number} of the table has {len(row)} cells, but there are {len(columns)} columns")
    cells = [[row[n] for row in rows] for n in range(len(columns))]
    series = [_column(kind, values) for kind, values in zip(table.types, cells, strict=True)]
    frame = pd.DataFrame(dict(enumerate(series)), index=range(len(rows)))  # names may repeat
    frame.columns = pd.Index(columns)
    return frame


def _rows(text: str) -> list[list[str | None]]:
    """Return the rows of CSV. An empty cell is None; a cell of two quotes is an empty text."""
    csv.field_size_limit(sys.maxsize)
    if not re.search(r'(^|,)""(,|\r?$)', text, re.MULTILINE):
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        return [[cell or None for cell in row] or [None] for row in reader]
    rows: list[list[str | None]] = [[]]
    for cell in re.finditer(r'(?:"((?:[^"]|"")*+)"|([^,\r\n]*+))(,|\r?\n|\Z)', text):
        if cell.start() == len(text) and not rows[-1]:
            break
        quoted_cell, plain, end = cell.groups()
        rows[-1].append(quoted_cell.replace('""', '"') if quoted_cell is not None else plain or None)
        if end != ",":
            rows.append([])
    return [row for row in rows if row]


def _column(kind: str, values: list[str | None]) -> Any:  # noqa: ANN401  # a Series
    """Return a column of the database's type, or of text when the values do not fit."""
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
    """Return whether a number has more digits than a float can hold."""
    return Decimal(repr(float(value))) != Decimal(value)


def _integers(values: list[int | None]) -> Any:  # noqa: ANN401  # a Series
    """Return integers of eight bytes, or Python's own when some are larger."""
    import pandas as pd

    has_nulls = None in values
    for dtype in ("Int64", "UInt64") if has_nulls else ("int64", "uint64"):
        with contextlib.suppress(OverflowError):
            return pd.Series(values, dtype=dtype)
    return pd.Series(values, dtype=object)


# --- preparation, in the process that forks each call ---

#: One thread for linear algebra (sums in one order, no memory for each processor), no window, one date for all files.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "agg", "SOURCE_DATE_EPOCH": "0",
}  # fmt: skip
_NOWHERE = "/dev/null/none"  # for matplotlib's caches: there is no home folder


def prepare() -> None:
    """Import the libraries of all code."""
    os.environ.update(_ENVIRONMENT)
    spec = importlib.util.find_spec("matplotlib")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ImportError("matplotlib is not installed")
    os.environ["MATPLOTLIBRC"] = f"{folders[0]}/mpl-data/matplotlibrc"  # otherwise it looks in the home folder
    import matplotlib as mpl

    mpl.get_configdir = mpl.get_cachedir = lambda: _NOWHERE
    import matplotlib.pyplot as plt
    import pandas as pd

    for settings in (mpl.rcParams, mpl.rcParamsDefault):
        settings["svg.hashsalt"] = "one"  # otherwise names in an SVG are random
    plt.show = lambda *_, **__: None
    for name, value in {"max_rows": 20, "max_columns": 30, "width": 160, "max_colwidth": 80}.items():
        pd.set_option(f"display.{name}", value)


def rehearse() -> None:
    """Draw and compute a little of everything once, so that lazy imports and caches are ready."""
    import matplotlib.pyplot as plt
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days = pd.date_range("2024-01-01", periods=8)
        frame = pd.DataFrame({"day": days, "name": list("aabbccdd"), "x": range(8), "y": [n / 3 for n in range(8)]})
        frame.groupby("name")["y"].agg(["sum", "mean"]).merge(frame.pivot_table(index="name", values="x"), on="name")
        repr(frame.describe()), frame.to_csv(io.StringIO())
        pd.read_csv(io.StringIO("a,b\n1,2\n"))
        _, axes = plt.subplots(1, 2)
        frame.plot(x="day", y="y", ax=axes[0], title="Title")
        frame.plot.bar(x="name", y="x", ax=axes[1])
        axes[0].legend()
        for kind in ("png", "pdf", "svg"):
            plt.savefig(io.BytesIO(), format=kind)
        plt.close("all")
