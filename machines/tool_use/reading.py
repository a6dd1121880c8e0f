"""What a model asks of a tool, made into the arguments that the tool takes.

Takes a call as it came, gives it as it is meant, and the kind of each thing that was mended on the way: a name that means the same, arguments inside
arguments, numbers written as words. What cannot be read as a call of a tool keeps its fault. Nothing is completed: arguments that were cut off are
never mended. Pure.
"""

import json
import re
from collections.abc import Mapping

from machines.tool_use.call import AnyTool, Meant, ToolCall
from machines.tool_use.json_values import is_writable, parse_json, unnested
from machines.tool_use.names import name_told
from machines.tool_use.records import JsonObject
from machines.tool_use.tool import Parameter, Tool

#: Kinds of things that are mended in a call of any tool, with what they mean to a reader.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name of it.",
    "alias": "The argument had another name (`query`, `file`, `command`, ..).",
    "nested": "The arguments stood inside an argument (`arguments`, `input`, ..).",
    "text_arguments": "The arguments were the bare text, not an object.",
    "broken_json": "The arguments were broken JSON in which the text was whole.",
    "text": "A text was written as lines, or as another value.",
    "number": "A number was written as a text, or out of range.",
    "truth": "Yes or no was written as a text or a number.",
    "list": "A list was written as a JSON text, or one thing stood for a list.",
    "fence": "The content of a file stood in a fence.",
}
_TRUNCATED = "truncated_arguments"


def read_call(call: ToolCall, tools: Mapping[str, AnyTool]) -> Meant[AnyTool]:
    """Return a call as it is meant."""
    tool = tool_meant(call.name, tools)
    if tool is None:
        told = f"there is no tool '{name_told(call.name)}'; the tools are: {', '.join(tools)}"
        return Meant(call.id, None, fault=told)
    mended = [] if call.name == tool.name else ["tool_name"]
    arguments = _arguments(call, tool, mended)
    if arguments is None:
        why = "end before they are complete" if call.error == _TRUNCATED else "are no JSON object"
        fault = f"the arguments of {name_told(call.name)} {why}; send them again, whole"
        return Meant(call.id, None, {}, tuple(mended), fault)
    if tool.schema is not None:
        return Meant(call.id, tool, dict(arguments), tuple(mended))
    known = {tool.text} if tool.text else {name for each in tool.parameters for name in each.names}
    given = unnested(arguments, known, mended)
    try:
        found = {each.name: _argument(each, given, tool, mended) for each in tool.parameters}
    except Exception as error:  # noqa: BLE001  (kinds are foreign code, and a model must not end a run)
        return Meant(call.id, None, {}, tuple(dict.fromkeys(mended)), f"{tool.name}: {error}")
    said = {name: value for name, value in found.items() if value is not None}
    if not is_writable(said):
        fault = f"{tool.name}: an argument has a number beyond all bounds, or is nested too deep"
        return Meant(call.id, None, {}, tuple(dict.fromkeys(mended)), fault)
    return Meant(call.id, tool, said, tuple(dict.fromkeys(mended)))


def read_strictly(call: ToolCall, tools: Mapping[str, AnyTool]) -> Meant[AnyTool]:
    """Return a call as it stands, with nothing mended: what measures how much mending does."""
    tool, given = tools.get(call.name), call.arguments
    if tool is None or given is None:
        return Meant(call.id, None, fault="there is no such tool, or its arguments are no JSON object")
    kept = {each.name: _as_it_stands(each, given.get(each.name)) for each in tool.parameters}
    return Meant(call.id, tool, kept)


def _as_it_stands(parameter: Parameter, value: object) -> object:
    """Return a text or a number within its bounds as it is, else the default."""
    if parameter.kind.has_bounds:
        is_one = isinstance(value, int) and not isinstance(value, bool) and parameter.has_within(value)
        return value if is_one else parameter.default
    return value if isinstance(value, str) else parameter.default


def tool_meant(name: str, tools: Mapping[str, AnyTool]) -> AnyTool | None:
    """Return the tool that a model means by a name."""
    plain = _plain(name)
    same = (each for each in tools.values() if plain in each.names or plain == _plain(each.name))
    return tools.get(name) or (next(same, None) if plain else None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _arguments(call: ToolCall, tool: Tool, mended: list[str]) -> JsonObject | None:
    """Return the arguments, also those that are no object where a text is meant; None for what cannot be read."""
    if call.arguments is not None or not tool.text or call.error == _TRUNCATED:
        return call.arguments
    said = parse_json(call.text)
    is_lines = isinstance(said, list) and said and all(isinstance(line, str) for line in said)
    if is_lines or (isinstance(said, str) and said.strip()):
        mended.append("text_arguments")
        return {tool.text: said}
    text = next(each for each in tool.parameters if each.name == tool.text)
    names = "|".join(map(re.escape, text.names))
    whole = re.search(rf'["\'](?:{names})["\']\s*:\s*(?P<text>"(?:[^"\\]|\\.)*+")', call.text, re.DOTALL)
    found = None if said is not None or whole is None else parse_json(whole["text"], strict=False)
    if found is None:
        return None
    mended.append("broken_json")
    return {tool.text: found}


def _argument(parameter: Parameter, given: JsonObject, tool: Tool, mended: list[str]) -> object:
    """Return one argument. Raises ValueError where it is missing, or cannot be meant."""
    empty = (None,) if parameter.default is None else (None, "")
    name = next((each for each in parameter.names if given.get(each) not in empty), None)
    if name is None:
        if parameter.required and parameter.default is None:
            asked = {each.name: each.schema() for each in tool.parameters if each.required}
            raise ValueError(f"the argument '{parameter.name}' is missing; it takes {json.dumps(asked)}")
        return parameter.default
    if name != parameter.name:
        mended.append("alias")
    return parameter.kind.read(given[name], parameter, mended)
