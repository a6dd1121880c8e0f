"""Tell of a model's code whether it is Python, and when two texts are the same code. Nothing is run.

What can go wrong when code of a model is run, as one error with a stable code.

The files that code has made: what they are, by what is in them, and what they are called.

Takes names and bytes that nobody vouches for, gives `MadeFile` or a refusal. HTML and SVG may hold scripts: they are shown without running any.

Read what came out of a call, believing none of it, and say what it means.

Takes an outcome of the sandbox, gives a `PythonResult` or raises a `PythonError`. Whatever is not a report of ours from its first byte
to its last is refused as a whole.

Run a model's Python over the latest table, in the sandbox.

Takes code and a table, gives what it printed, its value and the files that it left. Every call has a process and a folder of its own; nothing
is kept between calls but the libraries, which are loaded once.
"""

import ast
import functools
import importlib.util
import json
import math
import re
import signal
import sysconfig
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox import Bounds, Confinement, SandboxError, SandboxOutcome, SandboxProgram, run_confined
from dsa.errors import DsaError, install_hint
from machines.tool_use.records import parse_json

_MOST_CODE = 100_000  # a syntax tree takes some hundred times the memory of its text
_MOST_CODE_LINE = 200
_UNREADABLE = "the code holds characters that no source file may hold"


def is_empty(code: str) -> bool:
    """Return whether there is no code at all: nothing, white space, comments."""
    return all(not line.strip() or line.strip().startswith("#") for line in code.splitlines())


def compiles(code: str) -> str | None:
    """Return the syntax error in one line, with the number of its line; None when there is none."""
    fault = syntax_fault(code)
    return fault[0] if fault else None


def normal_code(code: str) -> str:
    """Return a text that is equal for code that differs only in how it is written: comments, blank lines, indentation, quotes.

    What is no Python is equal to itself alone, but for white space around it. The text is for comparing, not for reading.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                node.kind = None  # u'' is ''
        return ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def syntax_fault(code: str) -> tuple[str, int | None] | None:
    """Return the syntax error in one line, and the number of its line, from 1, where it has one; None when there is no error."""
    if len(code) > _MOST_CODE:
        return f"the code is too long: {len(code)} characters, and at most {_MOST_CODE} are read", None
    if "\0" in code:
        return _UNREADABLE, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no syntax error
            compile(code, "<code>", "exec", dont_inherit=True)
    except SyntaxError as error:
        lines = code.splitlines()
        at = error.lineno if error.lineno and error.lineno <= len(lines) else None
        line = lines[at - 1].strip()[:_MOST_CODE_LINE] if at else ""
        return (f"line {at}: " if at else "") + error.msg + (f": {line}" if line else ""), at
    except ValueError:  # a lone surrogate
        return _UNREADABLE, None
    except (RecursionError, MemoryError):
        return "the code is nested too deeply to be read", None
    return None


#: Every code, and what it says.
CODES = {
    "python_error": "The code raised an exception.",
    "python_syntax_error": "The code is no Python, or there is none.",
    "python_timeout": "The code used up its time, or its processor time.",
    "python_memory": "The code asked for more memory than it may have.",
    "python_killed": "The code's process ended before the code did: by itself, by a crash, or by a signal.",
    "too_many_files": "The code left more files than are kept.",
    "files_too_large": "The code's files are larger, in all, than what is kept.",
    "bad_file": "The code left something that cannot be kept: a link, a device, a file that is not what its name says.",
    "bad_table": "The table cannot be made into a DataFrame.",
    "bad_result": "What came out of the sandbox is no report of ours.",
    "no_sandbox": "This machine cannot confine code as it must be confined; nothing was run.",
    "not_installed": "A package that the code is promised is not installed; nothing was run.",
}


class PythonError(DsaError):
    """Raised when code gives no result. `code` is one of CODES; the message is for the model that wrote the code.

    `output` is what was printed until then, `line` the line of the code at fault, from 1, where there is one.
    """

    def __init__(self, code: str, message: str, *, output: str = "", line: int | None = None) -> None:
        self.code = code
        self.output = output
        self.line = line
        super().__init__(message)


MOST_FILES = 20
MOST_BYTES = 8 * 1024 * 1024
_MOST_NAME = 80
_READ = 1024  # how far into a text its kind is looked for

#: How files of a kind begin.
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"), (b"%PDF-", "pdf"), (b"PAR1", "parquet"),
    (b"ARROW1", "feather"), (b"\x93NUMPY", "npy"), (b"SQLite format 3\0", "sqlite"), (b"\x1f\x8b", "gz"), (b"PK\x03\x04", "zip"),
)  # fmt: skip
#: Names that say the same, and kinds that are a zip inside.
_SAME = {
    "jpeg": "jpg", "htm": "html", "text": "txt", "arrow": "feather", "db": "sqlite", "yml": "yaml", "ndjson": "jsonl",
}  # fmt: skip
_ZIPPED = {"xlsx", "npz", "zip", "ods", "docx", "pptx"}
_TEXTS = {
    "csv", "tsv", "json", "jsonl", "txt", "md", "html", "svg", "xml", "yaml", "toml", "ini", "log", "py", "sql", "tex", "dot",
}  # fmt: skip
_BINARIES = {kind for _, kind in _MAGIC} | _ZIPPED | {"webp"}
_SVG = re.compile(r"\A\ufeff?(?:\s|<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>)*+<svg[\s>]", re.DOTALL)
_HINT = "write CSV, JSON, text, PNG, PDF or SVG, under a name that says so"


@attrs.frozen
class MadeFile:
    """A file that code has left in its working folder. `name` has letters, digits and `._-` only, at most 80 characters.

    `kind` is a word like csv, png, pdf, svg, json, txt, html: what the content is, as far as that shows in it, and what the name says.
    """

    name: str
    kind: str
    content: bytes = attrs.field(repr=False)


def made(found: Iterable[tuple[str, bytes]]) -> tuple[MadeFile, ...]:
    """Make files of paths in the working folder and bytes, by name. PythonError (bad_file) for one that cannot be kept."""
    files: dict[str, MadeFile] = {}
    for path, content in found:
        name = safe_name(path)
        if name in files:
            raise PythonError(
                "bad_file", f"two files would be called '{name}': give them names that differ in letters and digits"
            )
        files[name] = MadeFile(name, kind_of(name, content), content)
    return tuple(files[name] for name in sorted(files))


def safe_name(path: str) -> str:
    """Return the name for a path in the working folder: folders are joined to it by `_`, what is no letter, digit or `._-` becomes `_`."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", path) if not unicodedata.combining(each))
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9._-]", "_", plain)).lstrip("._-") or "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix) >= _MOST_NAME // 2:
        return plain[:_MOST_NAME]
    return f"{stem[: _MOST_NAME - len(suffix) - 1]}.{suffix}"


def kind_of(name: str, content: bytes) -> str:
    """Return what a file is. PythonError (bad_file) when it is not what its name says, or nothing that is kept."""
    said = name.rpartition(".")[2].lower() if "." in name else ""
    said = _SAME.get(said, said)
    magic = _by_magic(content)
    if said in _BINARIES:
        if magic == said or (magic == "zip" and said in _ZIPPED):
            return said
        roughly = "empty" if not content else "bytes of an unknown kind" if _decoded(content) is None else "text"
        raise _refused(name, f"is no {said}: its content is {magic or roughly}")
    if magic:
        if said in _TEXTS:
            raise _refused(name, f"is no {said}: its content is {magic}")
        return magic
    text = _decoded(content)
    if text is None:
        raise _refused(name, f"holds bytes of an unknown kind; {_HINT}")
    return _kind_of_text(name, said, text)


def _by_magic(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _MAGIC if content.startswith(start)), "")


def _kind_of_text(name: str, said: str, text: str) -> str:
    if said == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _refused(name, f"is no JSON: {str(error)[:100]}") from error
    if said == "svg" and not _SVG.match(text[:_READ]):
        raise _refused(name, "is no SVG")
    return said if said in _TEXTS else "txt"


def _decoded(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _refused(name: str, why: str) -> PythonError:
    return PythonError("bad_file", f"the file '{name}' {why}")


_MOST_VALUE, _MOST_MESSAGE, _MOST_LINE = 4_000, 600, 160
_ENDS_S = 0.5  # the kernel counts a little less than it allowed
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CUT = "\n[.. output cut ..]\n"
_HINTS = {
    "ModuleNotFoundError": "Nothing can be installed: there are numpy, pandas, matplotlib and Python's library.",
    "FileNotFoundError": "The code sees no files but those that it writes into its working folder; the data are in LATEST_SQL_RESULT.",
    "PermissionError": "The code may write in its working folder only, and has no network.",
    "EOFError": "Nobody answers input().",
}


@attrs.frozen
class PythonResult:
    """What code gave. `output` is what it printed (its two ends, where that is much), `value` its last expression as text.

    `seconds` is how long the call took, `rung` and `features` how it was confined.
    """

    output: str
    value: str
    files: tuple[MadeFile, ...]
    seconds: float
    rung: str
    features: frozenset[str]


@attrs.frozen
class _CallInput:
    """What the call was about: this side's own copy."""

    code: str
    columns: tuple[str, ...]


@attrs.frozen
class _ChildReport:
    """A report that has our form: exit status, what the code's process said, and the files as path, what, size."""

    status: int
    said: str
    files: tuple[tuple[str, str, int], ...]


def read(outcome: SandboxOutcome, bounds: Bounds, code: str, columns: Sequence[str] = ()) -> PythonResult:
    """Return the result; `columns` are the table's. Raises PythonError, with what was printed, where there is none."""
    output = printed(outcome, bounds)
    try:
        _stopped(outcome, bounds)
        claim, content = _claim(outcome.results)
        value = _said(claim, outcome, bounds, _CallInput(code, tuple(columns)))
        files = _files(claim, content)
    except PythonError as error:
        error.output = output
        raise
    return PythonResult(output, value, files, outcome.seconds, outcome.rung, outcome.features)


def printed(outcome: SandboxOutcome, bounds: Bounds) -> str:
    """Return what was printed: all of it, or its beginning and end with a mark between them."""
    if len(outcome.tail) < bounds.output_bytes:
        return cleaned(outcome.output + outcome.tail)
    return cleaned(outcome.output).rstrip("\n") + _CUT + cleaned(outcome.tail)


def cleaned(text: bytes | str) -> str:
    """Return text that does nothing to a terminal, without the paths of this installation."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text.encode("utf-8", "replace").decode()
    plain = _CONTROL.sub("", plain.replace("\r\n", "\n").replace("\r", "\n"))
    for path in _own_paths():
        plain = plain.replace(f"{path}/", "")
    return plain


@functools.cache
def _own_paths() -> tuple[str, ...]:
    named = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    real = [str(Path(path).resolve()) for path in named]
    return tuple(sorted({*named, *real}, key=lambda path: (-len(path), path)))


# -- how the call ended -----------------------------------------------------------------------------------------------


def _stopped(outcome: SandboxOutcome, bounds: Bounds) -> None:
    """Raise for a call that did not come to its report."""
    if outcome.ended == "timeout":
        raise PythonError("python_timeout", f"The code did not finish within {bounds.timeout_s:g} s.")
    if outcome.ended == "flooded":
        raise PythonError("bad_result", "The code's process reported more than can be kept.")
    if outcome.ended == "signalled":
        raise _killed(outcome.code, outcome, bounds)
    if outcome.ended == "lost":
        raise PythonError("python_killed", "The code's process was lost.")


def _killed(number: int, outcome: SandboxOutcome, bounds: Bounds) -> PythonError:
    if number in (signal.SIGXCPU, signal.SIGKILL) and outcome.cpu_s > bounds.cpu_s - _ENDS_S:
        return PythonError("python_timeout", f"The code used more than {bounds.cpu_s} s of processor time.")
    names = {each.value: each.name for each in signal.Signals}
    why = ", perhaps for using too much memory" if number == signal.SIGKILL else ", by a crash or by itself"
    return PythonError("python_killed", f"The code's process was killed ({names.get(number, number)}){why}.")


# -- what was reported ------------------------------------------------------------------------------------------------


def _claim(results: bytes) -> tuple[_ChildReport, bytes]:
    """Return the first line and what follows it, or raise."""
    head, end, content = results.partition(b"\n")
    match parse_json(head):
        case {"status": int(status), "said": str(said), "files": [*listed], **rest} if end and not rest:
            files = tuple(_listed(each) for each in listed)
            return _ChildReport(status, said, files), content
    raise PythonError("bad_result", "What came back is no report of a run.")


def _listed(entry: object) -> tuple[str, str, int]:
    match entry:
        case [str(path), str(what), int(size)] if path and size >= 0 and not isinstance(size, bool):
            return path, what, size
    raise PythonError("bad_result", "What came back lists files in a way that we do not.")


def _said(claim: _ChildReport, outcome: SandboxOutcome, bounds: Bounds, given: "_CallInput") -> str:
    """Return the value; raise for what the code's process says went wrong, or for its saying nothing."""
    if claim.status < 0:
        raise _killed(-claim.status, outcome, bounds)
    if not claim.said:
        raise PythonError(
            "python_killed", f"The code ended its own process (exit status {claim.status}) before its end."
        )
    match parse_json(claim.said):
        case {"value": str(value), "error": None, "fault": ""}:
            shown = cleaned(value)
            return shown if len(shown) < _MOST_VALUE else shown[:_MOST_VALUE] + " [.. cut ..]"
        case {"fault": str(fault)} if fault:
            raise PythonError("bad_table", cleaned(fault)[:_MOST_MESSAGE])
        case {"error": {"types": [str(name), *more], "message": str(message), "places": [*places]}}:
            raise _raised([name, *map(str, more)], message, places, given)
    raise PythonError("bad_result", "The code wrote to the channel on which its end is told.")


def _raised(types: list[str], message: str, places: list[Any], given: "_CallInput") -> PythonError:
    """Return what was raised, where in the code, and what may help. Only line numbers are taken from what is claimed, not lines."""
    lines = given.code.splitlines()
    shown, number = [], None
    for place in places:
        match place:
            case [int(at), str(function)] if 1 <= at <= len(lines):
                inside = f", in {cleaned(function)[:_MOST_LINE]}" if function != "<module>" else ""
                shown.append(f"  line {at}{inside}: {cleaned(lines[at - 1]).strip()[:_MOST_LINE]}")
                number = at
    said = _clip(cleaned(message).strip(), _MOST_MESSAGE)
    name = cleaned(types[0])[:_MOST_LINE]
    hint = _hint(types, said, given.columns)
    text = "\n".join([f"{name}: {said}" if said else name, *shown, *([hint] if hint else [])])
    return PythonError("python_memory" if "MemoryError" in types else "python_error", text, line=number)


def _hint(types: list[str], message: str, columns: Sequence[str]) -> str:
    if types[0] == "KeyError" and columns:
        return f"The columns of LATEST_SQL_RESULT are: {_clip(', '.join(columns), _MOST_MESSAGE)}"
    if types[0] == "NameError" and ("'df'" in message or "'LATEST_SQL_RESULT'" in message):
        return "There is no table yet: run a SQL query first."
    return next((_HINTS[name] for name in types if name in _HINTS), "")


def _files(claim: _ChildReport, content: bytes) -> tuple[MadeFile, ...]:
    """Return the files, cut out of the content by their sizes, or raise."""
    sizes = [size for _, _, size in claim.files]
    if len(sizes) > MOST_FILES:
        raise PythonError("too_many_files", f"The code left more than {MOST_FILES} files in its working folder.")
    if sum(sizes) > MOST_BYTES:
        raise PythonError("files_too_large", f"The code's files have more than {MOST_BYTES >> 20} MB in all.")
    if sum(sizes) != len(content):
        raise PythonError("bad_result", "What came back does not hold the files that it lists.")
    for path, what, _ in claim.files:
        if what != "file":
            shown = f"'{_clip(cleaned(path), _MOST_LINE)}' in the working folder is {_clip(cleaned(what), _MOST_LINE)}"
            raise PythonError("bad_file", f"{shown}, which cannot be kept.")
    found, at = [], 0
    for (path, _, _), size in zip(claim.files, sizes, strict=True):
        found.append((path, content[at : at + size]))
        at += size
    return made(found)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} .."


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
        """Run code over a table; return what came out. Blocks for `timeout_s` and some seconds at most.

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
    """Return what a call may use. Processor time is for each process, so it is as much as the time limit, and no less than a second."""
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
    return json.dumps({"code": code, "table": given, "prepare": f"{_child_text('preparation')}\nprepare()\n", **limits})


@functools.cache
def _program() -> SandboxProgram:
    """Return the program that runs there, with the folders in which the packages are."""
    found = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    if missing := [name for name, spec in found.items() if spec is None or spec.origin is None]:
        why = f"{', '.join(missing)} is not installed: {install_hint('chat')}"
        raise PythonError("not_installed", f"Nothing was run: {why}")
    folders = {str(Path(str(spec.origin)).resolve().parent.parent): None for spec in found.values() if spec}
    text = f"{_child_text('preparation')}\nprepare()\nrehearse()\n"
    return SandboxProgram(_child_text("python_child"), (), tuple(folders), text, hash_seed=0)


@functools.cache
def _child_text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
