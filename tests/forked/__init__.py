"""The program `dsa` for tests that run it very often: each call is a process of its own, forked from one that has imported everything.

`DSA` is the beginning of a command line, in place of `[".venv/bin/dsa"]`; `SCRIPT` in place of `["python"]` before a path. What it starts behaves as the program does, but for the time it takes to
begin. For tests of beginnings, of signals to whole groups and of killed processes, start the program itself. The workers of a session share the processes that fork.
"""

import atexit
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
#: Names the socket of the process that forks; without it the client becomes the program itself.
SOCKET = "DSA_TESTS_FORKED_FROM"
DSA = [sys.executable, "-I", "-S", str(_HERE / "client.py")]
#: Before the path of a program in Python, in place of `dsa`: it is run as `python PATH ..` would.
SCRIPT = [*DSA, "--script"]
#: What the processes that fork have imported: the program; LiteLLM as well, which takes seconds; what runs on Temporal need as well; only the package
#: mcp, for servers of tools. See `variables`.
MODULES = (PROGRAM, LITELLM, TEMPORAL, MCP) = ("", "litellm", "dsa.temporal.temporal_runs", "mcp.server.mcpserver")
#: What Python reads as it begins that may be another one for each call.
WITHOUT_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def command_in(folder: Path) -> None:
    """Write a command `dsa` into a folder, for shells that have it on their path."""
    (folder / "dsa").write_text(f'#!/bin/sh\nexec {shlex.join(DSA)} "$@"\n', encoding="utf-8")
    (folder / "dsa").chmod(0o755)


def variables(module: str) -> dict[str, str]:
    """Return variables that the environment of a call needs to be forked from a process with a module; without them it is forked from one with the program."""
    start()
    read = "" if module == MCP else os.environ[f"{SOCKET}_PYTHON"]  # servers of tools are passed nothing for Python
    return {SOCKET: _socket(module), f"{SOCKET}_PYTHON": read}


def _socket(module: str) -> str:
    return os.environ[SOCKET] + (f"-{module}" if module else "")


def start() -> None:
    """Start the processes that fork, unless they are there: once for this process and those that it starts. They end when this one does."""
    if SOCKET in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="dsa-forked-")
    os.environ[SOCKET] = str(Path(folder.name, "socket"))
    read = (name for name in os.environ if name.startswith("PYTHON") and name != WITHOUT_BYTECODE)
    os.environ[f"{SOCKET}_PYTHON"] = "\n".join(sorted(f"{name}={os.environ[name]}" for name in read))
    servers = [_started(module) for module in MODULES]

    def stop() -> None:
        for server in servers:
            server.stdin.close()
            server.wait()
        folder.cleanup()

    atexit.register(stop)


def _started(module: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, str(_HERE / "server.py"), _socket(module), module]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server
