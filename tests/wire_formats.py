"""How three providers answer, byte by byte: OpenAI's chat completions, Anthropic's messages, Ollama's `/api/chat`; streams and whole answers.

Each format gives an answer for `stream_server`: its text in pieces, why it ended (None: it never said so), and its counts.
"""

import json

import attrs
from stream_server import DROP, answered, events, lines, refusing
from stream_shapes import chunk

PROMPT_TOKENS, COMPLETION_TOKENS = 12, 3


@attrs.frozen
class Format:
    """A provider's format: the name by which LiteLLM is asked for it, what goes behind the server's address, and where requests go."""

    name: str
    model: str
    base: str
    path: str

    def __str__(self):
        return self.name

    def stream(self, *texts, end="stop", counted=True, drop=False):
        """Return a stream of these pieces."""
        body = _STREAMS[self.name](texts, end, counted)
        kind = "application/x-ndjson" if self.name == "ollama" else "text/event-stream"
        return answered(body, *([DROP] if drop else []), kind=kind)

    def whole(self, text, end="stop", *, counted=True):
        """Return an answer in one piece."""
        return answered(json.dumps(_WHOLE[self.name](text, end, counted)).encode(), kind="application/json")

    def refusal(self, status, message, *headers, **more):
        """Return a refusal, with HTTP's status."""
        if self.name == "anthropic":
            return refusing(
                status, {"type": "error", "error": {"type": more.get("code", "x"), "message": message}}, *headers
            )
        return refusing(
            status, {"error": message if self.name == "ollama" else {"message": message, "type": "x", **more}}, *headers
        )


OPENAI = Format("openai", "openai/gpt-4o-mini", "/v1", "/v1/chat/completions")
ANTHROPIC = Format("anthropic", "anthropic/claude-sonnet-4-5", "", "/v1/messages")
OLLAMA = Format("ollama", "ollama_chat/m", "", "/api/chat")
FORMATS = (OPENAI, ANTHROPIC, OLLAMA)

_ANTHROPIC_ENDS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


def _openai_stream(texts, end, counted):
    chunks = [chunk({"content": text}) for text in texts] + ([chunk({}, end)] if end else [])
    usage = {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    }
    return events(chunks + ([{**chunk({}), "choices": [], "usage": usage}] if counted and end else []))


def _anthropic_stream(texts, end, counted):
    counts = {"input_tokens": PROMPT_TOKENS if counted else 0, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "usage": counts,
    }
    told = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
    ]
    if end:
        delta = {"stop_reason": _ANTHROPIC_ENDS[end], "stop_sequence": None}
        told += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": COMPLETION_TOKENS}},
            {"type": "message_stop"},
        ]
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in told).encode()


def _ollama_piece(text, **more):
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": False,
        **more,
    }


def _ollama_end(end, counted):
    counts = {"prompt_eval_count": PROMPT_TOKENS, "eval_count": COMPLETION_TOKENS} if counted else {}
    return {"done": True, "done_reason": end, **counts}


def _ollama_stream(texts, end, counted):
    return lines([*map(_ollama_piece, texts), *([_ollama_piece("", **_ollama_end(end, counted))] if end else [])])


def _openai_whole(text, end, counted):
    usage = {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    }
    choice = {"index": 0, "finish_reason": end, "message": {"role": "assistant", "content": text}}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "answers", "choices": [choice]}
    return whole | ({"usage": usage} if counted else {})


def _anthropic_whole(text, end, counted):
    counts = (
        {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS}
        if counted
        else {"input_tokens": 0, "output_tokens": 0}
    )
    content = [{"type": "text", "text": text}]
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "answers", "content": content,
        "stop_reason": _ANTHROPIC_ENDS[end], "usage": counts,
    }  # fmt: skip


def _ollama_whole(text, end, counted):
    return _ollama_piece(text, **_ollama_end(end, counted))


_STREAMS = {"openai": _openai_stream, "anthropic": _anthropic_stream, "ollama": _ollama_stream}
_WHOLE = {"openai": _openai_whole, "anthropic": _anthropic_whole, "ollama": _ollama_whole}
