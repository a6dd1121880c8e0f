"""Records: frozen classes, read from the JSON data of events and written as such data; with the JSON and the texts that models write. Pure.

Fields with their default values are left out of the data, so ledgers stay short. Models write objects into texts, and arguments inside arguments. They
send numbers that are out of range (1e999), which JSON reads as infinity and cannot write, and lists nested hundreds deep. The functions here accept or
detect all of that. The last ones shorten texts and write commands in the form that a shell reads.
"""

import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

import cattrs

from dsa.text import escape_character

#: The deepest nesting of lists and objects in a recorded answer: code that walks them needs stack for each level.
DEEPEST = 50
_NESTING = ("arguments", "args", "input", "parameters", "params", "kwargs")
_DEEPEST = 4


#: A JSON object whose form others decide: a tool's server, a provider, a model.
JsonObject = Mapping[str, object]
T = TypeVar("T")

_CONVERTER = cattrs.Converter(omit_if_default=True, prefer_attrib_converters=True)
_CONVERTER.register_structure_hook_func(lambda kind: kind is object or kind == JsonObject, lambda value, _: value)
_CONVERTER.register_unstructure_hook_func(lambda kind: kind is object or kind == JsonObject, lambda value: value)


def read_record(kind: type[T], data: object) -> T:
    """Return the record that JSON data holds; unknown names are ignored. Raises ValueError when the data does not fit."""
    try:
        return _CONVERTER.structure(data, kind)
    except cattrs.BaseValidationError as error:
        faults = "; ".join(cattrs.transform_error(error))
        raise ValueError(f"the data is not a valid {getattr(kind, '__name__', kind)}: {faults}") from error


def as_data(record: object) -> dict[str, Any]:
    """Return a record as JSON."""
    return cast("dict[str, Any]", _CONVERTER.unstructure(record))


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:  # noqa: ANN401  (JSON)
    """Return the JSON value of a text, or None when it is not valid JSON or is nested too deep."""
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None


def object_in(value: Any) -> JsonObject | None:  # noqa: ANN401  (JSON)
    """Return an object, or the object that a text holds as JSON, or None."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_json(value, strict=False)
    return value if isinstance(value, dict) else None


def list_in(text: str) -> list[Any] | None:
    """Return the list that a text holds as JSON, or None."""
    value = parse_json(text) if text.lstrip().startswith("[") else None
    return value if isinstance(value, list) else None


def innermost(arguments: JsonObject, names: Collection[str], rescues: list[str]) -> JsonObject:
    """Return the innermost arguments: those with a known name, or with no arguments inside. Adds `nested` to `rescues` for each level."""
    current = dict(arguments)
    for _ in range(_DEEPEST):
        if any(name in current for name in names):
            return current
        inner = next((each for name in _NESTING if (each := object_in(current.get(name))) is not None), None)
        if inner is None:
            return current
        rescues.append("nested")
        current = {**{name: value for name, value in current.items() if name not in _NESTING}, **inner}
    return current


def is_writable(value: Any, deepest: int = DEEPEST) -> bool:  # noqa: ANN401  (JSON)
    """Return whether JSON can write all numbers of a value, and nothing in it is nested deeper than `deepest`."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, list | tuple | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(is_writable(each, deepest - 1) for each in inner)


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 2]}.."


def cut_middle(text: str, most: int) -> str:
    """Return a text of about `most` characters: its beginning and its end, with a mark between them that counts the characters left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[.. {len(text) - 2 * half:,} characters left out ..]\n{text[-half:]}"


def shell_line(words: Iterable[str]) -> str:
    r"""Return a line that a shell reads as these words. Characters that control a terminal or cannot be seen are escaped (`$'a\nb'`)."""
    return " ".join(
        shlex.quote(word) if word.isprintable() else f"$'{''.join(map(escape_character, word))}'" for word in words
    )
