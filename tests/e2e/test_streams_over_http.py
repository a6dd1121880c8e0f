"""Every shape of `tests/streams/` over real HTTP, from a server to the client."""

import json

import pytest
from each_row import each_row
from stream_server import answered, events, lines, serving
from stream_shapes import IDS, SHAPES, said, wanted

from dsa.generators import ChatClient
from dsa.runtime.generation import GenerationError

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

MESSAGES = [{"role": "user", "content": "?"}]


def asked(shape, answer):
    path = "/api" if shape.file == "ollama" else "/v1"
    with serving(answer) as (address, requests):
        result = ChatClient(f"{address}{path}#m").ask_and_wait(MESSAGES, shape.tools)
    assert requests[0].path == path + ("/chat" if path == "/api" else "/chat/completions")
    return result


def written(shape):
    return lines(shape.chunks) if shape.file == "ollama" else b": OPENROUTER PROCESSING\n\n" + events(shape.chunks)


#: One shape of eight over a connection, and all refusals; `tests/unit/generators/streams/` reads each shape without a connection.
REFUSED = [shape for shape in SHAPES if not shape.chunks or shape.chunks[0].get("error")]
SAMPLE = {shape.name for shape in [*SHAPES[::8], *REFUSED]}


@each_row("shape", [shape for shape in SHAPES if shape.name in SAMPLE], ids=lambda shape: shape.name)
def test_shape_gives_the_right_calls_over_http(shape):
    require_right_calls(shape)


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_every_shape_gives_the_right_calls_over_http(shape):
    require_right_calls(shape)


def require_right_calls(shape):
    if not shape.chunks:
        with pytest.raises(GenerationError, match="gave an empty answer"):
            asked(shape, answered(written(shape)))
        return
    if shape.chunks[0].get("error") and not shape.chunks[0].get("choices"):
        with pytest.raises(GenerationError):  # a refusal, whatever its status
            asked(shape, answered(written(shape)))
        return
    kind = "application/x-ndjson" if shape.file == "ollama" else "text/event-stream"
    assert said(asked(shape, answered(written(shape), kind=kind)), shape.expected) == wanted(shape.expected)


@each_row("shape", [shape for shape in SHAPES if shape.chunks][::12], ids=lambda shape: shape.name)
def test_shape_may_arrive_byte_by_byte(shape):
    body = written(shape)
    assert said(asked(shape, answered(*(body[at : at + 1] for at in range(len(body))))), shape.expected) == wanted(
        shape.expected
    )


@each_row("shape", [shape for shape in SHAPES if shape.chunks][::10], ids=lambda shape: shape.name)
def test_line_ends_and_blanks_may_vary(shape):
    body = lines(shape.chunks) if shape.file == "ollama" else b"\xef\xbb\xbf" + events(shape.chunks)
    turned = body.replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    assert said(asked(shape, answered(turned, kind="text/plain")), shape.expected) == wanted(shape.expected)


def test_answer_without_a_stream_is_read_too():
    """Some servers ignore `stream`."""
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    whole = {
        "id": "1", "object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [call]}}],
    }  # fmt: skip
    for text in (json.dumps(whole), json.dumps(whole, indent=2), json.dumps(whole) + "\n"):
        with serving(answered(text.encode(), kind="application/json")) as (address, _):
            result = ChatClient(f"{address}#m").ask_and_wait(MESSAGES)
        assert [(call.id, call.name, call.arguments) for call in result.executable] == [("a", "now", {})]
        assert (result.usage, result.model) == ({"prompt_tokens": 1, "completion_tokens": 2}, "m")
