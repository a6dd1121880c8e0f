"""Failures of MCP servers: they do not start, do not answer, die in a call, or change their tools."""

import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import require_package
from foreign_servers import LONG_S, SHORT_S, real, refused, rogue, text, wait_until_gone

from dsa.edge.sandbox.command_sandbox import stop
from machines.coding.tools.mcp_results import McpServer

require_package("mcp", "the package mcp asks MCP servers")


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("ends", "server_not_started", r"has ended \(exit code 3; the last line of its stderr: no key is set\)"),
        ("killed", "server_not_started", r"has ended \(ended by SIGKILL\)"),
        (
            "deaf",
            "server_not_started",
            r"is not ready within 2 s \(the last line of its stderr: waiting for a licence\)\. Run its command by itself .* or raise `start_s`",
        ),
        ("garbage", "server_garbled", "does not speak MCP; .* such as 'Hello, I am no server'"),
        ("binary", "server_garbled", "does not speak MCP"),
        ("one_line", "too_large", "wrote a message of more than 16 MiB"),
        ("odd_answer", "server_not_started", "does not answer as an MCP server: capabilities: Field required"),
        ("old", "server_not_started", "does not answer as an MCP server: Unsupported protocol version .* 1999-01-01"),
    ],
)
def test_server_that_does_not_start_is_reported_by_name(opened, how, code, says):
    seconds = 2 * SHORT_S if how == "deaf" else LONG_S
    found, said = refused(opened(bad=rogue(how, start_s=seconds)).tools)
    assert found == code
    assert said.startswith("the MCP server 'bad' ")
    assert re.search(says, said), said


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (McpServer(["/nowhere/server"]), "cannot be started: No such file or directory: /nowhere/server"),
        (McpServer(["no-such-program-at-all"]), "No such file or directory: no-such-program-at-all"),
        (McpServer([sys.executable], cwd="/nowhere"), "No such file or directory: /nowhere"),
        (McpServer(["/etc/passwd"]), "Permission denied: /etc/passwd"),
    ],
)
def test_program_that_cannot_be_started_is_reported(opened, server, says):
    found, said = refused(opened(bad=server).tools)
    assert (found, says in said) == ("server_not_started", True), said


def test_bad_servers_are_reported_and_the_others_can_be_called(opened):
    foreign = opened(bad=rogue("ends"), worse=rogue("twins"), good=rogue("fine"))
    said = refused(foreign.tools)[1]
    assert "'bad' has ended" in said
    assert "'worse' lists two tools" in said
    assert "'good'" not in said
    assert text(foreign, "good__good")


@pytest.mark.parametrize("how", ["banner", "chatters", "noisy", "fine"])
def test_server_that_prints_more_than_it_should_is_understood(opened, how):
    assert text(opened(odd=rogue(how)), "odd__good")


def test_server_that_dies_in_a_call_is_reported_and_started_again(opened):
    foreign = opened(test=rogue("obedient"))
    code, said = refused(foreign.call, "test__good", {"code": 7})
    assert code == "server_ended"
    assert "'test' has ended (exit code 7; the last line of its stderr: Traceback: out of luck)" in said
    assert "The call may have taken effect. The server is started again at the next call" in said
    assert text(foreign, "test__good")


def test_late_call_ends_its_server_which_is_started_again(opened, mark):
    foreign = opened(test=rogue("obedient"))
    foreign.tools()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(mark.read_text)
        code, said = refused(foreign.call, "test__good", {"answers": False, "mark": str(mark)}, timeout_s=SHORT_S)
        pid = int(reading.result())
    assert (code, said.startswith("test__good returned nothing within 1 s, and its server was ended")) == (
        "tool_timeout",
        True,
    )
    assert text(foreign, "test__good")
    wait_until_gone(pid)


def test_server_that_does_not_read_times_out(opened):
    foreign = opened(odd=rogue("stops_reading"))
    foreign.tools()
    code, _ = refused(foreign.call, "odd__good", {"text": "x" * 1_000_000}, timeout_s=SHORT_S)
    assert code == "tool_timeout"
    assert refused(foreign.call, "odd__good", {}, timeout_s=SHORT_S)[0] == "tool_timeout"


def test_endless_message_ends_the_server(opened):
    code, said = refused(opened(odd=rogue("one_message")).call, "odd__good", {})
    assert (code, "wrote a message of more than 16 MiB" in said) == ("too_large", True)


def test_removed_or_changed_tool_is_not_called(opened):
    foreign = opened(test=real())
    before = foreign.tools()
    foreign.call("test__change", {"name": "fail"})
    assert refused(foreign.call, "test__fail", {})[0] == "tool_gone"
    foreign.call("test__change", {"name": "word_count"})
    code, said = refused(foreign.call, "test__word_count", {"text": "a"})
    assert (code, "has changed 'word_count' since its tools were listed" in said) == ("tool_changed", True)
    assert foreign.tools() == before
    assert text(foreign, "test__lookup", key="mcp")


def test_server_that_died_between_calls_is_restarted_and_the_result_says_so(opened):
    foreign = opened(odd=rogue("fine"))
    first = int(text(foreign, "odd__good"))
    os.kill(first, signal.SIGKILL)
    wait_until_gone(first)
    said = foreign.call("odd__good", {})
    assert int(said["text"]) != first
    assert said["restarted"] == (
        "the MCP server 'odd' has ended (ended by SIGKILL); it was started again before this call, and does not remember earlier calls"
    )
    assert "restarted" not in foreign.call("odd__good", {})


def test_call_that_was_never_sent_is_reported_as_not_made(opened):
    foreign = opened(odd=rogue("unlists"))
    assert text(foreign, "odd__good") == "once"
    code, said = refused(foreign.call, "odd__good", {})
    assert code == "server_not_asked"
    assert said.startswith("the MCP server 'odd' no longer lists its tools: I have")
    assert said.endswith("The call was not made")


def test_call_stopped_before_it_is_sent_is_reported_as_not_made(opened):
    foreign = opened(test=rogue("obedient"))
    foreign.tools()
    with stop() as stopping:
        stopping.set()
        code, said = refused(foreign.call, "test__good", {}, stop=stopping)
    assert code == "stopped"
    assert said == "test__good was stopped. The call was not made"
    assert "restarted" not in foreign.call("test__good", {})
