"""Frozen classes as JSON and back: for each class, what is the same in all its values is worked out once.

Takes attrs classes and how fields of theirs are written that JSON writes in another way; gives functions that write and read their values.
It knows none of them.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from types import NoneType, UnionType
from typing import Any

import attrs

from dsa.runtime.json_text import quoted, text_of

#: How a field is written, by its converter; those of other converters, and of none, are JSON as they are.
AsJson = Mapping[Any, Callable[[Any], Any]]


def object_of(value: Any, kind: str, as_json: AsJson) -> dict[str, Any]:  # noqa: ANN401  (of any attrs class)
    """Give a value as a JSON object whose `kind` says what it is."""
    written: dict[str, Any] = {"kind": kind}
    for field in attrs.fields(type(value)):
        content, convert = getattr(value, field.name), as_json.get(field.converter)
        written[field.name] = convert(content) if convert else content
    return written


def line_writer(cls: type[Any], kind: str, as_json: AsJson) -> Callable[[Any], str]:
    """Return a function that writes values of a class as one line of JSON, without the fields that have their default.

    It is generated, with what is known of each field, as attrs generates the class's `__init__`.
    """
    known: dict[str, Any] = {
        "quoted": quoted,
        "whole": int.__repr__,
        "number": _number,
        "text_of": text_of,
        "null": "null",
    }
    required, others = f'{{{{"kind":"{kind}"', list[str]()
    for place, field in enumerate(attrs.fields(cls)):
        known[f"convert{place}"], known[f"default{place}"] = as_json.get(field.converter), _default(field)
        if field.default is attrs.NOTHING:
            required += f',"{field.name}":{{{_written(field, place, as_json, f"value.{field.name}")}}}'
        else:
            text = f"',\"{field.name}\":' + {_written(field, place, as_json, 'given')}"
            others += [
                f"    given = value.{field.name}",
                f"    if {_is_other(field, place)}:",
                f"        line += {text}",
            ]
    source = "\n".join(["def write(value):", f"    line = f'{required}'", *others, "    return line + '}'"])
    exec(compile(source, f"<writer of {kind}>", "exec"), known)  # noqa: S102  (names of our own classes)
    write: Callable[[Any], str] = known["write"]
    return write


#: The functions that write what most fields are, by their types; the field may be None as well.
_WRITERS: dict[Any, str] = {str: "quoted", int: "whole", float: "number"}


def _written(field: "attrs.Attribute[Any]", place: int, as_json: AsJson, value: str) -> str:
    """Return the expression that writes a field's value."""
    if field.converter in as_json:
        return f"text_of(convert{place}({value}))"
    if isinstance(field.type, UnionType) and NoneType in field.type.__args__:
        others = [each for each in field.type.__args__ if each is not NoneType]
        writer = _WRITERS.get(others[0], "text_of") if len(others) == 1 else "text_of"
        return f"({writer}({value}) if {value} is not None else null)"
    return f"{_WRITERS.get(field.type, 'text_of')}({value})"


def _number(value: float) -> str:
    """Write a number as JSON does; ValueError for one that is not finite."""
    return float.__repr__(value) if type(value) is float and isfinite(value) else text_of(value)


def _is_other(field: "attrs.Attribute[Any]", place: int) -> str:
    """Return the condition under which a value is not the field's default; 0 and 0.0 are not the same."""
    default = _default(field)
    if default is None:
        return "given is not None"
    if default in ("", ()):
        return "given"
    return f"given != default{place} or type(given) is not type(default{place})"


def reader(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that reads values back. Fields may be missing that have a default; TypeError for others, and for strangers."""

    def read(written: Mapping[str, Any]) -> Any:  # noqa: ANN401  (one of this class)
        fields = {**written}
        fields.pop("kind", None)
        return cls(**fields)

    return read


def _default(field: "attrs.Attribute[Any]") -> Any:  # noqa: ANN401  (a field's)
    """Return the value of a field that was not given."""
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]  # a class, whatever its stub says
