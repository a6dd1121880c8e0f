"""An MCP server by its name: started when it is asked, ended where a call is late or stopped, and started again after that.

Takes calls, gives what they gave as MCP writes it. All on one event loop.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from machines.coding.servers.server import Server
from machines.coding.servers.session import Live, cancelled, told
from machines.coding.servers.tools import ForeignTool
from machines.coding.tools.errors import ToolError


class Connection:
    """A server by its name: started when it is asked, and again when it has ended since."""

    def __init__(self, name: str, server: Server) -> None:
        self._name, self._server = name, server
        self._one_at_a_time, self._is_closed = asyncio.Lock(), False
        self._live: Live | None = None

    async def tools(self) -> tuple[ForeignTool, ...]:
        """Give the tools as it lists them. Raises ToolError."""
        return (await self._opened()).tools

    async def call(
        self, tool: ForeignTool, arguments: Mapping[str, Any], timeout_s: float, stop: int | None
    ) -> Mapping[str, Any]:
        """Give what a call gave, as written; the server is ended where it is late, or `stop` (a file) can be read from. Raises ToolError."""
        stopped = ToolError(
            "stopped", f"{tool.name} was stopped, and its server ended. It may have done what was asked"
        )
        watching = None if stop is None else asyncio.create_task(self._when_readable(stop, stopped))
        try:
            live = await self._opened()
            if watching is not None and watching.done():
                live.stop(stopped)
            return await self._called(live, tool, arguments, timeout_s, stopped)
        finally:
            if watching is not None:
                await cancelled(watching)

    async def _called(
        self, live: Live, tool: ForeignTool, arguments: Mapping[str, Any], timeout_s: float, stopped: ToolError
    ) -> Mapping[str, Any]:
        from mcp import MCPError

        late = ToolError(
            "tool_timeout",
            f"{tool.name} gave nothing within {timeout_s:g} s, and its server was ended{live.garbled()}. It may have done what was asked. "
            "Ask for less, or go on without it",
        )
        timer = asyncio.get_running_loop().call_later(timeout_s, live.stop, late)
        answering = asyncio.create_task(live.asked(tool, arguments))
        answering.add_done_callback(lambda task: task.cancelled() or task.exception())  # where nobody waits any more
        try:
            return _answer(tool, await asyncio.shield(answering))
        except MCPError as error:
            if not live.is_over:
                raise ToolError("tool_error", f"{live.named} refuses the call: {told(error)}") from error
            raise live.why if live.why in {late, stopped} else await self._lost(live) from error
        except ValueError as error:
            raise ToolError(
                "server_garbled", f"{live.named} answers in a form that is not MCP's: {told(error)}"
            ) from error
        except asyncio.CancelledError:
            live.stop(stopped)  # at once: the next call finds it so
            raise
        finally:
            timer.cancel()

    async def _when_readable(self, file: int, why: ToolError) -> None:
        import anyio

        await anyio.wait_readable(file)
        if self._live is not None:
            self._live.stop(why)

    async def _lost(self, live: Live) -> ToolError:
        """Say why a server has ended in the middle of a call that is not to blame."""
        await asyncio.shield(live.task)
        assert live.why is not None
        code, why = live.why.code, str(live.why)
        if code in {"tool_timeout", "stopped"}:
            code, why = "server_ended", f"{live.named} was ended because of another call"
        return ToolError(
            code, f"{why}; the call may have done what was asked. The server is started again at the next call"
        )

    async def close(self) -> None:
        """End the server, for good."""
        self._is_closed = True
        if self._live is not None:
            self._live.stop(ToolError("closed", f"the MCP server '{self._name}' was ended: the tools are closed"))
            await self._live.task

    def kill(self) -> None:
        """Kill the server, from any thread."""
        if self._live is not None:
            self._live.process.kill()

    async def _opened(self) -> Live:
        async with self._one_at_a_time:
            if self._live is not None and not self._live.is_over:
                return self._live
            if self._live is not None:
                await asyncio.shield(self._live.task)
            if self._is_closed:
                raise ToolError("closed", f"the MCP server '{self._name}' was ended: the tools are closed")
            live = self._live = Live(self._name, self._server)
            try:
                await asyncio.shield(live.started)
            except asyncio.CancelledError:
                live.stop()
                raise
            if live.is_over:
                await asyncio.shield(live.task)
                assert live.why is not None
                raise live.why
            return live


def _answer(tool: ForeignTool, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a result that is one: a question back is refused."""
    if said.get("resultType") == "input_required":
        asks = f"{tool.name} asks something back, which is refused: nobody answers a server"
        raise ToolError("tool_asks", f"{asks}. Give all it needs in its arguments, or go on without it")
    return said
