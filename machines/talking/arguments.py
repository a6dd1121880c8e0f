"""Arguments of calls as models write them: objects in texts, arguments inside arguments. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from machines.talking.texts import parse_json

_NESTING = ("arguments", "args", "input", "parameters", "params", "kwargs")
_DEEPEST = 4


def object_in(value: Any) -> dict[str, Any] | None:  # noqa: ANN401  (JSON)
    """Give an object, also one that is written as a text; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_json(value, strict=False)
    return value if isinstance(value, dict) else None


def list_in(text: str) -> list[Any] | None:
    """Give a list that is written as a text; None for anything else."""
    found = parse_json(text) if text.lstrip().startswith("[") else None
    return found if isinstance(found, list) else None


def unnested(arguments: Mapping[str, Any], known: Collection[str], rescues: list[str]) -> dict[str, Any]:
    """Give the innermost arguments: those that have a known name, or hold no others. Adds `nested` to what was mended."""
    given = dict(arguments)
    for _ in range(_DEEPEST):
        if any(name in given for name in known):
            return given
        inner = next((found for name in _NESTING if (found := object_in(given.get(name))) is not None), None)
        if inner is None:
            return given
        rescues.append("nested")
        given = {**{name: value for name, value in given.items() if name not in _NESTING}, **inner}
    return given
