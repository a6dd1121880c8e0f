"""What a server is asked, as JSON: OpenAI's chat completions, or Ollama's own protocol.

Takes messages and tools in OpenAI's form, gives the body of a request for a stream. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

#: Parameters that some servers refuse, and what they want instead, if anything: they are left out, and the server asked again.
REFUSABLE: dict[str, str | None] = {
    "stream_options": None,
    "seed": None,
    "temperature": None,
    "max_tokens": "max_completion_tokens",
}


@attrs.frozen
class Settings:
    """How the model is to write. `more` goes into the body as it is (`tool_choice`, `response_format`, ..)."""

    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    more: Mapping[str, Any] = attrs.field(factory=dict)


def openai_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Give the body for `/chat/completions`; it asks for the counts of tokens too."""
    body: dict[str, Any] = {"model": model, "messages": [dict(message) for message in messages], "stream": True}
    body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
    numbers = {"temperature": settings.temperature, "max_tokens": settings.max_tokens, "seed": settings.seed}
    return body | {name: value for name, value in numbers.items() if value is not None} | dict(settings.more)


def ollama_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Give the body for Ollama's `/api/chat`: numbers are options there, and arguments of calls are objects."""
    numbers = {"temperature": settings.temperature, "num_predict": settings.max_tokens, "seed": settings.seed}
    options = {name: value for name, value in numbers.items() if value is not None}
    body: dict[str, Any] = {"model": model, "messages": [_for_ollama(message) for message in messages], "stream": True}
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
    return body | ({"options": options} if options else {}) | dict(settings.more)


def _for_ollama(message: Mapping[str, Any]) -> dict[str, Any]:
    turned = dict(message) | {"content": message.get("content") or ""}
    if calls := message.get("tool_calls"):
        turned["tool_calls"] = [
            {
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"] or "{}"),
                }
            }
            for call in calls
        ]
    return turned


def without_refused(body: Mapping[str, Any], refusal: str) -> dict[str, Any] | None:
    """Give the body without the parameter that a refusal names, or by the name that is wanted; None when it names none."""
    for name, wanted in REFUSABLE.items():
        if name in body and name in refusal:
            kept = {key: value for key, value in body.items() if key != name}
            return kept | {wanted: body[name]} if wanted else kept
    return None
