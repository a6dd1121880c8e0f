"""Time, handed to the driver so that tests can hold it still."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only goes forward, and beside it the time of day, which may jump."""

    def now_s(self) -> float:
        """Give the seconds since some fixed moment."""

    def wall_ms(self) -> int:
        """Give the milliseconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class MonotonicClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Give the seconds since the machine started."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Give the milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
