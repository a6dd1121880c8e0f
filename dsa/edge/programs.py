"""Run a program of the user's own: a text goes in, a text comes out, within bounds.

Takes a command, gives what it wrote and how it ended. The program is trusted: it has the environment and the files that this process has.
What models write is run by `dsa.edge.sandbox`.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Literal

import attrs

from dsa.errors import DsaError

#: ended by itself · killed at its time limit · killed for writing too much
End = Literal["ended", "timeout", "flooded"]

_PIECE_BYTES = 65_536
_TAIL_BYTES = 4_096


class NoProgramError(DsaError):
    """Raised when a program cannot be started."""


@attrs.frozen
class Ran:
    """How a program ended: its exit code (negative: the signal that killed it), what it wrote, the end of its complaints."""

    end: End
    code: int
    output: bytes
    complaints: bytes


def run_program(command: Sequence[str], given: bytes, *, timeout_s: float, most_bytes: int) -> Ran:
    """Start a program, give it its input, and wait until it and its output have ended. Raises NoProgramError.

    It is killed with all that it has started after `timeout_s` seconds, or when it has written more than `most_bytes`.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  (the user's own program)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NoProgramError(f"{command[0]} cannot be started: {reason}") from error
    try:
        return _Talk(process, given, most_bytes).until(time.monotonic() + timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has left behind
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class _Talk:
    """The pipes of one program, read and written as they are ready."""

    def __init__(self, process: "subprocess.Popen[bytes]", given: bytes, most_bytes: int) -> None:
        self._process, self._given, self._most = process, memoryview(given), most_bytes
        self._output, self._complaints = bytearray(), bytearray()

    def until(self, deadline_s: float) -> Ran:
        """Talk until the program has closed its output and ended, or may go on no longer."""
        process = self._process
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None, "all three are pipes"
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ)
            while selector.get_map():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return self._ran("timeout")
                for key, _ in selector.select(left_s):
                    if self._is_over(key.fileobj):  # type: ignore[arg-type]  # what was registered
                        selector.unregister(key.fileobj)
                if len(self._output) > self._most:
                    return self._ran("flooded")
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._ran("timeout")
        return self._ran("ended")

    def _is_over(self, pipe: IO[bytes]) -> bool:
        """Write or read what can be; tell whether nothing more is to come through this pipe."""
        if pipe is self._process.stdin:
            with suppress(BrokenPipeError):  # it does not want the rest
                self._given = self._given[os.write(pipe.fileno(), self._given[:_PIECE_BYTES]) :]
                if self._given:
                    return False
            pipe.close()
            return True
        piece = os.read(pipe.fileno(), _PIECE_BYTES)
        if pipe is self._process.stdout:
            self._output += piece
        else:
            self._complaints = (self._complaints + piece)[-_TAIL_BYTES:]
        return not piece

    def _ran(self, end: End) -> Ran:
        return Ran(end, self._process.poll() or 0, bytes(self._output[: self._most]), bytes(self._complaints))
