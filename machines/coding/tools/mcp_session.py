"""A session with an MCP server, from its start to its end: handshake, list of tools, calls.

`Live` starts the process of a `McpServer`, and returns its tools and the answers to calls. The process has a small environment, and is ended together with all
processes that it has started. Everything runs on one event loop. The server's own requests (for models, people, folders) are refused.
"""

import asyncio
import contextlib
import functools
import json
import logging
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import attrs

from dsa.errors import DsaError, ToolError, install_hint
from machines.coding.tools.mcp_results import (
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


class ServerProcess:
    """A server's process, in a process group of its own. Raises ToolError `server_not_started`."""

    def __init__(self, name: str, server: McpServer) -> None:
        ours = {each: os.environ[each] for each in _FROM_OURS if each in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user has configured it
                server.command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                cwd=server.cwd or None, env={**ours, **server.env}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            why = f"cannot be started: {error.strerror}: {error.filename}"
            raise ToolError(f"the MCP server '{name}' {why}", code="server_not_started") from error
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
        """Yield the lines of its output until it is closed. Raises DsaError, with the limit, for one that is too long."""
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
                raise DsaError(f"of more than {LONGEST_BYTES >> 20} MiB")

    async def drain(self) -> None:
        """Read and drop the rest of its output, so that a full pipe does not block it."""
        while await _read(self._stdout.fileno()):
            pass

    async def listen_to_complaints(self) -> None:
        """Record the end of its stderr."""
        while piece := await _read(self._stderr.fileno()):
            self._complaints = (self._complaints + piece)[-_COMPLAINT_BYTES:]

    async def write(self, data: bytes) -> None:
        """Write to its input. Raises BrokenPipeError when the server no longer reads it."""
        import anyio

        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._stdin.fileno(), left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.fileno())

    async def end(self) -> None:
        """End it and the processes in its group: close its input, then send SIGTERM, then kill them."""
        self._stdin.close()
        if not await self._is_over_soon():
            self._signal(signal.SIGTERM)
            await self._is_over_soon()
        self.kill()
        await self._is_over_soon()
        self._is_ended = True

    def kill(self) -> None:
        """Kill it with its group, from any thread. Nothing happens once it has ended, because its id may belong to another process."""
        if not self._is_ended:
            self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Close its pipes, after the last read and write. A process that was not ended is killed."""
        if not self._is_ended:
            self.kill()
            self._process.wait()
            self._is_ended = True
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def ending(self) -> str:
        """Return its exit code or signal, and the last line of its stderr."""
        code = self._process.poll()
        how = "" if code is None else f"exit code {code}" if code >= 0 else f"ended by {_signal_name(-code)}"
        lines = [line for line in self._complaints.decode(errors="replace").splitlines() if line.strip()]
        last_words = f"the last line of its stderr: {one_line(lines[-1], 300)}" if lines else ""
        return "; ".join(filter(None, (how, last_words)))

    async def _is_over_soon(self) -> bool:
        import anyio

        with anyio.move_on_after(_GRACE_S):
            while self._process.poll() is None:  # noqa: ASYNC110  # no system call waits for its end everywhere
                await anyio.sleep(_LOOK_AGAIN_S)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        # No process is left; or, on some systems, only dead ones.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


async def _read(file: int) -> bytes:
    """Wait for bytes and return them; no bytes at the end."""
    import anyio

    while True:
        try:
            return os.read(file, _PIECE_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(file)


for _name in ("mcp", "client"):  # errors report a server's faults; without a handler Python would print them too
    logging.getLogger(_name).addHandler(logging.NullHandler())

_MOST_PAGES, _MOST_LISTED, _MOST_GARBLED = 100, 10_000, 100
_LONGEST_MESSAGE = 1_000
_TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"
#: A text in JSON, and all bytes that are not brackets.
_STRING, _NO_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"'), bytes(set(range(256)) - set(b"[]{}"))
_US = ("dual-state-agents", "0.1")


@attrs.define(eq=False)
class PendingCall:
    """A call, and whether it was sent to its server: before that it cannot have an effect."""

    tool: ForeignTool
    arguments: JsonObject
    is_sent: bool = False

    @property
    def outcome_text(self) -> str:
        """A sentence about the effects of a call without a result."""
        return "The call may have taken effect" if self.is_sent else "The call was not made"


class Live:
    """A running server, from its start to its end. When `task` is done, nothing is left of it, and `why` is the reason. `restart_reason` is why the server before it ended."""

    def __init__(self, name: str, server: McpServer) -> None:
        self._name, self._server = name, server
        self.process = ServerProcess(name, server)
        self.why: ToolError | None = None
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

    def stop(self, why: ToolError | None = None) -> None:
        """End it; the first reason counts. Calls that wait for an answer fail at once."""
        if not self.is_over:
            self.why = why
            self._over.set()

    async def call_tool(self, pending_call: PendingCall) -> ServerAnswer:
        """Return the answer to a call. Raises ToolError `tool_gone` and `tool_changed`, MCPError, and ValueError when the answer is not MCP."""
        from mcp import types

        tool = pending_call.tool
        if self._is_stale:
            await self._list()
        current = {each.tool: each for each in self.tools}.get(tool.tool)
        if current is None:
            raise ToolError(f"{self.label} no longer has '{one_line(tool.tool)}'; {self._has()}", code="tool_gone")
        if current != tool:
            message = f"{self.label} has changed '{one_line(tool.tool)}' since its tools were listed; continue without this tool"
            raise ToolError(message, code="tool_changed")
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
        """The server at the start of a sentence."""
        return f"the MCP server '{self._name}'"

    def garbled_text(self) -> str:
        """Return a clause about output that is not a message, or an empty text."""
        line = one_line(self._garbled_line.decode(errors="replace"))
        return f"; its output has lines that are not MCP messages, such as '{line}'" if line else ""

    # -- its life -------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        """Run from the start to the end; in any case no process is left, and no caller waits any longer."""
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
        """Open the session, and keep it open until it is over."""
        from mcp import ClientSession, types

        async with ClientSession(
            receive_stream,
            send_stream,
            client_info=types.Implementation(name=_US[0], version=_US[1]),
            message_handler=self._on_message,
        ) as session:
            introduction = asyncio.create_task(self._introduce(session))
            await self._over.wait()
        await introduction  # it ends, because its session is closed

    async def _introduce(self, session: "ClientSession") -> None:
        from mcp import MCPError

        seconds = self._server.start_s
        late = asyncio.get_running_loop().call_later(seconds, self._is_late, seconds)
        try:
            await _shake_hands(session)
            self._session = session
            await self._list()
        except ToolError as error:
            self.stop(error)
        except (MCPError, ValueError, RuntimeError) as error:
            if not self.is_over:
                self.stop(
                    _not_started(
                        f"{self.label} does not answer as an MCP server: {error_text(error)}{self.garbled_text()}"
                    )
                )
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

    def _end_error(self) -> ToolError:
        """Return the reason when it has ended by itself."""
        ending = self.process.ending()
        message = f"{self.label} has ended{f' ({ending})' if ending else ''}{self.garbled_text()}"
        return ToolError(message, code="server_ended") if self.ready.done() else _not_started(message)

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
                odd = f"{self.label} lists its tools in a form that is not valid MCP: {error_text(error)}"
                raise ToolError(odd, code="bad_tools") from error
            listed_tools += map(read_tool, page["tools"])
            cursor = page.get("nextCursor")
            if not cursor or len(listed_tools) > _MOST_LISTED:
                break
        if cursor:
            raise ToolError(f"{self.label} has an endless list of tools", code="bad_tools")
        self.tools = tools_of(self._name, self._server, listed_tools)

    def _has(self) -> str:
        return f"it has: {shown_names([each.tool for each in self.tools])}"

    async def _on_message(self, message: "IncomingMessage") -> None:
        """Record that its tools have changed; other notifications do not matter."""
        from mcp import types

        self._is_stale = self._is_stale or isinstance(message, types.ToolListChangedNotification)

    # -- lines ----------------------------------------------------------------------------------------------------------

    async def _read(self, into: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        """Pass its messages on to the session; at their end the session is over too."""
        import anyio

        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session was over before
            try:
                await self._pass_on(into)
            except DsaError as large:
                self.stop(
                    ToolError(f"{self.label} was ended: it wrote a message {large}; ask it for less", code="too_large")
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
                        ToolError(f"{self.label} does not speak MCP{self.garbled_text()}", code="server_garbled")
                    )

    async def _write(self, messages: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        """Pass our messages on to it, until it no longer reads."""
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
                except BrokenPipeError:  # it has not read the whole line
                    if pending_call is not None:
                        pending_call.is_sent = False
                    return self.stop()


async def _shake_hands(session: "ClientSession") -> None:
    """Agree on a version. Most servers know the handshake, and some end when anything comes before it; newer ones do not have it."""
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
    """Return an adapter that takes a result as it is; the session has checked its form."""
    from pydantic import TypeAdapter

    return TypeAdapter(dict)


def package_fault() -> str:
    """Return why the package mcp cannot be used, or an empty text."""
    try:
        import mcp.shared.message  # noqa: F401  # with the dependencies of mcp
    except ModuleNotFoundError as error:
        if error.name == "mcp":
            return f"calls go through the package mcp, which is not installed; run: {install_hint('mcp')}"
        return _import_fault(error)
    except ImportError as error:
        return _import_fault(error)
    return ""


def _import_fault(error: ImportError) -> str:
    return f"the package mcp cannot be imported ({error}); reinstall it: {install_hint('mcp')}"


def _message(line: bytes) -> "types.JSONRPCMessage | None":
    """Return the message in a line, or None. Raises DsaError for one that is nested too deep."""
    from mcp import types

    _require_levels(line)
    try:
        return types.jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
    except ValueError:
        return None


def _require_levels(line: bytes) -> None:
    """Raise DsaError for a message that is nested too deep, before anything recursive reads it: there is no room for finalizers at the end of the stack."""
    if line.count(b"[") + line.count(b"{") <= MOST_LEVELS:
        return
    level = 0
    for bracket in _STRING.sub(b"", line).translate(None, _NO_BRACKETS):
        level += 1 if bracket in b"[{" else -1
        if level > MOST_LEVELS:
            raise DsaError(_TOO_DEEP)


def error_text(error: Exception) -> str:
    """Return an error as a line."""
    from mcp import MCPError
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        return one_line(str(error.message), _LONGEST_MESSAGE)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", _LONGEST_MESSAGE)
    return one_line(str(error), _LONGEST_MESSAGE)


def _not_started(what: str) -> ToolError:
    return ToolError(what, code="server_not_started")


async def cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; an exception that it raised before is raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
