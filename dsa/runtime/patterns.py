"""Patterns that a user gives for what models write, searched for by RE2: in time that grows with the text, whatever the pattern and whoever wrote the text.

`re` tries one way after another, so `(a+)+b` takes for ever with a text made for it; then only `kill -9` helps, and a run that is resumed meets the same text.
"""

from collections.abc import Iterator
from typing import Any

#: Behind so many matches all of a text counts as one: finding them costs at most so many passes over it.
MOST_MATCHES = 2_000


def compiled(text: str, *, longest: bool = False) -> Any:  # noqa: ANN401  (RE2's, which has no types)
    """Return a regular expression that searches bytes in UTF-8; of several matches the longest counts, or the first. ValueError for what is none."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(text.encode(), options)
    except re2.error as fault:
        why = fault.args[0].decode() if isinstance(fault.args[0], bytes) else fault
        raise ValueError(
            f"'{text}' is no regular expression (of RE2, which has no references and no looks around): {why}"
        ) from fault


class Pattern:
    """A regular expression as RE2 has them: without references to groups and without looks around. Of several matches the longest counts.

    Raises ValueError for what is none, and for what matches the empty text.
    """

    def __init__(self, text: str) -> None:
        self._pattern = compiled(text, longest=True)
        if self._pattern.search(b"") is not None:
            raise ValueError(f"'{text}' matches the empty text, so it would be everywhere")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Give the matches, from and to, in order; behind MOST_MATCHES of them the rest of the text."""
        data = text.encode("utf-8", "surrogatepass")
        done, at, count = 0, 0, 0  # characters before `at`, which counts bytes
        while (match := self._pattern.search(data, at)) is not None:
            start, stop = match.span()
            first = done + _characters(data[at:start])
            count += 1
            if count > MOST_MATCHES:
                yield first, len(text)
                return
            done, at = first + _characters(data[start:stop]), stop
            if start < stop:
                yield first, done
            elif stop == len(data):
                return
            else:  # an edge between two characters, which is no secret: go on behind the next one
                at += len(text[done].encode("utf-8", "surrogatepass"))
                done += 1


def _characters(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))
