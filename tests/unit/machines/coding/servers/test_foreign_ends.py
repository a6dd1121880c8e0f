"""Ends of MCP servers: no process, thread or open file is left, whatever ends them."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import require_package
from foreign_servers import SHORT_S, TESTS, Foreign, real, refused, rogue, text, wait_until_gone

from dsa.edge.sandbox.command_sandbox import stop
from machines.coding.tools.mcp_results import McpServer
from machines.coding.tools.mcp_session import Live, ServerProcess

require_package("mcp", "the package mcp asks MCP servers")

UNANSWERED = {"answers": False}


def test_call_can_be_stopped_from_another_thread(opened, mark):
    foreign = opened(test=real())
    with stop() as stopping, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__slow", {"seconds": 600, "mark": str(mark)}, stop=stopping)
        pid = int(mark.read_text())
        stopping.set()
        assert refused(calling.result)[0] == "stopped"
        assert refused(foreign.call, "test__lookup", {"key": "mcp"}, stop=stopping)[0] == "stopped"
    wait_until_gone(pid)
    assert text(foreign, "test__lookup", key="mcp")


def test_closing_ends_a_call_and_the_next_use_starts_the_server_again(opened, mark):
    foreign = opened(test=rogue("obedient"))
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__good", UNANSWERED | {"mark": str(mark)})
        pid = int(mark.read_text())
        assert text(foreign, "test__good")  # calls do not wait for each other
        foreign.close()
        wait_until_gone(pid)
        assert refused(calling.result)[0] == "closed"
    foreign.close()
    assert text(foreign, "test__good")


def test_call_ended_by_another_call_says_so(opened, mark):
    foreign = opened(test=rogue("obedient"))
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__good", UNANSWERED | {"mark": str(mark)})
        mark.read_text()
        assert refused(foreign.call, "test__good", UNANSWERED, timeout_s=SHORT_S)[0] == "tool_timeout"
        code, said = refused(calling.result)
    assert (code, "'test' was ended because of another call" in said) == ("server_ended", True)


def test_many_threads_can_call_at_once(shared):
    with ThreadPoolExecutor(8) as pool:
        texts = [" ".join("x" * number) for number in range(1, 41)]
        said = pool.map(lambda each: shared.call("test__word_count", {"text": each})["text"], texts)
        assert list(said) == [str(number) for number in range(1, 41)]


def test_child_processes_of_a_server_are_killed(opened):
    foreign = opened(odd=rogue("children"))
    server, child = map(int, text(foreign, "odd__good").split())
    foreign.close()
    wait_until_gone(server)
    wait_until_gone(child)


def test_server_that_will_not_end_is_killed(opened):
    foreign = opened(odd=rogue("stubborn"))
    pid = int(text(foreign, "odd__good"))
    foreign.close()
    wait_until_gone(pid)


def test_servers_are_closed_when_their_object_is_deleted():
    foreign = Foreign({"odd": rogue("fine")})
    pid = int(text(foreign, "odd__good"))
    del foreign
    gc.collect()
    wait_until_gone(pid)


def test_no_thread_or_open_file_is_left():
    def used():
        with Foreign({"odd": rogue("fine"), "bad": rogue("ends")}) as foreign:
            refused(foreign.tools)
            with stop() as stopping:
                foreign.call("odd__good", {}, stop=stopping)

    used()
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    used()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def read_mark(mark, process):
    """Return what the server of a process writes to the pipe; fail if the process ends without writing."""
    reading = os.open(mark, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while not (told := _read_now(reading)):
            assert process.poll() is None, f"the process has ended with {process.returncode}"
            time.sleep(0.01)
        return told
    finally:
        os.close(reading)


def _read_now(file):
    """Return what can be read: nothing if the other end is closed, or if the previous server still holds it open."""
    try:
        return os.read(file, 100)
    except BlockingIOError:
        return b""


PROGRAM = """
import sys
from machines.coding.tools.mcp_tools import Foreign, McpServer
foreign = Foreign({"test": McpServer([sys.executable, sys.argv[1], "obedient"])})
foreign.tools()
foreign.call("test__good", {"answers": sys.argv[3] != "waits", "mark": sys.argv[2]})
raise SystemExit(9)
"""


@pytest.mark.parametrize(("how", "code"), [("waits", -signal.SIGINT), ("ends", 9)])
def test_no_server_is_left_after_ctrl_c_or_an_exit(mark, how, code):
    """The program does not close its servers itself."""
    command = [sys.executable, "-c", PROGRAM, str(TESTS / "mcp_rogue.py"), str(mark), how]
    with subprocess.Popen(command, cwd=TESTS.parent, stderr=subprocess.DEVNULL) as process:
        pid = int(read_mark(mark, process))
        if how == "waits":
            process.send_signal(signal.SIGINT)
        assert process.wait() == code
    wait_until_gone(pid)


INTERRUPTED = """
import sys
from machines.coding.tools.mcp_tools import Foreign, McpServer
with Foreign({"test": McpServer([sys.executable, sys.argv[1], "obedient"])}) as foreign:
    try:
        foreign.call("test__good", {"answers": False, "mark": sys.argv[2]})
    except KeyboardInterrupt:
        foreign.call("test__good", {"mark": sys.argv[2]})
"""


def test_interrupted_call_does_not_continue(mark):
    command = [sys.executable, "-c", INTERRUPTED, str(TESTS / "mcp_rogue.py"), str(mark)]
    with subprocess.Popen(command, cwd=TESTS.parent) as process:
        first = int(read_mark(mark, process))
        process.send_signal(signal.SIGINT)
        assert int(read_mark(mark, process)) != first  # another server
        wait_until_gone(first)
        assert process.wait() == 0


WITHOUT = """
import sys
sys.modules["mcp"] = None
from machines.coding.tools.workspace_boundary import ToolError
from machines.coding.tools.mcp_tools import Foreign, McpServer
try:
    Foreign({"test": McpServer(["x"])}).tools()
except ToolError as error:
    print(error.code, error)
"""


def test_missing_package_is_reported_with_how_to_install_it():
    ran = subprocess.run([sys.executable, "-c", WITHOUT], cwd=TESTS.parent, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("not_installed no MCP server can be used")
    assert "pip install '.[mcp]'" in ran.stdout


def test_broken_package_is_reported_before_a_server_is_started(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.shared.message", None)
    code, said = refused(opened(odd=McpServer(["program-that-nobody-has"])).tools)
    assert code == "not_installed"
    assert "the package mcp cannot be imported (import of mcp.shared.message halted" in said


def test_server_whose_session_cannot_begin_is_not_waited_for(monkeypatch):
    """The missing module is found only when the session begins, after the process has started."""
    monkeypatch.setitem(sys.modules, "mcp.shared.message", None)

    async def lived():
        live = Live("odd", rogue("fine"))
        async with asyncio.timeout(30):
            await live.ready
        return live, (await asyncio.gather(live.task, return_exceptions=True))[0]

    live, fault = asyncio.run(lived())
    assert isinstance(fault, ImportError)
    assert (live.is_over, live.process.has_ended, live.why.code) == (True, True, "server_not_started")


PATIENT = """
import pathlib, signal, sys, time

def tidy(*_):
    pathlib.Path("tidied").touch()
    sys.exit()

signal.signal(signal.SIGTERM, tidy)
pathlib.Path("ready").touch()
time.sleep(60)
"""


def test_server_that_outlives_its_input_is_asked_to_end_before_it_is_killed(tmp_path):
    process = ServerProcess("patient", McpServer(command=(sys.executable, "-c", PATIENT), cwd=str(tmp_path)))
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    asyncio.run(process.end())
    process.close()
    assert (process.has_ended, (tmp_path / "tidied").exists()) == (True, True)
