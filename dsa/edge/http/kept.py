"""Connections that outlive a request: one client for each event loop, closed when its loop is shut down.

Takes what opens a client, gives it as a context that does not close it. A client must not be used, and cannot be closed, outside of its loop; and
nobody but the loop knows when that ends.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


class Kept:
    """The clients of one server. Several threads may use it, each with its own loop."""

    def __init__(self) -> None:
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]] = {}

    @asynccontextmanager
    async def client(self, opened: Callable[[], "httpx.AsyncClient"]) -> AsyncIterator["httpx.AsyncClient"]:
        """Give the client of the running loop, opened at its first use."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for known in [known for known in list(self._clients) if known.is_closed()]:
                self._clients.pop(known, None)
            client = opened()
            closing = _closed_with_its_loop(client)
            await anext(closing)
            self._clients[loop] = client, closing
        yield self._clients[loop][0]


async def _closed_with_its_loop(client: "httpx.AsyncClient") -> AsyncGenerator[None, None]:
    """Wait for the end of the loop: it closes generators that are still open (`shutdown_asyncgens`)."""
    try:
        yield
    finally:
        await client.aclose()
