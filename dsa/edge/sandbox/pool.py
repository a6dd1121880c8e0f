"""The warm processes of this one: started at the first use, shared by all threads, ended with it.

A call is forked off a warm process only where code cannot reach it; elsewhere each call has a process of its own, started for it.
"""

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator

from dsa.edge.sandbox.features import SandboxError
from dsa.edge.sandbox.launch import Zygote, start
from dsa.edge.sandbox.model import Setup

_warm: dict[tuple[str, Setup], Zygote] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def zygote(rung: str, setup: Setup = Setup()) -> Iterator[Zygote]:  # noqa: B008  # it is frozen
    """Give a process to ask for a call, warm where that is safe. Raises SandboxError when the rung cannot be had, OSError without a process."""
    key = (rung, setup)
    with _lock:
        found = _warm.get(key)
        if found is None or not found.is_there():
            if found is not None:
                _warm.pop(key).kill()
            found = start(*key)
            if found.fault:
                raise SandboxError(f"no process can be confined by '{rung}' here: {found.fault}", (rung,))
            if found.warm:
                _warm[key] = found
    if found.warm:
        yield found
        return
    try:
        yield found
    finally:
        found.close()


def close_all() -> None:
    """End all warm processes; the next call starts new ones."""
    with _lock:
        for found in _warm.values():
            found.close()
        _warm.clear()


def _forget_all() -> None:
    """In a fork of this process: its warm ones are not ours."""
    global _lock  # noqa: PLW0603  # another thread may have held it when we were forked
    _lock = threading.Lock()
    for found in _warm.values():
        found.forget()
    _warm.clear()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
