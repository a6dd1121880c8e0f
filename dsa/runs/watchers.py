"""Watchers: who waits in this process for something to happen in a run, and for the pieces of text that it shows."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from dsa.runtime.moment import Piece

#: So many pieces of text are kept for a reader that is slow.
_MOST_PIECES = 1_000


class Watchers:
    """Those who watch one run. Any of them may go away at any time."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._readers: list[deque[Piece]] = []

    async def change(self) -> None:
        """Wait until `wake` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let all who wait look again."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def show(self, piece: Piece) -> None:
        """Give a piece of text to all who read them; a slow reader misses the oldest."""
        for pieces in self._readers:
            pieces.append(piece)
        self.wake()

    @contextmanager
    def reading(self) -> Iterator[deque[Piece]]:
        """Collect the pieces that are shown meanwhile."""
        pieces: deque[Piece] = deque(maxlen=_MOST_PIECES)
        self._readers.append(pieces)
        try:
            yield pieces
        finally:
            self._readers = [each for each in self._readers if each is not pieces]
