"""An event loop in a thread of its own, for callers that wait on threads of theirs. Takes coroutines, gives what they give."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ended(Exception):  # noqa: N818  # it says what is the case
    """Raised when the loop was ended before the work was done."""


class _Job(Generic[T]):
    """Work that can be given up, begun or not. It happens on the loop's thread."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._is_given_up:
            self.forget()
            raise asyncio.CancelledError
        return await self._work

    def forget(self) -> None:
        """Let go of work that never begins."""
        self._work.close()

    def give_up(self) -> None:
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()


class BesideLoop:
    """An event loop beside the threads that use it. It runs from the beginning, until `end`; it never keeps the interpreter from ending."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._is_ended, self._end = False, asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Have work done and wait for it, or raise what it raised. Ctrl-C and the like cancel it. Raises Ended."""
        job = _Job(work)
        try:
            return self._begun(job).result()
        except concurrent.futures.CancelledError as error:
            raise Ended from error
        except BaseException:  # Ctrl-C may come at any moment since, also before there is a future to cancel
            with suppress(RuntimeError):  # the loop is over, and so is the job
                self._loop.call_soon_threadsafe(job.give_up)
            raise

    def _begun(self, job: _Job[T]) -> "concurrent.futures.Future[T]":
        with self._one_at_a_time:
            if self._is_ended:
                job.forget()
                raise Ended
            return asyncio.run_coroutine_threadsafe(job.run(), self._loop)

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread, where it cannot be waited for."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Cancel what is under way, and wait for the thread."""
        with self._one_at_a_time:
            if not self._is_ended:
                self._is_ended = True
                self._loop.call_soon_threadsafe(self._end.set)
        if not self.is_here:
            self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._until_end())

    async def _until_end(self) -> None:
        await self._end.wait()
