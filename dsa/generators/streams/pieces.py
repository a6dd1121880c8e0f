"""One entry of `tool_calls`, read: what it says and in what odd places it says it.

Takes an entry as a provider sends it, gives a `Piece`, or None for one that says nothing. It decides nothing about calls.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

#: What ids and names are when they are none: some servers write the absence down.
_NONE = frozenset({"", "null", "None"})
_KNOWN = frozenset({"index", "id", "type", "function", "name", "arguments"})
_IN_FUNCTION = frozenset({"name", "arguments", "id", "index", "parameters"})
_INDEX_AND_FUNCTION = 2
_MOST_DIGITS = 9
_NOTHING: dict[str, Any] = {}
_NO_KINDS: tuple[str, ...] = ()


class Piece(NamedTuple):
    """What an entry says; None where it says nothing. `kinds` are the rescues that reading it took."""

    place: int | None  # the index
    id: str | None
    name: str | None
    arguments: str | None
    extra: dict[str, Any] = _NOTHING
    kinds: tuple[str, ...] = _NO_KINDS

    @property
    def says_only_extra(self) -> bool:
        """Whether it has nothing but what the provider wants back."""
        return self.id is None and self.name is None and not self.arguments and bool(self.extra)


def read_piece(entry: Mapping[str, Any]) -> Piece | None:
    """Read an entry; None for one that is wholly empty."""
    function = entry.get("function")
    if not isinstance(function, dict):
        function = _NOTHING
    given, index, name = entry.get("id"), entry.get("index"), function.get("name")
    arguments = function.get("arguments")
    plain = type(index) is int and type(arguments) is str
    if plain and len(entry) == _INDEX_AND_FUNCTION and len(function) == 1:  # the usual piece: nothing more to look for
        return Piece(index, None, None, arguments) if arguments else None
    kinds: list[str] = []
    found_id = _text(given)
    if found_id is None and isinstance(given, str) and given:
        kinds.append("null_id")
    if found_id is None and (found_id := _text(function.get("id"))) is not None:
        kinds.append("id_in_function")
    found_index = _number(index)
    if found_index is None and (found_index := _number(function.get("index"))) is not None:
        kinds.append("index_in_function")
    found_name = _text(name) or _text(entry.get("name"))
    text = _argument_text(arguments if arguments is not None else entry.get("arguments"), kinds)
    extra = _others(entry, _KNOWN) if not entry.keys() <= _KNOWN else _NOTHING
    if not function.keys() <= _IN_FUNCTION:
        extra = {**extra, **_others(function, _IN_FUNCTION)}
    if found_id is None and found_name is None and not text and not extra:
        return None
    return Piece(found_index, found_id, found_name, text, extra, tuple(kinds))


def _others(values: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in known and value is not None}


def _text(value: object) -> str | None:
    """Give a text that says something."""
    return value if isinstance(value, str) and value not in _NONE else str(value) if type(value) is int else None


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    return int(str(value)) if digits else None


def _argument_text(arguments: object, kinds: list[str]) -> str | None:
    if arguments is None or isinstance(arguments, str):
        return arguments
    kinds.append("object_arguments")
    return json.dumps(arguments, ensure_ascii=False)
