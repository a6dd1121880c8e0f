"""Tools as a model sees them: a name, what it is for, and parameters, each of a kind that says how models write it.

A tool of somebody else's has a JSON schema in the place of parameters: its arguments are passed on as they are.

What arguments are, and how models write them: texts, files, numbers, yes and no, lists of words.

Each kind reads a value as it came, gives the one that is meant, and adds what it has mended to a list. Pure.

Names of tools as models write them: as they are sent back, and as they are told. Pure.
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

#: Reads what a model has written for a parameter, and adds what it has mended to the list. Raises ValueError for what cannot be meant.
Reader = Callable[[Any, "Parameter", list[str]], object]


@attrs.frozen
class ArgumentKind:
    """What an argument is: its JSON schema, and how it is read. `has_bounds`: it is a number from `least` to `most`."""

    schema: JsonObject = attrs.field(eq=False)
    read: Reader
    has_bounds: bool = False


@attrs.frozen
class Parameter:
    """An argument of a tool. A required one that has a default is wanted of the model, and is the default where it is missing.

    `aliases` are other names by which models call it; `least` and `most` bound a number.
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
        """Every name of it, its own first."""
        return (self.name, *self.aliases)

    def has_within(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    def schema(self) -> JsonObject:
        """Return it as a JSON schema."""
        given = {"minimum": self.least, "maximum": self.most} if self.kind.has_bounds else {}
        bounds = {name: bound for name, bound in given.items() if bound is not None}
        return {**self.kind.schema, **bounds, "description": self.about}


@attrs.frozen
class Tool:
    """A tool. `names` are other names by which models call it, in small letters and digits.

    `text` names the parameter that a call is taken to mean which brings a text, or lines, and no object. `schema` is the JSON schema of a tool whose
    arguments are passed on as they are.
    """

    name: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    names: frozenset[str] = frozenset()
    text: str = ""
    schema: JsonObject | None = attrs.field(default=None, eq=False)

    @classmethod
    def of_openai(cls, described: Mapping[str, Any]) -> Self:
        """Return a tool of somebody else's, as requests have it."""
        function = described["function"]
        return cls(function["name"], function.get("description", ""), schema=function["parameters"])

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the arguments that it wants."""
        return tuple(each.name for each in self.parameters if each.required)

    def arguments_schema(self) -> JsonObject:
        """Return the JSON schema of its arguments."""
        properties = {each.name: each.schema() for each in self.parameters}
        return self.schema or {"type": "object", "properties": properties, "required": list(self.required)}

    @cached_property
    def as_openai(self) -> WrittenJson:
        """The tool in OpenAI's form; the same object each time."""
        function = {"name": self.name, "description": self.about, "parameters": dict(self.arguments_schema())}
        return WrittenJson({"type": "function", "function": function})

    @property
    def size(self) -> int:
        """How many characters it has in a request."""
        return len(self.as_openai.text)


_STRING = {"type": "string"}


def _text(value: object, parameter: Parameter, mended: list[str]) -> str:
    if isinstance(value, str):
        return value
    mended.append("text")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(line.rstrip("\n") for line in value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise ValueError(f"the argument '{parameter.name}' is to be a text, not {_shown(value)}")


_FENCE = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)


def _content(value: object, parameter: Parameter, mended: list[str]) -> str:
    """Return what is to stand in a file; one fence around all of it is not meant to."""
    text = _text(value, parameter, mended)
    whole = _FENCE.fullmatch(text)
    if whole is None or "```" in whole["body"]:
        return text
    mended.append("fence")
    return f"{whole['body']}\n"


#: A number as a text, with what may stand behind it: nothing, or a unit.
_NUMERAL = re.compile(
    r"\s*(?P<sign>-?)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,300})(?P<part>\.\d{1,9})?(?P<unit>[\s%€$£A-Za-z]*)"
)


def _said(value: Any) -> float | None:  # noqa: ANN401  (JSON)
    """Return the number that a value is, or that a text begins with; None for what is none. An integer may be larger than any float."""
    if isinstance(value, str):
        found = _NUMERAL.match(value)
        return None if found is None else _read(found)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not (isinstance(value, float) and not math.isfinite(value)) else None


def _read(found: re.Match[str]) -> float:
    whole = int(f"{found['sign']}{found['whole'].replace(',', '')}")
    return float(f"{whole}{found['part']}") if found["part"] else whole


def _number(value: object, parameter: Parameter, mended: list[str]) -> int:
    """Return a whole number within the bounds. Of anything else nobody knows what is meant, and nothing is made of it."""
    is_text = isinstance(value, str)
    found = _NUMERAL.fullmatch(value) if isinstance(value, str) else None
    said = (None if found is None else _read(found)) if is_text else _said(value)
    if said is None or said != int(said):
        raise ValueError(f"the argument '{parameter.name}' is to be a whole number, not {_shown(value)}")
    if not parameter.has_within(said):
        least, most = parameter.least, parameter.most
        bounds = " and ".join(
            [*([f"at least {least}"] if least is not None else []), *([f"at most {most}"] if most is not None else [])]
        )
        raise ValueError(f"the argument '{parameter.name}' is to be {bounds}, not {_shown(value)}")
    if is_text:
        mended.append("number")
    return int(said)


def _nearest(value: object, parameter: Parameter, mended: list[str]) -> int:
    """Return how much of something is wanted at most: where that is out of bounds, as much as there can be."""
    said = _said(value)
    if said is None:
        raise ValueError(f"the argument '{parameter.name}' is to be a whole number, not {_shown(value)}")
    least = said if parameter.least is None else max(said, parameter.least)
    number = math.ceil(least if parameter.most is None else min(least, parameter.most))
    if number != value:
        mended.append("number")
    return number


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:80]


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(value: object, parameter: Parameter, mended: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    said = _TRUTHS.get(str(value).strip().lower())
    if said is None:
        raise ValueError(f"the argument '{parameter.name}' is to be true or false, not {_shown(value)}")
    mended.append("truth")
    return said


def _words(value: object, parameter: Parameter, mended: list[str]) -> str | list[str]:
    """Return a command, as a text or as its words: the rules of commands say more."""
    if isinstance(value, str):
        listed = list_in(value)
        if listed is not None and all(isinstance(part, str) for part in listed):
            mended.append("list")
            return listed
        return value
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return [str(part) for part in value]
    raise ValueError(f'the argument \'{parameter.name}\' is to be a list of texts, such as ["python", "main.py"]')


#: Names by which models call a path.
PATH_NAMES = ("path", "file", "filename", "file_path", "filepath", "name")


def _files(value: object, parameter: Parameter, mended: list[str]) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = list_in(value) or object_in(value) or value
        mended.append("list")
    if isinstance(value, dict):
        pairs = [value] if "content" in value else [{"path": path, "content": text} for path, text in value.items()]
        mended.append("list")
        value = pairs
    form = f'the argument \'{parameter.name}\' is to be a list of {{"path": .., "content": ..}}'
    if not isinstance(value, list) or not value:
        raise ValueError(form)
    found = []
    for each in value:
        path = next((each[name] for name in PATH_NAMES if each.get(name)), None) if isinstance(each, Mapping) else None
        if not isinstance(path, str) or each.get("content") is None:
            raise ValueError(form)
        found.append({"path": path, "content": _content(each["content"], parameter, mended)})
    return found


_FILE = {"type": "object", "properties": {"path": _STRING, "content": _STRING}, "required": ["path", "content"]}

TEXT = ArgumentKind(_STRING, _text)
#: The whole of a file.
CONTENT = ArgumentKind(_STRING, _content)
#: A whole number; what is out of bounds is refused.
NUMBER = ArgumentKind({"type": "integer"}, _number, has_bounds=True)
#: How much is wanted at most; what is out of bounds is the nearest that is not.
LIMIT = ArgumentKind({"type": "integer"}, _nearest, has_bounds=True)
TRUTH = ArgumentKind({"type": "boolean"}, _truth)
#: A program and its arguments.
COMMAND = ArgumentKind({"type": "array", "items": _STRING}, _words)
#: Files with their whole contents.
FILES = ArgumentKind({"type": "array", "items": _FILE}, _files)


_LONGEST = 64
_NONE = "unnamed"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")


def name_sent(name: str) -> str:
    """Return a name that every provider takes back.

    Strict ones refuse a conversation in which a call has another one (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`), and so every later request.
    """
    return _FOREIGN.sub("_", name)[:_LONGEST] or _NONE


def name_told(name: str) -> str:
    """Return a name as a text has it; models have written ones of 200,000 characters."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}.."
