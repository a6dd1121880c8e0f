"""Calls with arguments that are valid JSON but useless to the system: the model gets an error, and the work goes on."""

import pytest
from coders import acting, agent_at, call, complete, tasks, worked

from dsa.errors import DsaError
from machines.coding.tools.file_arguments import Search

PLAN = tasks(("Do it", "run_cmd what there is"))
LONG = "a" * 300


def outcome_of(tmp_path, tool, arguments, spoiled=lambda _agent: None):
    """Have a model make one call; return its status, its result, and the state in which the work ended."""

    def act(view):
        if view.gave("list_dir"):
            return complete()
        return call("list_dir") if view.done else call(tool, **arguments)

    with agent_at(tmp_path, "Do it", acting(PLAN, act)) as (agent, _):
        spoiled(agent)
        work = worked(agent)
        asked = work.calls[0]
        return asked.status, asked.result, agent.state


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "code", "says"),
    [
        ("read_file", {"path": "a", "max_bytes": 10**400}, "failed", "no_such_file", "there is no 'a'"),
        ("run_cmd", {"cmd": ["python", "x.py"], "cwd": "a\0b"}, "command_not_allowed", "command_not_allowed", "the command has an impossible path or name: embedded null byte"),
        ("run_cmd", {"cmd": ["python", "x.py"], "cwd": LONG}, "failed", "bad_cwd", "is not a folder of the workspace"),
        ("run_cmd", {"cmd": ["python", "-m", LONG]}, "command_not_allowed", "command_not_allowed", "the command has an impossible path or name: File name too long"),
    ],
)  # fmt: skip
def test_model_sees_what_was_wrong_with_its_call(tmp_path, tool, arguments, status, code, says):
    found, result, state = outcome_of(tmp_path, tool, arguments)
    assert (found, result["error"]["code"], state) == (status, code, "goal_complete"), result
    assert says in result["error"]["message"]


def raising(error):
    def raises(*_arguments, **_named):
        raise error

    return raises


@pytest.mark.parametrize("error", [OSError(5, "no luck"), ValueError("no luck"), OverflowError("no luck"), TypeError("no luck")])  # fmt: skip
def test_error_while_reading_a_call_is_reported_as_a_fault_of_the_call(tmp_path, error):
    def spoiled(agent):
        look = agent.resources.toolbox.look_at
        agent.resources.toolbox.look_at = lambda each: raising(error)() if each.tool.name == "search" else look(each)

    status, result, state = outcome_of(tmp_path, "search", {"pattern": "x"}, spoiled)
    assert (status, state) == ("unknown_tool", "goal_complete")
    assert "the call of search cannot be read: " in result["error"]["message"]
    assert "no luck" in result["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "state"),
    [
        (OSError(5, "no luck"), "failed", "goal_complete"),
        (DsaError("gone", code="WorkspaceGoneError"), "interrupted", "escalated"),
    ],
)
def test_system_error_fails_the_call_but_a_missing_workspace_interrupts_it(tmp_path, error, status, state):
    def act(view):
        return complete() if view.done else call("search", pattern="x")

    with agent_at(tmp_path, "Do it", acting(PLAN, act)) as (agent, _):
        workspace = agent.resources.toolbox.workspace
        apply = workspace.apply
        workspace.apply = lambda asked, *more: raising(error)() if isinstance(asked, Search) else apply(asked, *more)
        work = worked(agent)
        assert (work.calls[0].status, agent.state) == (status, state)
