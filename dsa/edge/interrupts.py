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
    with _woken_by_signals(asyncio.get_running_loop()), _asked_to_end_as_by_ctrl_c():
        return await work


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
def _asked_to_end_as_by_ctrl_c() -> Iterator[None]:
    """Take signals that would end the process for Ctrl-C; not where somebody else hears them, or nobody Ctrl-C."""
    heard = callable(signal.getsignal(signal.SIGINT))
    taken = [number for number in _ENDS if heard and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _emptied(reading: socket.socket) -> None:
    """Forget which signals it was: their handlers run anyway, now that the loop is awake."""
    with suppress(BlockingIOError):
        reading.recv(4_096)
