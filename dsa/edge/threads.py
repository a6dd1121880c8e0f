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

#: The name of every such thread.
CALL = "dsa-call"


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

    threading.Thread(target=call, name=CALL, daemon=True).start()
    return await future


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    """Give a future its error. One that would end the loop or the program is an error of the call, not more."""
    if not future.done():
        foreign = error if isinstance(error, Exception) and not isinstance(error, StopIteration) else None
        future.set_exception(foreign or RuntimeError(f"the call raised {type(error).__name__}: {error}"))
