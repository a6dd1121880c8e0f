"""Run a model's Python over the latest table, in the sandbox.

Takes code and a table, gives what it printed, its value and the files that it left. Every call has a process and a folder of its own; nothing
is kept between calls but the libraries, which are loaded once.
"""

import functools
import importlib.util
import json
import math
from pathlib import Path

import attrs

from dsa.edge.sandbox import Bounds, Confinement, Program, SandboxError, run_confined
from dsa.errors import install_hint
from machines.chat.python.code import is_empty, syntax_fault
from machines.chat.python.errors import PythonError
from machines.chat.python.files import MOST_BYTES, MOST_FILES
from machines.chat.python.report import PythonResult, read

#: Without these the code could reach files, network, environment and processes of this machine.
REQUIRED = ("no files outside", "no network", "no environments", "own processes")
_PACKAGES = ("numpy", "pandas", "matplotlib")
_LONGEST_S = 600.0
_SPARE_BYTES = 256 * 1024  # of a report, besides the files
#: Loaded, numpy, pandas and matplotlib take 0.3 GB of address space. That and 1.7 GB for the data: a table has 8 MB at most.
_MEMORY_BYTES = 2 << 30
#: What a call may write in between; it lies in memory. What is too large to keep is then told by size, not by a full disk.
_DISK_BYTES = 64 << 20
_OUTPUT_BYTES = 4 * 1024
_PROCESSES = 16


@attrs.frozen
class FrameSource:
    """A table for the code: names, DuckDB's names of types (BIGINT, DECIMAL(18,3), ..), and CSV in UTF-8 with a line of names first.

    A cell with nothing in it is null, one of two quotes an empty text. ValueError for columns without types, and for bytes that are no UTF-8.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    csv: bytes = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse here what would be told of the code."""
        if len(self.columns) != len(self.types):
            raise ValueError(f"{len(self.columns)} columns have {len(self.types)} types")
        self.csv.decode("utf-8")


class Interpreter:
    """Runs code in the sandbox. Calls may come from several threads.

    By default the code is kept from files, network, environment and processes of this machine; where that cannot be had nothing is run.
    In the code are `pd`, `np`, `plt`, and, with a table, `LATEST_SQL_RESULT` and `df`, a copy of it. Files in the working folder are the result's;
    figures that are still open at the end, or at `plt.show()`, and were not saved, become `figure_1.png` and so on. Equal calls give equal
    bytes: dates in files, hashes of texts, and random numbers that nobody has seeded (`random`, `np.random`) are the same in every call;
    the clock and `np.random.default_rng()` without a seed are not.
    """

    def __init__(self, confinement: Confinement | None = None) -> None:
        self.confinement = confinement or Confinement(REQUIRED)

    def warm(self) -> None:
        """Start the process from which calls are forked, with the libraries loaded. Raises as `run` does."""
        self.run("None")

    def run(self, code: str, table: FrameSource | None = None, *, timeout_s: float = 30.0) -> PythonResult:
        """Run code over a table; give what came out. Blocks for `timeout_s` and some seconds at most.

        Raises PythonError for all that goes wrong, by its `code` (see `errors.CODES`), and ValueError for a time limit that is none.
        """
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: more than 0 s, at most {_LONGEST_S:g} s")
        if is_empty(code):
            raise PythonError("python_syntax_error", "There is no code: nothing, or comments only.")
        if fault := syntax_fault(code):
            raise PythonError("python_syntax_error", f"SyntaxError: {fault[0]}", line=fault[1])
        bounds = _bounds(timeout_s)
        try:
            outcome = run_confined(_program(), _payload(code, table), bounds, self.confinement)
        except SandboxError as error:
            raise PythonError("no_sandbox", f"Nothing was run: {error}") from error
        return read(outcome, bounds, code, table.columns if table else ())


def _bounds(timeout_s: float) -> Bounds:
    """Give what a call may use. Processor time is for each process, so it is as much as the time limit, and no less than a second."""
    return Bounds(
        timeout_s=timeout_s,
        cpu_s=max(1, math.ceil(timeout_s)),
        memory_bytes=_MEMORY_BYTES,
        file_bytes=_DISK_BYTES,
        disk_bytes=_DISK_BYTES,
        processes=_PROCESSES,
        result_bytes=MOST_BYTES + _SPARE_BYTES,
        output_bytes=_OUTPUT_BYTES,
    )


def _payload(code: str, table: FrameSource | None) -> str:
    given = table and {"columns": table.columns, "types": table.types, "csv": table.csv.decode("utf-8")}
    limits = {"most_files": MOST_FILES, "most_bytes": MOST_BYTES}
    return json.dumps({"code": code, "table": given, "prepare": f"{_text('prepare')}\nprepare()\n", **limits})


@functools.cache
def _program() -> Program:
    """Give the program that runs there, with the folders in which the packages are."""
    found = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    if missing := [name for name, spec in found.items() if spec is None or spec.origin is None]:
        why = f"{', '.join(missing)} is not installed: {install_hint('chat')}"
        raise PythonError("not_installed", f"Nothing was run: {why}")
    folders = {str(Path(str(spec.origin)).resolve().parent.parent): None for spec in found.values() if spec}
    text = f"{_text('prepare')}\nprepare()\nrehearse()\n"
    return Program(_text("child"), (), tuple(folders), text, hash_seed=0)


@functools.cache
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
