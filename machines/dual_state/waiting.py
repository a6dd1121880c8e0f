"""Calling asynchronous code from code that is not."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and give its result. RuntimeError inside an event loop, which cannot wait for itself."""
    if _is_in_a_loop():
        work.close()
        raise RuntimeError(
            "this is called inside an event loop: await `execute_async(..)` or `answer_async(..)` instead"
        )
    return asyncio.run(work)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
