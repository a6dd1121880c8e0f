"""Blocking calls, made beside the event loop.

Generators and guards block. They run in daemon threads, so that a call which never returns can be given up: the loop
goes on, and the interpreter can end. (The loop's own thread pool would be waited for.)
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Call(threading.Thread):
    """A thread in which a loop has a call made. It never keeps the interpreter from ending."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Callable[[], None]) -> None:
        super().__init__(target=target, name="dsa-call", daemon=True)
        self.loop = loop


class WithoutThreads:
    """Marks an event loop on which blocking calls are made in place: a simulated one, into which threads would bring chance."""


async def called(function: Callable[[], T], *, blocks: bool) -> T:
    """Call a function, in a thread of its own when it blocks, and give its result, or raise what it raised as `in_thread` does."""
    if blocks:
        return await in_thread(function)
    try:
        return function()
    except BaseException as error:
        if _is_foreign(error) and not isinstance(error, KeyboardInterrupt):  # here that is somebody's Ctrl-C
            raise _told(error) from error
        raise


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own and give its result, or raise what it raised.

    When the caller is cancelled, the thread is left to itself and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        try:
            settle = partial(_succeed, future, function())
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            settle = partial(_fail, future, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    if isinstance(loop, WithoutThreads):
        call()
    else:
        Call(loop, call).start()
    return await future


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    """Give a future its error."""
    if not future.done():
        future.set_exception(_told(error) if _is_foreign(error) else error)


def _is_foreign(error: BaseException) -> bool:
    """Tell whether an error would end the loop or the program, or cannot be told; then it is an error of the call, not more."""
    return isinstance(error, StopIteration) or not isinstance(error, Exception) or _said(error) is None


def _told(error: BaseException) -> RuntimeError:
    said = _said(error)
    return RuntimeError(f"the call raised {type(error).__name__}{'' if said is None else f': {said}'}")


def _said(error: BaseException) -> str | None:
    """Give what an error says; None when it fails to say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (whatever it is, there are no words)
        return None
