"""What a model's answer brings, as the data of an event; and calls as a model is reminded of them.

Takes an answer as the stream reconciler gives it. Whether it asks for calls, says something or broke off is all that is decided here. Pure.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from dsa.generators.streams import StreamResult, ToolCall
from machines.talking.names import name_sent
from machines.talking.texts import is_writable

#: It asks for calls · it says something, and asks for nothing · it broke off, or says nothing at all
Kind = Literal["asked", "said", "cut_off"]
#: Gives an id of a call that no other call has, nor those beside it: providers repeat theirs.
FreeId = Callable[[str, Collection[str]], str]


def answer_told(result: StreamResult, free_id: FreeId) -> tuple[Kind, dict[str, Any]]:
    """Give what kind of answer came, and the data of its event: `content`, `rescues`, `usage`, `model`, and `calls` or `why`."""
    told = {
        "content": result.content,
        "rescues": dict(result.rescues),
        "usage": _taken(result.usage),
        "model": result.model,
    }
    kind, more = _kind_of(result, free_id)
    return kind, {**told, **more}


def _taken(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give what an answer took, as far as its provider says: `cost` is what OpenRouter calls it."""
    said = usage if usage is not None and is_writable(usage) else {}
    return {
        "prompt_tokens": said.get("prompt_tokens"),
        "completion_tokens": said.get("completion_tokens"),
        "cost_usd": said.get("cost"),
    }


def _kind_of(result: StreamResult, free_id: FreeId) -> tuple[Kind, dict[str, Any]]:
    if result.error is not None:
        return "cut_off", {"why": str(result.error)}
    if result.tool_calls:
        return "asked", {"calls": _calls(result.tool_calls, free_id)}
    if result.finish_reason == "length":
        return "cut_off", {"why": "it reached its limit of tokens"}
    if not result.content.strip():
        return "cut_off", {"why": "it was empty"}
    return "said", {}


def _calls(calls: tuple[ToolCall, ...], free_id: FreeId) -> list[dict[str, Any]]:
    """Give the calls with ids of our own, which are unique; the provider's are echoed as they came."""
    taken: set[str] = set()
    found = []
    for call in calls:
        name = free_id(call.id, taken)
        taken.add(name)
        error = call.error if is_writable(call.arguments) else "invalid_arguments"
        arguments = None if error else call.arguments
        about = {"id": name, "provider_id": call.id, "name": call.name, "arguments": arguments}
        more = {"error": error, "text": call.text} if error else {}
        extra = {"extra": dict(call.extra)} if call.extra and is_writable(call.extra) else {}
        found.append({**about, **more, **extra})
    return found


def free_id(call_id: str, beside: Collection[str], taken: Collection[str]) -> str:
    """Give an id of a call that is neither taken nor beside it."""
    number, name = 1, call_id
    while name in taken or name in beside:
        number += 1
        name = f"{call_id}-{number}"
    return name


def part_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Give a call as OpenAI's messages have it, with what its provider wants back; the name is one that providers take."""
    function = {"name": name_sent(call["name"]), "arguments": json.dumps(call["arguments"] or {}, ensure_ascii=False)}
    return {**(call.get("extra") or {}), "id": call["provider_id"], "type": "function", "function": function}


def refused(code: str, message: str, **more: object) -> dict[str, Any]:
    """Give the result of a call that was not made, or not to its end."""
    return {"error": {"code": code, "message": message}, **more}


def is_left_out(result: Mapping[str, Any]) -> bool:
    """Tell whether a call's result says that the call was left out, behind another one or for want of room."""
    return bool((result.get("error") or {}).get("code") == "too_many_calls")
