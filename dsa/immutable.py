"""Immutable fields: a `field_transformer` for attrs that converts values to the immutable type of their annotation.

Lists become tuples, sets become frozen sets, and dicts are copied behind a read-only view, so the caller may change the original afterwards. Another
kind of mapping is taken as it is. The items are not converted.

`without_collector` is for those who make very many such objects at once.
"""

import gc
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Union, get_args, get_origin

import attrs


def immutable(_class: type, fields: list["attrs.Attribute[Any]"]) -> list["attrs.Attribute[Any]"]:
    """Return the fields; those with an immutable annotation and no converter get one."""
    return [
        field.evolve(converter=convert) if field.converter is None and (convert := _converter(field.type)) else field
        for field in fields
    ]


@contextmanager
def without_collector() -> Iterator[None]:
    """Turn the garbage collector off while many objects are made: it would search them again and again, for half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _converter(annotation: object) -> Callable[[Any], Any] | None:
    """Return the converter for an immutable type; None for any other type."""
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
