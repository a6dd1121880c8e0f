"""Large texts apart from the lines they stand in: each is kept once, under its SHA-256.

Takes a ledger's line, gives a short line and the texts it refers to, and puts both together again. So what is said again and
again, such as a conversation, costs its length once.
"""

import hashlib
import json
import re
from collections.abc import Callable

#: Lines up to this length stay as they are; in longer ones, texts from the second length on are kept apart (characters).
LONG_LINE, LONG_TEXT = 4_096, 1_024
_KEY = re.compile(r"\$+content")
#: A reference, and a key that looks like one, in a line. Quotes within texts are escaped, so neither is found in a text.
_REFERENCE = re.compile(r'\{"\$content":"([0-9a-f]{64})"\}')
_ESCAPED = re.compile(r'([{,]")\$(\$+content":)')


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
            return {f"${key}" if _KEY.fullmatch(key) else key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    shortened = _dumps(short(json.loads(line)))
    return (shortened, texts) if texts else (line, {})


def together(line: str, quoted_at: Callable[[bytes], str]) -> str:
    """Undo `apart`; `quoted_at` gives the text at an address, as JSON."""
    whole = _REFERENCE.sub(lambda found: quoted_at(bytes.fromhex(found[1])), line)
    return _ESCAPED.sub(r"\1\2", whole) if _ESCAPED.search(line) else whole


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
