"""Test doubles for what a run meets outside: a generator and a guard that follow a list, and a clock that stands still.

They implement the interfaces that the driver uses, so a test runs the real driver and the real table.
"""

import asyncio
import heapq
import threading
from collections.abc import Coroutine, Iterable
from itertools import count
from math import inf
from typing import TypeVar

from dsa.edge.event_loop import CallerThread
from dsa.runtime.content import Artifact, Context, GeneratorInterface, GuardInterface, GuardResult, PromptTemplate

T = TypeVar("T")


def _calls_of(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a call that a loop made in a thread still runs. A call of another loop may hang for ever."""
    return any(isinstance(thread, CallerThread) and loop in thread.loops for thread in threading.enumerate())


class Texts(GeneratorInterface):
    """A generator that returns the listed texts in order, and raises those that are exceptions. `calls` holds every context and template."""

    def __init__(self, texts: Iterable[str | Exception]) -> None:
        self._texts = iter(texts)
        self.calls: list[tuple[Context, PromptTemplate | None]] = []

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Return the next text. AssertionError when there is none left."""
        self.calls.append((context, template))
        text = next(self._texts, None)
        assert text is not None, "the list of texts is used up"
        if isinstance(text, Exception):
            raise text
        return Artifact(text)


class Verdicts(GuardInterface):
    """A guard that returns the listed results in order, and raises those that are exceptions. `calls` holds every call.

    A text is a rejection with that feedback, an empty text a pass.
    """

    def __init__(self, results: Iterable[GuardResult | str | Exception]) -> None:
        self._results = iter(results)
        self.calls: list[tuple[Artifact, dict[str, Artifact]]] = []

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Return the next result. AssertionError when there is none left."""
        self.calls.append((artifact, dependencies))
        result = next(self._results, None)
        assert result is not None, "the list of results is used up"
        if isinstance(result, Exception):
            raise result
        return GuardResult(not result, result) if isinstance(result, str) else result


class StillClock:
    """A `dsa.edge.event_loop.Clock` that moves only by `advance`."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        """Return the seconds by which it was moved."""
        return self._now_s

    def wall_ms(self) -> int:
        """Return the milliseconds by which it was moved."""
        return round(self._now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved so far."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), future))
        await future

    @property
    def sleeper_count(self) -> int:
        """The number of tasks that sleep."""
        return sum(not future.done() for _, _, future in self._sleepers)

    @property
    def next_s(self) -> float:
        """The seconds until the next sleeper wakes; infinite when there is none."""
        return min((wakes_s - self._now_s for wakes_s, _, future in self._sleepers if not future.done()), default=inf)

    async def settle(self) -> None:
        """Run everything that needs neither time nor threads."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def quiet(self) -> None:
        """Run everything that needs no time, guards in the threads of this loop included."""
        loop, call_count = asyncio.get_running_loop(), -1
        while call_count != CallerThread.call_count or _calls_of(loop):  # what follows a call may make another one
            call_count = CallerThread.call_count
            while _calls_of(loop):  # noqa: ASYNC110  (threads tell no Event)
                await asyncio.sleep(0)
            await self.settle()

    async def through(self, work: Coroutine[object, object, T]) -> T:
        """Wait for work; whenever it needs time to go on, move the clock to the next moment that a task waits for."""
        task = asyncio.create_task(work)
        await self.quiet()
        while not task.done() and self.next_s < inf:
            await self.advance(self.next_s)
            await self.quiet()
        return await task

    async def advance(self, seconds: float) -> None:
        """Move the clock and wake those whose time has come, in order; what they do is done when this returns."""
        await self.settle()
        goal_s = self._now_s + seconds
        while self._sleepers and self._sleepers[0][0] <= goal_s:
            self._now_s, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await self.settle()
        self._now_s = goal_s
