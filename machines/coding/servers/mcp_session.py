"""A talk with an MCP server, from its start to its end: it is introduced, lists its tools, answers calls.

Takes a `McpServer`, gives its tools and what a call gave. Its process has little of an environment, and is ended with all that it has started.
All on one event loop. What a server asks of us (models, people, folders) is refused; nothing is offered to it.
"""

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import attrs

from dsa.errors import install_hint
from machines.coding.servers.mcp_results import (
    ForeignTool,
    ListedTool,
    McpServer,
    ServerAnswer,
    one_line,
    read_answer,
    read_tool,
    shown_names,
    tools_of,
)
from machines.coding.tools.workspace_paths import WorkspaceToolError
from machines.tool_use.records import JsonObject

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import ClientSession, types
    from mcp.client.session import IncomingMessage
    from mcp.shared.message import SessionMessage
    from pydantic import TypeAdapter

#: The longest line that a server may write, and how deep its JSON may be nested.
LONGEST_BYTES, MOST_LEVELS = 16 << 20, 200
_FROM_OURS = ("PATH", "HOME", "LANG")
_PIECE_BYTES, _COMPLAINT_BYTES = 1 << 16, 4_096
_GRACE_S, _LOOK_AGAIN_S = 1.0, 0.01


class TooLarge(Exception):  # noqa: N818  # it says what is the case
    """Raised for a line that does not end, or whose JSON is nested too deep; the text says how much it may be."""


class ServerProcess:
    """A server's process, in a process group of its own. Raises ToolError `server_not_started`."""

    def __init__(self, name: str, server: McpServer) -> None:
        ours = {each: os.environ[each] for each in _FROM_OURS if each in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603  # what the user has configured
                server.command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                cwd=server.cwd or None, env={**ours, **server.env}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            why = f"cannot be started: {error.strerror}: {error.filename}"
            raise WorkspaceToolError("server_not_started", f"the MCP server '{name}' {why}") from error
        self._complaints, self._is_ended = b"", False
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None  # noqa: PT018
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield the lines of its output until it is closed. Raises TooLarge."""
        pieces: list[bytes] = []
        size = 0
        while piece := await _read(self._stdout.fileno()):
            *complete_lines, rest = piece.split(b"\n")
            for line in complete_lines:
                yield b"".join([*pieces, line])
                pieces, size = [], 0
            pieces.append(rest)
            size += len(rest)
            if size > LONGEST_BYTES:
                raise TooLarge(f"of more than {LONGEST_BYTES >> 20} MiB")

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
        """Close its pipes: nobody may read or write any more. A process that was not ended is killed."""
        if not self._is_ended:
            self.kill()
            self._process.wait()
            self._is_ended = True
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def ending(self) -> str:
        """Return how it ended, and the last line of what it has complained of."""
        code = self._process.poll()
        how = "" if code is None else f"exit code {code}" if code >= 0 else f"ended by {_signal_name(-code)}"
        lines = [line for line in self._complaints.decode(errors="replace").splitlines() if line.strip()]
        last_words = f"its last words: {one_line(lines[-1], 300)}" if lines else ""
        return "; ".join(filter(None, (how, last_words)))

    async def _is_over_soon(self) -> bool:
        import anyio

        with anyio.move_on_after(_GRACE_S):
            while self._process.poll() is None:  # noqa: ASYNC110  # nothing tells its end on every system
                await anyio.sleep(_LOOK_AGAIN_S)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        # Nobody is left; or, on some systems, only dead ones.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


async def _read(file: int) -> bytes:
    """Wait for bytes and give them; none at the end."""
    import anyio

    while True:
        try:
            return os.read(file, _PIECE_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(file)


for _name in ("mcp", "client"):  # what a server does wrong is told in errors; without a handler Python would print it
    logging.getLogger(_name).addHandler(logging.NullHandler())

_MOST_PAGES, _MOST_LISTED, _MOST_GARBLED = 100, 10_000, 100
_LONGEST_MESSAGE = 1_000
_TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"
_US = ("dual-state-agents", "0.1")


@attrs.define(eq=False)
class PendingCall:
    """A call, and whether its server has been sent it: only then may the server have done anything of it."""

    tool: ForeignTool
    arguments: JsonObject
    is_sent: bool = False

    @property
    def outcome_text(self) -> str:
        """What is known of a call that has brought nothing."""
        return "It may have done what was asked" if self.is_sent else "It was not asked: the call was not made"


class Live:
    """A server that runs, from its start to its end. `task` is done when nothing is left of it; `why` says then why it has ended, `restarted` why the one before it had."""

    def __init__(self, name: str, server: McpServer) -> None:
        self._name, self._server = name, server
        self.process = ServerProcess(name, server)
        self.why: WorkspaceToolError | None = None
        self.restart_reason = ""
        self.tools: tuple[ForeignTool, ...] = ()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session: ClientSession | None = None
        self._over, self._garbled_line, self._is_stale = asyncio.Event(), b"", False
        self._pending_calls: deque[PendingCall] = deque()
        self.task = asyncio.create_task(self._lead())

    @property
    def is_over(self) -> bool:
        """Whether it has ended or is being ended."""
        return self._over.is_set()

    def stop(self, why: WorkspaceToolError | None = None) -> None:
        """Have it ended; the first reason is kept. What waits for an answer of it fails at once."""
        if not self.is_over:
            self.why = why
            self._over.set()

    async def call_tool(self, pending_call: PendingCall) -> ServerAnswer:
        """Return what a call gave. Raises ToolError `tool_gone` and `tool_changed`, MCPError, and ValueError where it is not MCP."""
        from mcp import types

        tool = pending_call.tool
        if self._is_stale:
            await self._list()
        current = {each.tool: each for each in self.tools}.get(tool.tool)
        if current is None:
            raise WorkspaceToolError(
                "tool_gone", f"{self.label} has no '{one_line(tool.tool)}' any more; {self._has()}"
            )
        if current != tool:
            message = f"{self.label} has changed '{one_line(tool.tool)}' since its tools were listed; do without it"
            raise WorkspaceToolError("tool_changed", message)
        params = types.CallToolRequestParams(name=tool.tool, arguments=dict(pending_call.arguments))
        assert self._session is not None
        self._pending_calls.append(pending_call)
        try:
            result = await self._session.send_request(types.CallToolRequest(params=params), _as_written())
        finally:
            if pending_call in self._pending_calls:
                self._pending_calls.remove(pending_call)
        return read_answer(result)

    @property
    def label(self) -> str:
        """The server, as sentences begin."""
        return f"the MCP server '{self._name}'"

    def garbled_text(self) -> str:
        """Return what it has written that is no message; nothing where all were."""
        line = one_line(self._garbled_line.decode(errors="replace"))
        return f"; its output has lines that are no MCP messages, such as '{line}'" if line else ""

    # -- its life -------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        """Live from the start to the end; whatever happens, no process is left, and nobody waits any more."""
        try:
            await self._live()
        finally:
            self._over.set()
            self.process.close()
            self.why = self.why or self._end_error()
            if not self.ready.done():
                self.ready.set_result(None)

    async def _live(self) -> None:
        """Read, write and talk until it is over."""
        import anyio
        from mcp.shared.message import SessionMessage

        into_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        into_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        with into_session, from_server, into_server, from_session:
            async with anyio.create_task_group() as pumps:
                pumps.start_soon(self._read, into_session)
                pumps.start_soon(self.process.listen_to_complaints)
                write_task = asyncio.create_task(self._write(from_session))
                try:
                    await self._talk(from_server, into_server)
                finally:
                    with anyio.CancelScope(shield=True):
                        await cancel(write_task)
                        await self.process.end()
                    pumps.cancel_scope.cancel()

    async def _talk(
        self,
        receive_stream: "MemoryObjectReceiveStream[SessionMessage | Exception]",
        send_stream: "MemoryObjectSendStream[SessionMessage]",
    ) -> None:
        """Introduce ourselves, and have the talk go on until it is over."""
        from mcp import ClientSession, types

        async with ClientSession(
            receive_stream,
            send_stream,
            client_info=types.Implementation(name=_US[0], version=_US[1]),
            message_handler=self._on_message,
        ) as session:
            introduction = asyncio.create_task(self._introduce(session))
            await self._over.wait()
        await introduction  # it has no session any more: it ends

    async def _introduce(self, session: "ClientSession") -> None:
        from mcp import MCPError

        seconds = self._server.start_s
        late = asyncio.get_running_loop().call_later(seconds, self._is_late, seconds)
        try:
            await _shake_hands(session)
            self._session = session
            await self._list()
        except WorkspaceToolError as error:
            self.stop(error)
        except (MCPError, ValueError, RuntimeError) as error:
            if not self.is_over:
                self.stop(_not_started(f"{self.label} cannot be talked to: {error_text(error)}{self.garbled_text()}"))
        else:
            self.ready.set_result(None)
        finally:
            late.cancel()
            if not self.ready.done():
                self._over.set()

    def _is_late(self, seconds: float) -> None:
        ending = self.process.ending()
        late = f"{self.label} is not ready within {seconds:g} s{f' ({ending})' if ending else ''}{self.garbled_text()}"
        self.stop(
            _not_started(
                f"{late}. Run its command by itself to see what it waits for, or raise `start_s` in its settings"
            )
        )

    def _end_error(self) -> WorkspaceToolError:
        """Return why it is over where it has ended by itself."""
        ending = self.process.ending()
        message = f"{self.label} has ended{f' ({ending})' if ending else ''}{self.garbled_text()}"
        return WorkspaceToolError("server_ended", message) if self.ready.done() else _not_started(message)

    async def _list(self) -> None:
        """Read its tools. Raises ToolError `bad_tools`, MCPError."""
        from mcp import types

        assert self._session is not None
        self._is_stale = False
        listed_tools: list[ListedTool] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            try:
                page = await self._session.send_request(types.ListToolsRequest(params=params), _as_written())
            except ValueError as error:
                odd = f"{self.label} lists its tools in a form that is not MCP's: {error_text(error)}"
                raise WorkspaceToolError("bad_tools", odd) from error
            listed_tools += map(read_tool, page["tools"])
            cursor = page.get("nextCursor")
            if not cursor or len(listed_tools) > _MOST_LISTED:
                break
        if cursor:
            raise WorkspaceToolError("bad_tools", f"{self.label} has a list of tools that does not end")
        self.tools = tools_of(self._name, self._server, listed_tools)

    def _has(self) -> str:
        return f"it has: {shown_names([each.tool for each in self.tools])}"

    async def _on_message(self, message: "IncomingMessage") -> None:
        """Remember that its tools are others now; all else that it tells is nothing to us."""
        from mcp import types

        self._is_stale = self._is_stale or isinstance(message, types.ToolListChangedNotification)

    # -- lines ----------------------------------------------------------------------------------------------------------

    async def _read(self, into: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        """Pass on what it says; when that is over, so is the talk."""
        import anyio

        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the talk was over before
            try:
                await self._pass_on(into)
            except TooLarge as large:
                self.stop(
                    WorkspaceToolError(
                        "too_large", f"{self.label} was ended: it writes a message {large}; ask it for less"
                    )
                )
            self.stop()
        into.close()
        await self.process.drain()

    async def _pass_on(self, into: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        from mcp.shared.message import SessionMessage

        garbled_count = 0
        async with contextlib.aclosing(self.process.lines()) as lines:
            async for line in lines:
                if (message := _message(line)) is not None:
                    garbled_count = 0
                    await into.send(SessionMessage(message))
                elif line.strip():
                    garbled_count, self._garbled_line = garbled_count + 1, self._garbled_line or line[:200]
                if garbled_count > _MOST_GARBLED:
                    return self.stop(
                        WorkspaceToolError("server_garbled", f"{self.label} does not speak MCP{self.garbled_text()}")
                    )

    async def _write(self, messages: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        """Pass on what we say, until nobody reads it."""
        async with messages:
            async for each in messages:
                is_call = getattr(each.message, "method", "") == "tools/call" and self._pending_calls
                pending_call = self._pending_calls.popleft() if is_call else None
                if pending_call is not None:
                    pending_call.is_sent = True
                try:
                    await self.process.write(
                        each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                    )
                except BrokenPipeError:  # nobody has read the line to its end
                    if pending_call is not None:
                        pending_call.is_sent = False
                    return self.stop()


async def _shake_hands(session: "ClientSession") -> None:
    """Agree on a version: most servers know the handshake, and some end at anything that comes before it; newer ones have none."""
    from mcp import MCPError, types

    try:
        await session.initialize()
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED:
            raise
        try:
            await session.discover()
        except MCPError:
            raise error from None


@functools.cache
def _as_written() -> "TypeAdapter[Any]":
    """Return what takes a result as it is; the session has looked at its form before."""
    from pydantic import TypeAdapter

    return TypeAdapter(dict)


def package_fault() -> str:
    """Return why the package mcp cannot be used; nothing where it can."""
    try:
        import mcp.shared.message  # noqa: F401  # with all that mcp has itself
    except ModuleNotFoundError as error:
        if error.name == "mcp":
            return f"it is asked through the package mcp, which is not installed; run: {install_hint('mcp')}"
        return _import_fault(error)
    except ImportError as error:
        return _import_fault(error)
    return ""


def _import_fault(error: ImportError) -> str:
    return f"the package mcp cannot be imported ({error}); install it anew: {install_hint('mcp')}"


def _message(line: bytes) -> "types.JSONRPCMessage | None":
    """Read a line; None where it is no message. Raises TooLarge for one that is nested too deep."""
    from mcp import types

    try:
        data = json.loads(line)
        _require_levels(data)
        return types.jsonrpc_message_adapter.validate_python(data, by_name=False)
    except ValueError:
        return None
    except RecursionError:
        raise TooLarge(_TOO_DEEP) from None


def _require_levels(value: Any) -> None:  # noqa: ANN401  # JSON of any kind
    """Raise TooLarge for what is nested too deep."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in inner for each in values]
        if not level:
            return
    raise TooLarge(_TOO_DEEP)


def error_text(error: Exception) -> str:
    """Return what went wrong in a line."""
    from mcp import MCPError
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        return one_line(str(error.message), _LONGEST_MESSAGE)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", _LONGEST_MESSAGE)
    return one_line(str(error), _LONGEST_MESSAGE)


def _not_started(what: str) -> WorkspaceToolError:
    return WorkspaceToolError("server_not_started", what)


async def cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; what it has raised before is raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
