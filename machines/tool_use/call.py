"""Calls of tools: as a model asks for them, as they are meant, and what came of them."""

import json
from functools import cached_property
from typing import Generic, TypeVar

import attrs

from machines.tool_use.names import name_sent
from machines.tool_use.records import JsonObject
from machines.tool_use.tool import Tool

AnyTool = TypeVar("AnyTool", bound=Tool)


@attrs.frozen
class ToolCall:
    """A call as a model has asked for it. `id` is ours, which no other call of the run has; `provider_id` is the provider's.

    `arguments` is None exactly when `error` (`dsa.generators.streams.CALL_ERRORS`) says why there are none; then `text` is what was sent for them.
    `extra` is what the provider wants back.
    """

    id: str
    provider_id: str
    name: str
    arguments: JsonObject | None
    error: str = ""
    text: str = ""
    extra: JsonObject = attrs.field(factory=dict)

    def as_part(self) -> JsonObject:
        """Return it as OpenAI's messages have it; the name is one that providers take."""
        function = {
            "name": name_sent(self.name),
            "arguments": json.dumps(self.arguments or {}, ensure_ascii=False),
        }
        return {**self.extra, "id": self.provider_id, "type": "function", "function": function}


@attrs.frozen
class Meant(Generic[AnyTool]):
    """A call as it is meant: a tool, and arguments as that takes them. `tool` is None, and `fault` says why, for one that is of no tool or cannot be read.

    `rescues` names each kind of thing that was mended.
    """

    call_id: str
    tool: AnyTool | None
    arguments: JsonObject = attrs.field(factory=dict)
    rescues: tuple[str, ...] = ()
    fault: str = ""


@attrs.frozen
class Fault:
    """Why a call was not made, or not to its end: a code, and words for the model."""

    code: str
    message: str


@attrs.frozen
class ToolResult:
    """What the model is told of a call: the JSON that the tool gave, or `error` with a code and a message."""

    call_id: str
    content: JsonObject

    @cached_property
    def fault(self) -> Fault | None:
        """Why it was not made, or not to its end; None where it was."""
        error = self.content.get("error")
        is_fault = isinstance(error, dict) and {"code", "message"} <= error.keys()
        return Fault(str(error["code"]), str(error["message"])) if isinstance(error, dict) and is_fault else None

    @property
    def is_left_out(self) -> bool:
        """Tell whether the call was left out, behind another one or for want of room."""
        return self.fault is not None and self.fault.code == LEFT_OUT

    def as_text(self) -> str:
        """Return it as the model reads it."""
        return json.dumps(self.content, ensure_ascii=False)


#: Why a call was not made that stood behind another one, or for which there was no room.
LEFT_OUT = "too_many_calls"


def refused(call_id: str, code: str, message: str, **more: object) -> ToolResult:
    """Return the result of a call that was not made, or not to its end."""
    return ToolResult(call_id, {"error": {"code": code, "message": message}, **more})
