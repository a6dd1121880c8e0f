"""Values that nobody can change: what a field is annotated as, it is, whatever it was given.

A `field_transformer` for attrs. Lists given for tuples, sets for frozen sets and dicts for mappings are copied, so that whoever gave them may go on
with theirs; a mapping of a class of its own is taken as it is. What they hold is not looked at.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Union, get_args, get_origin

import attrs


def immutable(_class: type, fields: list["attrs.Attribute[Any]"]) -> list["attrs.Attribute[Any]"]:
    """Return fields that are annotated as immutable a converter, where they have none."""
    return [
        field.evolve(converter=convert) if field.converter is None and (convert := _converter(field.type)) else field
        for field in fields
    ]


def _converter(annotation: object) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type that is immutable; None for any other type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType} and type(None) in arguments:
        inner = [each for each in arguments if each is not type(None)]
        convert = _converter(inner[0]) if len(inner) == 1 else None
        return None if convert is None else attrs.converters.optional(convert)
    return _CONVERTERS.get(origin or annotation)


def _mapping(value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(value.copy()) if isinstance(value, dict) else value


def _sequence(value: Sequence[Any]) -> Sequence[Any]:
    return tuple(value) if isinstance(value, list) else value


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    tuple: tuple,
    frozenset: frozenset,
    AbstractSet: frozenset,
    Mapping: _mapping,
    Sequence: _sequence,
}
