"""The object that a text of arguments stands for, mended where that is certain.

Takes a text, gives an object and what was mended. What it mends: raw control characters, Python's way of writing, commas
before a closing bracket, one encoding too many. It never closes what is open and never guesses what is missing.
"""

import json
import re
from typing import Any

import attrs

#: Strings (an unclosed one runs to the end, so that each character is looked at once), Python's words, spare commas.
_TOKENS = re.compile(
    r'(?P<double>"(?:[^"\\]|\\.)*+(?:"|\Z))'
    r"|(?P<single>'(?:[^'\\]|\\.)*+(?:'|\Z))"
    r"|\b(?P<word>True|False|None)\b"
    r"|(?P<comma>,(?=\s*+[}\]]))",
    re.DOTALL,
)
_IN_SINGLE = re.compile(r'\\(.)|"', re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_ESCAPES = frozenset('"\\/bfnrtu')


@attrs.frozen
class Reading:
    """What a text says: its value; whether it is JSON at all; what was mended."""

    value: Any
    json: bool = True
    rescues: tuple[str, ...] = ()


_UNREADABLE = Reading(None, json=False)


def read_object(text: str) -> Reading:
    """Read a text as an object; the value is None for all else."""
    reading = read_value(text)
    if isinstance(reading.value, str):
        inner = read_value(reading.value)
        if isinstance(inner.value, dict):
            return Reading(inner.value, rescues=(*reading.rescues, "double_encoded", *inner.rescues))
    return reading if isinstance(reading.value, dict) else attrs.evolve(reading, value=None)


def read_value(text: str) -> Reading:
    """Read a text as JSON of any kind: as it stands, with raw control characters, then rewritten."""
    value = _loaded(text, strict=True)
    if value is not _UNREADABLE:
        return Reading(value)
    value = _loaded(text, strict=False)
    if value is not _UNREADABLE:
        return Reading(value, rescues=("control_characters",))
    rewritten, kinds = _rewritten(text)
    value = _loaded(rewritten, strict=False) if kinds else _UNREADABLE
    return _UNREADABLE if value is _UNREADABLE else Reading(value, rescues=kinds)


def _loaded(text: str, *, strict: bool) -> Any:  # noqa: ANN401  # JSON of any kind
    try:
        return json.loads(text, strict=strict, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # not JSON, a number of thousands of digits, nested too deeply
        return _UNREADABLE


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _rewritten(text: str) -> tuple[str, tuple[str, ...]]:
    """Write a text as JSON where it is Python's, without its spare commas; say which of both it took."""
    kinds: list[str] = []

    def turn(match: re.Match[str]) -> str:
        kind, token = match.lastgroup, match[0]
        if kind == "double":
            return token
        found = "trailing_comma" if kind == "comma" else "python_literal"
        if found not in kinds:
            kinds.append(found)
        return "" if kind == "comma" else _WORDS.get(token) or _as_json_string(token)

    return _TOKENS.sub(turn, text), tuple(kinds)


def _as_json_string(token: str) -> str:
    return '"' + _IN_SINGLE.sub(_escape, token[1:-1]) + '"'


def _escape(match: re.Match[str]) -> str:
    match match[1]:
        case None:
            return '\\"'
        case "'":
            return "'"
        case "x":
            return "\\u00"
        case letter if letter in _JSON_ESCAPES:
            return match[0]
        case letter:
            return "\\\\" + letter


def grown(before: Any, after: Any) -> bool:  # noqa: ANN401  # JSON of any kind
    """Tell whether a value is an earlier one that has gone on: more keys, more items, longer texts."""
    match before, after:
        case dict(), dict():
            return all(key in after and grown(value, after[key]) for key, value in before.items())
        case list(), list():
            return len(before) <= len(after) and all(map(grown, before, after))
        case str(), str():
            return after.startswith(before)
        case _:
            return bool(before is None or (type(before) is type(after) and before == after))
