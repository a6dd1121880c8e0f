"""Texts as lines: short ones, and commands as a shell reads them. Pure."""

import shlex
from collections.abc import Iterable

#: Characters from here on have no escape of two digits.
_FIRST_WIDE = 0x80
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")  # of str.splitlines


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
