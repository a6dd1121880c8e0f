"""Where the first JSON value of a text ends, told piece by piece: each character is looked at once.

Brackets count outside strings only. A string may stand in single quotes too, as Python writes them. It knows no
numbers and no words: a value that is neither object, array nor string never ends.
"""

import re

_STRUCTURE = re.compile(r"[\"'{}\[\]]")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class Scanner:
    """Feed it pieces; `end` is how many characters the first value takes, None until it is complete.

    `more` says that something but white space came after it.
    """

    __slots__ = ("_before", "_depth", "_escaped", "_quote", "end", "more")

    def __init__(self) -> None:
        self.end: int | None = None
        self.more = False
        self._before = 0
        self._depth = 0
        self._quote = ""
        self._escaped = False

    @property
    def open(self) -> bool:
        """Whether a value has begun and not ended."""
        return self.end is None and bool(self._depth or self._quote)

    def feed(self, text: str) -> None:
        """Take the next piece."""
        position = self.advance(text, 0)
        if self.end is not None and not self.more:
            self.more = bool(text[position:].strip())
        self._before += len(text)

    def advance(self, text: str, position: int) -> int:
        """Go through a text from a position on, up to the end of the value; give where that is."""
        while position < len(text) and self.end is None:
            position = self._in_string(text, position) if self._quote else self._outside(text, position)
        return position

    def _in_string(self, text: str, position: int) -> int:
        if self._escaped:
            self._escaped = False
            return position + 1
        found = _IN_STRING[self._quote].search(text, position)
        if found is None:
            return len(text)
        if found[0] == "\\":
            self._escaped = True
            return found.end()
        self._quote = ""
        if self._depth == 0:
            self.end = self._before + found.end()
        return found.end()

    def _outside(self, text: str, position: int) -> int:
        found = _STRUCTURE.search(text, position)
        if found is None:
            return len(text)
        match found[0]:
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                if self._depth <= 0:
                    self.end = self._before + found.end()
            case quote:
                self._quote = quote
        return found.end()


def end_of_value(text: str, start: int = 0) -> int | None:
    """Give where the value ends that begins at `start`; None when the text ends before it does."""
    scanner = Scanner()
    scanner.advance(text, start)
    return scanner.end


def values_in(text: str) -> list[str]:
    """Cut a text into the values that stand in it one after the other; the last may be incomplete."""
    parts, start = [], 0
    while start < len(text):
        end = end_of_value(text, start) or len(text)
        parts.append(text[start:end])
        start = end
    return [part for part in parts if part.strip()]
