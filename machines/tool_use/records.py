"""JSON at the edge: records, which are frozen classes, read from the data of events and written as such data.

Whatever has no value of its own is left out, so that ledgers say what there is to say.
"""

from collections.abc import Mapping
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
