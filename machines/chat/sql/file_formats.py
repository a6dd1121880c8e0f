"""File formats: a reader for each kind of data file, which has one table or several.

A reader takes a connection and a file, and yields the tables of the file, each with a function for the SELECT that reads it. Text files are checked
line by line: DuckDB detects delimiter and header by itself, and skips lines that do not fit. Dates and numbers that DuckDB would misread become
texts or decimals.
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

from dsa.text import plural
from machines.chat.sql.query import duckdb_extension, load_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DELIMITERS = ",;\t|"
_FIRST_BYTES = 65_536
_SNIFFED_TIMES = ("DATE", "TIME")
_DATE_PART = re.compile("%[dmyY]")
_FIRST_ROWS = 2_048
_SURE_DIGITS = 15  # a float holds them
_MOST_DIGITS = 38  # of DuckDB's decimals
_LONGEST_FLOAT = 1_100  # digits of a float before and after the point


def require_rows(connection: "DuckDBPyConnection", file: Path, text: str, delimiter: str = "") -> None:
    """Raise DocumentError for a file in which DuckDB would skip lines, or read all cells as one.

    `text` is the file's name as an SQL text, `delimiter` the required one. Raises DuckDB's errors too.
    """
    name = file.resolve().name
    _require_utf8(file, name)
    options = f", delim = '{delimiter}'" if delimiter else ""
    query = f"SELECT Delimiter, SkipRows, Columns FROM sniff_csv({text}, sample_size = -1{options})"  # noqa: S608  # quoted
    (facts,) = connection.execute(query).fetchall()
    separator, skip_count, columns = facts[0], facts[1], [column["name"] for column in facts[2]]
    if len(columns) == 1:
        likely = next((each for each in _DELIMITERS if each in columns[0]), "")
        if likely:
            _require_alike(file, name, likely)
    elif skip_count and any(separator in line for line in _lines(file, skip_count)):
        _require_alike(file, name, separator)
        hint = "line 1 must name the columns, and each line must have the same number of cells"
        raise load_error(name, f"its first {skip_count} lines do not match the others: {hint}")


def _require_utf8(file: Path, name: str) -> None:
    """Raise DocumentError for a file in another encoding, with the command that converts it."""
    start = _first_bytes(file)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise load_error(name, "is UTF-16, but must be UTF-8: run iconv -f utf-16 -t utf-8 FILE > NEW")
    if b"\0" in start:
        raise load_error(name, "is not a text file")
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if len(start) < _FIRST_BYTES or error.end < len(start) - 4:  # otherwise a character is cut off at the end
            line = start.count(b"\n", 0, error.start) + 1
            raise load_error(
                name, f"is not UTF-8 in line {line}; if it is Latin-1, run iconv -f latin1 -t utf-8 FILE > NEW"
            ) from None


def _require_alike(file: Path, name: str, delimiter: str) -> None:
    """Raise DocumentError for the first line with a different number of cells."""
    first: int | None = None
    with _open_text(file) as stream:
        rows = csv.reader(stream, delimiter=delimiter)
        for cells in rows:
            if not cells:
                continue
            if first is None:
                first = len(cells)
            elif len(cells) != first:
                hint = f"quote each cell that contains '{delimiter}', or write the same number of cells in each line"
                text = f"line {rows.line_num} has {plural(len(cells), 'cell')}, line 1 has {plural(first, 'cell')}"
                raise load_error(name, f"{text}; nothing was loaded: {hint}")


def _lines(file: Path, count: int) -> Iterator[str]:
    with _open_text(file) as stream:
        yield from islice(stream, count)


def _open_text(file: Path) -> IO[str]:
    """Open a text file, compressed or not."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return file.open(encoding="utf-8-sig", errors="replace", newline="")


def _first_bytes(file: Path) -> bytes:
    """Return the first bytes of a text file, compressed or not."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        return stream.read(_FIRST_BYTES)


@attrs.frozen
class TableSource:
    """A table to load: its name, its place in the file (`view sales`; empty when the file is one table), and a function that returns its SELECT."""

    name: str
    what: str
    select: Callable[[], str]


Tables = Iterator[TableSource]
MOST_FILES = 1_000
_TIMES = (
    ("DATETIME", "TIMESTAMP"),
    ("TIMESTAMP", "TIMESTAMP"),
    ("DATE", "DATE"),
)  # in the declarations of SQLite's tables
_NULL = "\x02NULL"  # not in any text that people write


@attrs.frozen
class Reader:
    """A reader of a kind of file. `suffix` is the ending for a link to the file, by which DuckDB recognises a .gz."""

    suffix: str
    tables: Callable[["DuckDBPyConnection", Path, str], Tables]


def files_of(sources: Sequence[Path]) -> list[Path]:
    """Return the files of sources. A folder has its files of known kinds, sorted, without hidden ones. Raises DocumentError."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = sorted(
                path
                for path in source.iterdir()
                if path.is_file() and not path.name.startswith(".") and reader_of(path)
            )
            if not inside:
                raise load_error(source, f"is a folder without data files: {', '.join(READERS)}")
            files += inside
        elif source.is_file():
            files.append(source)
        else:
            raise load_error(source, "does not exist" if not source.exists() else "is neither a file nor a folder")
    if len(files) > MOST_FILES:
        raise load_error(sources[0], f"{len(files):,} files are too many; load at most {MOST_FILES:,}")
    return list(dict.fromkeys(files))


def reader_of(file: Path) -> Reader | None:
    """Return the reader of a file, by its ending, or for the databases by its first bytes; None for an unknown kind."""
    name = file.name.lower()
    compression = ".gz" if name.endswith(".gz") else ""
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in READERS or (compression and ending not in _PACKABLE):
        return None
    if READERS[ending] in (_sqlite, _duckdb):
        with file.open("rb") as stream:
            is_sqlite = stream.read(16).startswith(b"SQLite format 3")
        return Reader(ending, _sqlite if is_sqlite else _duckdb)
    return Reader(ending + compression, READERS[ending])


def _one(call: str) -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    def tables(_: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        yield TableSource(name, "", lambda: f"SELECT * FROM {call.format(_text(str(link)))}")  # noqa: S608  # quoted

    return tables


def _objects(options: str = "") -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    """Return a reader of JSON. Numbers that a DOUBLE would change become decimals or texts."""

    def tables(connection: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        def select() -> str:
            arguments = f"{_text(str(link))}{options}"
            description = connection.execute(f"DESCRIBE FROM read_json({arguments}, sample_size = -1)").fetchall()
            types = {column[0]: column[1] for column in description}
            doubles = [column for column, kind in types.items() if kind == "DOUBLE"]
            texts = _struct(types | dict.fromkeys(doubles, "VARCHAR"))
            exact = _exact_types(connection, f"read_json({arguments}, columns = {texts})", doubles) if doubles else {}
            columns_option = f"columns = {_struct(types | exact)}" if exact else "sample_size = -1"
            return f"FROM read_json({arguments}, {columns_option})"

        yield TableSource(name, "", select)

    return tables


def _rows(delimiter: str = "") -> Callable[["DuckDBPyConnection", Path, str], Tables]:
    """Return a reader of rows of text, which first checks that DuckDB skips none."""
    options = f", delim = '{delimiter}'" if delimiter else ""

    def tables(connection: "DuckDBPyConnection", link: Path, name: str) -> Tables:
        def select() -> str:
            text = _text(str(link))
            require_rows(connection, link, text, delimiter)
            types = _types_option(connection, f"{text}, sample_size = -1{options}")
            return f"SELECT * FROM read_csv({text}, sample_size = -1{options}{types})"  # noqa: S608  # quoted

        yield TableSource(name, "", select)

    return tables


def _types_option(connection: "DuckDBPyConnection", arguments: str) -> str:
    """Return the SQL option with types for the columns that DuckDB would misread, or an empty text.

    Dates in two formats, or with an ambiguous order of day and month, become texts. Numbers with more digits than a DOUBLE can hold become decimals,
    or texts when they are too long for that.
    """
    formats = "DateFormat, TimestampFormat, Columns"
    ((dates, times, columns),) = _select(connection, formats, f"sniff_csv({arguments})").fetchall()
    kinds = {column["name"]: str(column["type"]) for column in columns}
    types = {
        name: "VARCHAR"
        for name, kind in kinds.items()
        if kind.startswith(_SNIFFED_TIMES)
        and _is_doubtful(connection, arguments, name, (dates if kind == "DATE" else times) or "")
    }
    doubles = [name for name, kind in kinds.items() if kind == "DOUBLE"]
    if doubles:
        texts = _struct(dict.fromkeys(doubles, "VARCHAR") | types)
        types |= _exact_types(connection, f"read_csv({arguments}, types = {texts})", doubles)
    return f", types = {_struct(types)}" if types else ""


def _is_doubtful(connection: "DuckDBPyConnection", arguments: str, name: str, order: str) -> bool:
    """Return whether a column has dates in a format other than `order`, or all of its dates also fit another order, as other days."""
    duckdb = duckdb_extension()

    cell = _name(name)
    try:
        _select(connection, f"count({cell})", f"read_csv({arguments})").fetchall()
    except duckdb.ConversionException:
        return True
    source = f"read_csv({arguments}, types = {_struct({name: 'VARCHAR'})})"
    for other in map(_text, _other_orders(order)):
        read_so, read_first = f"try_strptime({cell}, {other})", f"try_strptime({cell}, {_text(order)})"
        fits, differs = f"count({read_so}) = count({cell})", f"coalesce(bool_or({read_so} <> {read_first}), false)"
        if not _select(connection, fits, f"(FROM {source} LIMIT {_FIRST_ROWS})").fetchall()[0][0]:
            continue  # usually the first rows decide
        if _select(connection, f"{fits} AND {differs}", source).fetchall()[0][0]:
            return True
    return False


def _other_orders(order: str) -> list[str]:
    """Return the other common orders of day, month and year; none when a year of four digits comes first."""
    parts = tuple(_DATE_PART.findall(order))
    if sorted(parts) == ["%Y", "%d", "%m"] and parts[-1] == "%Y":
        others = [(parts[1], parts[0], "%Y")]
    elif sorted(parts) == ["%d", "%m", "%y"]:
        others = [each for each in permutations(parts) if each != parts]
    else:
        return []
    return [_reorder(order, each) for each in others]


def _reorder(order: str, parts: Sequence[str]) -> str:
    left = iter(parts)
    return _DATE_PART.sub(lambda _: next(left), order)


def _exact_types(connection: "DuckDBPyConnection", source: str, names: Sequence[str]) -> dict[str, str]:
    """Return exact types for the columns, read as texts, with numbers that a DOUBLE would change."""
    longer = [_is_longer(_name(name)) for name in names]
    suspects = dict(zip(names, longer, strict=True))
    conditions = ", ".join(f"coalesce(bool_or({each}), false)" for each in longer)
    (flags,) = _select(connection, conditions, source).fetchall()
    types = {}
    for name in (name for name, is_suspect in zip(names, flags, strict=True) if is_suspect):
        cells = _select(connection, _name(name), f"{source} WHERE {suspects[name]}")
        if any(_is_changed(cell) for rows in iter(partial(cells.fetchmany, 10_000), []) for (cell,) in rows):
            types[name] = _decimal(connection, source, _name(name))
    return types


def _is_longer(column: str) -> str:
    """Return SQL for whether a cell has more digits than its float shows. Cheap conditions come first."""
    float_text = f"TRY_CAST({column} AS DOUBLE)::VARCHAR"
    differs = f"{_digits(column)} <> {_digits(float_text)}"
    return f"CASE WHEN strlen({column}) <= {_SURE_DIGITS} OR {float_text} = {column} THEN false ELSE {differs} END"


def _digits(text: str) -> str:
    """Return SQL for the significant digits of a number."""
    return f"trim(regexp_replace(split_part(lower({text}), 'e', 1), '[^0-9]', '', 'g'), '0')"


def _is_changed(cell: str) -> bool:
    """Return whether a float would change the written digits of a number. Some programs write floats with more digits than floats have."""
    number = Decimal(cell.strip())
    return Decimal(float(number)).quantize(number, context=Context(prec=len(cell) + _LONGEST_FLOAT)) != number


def _decimal(connection: "DuckDBPyConnection", source: str, column: str) -> str:
    """Return the decimal type for all numbers of a column of texts, or VARCHAR when none is large enough."""
    plain = f"regexp_full_match(trim({column}), '[+-]?(\\d+\\.?\\d*|\\.\\d+)')"
    whole, fraction = (
        f"coalesce(max(length(regexp_extract({column}, '{each}', 1))), 0)" for each in (r"(\d+)", r"\.(\d*)")
    )
    ((is_plain, before, behind),) = _select(connection, f"bool_and({plain}), {whole}, {fraction}", source).fetchall()
    return f"DECIMAL({before + behind},{behind})" if is_plain and before + behind <= _MOST_DIGITS else "VARCHAR"


def _select(connection: "DuckDBPyConnection", what: str, source: str) -> "DuckDBPyConnection":
    """Run a SELECT on a source."""
    return connection.execute(f"SELECT {what} FROM {source}")  # noqa: S608  # names and texts are quoted


def _struct(types: Mapping[str, str]) -> str:
    """Return the SQL of columns with their types."""
    return f"{{{', '.join(f'{_text(name)}: {_text(kind)}' for name, kind in types.items())}}}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _duckdb(connection: "DuckDBPyConnection", link: Path, _: str) -> Tables:
    """Yield all tables and views of a DuckDB file; views cannot read any other file."""
    connection.execute(f"ATTACH {_text(str(link))} AS source_file (READ_ONLY)")
    connection.execute("SET enable_external_access = false")
    query = "SELECT schema_name, {0}_name FROM duckdb_{0}s() WHERE database_name = 'source_file' AND NOT internal ORDER BY ALL"
    for kind in ("table", "view"):
        for schema, name in connection.execute(query.format(kind)).fetchall():
            table = name if schema == "main" else f"{schema}_{name}"
            select = f"SELECT * FROM source_file.{_name(schema)}.{_name(name)}"  # noqa: S608  # quoted
            yield TableSource(table, f"{kind} {table}", partial(str, select))


def _sqlite(connection: "DuckDBPyConnection", link: Path, _: str) -> Tables:
    """Yield all tables of a SQLite file. Python's sqlite3 reads them, because DuckDB's own reader is an extension from the network."""
    query = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    with closing(sqlite3.connect(f"{link.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        for number, (kind, name) in enumerate(database.execute(query).fetchall()):
            path = link.parent / f"table{number}.csv"
            yield TableSource(name, f"{kind} {name}", partial(_through_csv, connection, database, name, path))


def _through_csv(connection: "DuckDBPyConnection", database: sqlite3.Connection, name: str, path: Path) -> str:
    """Write a table of SQLite as a CSV of texts; return the SELECT that reads it with the types of its values."""
    columns = [
        (row[1], row[2].upper()) for row in database.execute(f"PRAGMA table_xinfo({_name(name)})") if row[6] != 1
    ]
    kinds = ", ".join(f"group_concat(DISTINCT typeof({_name(column)}))" for column, _ in columns)
    value_kinds = database.execute(f"SELECT {kinds} FROM {_name(name)}").fetchone()  # noqa: S608  # quoted
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        names = ", ".join(_name(column) for column, _ in columns)
        for row in database.execute(f"SELECT {names} FROM {_name(name)}"):  # noqa: S608  # quoted
            writer.writerow([_cell(value) for value in row])
    texts = "{" + ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(columns))) + "}"
    options = f"header = false, auto_detect = false, columns = {texts}, delim = ',', quote = '\"', escape = '\"', max_line_size = 100000000"
    source = f"read_csv({_text(str(path))}, nullstr = {_text(_NULL)}, {options})"
    cells = [
        _typed_column(connection, source, f"c{number}", set((kind or "").split(",")) - {"null", ""}, declaration)
        for number, ((_, declaration), kind) in enumerate(zip(columns, value_kinds, strict=True))
    ]
    selection = ", ".join(f"{cell} AS {_name(column)}" for cell, (column, _) in zip(cells, columns, strict=True))
    return f"SELECT {selection} FROM {source}"  # noqa: S608  # quoted


def _cell(value: float | str | bytes | None) -> str:
    if value is None:
        return _NULL
    return value.hex() if isinstance(value, bytes) else repr(value) if isinstance(value, float) else str(value)


def _typed_column(connection: "DuckDBPyConnection", source: str, column: str, kinds: set[str], declaration: str) -> str:
    """Return the SQL of a column in the type of its values. Texts that are declared as dates or times are converted if all of them can be."""
    if kinds == {"integer"}:
        return f"{column}::BOOLEAN" if declaration.startswith("BOOL") else f"{column}::BIGINT"
    if kinds and kinds <= {"integer", "real"}:
        return f"{column}::{_exact_types(connection, source, [column]).get(column, 'DOUBLE')}"
    if kinds == {"blob"}:
        return f"unhex({column})"
    time = next((kind for word, kind in _TIMES if word in declaration), None)
    if kinds == {"text"} and time:
        query = f"SELECT count({column}) = count(TRY_CAST({column} AS {time})) FROM {source}"  # noqa: S608  # ours
        return f"{column}::{time}" if connection.execute(query).fetchall()[0][0] else column
    return column


#: Readers by the ending of the name.
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
