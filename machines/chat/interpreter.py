"""The interpreter: a model's Python code on the latest table, in the sandbox.

It takes code and a table, and returns a `PythonResult` (printed output, value, files) or raises a `ToolError`. Every call has a process and a folder
of its own; only the libraries stay loaded between calls. Nothing from the sandbox is trusted: a report is accepted as a whole or not at all, and names and
contents of files are checked. HTML and SVG may contain scripts; display them without running any.
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
from dsa.errors import ToolError, install_hint
from machines.tool_use.records import parse_json

_MOST_CODE = 100_000  # a syntax tree needs about a hundred times the memory of its text
_MOST_CODE_LINE = 200
_UNREADABLE = "the code has characters that are not allowed in source files"


def is_empty(code: str) -> bool:
    """Return whether there is no code: nothing, white space, or comments."""
    return all(not line.strip() or line.strip().startswith("#") for line in code.splitlines())


def normal_code(code: str) -> str:
    """Return a text for comparisons: equal for code that differs only in comments, blank lines, indentation or quotes.

    A text that is not Python equals only itself, apart from white space around it.
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


def compiles(code: str) -> str | None:
    """Return the syntax error in one line, with the number of the line if it is known, or None when there is no error."""
    if len(code) > _MOST_CODE:
        return f"the code is too long: {len(code)} characters; write at most {_MOST_CODE}"
    if "\0" in code:
        return _UNREADABLE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape is not a syntax error
            compile(code, "<code>", "exec", dont_inherit=True)
    except SyntaxError as error:
        lines = code.splitlines()
        at = error.lineno if error.lineno and error.lineno <= len(lines) else None
        line = lines[at - 1].strip()[:_MOST_CODE_LINE] if at else ""
        return (f"line {at}: " if at else "") + error.msg + (f": {line}" if line else "")
    except ValueError:  # a lone surrogate
        return _UNREADABLE
    except (RecursionError, MemoryError):
        return "the code is nested too deep"
    return None


#: The codes of its errors, with explanations.
CODES = {
    "python_error": "The code raised an exception.",
    "python_syntax_error": "The code is empty, or is not valid Python.",
    "python_timeout": "The code reached its limit of time or processor time.",
    "python_memory": "The code reached its limit of memory.",
    "python_killed": "The process ended before the code was finished: the code ended it, it crashed, or a signal killed it.",
    "too_many_files": "The code left too many files.",
    "files_too_large": "The code's files are too large in total.",
    "bad_file": "The code left something that cannot be stored: a link, a device, or a file whose content does not match its name.",
    "bad_table": "The table cannot become a DataFrame.",
    "bad_result": "The sandbox did not return a valid report.",
    "no_sandbox": "This machine cannot confine code as required; nothing was run.",
    "not_installed": "A package for the code is not installed; nothing was run.",
}


MOST_FILES = 20
MOST_BYTES = 8 * 1024 * 1024
_MOST_NAME = 80
_READ = 1024  # characters at the start of a text that determine its kind

#: The first bytes of files, by kind.
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"), (b"%PDF-", "pdf"), (b"PAR1", "parquet"),
    (b"ARROW1", "feather"), (b"\x93NUMPY", "npy"), (b"SQLite format 3\0", "sqlite"), (b"\x1f\x8b", "gz"), (b"PK\x03\x04", "zip"),
)  # fmt: skip
#: Endings with the same meaning, and kinds that are zip archives.
_SAME = {
    "jpeg": "jpg", "htm": "html", "text": "txt", "arrow": "feather", "db": "sqlite", "yml": "yaml", "ndjson": "jsonl",
}  # fmt: skip
_ZIP_KINDS = {"xlsx", "npz", "zip", "ods", "docx", "pptx"}
_TEXTS = {
    "csv", "tsv", "json", "jsonl", "txt", "md", "html", "svg", "xml", "yaml", "toml", "ini", "log", "py", "sql", "tex", "dot",
}  # fmt: skip
_BINARIES = {kind for _, kind in _MAGIC} | _ZIP_KINDS | {"webp"}
_SVG = re.compile(r"\A\ufeff?(?:\s|<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>)*+<svg[\s>]", re.DOTALL)
_HINT = "write CSV, JSON, text, PNG, PDF or SVG, with a matching name"


@attrs.frozen
class MadeFile:
    """A file that code left in its working folder. `name` has only letters, digits and `._-`, at most 80 characters.

    `kind` is a word like csv, png, pdf, svg, json, txt, html: the kind of the content, as far as the content and the name show it.
    """

    name: str
    kind: str
    content: bytes = attrs.field(repr=False)


def files_from(entries: Iterable[tuple[str, bytes]]) -> tuple[MadeFile, ...]:
    """Return files for paths in the working folder and bytes, sorted by name. Raises ToolError (bad_file)."""
    files: dict[str, MadeFile] = {}
    for path, content in entries:
        name = safe_name(path)
        if name in files:
            raise ToolError(
                f"two files would have the name '{name}': use names that differ in letters and digits", code="bad_file"
            )
        files[name] = MadeFile(name, kind_of(name, content), content)
    return tuple(files[name] for name in sorted(files))


def safe_name(path: str) -> str:
    """Return the name for a path in the working folder: `/` and everything but letters, digits and `._-` becomes `_`."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", path) if not unicodedata.combining(each))
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9._-]", "_", plain)).lstrip("._-") or "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix) >= _MOST_NAME // 2:
        return plain[:_MOST_NAME]
    return f"{stem[: _MOST_NAME - len(suffix) - 1]}.{suffix}"


def kind_of(name: str, content: bytes) -> str:
    """Return the kind of a file. Raises ToolError (bad_file) when the content does not match the name, or is of an unknown kind."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    ending = _SAME.get(ending, ending)
    magic = _by_magic(content)
    if ending in _BINARIES:
        if magic == ending or (magic == "zip" and ending in _ZIP_KINDS):
            return ending
        roughly = "empty" if not content else "bytes of an unknown kind" if _text_of(content) is None else "text"
        raise _bad_file(name, f"is not {ending}: its content is {magic or roughly}")
    if magic:
        if ending in _TEXTS:
            raise _bad_file(name, f"is not {ending}: its content is {magic}")
        return magic
    text = _text_of(content)
    if text is None:
        raise _bad_file(name, f"contains bytes of an unknown kind; {_HINT}")
    return _kind_of_text(name, ending, text)


def _by_magic(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _MAGIC if content.startswith(start)), "")


def _kind_of_text(name: str, ending: str, text: str) -> str:
    if ending == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad_file(name, f"is not JSON: {str(error)[:100]}") from error
    if ending == "svg" and not _SVG.match(text[:_READ]):
        raise _bad_file(name, "is not SVG")
    return ending if ending in _TEXTS else "txt"


def _text_of(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _bad_file(name: str, why: str) -> ToolError:
    return ToolError(f"the file '{name}' {why}", code="bad_file")


_MOST_VALUE, _MOST_MESSAGE, _MOST_LINE = 4_000, 600, 160
_ENDS_S = 0.5  # the kernel counts a little less than the limit
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CUT = "\n[.. output cut ..]\n"
_HINTS = {
    "ModuleNotFoundError": "Nothing can be installed; use numpy, pandas, matplotlib and Python's standard library.",
    "FileNotFoundError": "The code can only read files that it wrote into its working folder; the data is in LATEST_SQL_RESULT.",
    "PermissionError": "The code can write only in its working folder, and has no network.",
    "EOFError": "There is no input for input().",
}


@attrs.frozen
class PythonResult:
    """The result of code. `output` is what it printed (beginning and end, if long), `value` its last expression as text.

    `seconds` is the duration of the call; `rung` and `features` say how it was confined.
    """

    output: str
    value: str
    files: tuple[MadeFile, ...]
    seconds: float
    rung: str
    features: frozenset[str]


@attrs.frozen
class _CallInput:
    """The input of a call, as this side knows it."""

    code: str
    columns: tuple[str, ...]


@attrs.frozen
class _ChildReport:
    """A report of the right form: exit status, the last message of the code's process, and the files as path, kind of entry, size."""

    status: int
    message: str
    files: tuple[tuple[str, str, int], ...]


def read_outcome(outcome: SandboxOutcome, bounds: Bounds, code: str, columns: Sequence[str] = ()) -> PythonResult:
    """Return the result of a call; `columns` are the table's. Raises ToolError with the printed output."""
    output = output_of(outcome, bounds)
    try:
        _require_end(outcome, bounds)
        claim, content = _claim(outcome.results)
        value = _value(claim, outcome, bounds, _CallInput(code, tuple(columns)))
        files = _files(claim, content)
    except ToolError as error:
        error.about |= {"output": output} if output else {}
        raise
    return PythonResult(output, value, files, outcome.seconds, outcome.rung, outcome.features)


def output_of(outcome: SandboxOutcome, bounds: Bounds) -> str:
    """Return the printed output: all of it, or its beginning and end with a mark between them."""
    if len(outcome.tail) < bounds.output_bytes:
        return clean_text(outcome.output + outcome.tail)
    return clean_text(outcome.output).rstrip("\n") + _CUT + clean_text(outcome.tail)


def clean_text(text: bytes | str) -> str:
    """Return text without control characters, and without the paths of this installation."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text.encode("utf-8", "replace").decode()
    plain = _CONTROL.sub("", plain.replace("\r\n", "\n").replace("\r", "\n"))
    for path in _own_paths():
        plain = plain.replace(f"{path}/", "")
    return plain


@functools.cache
def _own_paths() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    real = [str(Path(path).resolve()) for path in paths]
    return tuple(sorted({*paths, *real}, key=lambda path: (-len(path), path)))


# --- the end of a call ---


def _require_end(outcome: SandboxOutcome, bounds: Bounds) -> None:
    """Raise ToolError for a call that ended before its report."""
    if outcome.end == "timeout":
        raise ToolError(f"The code did not finish within {bounds.timeout_s:g} s.", code="python_timeout")
    if outcome.end == "flooded":
        raise ToolError("The process that ran the code sent back too much data.", code="bad_result")
    if outcome.end == "signalled":
        raise _kill_error(outcome.code, outcome, bounds)
    if outcome.end == "lost":
        raise ToolError("The code's process was lost.", code="python_killed")


def _kill_error(number: int, outcome: SandboxOutcome, bounds: Bounds) -> ToolError:
    if number in (signal.SIGXCPU, signal.SIGKILL) and outcome.cpu_s > bounds.cpu_s - _ENDS_S:
        return ToolError(f"The code used more than {bounds.cpu_s} s of processor time.", code="python_timeout")
    names = {each.value: each.name for each in signal.Signals}
    why = ", perhaps because it used too much memory" if number == signal.SIGKILL else ": it crashed, or killed itself"
    return ToolError(f"The code's process was killed ({names.get(number, number)}){why}.", code="python_killed")


# --- the report ---


def _claim(results: bytes) -> tuple[_ChildReport, bytes]:
    """Return the report in the first line, and the bytes after it. Raises ToolError (bad_result)."""
    head, end, content = results.partition(b"\n")
    match parse_json(head):
        case {"status": int(status), "said": str(message), "files": [*entries], **rest} if end and not rest:
            files = tuple(_entry(each) for each in entries)
            return _ChildReport(status, message, files), content
    raise ToolError("The sandbox did not return a report.", code="bad_result")


def _entry(entry: object) -> tuple[str, str, int]:
    match entry:
        case [str(path), str(what), int(size)] if path and size >= 0 and not isinstance(size, bool):
            return path, what, size
    raise ToolError("The sandbox returned an invalid list of files.", code="bad_result")


def _value(claim: _ChildReport, outcome: SandboxOutcome, bounds: Bounds, call: "_CallInput") -> str:
    """Return the value. Raises ToolError for an error that the process reports, or when it reports nothing."""
    if claim.status < 0:
        raise _kill_error(-claim.status, outcome, bounds)
    if not claim.message:
        raise ToolError(
            f"The code ended its own process (exit status {claim.status}) before it was finished.", code="python_killed"
        )
    match parse_json(claim.message):
        case {"value": str(value), "error": None, "fault": ""}:
            text = clean_text(value)
            return text if len(text) < _MOST_VALUE else text[:_MOST_VALUE] + " [.. cut ..]"
        case {"fault": str(fault)} if fault:
            raise ToolError(clean_text(fault)[:_MOST_MESSAGE], code="bad_table")
        case {"error": {"types": [str(name), *more], "message": str(message), "places": [*places]}}:
            raise _exception([name, *map(str, more)], message, places, call)
    raise ToolError("The code wrote into the channel that is reserved for the report.", code="bad_result")


def _exception(types: list[str], message: str, places: list[Any], call: "_CallInput") -> ToolError:
    """Return the exception, its places in the code, and a hint. Only line numbers come from the report; the lines are our own."""
    lines = call.code.splitlines()
    places_text = []
    for place in places:
        match place:
            case [int(at), str(function)] if 1 <= at <= len(lines):
                inside = f", in {clean_text(function)[:_MOST_LINE]}" if function != "<module>" else ""
                places_text.append(f"  line {at}{inside}: {clean_text(lines[at - 1]).strip()[:_MOST_LINE]}")
    explanation = _clip(clean_text(message).strip(), _MOST_MESSAGE)
    name = clean_text(types[0])[:_MOST_LINE]
    hint = _hint(types, explanation, call.columns)
    text = "\n".join([f"{name}: {explanation}" if explanation else name, *places_text, *([hint] if hint else [])])
    return ToolError(text, code="python_memory" if "MemoryError" in types else "python_error")


def _hint(types: list[str], message: str, columns: Sequence[str]) -> str:
    if types[0] == "KeyError" and columns:
        return f"The columns of LATEST_SQL_RESULT are: {_clip(', '.join(columns), _MOST_MESSAGE)}"
    if types[0] == "NameError" and ("'df'" in message or "'LATEST_SQL_RESULT'" in message):
        return "No table exists yet: run a SQL query first."
    return next((_HINTS[name] for name in types if name in _HINTS), "")


def _files(claim: _ChildReport, content: bytes) -> tuple[MadeFile, ...]:
    """Return the files, cut from the content by size. Raises ToolError."""
    sizes = [size for _, _, size in claim.files]
    if len(sizes) > MOST_FILES:
        raise ToolError(f"The code left more than {MOST_FILES} files in its working folder.", code="too_many_files")
    if sum(sizes) > MOST_BYTES:
        raise ToolError(f"The code's files are larger than {MOST_BYTES >> 20} MB in total.", code="files_too_large")
    if sum(sizes) != len(content):
        raise ToolError("The sandbox did not return the files that it lists.", code="bad_result")
    for path, what, _ in claim.files:
        if what != "file":
            text = f"'{_clip(clean_text(path), _MOST_LINE)}' in the working folder is {_clip(clean_text(what), _MOST_LINE)}"
            raise ToolError(f"{text}, which cannot be stored.", code="bad_file")
    contents, at = [], 0
    for (path, _, _), size in zip(claim.files, sizes, strict=True):
        contents.append((path, content[at : at + size]))
        at += size
    return files_from(contents)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} .."


# --- running code ---

#: The required confinement: without it the code could reach files, network, environment and processes of this machine.
REQUIRED_FEATURES = ("no files outside", "no network", "no environments", "own processes")
_PACKAGES = ("numpy", "pandas", "matplotlib")
_LONGEST_S = 600.0
_SPARE_BYTES = 256 * 1024  # of a report, besides the files
#: numpy, pandas and matplotlib need 0.3 GB of address space; 1.7 GB are for the data: a table has at most 8 MB.
_MEMORY_BYTES = 2 << 30
#: The disk of a call, which is in memory. It is larger than the stored files may be, so that files that are too large are reported by their size.
_DISK_BYTES = 64 << 20
_OUTPUT_BYTES = 4 * 1024
_PROCESSES = 16


@attrs.frozen
class FrameSource:
    """A table for the code: names, DuckDB types (BIGINT, DECIMAL(18,3), ..), and CSV in UTF-8 with a header.

    An empty cell is null, a cell of two quotes is an empty text. Raises ValueError for columns without types, and for bytes that are not UTF-8.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    csv: bytes = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        """Raise ValueError here; inside the sandbox the fault would look like the code's."""
        if len(self.columns) != len(self.types):
            raise ValueError(f"there are {len(self.columns)} columns, but {len(self.types)} types")
        self.csv.decode("utf-8")


class Interpreter:
    """An interpreter that runs code in the sandbox. Threads may share it.

    By default the code cannot reach files, network, environment and processes of this machine; a machine that cannot ensure this runs nothing.
    The code has `pd`, `np` and `plt`, and with a table `LATEST_SQL_RESULT` and its copy `df`. Files in the working folder belong to the result. Figures
    that are open at the end or at `plt.show()`, and not saved, become `figure_1.png` and so on. Equal calls give equal bytes: dates in files,
    hashes of texts and unseeded random numbers (`random`, `np.random`) are the same in every call; the clock and an unseeded
    `np.random.default_rng()` are not.
    """

    def __init__(self, confinement: Confinement | None = None) -> None:
        self.confinement = confinement or Confinement(REQUIRED_FEATURES)

    def warm(self) -> None:
        """Start the process that forks calls, with the libraries loaded. Raises what `run` raises."""
        self.run("None")

    def run(self, code: str, table: FrameSource | None = None, *, timeout_s: float = 30.0) -> PythonResult:
        """Run code on a table, and return the result. Blocks for at most `timeout_s` and some seconds.

        Raises ToolError with a `code` of CODES, and ValueError for an invalid time limit.
        """
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(
                f"timeout_s = {timeout_s:g} is not a valid time limit: use more than 0 s and at most {_LONGEST_S:g} s"
            )
        if is_empty(code):
            raise ToolError("There is no code: the text is empty, or has only comments.", code="python_syntax_error")
        if fault := compiles(code):
            raise ToolError(f"SyntaxError: {fault}", code="python_syntax_error")
        bounds = _bounds(timeout_s)
        try:
            outcome = run_confined(_program(), _payload(code, table), bounds, self.confinement)
        except SandboxError as error:
            raise ToolError(f"Nothing was run: {error}", code="no_sandbox") from error
        return read_outcome(outcome, bounds, code, table.columns if table else ())


def _bounds(timeout_s: float) -> Bounds:
    """Return the limits of a call. Processor time is limited for each process: to the time limit, and at least a second."""
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
    table_data = table and {"columns": table.columns, "types": table.types, "csv": table.csv.decode("utf-8")}
    limits = {"most_files": MOST_FILES, "most_bytes": MOST_BYTES}
    return json.dumps({"code": code, "table": table_data, **limits})


@functools.cache
def _program() -> SandboxProgram:
    """Return the program for the sandbox, with the folders of the packages."""
    specs = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    if missing := [name for name, spec in specs.items() if spec is None or spec.origin is None]:
        why = f"{', '.join(missing)} is not installed: {install_hint('chat')}"
        raise ToolError(f"Nothing was run: {why}", code="not_installed")
    folders = {str(Path(str(spec.origin)).resolve().parent.parent): None for spec in specs.values() if spec}
    text = Path(__file__).with_name("python_child.py").read_text(encoding="utf-8")
    return SandboxProgram(text, (), tuple(folders), f"{text}\nprepare()\nrehearse()\n", hash_seed=0)
