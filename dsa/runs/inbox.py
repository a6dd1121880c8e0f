"""Inbox reader: hands messages that other processes have posted to the runs that this one drives."""

import asyncio
from typing import TYPE_CHECKING

from dsa.runtime.journal import StoreError

if TYPE_CHECKING:
    from dsa.runs.handle import RunHandle

#: How often the inboxes are looked into, in seconds.
_EVERY_S = 0.02


class InboxReader:
    """Looks into the inboxes of the runs that are held here, in a task that ends with the last of them."""

    def __init__(self, held: "dict[str, RunHandle]") -> None:
        self._held = held
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on, if nobody does yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _read(self) -> None:
        while self._held:
            await asyncio.sleep(_EVERY_S)
            for handle in tuple(self._held.values()):
                try:
                    handle.take_messages()
                except StoreError:
                    continue  # whoever drives the run meets it too, and says so
