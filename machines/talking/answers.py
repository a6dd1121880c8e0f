"""What a model's answer brings, as the data of an event; and calls as a model is reminded of them.

Takes an answer as the stream reconciler gives it. Whether it asks for calls, says something or broke off is all that is decided here. Pure.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from dsa.generators.streams import StreamResult, ToolCall
from dsa.generators.streams.text_calls import misplaced_call
from dsa.generators.streams.tools import offered
from machines.talking.names import name_sent
from machines.talking.texts import is_writable

#: It asks for calls · it says something, and asks for nothing · it broke off, says nothing at all, or writes a call as text
Kind = Literal["asked", "said", "cut_off"]
#: Gives an id of a call that no other call has, nor those beside it: providers repeat theirs.
FreeId = Callable[[str, Collection[str]], str]


def answer_told(
    result: StreamResult, free_id: FreeId, tools: Sequence[Mapping[str, Any]] = (), *, misplaced: int = 0
) -> tuple[Kind, dict[str, Any]]:
    """Give what kind of answer came, and the data of its event: `content`, `rescues`, `usage`, `model`, and `calls` or `why`, with `advice`.

    A text that seems to call one of `tools` is no answer, unless the last answers have been such texts `MOST_MISPLACED` times (`misplaced`).
    """
    told = {
        "content": result.content,
        "rescues": dict(result.rescues),
        "usage": {
            "prompt_tokens": result.count("prompt_tokens"),
            "completion_tokens": result.count("completion_tokens"),
            "cost_usd": result.cost_usd,
        },
        "model": result.model,
    }
    kind, more = _kind_of(result, free_id)
    if kind == "said" and misplaced < MOST_MISPLACED and (name := misplaced_call(result.content, offered(tools))):
        kind, more = "cut_off", {"why": f"it has a call of {name} in its text", "advice": _CALL_IT, "misplaced": name}
    return kind, {**told, **more}


def _kind_of(result: StreamResult, free_id: FreeId) -> tuple[Kind, dict[str, Any]]:
    if result.error is not None:
        return "cut_off", {"why": str(result.error), "advice": _ADVICE.get(result.error.code, SHORTER)}
    if result.tool_calls:
        return "asked", {"calls": _calls(result.tool_calls, free_id)}
    if result.finish_reason == "length":
        return "cut_off", {"why": "it reached its limit of tokens", "advice": SHORTER}
    if result.finish_reason == "content_filter":
        return "cut_off", {"why": "a content filter stopped it", "advice": _ADVICE["filtered"]}
    if not result.content.strip():
        what = "it was nothing but a draft" if result.reasoning.strip() else "it was empty"
        is_end = result.finish_reason in {"stop", "tool_calls"}
        return "cut_off", {
            "why": what if is_end else f"{what}: the finish reason is {result.finish_reason}",
            "advice": SHORTER,
        }
    return "said", {}


SHORTER = "Say it again, shorter."
_CALL_IT = "Call the tool itself; to speak of such a call, put it into backticks."
#: What a model is to do after an answer with an error, by its code.
_ADVICE = {
    "malformed": "Make the call again, with its arguments as one JSON object.",
    "unknown_end": "Make the call again.",
    "filtered": "Say it in other words.",
}
#: How often in a row a model is told that its text has a call: then the text is an answer, whatever stands in it.
MOST_MISPLACED = 2


def note_on(cut_off: Mapping[str, Any]) -> str:
    """Give the note to the model on an answer that cannot be used, by the data of its event."""
    what = "is no answer" if cut_off.get("misplaced") else "did not arrive whole"
    return f"[Your last answer {what}: {cut_off.get('why')}. {cut_off.get('advice') or SHORTER}]"


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
