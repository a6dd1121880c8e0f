"""The table builder: a process that loads data files into a new DuckDB file. Names come on standard input, progress and result go to standard output.

Each file has a connection of its own; views of a DuckDB file cannot read other files. The process runs in the folder that it writes to, with a memory
limit, and ends with its input. The parent watches its time and its disk space. The output is lines of JSON: `at` with the current file and part; then
`fault` with a file and the reason, or `data`, `tables` and `files`.
"""

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Container, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dsa.errors import DocumentError
from machines.chat.sql.data_files import MEMORY_GB, Build, LoadedFile, LoadFault, LoadProgress, TableInfo, digest_of
from machines.chat.sql.file_formats import READERS, Reader, reader_of
from machines.chat.sql.query import duckdb_extension, json_of, load_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DATA, _SPILL_FOLDER, _MOST_THREADS = "data.duckdb", "spilled", 4
_ADDRESSES_BYTES = (
    MEMORY_GB + 4
) * 10**9  # DuckDB, its threads and its time zones reserve address space that stays unused
_NEEDS_MEMORY = f"needs more memory to load than {MEMORY_GB} GB, the limit. Nothing was loaded: leave the file out"
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
            raise load_error(file.name, f"is of an unknown kind; use one of {', '.join(READERS)}, texts also as .gz")
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
    """Wait for the end of the input, which comes when the parent is gone, and remove the files: nobody else does then."""
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
    os._exit(0)  # all is written; to take the interpreter apart takes longer than to start it
