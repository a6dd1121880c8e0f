"""The tree of processes below this one: signals when a child ends, descendants, and their end.

Without `/proc` no descendants are found. In a process namespace of its own this does not matter: the end of the first process ends all others.
"""

import contextlib
import os
import signal
import time

_SWEEP_S = 1.5


def wakeup_file() -> int:
    """Return a file that is readable whenever a child has ended. SIGINT is ignored from here on: children could send it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def sweep() -> None:
    """Kill all processes that this one has started; it has adopted children of dead parents (subreaper).

    All are stopped before any is killed: otherwise a process that goes on forking could stay ahead for ever.
    """
    stopped_ids: set[int] = set()
    give_up = time.monotonic() + _SWEEP_S
    while (running_ids := descendants(os.getpid()) - stopped_ids) and time.monotonic() < give_up:
        for child in running_ids:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGSTOP)
        stopped_ids |= running_ids
    while time.monotonic() < give_up:
        for child in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def descendants(process: int) -> set[int]:
    """Return the children of a process, and all their descendants."""
    ids: set[int] = set()
    unvisited_ids = of(process)
    while unvisited_ids:
        child = unvisited_ids.pop()
        if child not in ids:
            ids.add(child)
            unvisited_ids += of(child)
    return ids


def of(process: int) -> list[int]:
    """Return the children of all threads of a process."""
    ids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  # pathlib is slow to import
            with open(f"/proc/{process}/task/{task}/children", "rb") as file:  # noqa: PTH123
                ids += [int(pid) for pid in file.read().split()]
    return ids
