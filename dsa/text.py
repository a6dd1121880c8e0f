"""Text for people: suggestions for mistyped words, counted nouns, values on one line, and escapes.

Processes that start while a person waits import this module, so it imports little.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: Longer words are not compared, as the time grows with the square of the length.
_LONGEST = 100
_MOST_LISTED = 12
_LIKENESS = 0.6
_LONGEST_LINE = 80
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")  # of str.splitlines
#: Characters from here on have no escape of two digits.
_FIRST_WIDE = 0x80
#: Control characters except tab and line feed, line separators of Unicode, characters that change the writing direction, invisible characters, and
#: halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_HALF = re.compile("[\ud800-\udfff]")


def nearest(word: str, words: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """Return the word that is most like a mistyped one, ignoring case; None if there is none.

    `likeness` is from 0 to 1. A word with the same letters in another order goes before others.
    """
    by_lower_case = {candidate.lower(): candidate for candidate in sorted(set(words))}
    target = word.lower()
    matches = difflib.get_close_matches(target, by_lower_case, cutoff=likeness) if len(word) <= _LONGEST else []
    return by_lower_case[min(matches, key=lambda each: sorted(each) != sorted(target))] if matches else None


def closest(word: str, candidates: Iterable[str], otherwise: str = "none are known here") -> str:
    """Return a hint for an unknown word: the most similar word, else the known words, else `otherwise`."""
    words = sorted(set(candidates))
    if (match := nearest(word, words)) is not None:
        return f"did you mean '{match}'?"
    return f"known here: {some_of(words)}" if words else otherwise


def some_of(words: Sequence[str]) -> str:
    """Return quoted words as a list, as many as fit a line."""
    texts = [f"'{word}'" for word in words[:_MOST_LISTED]]
    return ", ".join([*texts, "..."] if len(words) > _MOST_LISTED else texts)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a counted noun: `1 run`, `2 runs`. `nouns` is the plural where it does not end in the noun and an s."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def shorten(value: Any) -> str:  # noqa: ANN401  (JSON)
    """Return a value as one line of at most 80 characters, followed by dots if it was longer."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text[: 4 * _LONGEST_LINE].split())
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}..."


def on_one_line(text: str) -> str:
    """Return a text with its line ends as escapes: names of files and columns may contain some."""
    return "".join(escape_character(character) if character in _LINE_ENDS else character for character in text)


def escape_character(character: str) -> str:
    """Return a character as it stands in `$'..'` of a shell: with an escape if it is not printable, a quote or a backslash."""
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    short_escape = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    number = ord(character)
    return short_escape or (f"\\x{number:02x}" if number < _FIRST_WIDE else f"\\U{number:08x}")


def is_unicode(text: str) -> bool:
    """Return whether a text has no halves of characters, as JSON can write them."""
    return text.isascii() or _HALF.search(text) is None


def printable(text: str) -> str:
    """Return a text with escapes for the characters that would control a terminal; tabs and line feeds stay."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
