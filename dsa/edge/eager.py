"""A coroutine begun in somebody else's task, and gone on with in a task of its own when it has to wait.

What answers without waiting then costs no turn of the event loop. Python has this as `asyncio.eager_task_factory` from 3.12 on.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T_co = TypeVar("T_co", covariant=True)


class GoingOn(Coroutine[Any, Any, T_co]):
    """The rest of a coroutine that waits for `awaited`, as `send` has given it, for a task.

    No generator could stand for it: one that a task throws into before its first step never runs, and what was begun is left over.
    """

    def __init__(self, begun: Coroutine[Any, Any, T_co], awaited: Any) -> None:  # noqa: ANN401  (what asyncio waits for)
        self._begun, self._awaited = begun, awaited
        self._is_told = False

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Tell at first what is waited for; then go on."""
        if self._is_told:
            return self._begun.send(value)
        self._is_told = True
        return self._awaited

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Throw into what was begun; what it waits for, and its task does not know of yet, is cancelled."""
        if not self._is_told:
            self._is_told = True
            if isinstance(self._awaited, asyncio.Future):
                self._awaited.cancel()
        return self._begun.throw(*error)

    def close(self) -> None:
        """Close what was begun."""
        self._begun.close()

    def __await__(self) -> Generator[Any, Any, T_co]:
        raise TypeError("a task goes on with it, nobody else")
