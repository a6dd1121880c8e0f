"""Faults under a process: builds the library of `tests/crash/faults.c`, and speaks with it from within the process that has it.

A process started with it in LD_PRELOAD can be killed at any call that changes a file, or have the call fail; every call can be logged.
"""

import atexit
import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import attrs
import pytest

from dsa.edge.processes import compiler

SOURCE = Path(__file__).parent / "crash" / "faults.c"
KINDS = {"write": 1, "sync": 2, "truncate": 4, "create": 8, "remove": 16, "store": 32, "rename": 64}
MODES = {"never": 0, "before": 1, "after": 2, "torn": 3, "once": 4, "ever": 5, "stop": 6}
CALLS = ("write", "sync", "truncate", "create", "remove", "rename")
MEMORY = ("store",)


@cache
def library() -> Path:
    """Build the library, once in a process. Skips the test where nothing can."""
    program = compiler()
    if program is None:
        pytest.skip("NOT TESTED: no C compiler here (cc, gcc or clang), so no faults can be put under a process")
    folder = Path(mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, folder)
    built = folder / "faults.so"
    command = [program, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", built, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def preloaded() -> dict[str, str]:
    """Return the environment of a process that is to have faults."""
    return {**os.environ, "LD_PRELOAD": str(library())}


@attrs.frozen
class Fault:
    """What goes wrong, and at which call: `at` counts from 1 those of these kinds on paths with `name` in them.

    Modes: `never`, killed `before`, `after` or half-way through it (`torn`), stopped before it (`stop`, until SIGCONT), or the call
    fails `once` or for `ever` with `error`.
    """

    mode: str = "never"
    at: int = 0
    kinds: tuple[str, ...] = CALLS
    error: str = "EIO"
    name: str = "ledger.db"

    @property
    def kills(self) -> bool:
        """Whether the process ends by it."""
        return self.mode in {"before", "after", "torn"}

    def arm(self) -> None:
        """Have it happen in this process, which has the library."""
        kinds = sum(KINDS[kind] for kind in self.kinds)
        number = getattr(errno, self.error)
        _shim().faults_arm(self.name.encode(), kinds, MODES[self.mode], ctypes.c_long(self.at), number)


def calls_seen() -> tuple[int, bool]:
    """Return how many calls were counted since `arm`, and whether the fault has happened."""
    return int(_shim().faults_seen()), bool(_shim().faults_fired())


def log_calls(name: str, log: Path) -> None:
    """Append every call on paths with `name` in them to a log."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _shim().faults_log(name.encode(), file)


def mark(said: str) -> None:
    """Write a remark into the log."""
    _shim().faults_mark(said.encode())


@cache
def _shim() -> ctypes.CDLL:
    shim = ctypes.CDLL(None)
    shim.faults_seen.restype = ctypes.c_long
    return shim


@attrs.frozen
class Call:
    """A call of the log: W write, F fsync, X fsync that failed, T truncate, C create, U unlink, R rename, D mkdir, M a remark."""

    kind: str
    path: str
    offset: int
    data: bytes


def logged(log: Path) -> Iterator[Call]:
    """Read a log."""
    content, at = log.read_bytes(), 0
    while at < len(content):
        kind, path, offset, size = (
            int.from_bytes(content[at + n : at + n + 8], sys.byteorder, signed=True) for n in (0, 8, 16, 24)
        )
        at += 32
        yield Call(chr(kind), content[at : at + path].decode(), offset, content[at + path : at + path + size])
        at += path + size
