"""Frozen classes as JSON and back: for each class, what is the same in all its values is worked out once.

Takes attrs classes and how fields of theirs are written that JSON writes in another way; gives functions that write and read their values.
It knows none of them.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
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
    """Give what writes values as `text_of(object_of(value, kind, as_json))` does, in half the time."""
    fields, text_for = attrs.fields(cls), _TEXTS.get
    slots = ",".join(f'"{field.name}":%s' for field in fields)
    template = f'{{"kind":"{kind}",{slots}}}'
    values = attrgetter(*(field.name for field in fields))
    others = [(place, as_json[field.converter]) for place, field in enumerate(fields) if field.converter in as_json]

    def write(value: Any) -> str:  # noqa: ANN401  (of this class)
        given = [*values(value)]
        for place, convert in others:
            given[place] = convert(given[place])
        return template % tuple([text_for(type(each), text_of)(each) for each in given])

    return write


def reader(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Give what reads values back. Fields may be missing that have a default; TypeError for others, and for strangers."""
    names = [field.name for field in attrs.fields(cls)]
    values, count = itemgetter(*names), len(names) + 1

    def read(written: Mapping[str, Any]) -> Any:  # noqa: ANN401  (one of this class)
        try:
            return cls(*values(written)) if len(written) == count else _by_name(cls, written)
        except KeyError:  # as many fields as there are, but others
            return _by_name(cls, written)

    return read


def _by_name(cls: type[Any], written: Mapping[str, Any]) -> Any:  # noqa: ANN401  (one of this class)
    return cls(**{name: value for name, value in written.items() if name != "kind"})
