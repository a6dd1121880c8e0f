"""Progress of long searches on standard error: only on a terminal, and only after a second."""

import sys
import time

_QUIET_S, _EVERY_S = 1.0, 0.2


def show_line(text: str) -> None:
    """Show a line in the place of the one before it, on a terminal only; an empty one takes that away."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Meter:
    """Shows how many configurations were found, and how fast; `clear` takes the line away."""

    def __init__(self) -> None:
        self._began_s = self._shown_s = time.monotonic()
        self._last = 0
        self._is_shown = False

    def __call__(self, states: int, depth: int) -> None:
        """Take note; a count smaller than before is a new search."""
        now_s = time.monotonic()
        if states < self._last:
            self._began_s = now_s
        self._last = states
        if now_s - self._began_s < _QUIET_S or now_s - self._shown_s < _EVERY_S:
            return
        self._shown_s, self._is_shown = now_s, True
        speed = states / (now_s - self._began_s)
        line = f"{states:,} configurations, {depth:,} steps deep, {speed:,.0f} states/s"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def meter() -> Meter | None:
    """Give a meter when there is a terminal to show it on."""
    return Meter() if sys.stderr is not None and sys.stderr.isatty() else None
