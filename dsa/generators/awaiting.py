"""Coroutines waited for by who cannot await them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def waited_for(begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in an event loop of its own and give its result; in a thread of its own where a loop runs already, which stands still meanwhile."""
    if not _in_a_loop():
        return asyncio.run(begin())
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(begin()))
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
