"""The terminal that a run is shown on. Nothing that it does, or that a model wrote, may end or disguise the run.

Characters that it cannot show are written as escapes, and when nobody reads any more the run goes on unseen.
"""

import contextlib
import io
import os
import re
import sys
from typing import TextIO, cast

import attrs
import click

#: Control characters but tab and line feed, what separates lines elsewhere, what turns the direction of writing, what is not seen, and halves of
#: surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_LOST: list[str] = []


def printable(text: str) -> str:
    """Write characters that would steer a terminal as escapes; tabs and line feeds stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def patient(stream: TextIO) -> TextIO:
    """Give a stream that takes every text, whoever still reads."""
    return cast(TextIO, _Patient(stream))


@attrs.frozen
class Painted:
    """A word of ours in a colour, where the terminal has colours."""

    text: str
    colour: str | None


def say(*parts: str | Painted, err: bool = False) -> None:
    """Print a line, whatever is in it and whoever still reads; `err`: on standard error. All that commands print goes through here.

    What would steer a terminal, or cannot be seen, is written as an escape.
    """
    stream = sys.stderr if err else sys.stdout
    shown = (printable(part) if isinstance(part, str) else _painted(part, stream) for part in parts)
    _Patient(stream).write(f"{''.join(shown)}\n")


def _painted(part: Painted, stream: TextIO | None) -> str:
    has_colours = stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
    return click.style(part.text, fg=part.colour) if has_colours else part.text


def write(text: str) -> None:
    """Write a document or a program on standard output: as it is for a file or a pipe, and so that it steers nothing on a terminal."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    _Patient(sys.stdout).write(printable(text) if is_shown else text)


def silence(stream: TextIO | None) -> None:
    """Send what a stream still holds to nowhere, or the interpreter would fail to write it as it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), cast(TextIO, stream).fileno())


def note_lost(fault: Exception) -> None:
    """Note that something could not be printed, unless nobody reads any more."""
    if isinstance(fault, OSError) and not isinstance(fault, BrokenPipeError):
        _LOST.append(fault.strerror or str(fault))


def lost_output() -> str | None:
    """Print what standard output still holds; give the reason why something that was printed is lost, None when nothing is."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as fault:
        note_lost(fault)
        silence(sys.stdout)
    return _LOST[0] if _LOST else None


class _Patient(io.TextIOBase):
    """A stream that takes every text, for one that may be closed, full, or unable to encode it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has it as an attribute
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write what can be written, at once."""
        encodable = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        try:
            if self._stream is not None:
                self._stream.write(encodable)
                self._stream.flush()
        except (OSError, ValueError) as fault:  # its reader is gone, the disk is full, it is closed
            note_lost(fault)
            silence(self._stream)
            self._stream = None
        return len(text)

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Give the file descriptor; OSError when there is none."""
        return super().fileno() if self._stream is None else self._stream.fileno()
