"""Run one command over a folder that it may write, and see nothing else of this machine but programs and libraries.

Takes a `Command`, gives an `Ended`; bubblewrap makes the file tree, and a process, user and network of its own. Whether the command makes
sense, and what its output says, is not known here. Nothing survives it, however it ends.
"""

import contextlib
import functools
import json
import os
import selectors
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from dsa.edge.sandbox.features import FEATURES, SandboxError, ShortageError, shortages
from dsa.edge.sandbox.model import Bounds
from dsa.edge.sandbox.probe import TRIALS, Rung, targets, unkept
from dsa.edge.sandbox.visible import interpreter
from dsa.edge.sandbox.wrapping import Command, Pipes, Sandbox, shown

_RUNG = "bubblewrap"
_lock = threading.Lock()
#: In a network of its own it may send datagrams, to nobody: only what is answered counts.
_TRIED = """
import sys
addresses = _addresses
def _addresses(targets):
    return [each for each in addresses(targets) if each[1] == socket.SOCK_STREAM]
run(sys.argv[1], 1)
"""
_MARGIN_S = 3.0  # for the first process of the sandbox to start and to report; then all is killed
_PIECE_BYTES = 65_536
_MOST_STATUS = 4_096
#: What a command is kept from. Its files are this user's own, so is its user; how much disk it uses is looked at, not bounded.
KEPT_FROM = frozenset(FEATURES) - {"own user", "bounded disk"}
#: How much one command may use: memory, size of a file and open files for each process, disk and processes for all together.
BOUNDS = Bounds(
    timeout_s=60, cpu_s=3_600, memory_bytes=4 << 30, file_bytes=256 << 20, disk_bytes=2 << 30, open_files=512, processes=256,
    output_bytes=9 << 10,
)  # fmt: skip

#: exited by itself · at the time limit · because somebody stopped it · it filled the disk · too many processes · unknown
How = Literal["exited", "timeout", "stopped", "disk", "processes", "lost"]


@attrs.frozen
class Ended:
    """How it ended. `status` is its exit status, the negative number of a signal, or None where it had to be left to the kernel.

    `head` is the beginning of what it wrote to its output and errors, `tail` the end of the rest, `bytes_between` what neither has.
    """

    how: How
    status: int | None
    head: bytes = attrs.field(repr=False)
    tail: bytes = attrs.field(repr=False)
    bytes_between: int
    seconds: float


class Stop:
    """Stops a command from another thread, once and for all."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """Give a file that can be read from as soon as it is set."""
        return self._reading

    def set(self) -> None:
        """Stop the command that waits for this, and every later one."""
        os.write(self._writing, b"x")

    def close(self) -> None:
        """Close its files."""
        os.close(self._reading)
        os.close(self._writing)


@contextlib.contextmanager
def stop() -> Iterator[Stop]:
    """Give one that is closed afterwards."""
    made = Stop()
    try:
        yield made
    finally:
        made.close()


def run_command(command: Command, bounds: Bounds = BOUNDS, grace_s: float = 1.0, stopped: Stop | None = None) -> Ended:
    """Run a command to its end, at most `timeout_s` and `grace_s` long. Raises SandboxError when it cannot be run so confined."""
    started = time.monotonic()
    with shortages(), Pipes() as pipes:
        limits = {**attrs.asdict(bounds), "grace_s": grace_s}
        with Sandbox(command, limits, pipes) as sandbox:
            reading = _Reading(pipes, bounds.output_bytes)
            reading.collect(started + bounds.timeout_s + grace_s + _MARGIN_S, stopped)
            sandbox.end(by_itself=reading.is_over)
            reading.drain()
            return _ended(reading, sandbox.complaints(), time.monotonic() - started)


class _Reading:
    """What has been read so far: of the output the beginning and the end, and all of the status."""

    def __init__(self, pipes: Pipes, most: int) -> None:
        self._pipes, self._most = pipes, most
        self.head, self.tail, self.status = bytearray(), b"", b""
        self.bytes_between = 0
        self.is_over = False

    def collect(self, deadline: float, stopped: Stop | None) -> None:
        """Read until the sandbox has closed its status, or the deadline."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipes.output, selectors.EVENT_READ, self._read_output)
            selector.register(self._pipes.status, selectors.EVENT_READ, self._read_status)
            if stopped is not None:
                selector.register(stopped, selectors.EVENT_READ, self._pass_on)
            while not self.is_over and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if not key.data():
                        selector.unregister(key.fileobj)

    def drain(self) -> None:
        """Read what is still in the pipe; who holds it open is not waited for."""
        with contextlib.suppress(BlockingIOError):
            while self._read_output():
                pass

    def _pass_on(self) -> bool:
        self._pipes.close(self._pipes.lifeline)
        return False

    def _read_status(self) -> bool:
        piece = os.read(self._pipes.status, _MOST_STATUS)
        self.status = (self.status + piece)[:_MOST_STATUS]
        self.is_over = not piece
        return bool(piece)

    def _read_output(self) -> bool:
        piece = os.read(self._pipes.output, _PIECE_BYTES)
        room = self._most - len(self.head)
        self.head += piece[:room]
        if len(piece) > room:
            end = self.tail + piece[room:]
            self.tail = end[-self._most :]
            self.bytes_between += len(end) - len(self.tail)
        return bool(piece)


def _ended(reading: _Reading, complaints: str, seconds: float) -> Ended:
    said: dict[str, Any] = json.loads(reading.status) if reading.status else {}
    if not said and complaints:
        raise SandboxError(f"the sandbox for commands could not be made: {complaints}", ("bubblewrap",))
    if said.get("fault"):
        raise SandboxError(f"the command could not be started: {said['fault']}")
    return Ended(
        said.get("ended", "lost"), said.get("status"), bytes(reading.head), reading.tail, reading.bytes_between, seconds,
    )  # fmt: skip


def probed() -> Rung:
    """Try the sandbox for commands: attack it from inside. The answer is kept like that of a rung."""
    with _lock:
        try:
            return _probed()
        except ShortageError as error:
            return Rung(_RUNG, fault=str(error))


@functools.cache
def _probed() -> Rung:
    if sys.platform != "linux":
        return Rung(_RUNG, fault="only Linux has it")
    if shutil.which("bwrap") is None:
        return Rung(_RUNG, fault="bwrap is not installed (apt install bubblewrap)")
    try:
        with shortages(), tempfile.TemporaryDirectory(prefix="dsa-") as folder, targets() as made:
            code = f"{TRIALS.text}\n{_TRIED}"
            argv = (interpreter(), "-P", "-s", "-S", "-c", code, json.dumps(made))
            ended = run_command(Command(argv, folder, folder, {}, shown()), attrs.evolve(BOUNDS, timeout_s=10))
        broken = json.loads(ended.head)
    except ShortageError:
        raise
    except SandboxError as error:
        return Rung(_RUNG, fault=str(error))
    except ValueError:
        said = ended.head.decode(errors="replace").strip().splitlines()
        return Rung(_RUNG, fault=f"a program that was tried there {ended.how}: {said[-1] if said else 'no word'}")
    if fault := unkept(KEPT_FROM, broken):
        return Rung(_RUNG, fault=fault)
    return Rung(_RUNG, KEPT_FROM)
