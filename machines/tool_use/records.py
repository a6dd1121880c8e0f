"""JSON at the edge: records, which are frozen classes, read from the data of events and written as such data.

Whatever has no value of its own is left out, so that ledgers say what there is to say.

JSON values as models write them, and as anybody can be sent them and a ledger can hold them.

Models write objects into texts, and arguments inside arguments; they send numbers beyond every range (1e999), which JSON reads as infinity and cannot
write, and lists in lists, hundreds deep. Pure.

Texts as lines: short ones, and commands as a shell reads them. Pure.
"""

import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

import cattrs

#: An object of JSON whose form somebody else decides: a tool of a server, a provider, a model.
JsonObject = Mapping[str, object]
T = TypeVar("T")

_CONVERTER = cattrs.Converter(omit_if_default=True, prefer_attrib_converters=True)
_CONVERTER.register_structure_hook_func(lambda kind: kind is object or kind == JsonObject, lambda value, _: value)
_CONVERTER.register_unstructure_hook_func(lambda kind: kind is object or kind == JsonObject, lambda value: value)


def read_record(kind: type[T], data: object) -> T:
    """Return a record by its JSON; names that it does not have are left out. Raises ValueError for what is none."""
    try:
        return _CONVERTER.structure(data, kind)
    except cattrs.BaseValidationError as error:
        faults = "; ".join(cattrs.transform_error(error))
        raise ValueError(f"this is no {getattr(kind, '__name__', kind)}: {faults}") from error


def as_data(record: object) -> dict[str, Any]:
    """Return a record as JSON."""
    return cast("dict[str, Any]", _CONVERTER.unstructure(record))


#: How deep lists and objects are nested at most in what is kept of an answer: whoever walks them has a stack.
MOST_NESTED = 50
_NESTING = ("arguments", "args", "input", "parameters", "params", "kwargs")
_DEEPEST = 4


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:  # noqa: ANN401  (JSON)
    """Return what a text says as JSON; None for what is none, and for what is nested too deeply to be read."""
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None


def object_in(value: Any) -> JsonObject | None:  # noqa: ANN401  (JSON)
    """Return an object, also one that is written as a text; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_json(value, strict=False)
    return value if isinstance(value, dict) else None


def list_in(text: str) -> list[Any] | None:
    """Return a list that is written as a text; None for anything else."""
    found = parse_json(text) if text.lstrip().startswith("[") else None
    return found if isinstance(found, list) else None


def unnested(arguments: JsonObject, known: Collection[str], mended: list[str]) -> JsonObject:
    """Return the innermost arguments: those that have a known name, or hold no others. Adds `nested` to what was mended."""
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
    """Return whether JSON can write all numbers of a value, and nothing in it is nested deeper than this."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, list | tuple | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(is_writable(each, deepest - 1) for each in inner)


#: Characters from here on have no escape of two digits.
_FIRST_WIDE = 0x80
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")  # of str.splitlines


def short(text: str, most: int) -> str:
    """Return a text in one line, so long at most."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 2]}.."


def on_one_line(text: str) -> str:
    """Return a text that is one line: names of files and columns may have line ends in them, which stand as escapes."""
    return "".join(_escaped(character) if character in _LINE_ENDS else character for character in text)


def cut(text: str, most: int) -> str:
    """Return a text of which so many characters are kept, with a mark in the middle where some are left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[.. {len(text) - 2 * half:,} characters left out ..]\n{text[-half:]}"


def shell_line(words: Iterable[str]) -> str:
    r"""Write the words of a command as one line that a shell reads as these words; what steers a terminal, or is not seen, as escapes (`$'a\nb'`)."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'" for word in words)


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    number = ord(character)
    return known or (f"\\x{number:02x}" if number < _FIRST_WIDE else f"\\U{number:08x}")
