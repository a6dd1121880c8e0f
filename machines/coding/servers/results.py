"""What a tool of an MCP server has given, for a model: texts with an end, structured values, and what else there is by kind and size.

Takes a result as MCP writes it in JSON, gives a mapping of JSON values. Nothing of it is followed or run: it is data. Pure.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from machines.coding.servers.tools import one_line
from machines.coding.tools import output
from machines.coding.tools.errors import ToolError
from machines.talking.texts import each_text

Redact = Callable[[str], str]
_LONGEST_STRUCTURED = 2 * output.KEPT
_MOST_ATTACHMENTS = 20


def shown(result: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Give `text`, and where there is any: `omitted` (characters of it), `structured` or `structured_omitted`, `attachments`, `attachments_omitted`.

    Raises ToolError `tool_error` with the text where the tool says that it failed, `bad_result` where a value is no JSON.
    """
    blocks = result.get("content") or []
    text, omitted = _text(blocks, redact)
    if result.get("isError"):
        raise ToolError("tool_error", text.strip() or "the tool failed, and does not say why")
    told = [each for each in map(_attachment, blocks) if each]
    found = {
        "omitted": omitted,
        "attachments": [each_text(each, redact, with_names=True) for each in told[:_MOST_ATTACHMENTS]],
        "attachments_omitted": max(0, len(told) - _MOST_ATTACHMENTS),
    }
    return {"text": text, **_structured(result, redact), **{name: value for name, value in found.items() if value}}


def _text(blocks: list[Mapping[str, Any]], redact: Redact) -> tuple[str, int]:
    texts = [each["text"] if each["type"] == "text" else _resource(each).get("text", "") for each in blocks]
    whole = "\n".join(text for text in texts if text)
    return output.shown(whole.encode(errors="replace"), b"", 0, redact)


def _resource(block: Mapping[str, Any]) -> Mapping[str, Any]:
    return block["resource"] if block["type"] == "resource" else {}


def _attachment(block: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what a model is not shown; nothing of a text."""
    kind, inner = block["type"], _resource(block)
    if kind in {"image", "audio"}:
        return {"kind": kind, "type": one_line(block.get("mimeType") or ""), "size_bytes": _size(block["data"])}
    if kind == "resource_link":
        return {"kind": "link", "type": one_line(block.get("mimeType") or ""), "uri": one_line(str(block["uri"]), 500)}
    if "blob" in inner:
        named = {"type": one_line(inner.get("mimeType") or ""), "uri": one_line(str(inner["uri"]), 500)}
        return {"kind": "blob", **named, "size_bytes": _size(inner["blob"])}
    return {}


def _size(base64: str) -> int:
    """Give how many bytes a text in Base64 stands for."""
    return len(base64.rstrip("=")) * 3 // 4


def _structured(result: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    value = result.get("structuredContent")
    if value is None:
        return {}
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if len(text) > _LONGEST_STRUCTURED:
            return {"structured_omitted": len(text)}
        return {"structured": each_text(json.loads(text.encode(errors="replace")), redact, with_names=True)}
    except (ValueError, RecursionError) as error:
        told = "the tool gave a structured value with a number that JSON has not, or nested too deep"
        raise ToolError("bad_result", told) from error
