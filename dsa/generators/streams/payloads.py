"""Calls written as JSON: `{"name": .., "arguments": ..}` and the other ways in which models spell that.

Takes JSON values, gives calls of offered tools. The description of a tool is no call, though it has its name.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from dsa.generators.streams.reading import read_object, read_value
from dsa.generators.streams.result import INVALID, TRUNCATED
from dsa.generators.streams.tools import Tools

_NAME_KEYS = ("name", "tool_name", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params")
_NAMED = re.compile(r'["\'](?:name|tool_name|tool|function)["\']\s*:\s*["\']([^"\'\s]+)["\']')


@attrs.frozen
class TextCall:
    """A call found in a text; `arguments` is None where `error` says why. `kinds` are the rescues beside the finding."""

    name: str
    arguments: dict[str, Any] | None
    error: str | None = None
    id: str | None = None
    text: str = ""
    kinds: tuple[str, ...] = ()


def calls_in(text: str, tools: Tools, *, bare: bool = False) -> tuple[TextCall, ...] | None:
    """Give the calls that a JSON text is: one, or a list of them; None when it is anything else.

    `bare` says that nothing but its form marks it as a call: then it must have arguments.
    """
    reading = read_value(text)
    if not reading.json:
        return None if bare else _unreadable(text, tools, INVALID)
    value = reading.value
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    found = [_call_of(part, tools, bare=bare) for part in (value if isinstance(value, list) else [value])]
    calls = tuple(attrs.evolve(call, kinds=(*reading.rescues, *call.kinds)) for call in found if call is not None)
    return calls if calls and len(calls) == len(found) else None


def cut_call(text: str, tools: Tools) -> tuple[TextCall, ...] | None:
    """Give the call that a JSON text begins, which ends too early; None when its name was not offered, or not yet said."""
    return _unreadable(text, tools, TRUNCATED)


def call_of_text(name: str, text: str, *, given_id: str | None = None) -> TextCall:
    """Give a call from its name and the text of its arguments."""
    reading = read_object(text)
    error = None if reading.value is not None else INVALID
    return TextCall(name, reading.value, error, given_id, text, reading.rescues)


def _unreadable(text: str, tools: Tools, error: str) -> tuple[TextCall, ...] | None:
    named = _NAMED.search(text)
    return (TextCall(named[1], None, error, text=text),) if named and named[1] in tools else None


def _call_of(value: Any, tools: Tools, *, bare: bool) -> TextCall | None:  # noqa: ANN401  # JSON of any kind
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    if isinstance(inner, Mapping):
        return _call_of({**inner, "id": value.get("id")}, tools, bare=bare)
    name: str | None = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    name = name and tools.meant(name)
    if name is None or name not in tools or _describes(value):
        return None
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if key is None and bare:
        return None
    given_id = value.get("id") if isinstance(value.get("id"), str) and value.get("id") else None
    arguments = value[key] if key is not None else None
    if isinstance(arguments, str) and arguments.strip():
        return call_of_text(name, arguments, given_id=given_id)
    if arguments is None or arguments == "":
        return TextCall(name, {}, id=given_id)
    if isinstance(arguments, dict):
        return TextCall(name, arguments, id=given_id)
    return TextCall(name, None, INVALID, given_id, str(arguments))


def _describes(value: Mapping[str, Any]) -> bool:
    """Tell whether an object is the description of a tool, as requests have it."""
    parameters = value.get("parameters")
    schema = isinstance(parameters, Mapping) and parameters.get("type") == "object" and "properties" in parameters
    return schema or ("description" in value and "parameters" in value)
