"""Tools of MCP servers (Model Context Protocol), for callers on any thread.

Takes servers as they are configured, gives their tools and what calls of them gave, as JSON values. Servers run as processes of their own,
outside of the sandbox, with the rights of the user: whoever configures one trusts it. What it says is data, and has an end.
"""

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar

from dsa.errors import install_hint
from machines.coding.servers import results
from machines.coding.servers.connection import Connection
from machines.coding.servers.loop import BesideLoop, Ended
from machines.coding.servers.results import Redact
from machines.coding.servers.server import Server
from machines.coding.servers.tools import ForeignTool, check_apart, prefix, shown_names
from machines.coding.tools.errors import ToolError

__all__ = ["Foreign", "ForeignTool", "Server"]

T = TypeVar("T")


class Stopping(Protocol):
    """What stops a call: a file that can be read from once it is to end."""

    def fileno(self) -> int:
        """Give the file."""


class Foreign:
    """The tools of servers. May be used from any thread, several calls at a time; servers are started when they are first needed.

    Each server's tools are listed once and stay what they were: one that has changed since is not called. `redact` leaves secrets out of texts.
    Servers are ended by `close`, and when the interpreter ends; after `close` the next use starts them again.
    """

    def __init__(self, servers: Mapping[str, Server], redact: Redact = str) -> None:
        self._servers, self._redact = dict(servers), redact
        self._one_at_a_time = threading.Lock()
        self._known: dict[str, tuple[ForeignTool, ...]] = {}
        self._life: _Life | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tools(self) -> tuple[ForeignTool, ...]:
        """Give the tools of all servers, by server and in its order. Raises ToolError: what is wrong with any of them, in one text."""
        self._learn(self._servers)
        found = tuple(tool for name in self._servers for tool in self._known[name])
        check_apart(found)
        return found

    def call(
        self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None, stop: Stopping | None = None
    ) -> dict[str, Any]:
        """Call a tool by its name for models, and give its result (see `results.shown`).

        `timeout_s` bounds the call, not a start of the server that it needs; without it the server's own holds. A call that is late or
        stopped ends the server. Raises ToolError.
        """
        tool = self._tool(name)
        server = self._servers[tool.server]
        if server.approve == "never":
            raise ToolError("not_allowed", f"{name} is never called: its server is configured so")
        try:
            json.dumps(dict(arguments), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolError("bad_arguments", f"the arguments of {name} are no JSON: {error}") from error
        seconds = server.timeout_s if timeout_s is None else timeout_s
        file = None if stop is None else os.dup(stop.fileno())  # several calls may wait for one
        try:
            said = self._asked(lambda life: life.call(tool, arguments, seconds, file))
        finally:
            if file is not None:
                os.close(file)
        return results.shown(said, self._redact)

    def close(self) -> None:
        """End the servers and wait until they are gone; calls under way raise ToolError `closed`."""
        with self._one_at_a_time:
            life, self._life = self._life, None
        if life is not None:
            life.end()

    def _tool(self, name: str) -> ForeignTool:
        """Give a tool by its name for models, asking only the servers that may have it. Raises ToolError `unknown_tool`."""
        self._learn([server for server in self._servers if name.startswith(prefix(server))])
        known = {tool.name: tool for tools in self._known.values() for tool in tools}
        if name not in known:
            raise ToolError("unknown_tool", f"there is no tool '{name[:100]}'; there are: {shown_names(known)}")
        return known[name]

    def _learn(self, servers: Iterable[str]) -> None:
        """Have servers list their tools that have not. Raises ToolError."""
        new = [name for name in servers if name not in self._known]
        if not new:
            return
        said = dict(zip(new, self._asked(lambda life: life.listed(new)), strict=True))
        self._known |= {name: each for name, each in said.items() if not isinstance(each, BaseException)}
        faults = [each for each in said.values() if isinstance(each, ToolError)]
        for each in said.values():
            if isinstance(each, BaseException) and not isinstance(each, ToolError):
                raise each
        if faults:
            raise ToolError(faults[0].code, self._redact("; ".join(map(str, faults))))

    def _asked(self, ask: "Callable[[_Life], T]") -> T:
        with self._one_at_a_time:
            if self._life is None:
                self._life = _Life(self._servers)
                weakref.finalize(self, self._life.end)  # also when the interpreter ends
            life = self._life
        try:
            return ask(life)
        except Ended as error:
            raise ToolError("closed", "the tools of MCP servers were closed") from error
        except ToolError as error:
            raise ToolError(error.code, self._redact(str(error))) from error


class _Life:
    """Servers from their start to their end. Raises ToolError `not_installed`."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        try:
            import mcp  # noqa: F401  # before anything is started
        except ModuleNotFoundError as error:
            hint = f"it is asked through the package mcp, which is not installed; run: {install_hint('mcp')}"
            raise ToolError("not_installed", f"no MCP server can be used: {hint}") from error
        self._connections = {name: Connection(name, server) for name, server in servers.items()}
        self._loop = BesideLoop()

    def listed(self, names: Iterable[str]) -> list[tuple[ForeignTool, ...] | BaseException]:
        """Give the tools of each server, or why there are none."""

        async def listed() -> list[tuple[ForeignTool, ...] | BaseException]:
            return await asyncio.gather(*(self._connections[name].tools() for name in names), return_exceptions=True)

        return self._loop.done(listed())

    def call(
        self, tool: ForeignTool, arguments: Mapping[str, Any], timeout_s: float, stop: int | None
    ) -> Mapping[str, Any]:
        """Give what a call gave, as MCP writes it."""
        return self._loop.done(self._connections[tool.server].call(tool, arguments, timeout_s, stop))

    def end(self) -> None:
        """End the servers; when that is interrupted, kill them."""

        async def closed() -> None:
            await asyncio.gather(*(each.close() for each in self._connections.values()))

        try:
            if not self._loop.is_here:
                with suppress(Ended):  # somebody else was faster
                    self._loop.done(closed())
        finally:
            for each in self._connections.values():
                each.kill()
            self._loop.end()
