"""JSON values as anybody can be sent them and a ledger can hold them; texts as lines.

Models send numbers beyond every range (1e999), which JSON reads as infinity and cannot write, and lists in lists, hundreds deep. Pure.
"""

import json
import math
import shlex
from collections.abc import Iterable
from typing import Any

#: How deep lists and objects are nested at most in what is kept of an answer: whoever walks them has a stack.
MOST_NESTED = 50
#: Characters from here on have no escape of two digits.
_FIRST_WIDE = 0x80
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")  # of str.splitlines


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:  # noqa: ANN401  (JSON)
    """Give what a text says as JSON; None for what is none, and for what is nested too deeply to be read."""
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None


def short(text: str, most: int) -> str:
    """Give a text in one line, so long at most."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 2]}.."


def on_one_line(text: str) -> str:
    """Give a text that is one line: names of files and columns may have line ends in them, which stand as escapes."""
    return "".join(_escaped(character) if character in _LINE_ENDS else character for character in text)


def cut(text: str, most: int) -> str:
    """Give a text of which so many characters are kept, with a mark in the middle where some are left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[.. {len(text) - 2 * half:,} characters left out ..]\n{text[-half:]}"


def shell_line(words: Iterable[str]) -> str:
    r"""Write the words of a command as one line that a shell reads as these words; what steers a terminal, or is not seen, as escapes (`$'a\nb'`)."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'" for word in words)


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    number = ord(character)
    return known or (f"\\x{number:02x}" if number < _FIRST_WIDE else f"\\U{number:08x}")


def is_writable(value: Any, deepest: int = MOST_NESTED) -> bool:  # noqa: ANN401  (JSON)
    """Tell whether JSON can write all numbers of a value, and nothing in it is nested deeper than this."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, list | tuple | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(is_writable(each, deepest - 1) for each in inner)
