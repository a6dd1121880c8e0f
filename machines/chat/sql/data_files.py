"""Data files become the tables of one DuckDB file, built beside it and put in place when it is whole.

Takes files and folders of files, gives a `Copy`. What is loaded is recorded in `data.json`: names, sizes and times of the sources, and the
tables. A view of a file may be any computation, without an end too, so a process of its own loads (`building`), within limits; it is ended at a
limit and at Ctrl-C, and what it has written is removed.
"""

import hashlib
import json
import math
import os
import select
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import attrs

from dsa.errors import install_hint
from machines.chat.sql.file_formats import files_of
from machines.chat.sql.query import LoadError, json_of, records, started, texts

_BUILD = "from machines.chat.sql.table_builder import serve; serve()"
_RECORD, _WORK = "data.json", ".data-"
_LOOK_AGAIN_S, _PIECE_BYTES, _MOST_SHOWN = 0.1, 1 << 16, 120
SECONDS, GIGABYTES, MEMORY_GB = 300.0, 4.0, 2
#: What sets other limits.
SECONDS_VARIABLE, GIGABYTES_VARIABLE = "DSA_LOAD_S", "DSA_LOAD_GB"


@attrs.frozen
class LoadLimits:
    """What loading all files together may take: seconds, and gigabytes (of 10^9 bytes) on the disk meanwhile."""

    seconds: float = SECONDS
    gigabytes: float = GIGABYTES

    @classmethod
    def of_environment(cls) -> Self:
        """Return those of DSA_LOAD_S and DSA_LOAD_GB. Raises LoadError for what is not a number above 0."""
        return cls(_number(SECONDS_VARIABLE, SECONDS), _number(GIGABYTES_VARIABLE, GIGABYTES))


def _number(variable: str, usual: float) -> float:
    said = os.environ.get(variable, "")
    try:
        number = float(said) if said else usual
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise LoadError(variable, f"'{said}' is not a number above 0; it is {usual:g} when unset")
    return number


def _pairs(given: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in given)


@attrs.frozen
class TableInfo:
    """A table: its name, the names and DuckDB types of its columns, its rows, and the name of the file that it is from."""

    name: str
    columns: tuple[tuple[str, str], ...] = attrs.field(converter=_pairs)
    row_count: int
    source: str


@attrs.frozen
class LoadedFile:
    """A file as it was when it was loaded."""

    path: str
    bytes: int
    mtime_ns: int
    sha256: str

    @property
    def is_as_it_was(self) -> bool:
        """Compare size and time of change, and the bytes where only the time differs."""
        file = Path(self.path)
        try:
            about = file.stat()
            if about.st_size != self.bytes:
                return False
            return about.st_mtime_ns == self.mtime_ns or digest_of(file) == self.sha256
        except OSError:  # gone, or not permitted any more
            return False


def _tables(given: Iterable[TableInfo]) -> tuple[TableInfo, ...]:
    return records(TableInfo, given)


def _sources(given: Iterable[LoadedFile]) -> tuple[LoadedFile, ...]:
    return records(LoadedFile, given)


@attrs.frozen
class Build:
    """What the process that loads has built: a DuckDB file in its folder, with these tables of these files."""

    data: str
    tables: tuple[TableInfo, ...] = attrs.field(converter=_tables)
    files: tuple[LoadedFile, ...] = attrs.field(converter=_sources)


@attrs.frozen
class LoadProgress:
    """What is read now: a file, and what of it."""

    at: tuple[str, str]


@attrs.frozen
class LoadFault:
    """A file that cannot be loaded, and why."""

    fault: tuple[str, str]


@attrs.frozen
class _Record:
    """What stands in `data.json`: the DuckDB file, the digest, the sources as they were named, and what was built of which files."""

    data: str
    digest: str
    sources: tuple[str, ...] = attrs.field(converter=texts)
    files: tuple[LoadedFile, ...] = attrs.field(converter=_sources)
    tables: tuple[TableInfo, ...] = attrs.field(converter=_tables)


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
    """Return the folder's copy if it is of these sources, or none are named; else load them. Raises LoadError, also without DuckDB and at a limit."""
    if find_spec("duckdb") is None:
        raise LoadError("DuckDB", f"it reads the data, and is not installed; run: {install_hint('chat')}")
    folder.mkdir(parents=True, exist_ok=True)
    named = tuple(str(source.absolute()) for source in sources)
    record = _recorded(folder)
    if record is not None and named in ((), record.sources):
        changed = tuple(source.path for source in record.files if not source.is_as_it_was)
        return Copy(folder / record.data, record.digest, record.tables, changed)
    try:
        path, digest, build = _loaded_anew(files_of(sources), folder)
    except BaseException:
        with suppress(OSError):  # something else lies in it
            folder.rmdir()
        raise
    record = _Record(path.name, digest, named, build.files, build.tables)
    _write(folder / _RECORD, json_of(record, indent=1))
    return Copy(path, digest, build.tables)


def _loaded_anew(files: Sequence[Path], folder: Path) -> tuple[Path, str, Build]:
    """Load files; return the database, the digest, and what was built."""
    for left in folder.glob(f"{_WORK}*"):  # of a process that was killed while it loaded
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_WORK) as work:
        build = _built(files, Path(work), LoadLimits.of_environment())
        named = [(Path(source.path).name, source.sha256) for source in build.files]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
        path = folder / f"data-{digest[:32]}.duckdb"
        Path(work, build.data).replace(path)
    return path, digest, build


def _recorded(folder: Path) -> _Record | None:
    """Return what was loaded into a folder, if it is still there."""
    if not (folder / _RECORD).is_file():
        return None
    record = _Record(**json.loads((folder / _RECORD).read_bytes()))
    return record if (folder / record.data).is_file() else None


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_WORK, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


# -- the process that loads -------------------------------------------------------------------------------------------


def _built(files: Sequence[Path], work: Path, limits: LoadLimits) -> Build:
    """Have files loaded into a database in a folder; give its name there, its tables, and what the files were like. Raises LoadError."""
    with tempfile.TemporaryFile() as complaints:
        process = started(_BUILD, work, complaints)
        assert process.stdin is not None
        assert process.stdout is not None
        place = ""
        try:
            process.stdin.write(json.dumps([str(file.absolute()) for file in files]).encode() + b"\n")
            process.stdin.flush()
            for said in _said(process.stdout.fileno(), work, limits):
                if isinstance(said, Build):
                    return said
                if isinstance(said, LoadFault):
                    raise LoadError(*said.fault)
                place = " ".join(filter(None, said.at))
        except _LimitError as limit:
            raise LoadError(_shown(place), f"{limit}. Nothing was loaded: leave it out, or {limit.instead}") from None
        finally:
            process.kill()
            code = process.wait()
            process.stdout.close()
            with suppress(BrokenPipeError):  # it was ended before it had read all of it
                process.stdin.close()
        if code > 0:  # not a signal: a fault of ours, or of the installation
            complaints.seek(0)
            raise RuntimeError(f"the process that loads data failed: {complaints.read().decode(errors='replace')}")
    raise LoadError(_shown(place), f"DuckDB broke down over it (exit code {code}). Nothing was loaded: leave it out")


def _shown(place: str) -> str:
    return place if len(place) <= _MOST_SHOWN else f"{place[:_MOST_SHOWN]}\N{HORIZONTAL ELLIPSIS}"


class _LimitError(Exception):
    """Raised at a limit; `instead` says what sets a higher one."""

    def __init__(self, text: str, instead: str) -> None:
        self.instead = instead
        super().__init__(text)


def _said(file: int, work: Path, limits: LoadLimits) -> Iterator[LoadProgress | LoadFault | Build]:
    """Yield what the process says, line by line, until it ends. Raises _LimitError."""
    waiting, deadline, begun = select.poll(), time.monotonic() + limits.seconds, b""
    waiting.register(file, select.POLLIN)
    while True:
        if time.monotonic() >= deadline:
            text = f"was still being loaded after {limits.seconds:g} s, the limit"
            raise _LimitError(text, f"set {SECONDS_VARIABLE} to more seconds")
        if _size_bytes(work) > limits.gigabytes * 10**9:
            text = f"takes more than {limits.gigabytes:g} GB on the disk, the limit, to be loaded"
            raise _LimitError(text, f"set {GIGABYTES_VARIABLE} to more gigabytes")
        if not waiting.poll(_LOOK_AGAIN_S * 1000):
            continue
        piece = os.read(file, _PIECE_BYTES)
        if not piece:
            return
        *lines, begun = (begun + piece).split(b"\n")
        yield from map(_read, lines)


def _read(line: bytes) -> LoadProgress | LoadFault | Build:
    said = json.loads(line)
    if "at" in said:
        return LoadProgress(**said)
    return LoadFault(**said) if "fault" in said else Build(**said)


def _size_bytes(folder: Path) -> int:
    """Return how much of the disk the files of a folder take; one that is removed meanwhile counts as nothing."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.lstat().st_blocks * 512
    return size
