"""The goals of seed 003, with real tools on a real folder: the model derives every turn from its request, and says LOST when something is missing."""

import json
import re
import subprocess
import sys

import attrs
import pytest
from chat_server import Said
from coders import (
    HELLO,
    HELLO_PLAN,
    LOST,
    PACKAGE,
    PACKAGE_PLAN,
    ROCK,
    ROCK_PLAN,
    acting,
    agent_at,
    call,
    complete,
    hello,
    package,
    rock,
    worked,
)

from dsa.runs.runs import open_runs
from machines.coding import bindings
from machines.coding.task_plan import template
from machines.coding.undo import diff, undo_run

GOALS = {
    "hello": (HELLO, HELLO_PLAN, hello, (2, 3), ["hello_world.py"]),
    "rock": (ROCK, ROCK_PLAN, rock, (4, 8), ["rps_game.py"]),
    "package": (PACKAGE, PACKAGE_PLAN, package, (8, 12), ["mathx/__init__.py", "tests/test_mathx.py"]),
}


def files_of(workspace):
    return sorted(
        str(path.relative_to(workspace))
        for path in workspace.rglob("*")
        if path.is_file() and not path.name.startswith("agent_ledger") and ".agent_context" not in path.parts
    )


@pytest.mark.parametrize("name", GOALS)
def test_goal_is_achieved_within_its_rounds(tmp_path, name):
    goal, plan, act, (least, most), files = GOALS[name]
    with agent_at(tmp_path, goal, acting(plan, act)) as (agent, played):
        work = worked(agent)
        assert (agent.state, work.reasons["goal_complete"]) == ("goal_complete", 1)
        assert least <= agent.values["rounds"] <= most
        assert LOST not in json.dumps(played.requests)
        assert work.files_written == files == files_of(tmp_path / "workspace")
        assert {each.status for chapter in work.chapters for each in chapter.subtasks} == {"completed"}
    if name == "hello":
        ran = subprocess.run(
            [sys.executable, tmp_path / "workspace" / files[0]], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "Hello, World!\n"


def test_record_described_by_the_seed_is_written_beside_the_work(tmp_path):
    with agent_at(tmp_path, ROCK, acting(ROCK_PLAN, rock)) as (agent, _):
        worked(agent)
    workspace = tmp_path / "workspace"
    state = json.loads((workspace / ".agent_context" / "state.json").read_text())
    assert [task["subtasks"][0]["status"] for task in state["tasks"]] == ["completed", "completed"]
    assert state["probe"]["commands_run"] == ["python rps_game.py -> rc=1", "python rps_game.py -> rc=0"]
    history = [json.loads(line) for line in (workspace / ".agent_context" / "history.jsonl").read_text().splitlines()]
    assert [each["tool"] for each in history].count("run_cmd") == 2
    closing = [each["arguments"] for each in history if each["tool"] == "mark_subtask_complete"]
    assert [each["success"] for each in closing] == [True, True]
    assert closing[0]["reason"] == "the game is written"
    assert json.loads((workspace / ".agent_context" / "loops.json").read_text()) == []
    subtasks = [task["subtasks"][0]["description"] for task in state["tasks"]]
    assert (workspace / "agent_ledger.log").read_text().splitlines() == [
        "WRITE rps_game.py", f"SUBTASK {subtasks[0]} -> completed: the game is written", "CMD python rps_game.py -> rc=1",
        "CMD python rps_game.py -> rc=0", f"SUBTASK {subtasks[1]} -> completed: {closing[1]['reason']}",
    ]  # fmt: skip


@pytest.mark.parametrize("blind_to", ["results", "subtask", "probe"])
def test_model_reports_what_it_was_not_shown(tmp_path, blind_to, monkeypatch):
    """This tests the player itself: without results, subtask line or probe it does not cooperate, and the goal is not achieved."""
    real = bindings.messages_for

    def blinded(work, **more):
        system, where, *rest = real(work, **more)
        if blind_to == "results":
            return [system, where]
        name = {"subtask": "ACTIVE SUBTASK", "probe": "STATE"}[blind_to]
        lines = [line for line in where.content.splitlines() if not line.startswith(name)]
        return [system, attrs.evolve(where, content="\n".join(lines)), *rest]

    monkeypatch.setattr(bindings, "messages_for", blinded)
    with agent_at(tmp_path, HELLO, acting(HELLO_PLAN, hello)) as (agent, _):
        work = worked(agent)
        assert agent.state == "answered"
        assert work.answer.startswith(LOST)


def test_templates_give_tasks_without_a_model(tmp_path):
    def act(view):
        return complete() if view.done else call("list_dir")

    with agent_at(tmp_path, "say hello", acting("no plan is asked for", act), plan=template("script", "say hello")) as (
        agent,
        played,
    ):
        worked(agent)
        assert agent.state == "goal_complete"
        assert all(body["tools"] for body in played.requests)


def test_undo_restores_everything_except_what_others_changed(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "kept.txt").write_text("mine\n")
    with agent_at(tmp_path, PACKAGE, acting(PACKAGE_PLAN, package)) as (agent, _):
        worked(agent)
    with open_runs(tmp_path / "runs") as runs:
        shown = diff(runs, agent.run_id)
    assert "+    return a + b" in shown
    assert "kept.txt" not in shown
    (workspace / "tests" / "test_mathx.py").write_text("# somebody else was here\n")
    with open_runs(tmp_path / "runs") as runs:
        done = undo_run(runs, agent.run_id)
    assert [each.path for undo in done for each in undo.conflicts] == ["tests/test_mathx.py"]
    assert files_of(workspace) == ["kept.txt", "tests/test_mathx.py"]


def test_completion_without_a_result_is_questioned_first(tmp_path):
    """This holds however often one answer claims completion; the calls after the questioned one get a result too."""
    done = ("mark_subtask_complete", {"success": True})
    at_once = Said(calls=(done, done, ("write_file", {"path": "a.txt", "content": "x"}), done))
    with agent_at(tmp_path, HELLO, acting(HELLO_PLAN, lambda view: complete() if view.done else at_once)) as (agent, played):  # fmt: skip
        work = worked(agent)
    assert [each.status for each in work.calls] == ["no_evidence", *["too_many_calls"] * 3, "subtask_completed"]
    told = [json.loads(each["content"])["error"] for each in played.requests[-1]["messages"] if each["role"] == "tool"]
    assert [each["code"] for each in told] == ["no_evidence", *["too_many_calls"] * 3]
    assert "repeat that it is done" in told[0]["message"]
    assert (agent.state, agent.values["rounds"]) == ("goal_complete", 2)
    assert not (tmp_path / "workspace" / "a.txt").exists()


def test_strict_provider_is_never_sent_a_name_it_refuses(tmp_path):
    """Recognized tools are sent back under their own names; other names are reduced to the allowed characters."""
    names = ("multi_tool_use.parallel", "", "lis t dir!", "x" * 200_000, "a\nb", "functions.list_dir", "list_dir")
    player = acting(
        HELLO_PLAN, lambda view: complete() if view.done else Said(calls=tuple((each, {}) for each in names))
    )

    def strict(body, number):
        sent = [call["function"]["name"] for each in body["messages"] for call in each.get("tool_calls") or ()]
        if all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in sent):
            return player(body, number)
        return Said("Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern", status=400)

    with agent_at(tmp_path, HELLO, strict) as (agent, played):
        work = worked(agent)
        assert agent.state == "goal_complete"
    sent = [
        call["function"]["name"] for each in played.requests[-1]["messages"] for call in each.get("tool_calls") or ()
    ]
    named = ["multi_tool_use_parallel", "unnamed", "list_dir", "x" * 64, "ab", "list_dir", "list_dir"]
    assert [name for name in sent if name != "mark_subtask_complete"] == named
    assert max(len(json.dumps(each.result)) for each in work.calls) < 2_000
    log = (tmp_path / "workspace" / "agent_ledger.log").read_text().splitlines()
    tried = ("multi_tool_use.parallel", "", f"{'x' * 64}..", "ab")
    assert log[:4] == [" ".join(f"TRIED {name} (unknown_tool)".split()) for name in tried]
