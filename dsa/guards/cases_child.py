"""The child's side of `dsa.guards.cases`: load the code, evaluate the calls, report what each gave.

Its text is run by `dsa.edge.sandbox`, in the process that also runs the untrusted code. So it must not import
anything from this package, and must not know an expected value. It reports one JSON list per line: `["loaded"]` or
`["unloadable", text]`; then for each call `[number, "value", literal]`, `[number, "raised", text]` or
`[number, "odd", text]` (not a plain value); then `["end"]`.
"""

import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

_WRITE, _DUMPS = os.write, json.dumps
_WRITERS: dict[type, Callable[[Any], str]] = {
    int: int.__repr__, str: str.__repr__, bytes: bytes.__repr__, bool: bool.__repr__, complex: complex.__repr__, type(None): repr,
    type(...): lambda _: "...",
}  # fmt: skip
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")}
_LARGEST_INT = 10**18  # beyond some thousand digits Python refuses decimal conversion; hexadecimal has no such limit
_LARGEST_SIZE = 50_000
_MOST_TEXT = 200


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `code` and `calls`."""
    job = json.loads(payload)
    module = types.ModuleType("artifact")
    sys.modules["artifact"] = module  # dataclasses and pickle look their module up
    try:
        exec(compile(job["code"], "<artifact>", "exec"), module.__dict__)  # noqa: S102  # what this process is for
    except BaseException as error:  # noqa: BLE001  # SystemExit too
        _report(result_fd, ["unloadable", _explain(error)])
        return
    _report(result_fd, ["loaded"])
    for number, call in enumerate(job["calls"]):
        _report(result_fd, [number, *_evaluate(call, module.__dict__)])
    _report(result_fd, ["end"])


def _evaluate(call: str, namespace: dict[str, object]) -> tuple[str, str]:
    try:
        value = eval(call, namespace)  # noqa: S307  # what this process is for
    except BaseException as error:  # noqa: BLE001  # SystemExit too
        return "raised", _explain(error)
    try:
        return "value", _literal(value)
    except ValueError as odd:
        return "odd", str(odd)
    except BaseException as error:  # noqa: BLE001  # a value too deep or too large
        return "odd", f"a value that cannot be written as a literal ({type(error).__name__})"


def _literal(value: Any) -> str:  # noqa: ANN401  # anything at all
    """Write a plain value as a Python literal, by its exact type: a subclass may lie in its `__repr__`.

    Raises ValueError for any other value: `judge` compares plain values only.
    """
    kind = type(value)
    if kind is int and not -_LARGEST_INT < value < _LARGEST_INT:
        return hex(value)
    if kind is float:
        return _float_literal(value)
    if kind in (str, bytes, list, tuple, set, dict) and len(value) > _LARGEST_SIZE:
        raise ValueError(f"a {kind.__name__} of {len(value)} items, too many to report")
    if kind in _WRITERS:
        return _WRITERS[kind](value)
    if kind is dict:
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if kind in _BRACKETS:
        if kind is set and not value:
            return "set()"
        begin, end = _BRACKETS[kind]
        comma = "," if kind is tuple and len(value) == 1 else ""
        return begin + ", ".join(map(_literal, value)) + comma + end
    raise ValueError(f"an object of type {kind.__name__}, which is not a plain value")


def _float_literal(value: float) -> str:
    if value != value:  # noqa: PLR0124  # only nan differs from itself
        raise ValueError("nan, which equals nothing")
    return float.__repr__(value).replace("inf", "1e999")


def _explain(error: BaseException) -> str:
    """Return the exception's type and message, and the last line of the artifact that it passed through."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  # a message may lie in wait too
        message = ""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<artifact>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == "<artifact>":
        line, message = error.lineno, error.msg
    place = f" (line {line})" if line else ""
    return type(error).__name__ + (f": {message[:_MOST_TEXT]}" if message else "") + place


def _report(result_fd: int, record: list[Any]) -> None:
    line = (_DUMPS(record) + "\n").encode()
    while line:
        line = line[_WRITE(result_fd, line) :]
