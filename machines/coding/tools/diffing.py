"""What a write would change, as a unified diff for a person who approves it. Pure: bytes in, text out.

The text is bounded, and has no character that does not print: what a model writes cannot repaint the terminal that shows it.
"""

import difflib
from collections.abc import Sequence

from machines.coding.tools.paths import shown

_MOST_LINES, _LONGEST_LINE, _MOST_COMPARED = 400, 300, 3_000


def unified(name: str, before: bytes | None, after: bytes) -> str:
    """Give the difference of a file, with the place of each line; None before is a new file."""
    if before is not None and before == after:
        return f"{name}: stays as it is\n"
    head = f"--- {'/dev/null' if before is None else name}\n+++ {name}\n"
    if before is not None and b"\0" in before[:8_192]:
        return f"{head}(binary, {len(before)} bytes, is replaced by a text of {len(after)} bytes)\n"
    return head + _bounded(_body(_lines(before or b""), _lines(after)))


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []


def _body(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Give the lines of the difference. What is equal at both ends is left out first: comparing takes long."""
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    least = min(len(old), len(new)) - start
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = next((n for n, (a, b) in enumerate(pairs) if n >= least or a != b), least)
    first, last = max(0, start - 3), max(0, end - 3)
    one, other = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(one), len(other)) > _MOST_COMPARED:
        return [
            f"@@ {len(one)} lines from line {first + 1} are replaced by {len(other)} @@",
            *(f"+{line}" for line in other),
        ]
    if one == other:
        return ["(the line break at the end is another)"]
    steps = list(difflib.SequenceMatcher(None, one, other, autojunk=True).get_grouped_opcodes(3))
    return [line for group in steps for line in _hunk(group, one, other, first)]


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], one: Sequence[str], other: Sequence[str], first: int
) -> list[str]:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    told = [f"@@ -{_span(first + i1, i2 - i1)} +{_span(first + j1, j2 - j1)} @@"]
    for kind, a, b, c, d in group:
        if kind == "equal":
            told += [f" {line}" for line in one[a:b]]
            continue
        told += [f"-{line}" for line in one[a:b]] + [f"+{line}" for line in other[c:d]]
    return told


def _span(start: int, count: int) -> str:
    """Write where lines are, counted from 1; none are behind the line before, as in git's."""
    return f"{start + 1 if count else start},{count}"


def _bounded(lines: Sequence[str]) -> str:
    told = [_cut(line) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        told.append(f".. {len(lines) - _MOST_LINES} more lines are not shown")
    return "\n".join(told) + "\n"


def _cut(line: str) -> str:
    text = shown(line[:_LONGEST_LINE], kept="\t")
    return f"{text}.. ({len(line) - _LONGEST_LINE} more chars)" if len(line) > _LONGEST_LINE else text
