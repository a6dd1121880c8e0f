r"""An exact replacement in a text, and what a model is told when it cannot be made. Pure: texts in, texts out.

Line endings stay as they are in the text: a model writes `\n` and need not know.
"""

import difflib
from collections.abc import Sequence

from machines.coding.tools.errors import ToolError
from machines.coding.tools.paths import shown

_LINES_COMPARED, _WIDTH_COMPARED = 2_000, 120
_LINES_SHOWN = 6


def edited(name: str, text: str, old: str, new: str, *, everywhere: bool) -> str:
    """Give the text of file `name` with `old` replaced by `new`.

    Raises ToolError: `not_found`, with the lines that are most alike; `ambiguous`, with the lines where it stands; `bad_arguments`.
    """
    if not old:
        raise ToolError(
            "bad_arguments", "'old' is empty: give the text to replace, or write the whole file with write_file"
        )
    found = next((way for way in _ways(text, old) if way in text), None)
    if found is None:
        raise ToolError("not_found", _missing(name, text, old))
    replacement = _with_endings(new, _ending(text, found))
    if replacement == found:
        raise ToolError("bad_arguments", "'old' and 'new' are the same: nothing would change")
    count = text.count(found)
    if count > 1 and not everywhere:
        lines = ", ".join(map(str, _places(text, found)[:20]))
        more = "give more of the lines around the one that is meant, or say all=true"
        raise ToolError("ambiguous", f"'old' stands {count} times in '{name}' (lines {lines}): {more}")
    return text.replace(found, replacement)


def _ways(text: str, old: str) -> tuple[str, ...]:
    r"""Give `old` as it may stand in the text: with each line ending, and as it was given.

    Whole `\r\n` come first: a `\n` at the start of `old` is not the second half of one.
    """
    endings = ("\r\n", "\n") if "\r\n" in text else ("\n",)
    return *(_with_endings(old, ending) for ending in endings), old


def _with_endings(text: str, ending: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", ending)


def _ending(text: str, found: str) -> str:
    """Give the line ending of the place, else the one that the text has most often."""
    place = found if "\n" in found else text
    pairs = place.count("\r\n")
    return "\r\n" if 2 * pairs > place.count("\n") else "\n"


def _places(text: str, found: str) -> list[int]:
    """Give the lines, from 1, in which it begins."""
    lines, line, at = [], 1, 0
    while (onward := text.find(found, at)) >= 0:
        line += text.count("\n", at, onward)
        lines.append(line)
        line += found.count("\n")
        at = onward + len(found)
    return lines


def _missing(name: str, text: str, old: str) -> str:
    """Say that it is not there, and what is instead."""
    lines = text.split("\n")
    said = f"'old' does not stand in '{name}'"
    spaced = _but_for_whitespace(lines, old)
    if spaced is not None:
        first, last = spaced
        return f"{said}, but for whitespace it does. Copy it exactly from there:\n{_numbered(lines, range(first, last + 1))}"
    alike = _alike(lines, old)
    if alike:
        return f"{said}. Most alike are:\n{_numbered(lines, alike)}"
    return f"{said}, nor anything like it ({len(text)} chars, {text.count(chr(10)) + 1} lines): read the file again"


def _but_for_whitespace(lines: Sequence[str], old: str) -> tuple[int, int] | None:
    """Give the first and last line, from 0, where `old` stands when whitespace makes no difference."""
    kept = [(number, "".join(line.split())) for number, line in enumerate(lines) if line.strip()]
    wanted = "".join(old.split())
    joined = "".join(line for _, line in kept)
    at = joined.find(wanted) if wanted else -1
    if at < 0:
        return None
    first, last, passed = -1, -1, 0
    for number, line in kept:
        passed += len(line)
        if first < 0 and passed > at:
            first = number
        if passed >= at + len(wanted):
            last = number
            break
    return first, last


def _alike(lines: Sequence[str], old: str) -> list[int]:
    """Give the lines, from 0, that are most like the longest line of `old`."""
    wanted = max(old.split("\n"), key=lambda line: len(line.strip())).strip()[:_WIDTH_COMPARED]
    candidates: dict[str, int] = {}
    for number, line in enumerate(lines[:_LINES_COMPARED]):
        candidates.setdefault(line.strip()[:_WIDTH_COMPARED], number)
    return sorted(candidates[line] for line in difflib.get_close_matches(wanted, list(candidates), n=3, cutoff=0.6))


def _numbered(lines: Sequence[str], chosen: Sequence[int]) -> str:
    told = [
        f"{number + 1}: {shown(lines[number].rstrip(chr(13))[:200], kept=chr(9))}" for number in chosen[:_LINES_SHOWN]
    ]
    return "\n".join(told) + ("\n.." if len(chosen) > _LINES_SHOWN else "")
