"""Words that a person types, and the known one that a mistyped one probably stands for.

Takes names, returns a name or the text of a hint. It knows nothing of where the names come from.
"""

import difflib
from collections.abc import Iterable, Sequence

#: Longer words are compared with nothing: that takes time with the square of the length.
_LONGEST = 100
_MOST_LISTED = 12
_LIKENESS = 0.6


def nearest(word: str, known: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """Return the known word that is most like a mistyped one, in any case, if one is at all.

    `likeness` is from 0 to 1. A word of which only letters were swapped goes before others.
    """
    lowered = {candidate.lower(): candidate for candidate in sorted(set(known))}
    typed = word.lower()
    found = difflib.get_close_matches(typed, lowered, cutoff=likeness) if len(word) <= _LONGEST else []
    return lowered[min(found, key=lambda each: sorted(each) != sorted(typed))] if found else None


def closest(word: str, known: Iterable[str], otherwise: str = "there are none") -> str:
    """Return a hint for a word that is not known: the one that was probably meant, else those there are, else `otherwise`."""
    words = sorted(set(known))
    if (meant := nearest(word, words)) is not None:
        return f"did you mean '{meant}'?"
    return f"known here: {some_of(words)}" if words else otherwise


def some_of(words: Sequence[str]) -> str:
    """Return words as a list, as many as fit a line."""
    return f"{', '.join(words[:_MOST_LISTED])}{', ...' if len(words) > _MOST_LISTED else ''}"
