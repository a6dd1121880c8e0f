"""What a server is asked, as JSON: OpenAI's chat completions, or Ollama's own protocol.

Takes messages and tools in OpenAI's form, gives the body of a request for a stream. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsa.immutable import immutable

#: Parameters that some servers refuse, and what they want instead, if anything: they are left out, and the server asked again.
REFUSABLE: dict[str, str | None] = {
    "stream_options": None, "seed": None, "temperature": None, "max_tokens": "max_completion_tokens",
}  # fmt: skip


#: The least that Ollama is asked to make room for. Where it is not asked, it may take this, and cut the beginning of what is longer off in silence.
_SMALLEST_WINDOW = 4_096
_CHARS_PER_TOKEN, _ANSWER_TOKENS = 3, 4_096


@attrs.frozen(field_transformer=immutable)
class Settings:
    """How the model is to write. `more` goes into the body as it is (`tool_choice`, `response_format`, ..).

    `window_tokens` is the room for request and answer together, which Ollama's own protocol asks for; None is as much as this request needs.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    more: Mapping[str, Any] = attrs.field(factory=dict)
    window_tokens: int | None = None


def openai_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Give the body for `/chat/completions`; it asks for the counts of tokens too."""
    body: dict[str, Any] = {"model": model, "messages": _as_dicts(messages), "stream": True}
    body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = _as_dicts(tools)
    numbers = {"temperature": settings.temperature, "max_tokens": settings.max_tokens, "seed": settings.seed}
    return body | {name: value for name, value in numbers.items() if value is not None} | dict(settings.more)


def _as_dicts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [part if isinstance(part, dict) else dict(part) for part in parts]


def ollama_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Give the body for Ollama's `/api/chat`.

    There numbers are options, arguments of calls are objects, a result is known by its tool's name, a schema is the `format`, and a request for which
    no room is asked is cut to what the server thinks fit.
    """
    body: dict[str, Any] = {"model": model, "messages": _for_ollama(messages), "stream": True}
    if tools:
        body["tools"] = _as_dicts(tools)
    more = dict(settings.more)
    schema = (more.pop("response_format", None) or {}).get("json_schema", {}).get("schema")
    if schema is not None:
        body["format"] = schema
    numbers = {
        "temperature": settings.temperature,
        "num_predict": settings.max_tokens,
        "seed": settings.seed,
        "num_ctx": settings.window_tokens or _window_for(body, settings.max_tokens),
    }
    return body | {"options": {name: value for name, value in numbers.items() if value is not None}} | more


def _window_for(body: Mapping[str, Any], max_tokens: int | None) -> int:
    """Give the room that a request and its answer need, doubled step by step: another one has Ollama load the model anew."""
    said = len(json.dumps(body, ensure_ascii=False)) // _CHARS_PER_TOKEN + (max_tokens or _ANSWER_TOKENS)
    return _SMALLEST_WINDOW << max(0, (said - 1) // _SMALLEST_WINDOW).bit_length()


def _for_ollama(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    turned = []
    for message in messages:
        one = dict(message) | {"content": message.get("content") or ""}
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            one["tool_calls"] = [_call_for_ollama(call) for call in calls]
        if message.get("tool_call_id") in names:
            one["tool_name"] = names[message["tool_call_id"]]
        turned.append(one)
    return turned


def _call_for_ollama(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": call["id"],
        "function": {"name": function["name"], "arguments": json.loads(function["arguments"] or "{}")},
    }


def without_refused(body: Mapping[str, Any], refusal: str) -> dict[str, Any] | None:
    """Give the body without the parameter that a refusal names, or by the name that is wanted; None when it names none."""
    for name, wanted in REFUSABLE.items():
        if name in body and name in refusal:
            kept = {key: value for key, value in body.items() if key != name}
            return kept | {wanted: body[name]} if wanted else kept
    return None
