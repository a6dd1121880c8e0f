"""Answers of a model: each unusable one has a reason, and a call that is written as text is not a call."""

import pytest
from each_row import each_row
from stream_shapes import TOOLS, call_chunk, chunk, entry, finished

from dsa.generators import reconcile_stream
from dsa.generators.streams import StreamResult
from machines.tool_use.tool_call import MOST_MISPLACED, ModelUsage, Tool, answer_of

OFFERED = [Tool(each["function"]["name"], "", schema=each["function"]["parameters"]) for each in TOOLS]
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


def brought(*chunks, misplaced=0):
    return answer_of(reconcile_stream(chunks, TOOLS), lambda name, _beside: name, OFFERED, misplaced_count=misplaced)


def a_call():
    return call_chunk(entry(0, '{"city": "Paris"}', given_id="a", name="get_weather"))


@each_row("reason", ["MALFORMED_FUNCTION_CALL", "length", "content_filter", "SAFETY", "OTHER", "pause"])
@each_row("said", [[a_call()], []], ids=["a call", "nothing"])
def test_abnormal_finish_reason_makes_no_call_and_is_reported(reason, said):
    kind, data = brought(*said, finished(reason))
    assert (kind, data.calls) == ("cut_off", ())
    known = {"length": "limit of tokens", "content_filter": "content filter", "SAFETY": "content filter"}
    assert known.get(reason, reason).lower() in data.why.lower()
    assert data.why in data.note


def test_call_is_made_when_its_stream_ends_normally():
    assert brought(a_call(), finished("tool_calls"))[0] == "asked"
    assert brought(a_call(), finished("stop"))[0] == "asked"


def test_answer_of_nothing_but_a_draft_counts_as_cut_off():
    kind, data = brought(chunk({"content": "<think>Hm."}), finished("stop"))
    assert (kind, data.why) == ("cut_off", "it was only reasoning, without a text")


@pytest.mark.parametrize(
    "text",
    [
        f"I look it up: {CALL}",
        f"I look it up: {CALL} and tell you.",
        f"I look it up.\n```json\n{CALL}\n```",
        "<tool_call>get_weather, city Paris</tool_call>",
        f"So.\n<tool_call>\n{CALL[:-20]}, get_weather",
        'Now {"tool": "get_weather", "parameters": {"city": "Par',
    ],
)
def test_text_that_seems_to_call_a_tool_is_not_an_answer(text):
    kind, data = brought(chunk({"content": text}), finished("stop"))
    assert kind == "cut_off" or data.calls, data
    if kind == "cut_off":
        assert data.misplaced == "get_weather"
        assert "Call the tool itself" in data.note
        assert brought(chunk({"content": text}), finished("stop"), misplaced=MOST_MISPLACED)[0] == "said"


@pytest.mark.parametrize(
    "text",
    [
        f"One calls it by `{CALL}`.",
        f"An example:\n```json\n{CALL}\n```\nThat is all.",
        'The data is {"name": "get_weather"}.',
        'The data is {"name": "Ann", "arguments": {}}.',
        "The tool get_weather is called in <b>tags</b>.",
        "Use `<tool_call>` for get_weather.",
    ],
)
def test_text_that_talks_about_calls_is_an_answer(text):
    kind, data = brought(chunk({"content": text}), finished("stop"))
    assert (kind, data.content) == ("said", text)


@each_row("odd", ["NaN", "12", -1, -(10**30), 10**30, True, 1.5, [1], {"a": 1}, float("nan")])
def test_invalid_token_count_is_unknown(odd):
    usage = {"prompt_tokens": odd, "completion_tokens": 3, "cost": 0.5}
    _, told = answer_of(StreamResult(content="hi", finish_reason="stop", usage=usage), lambda name, _: name, ())
    assert told.usage == ModelUsage(None, 3, 0.5)


@each_row("odd", ["0.5", -1e308, -0.1, float("inf"), float("nan"), True, 10**400, [1]])
def test_invalid_cost_is_unknown(odd):
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "cost": odd}
    _, told = answer_of(StreamResult(content="hi", finish_reason="stop", usage=usage), lambda name, _: name, ())
    assert told.usage == ModelUsage(2, 3, None)
