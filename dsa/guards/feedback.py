"""Feedback of guards: its limits, and calls of guards from synchronous code.

Feedback goes into the next prompt, and what a guard saw may have any size, so texts of any length become short ones, which say that something
was left out.

`verdict_of` calls a guard, even an asynchronous one. A `UsingGuard` gets its own data of events, and not that of other guards.
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult, required_verdict

#: The most characters that a guard of the library says about one artifact.
MOST_LINES, MOST_CHARACTERS = 20, 2_000
#: The most characters of a value, message or name that is quoted.
MOST_QUOTED = 160
_MOST_IN_A_LINE = 300
_ENOUGH = 10 * MOST_CHARACTERS  # of a longer text, only this much of each end is looked at
_LEFT_OUT = "... (some text is left out)"
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]+")


def clip(text: str, most: int = MOST_QUOTED) -> str:
    """Return the beginning of a text, printable and on one line; `...` when there is more."""
    plain = _UNPRINTABLE.sub(" ", text[: most * 4 + 1])
    return plain if len(plain) <= most and len(text) <= most * 4 else f"{plain[:most]}..."


def clip_middle(text: str, most: int = MOST_QUOTED) -> str:
    """Return the beginning and the end of a text on one line: for a message whose point comes after a value of any length."""
    if len(text) <= most:
        return clip(text, most)
    half = most // 2
    return f"{clip(text[:half], half)}...{clip(text[-half:], half)}"


def bound_text(text: str, end: str = "", *, most_lines: int = MOST_LINES, most: int = MOST_CHARACTERS) -> str:
    """Return at most `most_lines` lines (at least 4) and `most` characters (at least 200): the first and the last of a text.

    `end` is the end of a text of which `text` is only the beginning.
    """
    if len(text) > _ENOUGH:
        text, end = text[:_ENOUGH], end or text[-_ENOUGH:]
    lines = _plain_lines(text)
    if not end and len(lines) <= most_lines and sum(map(len, lines)) + len(lines) <= most:
        return "\n".join(lines)
    half = most_lines // 2
    tail = _plain_lines(end[-_ENOUGH:]) if end else lines[half - 1 :]
    room = (most - len(_LEFT_OUT)) // 2 - 2
    first, last = _lines_within(lines[: half - 1], room), _lines_within(tail[::-1][:half], room)[::-1]
    return "\n".join([*first, _LEFT_OUT, *last])


def together(parts: Sequence[str]) -> str:
    """Return several feedbacks as one, each shortened to its share if they are too long together."""
    if sum(map(len, parts)) <= MOST_CHARACTERS and bound_text(whole := "\n".join(parts)) == whole:
        return whole
    lines, most = max(4, MOST_LINES // len(parts)), max(200, MOST_CHARACTERS // len(parts) - 1)
    return bound_text("\n".join(bound_text(part, most_lines=lines, most=most) for part in parts))


def _plain_lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    return [clip(line.rstrip(), _MOST_IN_A_LINE) for line in lines]


def _lines_within(lines: list[str], room: int) -> list[str]:
    """Return the first lines that fit into `room` characters; of the very first, as much as fits."""
    result = [clip(line, max(room - 4, 1)) for line in lines[:1]]
    room -= len(result[0]) + 1 if result else 0
    for line in lines[1:]:
        room -= len(line) + 1
        if room < 0:
            break
        result.append(line)
    return result


def verdict_of(name: str, guard: GuardInterface, artifact: Artifact, inputs: Mapping[str, Any]) -> GuardResult:
    """Ask a guard; an async one runs in an event loop, so this thread must not have one already.

    Raises what the guard raises, and TypeError if it does not return a GuardResult.
    """
    verdict: object = guard.validate(artifact, **inputs)
    return required_verdict(name, asyncio.run(_await(verdict)) if isawaitable(verdict) else verdict)


async def _await(verdict: Awaitable[object]) -> object:
    return await verdict


class UsingGuard(GuardInterface):
    """A part of a guard, in a table whose guards use data: it gets the data named `PART:ARGUMENT` as `ARGUMENT`."""

    def __init__(self, guard: GuardInterface, part: str) -> None:
        self.blocks = guard.blocks
        self._guard, self._prefix = guard, f"{part}:"

    def validate(self, artifact: Artifact, **inputs: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Judge with the artifacts that a step uses and the guard's own data."""
        own = {name.removeprefix(self._prefix): value for name, value in inputs.items() if self._is_own(name)}
        return self._guard.validate(artifact, **own)

    def _is_own(self, name: str) -> bool:
        return ":" not in name or name.startswith(self._prefix)
