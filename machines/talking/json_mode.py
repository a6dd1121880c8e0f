"""Tools for models that can call none: a call is written as JSON that a schema holds to its form.

Takes messages and tools in OpenAI's form, gives messages of plain text, the schema of an answer, and what an answer means. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from machines.talking.texts import parse_json

Messages = Sequence[Mapping[str, Any]]
ANSWER = "answer"


def response_format(tools: Messages) -> dict[str, Any]:
    """Give what a server is to hold the answer to: one call, or an answer in words."""
    functions = [tool["function"] for tool in tools]
    choices = [_choice(function["name"], function["parameters"]) for function in functions]
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    schema = {"anyOf": [*choices, _choice(ANSWER, text)]}
    return {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}


def _choice(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"tool": {"const": name}, "arguments": {**arguments, "additionalProperties": False}}
    return {
        "type": "object",
        "properties": properties,
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def with_tools_told(messages: Messages, tools: Messages) -> list[dict[str, Any]]:
    """Give messages whose first one says which tools there are, and how they are called."""
    lines = [f"- {_signature(tool['function'])}: {tool['function']['description']}" for tool in tools]
    told = "\n".join([
        'Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {..}}. The tools:', *lines,
        f"- {ANSWER}(text): say something to the user instead.",
    ])  # fmt: skip
    first, *rest = messages
    return [{**first, "content": f"{first['content']}\n\n{told}"}, *map(dict, rest)]


def _signature(function: Mapping[str, Any]) -> str:
    parameters = function["parameters"]
    required = parameters.get("required") or ()
    names = [name if name in required else f"{name}?" for name in parameters.get("properties") or ()]
    return f"{function['name']}({', '.join(names)})"


def as_texts(messages: Messages) -> list[dict[str, Any]]:
    """Give messages of plain text: a call as the JSON that the model would write, its result as the user's word."""
    said: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "tool":
            text = f"[{names.get(message['tool_call_id'], 'a tool')} gave] {message['content']}"
            said.append({"role": "user", "content": text})
            continue
        lines = [message["content"]] if message.get("content") else []
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            lines.append(_written(call["function"]))
        said.append({"role": message["role"], "content": "\n".join(lines)})
    return _joined(said)


def _written(function: Mapping[str, Any]) -> str:
    return json.dumps({"tool": function["name"], "arguments": json.loads(function["arguments"])}, ensure_ascii=False)


def _joined(messages: Messages) -> list[dict[str, Any]]:
    """Join messages of one role that follow each other: small models were trained with turns."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(dict(message))
    return joined


def read_reply(text: str) -> dict[str, Any] | None:
    """Give an answer as `content` and `tool_calls`; None for what is no such JSON."""
    said = parse_json(text)
    if not isinstance(said, dict) or not isinstance(said.get("tool"), str):
        return None
    given = said.get("arguments")
    arguments: dict[str, Any] = given if isinstance(given, dict) else {}
    if said["tool"] == ANSWER:
        return {"content": str(arguments.get("text") or "")}
    return {"tool_calls": [{"name": said["tool"], "arguments": arguments}]}
