"""Who wants to know which rows tests take: `pytest --machine-coverage` listens here. Nobody does otherwise."""

from collections.abc import Callable

from dsa.declarations import Transition
from dsa.machine import Machine
from dsa.meaning import Occurrence

#: Is told the machine, what happened, the row taken, and the state after it.
Listener = Callable[[Machine, Occurrence, Transition, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call a function with every row that tests take from now on."""
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Call it no more."""
    _listeners.remove(listener)


def tell(machine: Machine, occurrence: Occurrence, row: Transition, state: str) -> None:
    """Say that a row was taken."""
    for listener in _listeners:
        listener(machine, occurrence, row, state)
