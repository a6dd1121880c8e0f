"""From the bytes of a stream to its chunks: server-sent events, JSON lines, or one JSON document. No network here.

Takes bytes, cut anywhere, gives objects. The three are told apart by their lines, not by the header, which servers get wrong.
Source: the WHATWG standard of server-sent events; Ollama's API for JSON lines. Each byte is looked at a bounded number of times.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

#: What a stream may be at most in one line, in bytes: images apart, no chunk comes near it.
MOST_LINE_BYTES = 32 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELD = re.compile(r"(data|event|id|retry)(?::[ ]?(.*)|$)", re.DOTALL)
_DONE = "[DONE]"
_SHOWN = 80


class DecodingError(ValueError):
    """Raised for bytes that are none of the three."""


class StreamDecoder:
    """Feed it bytes, take the chunks; `close` gives those that the last bytes hold.

    `begun` says that there was a chunk, `done` that the server has said `[DONE]`: nothing more will come.
    """

    def __init__(self) -> None:
        self.begun = False
        self.done = False
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._after_return = False
        self._data: list[str] = []
        self._event = ""
        self._document: list[str] = []

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """Take the next bytes. Raises DecodingError."""
        if self._after_return and data.startswith(b"\n"):  # the other half of a line end
            data = data[1:]
        if data:
            self._after_return = data.endswith(b"\r")
        found: list[Mapping[str, Any]] = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._line.append(data[start : end.start()])
            found += self._whole_line()
            start = end.end()
        if start < len(data):
            self._line.append(data[start:])
            self._line_bytes += len(data) - start
            if self._line_bytes > MOST_LINE_BYTES:
                raise DecodingError(f"a line of the stream is longer than {MOST_LINE_BYTES} bytes")
        return found

    def close(self) -> list[Mapping[str, Any]]:
        """Take the end of the stream. Raises DecodingError."""
        found = self._whole_line() if self._line else []
        found += self._event_ended()
        if self._document:
            found += self._given(_parsed("\n".join(self._document)))
            self._document = []
        return found

    def _whole_line(self) -> list[Mapping[str, Any]]:
        line = b"".join(self._line).decode("utf-8", "replace").removeprefix("\ufeff")
        self._line.clear()
        self._line_bytes = 0
        if self._document:
            self._document.append(line)
            return []
        if not line:
            return self._event_ended()
        if line.startswith(":"):
            return []
        if field := _FIELD.fullmatch(line):
            if field[1] == "data":
                self._data.append(field[2] or "")
            elif field[1] == "event":
                self._event = field[2] or ""
            return []
        return self._line_of_json(line)

    def _line_of_json(self, line: str) -> list[Mapping[str, Any]]:
        """Take a line that belongs to no event: a line of JSON, or the first of a document in several."""
        try:
            return self._given(_parsed(line))
        except DecodingError:
            if self.begun:
                raise
            self._document.append(line)
            return []

    def _event_ended(self) -> list[Mapping[str, Any]]:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not any(data):
            return []
        try:
            found = self._given(_parsed("\n".join(data)))
        except DecodingError:
            if len(data) == 1:
                raise
            # A server without blank lines.
            found = [chunk for line in data if line for chunk in self._given(_parsed(line))]
        return [_as_error(chunk) for chunk in found] if event == "error" else found

    def _given(self, value: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401  # JSON of any kind
        if value is None:
            self.done = True
            return []
        chunks = value if isinstance(value, list) else [value]
        if not all(isinstance(chunk, Mapping) for chunk in chunks):
            raise DecodingError(f"the stream holds what is no JSON object: {json.dumps(value)[:_SHOWN]}")
        self.begun = True
        return chunks


def _parsed(text: str) -> Any:  # noqa: ANN401  # JSON of any kind
    """Parse a text; None for what says only that the stream is over."""
    if text.strip() == _DONE:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodingError(f"the stream holds what is no JSON: {text[:_SHOWN]!r}") from error


def _as_error(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    return chunk if chunk.get("error") else {"error": dict(chunk)}
