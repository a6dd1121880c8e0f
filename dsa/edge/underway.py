"""What a driver has under way: effects that are being performed, and timers that run, as tasks of one event loop.

Starts and stops them; what a timer rings for, and what breaks a task, goes to those who asked. It knows no run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from dsa.edge.clock import Clock
from dsa.edge.eager import GoingOn
from dsa.meaning import Occurrence

Task = asyncio.Task[None]
#: A coroutine that is not made before its task begins: one that never begins would be left over.
Work = Callable[[], Awaitable[None]]


class UnderWay:
    """Tasks by the keys of their effects, timers by source and event. `rings` is told of a timer, `breaks` of what a task raises."""

    def __init__(
        self, clock: Clock, rings: Callable[[Occurrence], None], breaks: Callable[[BaseException], None]
    ) -> None:
        self._clock, self._rings, self._breaks = clock, rings, breaks
        self._effects: dict[str, Task] = {}
        self._timers: dict[tuple[str, str], Task] = {}
        self._alarms: dict[str, Task] = {}
        self._stopping: set[Task] = set()

    def __bool__(self) -> bool:
        return bool(self._effects or self._timers or self._alarms)

    @property
    def has_effects(self) -> bool:
        """Return whether an effect is being performed."""
        return bool(self._effects)

    def start(self, key: str, work: Work) -> None:
        """Perform an effect in a task of its own."""
        self._effects[key] = asyncio.create_task(self._guarded(work))

    def start_here(self, key: str, work: Work) -> None:
        """Perform an effect as far as it goes without waiting; a task is made of the rest."""
        guarded = self._guarded(work)
        try:
            awaited = guarded.send(None)
        except StopIteration:
            return
        self._effects[key] = asyncio.create_task(GoingOn(guarded, awaited))

    def ended(self, key: str) -> None:
        """Take note that an effect is performed."""
        self._effects.pop(key, None)

    def stop(self, key: str) -> None:
        """Stop performing an effect, if it is under way."""
        self._stop(self._effects.pop(key, None))
        self._stop(self._alarms.pop(key, None))

    def wait(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        """Call `wake` with the key of an effect that rests after so many seconds, unless it is stopped before."""
        self._alarms[key] = asyncio.create_task(self._guarded(partial(self._wake, key, seconds, wake)))

    def arm(self, source: str, event: str, seconds: float) -> None:
        """Start a timer, from zero if it runs already."""
        self.drop(source, event)
        self._timers[source, event] = asyncio.create_task(self._guarded(partial(self._ring, source, event, seconds)))

    def drop(self, source: str, event: str) -> bool:
        """Forget a timer; return whether it was running."""
        task = self._timers.pop((source, event), None)
        self._stop(task)
        return task is not None

    async def stop_all(self) -> None:
        """Stop everything, and wait until it has."""
        for task in (*self._effects.values(), *self._timers.values(), *self._alarms.values()):
            self._stop(task)
        self._effects.clear()
        self._timers.clear()
        self._alarms.clear()
        if self._stopping:
            await asyncio.gather(*self._stopping, return_exceptions=True)

    async def _ring(self, source: str, event: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._timers[source, event]
        self._rings(Occurrence(event, source=source))

    async def _wake(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        await self._clock.sleep(seconds)
        del self._alarms[key]
        wake(key)

    async def _guarded(self, work: Work) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._breaks(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    def _stop(self, task: Task | None) -> None:
        if task is not None:
            task.cancel()
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
