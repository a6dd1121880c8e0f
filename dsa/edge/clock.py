"""Time, handed to the driver so that tests can hold it still."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only goes forward."""

    def now_s(self) -> float:
        """Give the seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class MonotonicClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Give the seconds since the machine started."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
