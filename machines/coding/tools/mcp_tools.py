"""Tools of MCP servers (Model Context Protocol), for callers on any thread.

`Foreign` takes the configured servers, and returns their tools and the results of calls. Servers run as processes outside of the sandbox, with the rights of the
user, so only trusted ones should be configured. Their output is data of limited size.
"""

import asyncio
import concurrent.futures
import json
import os
import select
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Generic, Protocol, Self, TypeVar

import attrs

from dsa.errors import ToolError
from machines.coding.tools.mcp_results import (
    ForeignTool,
    McpServer,
    Redact,
    ServerAnswer,
    ServerResult,
    check_apart,
    prefix,
    result_of,
    shown_names,
)
from machines.coding.tools.mcp_session import Live, PendingCall, cancel, error_text, package_fault
from machines.tool_use.records import JsonObject

T = TypeVar("T")


class _LoopJob(Generic[T]):
    """A job on the loop's thread, which can be given up before and after its start."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._is_given_up:
            self.forget()
            raise asyncio.CancelledError
        return await self._work

    def forget(self) -> None:
        """Close a job that never starts."""
        self._work.close()

    def give_up(self) -> None:
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()


class BesideLoop:
    """An event loop in a thread of its own. It runs until `end`, and never keeps the interpreter from exiting."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._is_ended, self._end = False, asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a job on the loop, and return its result or raise its exception. Ctrl-C and other exceptions in the caller cancel it.

        Raises CancelledError of concurrent.futures when the loop ended before the work was done.
        """
        job = _LoopJob(work)
        try:
            return self._submit(job).result()
        except concurrent.futures.CancelledError:
            raise
        except BaseException:  # Ctrl-C may come at any moment, even before there is a future to cancel
            with suppress(RuntimeError):  # the loop has ended, and so has the job
                self._loop.call_soon_threadsafe(job.give_up)
            raise

    def _submit(self, job: _LoopJob[T]) -> "concurrent.futures.Future[T]":
        with self._one_at_a_time:
            if self._is_ended:
                job.forget()
                raise concurrent.futures.CancelledError
            return asyncio.run_coroutine_threadsafe(job.run(), self._loop)

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Cancel the running jobs, and wait for the thread."""
        with self._one_at_a_time:
            if not self._is_ended:
                self._is_ended = True
                self._loop.call_soon_threadsafe(self._end.set)
        if not self.is_here:
            self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._until_end())

    async def _until_end(self) -> None:
        await self._end.wait()


# -- servers ----------------------------------------------------------------------------------------------------------


class Connection:
    """A server by its name: it starts at the first use, and again when it has ended since."""

    def __init__(self, name: str, server: McpServer) -> None:
        self._name, self._server = name, server
        self._one_at_a_time, self._is_closed = asyncio.Lock(), False
        self._live: Live | None = None

    async def tools(self) -> tuple[ForeignTool, ...]:
        """Return the tools that it lists. Raises ToolError."""
        return (await self._open()).tools

    async def call(self, pending_call: PendingCall, timeout_s: float, stop: int | None) -> ServerAnswer:
        """Return the answer to a call. The server is ended when it is late, or when `stop` (a file) can be read from. Raises ToolError."""
        tool = pending_call.tool
        stop_error = ToolError(f"{tool.name} was stopped, and its server was ended", code="stopped")
        if stop is not None and select.select([stop], [], [], 0)[0]:
            raise ToolError(f"{tool.name} was stopped. {pending_call.outcome_text}", code="stopped")
        watch_task = None if stop is None else asyncio.create_task(self._when_readable(stop, stop_error))
        try:
            live = await self._open()
            if watch_task is not None and watch_task.done():
                live.stop(stop_error)
            answer = attrs.evolve(
                await self._call_server(live, pending_call, timeout_s, stop_error), restart_reason=live.restart_reason
            )
            live.restart_reason = ""
        except ToolError as error:
            if error.code not in _ADVICE:
                raise
            raise ToolError(f"{error}. {pending_call.outcome_text}{_ADVICE[error.code]}", code=error.code) from error
        else:
            return answer
        finally:
            if watch_task is not None:
                await cancel(watch_task)

    async def _call_server(
        self, live: Live, pending_call: PendingCall, timeout_s: float, stop_error: ToolError
    ) -> ServerAnswer:
        from mcp import MCPError

        nothing = f"{pending_call.tool.name} returned nothing within {timeout_s:g} s"
        late = ToolError(f"{nothing}, and its server was ended{live.garbled_text()}", code="tool_timeout")
        timer = asyncio.get_running_loop().call_later(timeout_s, live.stop, late)
        answer_task = asyncio.create_task(live.call_tool(pending_call))
        # Perhaps no caller waits for it any longer.
        answer_task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return _require_answer(pending_call.tool, await asyncio.shield(answer_task))
        except MCPError as error:
            if not live.is_over and not pending_call.is_sent:
                why = f"{live.label} no longer lists its tools: {error_text(error)}. {pending_call.outcome_text}"
                raise ToolError(why, code="server_not_asked") from error
            if not live.is_over:
                raise ToolError(f"{live.label} refuses the call: {error_text(error)}", code="tool_error") from error
            raise live.why if live.why in {late, stop_error} else await self._loss_error(live, pending_call) from error
        except ValueError as error:
            raise ToolError(
                f"{live.label} answers in a form that is not valid MCP: {error_text(error)}", code="server_garbled"
            ) from error
        except asyncio.CancelledError:
            live.stop(stop_error)  # at once, so that the next call starts it again
            raise
        finally:
            timer.cancel()

    async def _when_readable(self, file: int, why: ToolError) -> None:
        import anyio

        await anyio.wait_readable(file)
        if self._live is not None:
            self._live.stop(why)

    async def _loss_error(self, live: Live, pending_call: PendingCall) -> ToolError:
        """Return why a server has ended during a call that did not cause it."""
        await asyncio.shield(live.task)
        assert live.why is not None
        code, why = live.why.code, str(live.why)
        if code in {"tool_timeout", "stopped"}:
            code, why = "server_ended", f"{live.label} was ended because of another call"
        return ToolError(f"{why}. {pending_call.outcome_text}. The server is started again at the next call", code=code)

    async def close(self) -> None:
        """End the server, for good."""
        self._is_closed = True
        if self._live is not None:
            self._live.stop(ToolError(f"the MCP server '{self._name}' was ended: the tools are closed", code="closed"))
            await self._live.task

    def kill(self) -> None:
        """Kill the server, from any thread."""
        if self._live is not None:
            self._live.process.kill()

    async def _open(self) -> Live:
        async with self._one_at_a_time:
            if self._live is not None and self._live.process.has_ended:
                self._live.stop()  # perhaps it was not noticed yet
            if self._live is not None and not self._live.is_over:
                return self._live
            before = self._live
            if before is not None:
                await asyncio.shield(before.task)
            if self._is_closed:
                raise ToolError(f"the MCP server '{self._name}' was ended: the tools are closed", code="closed")
            live = self._live = Live(self._name, self._server)
            try:
                await asyncio.shield(live.ready)
            except asyncio.CancelledError:
                live.stop()
                raise
            if live.is_over:
                await asyncio.shield(live.task)
                assert live.why is not None
                raise live.why
            if before is not None:
                live.restart_reason = (
                    f"{before.why}; it was started again before this call, and does not remember earlier calls"
                )
            return live


#: Advice in the error of a call that was ended, by code.
_ADVICE = {"stopped": "", "tool_timeout": ". Ask for less, or continue without it"}


def _require_answer(tool: ForeignTool, answer: ServerAnswer) -> ServerAnswer:
    """Return an answer; a question of the server is refused."""
    if answer.asks:
        asks = f"{tool.name} asks a question, but servers get no answers here"
        raise ToolError(
            f"{asks}. Put all that the tool needs into its arguments, or continue without the tool", code="tool_asks"
        )
    return answer


__all__ = ["Foreign", "ForeignTool", "McpServer"]


class StopSignal(Protocol):
    """A signal that stops a call: a file that becomes readable."""

    def fileno(self) -> int:
        """Return the file."""


class Foreign:
    """The tools of servers. Any thread may use it, also for several calls at once; servers start when they are first needed.

    Each server's tools are listed once: a tool that has changed since is not called. `redact` removes secrets from texts. Servers are ended by `close`, and when the
    interpreter exits; after `close` the next use starts them again.
    """

    def __init__(self, servers: Mapping[str, McpServer], redact: Redact = str) -> None:
        self._servers, self._redact = dict(servers), redact
        self._one_at_a_time = threading.Lock()
        self._tools_by_server: dict[str, tuple[ForeignTool, ...]] = {}
        self._life: _Life | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tools(self) -> tuple[ForeignTool, ...]:
        """Return the tools of all servers, by server and in its order. Raises one ToolError with the faults of all servers."""
        self._learn(self._servers)
        tools = tuple(tool for name in self._servers for tool in self._tools_by_server[name])
        check_apart(tools)
        return tools

    def call(
        self, name: str, arguments: JsonObject, timeout_s: float | None = None, stop: StopSignal | None = None
    ) -> ServerResult:
        """Call a tool by its name for models, and return its result.

        `timeout_s` limits the call, but not a start of the server; the default is the server's own limit. A call that is late or stopped ends the server. Raises
        ToolError.
        """
        tool = self._tool(name)
        server = self._servers[tool.server]
        if server.approve == "never":
            raise ToolError(f"{name} is not called: the settings of its server forbid it", code="not_allowed")
        try:
            json.dumps(dict(arguments), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolError(f"the arguments of {name} are not valid JSON: {error}", code="bad_arguments") from error
        seconds = server.timeout_s if timeout_s is None else timeout_s
        file = None if stop is None else os.dup(stop.fileno())  # several calls may share one
        try:
            answer = self._ask(lambda life: life.call(PendingCall(tool, arguments), seconds, file))
        finally:
            if file is not None:
                os.close(file)
        return result_of(answer, self._redact)

    def close(self) -> None:
        """End the servers and wait until they are gone; running calls raise ToolError `closed`."""
        with self._one_at_a_time:
            life, self._life = self._life, None
        if life is not None:
            life.end()

    def _tool(self, name: str) -> ForeignTool:
        """Return a tool by its name for models; only servers with its prefix are started. Raises ToolError `unknown_tool`."""
        self._learn([server for server in self._servers if name.startswith(prefix(server))])
        tools_by_name = {tool.name: tool for tools in self._tools_by_server.values() for tool in tools}
        if name not in tools_by_name:
            raise ToolError(
                f"there is no tool '{name[:100]}'; the tools are: {shown_names(tools_by_name)}", code="unknown_tool"
            )
        return tools_by_name[name]

    def _learn(self, servers: Iterable[str]) -> None:
        """List the tools of servers that are not listed yet. Raises ToolError."""
        new = [name for name in servers if name not in self._tools_by_server]
        if not new:
            return
        results = dict(zip(new, self._ask(lambda life: life.tools_of(new)), strict=True))
        self._tools_by_server |= {name: each for name, each in results.items() if not isinstance(each, BaseException)}
        faults = [each for each in results.values() if isinstance(each, ToolError)]
        for each in results.values():
            if isinstance(each, BaseException) and not isinstance(each, ToolError):
                raise each
        if faults:
            raise ToolError(self._redact("; ".join(map(str, faults))), code=faults[0].code)

    def _ask(self, ask: "Callable[[_Life], T]") -> T:
        with self._one_at_a_time:
            if self._life is None:
                self._life = _Life(self._servers)
                weakref.finalize(self, self._life.end)  # also when the interpreter exits
            life = self._life
        try:
            return ask(life)
        except concurrent.futures.CancelledError as error:
            raise ToolError("the tools of MCP servers were closed", code="closed") from error
        except ToolError as error:
            raise ToolError(self._redact(str(error)), code=error.code) from error


class _Life:
    """Servers from their start to their end. Raises ToolError `not_installed`."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        if fault := package_fault():  # before anything is started
            raise ToolError(f"no MCP server can be used: {fault}", code="not_installed")
        self._connections = {name: Connection(name, server) for name, server in servers.items()}
        self._loop = BesideLoop()

    def tools_of(self, names: Iterable[str]) -> list[tuple[ForeignTool, ...] | BaseException]:
        """Return the tools of each server, or its exception."""

        async def gather_tools() -> list[tuple[ForeignTool, ...] | BaseException]:
            return await asyncio.gather(*(self._connections[name].tools() for name in names), return_exceptions=True)

        return self._loop.run(gather_tools())

    def call(self, pending_call: PendingCall, timeout_s: float, stop: int | None) -> ServerAnswer:
        """Return the answer to a call."""
        return self._loop.run(self._connections[pending_call.tool.server].call(pending_call, timeout_s, stop))

    def end(self) -> None:
        """End the servers; when that is interrupted, kill them."""

        async def close_all() -> None:
            await asyncio.gather(*(each.close() for each in self._connections.values()))

        try:
            if not self._loop.is_here:
                with suppress(concurrent.futures.CancelledError):  # another caller was faster
                    self._loop.run(close_all())
        finally:
            for each in self._connections.values():
                each.kill()
            self._loop.end()
