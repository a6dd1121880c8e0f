"""JSON as short text: what ledgers and payloads are written in.

Takes what JSON can say, gives text, and the other way round. `json.dumps` makes an encoder for every call, which takes longer than a
small object takes to encode; here each is made once.

Frozen classes as JSON and back: for each class, what is the same in all its values is worked out once.

Takes attrs classes and how fields of theirs are written that JSON writes in another way; gives functions that write and read their values.
It knows none of them.
"""

import json
import json.encoder
from collections.abc import Callable, Mapping
from math import isfinite
from types import NoneType, UnionType
from typing import Any

import attrs

Encoder = Callable[[object], str]

#: Write a text as JSON, in ASCII.
quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
#: What `JSONEncoder.encode` makes for each call, in CPython; None elsewhere.
_make_encoder: Callable[..., Any] | None = getattr(json.encoder, "c_make_encoder", None)
_read = json.JSONDecoder().raw_decode

#: How deep a payload may be nested.
_DEEPEST = 200
_NESTED = (dict, list, tuple)
_TEXT = frozenset({str})
#: The types of what is neither an object nor a list.
PLAIN = _TEXT | {int, float, bool, type(None)}


def _encoder(*, sort_keys: bool) -> Encoder:
    plain = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
    if _make_encoder is None:
        return plain.encode
    layout = {"indent": None, "key_separator": ":", "item_separator": ",", "sort_keys": sort_keys}
    refusing = {"markers": None, "skipkeys": False, "allow_nan": False}
    chunks = _make_encoder(default=plain.default, encoder=quoted, **layout, **refusing)

    def encode(value: object) -> str:
        return "".join(chunks(value, 0))

    return encode


#: Write a value as JSON on one line, in ASCII; TypeError or ValueError when it is none. What contains itself is a RecursionError.
text_of: Encoder = _encoder(sort_keys=False)
#: The same with sorted keys: equal objects give equal texts.
sorted_text_of: Encoder = _encoder(sort_keys=True)


def value_of(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Read what one of the above has written; other text is for `json.loads`."""
    return _read(text)[0]


def canonical_value(value: object) -> str:
    """Write a value as it stands in a payload; TypeError or ValueError when it is not JSON."""
    if value is None:
        return "null"
    if isinstance(value, _NESTED) and not is_flat(value):
        require_text_keys(value)
    return sorted_text_of(value)


def is_flat(value: object) -> bool:
    """Return whether a value is an object of texts, numbers, truths and nothing else, as most that are recorded are."""
    return type(value) is dict and {*map(type, value)} <= _TEXT and {*map(type, value.values())} <= PLAIN


def copied(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return what reading the text of a value would give: a new one, with sorted keys. TypeError or ValueError when it is not JSON."""
    if type(value) in PLAIN:
        return value
    return {key: value[key] for key in sorted(value)} if is_flat(value) else value_of(canonical_value(value))


def require_text_keys(value: Any, depth: int = 0) -> None:  # noqa: ANN401  (whatever stands in a payload)
    """Refuse the keys that `json` would turn into texts: 1 and "1" would be one key. ValueError for what is nested too deep."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    inner = value
    if isinstance(value, dict):
        if not {*map(type, value)} <= _TEXT:
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} of a payload is no text, so it is not JSON")
        inner = value.values()
    if not {*map(type, inner)} <= PLAIN:
        for part in inner:
            if isinstance(part, _NESTED):
                require_text_keys(part, depth + 1)


class WrittenJson(dict[str, Any]):
    """An object with its text beside it, for whoever sends it again and again. Nobody may change it."""

    __slots__ = ("text",)

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.text = json.dumps(content, ensure_ascii=False)


def request_text(body: Mapping[str, Any]) -> str:
    """Write the body of a request as JSON; the text of what stands `WrittenJson` in its lists is taken as it is. ValueError for NaN and infinity in all else."""
    return f"{{{','.join(f'{quoted(name)}:{_sent(value)}' for name, value in body.items())}}}"


def _sent(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_sent, value))}]"
    return value.text if isinstance(value, WrittenJson) else json.dumps(value, ensure_ascii=False, allow_nan=False)


#: How a field is written, by its converter; those of other converters, and of none, are JSON as they are.
AsJson = Mapping[Any, Callable[[Any], Any]]


def object_of(value: Any, kind: str, as_json: AsJson) -> dict[str, Any]:  # noqa: ANN401  (of any attrs class)
    """Return a value as a JSON object whose `kind` says what it is."""
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
