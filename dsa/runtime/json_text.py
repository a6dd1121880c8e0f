"""JSON text of values and of frozen classes, for ledgers and payloads.

`json.dumps` makes an encoder for every call, which takes longer than encoding a small object; here each encoder is made once. For an attrs class,
`line_writer` generates a function that writes its values, and `reader` returns one that reads them; fields that are not JSON by themselves have a
function that converts them (`AsJson`). The module does not know these classes.
"""

import json
import json.encoder
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite, isinf
from types import NoneType, UnionType
from typing import Any, NoReturn

import attrs

Encoder = Callable[[object], str]

#: Writes a string as JSON, in ASCII.
json_string: Callable[[str], str] = json.encoder.encode_basestring_ascii
#: The function that makes CPython's C encoder, as `JSONEncoder.encode` does for each call; None elsewhere.
_make_encoder: Callable[..., Any] | None = getattr(json.encoder, "c_make_encoder", None)
_read = json.JSONDecoder().raw_decode

#: The deepest nesting of a payload.
_DEEPEST = 200
#: The most digits of a number that is quoted in a message.
_MOST_DIGITS = 100
_CONTAINERS = (dict, list, tuple)
_TEXT = frozenset({str})
#: The types of values that are neither objects nor lists.
PLAIN = _TEXT | {int, float, bool, type(None)}


def _encoder(*, sort_keys: bool) -> Encoder:
    plain = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
    if _make_encoder is None:
        return plain.encode
    layout = {"indent": None, "key_separator": ":", "item_separator": ",", "sort_keys": sort_keys}
    checks = {"markers": None, "skipkeys": False, "allow_nan": False}
    chunks = _make_encoder(default=plain.default, encoder=json_string, **layout, **checks)

    def encode(value: object) -> str:
        return "".join(chunks(value, 0))

    return encode


#: Writes a value as JSON on one line, in ASCII. Raises TypeError or ValueError for a value that is not JSON, RecursionError for one that contains itself.
text_of: Encoder = _encoder(sort_keys=False)
#: Writes a value with sorted keys: equal objects give equal texts.
sorted_text_of: Encoder = _encoder(sort_keys=True)


def value_of(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Read text from one of the writers above. Read any other text with `json.loads`."""
    return _read(text)[0]


def canonical_value(value: object) -> str:
    """Write a value as a part of a payload. Raises TypeError or ValueError if it is not JSON."""
    if value is None:
        return "null"
    if isinstance(value, _CONTAINERS) and not is_flat(value):
        require_text_keys(value)
    return sorted_text_of(value)


def is_flat(value: object) -> bool:
    """Return whether a value is an object without lists and objects in it, like most recorded values."""
    return type(value) is dict and {*map(type, value)} <= _TEXT and {*map(type, value.values())} <= PLAIN


def copy_json(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a copy of a value, as if its text had been read, with sorted keys. Raises TypeError or ValueError if it is not JSON."""
    if type(value) in PLAIN:
        return value
    return {key: value[key] for key in sorted(value)} if is_flat(value) else value_of(canonical_value(value))


def require_text_keys(value: Any, depth: int = 0) -> None:  # noqa: ANN401  (whatever stands in a payload)
    """Raise TypeError for keys that `json` would turn into strings, so that 1 and "1" would be one key; ValueError for nesting that is too deep."""
    if depth > _DEEPEST:
        raise ValueError(f"the data is nested more than {_DEEPEST} deep")
    inner = value
    if isinstance(value, dict):
        if not {*map(type, value)} <= _TEXT:
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} of a payload is not a string, so the payload is not JSON")
        inner = value.values()
    if not {*map(type, inner)} <= PLAIN:
        for part in inner:
            if isinstance(part, _CONTAINERS):
                require_text_keys(part, depth + 1)


class WrittenJson(dict[str, Any]):
    """An object together with its JSON text, for objects that are sent many times. It must not be changed."""

    __slots__ = ("text",)

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.text = json.dumps(content, ensure_ascii=False)


def request_text(body: Mapping[str, Any]) -> str:
    """Write the body of a request as JSON. `WrittenJson` in its lists is not encoded again. Raises ValueError for NaN and infinity elsewhere."""
    return f"{{{','.join(f'{json_string(name)}:{_body_text(value)}' for name, value in body.items())}}}"


def _body_text(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_body_text, value))}]"
    return value.text if isinstance(value, WrittenJson) else json.dumps(value, ensure_ascii=False, allow_nan=False)


#: The function that turns a field into JSON, by the field's converter. Fields with other converters, or none, are JSON already.
AsJson = Mapping[Any, Callable[[Any], Any]]


def object_of(value: Any, kind: str, as_json: AsJson) -> dict[str, Any]:  # noqa: ANN401  (of any attrs class)
    """Return a value as a JSON object with its kind under `kind`."""
    fields: dict[str, Any] = {"kind": kind}
    for field in attrs.fields(type(value)):
        content, convert = getattr(value, field.name), as_json.get(field.converter)
        fields[field.name] = convert(content) if convert else content
    return fields


def line_writer(cls: type[Any], kind: str, as_json: AsJson) -> Callable[[Any], str]:
    """Return a function that writes values of a class as one line of JSON, without the fields that have their default.

    The function is generated from the class's fields, as attrs generates `__init__`.
    """
    names: dict[str, Any] = {
        "quoted": json_string,
        "whole": int.__repr__,
        "number": _number,
        "text_of": text_of,
        "null": "null",
    }
    head, others = f'{{{{"kind":"{kind}"', list[str]()
    for place, field in enumerate(attrs.fields(cls)):
        names[f"convert{place}"], names[f"default{place}"] = as_json.get(field.converter), _default(field)
        if field.default is attrs.NOTHING:
            head += f',"{field.name}":{{{_field_expression(field, place, as_json, f"value.{field.name}")}}}'
        else:
            text = f"',\"{field.name}\":' + {_field_expression(field, place, as_json, 'given')}"
            others += [
                f"    given = value.{field.name}",
                f"    if {_is_other(field, place)}:",
                f"        line += {text}",
            ]
    source = "\n".join(["def write(value):", f"    line = f'{head}'", *others, "    return line + '}'"])
    exec(compile(source, f"<writer of {kind}>", "exec"), names)  # noqa: S102  (names of our own classes)
    write: Callable[[Any], str] = names["write"]
    return write


#: The functions that write the most common types of fields; the field may also be None.
_WRITERS: dict[Any, str] = {str: "quoted", int: "whole", float: "number"}


def _field_expression(field: "attrs.Attribute[Any]", place: int, as_json: AsJson, value: str) -> str:
    """Return the expression that writes a field's value."""
    if field.converter in as_json:
        return f"text_of(convert{place}({value}))"
    if isinstance(field.type, UnionType) and NoneType in field.type.__args__:
        others = [each for each in field.type.__args__ if each is not NoneType]
        writer = _WRITERS.get(others[0], "text_of") if len(others) == 1 else "text_of"
        return f"({writer}({value}) if {value} is not None else null)"
    return f"{_WRITERS.get(field.type, 'text_of')}({value})"


def _number(value: float) -> str:
    """Write a number as JSON does. Raises ValueError if it is not finite."""
    return float.__repr__(value) if type(value) is float and isfinite(value) else text_of(value)


def _is_other(field: "attrs.Attribute[Any]", place: int) -> str:
    """Return the condition under which a value is not the field's default; 0 and 0.0 are different values."""
    default = _default(field)
    if default is None:
        return "given is not None"
    if default in ("", ()):
        return "given"
    return f"given != default{place} or type(given) is not type(default{place})"


def reader(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that reads values of a class. It raises TypeError for a missing field without default, and for an unknown field."""

    def read(json_object: Mapping[str, Any]) -> Any:  # noqa: ANN401  (one of this class)
        fields = {**json_object}
        fields.pop("kind", None)
        return cls(**fields)

    return read


def _default(field: "attrs.Attribute[Any]") -> Any:  # noqa: ANN401  (a field's)
    """Return a field's default."""
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]  # a class, whatever its stub says


def data_of(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Read the data of an event as a person wrote it: JSON, or a text. A text that begins like an object, a list or a string of JSON must be valid JSON.

    Raises ValueError if it is not; the message continues a sentence that begins with the name of what was read.
    """
    out_of_range: list[str] = []
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=partial(_number_of, out_of_range=out_of_range))
        if not out_of_range:
            canonical_value(value)  # refuses deep nesting before the search for secrets
    except (ValueError, RecursionError) as fault:
        if text.lstrip().startswith(("{", "[", '"')):
            why = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
            raise ValueError(f" begins like JSON but is not valid: {why}") from fault
        return text
    if out_of_range:
        number = out_of_range[0]
        excerpt = number if len(number) <= _MOST_DIGITS else f"{number[:_MOST_DIGITS]}.."
        raise ValueError(
            f": the number {excerpt} is out of range: the greatest is 1.8e308; write it as a text, in quotes"
        )
    return value


def _number_of(text: str, out_of_range: list[str]) -> float:
    number = float(text)
    if isinf(number):
        out_of_range.append(text)
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
