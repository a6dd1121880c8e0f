"""Run an event loop that Ctrl-C always reaches, and whoever else asks the process to end (SIGTERM, SIGHUP) like Ctrl-C.

Between its last look at signals and its wait for events a loop of asyncio does not hear a signal before something else happens: a run that
waits for a model would wait on. Here every signal also wakes the loop.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")
#: What asks a process to end. Windows has no SIGHUP.
_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Do what `asyncio.run` does. KeyboardInterrupt after Ctrl-C, SIGTERM, SIGHUP, once what was under way has been cancelled."""
    return asyncio.run(interruptible(work))


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Do the work in a loop that every signal wakes; for those who keep a loop of their own."""
    if threading.current_thread() is not threading.main_thread():
        return await work  # signals do not come here
    with _woken_by_signals(asyncio.get_running_loop()), _cancelled_by_signals(asyncio.current_task()) as asked:
        try:
            return await work
        except asyncio.CancelledError:
            if asked:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)  # noqa: FBT003  (its signature)
        writing.setblocking(False)  # noqa: FBT003
        try:
            loop.add_reader(reading, _emptied, reading)
        except NotImplementedError:  # a loop that waits otherwise hears signals otherwise
            yield
            return
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reading)


@contextmanager
def _cancelled_by_signals(task: "asyncio.Task[Any] | None") -> Iterator[list[int]]:
    """Have signals that would end the process cancel a task, once; gives those that came. Who hears or ignores them already goes on to.

    It does not go by Ctrl-C: shells have that ignored in what they start behind `&`.
    """
    came: list[int] = []
    taken = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]

    def ask(number: int, _frame: object) -> None:
        came.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        assert task is not None, "a coroutine is awaited in a task"
        task.cancel()

    for number in taken:
        signal.signal(number, ask)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _emptied(reading: socket.socket) -> None:
    """Forget which signals it was: their handlers run anyway, now that the loop is awake."""
    with suppress(BlockingIOError):
        reading.recv(4_096)
