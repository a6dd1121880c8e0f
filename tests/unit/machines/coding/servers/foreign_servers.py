"""MCP servers for tests, each a separate process: one made with the package mcp, and many that misbehave (`mcp_server.py`, `mcp_rogue.py`)."""

import os
import select
import sys
from pathlib import Path

import forked
import pytest

from dsa.errors import ToolError
from machines.coding.tools import mcp_tools
from machines.coding.tools.mcp_results import McpServer
from machines.tool_use.records import as_data

TESTS = Path(__file__).parents[4]
LONG_S, SHORT_S = 60.0, 1.0


class Foreign(mcp_tools.Foreign):
    """The tools of servers; their results are JSON, as models get it."""

    def call(self, *arguments, **options):
        return as_data(super().call(*arguments, **options))


def real(env=None, **settings):
    variables = forked.variables(forked.MCP) | (env or {})
    return McpServer([*forked.SCRIPT, str(TESTS / "mcp_server.py")], env=variables, **settings)


def rogue(how, **settings):
    return McpServer([sys.executable, str(TESTS / "mcp_rogue.py"), how], **settings)


def refused(call, *arguments, **options):
    with pytest.raises(ToolError) as error:
        call(*arguments, **options)
    return error.value.code, str(error.value)


def text(foreign, name, **arguments):
    return foreign.call(name, arguments)["text"]


def wait_until_gone(pid):
    """Wait at most 30 s for the end of a process; fail if it still runs."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(file):
        assert select.select([file], [], [], 30)[0], f"process {pid} lives on"
