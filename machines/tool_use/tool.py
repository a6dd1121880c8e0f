"""Tools as a model sees them: a name, what it is for, and parameters, each of a kind that says how models write it.

A tool of somebody else's has a JSON schema in the place of parameters: its arguments are passed on as they are.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from dsa.runtime.json_text import Written
from machines.tool_use.records import JsonObject

#: Reads what a model has written for a parameter, and adds what it has mended to the list. Raises ValueError for what cannot be meant.
Reader = Callable[[Any, "Parameter", list[str]], object]


@attrs.frozen
class Kind:
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
    kind: Kind
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
        """Tell whether a number is within the bounds."""
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
    def as_openai(self) -> Written:
        """The tool in OpenAI's form; the same object each time."""
        function = {"name": self.name, "description": self.about, "parameters": dict(self.arguments_schema())}
        return Written({"type": "function", "function": function})

    @property
    def size(self) -> int:
        """How many characters it has in a request."""
        return len(self.as_openai.text)
