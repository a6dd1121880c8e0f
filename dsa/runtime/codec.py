"""Frozen classes as JSON and back: for each class, what is the same in all its values is worked out once.

Takes attrs classes and how fields of theirs are written that JSON writes in another way; gives functions that write and read their values.
It knows none of them.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import attrs

from dsa.runtime.json_text import quoted, text_of

#: How a field is written, by its converter; those of other converters, and of none, are JSON as they are.
AsJson = Mapping[Any, Callable[[Any], Any]]
#: What most values are, and what writes these quickest.
_TEXTS: dict[type, Callable[[Any], str]] = {
    str: quoted,
    int: int.__repr__,
    type(None): lambda _: "null",
    dict: lambda each: text_of(each) if each else "{}",
    tuple: lambda each: text_of(each) if each else "[]",
}


def object_of(value: Any, kind: str, as_json: AsJson) -> dict[str, Any]:  # noqa: ANN401  (of any attrs class)
    """Give a value as a JSON object whose `kind` says what it is."""
    written: dict[str, Any] = {"kind": kind}
    for field in attrs.fields(type(value)):
        content, convert = getattr(value, field.name), as_json.get(field.converter)
        written[field.name] = convert(content) if convert else content
    return written


def line_writer(cls: type[Any], kind: str, as_json: AsJson) -> Callable[[Any], str]:
    """Return a function that writes values of a class as one line of JSON, without the fields that have their default."""
    fields, text_for = attrs.fields(cls), _TEXTS.get
    required = [field for field in fields if field.default is attrs.NOTHING]
    values = attrgetter(*(field.name for field in fields))
    count = len(required)
    template = ",".join([f'{{"kind":"{kind}"', *(f'"{field.name}":%s' for field in required)])
    first = [(place, as_json[field.converter]) for place, field in enumerate(required) if field.converter in as_json]
    others = [(f',"{field.name}":', _default(field), as_json.get(field.converter)) for field in fields[count:]]

    def write(value: Any) -> str:  # noqa: ANN401  (of this class)
        given = [*values(value)] if count + len(others) > 1 else [values(value)]
        for place, shape in first:
            given[place] = shape(given[place])
        text = template % tuple([text_for(type(each), text_of)(each) for each in given[:count]])
        for (slot, default, convert), each in zip(others, given[count:], strict=True):
            if each is not default and (each != default or type(each) is not type(default)):
                content = each if convert is None else convert(each)
                text += slot + text_for(type(content), text_of)(content)
        return text + "}"

    return write


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
