"""Models that call no tools: they are told of them, and write a call as JSON, which a schema holds to its form."""

import json
from collections.abc import Iterable, Sequence

import attrs

from machines.tool_use.json_values import parse_json
from machines.tool_use.message import Message, joined
from machines.tool_use.records import JsonObject
from machines.tool_use.tool import Tool

_ANSWER = "answer"


@attrs.frozen
class WrittenCall:
    """A call as it is written: arguments are an object, or a text where they are to be broken."""

    name: str
    arguments: object = attrs.field(factory=dict)


@attrs.frozen
class Reply:
    """What a model has written: a text, or a call of a tool."""

    content: str = ""
    calls: tuple[WrittenCall, ...] = ()


def response_format(tools: Sequence[Tool]) -> JsonObject:
    """Return what a server is to hold the answer to: one call, or an answer in words."""
    choices = [_choice(tool.name, tool.arguments_schema()) for tool in tools]
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    schema = {"anyOf": [*choices, _choice(_ANSWER, text)]}
    return {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}


def _choice(name: str, arguments: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": {"tool": {"const": name}, "arguments": {**arguments, "additionalProperties": False}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def with_tools_told(messages: Sequence[Message], tools: Iterable[Tool]) -> list[Message]:
    """Return messages whose first one says which tools there are, and how they are called."""
    told = "\n".join([
        'Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {..}}. The tools:',
        *(f"- {_signature(tool)}: {tool.about}" for tool in tools),
        f"- {_ANSWER}(text): say something to the user instead.",
    ])  # fmt: skip
    first, *rest = messages
    return [attrs.evolve(first, content=f"{first.content}\n\n{told}"), *rest]


def _signature(tool: Tool) -> str:
    schema = tool.arguments_schema()
    required, properties = schema.get("required"), schema.get("properties")
    wanted = required if isinstance(required, list | tuple) else ()
    names = [name if name in wanted else f"{name}?" for name in properties] if isinstance(properties, dict) else []
    return f"{tool.name}({', '.join(names)})"


def as_texts(messages: Iterable[Message]) -> list[Message]:
    """Return messages of plain text: a call as the JSON that the model would write, its result as the user's word."""
    said: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            said.append(Message("user", f"[{names.get(message.answers, 'a tool')} gave] {message.content}"))
            continue
        lines = [message.content] if message.content else []
        for call in message.calls:
            names[call.provider_id] = call.name
            lines.append(json.dumps({"tool": call.name, "arguments": call.arguments or {}}, ensure_ascii=False))
        said.append(Message(message.role, "\n".join(lines)))
    return joined(said, "\n", {"system", "user", "assistant"})  # small models were trained with turns


def read_reply(text: str) -> Reply | None:
    """Return what a model has written; None for what is no such JSON."""
    said = parse_json(text)
    if not isinstance(said, dict) or not isinstance(said.get("tool"), str):
        return None
    given = said.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    if said["tool"] == _ANSWER:
        return Reply(str(arguments.get("text") or ""))
    return Reply(calls=(WrittenCall(said["tool"], arguments),))
