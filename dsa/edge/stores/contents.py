"""Large texts apart from the lines they stand in: each is kept once, under its SHA-256.

Takes a ledger's line, gives a short line and the texts it refers to, and puts both together again. So what is said again and
again, such as a conversation, costs its length once.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

#: Lines up to this length stay as they are; in longer ones, texts from the second length on are kept apart (characters).
LONG_LINE, LONG_TEXT = 4_096, 1_024
_REFERENCE = re.compile(r"\$+content")


def address(text: str) -> bytes:
    """Give the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def apart(line: str) -> tuple[str, dict[bytes, str]]:
    """Give a line with references in place of its large texts, and these by their address; a short line comes back as it is."""
    if len(line) <= LONG_LINE:
        return line, {}
    texts: dict[bytes, str] = {}

    def short(value: object) -> object:
        if isinstance(value, str) and len(value) >= LONG_TEXT:
            texts[address(value)] = value
            return {"$content": address(value).hex()}
        if isinstance(value, dict):
            return {f"${key}" if _REFERENCE.fullmatch(key) else key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    shortened = _dumps(short(json.loads(line)))
    return (shortened, texts) if texts else (line, {})


def together(line: str, text_at: Callable[[bytes], str]) -> tuple[str, Any]:
    """Undo `apart`; `text_at` gives the text at an address. Return the line and the value that it is."""

    def whole(value: object) -> object:
        if isinstance(value, dict):
            if value.keys() == {"$content"}:
                return text_at(bytes.fromhex(value["$content"]))
            return {key[1:] if _REFERENCE.fullmatch(key) else key: whole(item) for key, item in value.items()}
        return [whole(item) for item in value] if isinstance(value, list) else value

    value = whole(json.loads(line))
    return _dumps(value), value


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
