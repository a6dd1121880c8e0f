"""Connections that outlive a request: one client for each event loop, closed when its loop is shut down.

Takes what opens a client, gives it as a context that does not close it. A client must not be used, and cannot be closed, outside of its loop; and
nobody but the loop knows when that ends.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from dsa.errors import GenerationError

if TYPE_CHECKING:
    import httpx

_MOST_BEHIND_S = 0.05


class Kept:
    """The clients of one server. Several threads may use it, each with its own loop."""

    def __init__(self) -> None:
        self._reading: set[asyncio.Task[None]] = set()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]] = {}

    @asynccontextmanager
    async def client(self, opened: Callable[[], "httpx.AsyncClient"]) -> AsyncIterator["httpx.AsyncClient"]:
        """Give the client of the running loop, opened at its first use; an answer that is still read is waited for."""
        loop = asyncio.get_running_loop()
        if reading := [task for task in self._reading if task.get_loop() is loop]:
            await asyncio.wait(reading)
        if loop not in self._clients:
            for known in [known for known in list(self._clients) if known.is_closed()]:
                self._clients.pop(known, None)
            client = opened()
            closing = _closed_with_its_loop(client)
            await anext(closing)
            self._clients[loop] = client, closing
        yield self._clients[loop][0]

    async def aclose(self) -> None:
        """Close the client of the running loop, if there is one."""
        _, closing = self._clients.pop(asyncio.get_running_loop(), (None, None))
        if closing is not None:
            await closing.aclose()

    def read_on(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Read what comes behind a whole answer, beside everything else: only a connection whose answer was read can be used again."""
        task = asyncio.create_task(_read_to_the_end(pieces))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


async def _read_to_the_end(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read for a moment, and close."""
    try:
        with suppress(TimeoutError, GenerationError):  # what was wanted is there
            async with asyncio.timeout(_MOST_BEHIND_S):
                async for _ in pieces:
                    pass
    finally:
        await pieces.aclose()


async def _closed_with_its_loop(client: "httpx.AsyncClient") -> AsyncGenerator[None, None]:
    """Wait for the end of the loop: it closes generators that are still open (`shutdown_asyncgens`)."""
    try:
        yield
    finally:
        await client.aclose()
