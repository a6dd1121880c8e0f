"""Data files become the tables of one DuckDB file, built beside it and put in place when it is whole.

Takes files and folders of files, gives a `Copy`. What is loaded is recorded in `data.json`: names, sizes and times of the sources, and the
tables. Each file has a connection of its own; a DuckDB file's views are read with no other file in reach.
"""

import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Container, Sequence
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dsa.errors import install_hint
from machines.chat.sql.errors import LoadError
from machines.chat.sql.sources import READERS, Reader, files_of, reader_of


def identifier(name: str) -> str:
    """Give a name that SQL takes without quotes: small letters, digits and underscores; `order` becomes `order_data`."""
    found = re.sub(r"\W+", "_", name.lower()).strip("_")[:60] or "data"
    if found[0].isdigit():
        found = f"t_{found}"
    return f"{found}_data" if found in _reserved() else found


@cache
def _reserved() -> frozenset[str]:
    """Give the words that are no names without quotes: DuckDB's reserved ones, and those that name a type or function."""
    import duckdb

    asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with duckdb.connect() as connection:
        return frozenset(row[0] for row in connection.execute(asked).fetchall())


def unique(name: str, taken: Container[str], *, instead: str = "") -> str:
    """Give a name that is not taken: itself, the one to take instead, or that with a number."""
    base = instead or name
    numbered = (f"{base}_{number}" for number in range(2, 1_000_000))
    return next(found for found in (name, base, *numbered) if found not in taken) if name in taken else name


if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RECORD = "data.json"


@attrs.frozen
class TableInfo:
    """A table: its name, the names and DuckDB types of its columns, its rows, and the name of the file that it is from."""

    name: str
    columns: tuple[tuple[str, str], ...]
    row_count: int
    source: str


@attrs.frozen
class Copy:
    """The data of a conversation: the DuckDB file, the digest of the sources' names and bytes, the tables.

    `changed` names the sources that are not as they were when they were loaded, or gone.
    """

    path: Path
    digest: str
    tables: tuple[TableInfo, ...]
    changed: tuple[str, ...] = ()


def loaded(sources: Sequence[Path], folder: Path) -> Copy:
    """Give the folder's copy if it is of these sources, or none are named; else load them. Raises LoadError, also without DuckDB."""
    if find_spec("duckdb") is None:
        raise LoadError("DuckDB", f"it reads the data, and is not installed; run: {install_hint('chat')}")
    folder.mkdir(parents=True, exist_ok=True)
    named = [str(source.absolute()) for source in sources]
    record = _recorded(folder)
    if record is not None and record["sources"] in (named, *([record["sources"]] if not named else [])):
        tables = tuple(
            TableInfo(t["name"], tuple(map(tuple, t["columns"])), t["row_count"], t["source"]) for t in record["tables"]
        )
        changed = tuple(seen["path"] for seen in record["files"] if not _is_as_it_was(seen))
        return Copy(folder / record["data"], record["digest"], tables, changed)
    files = files_of(sources)
    seen = [_seen(file) for file in files]
    digest = hashlib.sha256(json.dumps([(Path(s["path"]).name, s["sha256"]) for s in seen]).encode()).hexdigest()
    path = folder / f"data-{digest[:32]}.duckdb"
    tables = _built(files, path)
    record = {
        "data": path.name,
        "digest": digest,
        "sources": named,
        "files": seen,
        "tables": [attrs.asdict(table) for table in tables],
    }
    _write(folder / _RECORD, json.dumps(record, indent=1).encode())
    return Copy(path, digest, tables)


def _recorded(folder: Path) -> dict[str, Any] | None:
    """Give what was loaded into a folder, if it is still there."""
    if not (folder / _RECORD).is_file():
        return None
    record: dict[str, Any] = json.loads((folder / _RECORD).read_bytes())
    return record if (folder / record["data"]).is_file() else None


def _seen(file: Path) -> dict[str, Any]:
    try:
        about = file.stat()
        return {
            "path": str(file.absolute()),
            "bytes": about.st_size,
            "mtime_ns": about.st_mtime_ns,
            "sha256": _digest(file),
        }
    except OSError as error:
        raise LoadError(file.name, f"cannot be read: {error.strerror}") from None


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _is_as_it_was(seen: dict[str, Any]) -> bool:
    """Compare size and time of change, and the bytes where only the time differs."""
    file = Path(seen["path"])
    try:
        about = file.stat()
        if about.st_size != seen["bytes"]:
            return False
        return bool(about.st_mtime_ns == seen["mtime_ns"] or _digest(file) == seen["sha256"])
    except OSError:  # gone, or not permitted any more
        return False


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".data-", delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def _built(files: Sequence[Path], path: Path) -> tuple[TableInfo, ...]:
    """Load files into a new database, and put it in place."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".data-") as work:
        new = Path(work, "data.duckdb")
        of_table: dict[str, str] = {}
        with closing(_opened(new)):
            pass  # without sources it is a database without tables
        for file in files:
            reader = reader_of(file)
            if reader is None:
                raise LoadError(file.name, f"is of no known kind: {', '.join(READERS)}; texts also as .gz")
            if not file.stat().st_size:
                raise LoadError(file.name, "is empty")
            _load(file, reader, new, Path(work), of_table)
        with closing(_opened(new)) as connection:
            tables = tuple(_info(connection, name, source) for name, source in of_table.items())
        new.replace(path)
    return tables


def _opened(path: Path) -> "DuckDBPyConnection":
    """Open a database to be written; extensions are not looked for, least of all in the network."""
    import duckdb

    return duckdb.connect(path, config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})


def _load(file: Path, reader: Reader, new: Path, work: Path, of_table: dict[str, str]) -> None:
    """Load the tables of one file, and note whose they are."""
    import duckdb

    link = work / f"source{reader.suffix}"  # DuckDB reads a pattern out of a file's own name, or an address
    link.unlink(missing_ok=True)
    link.symlink_to(file.absolute())
    stem = identifier(file.name.lower().removesuffix(reader.suffix))
    with closing(_opened(new)) as connection:
        try:
            for name, source in reader.tables(connection, link, stem):
                own = identifier(name)
                table = unique(own, of_table, instead="" if own == stem else f"{stem}_{own}")
                connection.execute(f'CREATE TABLE "{table}" AS {source}')
                of_table[table] = file.name
        except (duckdb.Error, sqlite3.Error) as error:
            raise LoadError(file.name, _told(error, link, file)) from None


def _told(error: Exception, link: Path, file: Path) -> str:
    """Give DuckDB's message in one line, with the file's own name."""
    text = " ".join(str(error).replace(str(link), file.name).split())
    return text if len(text) <= 500 else text[:500] + "\N{HORIZONTAL ELLIPSIS}"  # noqa: PLR2004


def _info(connection: "DuckDBPyConnection", name: str, source: str) -> TableInfo:
    columns = connection.execute(f'DESCRIBE "{name}"').fetchall()
    count = connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0]  # noqa: S608  # names are ours, or quoted; the rest was parsed as one query
    return TableInfo(name, tuple((column[0], column[1]) for column in columns), count, source)
