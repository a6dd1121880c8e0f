"""Data files, loaded into the tables of one DuckDB file, which is built next to its final place and moved there when it is complete.

`loaded` takes files and folders, and returns a `Copy`. `data.json` records names, sizes and times of the sources, and the tables. A view in a file may be
any computation, even an endless one. So a process of its own loads the data (`serve`), within limits. At a limit and at Ctrl-C it is killed, and its
files are removed.

In that process each file has a connection of its own; views of a DuckDB file cannot read other files. It runs in the folder that it writes to, with a memory
limit, and ends with its input. The parent watches its time and its disk space. Names come on standard input. The output is lines of JSON: `at` with the
current file and part; then `fault` with a file and the reason, or `data`, `tables` and `files`.
"""

import hashlib
import json
import math
import os
import re
import select
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import attrs

from dsa.errors import DocumentError, install_hint
from machines.chat.sql.file_formats import READERS, Reader, files_of, reader_of
from machines.chat.sql.query import duckdb_extension, json_of, load_error, records, start_process, texts

_BUILD = "from machines.chat.sql.data_files import serve; serve()"
_RECORD, _WORK = "data.json", ".data-"
_LOOK_AGAIN_S, _PIECE_BYTES, _LONGEST_PLACE = 0.1, 1 << 16, 120
SECONDS, GIGABYTES, MEMORY_GB = 300.0, 4.0, 2
#: The environment variables for other limits.
SECONDS_VARIABLE, GIGABYTES_VARIABLE = "DSA_LOAD_S", "DSA_LOAD_GB"


@attrs.frozen
class LoadLimits:
    """The limits for loading all files: seconds, and gigabytes (10^9 bytes) of disk space."""

    seconds: float = SECONDS
    gigabytes: float = GIGABYTES

    @classmethod
    def of_environment(cls) -> Self:
        """Return the limits in DSA_LOAD_S and DSA_LOAD_GB. Raises DocumentError unless they are numbers above 0."""
        return cls(_number(SECONDS_VARIABLE, SECONDS), _number(GIGABYTES_VARIABLE, GIGABYTES))


def _number(variable: str, usual: float) -> float:
    setting = os.environ.get(variable, "")
    try:
        number = float(setting) if setting else usual
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise load_error(variable, f"'{setting}' is not a number above 0; the default is {usual:g}")
    return number


def _pairs(values: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in values)


@attrs.frozen
class TableInfo:
    """A table: its name, the names and DuckDB types of its columns, the number of rows, and the name of its file."""

    name: str
    columns: tuple[tuple[str, str], ...] = attrs.field(converter=_pairs)
    row_count: int
    source: str


@attrs.frozen
class LoadedFile:
    """A file at the time when it was loaded."""

    path: str
    bytes: int
    mtime_ns: int
    sha256: str

    @property
    def is_as_it_was(self) -> bool:
        """Whether the file is unchanged: by size and time of change, or by its bytes when only the time differs."""
        file = Path(self.path)
        try:
            about = file.stat()
            if about.st_size != self.bytes:
                return False
            return about.st_mtime_ns == self.mtime_ns or digest_of(file) == self.sha256
        except OSError:  # missing, or no longer readable
            return False


def _tables(values: Iterable[TableInfo]) -> tuple[TableInfo, ...]:
    return records(TableInfo, values)


def _sources(values: Iterable[LoadedFile]) -> tuple[LoadedFile, ...]:
    return records(LoadedFile, values)


@attrs.frozen
class Build:
    """The result of the process that loads: a DuckDB file in its folder, with these tables of these files."""

    data: str
    tables: tuple[TableInfo, ...] = attrs.field(converter=_tables)
    files: tuple[LoadedFile, ...] = attrs.field(converter=_sources)


@attrs.frozen
class LoadProgress:
    """The progress of loading: the current file, and the part of it."""

    at: tuple[str, str]


@attrs.frozen
class LoadFault:
    """A file that cannot be loaded, and the reason."""

    fault: tuple[str, str]


@attrs.frozen
class _Record:
    """The content of `data.json`: the DuckDB file, the digest, the sources of the command line, the files and the tables."""

    data: str
    digest: str
    sources: tuple[str, ...] = attrs.field(converter=texts)
    files: tuple[LoadedFile, ...] = attrs.field(converter=_sources)
    tables: tuple[TableInfo, ...] = attrs.field(converter=_tables)


@attrs.frozen
class Copy:
    """The data of a conversation: the DuckDB file, the digest of the sources' names and bytes, the tables.

    `changed_sources` names the sources that have changed since they were loaded, or are missing.
    """

    path: Path
    digest: str
    tables: tuple[TableInfo, ...]
    changed_sources: tuple[str, ...] = ()


def load_data(sources: Sequence[Path], folder: Path) -> Copy:
    """Return the folder's copy if it has these sources or `sources` is empty; otherwise load them. Raises DocumentError, also without DuckDB and at a limit."""
    if find_spec("duckdb") is None:
        raise load_error(
            "DuckDB", f"the package is needed to read the data, and is not installed; run: {install_hint('chat')}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(str(source.absolute()) for source in sources)
    record = _record_in(folder)
    if record is not None and names in ((), record.sources):
        changed_paths = tuple(source.path for source in record.files if not source.is_as_it_was)
        return Copy(folder / record.data, record.digest, record.tables, changed_paths)
    try:
        path, digest, build = _load_files(files_of(sources), folder)
    except BaseException:
        with suppress(OSError):  # it has other files
            folder.rmdir()
        raise
    record = _Record(path.name, digest, names, build.files, build.tables)
    _write(folder / _RECORD, json_of(record, indent=1))
    return Copy(path, digest, build.tables)


def _load_files(files: Sequence[Path], folder: Path) -> tuple[Path, str, Build]:
    """Load files; return the database, its digest, and the build."""
    for left in folder.glob(f"{_WORK}*"):  # from a process that was killed while loading
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_WORK) as work:
        build = _build(files, Path(work), LoadLimits.of_environment())
        digests = [(Path(source.path).name, source.sha256) for source in build.files]
        digest = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
        path = folder / f"data-{digest[:32]}.duckdb"
        Path(work, build.data).replace(path)
    return path, digest, build


def _record_in(folder: Path) -> _Record | None:
    """Return the record of a folder, if its database is still there."""
    if not (folder / _RECORD).is_file():
        return None
    record = _Record(**json.loads((folder / _RECORD).read_bytes()))
    return record if (folder / record.data).is_file() else None


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_WORK, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


# --- the process that loads ---


def _build(files: Sequence[Path], work: Path, limits: LoadLimits) -> Build:
    """Load files into a database in a folder, in a process of its own. Raises DocumentError."""
    with tempfile.TemporaryFile() as complaints:
        process = start_process(_BUILD, work, complaints)
        assert process.stdin is not None
        assert process.stdout is not None
        place = ""
        try:
            process.stdin.write(json.dumps([str(file.absolute()) for file in files]).encode() + b"\n")
            process.stdin.flush()
            for message in _messages(process.stdout.fileno(), work, limits):
                if isinstance(message, Build):
                    return message
                if isinstance(message, LoadFault):
                    raise load_error(*message.fault)
                if isinstance(message, _LimitReached):
                    why = f"{message.text}. Nothing was loaded: leave the file out, or {message.instead}"
                    raise load_error(_shorten(place), why)
                place = " ".join(filter(None, message.at))
        finally:
            process.kill()
            code = process.wait()
            process.stdout.close()
            with suppress(BrokenPipeError):  # it was killed before it read everything
                process.stdin.close()
        if code > 0:  # not a signal: a fault of dsa, or of the installation
            complaints.seek(0)
            raise RuntimeError(f"the process that loads data failed: {complaints.read().decode(errors='replace')}")
    raise load_error(
        _shorten(place), f"DuckDB crashed while reading it (exit code {code}). Nothing was loaded: leave the file out"
    )


def _shorten(place: str) -> str:
    return place if len(place) <= _LONGEST_PLACE else f"{place[:_LONGEST_PLACE]}\N{HORIZONTAL ELLIPSIS}"


@attrs.frozen
class _LimitReached:
    """A limit that ended the load; `instead` says how to set a higher one."""

    text: str
    instead: str


def _messages(file: int, work: Path, limits: LoadLimits) -> Iterator[LoadProgress | LoadFault | Build | _LimitReached]:
    """Yield the messages of the process until it ends, or until a limit, which is then the last."""
    poll, deadline, rest = select.poll(), time.monotonic() + limits.seconds, b""
    poll.register(file, select.POLLIN)
    while True:
        if time.monotonic() >= deadline:
            text = f"takes longer to load than the limit of {limits.seconds:g} s"
            yield _LimitReached(text, f"set {SECONDS_VARIABLE} to more seconds")
            return
        if _size_bytes(work) > limits.gigabytes * 10**9:
            text = f"takes more disk space to load than the limit of {limits.gigabytes:g} GB"
            yield _LimitReached(text, f"set {GIGABYTES_VARIABLE} to more gigabytes")
            return
        if not poll.poll(_LOOK_AGAIN_S * 1000):
            continue
        piece = os.read(file, _PIECE_BYTES)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from map(_message_of, lines)


def _message_of(line: bytes) -> LoadProgress | LoadFault | Build:
    data = json.loads(line)
    if "at" in data:
        return LoadProgress(**data)
    return LoadFault(**data) if "fault" in data else Build(**data)


def _size_bytes(folder: Path) -> int:
    """Return the disk space of a folder's files, in bytes; a file that disappears meanwhile counts as 0."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.lstat().st_blocks * 512
    return size


# --- the process that loads data ---

if sys.platform != "win32":
    import resource
if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DATA, _SPILL_FOLDER, _MOST_THREADS = "data.duckdb", "spilled", 4
_ADDRESSES_BYTES = (
    MEMORY_GB + 4
) * 10**9  # DuckDB, its threads and its time zones reserve address space that stays unused
_NEEDS_MEMORY = f"needs more memory to load than the limit of {MEMORY_GB} GB. Nothing was loaded: leave the file out"
#: A callback for progress: the name of the current file, and the part of it.
At = Callable[[str, str], object]


def identifier(name: str) -> str:
    """Return a name that needs no quotes in SQL: lower-case letters, digits and underscores; `order` becomes `order_data`."""
    word = re.sub(r"\W+", "_", name.lower()).strip("_")[:60] or "data"
    if word[0].isdigit():
        word = f"t_{word}"
    return f"{word}_data" if word in _reserved_words() else word


@cache
def _reserved_words() -> frozenset[str]:
    """Return the words that need quotes as names: DuckDB's reserved words, and those of types and functions."""
    duckdb = duckdb_extension()

    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with duckdb.connect() as connection:
        return frozenset(row[0] for row in connection.execute(query).fetchall())


def unique(name: str, taken_names: Container[str], *, instead: str = "") -> str:
    """Return a free name: `name`, or `instead`, or one of them with a number."""
    base = instead or name
    with_numbers = (f"{base}_{number}" for number in range(2, 1_000_000))
    return (
        next(candidate for candidate in (name, base, *with_numbers) if candidate not in taken_names)
        if name in taken_names
        else name
    )


def build_database(files: Sequence[Path], work: Path, at: At) -> Build:
    """Load files into a new database in a folder. Raises DocumentError."""
    new, loaded_files = work / _DATA, []
    of_table: dict[str, str] = {}
    with closing(_open_database(new)):
        pass  # without files it is a database without tables
    for file in files:
        at(file.name, "")
        loaded_files.append(_loaded_file(file))
        reader = reader_of(file)
        if reader is None:
            raise load_error(
                file.name, f"is of an unknown kind; use one of {', '.join(READERS)}; text files also as .gz"
            )
        if not file.stat().st_size:
            raise load_error(file.name, "is empty")
        _load(file, reader, new, of_table, at)
    with closing(_open_database(new)) as connection:
        tables = [_info(connection, name, source) for name, source in of_table.items()]
    return Build(_DATA, tables, loaded_files)


def _loaded_file(file: Path) -> LoadedFile:
    try:
        about = file.stat()
        return LoadedFile(str(file.absolute()), about.st_size, about.st_mtime_ns, digest_of(file))
    except OSError as error:
        raise load_error(file.name, f"cannot be read: {error.strerror}") from None


def _open_database(path: Path) -> "DuckDBPyConnection":
    """Open a database for writing, without looking for extensions on the network."""
    duckdb = duckdb_extension()

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False, "autoload_known_extensions": False, "memory_limit": f"{MEMORY_GB}GB",
        "threads": min(_MOST_THREADS, os.cpu_count() or 1), "temp_directory": str(path.with_name(_SPILL_FOLDER)),
    }  # fmt: skip
    connection: DuckDBPyConnection = duckdb.connect(path, config=config)
    connection.execute("SET enable_progress_bar = false")
    return connection


def _load(file: Path, reader: Reader, new: Path, of_table: dict[str, str], at: At) -> None:
    """Load the tables of one file, and record their file in `of_table`."""
    duckdb = duckdb_extension()

    link = new.parent / f"source{reader.suffix}"  # DuckDB would read the file's own name as a pattern or an address
    link.unlink(missing_ok=True)
    link.symlink_to(file.absolute())
    stem, what = identifier(file.name.lower().removesuffix(reader.suffix)), ""
    try:
        with closing(_open_database(new)) as connection:
            for source in reader.tables(connection, link, stem):
                what = source.what
                at(file.name, what)
                own = identifier(source.name)
                table = unique(own, of_table, instead="" if own == stem else f"{stem}_{own}")
                connection.execute(f'CREATE TABLE "{table}" AS {source.select()}')
                of_table[table] = file.name
    except (duckdb.OutOfMemoryException, MemoryError):
        raise load_error(" ".join(filter(None, (file.name, what))), _NEEDS_MEMORY) from None
    except (duckdb.Error, sqlite3.Error) as error:
        raise load_error(file.name, _message(error, link, file)) from None


def _message(error: Exception, link: Path, file: Path) -> str:
    """Return DuckDB's message in one line, with the file's own name."""
    text = " ".join(str(error).replace(str(link), file.name).split())
    return text if len(text) <= 500 else text[:500] + "\N{HORIZONTAL ELLIPSIS}"  # noqa: PLR2004


def _info(connection: "DuckDBPyConnection", name: str, source: str) -> TableInfo:
    columns = connection.execute(f'DESCRIBE "{name}"').fetchall()
    count = connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0]  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    return TableInfo(name, [column[:2] for column in columns], count, source)


# --- the process ---


def _end_with(parent_input: IO[bytes], work: Path) -> None:
    """Wait for the end of the input, which comes when the parent is gone, and remove the files, because no other process does."""
    parent_input.read()
    shutil.rmtree(work, ignore_errors=True)
    with suppress(OSError):  # the folder has other files
        work.parent.rmdir()
    os._exit(0)


def serve() -> None:
    """Load the files in the first line of the input into the current folder."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_BYTES, _ADDRESSES_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    files = [Path(name) for name in json.loads(sys.stdin.buffer.readline())]
    threading.Thread(target=_end_with, args=[sys.stdin.buffer, Path.cwd()], daemon=True).start()
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # DuckDB may write to standard output

    def say(message: Build | LoadFault | LoadProgress) -> None:
        output.write(json_of(message) + b"\n")

    try:
        say(build_database(files, Path.cwd(), lambda name, what: say(LoadProgress((name, what)))))
    except DocumentError as error:
        say(LoadFault((error.path, error.reason)))
    os._exit(0)  # everything is written, and shutting the interpreter down takes longer than starting it
