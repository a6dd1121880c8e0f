"""Whether a text file of rows is read whole: DuckDB finds delimiter and header by itself, and leaves lines out that do not suit what it has found.

Takes a file and what DuckDB would do with it, raises LoadError where lines would be lost, with the line that does not suit. It mends nothing.
"""

import csv
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from machines.chat.sql.errors import LoadError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DELIMITERS = ",;\t|"
_LOOKED_AT = 65_536


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
    """Give the first bytes of a text, also of one that is packed."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        return opened.read(_LOOKED_AT)
