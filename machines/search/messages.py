"""A policy's ledger as the messages of OpenAI's format, and a model's reply as steps (seed 004, section 6.1).

Pure. Servers refuse a conversation in which a tool call has no answer or an answer no call: each call is written with its
result right behind, and one without a result is told as such.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import attrs

from dsa.runtime.policies import ACTION_CALL, ACTION_RESULT, TEXT, Action, Step, action_call_step, text_step

ASSISTANT = "assistant"

_ROLES = frozenset({"system", "user", ASSISTANT})
_NO_RESULT = {"error": True, "code": "NO_RESULT", "message": "nobody knows what came of this call"}

Message = dict[str, Any]


@attrs.frozen
class Reply:
    """What a model said: a text, the calls it asks for as pairs of name and arguments' text, what it took."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    usage: dict[str, Any] = attrs.field(factory=dict)


def messages_of(ledger: Iterable[Step]) -> list[Message]:
    """Write a ledger as messages. What other policies than the model called, and what came of it, is told as the user's."""
    steps = list(ledger)
    results = _results(steps)
    messages: list[Message] = []
    is_open = False  # the last message is of the turn that goes on
    for at, step in enumerate(steps):
        if step.type == TEXT and step.actor == ASSISTANT:
            messages.append({"role": ASSISTANT, "content": step.payload["text"]})
        elif step.type == TEXT:
            messages.append({"role": step.actor if step.actor in _ROLES else "user", "content": step.payload["text"]})
        elif step.type == ACTION_CALL and step.actor == ASSISTANT:
            if not is_open:
                messages.append({"role": ASSISTANT, "content": None})
            messages[-1].setdefault("tool_calls", []).append(_call(step, _id(at, step)))
        elif step.type == ACTION_RESULT and at not in results.values():
            messages.append({"role": "user", "content": f"{step.actor} gave: {_written(step.payload)}"})
        is_open = step.actor == ASSISTANT and step.type in {TEXT, ACTION_CALL}
    told = {_id(at, steps[at]): steps[result].payload for at, result in results.items()}
    return [written for message in messages for written in (message, *_answers(message, told))]


def _results(steps: list[Step]) -> dict[int, int]:
    """Give the position of each result by that of the model's call. Ids come again where runs are put together: the nearest counts."""
    calls: dict[str, int] = {}
    results: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.type == ACTION_CALL and step.actor == ASSISTANT:
            calls[f"{step.id}.result"] = at
        elif step.type == ACTION_RESULT and step.id in calls:
            results[calls.pop(step.id)] = at
    return results


def _answers(message: Message, told: dict[str, Any]) -> list[Message]:
    """Give the messages that have to stand behind one with tool calls: what came of each."""
    ids = [call["id"] for call in message.get("tool_calls", ())]
    return [{"role": "tool", "tool_call_id": name, "content": _written(told.get(name, _NO_RESULT))} for name in ids]


def _call(step: Step, call_id: str) -> Message:
    asked = step.payload
    function = {"name": asked["policy"], "arguments": _written(asked["payload"])}
    return {"id": call_id, "type": "function", "function": function}


def _id(at: int, step: Step) -> str:
    """Give an id that every provider takes: nine letters and digits."""
    return hashlib.sha256(f"{at} {step.id}".encode()).hexdigest()[:9]


def _written(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def steps_of(reply: Reply) -> list[Step]:
    """Give a reply as steps. Arguments that are no JSON object are told in the step, and are nobody's payload.

    The first step says what the reply took.
    """
    about = {"usage": reply.usage} if reply.usage else {}
    steps = [text_step(ASSISTANT, reply.text, about=about)] if reply.text else []
    for name, arguments in reply.calls:
        payload, fault = _read(arguments)
        more = ({} if steps else about) | ({"fault": fault} if fault else {})
        steps.append(action_call_step(ASSISTANT, Action(name, payload), about=more))
    return steps


def _read(arguments: str) -> tuple[dict[str, Any], str]:
    try:
        payload = json.loads(arguments or "{}", parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are no JSON: {error}"
    if not isinstance(payload, dict):
        return {}, f"the arguments are {type(payload).__name__}, not an object"
    return payload, ""


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
