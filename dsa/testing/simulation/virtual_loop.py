"""An event loop without sockets, threads and real time: what runs on it runs the same every time, and waiting costs nothing.

Tasks run until they wait for the world; then `idle` plays the world. All loops of one story share their time, which moves only when
the next sleeper is woken.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from math import inf
from typing import Any, TypeVar, TypeVarTuple

from dsa.edge.event_loop import WithoutThreads

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

#: The time of day at which every story begins, in milliseconds since 1970.
BEGIN_MS = 1_750_000_000_000
_MS = 1000
#: The most callbacks in a row without waiting; more are a loop that never ends.
_MOST_AT_A_STRETCH = 1_500


class _Soon(list[Any]):
    """Something that is called as soon as it can be: in which context, what, with which arguments. A list, because that is made at once."""

    __slots__ = ()

    def cancel(self) -> None:
        """Do not call it."""
        self[:] = None, _nothing, ()


def _nothing() -> None:
    """Stand in for what was cancelled."""


class SpinningError(RuntimeError):
    """Raised when what runs goes round and round without waiting for anything."""


class Time:
    """True time, which only goes forward, and the wall clock, which may be set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.set_by_ms = 0

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in milliseconds since 1970."""
        return BEGIN_MS + self.set_by_ms + round(self.now_s * _MS)


class VirtualLoop(WithoutThreads, asyncio.AbstractEventLoop):
    """The event loop of one simulated process. `unheard` are errors that nobody handled."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._ready: deque[_Soon] = deque()
        self._sleepers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self.unheard: list[dict[str, object]] = []

    def play(self, task: "asyncio.Task[Any]", idle: Callable[[], bool]) -> bool:
        """Run until the task is done, and return True. `idle` is called whenever nothing can run; when it returns False, return False."""
        outer = events._get_running_loop()  # noqa: SLF001  (documented for who writes event loops)
        events._set_running_loop(self)  # noqa: SLF001
        try:
            while True:
                self._run_ready()
                if self.next_s <= self._time.now_s:
                    self.wake_next()
                elif task.done():
                    return True
                elif not idle():
                    return False
        finally:
            events._set_running_loop(outer)  # noqa: SLF001

    def _run_ready(self) -> None:
        ready, left = self._ready, _MOST_AT_A_STRETCH
        while ready:
            context, callback, arguments = ready.popleft()
            if context is None:
                callback(*arguments)
            else:
                context.run(callback, *arguments)
            left -= 1
            if not left:
                raise SpinningError(f"{_MOST_AT_A_STRETCH} callbacks ran, and none of them waited for anything")

    @property
    def next_s(self) -> float:
        """When the next sleeper wakes, in true seconds; infinite when nobody sleeps."""
        sleepers = self._sleepers
        while sleepers and sleepers[0][2].cancelled():
            heapq.heappop(sleepers)
        return sleepers[0][0] if sleepers else inf

    def wake_next(self) -> None:
        """Let time pass until the next sleeper wakes; there must be one."""
        when_s, _, handle = heapq.heappop(self._sleepers)
        self._time.now_s = max(self._time.now_s, when_s)
        handle._run()  # noqa: SLF001  (as event loops do)

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]  # a handle in all that anybody asks of it, and cheaper
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> "_Soon":
        """Call something as soon as what runs now waits."""
        soon = _Soon((context, callback, args))
        self._ready.append(soon)
        return soon

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call something after a delay in seconds."""
        return self.call_at(self._time.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call something at a moment of true time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._sleepers, (when, self._count, handle))
        return handle

    def time(self) -> float:
        """Return the seconds since the story began."""
        return self._time.now_s

    def create_future(self) -> "asyncio.Future[Any]":
        """Make a future."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **_options: Any) -> "asyncio.Task[T]":  # type: ignore[override]  # noqa: ANN401  (names of tasks, which nobody reads here)
        """Make a task."""
        return asyncio.Task(coro, loop=self)

    def get_debug(self) -> bool:
        """Return False: nobody debugs."""
        return False

    def is_running(self) -> bool:
        """Return True: it runs."""
        return True

    def is_closed(self) -> bool:
        """Return False: it is open."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Record that a sleeper need not be woken: it is passed over when its time comes."""

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Record an error that nobody handled."""
        self.unheard.append(context)


class VirtualClock:
    """The clock that a simulated process goes by."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def now_s(self) -> float:
        """Return the seconds since the story began."""
        return self._time.now_s

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in milliseconds since 1970."""
        return self._time.wall_ms()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
