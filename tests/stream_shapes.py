"""The shapes that streams of models come in, from `tests/streams/`: what is sent, and what it must give.

A shape names the report it is from. `deltas` stand for chunks of one choice, with `finish` in a chunk of its own; `chunks` are
whole. A call is [id, name, arguments], or [id, name, null, error]; an id that is null must be made. `rescues` are the kinds.
"""

import json
from pathlib import Path

import attrs

from dsa.generators.streams import StreamResult

FOLDER = Path(__file__).parent / "streams"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        },
    }
    for name, properties in {
        "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "search": {"query": {"type": "string"}},
        "now": {},
        "stop": {},
    }.items()
]


@attrs.frozen
class Shape:
    """One stream, and what must come of it."""

    file: str
    name: str
    source: str
    chunks: list
    expected: dict

    @property
    def tools(self):
        return self.expected.get("tools", TOOLS)


def _chunks(written: dict) -> list:
    if "chunks" in written:
        return written["chunks"]
    deltas, finish = written["deltas"], written.get("finish")
    chunks = [chunk(delta) for delta in deltas]
    if finish is not None and written.get("finish_with_the_last"):
        chunks[-1]["choices"][0]["finish_reason"] = finish
    elif finish is not None:
        chunks.append(chunk({}, finish))
    return chunks


def chunk(delta: dict, finish: str | None = None) -> dict:
    """Return a chunk as OpenAI sends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def call_chunk(*entries: dict) -> dict:
    """Return a chunk with entries of calls."""
    return chunk({"tool_calls": list(entries)})


def entry(index: int, text: str, *, given_id: str | None = None, name: str | None = None) -> dict:
    """Return an entry as OpenAI sends it: id and name with the first piece of a call only."""
    opening = {"id": given_id, "type": "function"} if given_id else {}
    return {"index": index, **opening, "function": {**({"name": name} if name else {}), "arguments": text}}


def finished(reason: str = "tool_calls") -> dict:
    """Return the last chunk."""
    return chunk({}, reason)


SHAPES = [
    Shape(path.stem, written["name"], written["source"], _chunks(written), written)
    for path in sorted(FOLDER.glob("*.json"))
    for written in json.loads(path.read_text(encoding="utf-8"))
]
IDS = [f"{shape.file}: {shape.name}" for shape in SHAPES]


def said(result: StreamResult, expected: dict) -> dict:
    """Return a result in the words of a shape; ids that were to be made are null when they are usable."""
    ids = [call.id for call in result.tool_calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    calls = []
    for place, call in enumerate(result.tool_calls):
        wanted = expected["calls"][place] if place < len(expected["calls"]) else [call.id]
        shown = None if wanted[0] is None and call.id.isalnum() and len(call.id) == 9 else call.id
        calls.append([shown, call.name, call.arguments, *([call.error] if call.error else [])])
    told = {
        "calls": calls,
        "content": result.content,
        "finish_reason": result.finish_reason,
        "error": result.error.code if result.error else None,
        "rescues": sorted(result.rescues),
    }
    if "extra" in expected:
        told["extra"] = [dict(call.extra) for call in result.tool_calls]
    if "reasoning" in expected:
        told["reasoning"] = result.reasoning
    if "usage" in expected:
        told["usage"] = result.usage
    return told


def wanted(expected: dict) -> dict:
    """Return what a shape says must come."""
    keys = ("calls", "content", "finish_reason", "error", "rescues", "extra", "reasoning", "usage")
    return {"error": None} | {key: expected[key] for key in keys if key in expected}
