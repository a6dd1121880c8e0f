"""The process of an MCP server: started with little of an environment, read and written line by line, ended with all that it has started.

Takes a `Server`, gives lines of its output. It knows no protocol. Everything here runs on one event loop; POSIX only. anyio comes with
the package `mcp`.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator

from machines.coding.servers.server import Server
from machines.coding.servers.tools import one_line
from machines.coding.tools.errors import ToolError

#: The longest line that a server may write.
LONGEST_BYTES = 16 << 20
_FROM_OURS = ("PATH", "HOME", "LANG")
_PIECE_BYTES, _COMPLAINT_BYTES = 1 << 16, 4_096
_GRACE_S, _LOOK_AGAIN_S = 1.0, 0.01


class TooLong(Exception):  # noqa: N818  # it says what is the case
    """Raised when a line does not end."""


class ServerProcess:
    """A server's process, in a process group of its own. Raises ToolError `server_not_started`."""

    def __init__(self, name: str, server: Server) -> None:
        ours = {each: os.environ[each] for each in _FROM_OURS if each in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603  # what the user has configured
                server.command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                cwd=server.cwd or None, env={**ours, **server.env}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            why = f"cannot be started: {error.strerror}: {error.filename}"
            raise ToolError("server_not_started", f"the MCP server '{name}' {why}") from error
        self._complaints, self._is_ended = b"", False
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None  # noqa: PT018
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Give the lines of its output until it is closed. Raises TooLong."""
        pieces: list[bytes] = []
        size = 0
        while piece := await _read(self._stdout.fileno()):
            *ended, begun = piece.split(b"\n")
            for line in ended:
                yield b"".join([*pieces, line])
                pieces, size = [], 0
            pieces.append(begun)
            size += len(begun)
            if size > LONGEST_BYTES:
                raise TooLong

    async def drain(self) -> None:
        """Read the rest of its output for nothing, so that it is not stopped by a full pipe."""
        while await _read(self._stdout.fileno()):
            pass

    async def listen_to_complaints(self) -> None:
        """Keep the end of what it writes to stderr."""
        while piece := await _read(self._stderr.fileno()):
            self._complaints = (self._complaints + piece)[-_COMPLAINT_BYTES:]

    async def write(self, data: bytes) -> None:
        """Write to its input. Raises BrokenPipeError once nobody reads it."""
        import anyio

        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._stdin.fileno(), left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.fileno())

    async def end(self) -> None:
        """End it: its input is closed, then it is told, then killed; and so are the processes that it leaves in its group."""
        self._stdin.close()
        if not await self._is_over_soon():
            self._signal(signal.SIGTERM)
            await self._is_over_soon()
        self.kill()
        await self._is_over_soon()
        self._is_ended = True

    def kill(self) -> None:
        """Kill it with its group, from any thread; nothing once it has been ended, for its id may be somebody else's then."""
        if not self._is_ended:
            self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Close its pipes. Nobody may read or write any more."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def ending(self) -> str:
        """Tell how it ended, and the last line of what it has complained of."""
        code = self._process.poll()
        how = "" if code is None else f"exit code {code}" if code >= 0 else f"ended by {_name(-code)}"
        lines = [line for line in self._complaints.decode(errors="replace").splitlines() if line.strip()]
        said = f"its last words: {one_line(lines[-1], 300)}" if lines else ""
        return "; ".join(filter(None, (how, said)))

    async def _is_over_soon(self) -> bool:
        import anyio

        with anyio.move_on_after(_GRACE_S):
            while self._process.poll() is None:  # noqa: ASYNC110  # nothing tells its end on every system
                await anyio.sleep(_LOOK_AGAIN_S)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # nobody is left; or, on some systems, only dead ones
            os.killpg(self._process.pid, number)


def _name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


async def _read(file: int) -> bytes:
    """Wait for bytes and give them; none at the end."""
    import anyio

    while True:
        try:
            return os.read(file, _PIECE_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(file)
