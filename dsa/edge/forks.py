"""Forks: one long list of work done by as many processes as there are processors, with the results in the order of the list.

A fork has everything that this process has worked out by then, so work needs no form in which it could be sent; results are pickled. Where there is no
fork (Windows), or one processor, everything is done here.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn, TypeVar

Result = TypeVar("Result")
#: Less work than this is not worth a fork.
_FEW = 20


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int], Result], count: int) -> Iterator[Result]:
    """Give what work comes to for 0, 1, .. up to `count`; processes end when this does, in whatever way.

    What another process did not come to the end of is done here: so a fault is raised here, with its traceback.
    """
    many = processors()
    if many == 1 or count < _FEW or not hasattr(os, "fork"):
        yield from map(work, range(count))
        return
    children: list[tuple[int, Connection]] = []
    try:
        for first in range(many):
            children.append(_forked(work, range(first, count, many), [reader for _, reader in children]))
        for number in range(count):
            try:
                result = children[number % many][1].recv()
            except EOFError:
                result = work(number)
            yield result
    finally:
        for child, reader in children:
            reader.close()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _forked(work: Callable[[int], object], numbers: range, others: Sequence[Connection]) -> tuple[int, Connection]:
    """Begin a part of the work; returns the process and what its results are read from."""
    reader, writer = Pipe(duplex=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the child has said what it does with Ctrl-C
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for other in (reader, *others):
            other.close()
        _work(work, numbers, writer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    writer.close()
    return child, reader


def _work(work: Callable[[int], object], numbers: range, writer: Connection) -> NoReturn:
    """Do a part of the work in a process of its own, until it is done, ended, or nobody reads any more."""
    try:
        for number in numbers:
            writer.send(work(number))
    finally:
        os._exit(0)  # nothing of the other process is cleared away here
