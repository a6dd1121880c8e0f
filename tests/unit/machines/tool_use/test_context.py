"""A model that cannot read so much is sent less: by real servers that say so in the words of providers."""

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


def told(*sizes):
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
def test_less_is_sent_and_the_model_asked_again_whatever_the_provider_says(words):
    notices = []
    messages = told(9_000, 9_000)
    with serving(refusing(400, {"error": {"message": words}}), GOOD) as (address, requests):
        result, room = asked(address, messages, notices)
    assert (result.content, len(requests), len(notices)) == ("Hello", 2, 1)
    assert sent(requests[1]) < 0.75 * size_of(messages)
    assert room < 60_000


def test_a_code_says_it_too():
    assert reason_of(400, "no context_length_exceeded") == "context_too_long"
    assert reason_of(500, "the request exceeds the available context size") == "context_too_long"
    assert reason_of(429, "Request too large: tokens per minute") == "rate_limit"


def test_it_is_said_in_an_answer_with_a_good_status_too():
    body = {"error": {"message": WORDS["OpenAI"], "code": "context_length_exceeded"}}
    with serving(answered(json.dumps(body).encode(), kind="application/json"), GOOD) as (address, requests):
        assert asked(address, told(9_000))[0].content == "Hello"
    assert len(requests) == 2


def test_what_is_over_by_the_server_s_numbers_is_left_out():
    notices = []
    words = "maximum context length is 9000 tokens, and you sent 10,000 tokens"
    with serving(refusing(400, {"error": {"message": words}}), GOOD) as (address, requests):
        asked(address, told(9_000, 9_000), notices)
    sizes = [sent(request) for request in requests]
    assert 0.5 < sizes[1] / sizes[0] < 0.9


def test_where_nothing_can_be_left_out_the_refusal_is_told():
    with serving(refusing(400, {"error": {"message": WORDS["OpenAI"]}})) as (address, requests):
        with pytest.raises(GenerationError) as error:
            asked(address, [ChatMessage("user", "z" * 9_000)])
        assert (error.value.reason, len(requests)) == ("context_too_long", 1)


def test_other_refusals_are_told_at_once():
    with serving(refusing(400, {"error": {"message": "no"}})) as (address, requests):
        with pytest.raises(GenerationError) as error:
            asked(address, told(9_000))
        assert (error.value.reason, len(requests)) == ("failed", 1)


def test_the_oldest_of_the_largest_give_way_first():
    messages = told(9_000, 20, 9_000)
    found = within(messages, size_of(messages) - 3_000)
    assert [len(each.content or "") < len(was.content or "") for each, was in zip(found, messages, strict=True)] == [
        False, False, True, False, False, False, False,
    ]  # fmt: skip
    assert json.loads(found[2].content)["output"].startswith("zzz")
    assert within(messages, size_of(messages)) == messages
    assert within(messages, 0)[0] == messages[0]


def test_a_room_holds_for_the_same_model_and_wish_alone():
    room = room_of(5_000, 48_000, "m")
    assert room == Room(5_000, 48_000, "m")
    assert first_room(room, 48_000, "m") == 5_000
    assert first_room(room, 48_000, "another") == 48_000
    assert first_room(room, 90_000, "m") == 90_000
    assert first_room(None, 48_000, "m") == 48_000
    assert room_of(48_000, 48_000, "m") is None


def test_a_result_that_is_shortened_stays_json():
    message = ChatMessage("tool", json.dumps({"a": "z" * 500}), answers="a")
    assert json.loads(shorten(message, 300).content)["a"].startswith("z")
