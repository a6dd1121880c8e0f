"""A goal with a small real MCP server, started over stdio by the run itself: its tools pass the same guards as the built-in ones."""

import asyncio
import io
import json
from pathlib import Path

import forked
import pytest
from chat_server import Said
from coders import acting, agent_at, call, complete, forgetful, tasks, worked
from rich.console import Console

from dsa.errors import ToolError
from machines.coding.coding_display import CodingDisplay

SERVER = str(Path(__file__).parent.parent / "mcp_server.py")
PLAN = tasks(("Say how long the page is", "words__lookup the page, words__word_count it, write_file answer.txt"))


def looking_up(view):
    """Look a page up, count its words with the server, and write the number down."""
    if not view.gave("words__lookup"):
        return call("words__lookup", key="dsa")
    counted = view.gave("words__word_count")
    if not counted:
        return call("words__word_count", text=view.gave("words__lookup")[-1]["text"])
    if "answer.txt" not in view.state["files_exist"]:
        return call("write_file", path="answer.txt", content=f"{counted[-1]['text']} words\n")
    return complete()


def servers(env=None, **more):
    return {"words": {"command": [*forked.SCRIPT, SERVER], "env": forked.variables(forked.MCP) | (env or {}), **more}}


def processes(marker):
    """Return the ids of the processes that were started with a marker."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(marker).encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


def test_tools_of_a_server_are_offered_and_called(tmp_path):
    mcp = servers(env={"MARKER": str(tmp_path)})
    with agent_at(tmp_path, "How long is the page on dsa?", acting(PLAN, looking_up), mcp=mcp) as (agent, played):
        work = worked(agent)
        assert agent.state == "goal_complete"
        assert len(processes(tmp_path)) == 1
    assert (tmp_path / "workspace" / "answer.txt").read_text() == "5 words\n"
    offered = {tool["function"]["name"] for tool in played.requests[1]["tools"]}
    assert {"words__lookup", "words__word_count", "write_file"} <= offered
    assert work.tools["words__lookup done"] == 1
    assert processes(tmp_path) == []


def test_server_may_be_named_git(tmp_path):
    player = acting(
        tasks(("Look", "git__lookup")), lambda view: complete() if view.done else call("git__lookup", key="dsa")
    )
    with agent_at(tmp_path, "Look", player, mcp={"git": servers()["words"]}) as (agent, _):
        (done, *_) = worked(agent).calls
        assert (done.status, done.result) == ("done", {"text": "a framework of state machines"})


def test_permission_for_server_tools_is_requested_and_remembered_per_tool(tmp_path):
    with agent_at(tmp_path, "How long?", acting(PLAN, looking_up), mcp=servers(), mode="ask") as (agent, _):
        worked(agent)
        assert (agent.state, agent.asks.tool) == ("approving", "words__lookup")
        asyncio.run(agent.permit(always=True))
        assert agent.asks.tool == "words__word_count"
        asyncio.run(agent.deny("count them yourself"))
        denied = [each.result for each in agent.work.calls if each.tool == "words__word_count"]
        assert denied[0]["error"]["message"].startswith("count them yourself")


def test_arguments_of_server_tools_may_have_any_name(tmp_path):
    """For these tools, `timeout_sec` makes a call a different one, and `path` may be anything."""
    more = ("timeout_sec", 1), ("timeout_sec", 2), ("timeout_sec", 3), ("path", "a"), ("path", "./a"), ("path", ["a"]), ("path", 7), ("files", 1)  # fmt: skip
    asked = Said(calls=tuple(("words__lookup", {"key": "dsa", name: value}) for name, value in more))

    told = Console(file=io.StringIO(), width=500)
    player = acting(tasks(("Look", "words__lookup")), lambda view: complete() if view.done else asked)
    with agent_at(tmp_path, "Look", player, mcp=servers(), on_moment=CodingDisplay(told).on_moment) as (agent, _):
        work = worked(agent)
    for name, value in more:
        assert f"words__lookup  {json.dumps({'key': 'dsa', name: value}, sort_keys=True)}\n" in told.file.getvalue()
    assert [each.status for each in work.calls] == ["done"] * len(more) + ["subtask_completed"]
    assert len({each.about.key for each in work.calls[:-1]}) == len(more)


#: The modes that ask for the least and for the most permissions; each case starts a server.
MODES = ["full-auto", "read-only", *(pytest.param(mode, marks=pytest.mark.full) for mode in ("auto-edit", "ask"))]


@pytest.mark.parametrize("mode", MODES)
def test_approve_ask_setting_requests_permission_in_every_mode(tmp_path, mode):
    mcp = servers(approve="ask")
    with agent_at(tmp_path, "How long?", acting(PLAN, looking_up), mcp=mcp, mode=mode) as (agent, _):
        work = worked(agent)
        assert (agent.state, agent.asks.tool) == ("approving", "words__lookup")
        assert work.call.approval.why == 'the user has to be asked first (approve = "ask")'
        asyncio.run(agent.permit(always=True))
        assert agent.asks.tool == "words__word_count"
        assert agent.work.tools["words__lookup done"] == 1


def test_approve_ask_setting_refuses_calls_in_a_part(tmp_path):
    plan = tasks(("Both", "words__lookup dsa", "words__lookup dsa too"))
    plan[0]["independent"] = True

    def act(view):
        return complete(success=False) if view.done else call("words__lookup", key=view.subtask)

    with agent_at(tmp_path, "Go", forgetful(plan, act), mcp=servers(approve="ask"), parallel=2) as (agent, _):
        work = worked(agent)
        assert agent.state == "escalated"
        told = [each.result["error"]["message"] for each in work.calls if each.tool == "words__lookup"]
    assert len(told) == 2
    assert told[0].startswith(
        'the call needs permission (approve = "ask"), but parts that run at the same time cannot ask for it'
    )


def test_errors_of_server_tools_are_reported_to_the_model(tmp_path):
    def act(view):
        gone = view.gave("words__fail") + view.gave("words__sing")
        return complete(success=False, reason=json.dumps(gone)) if len(view.done) == 2 else call(("words__fail", "words__sing")[len(view.done)])  # fmt: skip

    with agent_at(tmp_path, "Fail", acting(PLAN, act), mcp=servers()) as (agent, _):
        work = worked(agent)
        assert agent.state == "escalated"
    first, second = (each.result["error"] for each in work.calls[:2])
    assert (first["code"], second["code"]) == ("tool_error", "unknown_tool")
    assert "fail" in first["message"]


def test_repeated_call_to_a_server_is_blocked_like_any_other(tmp_path):
    with agent_at(tmp_path, "Loop", acting(PLAN, lambda _: call("words__lookup", key="dsa")), mcp=servers()) as (agent, _):  # fmt: skip
        work = worked(agent)
        assert (agent.state, work.tools["words__lookup done"]) == ("blocked", 2)


def test_server_that_does_not_start_is_reported_before_anything_is_stored(tmp_path):
    with pytest.raises(ToolError, match="words"), agent_at(tmp_path, "x", acting(PLAN, looking_up), mcp={"words": {"command": ["no-such-program"]}}):  # fmt: skip
        pass
    assert not (tmp_path / "runs").exists()
