"""Configuration of an MCP server."""

import tomllib

import pytest
from each_row import each_row

from dsa.errors import ParameterError
from machines.coding.tools.mcp_results import McpServer

TOML = """
[mcp.files]
command = ["uvx", "server", "--all"]
env = { TOKEN = "x" }
cwd = "/tmp"
timeout_s = 5
tools = ["read"]
approve = "always"
start_s = 90
[mcp.plain]
command = ["server"]
"""


def test_settings_are_read():
    said = tomllib.loads(TOML)["mcp"]
    assert McpServer.from_mapping("files", said["files"]) == McpServer(
        ("uvx", "server", "--all"), {"TOKEN": "x"}, "/tmp", 5, ("read",), "always", 90
    )
    assert McpServer.from_mapping("plain", said["plain"]) == McpServer(("server",))


@each_row(
    ("said", "says"),
    [
        ("command", "must be a table with"),
        ({}, "`command` must be a list of texts"),
        ({"command": "uvx server"}, "`command` must be a list of texts"),
        ({"command": []}, "`command` must be"),
        ({"command": [""]}, "`command` must be"),
        ({"command": ["a\0b"]}, "`command` must be"),
        (
            {"comand": ["x"]},
            "has no setting `comand`; the settings are: command, env, cwd, timeout_s, start_s, tools, approve",
        ),
        ({"command": ["x"], "env": {"A": 1}}, "`env` must be a table of texts"),
        ({"command": ["x"], "env": ["A=1"]}, "`env` must be a table of texts"),
        ({"command": ["x"], "env": {"A=B": "1"}}, "`env` has a name that no variable can have"),
        ({"command": ["x"], "cwd": 1}, "`cwd` must be a text, the path of a folder"),
        ({"command": ["x"], "timeout_s": 0}, "`timeout_s` must be a number of seconds, above 0 and up to 3600"),
        ({"command": ["x"], "timeout_s": True}, "`timeout_s` must be a number"),
        ({"command": ["x"], "timeout_s": float("nan")}, "`timeout_s` must be a number"),
        ({"command": ["x"], "start_s": 3601}, "`start_s` must be a number of seconds, above 0 and up to 3600"),
        ({"command": ["x"], "tools": "read"}, "`tools` must be a list of names"),
        ({"command": ["x"], "approve": "yes"}, "`approve` must be one of: ask, always, never"),
    ],
)
def test_invalid_settings_are_refused(said, says):
    with pytest.raises(ParameterError) as error:
        McpServer.from_mapping("x", said)
    assert str(error.value).startswith("[mcp.x]")
    assert says in str(error.value)
