"""The terminal that a run is shown on. Nothing that it does, or that a model wrote, may end or disguise the run.

Characters that it cannot show are written as escapes, and when nobody reads any more the run goes on unseen.
"""

import io
import re
import sys
from typing import TextIO, cast

from dsa.cli.faults import note_lost, silence

#: Control characters but tab and line feed, what turns the direction of writing, and halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Write characters that would steer a terminal as escapes; tabs and line feeds stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def patient(stream: TextIO) -> TextIO:
    """Give a stream that takes every text, whoever still reads."""
    return cast(TextIO, _Patient(stream))


def say(text: str) -> None:
    """Print a line as it stands, whatever it holds and whoever still reads."""
    _Patient(sys.stdout).write(f"{printable(text)}\n")


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
