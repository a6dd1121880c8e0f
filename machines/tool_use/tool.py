"""Tools as a model sees them: a name, a purpose, and parameters of different kinds. Pure.

A kind (texts, files, numbers, yes and no, lists of words) reads a value in the forms that models write it, and adds what it fixed to a list. A foreign
tool has a JSON schema instead of parameters, and its arguments are passed on unchanged.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from dsa.runtime.json_text import WrittenJson
from machines.tool_use.records import JsonObject, list_in, object_in

#: The names that models use for a path.
PATH_NAMES = ("path", "file", "filename", "file_path", "filepath", "name")
_LONGEST = 64
_NONE = "unnamed"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")
_STRING = {"type": "string"}
_FENCE = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)
#: A number in a text, with an optional unit.
_NUMERAL = re.compile(
    r"\s*(?P<sign>-?)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,300})(?P<part>\.\d{1,9})?(?P<unit>[\s%€$£A-Za-z]*)"
)
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_FILE = {"type": "object", "properties": {"path": _STRING, "content": _STRING}, "required": ["path", "content"]}


#: Reads a model's value for a parameter, and adds what it fixed to the list. Raises ValueError for a value that it cannot read.
Reader = Callable[[Any, "Parameter", list[str]], object]


@attrs.frozen
class ArgumentKind:
    """A kind of argument: its JSON schema and its reader. `has_bounds` says that the parameter's `least` and `most` limit it."""

    schema: JsonObject = attrs.field(eq=False)
    read: Reader
    has_bounds: bool = False


@attrs.frozen
class Parameter:
    """A parameter of a tool. The model has to give a required one; when it is missing all the same, the default is used if there is one.

    `aliases` are other names that models use for it; `least` and `most` limit a number.
    """

    name: str
    kind: ArgumentKind
    about: str
    default: object = None
    required: bool = False
    least: int | None = None
    most: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its names: its own first, then the aliases."""
        return (self.name, *self.aliases)

    def has_within(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    def schema(self) -> JsonObject:
        """Return its JSON schema."""
        limits = {"minimum": self.least, "maximum": self.most} if self.kind.has_bounds else {}
        bounds = {name: limit for name, limit in limits.items() if limit is not None}
        return {**self.kind.schema, **bounds, "description": self.about}


@attrs.frozen
class Tool:
    """A tool. `names` are other names that models use for it, in lower-case letters and digits.

    `text` names the parameter that receives the arguments when a model sends a text, or lines, and not an object. `schema` is the JSON schema of a
    foreign tool, whose arguments are passed on unchanged.
    """

    name: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    names: frozenset[str] = frozenset()
    text: str = ""
    schema: JsonObject | None = attrs.field(default=None, eq=False)

    @classmethod
    def of_openai(cls, entry: Mapping[str, Any]) -> Self:
        """Return the foreign tool that a request describes in OpenAI's form."""
        function = entry["function"]
        return cls(function["name"], function.get("description", ""), schema=function["parameters"])

    @property
    def required_names(self) -> tuple[str, ...]:
        """The names of the arguments that a call must have."""
        return tuple(each.name for each in self.parameters if each.required)

    def arguments_schema(self) -> JsonObject:
        """Return the JSON schema of its arguments."""
        properties = {each.name: each.schema() for each in self.parameters}
        return self.schema or {"type": "object", "properties": properties, "required": list(self.required_names)}

    @cached_property
    def as_openai(self) -> WrittenJson:
        """The tool in OpenAI's form; the same object each time."""
        function = {"name": self.name, "description": self.about, "parameters": dict(self.arguments_schema())}
        return WrittenJson({"type": "function", "function": function})

    @property
    def size(self) -> int:
        """Its length in a request, in characters."""
        return len(self.as_openai.text)


def _text(value: object, parameter: Parameter, rescues: list[str]) -> str:
    if isinstance(value, str):
        return value
    rescues.append("text")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(line.rstrip("\n") for line in value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise ValueError(f"the argument '{parameter.name}' must be a text, not {_excerpt(value)}")


def _content(value: object, parameter: Parameter, rescues: list[str]) -> str:
    """Return the content of a file, without a code fence around all of it."""
    text = _text(value, parameter, rescues)
    whole = _FENCE.fullmatch(text)
    if whole is None or "```" in whole["body"]:
        return text
    rescues.append("fence")
    return f"{whole['body']}\n"


def _number_in(value: Any) -> float | None:  # noqa: ANN401  (JSON)
    """Return the number of a value, or at the beginning of a text, or None. An integer may be larger than any float."""
    if isinstance(value, str):
        match = _NUMERAL.match(value)
        return None if match is None else _number_of(match)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not (isinstance(value, float) and not math.isfinite(value)) else None


def _number_of(match: re.Match[str]) -> float:
    whole = int(f"{match['sign']}{match['whole'].replace(',', '')}")
    return float(f"{whole}{match['part']}") if match["part"] else whole


def _number(value: object, parameter: Parameter, rescues: list[str]) -> int:
    """Return a whole number within the bounds. Anything else is an error: nobody knows what the model means."""
    is_text = isinstance(value, str)
    match = _NUMERAL.fullmatch(value) if isinstance(value, str) else None
    number = (None if match is None else _number_of(match)) if is_text else _number_in(value)
    if number is None or number != int(number):
        raise ValueError(f"the argument '{parameter.name}' must be a whole number, not {_excerpt(value)}")
    if not parameter.has_within(number):
        least, most = parameter.least, parameter.most
        bounds = " and ".join(
            [*([f"at least {least}"] if least is not None else []), *([f"at most {most}"] if most is not None else [])]
        )
        raise ValueError(f"the argument '{parameter.name}' must be {bounds}, not {_excerpt(value)}")
    if is_text:
        rescues.append("number")
    return int(number)


def _nearest(value: object, parameter: Parameter, rescues: list[str]) -> int:
    """Return a limit: a whole number, moved to the nearest bound when it is out of bounds."""
    amount = _number_in(value)
    if amount is None:
        raise ValueError(f"the argument '{parameter.name}' must be a whole number, not {_excerpt(value)}")
    least = amount if parameter.least is None else max(amount, parameter.least)
    number = math.ceil(least if parameter.most is None else min(least, parameter.most))
    if number != value:
        rescues.append("number")
    return number


def _excerpt(value: object) -> str:
    return json.dumps(value, default=str)[:80]


def _truth(value: object, parameter: Parameter, rescues: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    truth = _TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise ValueError(f"the argument '{parameter.name}' must be true or false, not {_excerpt(value)}")
    rescues.append("truth")
    return truth


def _words(value: object, parameter: Parameter, rescues: list[str]) -> str | list[str]:
    """Return a command, as a text or as its words; `program_rules` reads it further."""
    if isinstance(value, str):
        words = list_in(value)
        if words is not None and all(isinstance(part, str) for part in words):
            rescues.append("list")
            return words
        return value
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return [str(part) for part in value]
    raise ValueError(f'the argument \'{parameter.name}\' must be a list of texts, such as ["python", "main.py"]')


def _files(value: object, parameter: Parameter, rescues: list[str]) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = list_in(value) or object_in(value) or value
        rescues.append("list")
    if isinstance(value, dict):
        pairs = [value] if "content" in value else [{"path": path, "content": text} for path, text in value.items()]
        rescues.append("list")
        value = pairs
    form = f'the argument \'{parameter.name}\' must be a list of {{"path": .., "content": ..}}'
    if not isinstance(value, list) or not value:
        raise ValueError(form)
    files = []
    for each in value:
        path = next((each[name] for name in PATH_NAMES if each.get(name)), None) if isinstance(each, Mapping) else None
        if not isinstance(path, str) or each.get("content") is None:
            raise ValueError(form)
        files.append({"path": path, "content": _content(each["content"], parameter, rescues)})
    return files


TEXT = ArgumentKind(_STRING, _text)
#: The whole content of a file.
CONTENT = ArgumentKind(_STRING, _content)
#: A whole number; one out of bounds is an error.
NUMBER = ArgumentKind({"type": "integer"}, _number, has_bounds=True)
#: A limit; one out of bounds is moved to the nearest bound.
LIMIT = ArgumentKind({"type": "integer"}, _nearest, has_bounds=True)
TRUTH = ArgumentKind({"type": "boolean"}, _truth)
#: A program and its arguments.
COMMAND = ArgumentKind({"type": "array", "items": _STRING}, _words)
#: Files with their whole contents.
FILES = ArgumentKind({"type": "array", "items": _FILE}, _files)


def provider_name(name: str) -> str:
    """Return a tool's name in a form that every provider accepts.

    Strict providers refuse a conversation with any other name in it (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`), and so every later request.
    """
    return _FOREIGN.sub("_", name)[:_LONGEST] or _NONE


def display_name(name: str) -> str:
    """Return a tool's name for messages, at most 64 characters of it; models have written names of 200,000."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}.."
