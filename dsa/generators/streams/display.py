"""What of a text may be shown while it still comes: not what may turn out to be a call.

Takes pieces of text, gives what can be shown at once. All that is shown is the beginning of the text that remains in the end,
but for white space around the calls that are taken out, and for JSON whose tag was never opened: only its end tells.
"""

import re

from dsa.generators.streams.text_calls import FENCE_BEGIN, THOUGHT
from dsa.generators.streams.tools import Tools

#: What a call written into the text begins with; from here on nothing is shown until the end.
_OPENERS = (
    "<tool_call", "<toolcall", "<function=", "<function name", "<function_call", "<invoke", "<minimax:", "<seed:", "<|tool_call",
    "<|python_tag|>", "[TOOL_CALLS]", "<\uff5ctool\u2581call", "</tool_call>", "</function_call>",
)  # fmt: skip
_MARKS = re.compile("|".join(map(re.escape, _OPENERS)) + f"|(?P<thought>{THOUGHT.pattern})")
_POSSIBLE = (*_OPENERS, "</thinking>", "</think>")
_BEGINNINGS = frozenset(mark[:size] for mark in _POSSIBLE for size in range(1, len(mark)))
_LONGEST = max(map(len, _BEGINNINGS))
_FIRST = re.compile(r"[<\[]")


class Display:
    """Feed it pieces, show what it gives. Without offered tools all is given at once: nothing can be a call."""

    __slots__ = ("_begun", "_held", "_holding", "_tools")

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held = ""
        self._begun = False
        self._holding = False

    def feed(self, text: str) -> str:
        """Take the next piece, give what can be shown now."""
        if not self._tools:
            return text
        if self._holding:
            return ""
        if self._begun and not self._held and "<" not in text and "[" not in text:
            return text
        text = self._held + text
        self._held = ""
        if not self._begun and not self._begins(text):
            return ""
        return self._up_to_a_mark(text)

    def _begins(self, text: str) -> bool:
        """Decide by its beginning whether a text may be nothing but a call; keep it while that is open."""
        said = text.lstrip()
        if said.startswith(("{", "[")) or FENCE_BEGIN.match(said):
            self._holding = True
        elif not said or (said.startswith("`") and "\n" not in said and "```".startswith(said[:3])):
            self._held = text
        else:
            self._begun = True
        return self._begun

    def _up_to_a_mark(self, text: str) -> str:
        mark = _MARKS.search(text)
        if mark is None:
            safe = len(text) - _pending(text)
            self._held = text[safe:]
            return text[:safe]
        if mark["thought"]:  # what was said before it were thoughts; the answer begins now
            self._begun = False
            return text[: mark.end()] + self.feed(text[mark.end() :])
        self._holding = True
        return text[: mark.start()]


def _pending(text: str) -> int:
    """Give how many characters at the end may become a mark."""
    for first in _FIRST.finditer(text, max(0, len(text) - _LONGEST)):
        if text[first.start() :] in _BEGINNINGS:
            return len(text) - first.start()
    return 0
