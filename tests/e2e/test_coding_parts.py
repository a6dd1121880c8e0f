"""Subtasks that run in parallel: parts of a run, each with all guards and limits, in one folder."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from chat_server import Said, playing
from coders import acting, agent_at, call, complete, config_of, forgetful, resumed, tasks, worked

from dsa.errors import DsaError
from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EventEntry
from machines.coding.coding_resources import settings_of
from machines.coding.undo import diff, undo_run
from machines.coding.work_session import Agent, WorkStart, unfinished_run

GOAL = "Write two files"


def independent(*subtasks, then=()):
    """Return a plan of independent subtasks, and optionally a task after them."""
    plan = tasks(("Both", *subtasks), *((("Then", *then),) if then else ()))
    plan[0]["independent"] = True
    return plan


BOTH = independent("write_file a.txt", "write_file b.txt")


def writing(view):
    """Write the file that the subtask names, and say so."""
    path = view.subtask.split()[-1]
    return complete() if view.gave("write_file") else call("write_file", path=path, content=f"{path}\n")


def parts_of(tmp_path, agent):
    """Return the entries of the parts by their names."""
    with open_runs(tmp_path / "runs") as runs:
        return {run: runs.stored_run(run).entries for run in runs.ids() if run.startswith(f"{agent.run_id}+")}


def events_of(entries, name):
    return [entry for entry in entries if isinstance(entry, EventEntry) and entry.event == name]


def test_parts_run_at_the_same_time_and_complete_the_goal(tmp_path):
    """Each part gets its first answer only when both have asked: one after the other they would wait for ever."""
    both_asked = threading.Barrier(2, timeout=20)
    player = forgetful(BOTH, writing)

    def waits(body, number):
        if body.get("tools") and not any(message["role"] == "tool" for message in body["messages"]):
            both_asked.wait()
        return player(body, number)

    with agent_at(tmp_path, GOAL, waits, parallel=2) as (agent, _):
        work = worked(agent)
        assert (agent.state, agent.values["rounds"], work.answers_apart) == ("goal_complete", 1, 4)
        assert [(s.status, s.done) for chapter in work.chapters for s in chapter.subtasks] == [("completed", 1)] * 2
        assert sorted(work.files_written) == ["a.txt", "b.txt"]
        assert work.tools["write_file done"] == 2
        assert sorted(parts_of(tmp_path, agent)) == [f"{agent.run_id}+1.1", f"{agent.run_id}+1.2"]
    lines = (tmp_path / "workspace" / "agent_ledger.log").read_text().splitlines()
    assert sorted(line for line in lines if not line.startswith("SUBTASK")) == ["WRITE a.txt", "WRITE b.txt"]
    closed = {line.partition(" -> ")[2].partition(":")[0] for line in lines if line.startswith("SUBTASK")}
    assert closed == {"completed"}
    history = (tmp_path / "workspace" / ".agent_context" / "history.jsonl").read_text().splitlines()
    assert {json.loads(line)["call"].partition(":")[0] for line in history} == {"1.1", "1.2"}


def test_subtasks_run_one_after_another_by_default(tmp_path):
    with agent_at(tmp_path, GOAL, acting(BOTH, writing)) as (agent, played):
        worked(agent)
        assert (agent.state, agent.values["rounds"], parts_of(tmp_path, agent)) == ("goal_complete", 4, {})
    assert "independent" not in played.requests[0]["messages"][0]["content"]


def test_later_subtask_sees_what_the_parts_have_done(tmp_path):
    plan = independent("write_file a.txt", "write_file b.txt", then=("read_file a.txt",))
    seen = []

    def act(view):
        if view.subtask.startswith("write_file"):
            return writing(view)
        seen.append((sorted(view.files.split(", ")), view.notes[0]))
        return complete() if view.gave("read_file") else call("read_file", path="a.txt")

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=2) as (agent, _):
        worked(agent)
        assert agent.state == "goal_complete"
    files, note = seen[0]
    assert files == ["a.txt", "b.txt"]
    assert "write_file a.txt: completed: done (files: a.txt)" in note


def test_part_knows_which_files_were_written_before(tmp_path):
    plan = tasks(("First", "write_file c.txt")) + BOTH

    def act(view):
        assert view.subtask.endswith("c.txt") or "c.txt" in view.files
        return writing(view)

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=2) as (agent, played):
        assert worked(agent).errors == []
        assert agent.state == "goal_complete"
        assert played.faults == []


@pytest.mark.parametrize("again", ["each in its own way", "the same"])
def test_loop_shared_between_parts_is_detected(tmp_path, again):
    """Three parts write one file with one content, over and over: the calls of one part count for all."""
    plan = independent(*(f"write_file {name}.txt" for name in "abc"))
    done = []

    def act(view):
        name = "shared.txt" if again == "the same" else view.subtask.split()[-1]
        return call("write_file", path=name, content="x\n")

    def watch(moment, _is_new):
        if "+" in moment.run and isinstance(moment.entry, EventEntry) and moment.entry.event == "tool_done":
            done.append(moment.run)

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=3, on_moment=watch) as (agent, _):
        work = worked(agent)
        reasons = [subtask.reason for subtask in work.chapters[0].subtasks]
    assert agent.state == "escalated"
    assert reasons == ["it repeated calls without effect"] * 3
    assert len(done) == 6 if again != "the same" else 2 <= len(done) <= 4, done  # of simultaneous calls, two may pass


def test_earlier_calls_count_in_a_part(tmp_path):
    """The file was written twice before the parts started: their write is the third."""
    plan = tasks(("First", "write_file a.txt")) + BOTH
    before = iter([call("write_file", path="a.txt", content="a.txt\n")] * 2)

    def act(view):
        if "First" in view.task:
            return next(before, complete())
        return complete(success=False) if view.blocked else writing(view)

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=2) as (agent, _):
        work = worked(agent)
        assert [subtask.status for subtask in work.chapters[1].subtasks] == ["failed", "completed"]
        assert work.reasons["call_looping"] == 1


def test_rounds_are_limited_for_all_parts_together(tmp_path):
    looks = iter(range(1000))

    def act(_view):
        return call("search", pattern=f"nothing {next(looks)}")

    parameters = {"max_rounds": 9, "max_turns": 4}
    with agent_at(tmp_path, GOAL, forgetful(BOTH, act), parameters=parameters, parallel=2) as (agent, played):
        work = worked(agent)
        assert agent.state == "escalated"
        assert {subtask.reason for subtask in work.chapters[0].subtasks} == {"its rounds were used up"}
        assert work.answers_apart == 8
        assert len(played.requests) == 9  # the plan, and eight


def test_budget_is_divided_among_parts(tmp_path):
    looks = iter(range(1000))

    def act(_view):
        return call("search", pattern=f"nothing {next(looks)}")

    with agent_at(tmp_path, GOAL, forgetful(BOTH, act), parallel=2, budget=["ask_model.calls=5"]) as (agent, played):
        work = worked(agent)
        assert agent.state == "held_up"
        assert "budget" in work.paused_for
        assert len(played.requests) == 1 + 2 * 2
        run_id = agent.run_id
    with playing(forgetful(BOTH, lambda _view: complete(success=False))) as played:
        with resumed(tmp_path / "runs", run_id, model=played.model, budget=["ask_model.calls=7"]) as agent:
            worked(agent)
            assert agent.state == "escalated"
        assert len(played.requests) == 2


def test_call_that_needs_permission_is_refused_in_a_part(tmp_path):
    def act(view):
        if view.subtask.endswith("b.txt"):
            return writing(view)
        if view.gave("run_cmd"):
            return complete(success=False, reason="I may not")
        return call("run_cmd", cmd=["ruff", "check", "."])

    with agent_at(tmp_path, GOAL, forgetful(BOTH, act), parallel=2, mode="auto-edit") as (agent, _):
        work = worked(agent)
        assert [subtask.status for subtask in work.chapters[0].subtasks] == ["failed", "completed"]
        assert "parts that run at the same time cannot ask for it" in next(iter(work.blocked_calls.values()))
    with pytest.raises(ValueError, match="parallel = 2: parts that run at the same time cannot ask for permission"), agent_at(tmp_path, GOAL, acting(BOTH, writing), parallel=2, mode="ask"):  # fmt: skip
        pass


def test_script_cannot_answer_for_several_parts(tmp_path):
    settings = WorkStart(GOAL, settings_of(config_of("scripted:script.md", tmp_path, parallel=2)))
    with open_runs(tmp_path / "runs") as runs:
        with pytest.raises(ValueError, match="a script cannot answer for several parts"):
            Agent.begin(settings, runs)
        assert runs.ids() == ()


def test_changes_of_parts_are_shown_and_undone_with_the_run(tmp_path):
    with agent_at(tmp_path, GOAL, forgetful(BOTH, writing), parallel=2) as (agent, _):
        worked(agent)
        run_id = agent.run_id
    with open_runs(tmp_path / "runs") as runs:
        shown = diff(runs, run_id)
        assert "+a.txt" in shown
        assert "+b.txt" in shown
        undo_run(runs, run_id)
    assert sorted(path.name for path in (tmp_path / "workspace").glob("*.txt")) == []


def test_changes_of_one_part_are_shown_and_undone_alone(tmp_path):
    refused = []

    def undo(name):
        asked = [Path(sys.executable).with_name("dsa"), "undo", name, "--runs", tmp_path / "runs"]
        return subprocess.run(asked, capture_output=True, text=True, check=False)

    def act(view):
        if view.gave("write_file"):
            refused.append(undo(f"{agent.run_id}+1.2"))
        return writing(view)

    with agent_at(tmp_path, GOAL, forgetful(BOTH, act), parallel=2) as (agent, _):
        worked(agent)
    name = f"{agent.run_id}+1.2"
    assert [(each.returncode, f"run {agent.run_id} is under way" in each.stderr) for each in refused] == [(1, True)] * 2
    with open_runs(tmp_path / "runs") as runs:
        shown = diff(runs, name)
    assert ("+a.txt" in shown, "+b.txt" in shown) == (False, True)
    over = undo(name)
    assert (over.returncode, over.stdout.splitlines()[0]) == (0, "removed: b.txt")
    assert [path.name for path in (tmp_path / "workspace").glob("*.txt")] == ["a.txt"]


@pytest.mark.parametrize("then", ["nothing", "stopped"])
def test_changes_of_parts_count_and_can_be_undone_before_all_finish(tmp_path, then):
    def act(view):
        return Said(status=500) if view.gave("write_file") and view.subtask.endswith("b.txt") else writing(view)

    with agent_at(tmp_path, GOAL, forgetful(BOTH, act), parallel=2) as (agent, _):
        work = worked(agent)
        assert (agent.state, work.tools["write_file done"], sorted(work.files_written)) == (
            "held_up",
            2,
            ["a.txt", "b.txt"],
        )
        run_id = agent.run_id
        if then == "stopped":
            asyncio.run(agent.stop())
            assert (agent.state, sorted(agent.work.files_written)) == ("cancelled", ["a.txt", "b.txt"])
    lines = (tmp_path / "workspace" / "agent_ledger.log").read_text().splitlines()
    assert sorted(line for line in lines if "WRITE" in line) == ["WRITE a.txt", "WRITE b.txt"]
    with open_runs(tmp_path / "runs") as runs:
        assert "+b.txt" in diff(runs, run_id)
        undo_run(runs, run_id)
    assert sorted(path.name for path in (tmp_path / "workspace").glob("*.txt")) == []


def test_parts_wait_for_their_turn_and_each_gets_the_rounds_of_a_subtask(tmp_path):
    """Six subtasks, two at a time: all are done, and never more than two run at once."""
    names = "abcdef"
    at_once, most = set(), []

    def act(view):
        at_once.add(view.subtask)
        most.append(len(at_once))
        time.sleep(0.02)
        if view.gave("write_file"):
            at_once.discard(view.subtask)
        return writing(view)

    plan = independent(*(f"write_file {name}.txt" for name in names))
    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=2, parameters={"max_rounds": 2, "max_turns": 2}) as (
        agent,
        _,
    ):
        work = worked(agent)
        assert (agent.state, agent.values["rounds"], work.answers_apart) == ("goal_complete", 1, 12)
    assert max(most) == 2
    assert len(list((tmp_path / "workspace").glob("*.txt"))) == 6


def test_command_run_by_parts_may_run_again_afterwards(tmp_path):
    """The later subtask has not seen the results of the parts, so checking again is not a loop."""
    check = {"cmd": ["ruff", "--version"]}
    plan = independent(*["run_cmd ruff --version"] * 3, then=("run_cmd ruff --version",))

    def act(view):
        return complete() if view.gave("run_cmd") else call("run_cmd", **check)

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=3) as (agent, _):
        work = worked(agent)
        assert (agent.state, work.blocked_calls, work.reasons["call_looping"]) == ("goal_complete", {}, 0)
        assert work.tools["run_cmd done"] == 4


def test_run_stopped_while_parts_work_is_cancelled_for_good(tmp_path):
    asked = threading.Event()

    def hangs(body, _number):
        if not body.get("tools"):
            return Said(json.dumps(BOTH))
        asked.set()
        return lambda _handler, over: over.wait(30)

    async def stopped(agent):
        going = asyncio.ensure_future(agent.go_on())
        while not asked.is_set():  # noqa: ASYNC110  (a thread sets it)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        going.cancel()
        await asyncio.wait({going})
        await agent.stop()

    with agent_at(tmp_path, GOAL, hangs, parallel=2) as (agent, _):
        asyncio.run(stopped(agent))
        assert agent.state == "cancelled"
        parts = parts_of(tmp_path, agent)
        assert len(parts) == 2
    with open_runs(tmp_path / "runs") as runs:
        assert unfinished_run(GOAL, tmp_path / "workspace", runs) is None
        with pytest.raises(DsaError, match=f"is a part of run {agent.run_id}"):
            Agent.resume(next(iter(parts)), runs)


def test_parts_continue_after_a_model_error_without_repeating_finished_ones(tmp_path):
    fails = [True]

    def player(body, number):
        if fails[0] and "ACTIVE SUBTASK: write_file b.txt" in body["messages"][1]["content"]:
            return Said("no", status=400)
        return forgetful(BOTH, writing)(body, number)

    with agent_at(tmp_path, GOAL, player, parallel=2) as (agent, played):
        worked(agent)
        assert agent.state == "held_up"
        before = len(played.requests)
        fails[0] = False
        worked(agent)
        assert agent.state == "goal_complete"
        assert len(played.requests) == before + 2  # the finished part is not asked again
        assert len(events_of(parts_of(tmp_path, agent)[f"{agent.run_id}+1.2"], "again")) == 1


SLOW = """import pathlib, time
pathlib.Path("begun.txt").write_text("slow")
time.sleep(1)
pathlib.Path("slow.txt").write_text("slow")
"""


def test_two_runs_in_one_folder_are_not_credited_with_each_others_changes(tmp_path):
    """A command of one run writes at its end; the other run, in a separate process, wants to write meanwhile, and has to wait."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "slow.py").write_text(SLOW)
    plan = tasks(("Do it", "run_cmd python slow.py"))

    def slow(view):
        return complete() if view.gave("run_cmd") else call("run_cmd", cmd=["python", "slow.py"])

    def quick(view):
        while not (workspace / "begun.txt").exists():
            time.sleep(0.01)
        return complete() if view.gave("write_file") else call("write_file", path="quick.txt", content="quick")

    program = Path(__file__).parent.parent / "coding_beside.py"
    with playing(acting(plan, slow)) as one, playing(acting(tasks(("Do it", "write_file quick.txt")), quick)) as other:
        runs = [(tmp_path / name, model) for name, model in (("one", one.model), ("other", other.model))]
        lives = [
            subprocess.Popen(
                [sys.executable, str(program), str(folder), str(workspace), model], stdout=subprocess.PIPE, text=True
            )
            for folder, model in runs
        ]
        said = [json.loads(life.communicate(timeout=60)[0]) for life in lives]
    assert [(each["state"], each["files"]) for each in said] == [("goal_complete", ["begun.txt", "slow.txt"]), ("goal_complete", ["quick.txt"])]  # fmt: skip


def test_every_part_may_make_the_same_first_calls(tmp_path):
    """Four parts start with the same listing and the same command, as models do: none of that is a loop."""
    plan = independent(*(f"write_file {name}.txt" for name in "abcd"))

    def act(view):
        if not view.gave("list_dir"):
            return call("list_dir", path=".")
        if not view.gave("run_cmd"):
            return call("run_cmd", cmd=["ruff", "--version"])
        return writing(view)

    with agent_at(tmp_path, GOAL, forgetful(plan, act), parallel=4) as (agent, _):
        assert worked(agent).blocked_calls == {}
        assert agent.state == "goal_complete"
