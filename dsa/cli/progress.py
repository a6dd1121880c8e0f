"""What a command is doing, on standard error: only on a terminal, and only after a second."""

import sys
import threading
import time
from shutil import get_terminal_size
from types import TracebackType
from typing import Self

_QUIET_S, _EVERY_S = 1.0, 0.2


def show_line(text: str) -> None:
    """Show a line in the place of the one before it, on a terminal only; an empty one takes that away."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Working:
    """Shows what is being done and for how many seconds, from a thread of its own, so that long work need not report.

    Calling it takes note of a search: configurations found, and steps from the start.
    """

    def __init__(self, doing: str) -> None:
        self._doing, self._began_s = doing, time.monotonic()
        self._search_began_s, self._states = self._began_s, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, doing: str) -> None:
        """Say what is done now."""
        self._doing = doing

    def __call__(self, states: int, depth: int) -> None:
        """Take note of how far a search is; a count smaller than before is a new search."""
        now_s = time.monotonic()
        if states < self._states:
            self._search_began_s = now_s
        self._states = states
        speed = states / max(now_s - self._search_began_s, 1e-3)
        self.tell(f"{states:,} configurations, {depth:,} steps deep, {speed:,.0f} states/s")

    def _show(self) -> None:
        wait_s, is_shown = _QUIET_S, False
        while not self._over.wait(wait_s):
            taken = f", {time.monotonic() - self._began_s:.0f} s"
            width = get_terminal_size().columns - len(taken) - 1  # a line that is broken could not be taken away
            show_line(f"{self._doing[:width]}{taken}")
            wait_s, is_shown = _EVERY_S, True
        if is_shown:
            show_line("")
