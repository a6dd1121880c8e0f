"""The tools that a model was offered: their names, and what type each of their parameters has.

Takes tools as a request has them (OpenAI's objects, Ollama's, MCP's), a mapping from names to JSON schemas, or bare names.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsa.generators.streams.reading import read_object

#: Where the schema of the parameters stands: OpenAI and Ollama, MCP, Anthropic, and our own registry.
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "schema")
#: What stands around a name in the texts of models that write channels, and before it.
_CHANNEL_MARK = re.compile(r"<\|[^<>|]{0,40}\|?>?")
_PREFIXES = ("to=", "functions.")
_EXPECTED = "a tool is a name, or an object with a name as requests have it"


@attrs.frozen
class Tools:
    """Names with the schemas of their parameters, empty where none is known."""

    schemas: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.schemas

    def __bool__(self) -> bool:
        return bool(self.schemas)

    def goes_on(self, name: str, more: str) -> bool:
        """Tell whether a name that is none yet becomes the beginning of one, or one, with what follows."""
        return name not in self.schemas and any(known.startswith(name + more) for known in self.schemas)

    def meant(self, name: str) -> str:
        """Return the tool that a name means with white space, prefixes or marks of channels around it; without these where that is not exactly one."""
        if not name or name in self.schemas:
            return name
        parts = ["".join(part.split()) for part in _CHANNEL_MARK.split(name)]
        plain = [part for part in map(_without_prefixes, parts) if part]
        said = {*plain, *(part.rpartition(".")[2] for part in plain)}
        found = [known for known in self.schemas if "".join(known.split()) in said]
        return found[0] if len(found) == 1 else plain[0] if plain else name

    def once(self, name: str) -> str:
        """Give the name that was written several times, `searchsearch`; else the name as it is."""
        for known in self.schemas:
            if (
                name
                and name != known
                and known
                and len(name) % len(known) == 0
                and known * (len(name) // len(known)) == name
            ):
                return known if name not in self.schemas else name
        return name

    def needs_arguments(self, tool: str) -> bool:
        """Tell whether a tool has a parameter that must be given, as far as its schema says."""
        return bool(self.schemas.get(tool, {}).get("required"))

    def parameters(self, tool: str) -> frozenset[str]:
        """Give the names of a tool's parameters, as far as its schema says."""
        properties = self.schemas.get(tool, {}).get("properties")
        return frozenset(properties) if isinstance(properties, Mapping) else frozenset()

    def typed(self, tool: str, parameter: str, text: str) -> Any:  # noqa: ANN401  # JSON of any kind
        """Give the value that a text stands for, by the parameter's type: text stays text where that is allowed."""
        properties = self.schemas.get(tool, {}).get("properties")
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        types = _types(schema) if isinstance(schema, Mapping) else frozenset()
        if types and types <= {"string"}:
            return text
        value = _value(text)
        return text if isinstance(value, str) else value


def _without_prefixes(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    """Give the types that a schema allows, those of its alternatives too; `null` is left out."""
    own = schema.get("type", ())
    found = {own} if isinstance(own, str) else {kind for kind in own if isinstance(kind, str)}
    if "enum" in schema and not found:
        found = {"string" if isinstance(value, str) else "other" for value in schema["enum"]}
    for key in ("anyOf", "oneOf"):
        for part in schema.get(key) or ():
            found |= _types(part) if isinstance(part, Mapping) else set()
    return frozenset(found - {"null"})


def _value(text: str) -> Any:  # noqa: ANN401  # JSON of any kind
    """Give the value of a text that is JSON, or nearly so; else the text."""
    stripped = text.strip()
    if stripped.startswith("{"):
        value = read_object(stripped).value
        return text if value is None else value
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(stripped, stripped))
    except (ValueError, RecursionError):
        return text


def offered(tools: object) -> Tools:
    """Read what was offered. Raises TypeError for what is no tool."""
    if isinstance(tools, Tools):
        return tools
    if tools is None:
        return Tools()
    if isinstance(tools, Mapping):
        return Tools({str(name): schema if isinstance(schema, Mapping) else {} for name, schema in tools.items()})
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise TypeError(f"tools are given as a list; {_EXPECTED}")
    return Tools(dict(_named(tool) for tool in tools))


def _named(tool: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(tool, str):
        return tool, {}
    whole = tool.model_dump() if hasattr(tool, "model_dump") else tool
    if isinstance(whole, Mapping):
        inner = whole.get("function")
        described = inner if isinstance(inner, Mapping) else whole
        name = described.get("name")
        schemas = [described[key] for key in _SCHEMA_KEYS if isinstance(described.get(key), Mapping)]
        if isinstance(name, str):
            return name, schemas[0] if schemas else {}
    raise TypeError(f"{type(tool).__name__} is no tool: {_EXPECTED}")
