"""One chunk of a stream, whatever it comes as: objects of JSON.

Takes mappings, what has `model_dump` (chunks of LiteLLM and of OpenAI's package), JSON text or bytes, also with `data:` before
it; gives mappings. It looks at no field.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

#: What lines of server-sent events begin with that say nothing here.
_SILENT = (":", "event:", "id:", "retry:")


class BadChunkError(ValueError):
    """Raised for a chunk that is no JSON object; TypeError for a value that can be none."""


def objects_of(chunk: object) -> Iterator[dict[str, Any]]:
    """Give the objects of a chunk: none for a comment or `[DONE]`, several when several lines came as one."""
    if isinstance(chunk, Mapping):
        yield dict(chunk)
    elif isinstance(chunk, str | bytes | bytearray):
        text = chunk if isinstance(chunk, str) else bytes(chunk).decode("utf-8", "replace")
        yield from _objects_of_text(text.lstrip("\ufeff"))
    elif hasattr(chunk, "model_dump"):
        yield chunk.model_dump()
    elif chunk is not None:
        raise TypeError(f"a chunk is a mapping, JSON text, or has model_dump(); not {type(chunk).__name__}")


def _objects_of_text(text: str) -> Iterator[dict[str, Any]]:
    if text.lstrip().startswith("{"):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError):
            pass  # several objects, a line each: read below
        else:
            return
    for line in text.splitlines():
        said = line.strip()
        if said and not said.startswith(_SILENT):
            yield from _objects_of_line(said.removeprefix("data:").strip())


def _objects_of_line(text: str) -> Iterator[dict[str, Any]]:
    if text in {"", "[DONE]"}:
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadChunkError(f"a piece of the stream is no JSON: {text[:80]!r}") from error
    for part in value if isinstance(value, list) else [value]:  # Gemini sends errors in a list
        if not isinstance(part, dict):
            raise BadChunkError(f"a piece of the stream is no JSON object: {text[:80]!r}")
        yield part
