"""Results: what a call of a server's tool gave, read from MCP's form and told to a model.

Whatever comes from the server has an end, and secrets are left out of it. Pure.
"""

import json
from collections.abc import Callable, Mapping

import attrs

from dsa.runtime.speech import each_text
from machines.coding.servers.tools import one_line
from machines.coding.tools import output
from machines.coding.tools.errors import ToolError
from machines.tool_use.records import JsonObject

Redact = Callable[[str], str]
_LONGEST_STRUCTURED = 2 * output.KEPT
_MOST_ATTACHMENTS, _LONGEST_URI = 20, 500


@attrs.frozen
class Block:
    """A piece of an answer. `kind` is text, image, audio, resource or resource_link; `data` is Base64, None where there is none."""

    kind: str
    text: str = ""
    data: str | None = None
    media_type: str = ""
    uri: str = ""


@attrs.frozen
class Answer:
    """An answer to a call as it came. `asks`: it is a question back. `restarted` says why its server was started again before the call."""

    blocks: tuple[Block, ...] = ()
    structured: object = None
    is_error: bool = False
    asks: bool = False
    restarted: str = ""


def read_answer(said: JsonObject) -> Answer:
    """Return the answer that a message has as its result. The package mcp has looked at its form before."""
    listed = said.get("content")
    blocks = tuple(map(_block, listed)) if isinstance(listed, list) else ()
    asks = said.get("resultType") == "input_required"
    return Answer(blocks, said.get("structuredContent"), said.get("isError") is True, asks)


def _block(said: JsonObject) -> Block:
    inner = said.get("resource")
    inner = inner if isinstance(inner, Mapping) else said
    data = inner.get("data", inner.get("blob"))
    text, media_type, uri = (_text(inner.get(name)) for name in ("text", "mimeType", "uri"))
    return Block(str(said["type"]), text, data if isinstance(data, str) else None, media_type, uri)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@attrs.frozen
class Attachment:
    """What a model is not shown: an image, audio or a file by its kind, a link by its address."""

    kind: str
    type: str
    uri: str | None = None
    size_bytes: int | None = None


@attrs.frozen
class ServerResult:
    """What a call gave, for a model. What is `omitted` is counted: characters of the text and of the structured value, attachments."""

    text: str
    structured: object = None
    structured_omitted: int = 0
    omitted: int = 0
    attachments: tuple[Attachment, ...] = ()
    attachments_omitted: int = 0
    restarted: str = ""
    left_out: str = ""


def result_of(answer: Answer, redact: Redact) -> ServerResult:
    """Return the result of a call.

    Raises ToolError `tool_error` with the text where the tool says that it failed, `bad_result` where a value is not valid JSON.
    """
    texts = [each.text for each in answer.blocks if each.kind in {"text", "resource"} and each.text]
    text, omitted = output.shown("\n".join(texts).encode(errors="replace"), b"", 0, redact)
    if answer.is_error:
        raise ToolError("tool_error", text.strip() or "the tool failed, and does not say why")
    structured, structured_omitted = _structured(answer.structured, redact)
    attachments = [each for each in (_attachment(block, redact) for block in answer.blocks) if each is not None]
    beyond = max(0, len(attachments) - _MOST_ATTACHMENTS)
    return ServerResult(
        text, structured, structured_omitted, omitted, tuple(attachments[:_MOST_ATTACHMENTS]), beyond,
        redact(answer.restarted), _left_out(omitted, structured_omitted, beyond),
    )  # fmt: skip


def _left_out(text: int, structured: int, attachments: int) -> str:
    """Say what was left out; nothing where all is there."""
    left = [
        (text, "characters of the text are left out"),
        (structured, "characters of a structured value are left out"),
        (attachments, "attachments are not named"),
    ]
    told = [f"{count:,} {what}" for count, what in left if count]
    return f"{', '.join(told)}: ask the tool for less" if told else ""


def _attachment(block: Block, redact: Redact) -> Attachment | None:
    """Return what a model is told of a block that it is not shown; None for a text."""
    kind, size = redact(one_line(block.media_type)), None if block.data is None else _size_bytes(block.data)
    uri = redact(one_line(block.uri, _LONGEST_URI))
    match block.kind:
        case "image" | "audio":
            return Attachment(block.kind, kind, size_bytes=size)
        case "resource_link":
            return Attachment("link", kind, uri)
        case "resource" if size is not None:
            return Attachment("blob", kind, uri, size)
    return None


def _size_bytes(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _structured(value: object, redact: Redact) -> tuple[object, int]:
    """Return a structured value, or how many characters it has where these are too many."""
    if value is None:
        return None, 0
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if len(text) > _LONGEST_STRUCTURED:
            return None, len(text)
        return each_text(json.loads(text.encode(errors="replace")), redact, with_names=True), 0
    except (ValueError, RecursionError) as error:
        told = "the tool gave a structured value with a number that JSON has not, or nested too deep"
        raise ToolError("bad_result", told) from error
