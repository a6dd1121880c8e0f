"""A coroutine begun in somebody else's task, and gone on with in a task of its own when it has to wait.

What answers without waiting then costs no turn of the event loop. Python has this as `asyncio.eager_task_factory` from 3.12 on.
"""

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def going_on(begun: Coroutine[Any, Any, T], awaited: Any) -> Coroutine[Any, Any, T]:  # noqa: ANN401  (what asyncio waits for)
    """Give the rest of a coroutine that waits for `awaited`, as `send` has given it, for a task."""
    return cast(Coroutine[Any, Any, T], _going_on(begun, awaited))


@coroutine
def _going_on(begun: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:  # noqa: ANN401
    try:
        while True:
            try:
                said = yield awaited
            except GeneratorExit:
                begun.close()
                raise
            except BaseException as error:  # noqa: BLE001  (of whatever it waits for)
                awaited = begun.throw(error)
            else:
                awaited = begun.send(said)
    except StopIteration as end:
        return cast(T, end.value)
