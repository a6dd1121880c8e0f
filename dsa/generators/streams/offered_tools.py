"""Offered tools and the arguments of their calls: names, parameter types, and JSON read from what models write.

`read_tools` takes tools as a request has them (OpenAI's objects, Ollama's, MCP's), a mapping from names to JSON schemas, or bare names.

`read_object` and `read_value` read arguments as JSON, repaired where the repair is certain: raw control characters, Python's
notation, commas before a closing bracket, one encoding too many. They never close what is open and never guess what is missing.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

#: Strings (an unclosed one runs to the end, so that each character is looked at once), Python's words, spare commas.
_TOKENS = re.compile(
    r'(?P<double>"(?:[^"\\]|\\.)*+(?:"|\Z))'
    r"|(?P<single>'(?:[^'\\]|\\.)*+(?:'|\Z))"
    r"|\b(?P<word>True|False|None)\b"
    r"|(?P<comma>,(?=\s*+[}\]]))",
    re.DOTALL,
)
_IN_SINGLE = re.compile(r'\\(.)|"', re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_ESCAPES = frozenset('"\\/bfnrtu')


@attrs.frozen
class ArgumentsReading:
    """The result of reading a text: its value, whether it is JSON at all, and the rescues that it took."""

    value: Any
    json: bool = True
    rescues: tuple[str, ...] = ()


_UNREADABLE = ArgumentsReading(None, json=False)


def read_object(text: str) -> ArgumentsReading:
    """Read a text as an object; the value is None for anything else."""
    result = read_value(text)
    if isinstance(result.value, str):
        inner = read_value(result.value)
        if isinstance(inner.value, dict):
            return ArgumentsReading(inner.value, rescues=(*result.rescues, "double_encoded", *inner.rescues))
    return result if isinstance(result.value, dict) else attrs.evolve(result, value=None)


def read_value(text: str) -> ArgumentsReading:
    """Read a text as JSON of any kind: unchanged, then with raw control characters, then rewritten."""
    value = _load_json(text, strict=True)
    if value is not _UNREADABLE:
        return ArgumentsReading(value)
    value = _load_json(text, strict=False)
    if value is not _UNREADABLE:
        return ArgumentsReading(value, rescues=("control_characters",))
    rewritten_text, kinds = _rewrite(text)
    value = _load_json(rewritten_text, strict=False) if kinds else _UNREADABLE
    return _UNREADABLE if value is _UNREADABLE else ArgumentsReading(value, rescues=kinds)


def _load_json(text: str, *, strict: bool) -> Any:  # noqa: ANN401  # JSON of any kind
    try:
        return json.loads(text, strict=strict, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # not JSON, or a number of thousands of digits, or nested too deeply
        return _UNREADABLE


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _rewrite(text: str) -> tuple[str, tuple[str, ...]]:
    """Rewrite Python's notation as JSON and remove spare commas; return which of the two was needed."""
    kinds: list[str] = []

    def rewrite_token(match: re.Match[str]) -> str:
        kind, token = match.lastgroup, match[0]
        if kind == "double":
            return token
        rescue = "trailing_comma" if kind == "comma" else "python_literal"
        if rescue not in kinds:
            kinds.append(rescue)
        return "" if kind == "comma" else _WORDS.get(token) or _as_json_string(token)

    return _TOKENS.sub(rewrite_token, text), tuple(kinds)


def _as_json_string(token: str) -> str:
    return '"' + _IN_SINGLE.sub(_escape, token[1:-1]) + '"'


def _escape(match: re.Match[str]) -> str:
    match match[1]:
        case None:
            return '\\"'
        case "'":
            return "'"
        case "x":
            return "\\u00"
        case letter if letter in _JSON_ESCAPES:
            return match[0]
        case letter:
            return "\\\\" + letter


def has_grown(before: Any, after: Any) -> bool:  # noqa: ANN401  # JSON of any kind
    """Return whether a value is an earlier one that has grown: more keys, more items, longer texts."""
    match before, after:
        case dict(), dict():
            return all(key in after and has_grown(value, after[key]) for key, value in before.items())
        case list(), list():
            return len(before) <= len(after) and all(map(has_grown, before, after))
        case str(), str():
            return after.startswith(before)
        case _:
            return bool(before is None or (type(before) is type(after) and before == after))


#: The key of the parameters' schema: OpenAI and Ollama, MCP, Anthropic, and our own registry.
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "schema")
#: What comes around a name in the texts of models that write channels, and before it.
_CHANNEL_MARK = re.compile(r"<\|[^<>|]{0,40}\|?>?")
_PREFIXES = ("to=", "functions.")
_TOOL_FORM = "a tool is a name, or an object with a name, as in a request to a model"


@attrs.frozen
class Tools:
    """Names with the schemas of their parameters, empty where unknown."""

    schemas: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.schemas

    def __bool__(self) -> bool:
        return bool(self.schemas)

    def goes_on(self, name: str, more: str) -> bool:
        """Return whether a name that is not a tool's becomes a tool's name, or the beginning of one, together with what follows."""
        return name not in self.schemas and any(tool_name.startswith(name + more) for tool_name in self.schemas)

    def resolve_name(self, name: str) -> str:
        """Return the tool that a name means, without white space, prefixes and channel marks around it; the bare name unless that is exactly one tool."""
        if not name or name in self.schemas:
            return name
        parts = ["".join(part.split()) for part in _CHANNEL_MARK.split(name)]
        plain = [part for part in map(_without_prefixes, parts) if part]
        candidates = {*plain, *(part.rpartition(".")[2] for part in plain)}
        matches = [tool_name for tool_name in self.schemas if "".join(tool_name.split()) in candidates]
        return matches[0] if len(matches) == 1 else plain[0] if plain else name

    def once(self, name: str) -> str:
        """Return the name once if it was written several times, as in `searchsearch`; otherwise the name unchanged."""
        for tool_name in self.schemas:
            if (
                name
                and name != tool_name
                and tool_name
                and len(name) % len(tool_name) == 0
                and tool_name * (len(name) // len(tool_name)) == name
            ):
                return tool_name if name not in self.schemas else name
        return name

    def needs_arguments(self, tool: str) -> bool:
        """Return whether a tool has a required parameter, as far as its schema says."""
        return bool(self.schemas.get(tool, {}).get("required"))

    def parameters(self, tool: str) -> frozenset[str]:
        """Return the names of a tool's parameters, as far as its schema says."""
        properties = self.schemas.get(tool, {}).get("properties")
        return frozenset(properties) if isinstance(properties, Mapping) else frozenset()

    def parse_value(self, tool: str, parameter: str, text: str) -> Any:  # noqa: ANN401  # JSON of any kind
        """Return the value that a text stands for, by the parameter's type: text stays text where that is allowed."""
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
    """Return the types that a schema allows, including those of its alternatives, without `null`."""
    own = schema.get("type", ())
    types = {own} if isinstance(own, str) else {kind for kind in own if isinstance(kind, str)}
    if "enum" in schema and not types:
        types = {"string" if isinstance(value, str) else "other" for value in schema["enum"]}
    for key in ("anyOf", "oneOf"):
        for part in schema.get(key) or ():
            types |= _types(part) if isinstance(part, Mapping) else set()
    return frozenset(types - {"null"})


def _value(text: str) -> Any:  # noqa: ANN401  # JSON of any kind
    """Return the value of a text that is JSON, or nearly so; otherwise the text."""
    body = text.strip()
    if body.startswith("{"):
        value = read_object(body).value
        return text if value is None else value
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(body, body))
    except (ValueError, RecursionError):
        return text


def read_tools(tools: object) -> Tools:
    """Read the tools of a request. Raises TypeError for what is not a tool."""
    if isinstance(tools, Tools):
        return tools
    if tools is None:
        return Tools()
    if isinstance(tools, Mapping):
        return Tools({str(name): schema if isinstance(schema, Mapping) else {} for name, schema in tools.items()})
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a list; {_TOOL_FORM}")
    return Tools(dict(_read_tool(tool) for tool in tools))


def _read_tool(tool: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(tool, str):
        return tool, {}
    whole = tool.model_dump() if hasattr(tool, "model_dump") else tool
    if isinstance(whole, Mapping):
        inner = whole.get("function")
        function = inner if isinstance(inner, Mapping) else whole
        name = function.get("name")
        schemas = [function[key] for key in _SCHEMA_KEYS if isinstance(function.get(key), Mapping)]
        if isinstance(name, str):
            return name, schemas[0] if schemas else {}
    raise TypeError(f"{type(tool).__name__} is not a tool: {_TOOL_FORM}")
