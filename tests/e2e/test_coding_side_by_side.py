"""Read-only calls of one answer run in parallel: reported in request order, kept when the process is killed, stopped together; all other calls wait."""

import asyncio
import io
import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from chat_chaos import follows_the_table
from chat_server import Said, playing
from coders import acting, agent_at, complete, recorded, resumed, tasks, worked
from results import results_of
from rich.console import Console
from test_chat_resume import until

from dsa.edge.document_files import load
from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EffectEntry, EventEntry
from dsa.semantics import Occurrence
from machines.coding.coding_display import CodingDisplay

NAMES = ("a", "b", "c")
PLAN = tasks(("Read", "read_file a.txt, b.txt and c.txt"))
#: Bindings whose tools record that they started, and each wait for a file named after the id of their call.
GATED = """
import asyncio
from pathlib import Path
from dsa.runtime.policy.policies import answering
from machines.coding.bindings import effects, fault_of_settings, guards, run_tool as call_tool, spenders

GATES = Path({gates!r})

@answering("tool_done", "tool_failed")
async def run_tool(action, context):
    call_id = action.payload["data"]["call_id"]
    with (GATES / "begun").open("a") as file:
        print(call_id, file=file)
    while not (GATES / call_id).exists():
        await asyncio.sleep(0.01)
    return await call_tool(action, context)

effects = {{**effects, "run_tool": run_tool}}
"""


@pytest.fixture
def gates(tmp_path):
    """A folder of gates, with the module of bindings that waits for them."""
    folder = tmp_path / "gates"
    folder.mkdir()
    (folder / "begun").touch()
    (folder / "gated.py").write_text(GATED.format(gates=str(folder)))
    return folder


@pytest.fixture
def workspace(tmp_path):
    """A folder with files whose content is their name."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.txt").write_text(name)
    return folder


def begun(gates):
    return (gates / "begun").read_text().split()


def reading(*names, then=()):
    """Read files in one answer, and make other calls after that."""
    return Said(calls=(*(("read_file", {"path": f"{name}.txt"}) for name in names), *then))


def reads_three(view):
    """Read three files at once, then say that it is done."""
    return complete() if view.done else reading(*NAMES)


def ids(request, count=3):
    return [f"call_{request}_{n}" for n in range(count)]


def sent_results(body):
    """Return the results of calls in a request: pairs of the call's id and its content."""
    tools = [message for message in body["messages"] if message["role"] == "tool"]
    return [(message["tool_call_id"], json.loads(message["content"]).get("content")) for message in tools]


@pytest.mark.parametrize("late", range(len(NAMES)))
def test_only_the_read_cut_off_by_a_kill_is_made_again(tmp_path, workspace, gates, late):
    runs, early = tmp_path / "runs", [call_id for n, call_id in enumerate(ids(1)) if n != late]
    with playing(acting(PLAN, reads_three)) as played:
        command = [Path(sys.executable).with_name("dsa"), "code", "Read", "-w", workspace, "--model", played.model]
        command += ["--runs", runs, "--with", gates / "gated.py", "--mode", "full-auto"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: len(begun(gates)) == len(NAMES) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        for call_id in reversed(early):
            (gates / call_id).touch()
        with open_runs(runs) as opened:
            (run_id,) = opened.ids()
            until(lambda: len(results_of(opened.stored_run(run_id).entries, "run_tool")) == len(early))
        assert process.poll() is None
        process.kill()
        process.communicate()
        (gates / ids(1)[late]).touch()
        with resumed(runs, run_id) as agent:
            asyncio.run(agent.go_on())
            assert (agent.state, [call.status for call in agent.work.calls]) == (
                "goal_complete",
                [*["done"] * len(NAMES), "subtask_completed"],
            )
            assert [action.at_ms > 0 for action in agent.work.past] == [True] * len(NAMES)
    assert begun(gates) == [*ids(1), ids(1)[late]]
    assert sent_results(played.requests[2]) == list(zip(ids(1), NAMES, strict=True))
    assert played.faults == []
    follows_the_table(load("coding"), recorded(runs, run_id))


@pytest.mark.parametrize("order", [*permutations(range(len(NAMES)))])
def test_results_are_reported_in_request_order_whichever_finishes_first(tmp_path, workspace, gates, order):
    async def work_in_order(agent):
        work = asyncio.ensure_future(agent.go_on())
        for count, n in enumerate(order):
            while not (
                set(ids(1)) <= set(begun(gates)) and sum(call.status == "done" for call in agent.work.calls) == count
            ):
                assert not work.done()
                await asyncio.sleep(0.01)
            (gates / ids(1)[n]).touch()
        await work

    file = io.StringIO()
    display = CodingDisplay(Console(file=file, width=200, color_system=None))
    how = {"module": str(gates / "gated.py"), "on_moment": display.on_moment}
    with agent_at(tmp_path, "Read", acting(PLAN, reads_three), **how) as (agent, played):
        asyncio.run(work_in_order(agent))
        assert agent.state == "goal_complete"
        assert sent_results(played.requests[2]) == list(zip(ids(1), NAMES, strict=True))
        assert [evidence.files for evidence in agent.work.evidence] == [frozenset({f"{name}.txt"}) for name in NAMES]
    expected = [f"read_file  {name}.txt" for name in NAMES]
    for name, before in zip((NAMES[n] for n in order), ("c", *(NAMES[n] for n in order)), strict=False):
        expected += [] if name == before else [f"result of read_file  {name}.txt"]
        expected.append(f"  Read {name}.txt: 1 bytes, 1 line")
    assert "\n".join(expected) in file.getvalue()


def test_excess_calls_wait_for_their_turn(tmp_path, workspace, gates):
    names = [f"f{n}" for n in range(6)]
    for name in names:
        (workspace / f"{name}.txt").write_text(name)

    async def work_to_the_end(agent):
        work = asyncio.ensure_future(agent.go_on())
        for count in range(4, 7):
            while len(agent.work.calls_by_key) < 10 - count or len(begun(gates)) < count:  # noqa: ASYNC110  (nothing notifies of it)
                await asyncio.sleep(0.01)
            assert begun(gates) == ids(1, count)
            (gates / ids(1, 6)[count - 4]).touch()
        for call_id in ids(1, 6):
            (gates / call_id).touch()
        await work

    player = acting(PLAN, lambda view: complete() if view.done else reading(*names))
    with agent_at(tmp_path, "Read", player, module=str(gates / "gated.py")) as (agent, played):
        asyncio.run(work_to_the_end(agent))
        assert sent_results(played.requests[2]) == list(zip(ids(1, 6), names, strict=True))


def test_writes_wait_for_earlier_reads_and_later_reads_wait_for_writes(tmp_path, workspace):
    write = ("write_file", {"path": "a.txt", "content": "new"})
    player = acting(PLAN, lambda view: complete() if view.done else reading("a", "b", then=(write, ("read_file", {"path": "a.txt"}))))  # fmt: skip
    with agent_at(tmp_path, "Read", player) as (agent, played):
        work = worked(agent)
        assert (agent.state, work.files_written) == ("goal_complete", ["a.txt"])
        entries = recorded(tmp_path / "runs", agent.run_id)
    assert [content for _, content in sent_results(played.requests[2])] == ["a", "b", None, "new"]
    outstanding, kinds, beside_change = set(), {}, set()
    for entry in entries:
        if isinstance(entry, EventEntry) and entry.event == "tool_call":
            kinds[entry.seq] = entry.data["tool"]
        elif isinstance(entry, EventEntry) and entry.event in {"tool_done", "tool_failed"}:
            outstanding.discard(entry.key)
        elif isinstance(entry, EffectEntry) and entry.effect == "run_tool":
            if "write_file" in (kinds[int(key.partition("/")[0])] for key in (*outstanding, entry.key)):
                beside_change |= outstanding
            outstanding.add(entry.key)
    assert beside_change == set()


def test_stopped_work_stops_all_running_calls(tmp_path, workspace, gates):
    async def work_until_stopped(agent):
        work = asyncio.ensure_future(agent.go_on())
        while len(begun(gates)) < len(NAMES):  # noqa: ASYNC110  (nothing notifies of it)
            await asyncio.sleep(0.01)
        (gates / ids(1)[1]).touch()
        while sum(call.status == "done" for call in agent.work.calls) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        agent._handle.offer(Occurrence("stopped"))  # noqa: SLF001  (as a signal does)
        await work

    with agent_at(tmp_path, "Read", acting(PLAN, reads_three), module=str(gates / "gated.py")) as (agent, _):
        asyncio.run(work_until_stopped(agent))
        assert (agent.state, [call.status for call in agent.work.calls]) == (
            "cancelled",
            ["stopped", "done", "stopped"],
        )
        assert agent.work.transcript.open_ids() == ()
        assert [message.role for message in agent.work.transcript.exchanges[-1]] == ["assistant", *["tool"] * 3]
