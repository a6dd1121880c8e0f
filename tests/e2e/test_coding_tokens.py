"""Tokens of a run whose parts were cut off and resumed: the display, the totals, the ledger and the budget agree."""

import asyncio
import io
import re

import attrs
from coders import agent_at, call, complete, forgetful, recorded, resumed, tasks
from rich.console import Console

from dsa.runtime.timeline import Moment
from machines.coding.coding_display import CodingDisplay, totals

PLAN = [*tasks(("Both", "write_file a.txt", "write_file b.txt")), *tasks(("Then", "read_file a.txt"))]
PLAN[0]["independent"] = True


def counted(text, name):
    return [int(found.replace(",", "")) for found in re.findall(rf"^{name}[^|]*?([0-9,]+) tokens", text, re.MULTILINE)]


def test_tokens_of_parts_are_counted_once(tmp_path):
    def act(view):
        if view.subtask.startswith("read_file"):
            return complete() if view.gave("read_file") else call("read_file", path="a.txt")
        path = view.subtask.split()[-1]
        return complete() if view.gave("write_file") else call("write_file", path=path, content=path)

    def player(body, number):
        return attrs.evolve(forgetful(PLAN, act)(body, number), tokens=1_000)

    file = io.StringIO()
    display = CodingDisplay(Console(file=file, width=200, color_system=None))
    with agent_at(tmp_path, "Go", player, parallel=2, budget=["ask_model.calls=3"]) as (agent, played):
        asyncio.run(agent.go_on())
        assert agent.state == "held_up"
        run_id = agent.run_id
        agent.close()
        more = {"model": played.model, "budget": ["tokens=50000"]}
        with resumed(tmp_path / "runs", run_id, **more, on_moment=display.on_moment) as again:
            asyncio.run(again.go_on())
            assert again.state == "goal_complete"
            assert len(played.requests) == 7
            last, spent = totals(again.work, 3), again.work.usage
    whole, parts = counted(file.getvalue(), "round"), counted(file.getvalue(), r"1\\.[12]\\| round")
    assert whole[-1] == 6_000
    assert parts, file.getvalue()
    assert (counted(last, "3 rounds"), spent["prompt_tokens"] + spent["completion_tokens"]) == ([7_000], 7_000)
    transcript = io.StringIO()
    told = CodingDisplay(Console(file=transcript, width=200, color_system=None))
    for number, entry in enumerate(recorded(tmp_path / "runs", run_id), 1):
        told.on_moment(Moment(run_id, number, entry), is_new=True)
    assert counted(transcript.getvalue(), "round")[-1] == 6_000
