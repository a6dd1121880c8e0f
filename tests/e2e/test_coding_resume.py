"""Work that is cut off anywhere and continues: killed after any durable entry, and in the middle of a command."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import attrs
import coding_chaos
import pytest
from chat_server import Said, playing
from coders import LOST, acting, agent_at, call, complete, config_of, forgetful, recorded, resumed, tasks, worked
from forked import SCRIPT

from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import EventEntry, ResultEntry
from machines.coding.work_session import Agent, unfinished_run

#: The largest number of entries of the whole work; the sample is spread over all kinds of places.
MOST = 275
full = pytest.mark.full
CUTS = [pytest.param(count, marks=[] if count % 77 == 30 else full) for count in range(1, MOST)]
MOST_TOGETHER = 125
CUTS_TOGETHER = [pytest.param(count, marks=[] if count % 50 == 30 else full) for count in range(1, MOST_TOGETHER)]


def life(runs, workspace, model, count, which="alone"):
    """Work in a separate process, which kills itself after a number of entries."""
    program = Path(coding_chaos.__file__)
    with open_runs(runs) as opened:
        known = [run_id for run_id in opened.ids() if "+" not in run_id]
    command = [*SCRIPT, program, runs, workspace, model, str(count), which, *known]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=120)


def judged(runs, workspace, played):
    """Check such work: it is done, nothing was done twice, and every request was valid."""
    with open_runs(runs) as opened:
        for run_id in opened.ids():
            entries = opened.stored_run(run_id).entries
            done = Counter(entry.key for entry in entries if isinstance(entry, ResultEntry))
            assert set(done.values()) == {1}, "an effect was done twice"
    assert [path.name for path in workspace.iterdir() if "~" in path.name or path.name.endswith(".tmp")] == []
    for path in (workspace / ".agent_context").iterdir():
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        assert all(json.loads(line) is not None for line in lines)
    assert played.faults == []
    assert LOST not in json.dumps(played.requests)


@pytest.mark.parametrize("count", CUTS)
def test_work_killed_after_any_entry_continues_without_repeating_anything(tmp_path, count):
    runs, workspace = tmp_path / "runs", tmp_path / "workspace"
    workspace.mkdir()
    with playing(acting(coding_chaos.PLAN, coding_chaos.counting)) as played:
        first = life(runs, workspace, played.model, count)
        if first.returncode == 0:
            assert first.stdout.startswith("goal_complete")
        else:
            assert first.returncode == -signal.SIGKILL, first.stderr
            second = life(runs, workspace, played.model, 0)
            assert second.stdout.startswith("goal_complete"), second.stdout + second.stderr
        judged(runs, workspace, played)
    assert (workspace / "done.txt").read_text().split() == ["1", "2", "3"]
    assert (workspace / "step.py").read_text().startswith("import sys  # edited")


@pytest.mark.parametrize("count", CUTS_TOGETHER)
def test_parallel_work_killed_after_any_entry_continues_without_repeating(tmp_path, count):
    runs, workspace = tmp_path / "runs", tmp_path / "workspace"
    workspace.mkdir()
    _, plan, plays, _ = coding_chaos.GOALS["together"]
    with playing(forgetful(plan, plays)) as played:
        first = life(runs, workspace, played.model, count, "together")
        if first.returncode != 0:
            assert first.returncode == -signal.SIGKILL, first.stderr
            second = life(runs, workspace, played.model, 0, "together")
            assert second.stdout.startswith("goal_complete"), second.stdout + second.stderr
        judged(runs, workspace, played)
    assert [(workspace / f"{name}.txt").read_text() for name in "ab"] == ["a\n", "b\n"]
    assert (workspace / "notes.md").read_text() == "both counted\n"


def test_command_cut_off_by_a_kill_is_reported_and_leaves_nothing_running(tmp_path):
    """The command had its effect but did not end. That cannot be known, so it is not run again, and the model looks."""
    runs, workspace = tmp_path / "runs", tmp_path / "workspace"
    workspace.mkdir()
    slow = "import time\nopen('done.txt', 'a').write('1\\n')\ntime.sleep(600)\n"
    plan = tasks(("Count", "run_cmd python slow.py"))
    (workspace / "slow.py").write_text(slow)
    done = workspace / "done.txt"

    def act(view):
        if not view.done:
            return call("run_cmd", cmd=["python", "slow.py"])
        assert view.done[0][2]["error"]["code"] == "interrupted"
        return complete() if len(view.done) > 1 else call("read_file", path="done.txt")

    with playing(acting(plan, act)) as played:
        command = [sys.executable, coding_chaos.__file__, runs, workspace, played.model, "0", "alone"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not (done.exists() and done.read_text()):  # it is created first and written then
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
        process.wait()
        with open_runs(runs) as opened:
            (run_id,) = opened.ids()
        with resumed(runs, run_id) as agent:
            asyncio.run(agent.go_on())
            assert agent.state == "goal_complete", [(call.tool, call.result) for call in agent.work.calls]
    assert done.read_text() == "1\n"
    assert played.faults == []
    assert left_running("slow.py") == []


def left_running(marker):
    """Return the ids of the processes whose command line has a marker in it."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


def test_same_goal_in_the_same_folder_is_resumed_and_others_are_not(tmp_path):
    def hangs_at_the_second(body, number):
        return (lambda _handler, over: over.wait(60)) if number == 2 else player(body, number)

    player = acting(coding_chaos.PLAN, coding_chaos.counting)
    workspace, runs = tmp_path / "workspace", tmp_path / "runs"
    workspace.mkdir()
    with playing(hangs_at_the_second) as played:
        command = [sys.executable, coding_chaos.__file__, runs, workspace, played.model, "0", "alone"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        while len(played.requests) < 3:
            time.sleep(0.01)
        process.kill()
        process.wait()
    with open_runs(runs) as opened, playing(player) as played:
        found = unfinished_run(coding_chaos.GOAL, workspace, opened)
        assert found is not None
        assert unfinished_run("another goal", workspace, opened) is None
        assert unfinished_run(coding_chaos.GOAL, tmp_path, opened) is None
        with Agent.resume(found, opened, options=Options(model=played.model)) as agent:
            asyncio.run(agent.go_on())
            assert agent.state == "goal_complete"
        assert unfinished_run(coding_chaos.GOAL, workspace, opened) is None


def test_blocked_calls_and_the_probe_survive_a_resume(tmp_path):
    write = call("write_file", path="a.txt", content="one\n")
    with agent_at(tmp_path, "do it", acting(tasks(("Do it", "write_file a.txt")), lambda _view: write), parameters={"max_rounds": 3}) as (agent, _):  # fmt: skip
        work = worked(agent)
        run_id, blocked = agent.run_id, work.blocked_calls
    assert len(blocked) == 1
    with resumed(tmp_path / "runs", run_id) as agent:
        assert (agent.work.blocked_calls, agent.work.probe.files_exist) == (blocked, ("a.txt",))
        assert [each.refused for each in agent.work.past] == [False, False, True]


@pytest.mark.parametrize(("answers", "state"), [(0, "unplanned"), (1, "paused"), (2, "paused")])
def test_answer_that_breaks_off_pauses_the_work_and_loses_nothing(tmp_path, answers, state):
    """The fault is in the connection, not the model: no plan is replaced, and no round is used up."""
    player = acting(coding_chaos.PLAN, coding_chaos.counting)
    is_broken = [True]

    def breaks(body, number):
        if number < answers or not is_broken[0]:
            return player(body, number)
        return Said("Let me begin", breaks_off=True)

    with agent_at(tmp_path, coding_chaos.GOAL, breaks) as (agent, _):
        work = worked(agent)
        assert (agent.state, work.reasons["answer_cut_off"], work.reasons["plan_replaced"]) == (state, 0, 0)
        assert "without a finish reason" in work.paused_for
        rounds = agent.values["rounds"]
        asyncio.run(agent.go_on())
        assert (agent.state, agent.values["rounds"]) == (state, rounds)
        is_broken[0] = False
        asyncio.run(agent.go_on())
        assert (agent.state, agent.work.errors) == ("goal_complete", [])


@pytest.mark.parametrize(
    "budget", [*(f"calls={count}" for count in range(1, 20, 3)), "tokens=10", "tokens=31", "seconds=0.000001"]
)
def test_run_budget_pauses_the_work_wherever_it_is_spent(tmp_path, budget):
    player = acting(coding_chaos.PLAN, coding_chaos.counting)

    def costs(body, number):
        return attrs.evolve(player(body, number), tokens=10)

    with agent_at(tmp_path, coding_chaos.GOAL, costs, budget=[budget]) as (agent, played):
        work = worked(agent)
        assert agent.state in {"unplanned", "paused"}
        assert "budget" in work.paused_for
        assert work.transcript.open_ids() == ()  # all calls of the answer are done
        run_id = agent.run_id
        agent.close()
        with resumed(tmp_path / "runs", run_id, model=played.model, budget=["calls=1000"]) as again:
            asyncio.run(again.go_on())
            assert (again.state, again.work.errors) == ("goal_complete", [])


def test_budget_of_model_calls_pauses_the_work_with_a_message(tmp_path):
    config = config_of("x", tmp_path)
    assert config["mode"] == "full-auto"
    player = acting(coding_chaos.PLAN, coding_chaos.counting)
    with agent_at(tmp_path, coding_chaos.GOAL, player, budget=["ask_model.calls=3"]) as (agent, played):
        work = worked(agent)
        assert (agent.state, agent.values["rounds"], len(played.requests)) == ("paused", 3, 4)
        assert work.reasons["paused"] == 1
        entries = recorded(tmp_path / "runs", agent.run_id)
        events = [entry for entry in entries if isinstance(entry, EventEntry)]
        assert "budget" in events[-1].data["message"]
