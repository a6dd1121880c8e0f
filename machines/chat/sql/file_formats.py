"""How each kind of data file is read: as one table, or as all the tables that it has.

A reader takes a connection and a file, and gives the tables of the file, each with the way to the SELECT that reads it. Whether a text file is read whole is looked at line by line: DuckDB finds delimiter and
header by itself, and leaves out lines that do not suit what it has found.
"""

import csv
import gzip
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Context, Decimal
from functools import partial
from itertools import islice, permutations
from pathlib import Path
from typing import IO, TYPE_CHECKING

import attrs

from machines.chat.sql.query import LoadError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DELIMITERS = ",;\t|"
_LOOKED_AT = 65_536
_SNIFFED_TIMES = ("DATE", "TIME")
_DATE_PART = re.compile("%[dmyY]")
_FIRST_ROWS = 2_048
_SURE_DIGITS = 15  # a float keeps them
_MOST_DIGITS = 38  # of DuckDB's decimals
_LONGEST_FLOAT = 1_100  # digits of a float before and behind the point


def require_rows(connection: "DuckDBPyConnection", file: Path, text: str, delimiter: str = "") -> None:
    """Refuse a file of which DuckDB would leave lines out, or take all cells for one.

    `text` is the file's name as SQL has it, `delimiter` what it is to be. Raises LoadError, and DuckDB's errors.
    """
    name = file.resolve().name
    _require_utf8(file, name)
    options = f", delim = '{delimiter}'" if delimiter else ""
    asked = f"SELECT Delimiter, SkipRows, Columns FROM sniff_csv({text}, sample_size = -1{options})"  # noqa: S608  # quoted
    (found,) = connection.execute(asked).fetchall()
    separator, skipped, columns = found[0], found[1], [column["name"] for column in found[2]]
    if len(columns) == 1:
        wanted = next((each for each in _DELIMITERS if each in columns[0]), "")
        if wanted:
            _require_alike(file, name, wanted)
    elif skipped and any(separator in line for line in _lines(file, skipped)):
        _require_alike(file, name, separator)
        told = "line 1 is to name the columns, each line to have as many cells"
        raise LoadError(name, f"its first {skipped} lines do not suit the others: {told}")


def _require_utf8(file: Path, name: str) -> None:
    """Say of a file in another encoding how it becomes one that can be read."""
    begun = _begun(file)
    if begun.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LoadError(name, "is UTF-16, and is to be UTF-8: iconv -f utf-16 -t utf-8 FILE > NEW")
    if b"\0" in begun:
        raise LoadError(name, "is no text")
    try:
        begun.decode()
    except UnicodeDecodeError as error:
        if len(begun) < _LOOKED_AT or error.end < len(begun) - 4:  # else it is cut in the middle of a character
            line = begun.count(b"\n", 0, error.start) + 1
            raise LoadError(
                name, f"is not UTF-8 in line {line}: iconv -f latin1 -t utf-8 FILE > NEW, if it is Latin-1"
            ) from None


def _require_alike(file: Path, name: str, delimiter: str) -> None:
    """Name the first line that has another number of cells than the first one."""
    first: int | None = None
    with _opened(file) as opened:
        rows = csv.reader(opened, delimiter=delimiter)
        for cells in rows:
            if not cells:
                continue
            if first is None:
                first = len(cells)
            elif len(cells) != first:
                hint = f"quote a cell that has '{delimiter}' in it, or give each line as many cells"
                told = f"line {rows.line_num} has {_cells(len(cells))}, line 1 has {_cells(first)}"
                raise LoadError(name, f"{told}; nothing was loaded: {hint}")


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _lines(file: Path, count: int) -> Iterator[str]:
    with _opened(file) as opened:
        yield from islice(opened, count)


def _opened(file: Path) -> IO[str]:
    """Open a text, also one that is packed."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return file.open(encoding="utf-8-sig", errors="replace", newline="")


def _begun(file: Path) -> bytes:
    """Return the first bytes of a text, also of one that is packed."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        return opened.read(_LOOKED_AT)


@attrs.frozen
class TableSource:
    """A table to be loaded: its name, what it is in its file (`view sales`; empty where the file is one table), and what gives the SELECT that reads it."""

    name: str
    what: str
    select: Callable[[], str]


Tables = Iterator[TableSource]
MOST_FILES = 1_000
_TIMES = (("DATETIME", "TIMESTAMP"), ("TIMESTAMP", "TIMESTAMP"), ("DATE", "DATE"))  # as SQLite's tables declare them
_NULL = "\x02NULL"  # stands in no text that people write


@attrs.frozen
class Reader:
    """How files of a kind are read. `suffix` is what a link to such a file ends with, so that DuckDB knows a .gz."""

    suffix: str
    tables: Callable[["DuckDBPyConnection", Path, str], Tables]


def files_of(sources: Sequence[Path]) -> list[Path]:
    """Return the files: of a folder those of known kinds, sorted, hidden ones left out. Raises LoadError."""
    found: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = sorted(
                path
                for path in source.iterdir()
                if path.is_file() and not path.name.startswith(".") and reader_of(path)
            )
            if not inside:
                raise LoadError(source, f"is a folder without data files: {', '.join(READERS)}")
            found += inside
        elif source.is_file():
            found.append(source)
        else:
            raise LoadError(source, "is not there" if not source.exists() else "is no file and no folder")
    if len(found) > MOST_FILES:
        raise LoadError(sources[0], f"{len(found):,} files are too many; at most {MOST_FILES:,} are loaded")
    return list(dict.fromkeys(found))


def reader_of(file: Path) -> Reader | None:
    """Return how a file is read, by the end of its name, or by its first bytes where a `.db` can be of two kinds."""
    name = file.name.lower()
    packed = ".gz" if name.endswith(".gz") else ""
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in READERS or (packed and ending not in _PACKABLE):
        return None
    if READERS[ending] in (_sqlite, _duckdb):
        with file.open("rb") as opened:
            is_sqlite = opened.read(16).startswith(b"SQLite format 3")
        return Reader(ending, _sqlite if is_sqlite else _duckdb)
    return Reader(ending + packed, READERS[ending])


def _one(call: str) -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    def tables(_: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        yield TableSource(name, "", lambda: f"SELECT * FROM {call.format(_text(str(link)))}")  # noqa: S608  # quoted

    return tables


def _objects(options: str = "") -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    """Read JSON; whole numbers that a DOUBLE would change are decimals or texts."""

    def tables(connection: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        def select() -> str:
            read = f"{_text(str(link))}{options}"
            described = connection.execute(f"DESCRIBE FROM read_json({read}, sample_size = -1)").fetchall()
            types = {column[0]: column[1] for column in described}
            doubles = [column for column, kind in types.items() if kind == "DOUBLE"]
            texts = _struct(types | dict.fromkeys(doubles, "VARCHAR"))
            exact = _exact_types(connection, f"read_json({read}, columns = {texts})", doubles) if doubles else {}
            as_written = f"columns = {_struct(types | exact)}" if exact else "sample_size = -1"
            return f"FROM read_json({read}, {as_written})"

        yield TableSource(name, "", select)

    return tables


def _rows(delimiter: str = "") -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    """Read a text of rows, once it is known that none would be left out."""
    options = f", delim = '{delimiter}'" if delimiter else ""

    def tables(connection: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        def select() -> str:
            text = _text(str(link))
            require_rows(connection, link, text, delimiter)
            types = _types_as_written(connection, f"{text}, sample_size = -1{options}")
            return f"SELECT * FROM read_csv({text}, sample_size = -1{options}{types})"  # noqa: S608  # quoted

        yield TableSource(name, "", select)

    return tables


def _types_as_written(connection: "DuckDBPyConnection", read: str) -> str:
    """Return the option that reads columns otherwise than DuckDB would where its type says something else than the file.

    Dates written in two ways, or whose day may be their month, are texts: which is which the file does not say. Numbers with more digits than a
    DOUBLE holds are decimals, or texts where they have too many digits for that.
    """
    formats = "DateFormat, TimestampFormat, Columns"
    ((dates, times, columns),) = _select(connection, formats, f"sniff_csv({read})").fetchall()
    kinds = {column["name"]: str(column["type"]) for column in columns}
    types = {
        name: "VARCHAR"
        for name, kind in kinds.items()
        if kind.startswith(_SNIFFED_TIMES)
        and _is_doubtful(connection, read, name, (dates if kind == "DATE" else times) or "")
    }
    doubles = [name for name, kind in kinds.items() if kind == "DOUBLE"]
    if doubles:
        texts = _struct(dict.fromkeys(doubles, "VARCHAR") | types)
        types |= _exact_types(connection, f"read_csv({read}, types = {texts})", doubles)
    return f", types = {_struct(types)}" if types else ""


def _is_doubtful(connection: "DuckDBPyConnection", read: str, name: str, order: str) -> bool:
    """Return whether a column of dates has some that are not written in the order that was found, or could all be read in another one, as other days."""
    import duckdb

    cell = _name(name)
    try:
        _select(connection, f"count({cell})", f"read_csv({read})").fetchall()
    except duckdb.ConversionException:
        return True
    source = f"read_csv({read}, types = {_struct({name: 'VARCHAR'})})"
    for other in map(_text, _other_orders(order)):
        read_so, read_first = f"try_strptime({cell}, {other})", f"try_strptime({cell}, {_text(order)})"
        fits, differs = f"count({read_so}) = count({cell})", f"coalesce(bool_or({read_so} <> {read_first}), false)"
        if not _select(connection, fits, f"(FROM {source} LIMIT {_FIRST_ROWS})").fetchall()[0][0]:
            continue  # most often the first rows say which is the day
        if _select(connection, f"{fits} AND {differs}", source).fetchall()[0][0]:
            return True
    return False


def _other_orders(order: str) -> list[str]:
    """Return the other orders of day, month and year that people write; none where four digits of a year come first."""
    parts = tuple(_DATE_PART.findall(order))
    if sorted(parts) == ["%Y", "%d", "%m"] and parts[-1] == "%Y":
        others = [(parts[1], parts[0], "%Y")]
    elif sorted(parts) == ["%d", "%m", "%y"]:
        others = [each for each in permutations(parts) if each != parts]
    else:
        return []
    return [_reordered(order, each) for each in others]


def _reordered(order: str, parts: Sequence[str]) -> str:
    left = iter(parts)
    return _DATE_PART.sub(lambda _: next(left), order)


def _exact_types(connection: "DuckDBPyConnection", source: str, names: Sequence[str]) -> dict[str, str]:
    """Return the types of those columns, read as texts, that have numbers which a DOUBLE changes."""
    longer = [_is_longer(_name(name)) for name in names]
    suspects = dict(zip(names, longer, strict=True))
    asked = ", ".join(f"coalesce(bool_or({each}), false)" for each in longer)
    (found,) = _select(connection, asked, source).fetchall()
    types = {}
    for name in (name for name, is_suspect in zip(names, found, strict=True) if is_suspect):
        cells = _select(connection, _name(name), f"{source} WHERE {suspects[name]}")
        if any(_is_changed(cell) for rows in iter(partial(cells.fetchmany, 10_000), []) for (cell,) in rows):
            types[name] = _decimal(connection, source, _name(name))
    return types


def _is_longer(column: str) -> str:
    """Return the SQL that tells whether a cell has digits which its float, as it is shown, has not; what costs little is asked first."""
    shown = f"TRY_CAST({column} AS DOUBLE)::VARCHAR"
    differs = f"{_digits(column)} <> {_digits(shown)}"
    return f"CASE WHEN strlen({column}) <= {_SURE_DIGITS} OR {shown} = {column} THEN false ELSE {differs} END"


def _digits(text: str) -> str:
    """Return the SQL for the digits of a number that count, without those of its exponent."""
    return f"trim(regexp_replace(split_part(lower({text}), 'e', 1), '[^0-9]', '', 'g'), '0')"


def _is_changed(cell: str) -> bool:
    """Return whether a number is another one as a float, to the last digit that is written: some programs write floats with more digits than they have."""
    written = Decimal(cell.strip())
    return Decimal(float(written)).quantize(written, context=Context(prec=len(cell) + _LONGEST_FLOAT)) != written


def _decimal(connection: "DuckDBPyConnection", source: str, column: str) -> str:
    """Return the decimal type that holds each number of a column of texts, VARCHAR where none does."""
    plain = f"regexp_full_match(trim({column}), '[+-]?(\\d+\\.?\\d*|\\.\\d+)')"
    whole, fraction = (
        f"coalesce(max(length(regexp_extract({column}, '{each}', 1))), 0)" for each in (r"(\d+)", r"\.(\d*)")
    )
    ((is_plain, before, behind),) = _select(connection, f"bool_and({plain}), {whole}, {fraction}", source).fetchall()
    return f"DECIMAL({before + behind},{behind})" if is_plain and before + behind <= _MOST_DIGITS else "VARCHAR"


def _select(connection: "DuckDBPyConnection", what: str, source: str) -> "DuckDBPyConnection":
    """Ask for something of a source."""
    return connection.execute(f"SELECT {what} FROM {source}")  # noqa: S608  # names and texts are quoted


def _struct(types: Mapping[str, str]) -> str:
    """Return the SQL for columns with their types."""
    return f"{{{', '.join(f'{_text(name)}: {_text(kind)}' for name, kind in types.items())}}}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _duckdb(connection: "DuckDBPyConnection", link: Path, _: str) -> Tables:
    """Return all tables and views of a DuckDB file; views are read with no other file in reach."""
    connection.execute(f"ATTACH {_text(str(link))} AS source_file (READ_ONLY)")
    connection.execute("SET enable_external_access = false")
    asked = "SELECT schema_name, {0}_name FROM duckdb_{0}s() WHERE database_name = 'source_file' AND NOT internal ORDER BY ALL"
    for kind in ("table", "view"):
        for schema, name in connection.execute(asked.format(kind)).fetchall():
            given = name if schema == "main" else f"{schema}_{name}"
            select = f"SELECT * FROM source_file.{_name(schema)}.{_name(name)}"  # noqa: S608  # quoted
            yield TableSource(given, f"{kind} {given}", partial(str, select))


def _sqlite(connection: "DuckDBPyConnection", link: Path, _: str) -> Tables:
    """Return all tables of a SQLite file, read with Python's sqlite3: DuckDB's own reader is an extension from the network."""
    asked = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    with closing(sqlite3.connect(f"{link.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        for number, (kind, name) in enumerate(database.execute(asked).fetchall()):
            path = link.parent / f"table{number}.csv"
            yield TableSource(name, f"{kind} {name}", partial(_through_csv, connection, database, name, path))


def _through_csv(connection: "DuckDBPyConnection", database: sqlite3.Connection, name: str, path: Path) -> str:
    """Write a table of SQLite as a CSV of texts; return the SELECT that reads it with the types that its values have."""
    columns = [
        (row[1], row[2].upper()) for row in database.execute(f"PRAGMA table_xinfo({_name(name)})") if row[6] != 1
    ]
    kinds = ", ".join(f"group_concat(DISTINCT typeof({_name(column)}))" for column, _ in columns)
    found = database.execute(f"SELECT {kinds} FROM {_name(name)}").fetchone()  # noqa: S608  # quoted
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        names = ", ".join(_name(column) for column, _ in columns)
        for row in database.execute(f"SELECT {names} FROM {_name(name)}"):  # noqa: S608  # quoted
            writer.writerow([_cell(value) for value in row])
    texts = "{" + ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(columns))) + "}"
    options = f"header = false, auto_detect = false, columns = {texts}, delim = ',', quote = '\"', escape = '\"', max_line_size = 100000000"
    source = f"read_csv({_text(str(path))}, nullstr = {_text(_NULL)}, {options})"
    typed = [
        _typed(connection, source, f"c{number}", set((kind or "").split(",")) - {"null", ""}, declared)
        for number, ((_, declared), kind) in enumerate(zip(columns, found, strict=True))
    ]
    read = ", ".join(f"{cell} AS {_name(column)}" for cell, (column, _) in zip(typed, columns, strict=True))
    return f"SELECT {read} FROM {source}"  # noqa: S608  # quoted


def _cell(value: float | str | bytes | None) -> str:
    if value is None:
        return _NULL
    return value.hex() if isinstance(value, bytes) else repr(value) if isinstance(value, float) else str(value)


def _typed(connection: "DuckDBPyConnection", source: str, column: str, kinds: set[str], declared: str) -> str:
    """Return the SQL of a column in the type of its values; texts declared as dates or times become such, if all of them can."""
    if kinds == {"integer"}:
        return f"{column}::BOOLEAN" if declared.startswith("BOOL") else f"{column}::BIGINT"
    if kinds and kinds <= {"integer", "real"}:
        return f"{column}::{_exact_types(connection, source, [column]).get(column, 'DOUBLE')}"
    if kinds == {"blob"}:
        return f"unhex({column})"
    time = next((kind for word, kind in _TIMES if word in declared), None)
    if kinds == {"text"} and time:
        asked = f"SELECT count({column}) = count(TRY_CAST({column} AS {time})) FROM {source}"  # noqa: S608  # ours
        return f"{column}::{time}" if connection.execute(asked).fetchall()[0][0] else column
    return column


#: Ends of names, and how such files are read.
READERS: dict[str, Callable[["DuckDBPyConnection", Path, str], Tables]] = {
    ".csv": _rows(),
    ".tsv": _rows("\t"),
    ".parquet": _one("read_parquet({})"),
    ".json": _objects(),
    ".ndjson": _objects(", format = 'newline_delimited'"),
    ".jsonl": _objects(", format = 'newline_delimited'"),
    ".sqlite": _sqlite,
    ".sqlite3": _sqlite,
    ".db": _sqlite,
    ".duckdb": _duckdb,
    ".ddb": _duckdb,
}
_PACKABLE = {".csv", ".tsv", ".json", ".ndjson", ".jsonl"}
