"""Read what came out of a call, believing none of it, and say what it means.

Takes an outcome of the sandbox, gives a `PythonResult` or raises a `PythonError`. Whatever is not a report of ours from its first byte
to its last is refused as a whole.
"""

import functools
import re
import signal
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox import Bounds, Outcome
from machines.chat.python.errors import PythonError
from machines.chat.python.files import MOST_BYTES, MOST_FILES, MadeFile, made
from machines.tool_use.json_values import parse_json

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
class _Given:
    """What the call was about: this side's own copy."""

    code: str
    columns: tuple[str, ...]


@attrs.frozen
class _Claim:
    """A report that has our form: exit status, what the code's process said, and the files as path, what, size."""

    status: int
    said: str
    files: tuple[tuple[str, str, int], ...]


def read(outcome: Outcome, bounds: Bounds, code: str, columns: Sequence[str] = ()) -> PythonResult:
    """Give the result; `columns` are the table's. Raises PythonError, with what was printed, where there is none."""
    output = printed(outcome, bounds)
    try:
        _stopped(outcome, bounds)
        claim, content = _claim(outcome.results)
        value = _said(claim, outcome, bounds, _Given(code, tuple(columns)))
        files = _files(claim, content)
    except PythonError as error:
        error.output = output
        raise
    return PythonResult(output, value, files, outcome.seconds, outcome.rung, outcome.features)


def printed(outcome: Outcome, bounds: Bounds) -> str:
    """Give what was printed: all of it, or its beginning and end with a mark between them."""
    if len(outcome.tail) < bounds.output_bytes:
        return cleaned(outcome.output + outcome.tail)
    return cleaned(outcome.output).rstrip("\n") + _CUT + cleaned(outcome.tail)


def cleaned(text: bytes | str) -> str:
    """Give text that does nothing to a terminal, without the paths of this installation."""
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


def _stopped(outcome: Outcome, bounds: Bounds) -> None:
    """Raise for a call that did not come to its report."""
    if outcome.ended == "timeout":
        raise PythonError("python_timeout", f"The code did not finish within {bounds.timeout_s:g} s.")
    if outcome.ended == "flooded":
        raise PythonError("bad_result", "The code's process reported more than can be kept.")
    if outcome.ended == "signalled":
        raise _killed(outcome.code, outcome, bounds)
    if outcome.ended == "lost":
        raise PythonError("python_killed", "The code's process was lost.")


def _killed(number: int, outcome: Outcome, bounds: Bounds) -> PythonError:
    if number in (signal.SIGXCPU, signal.SIGKILL) and outcome.cpu_s > bounds.cpu_s - _ENDS_S:
        return PythonError("python_timeout", f"The code used more than {bounds.cpu_s} s of processor time.")
    names = {each.value: each.name for each in signal.Signals}
    why = ", perhaps for using too much memory" if number == signal.SIGKILL else ", by a crash or by itself"
    return PythonError("python_killed", f"The code's process was killed ({names.get(number, number)}){why}.")


# -- what was reported ------------------------------------------------------------------------------------------------


def _claim(results: bytes) -> tuple[_Claim, bytes]:
    """Give the first line and what follows it, or raise."""
    head, end, content = results.partition(b"\n")
    match parse_json(head):
        case {"status": int(status), "said": str(said), "files": [*listed], **rest} if end and not rest:
            files = tuple(_listed(each) for each in listed)
            return _Claim(status, said, files), content
    raise PythonError("bad_result", "What came back is no report of a run.")


def _listed(entry: object) -> tuple[str, str, int]:
    match entry:
        case [str(path), str(what), int(size)] if path and size >= 0 and not isinstance(size, bool):
            return path, what, size
    raise PythonError("bad_result", "What came back lists files in a way that we do not.")


def _said(claim: _Claim, outcome: Outcome, bounds: Bounds, given: "_Given") -> str:
    """Give the value; raise for what the code's process says went wrong, or for its saying nothing."""
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


def _raised(types: list[str], message: str, places: list[Any], given: "_Given") -> PythonError:
    """Say what was raised, where in the code, and what may help. Only line numbers are taken from what is claimed, not lines."""
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


def _files(claim: _Claim, content: bytes) -> tuple[MadeFile, ...]:
    """Give the files, cut out of the content by their sizes, or raise."""
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
