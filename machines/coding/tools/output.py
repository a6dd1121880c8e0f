"""What a command has printed, as text for a model: its beginning and its end, without codes for terminals, without secrets.

Takes bytes and a function that leaves secrets out, gives texts. Pure.
"""

import re
from collections.abc import Callable

#: How much of the beginning and of the end is given, in characters; what is read is more, so that no secret is cut before it is found.
KEPT = 8_000
_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|\x9c|\Z)|[ -/]*[0-~]?)"  # CSI; OSC, DCS, SOS, PM, APC; the others
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x9d\x90\x98\x9e\x9f].*?(?:\x07|\x1b\\|\x9c|\Z)",  # the same as one character
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(head: bytes, tail: bytes, bytes_between: int, redact: Callable[[str], str]) -> tuple[str, int]:
    """Give the text of an output, and how many characters and bytes of it were left out."""
    if not bytes_between:
        whole = redact(_plain(head + tail))
        if len(whole) <= 2 * KEPT:
            return whole, 0
        return _joined(whole[:KEPT], whole[-KEPT:], len(whole) - 2 * KEPT)
    first, last = redact(_plain(head)), redact(_plain(tail))
    left_out = bytes_between + max(0, len(first) - KEPT) + max(0, len(last) - KEPT)
    return _joined(first[:KEPT], last[-KEPT:], left_out)


def _joined(first: str, last: str, left_out: int) -> tuple[str, int]:
    return f"{first}\n[.. {left_out:,} characters are left out ..]\n{last}", left_out


def _plain(output: bytes) -> str:
    """Decode, with a mark for what is no UTF-8, and leave out what only a terminal understands."""
    text = _CODES.sub("", output.decode(errors="replace"))
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
