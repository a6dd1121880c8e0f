"""The process that loads data files into a new DuckDB file: their names come on standard input, what it is at and what came of it go to standard output.

Each file has a connection of its own; a DuckDB file's views are read with no other file in reach. It runs in the folder that it writes to, with limits of memory,
and ends with its input. Whoever started it looks at its time and at what it writes. What it says is lines of JSON: `at`, a file and what of it is read now;
then `fault`, a file and why it cannot be loaded, or `data`, `tables` and `files`.
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

from machines.chat.sql.data_files import MEMORY_GB, Build, LoadedFile, LoadFault, LoadProgress, TableInfo, digest_of
from machines.chat.sql.file_formats import READERS, Reader, reader_of
from machines.chat.sql.query import LoadError, json_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DATA, _SPILLED, _MOST_THREADS = "data.duckdb", "spilled", 4
_ADDRESSES_BYTES = (
    MEMORY_GB + 4
) * 10**9  # DuckDB, its threads and its tables of time zones take addresses that hold nothing
_NEEDS_MEMORY = f"needs more than {MEMORY_GB} GB of memory, the limit, to be loaded. Nothing was loaded: leave it out"
#: Is told what is read now: the name of a file, and what of it.
At = Callable[[str, str], object]


def identifier(name: str) -> str:
    """Return a name that SQL takes without quotes: small letters, digits and underscores; `order` becomes `order_data`."""
    found = re.sub(r"\W+", "_", name.lower()).strip("_")[:60] or "data"
    if found[0].isdigit():
        found = f"t_{found}"
    return f"{found}_data" if found in _reserved() else found


@cache
def _reserved() -> frozenset[str]:
    """Return the words that are no names without quotes: DuckDB's reserved ones, and those that name a type or function."""
    import duckdb

    asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with duckdb.connect() as connection:
        return frozenset(row[0] for row in connection.execute(asked).fetchall())


def unique(name: str, taken: Container[str], *, instead: str = "") -> str:
    """Return a name that is not taken: itself, the one to take instead, or that with a number."""
    base = instead or name
    numbered = (f"{base}_{number}" for number in range(2, 1_000_000))
    return next(found for found in (name, base, *numbered) if found not in taken) if name in taken else name


def built(files: Sequence[Path], work: Path, at: At) -> Build:
    """Load files into a new database in a folder; give its name, its tables, and what the files were like. Raises LoadError."""
    new, seen = work / _DATA, []
    of_table: dict[str, str] = {}
    with closing(_opened(new)):
        pass  # without sources it is a database without tables
    for file in files:
        at(file.name, "")
        seen.append(_seen(file))
        reader = reader_of(file)
        if reader is None:
            raise LoadError(file.name, f"is of no known kind: {', '.join(READERS)}; texts also as .gz")
        if not file.stat().st_size:
            raise LoadError(file.name, "is empty")
        _load(file, reader, new, of_table, at)
    with closing(_opened(new)) as connection:
        tables = [_info(connection, name, source) for name, source in of_table.items()]
    return Build(_DATA, tables, seen)


def _seen(file: Path) -> LoadedFile:
    try:
        about = file.stat()
        return LoadedFile(str(file.absolute()), about.st_size, about.st_mtime_ns, digest_of(file))
    except OSError as error:
        raise LoadError(file.name, f"cannot be read: {error.strerror}") from None


def _opened(path: Path) -> "DuckDBPyConnection":
    """Open a database to be written; extensions are not looked for, least of all in the network."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False, "autoload_known_extensions": False, "memory_limit": f"{MEMORY_GB}GB",
        "threads": min(_MOST_THREADS, os.cpu_count() or 1), "temp_directory": str(path.with_name(_SPILLED)),
    }  # fmt: skip
    connection = duckdb.connect(path, config=config)
    connection.execute("SET enable_progress_bar = false")
    return connection


def _load(file: Path, reader: Reader, new: Path, of_table: dict[str, str], at: At) -> None:
    """Load the tables of one file, and note whose they are."""
    import duckdb

    link = new.parent / f"source{reader.suffix}"  # DuckDB reads a pattern out of a file's own name, or an address
    link.unlink(missing_ok=True)
    link.symlink_to(file.absolute())
    stem, what = identifier(file.name.lower().removesuffix(reader.suffix)), ""
    try:
        with closing(_opened(new)) as connection:
            for source in reader.tables(connection, link, stem):
                what = source.what
                at(file.name, what)
                own = identifier(source.name)
                table = unique(own, of_table, instead="" if own == stem else f"{stem}_{own}")
                connection.execute(f'CREATE TABLE "{table}" AS {source.select()}')
                of_table[table] = file.name
    except (duckdb.OutOfMemoryException, MemoryError):
        raise LoadError(" ".join(filter(None, (file.name, what))), _NEEDS_MEMORY) from None
    except (duckdb.Error, sqlite3.Error) as error:
        raise LoadError(file.name, _told(error, link, file)) from None


def _told(error: Exception, link: Path, file: Path) -> str:
    """Return DuckDB's message in one line, with the file's own name."""
    text = " ".join(str(error).replace(str(link), file.name).split())
    return text if len(text) <= 500 else text[:500] + "\N{HORIZONTAL ELLIPSIS}"  # noqa: PLR2004


def _info(connection: "DuckDBPyConnection", name: str, source: str) -> TableInfo:
    columns = connection.execute(f'DESCRIBE "{name}"').fetchall()
    count = connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0]  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    return TableInfo(name, [column[:2] for column in columns], count, source)


# -- the process ------------------------------------------------------------------------------------------------------


def _end_with(started_by: IO[bytes], work: Path) -> None:
    """Wait for the end of the input, which comes when whoever started this is gone: nobody else removes what was written then."""
    started_by.read()
    shutil.rmtree(work, ignore_errors=True)
    with suppress(OSError):  # something else lies beside it
        work.parent.rmdir()
    os._exit(0)


def serve() -> None:
    """Load the files that the first line of the input names, into this folder."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_BYTES, _ADDRESSES_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started it
    files = [Path(name) for name in json.loads(sys.stdin.buffer.readline())]
    threading.Thread(target=_end_with, args=[sys.stdin.buffer, Path.cwd()], daemon=True).start()
    says = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # DuckDB may write to standard output

    def say(said: Build | LoadFault | LoadProgress) -> None:
        says.write(json_of(said) + b"\n")

    try:
        say(built(files, Path.cwd(), lambda name, what: say(LoadProgress((name, what)))))
    except LoadError as error:
        say(LoadFault((error.source, error.reason)))
