"""Requests that are too long for a model are shortened: real servers refuse them in the words of providers."""

import asyncio
import json

import pytest
from each_row import each_row
from stream_server import answered, events, refusing, serving
from stream_shapes import chunk, finished

from dsa.edge.model_server import reason_of
from dsa.runtime.generation import GenerationError
from machines.tool_use.chat_model import ModelOptions, model_of
from machines.tool_use.tool_call import Room, ToolCall
from machines.tool_use.transcript import ChatMessage, ask_within, first_room, room_of, shorten, size_of, within

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

GOOD = answered(events([chunk({"content": "Hello"}), finished("stop")]))
WORDS = {
    "OpenAI": "This model's maximum context length is 3500 tokens. However, your messages resulted in 7000 tokens.",
    "Anthropic": "prompt is too long: 7000 tokens > 3500 maximum",
    "Anthropic's limit": "input length and `max_tokens` exceed context limit: 7000 + 32000 > 3500",
    "Gemini": "The input token count (7000) exceeds the maximum number of tokens allowed (3500).",
    "Ollama": "the input length exceeds the context length",
    "vLLM": "The decoder prompt (length 7000) is longer than the maximum model length of 3500.",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Groq": "Please reduce the length of the messages or completion.",
    "Bedrock": "Input is too long for requested model.",
    "xAI": "This model's maximum prompt length is 3500 but the request contains 7000 tokens.",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 3500.",
    "Qwen": "Range of input length should be [1, 3500]",
}


def conversation_with(*sizes):
    """A conversation with results of these sizes."""
    messages = [ChatMessage("user", "?")]
    for number, size in enumerate(sizes):
        call = ToolCall(f"c{number}", f"c{number}", "f", {})
        messages.append(ChatMessage("assistant", None, (call,)))
        messages.append(ChatMessage("tool", json.dumps({"output": "z" * size}), answers=f"c{number}"))
    return messages


def sent(request):
    return len(json.dumps(request.body["messages"]))


def asked(address, messages, notices=None):
    model = model_of(f"{address}/v1#m", ModelOptions())

    def ask(shorter):
        return model.ask(shorter, (), number=0, on_text=None)

    notice = (lambda _text: None) if notices is None else notices.append
    return asyncio.run(ask_within(ask, lambda room: within(messages, room), 60_000, beside=0, notice=notice))


@each_row("words", WORDS.values(), ids=WORDS)
def test_shorter_request_follows_a_refusal_of_any_provider(words):
    notices = []
    messages = conversation_with(9_000, 9_000)
    with serving(refusing(400, {"error": {"message": words}}), GOOD) as (address, requests):
        result, room = asked(address, messages, notices)
    assert (result.content, len(requests), len(notices)) == ("Hello", 2, 1)
    assert sent(requests[1]) < 0.75 * size_of(messages)
    assert room < 60_000


def test_reason_is_recognised_from_codes_and_messages():
    assert reason_of(400, "no context_length_exceeded") == "context_too_long"
    assert reason_of(500, "the request exceeds the available context size") == "context_too_long"
    assert reason_of(429, "Request too large: tokens per minute") == "rate_limit"


def test_refusal_is_recognised_in_a_response_with_status_200():
    body = {"error": {"message": WORDS["OpenAI"], "code": "context_length_exceeded"}}
    with serving(answered(json.dumps(body).encode(), kind="application/json"), GOOD) as (address, requests):
        assert asked(address, conversation_with(9_000))[0].content == "Hello"
    assert len(requests) == 2


def test_excess_by_the_numbers_of_the_server_is_left_out():
    notices = []
    words = "maximum context length is 9000 tokens, and you sent 10,000 tokens"
    with serving(refusing(400, {"error": {"message": words}}), GOOD) as (address, requests):
        asked(address, conversation_with(9_000, 9_000), notices)
    sizes = [sent(request) for request in requests]
    assert 0.5 < sizes[1] / sizes[0] < 0.9


def test_refusal_is_reported_when_nothing_can_be_left_out():
    with serving(refusing(400, {"error": {"message": WORDS["OpenAI"]}})) as (address, requests):
        with pytest.raises(GenerationError) as error:
            asked(address, [ChatMessage("user", "z" * 9_000)])
        assert (error.value.reason, len(requests)) == ("context_too_long", 1)


def test_other_refusals_are_reported_at_once():
    with serving(refusing(400, {"error": {"message": "no"}})) as (address, requests):
        with pytest.raises(GenerationError) as error:
            asked(address, conversation_with(9_000))
        assert (error.value.reason, len(requests)) == ("failed", 1)


def test_oldest_of_the_largest_results_is_shortened_first():
    messages = conversation_with(9_000, 20, 9_000)
    found = within(messages, size_of(messages) - 3_000)
    assert [len(each.content or "") < len(was.content or "") for each, was in zip(found, messages, strict=True)] == [
        False, False, True, False, False, False, False,
    ]  # fmt: skip
    assert json.loads(found[2].content)["output"].startswith("zzz")
    assert within(messages, size_of(messages)) == messages
    assert within(messages, 0)[0] == messages[0]


def test_room_is_valid_only_for_the_same_model_and_limit():
    room = room_of(5_000, 48_000, "m")
    assert room == Room(5_000, 48_000, "m")
    assert first_room(room, 48_000, "m") == 5_000
    assert first_room(room, 48_000, "another") == 48_000
    assert first_room(room, 90_000, "m") == 90_000
    assert first_room(None, 48_000, "m") == 48_000
    assert room_of(48_000, 48_000, "m") is None


def test_shortened_result_stays_json():
    message = ChatMessage("tool", json.dumps({"a": "z" * 500}), answers="a")
    assert json.loads(shorten(message, 300).content)["a"].startswith("z")
