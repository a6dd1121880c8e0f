"""JSON values as models write them, and as anybody can be sent them and a ledger can hold them.

Models write objects into texts, and arguments inside arguments; they send numbers beyond every range (1e999), which JSON reads as infinity and cannot
write, and lists in lists, hundreds deep. Pure.
"""

import json
import math
from collections.abc import Collection
from typing import Any

from machines.tool_use.records import JsonObject

#: How deep lists and objects are nested at most in what is kept of an answer: whoever walks them has a stack.
MOST_NESTED = 50
_NESTING = ("arguments", "args", "input", "parameters", "params", "kwargs")
_DEEPEST = 4


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:  # noqa: ANN401  (JSON)
    """Give what a text says as JSON; None for what is none, and for what is nested too deeply to be read."""
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None


def object_in(value: Any) -> JsonObject | None:  # noqa: ANN401  (JSON)
    """Give an object, also one that is written as a text; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_json(value, strict=False)
    return value if isinstance(value, dict) else None


def list_in(text: str) -> list[Any] | None:
    """Give a list that is written as a text; None for anything else."""
    found = parse_json(text) if text.lstrip().startswith("[") else None
    return found if isinstance(found, list) else None


def unnested(arguments: JsonObject, known: Collection[str], mended: list[str]) -> JsonObject:
    """Give the innermost arguments: those that have a known name, or hold no others. Adds `nested` to what was mended."""
    given = dict(arguments)
    for _ in range(_DEEPEST):
        if any(name in given for name in known):
            return given
        inner = next((found for name in _NESTING if (found := object_in(given.get(name))) is not None), None)
        if inner is None:
            return given
        mended.append("nested")
        given = {**{name: value for name, value in given.items() if name not in _NESTING}, **inner}
    return given


def is_writable(value: Any, deepest: int = MOST_NESTED) -> bool:  # noqa: ANN401  (JSON)
    """Tell whether JSON can write all numbers of a value, and nothing in it is nested deeper than this."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, list | tuple | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(is_writable(each, deepest - 1) for each in inner)
