"""The coding machine: what a round costs beside the model and the tool, and whether round 200 costs more than round 5.

The peer is a loop over bare httpx with the same `Workspace` and the same commands: it sends the last messages, reads the stream, does the call. It
keeps nothing and checks nothing. Both ask the same server, a process of its own that plays a model; runs are kept in SQLite on tmpfs. A round is
from one probe to the next. What a round costs is judged in processor time, as it would be at the processor's full speed; wall time, which is what a user
waits, stands beside it.
"""

import asyncio
import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from artifact_runs import memory_folder
from chat_server import Said, playing
from coders import config_of, tasks
from timing import FULL_SPEED_US, plain_python_us, speed_between, verdict

from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EventEntry
from machines.coding.coding_resources import INSTRUCTIONS, settings_of
from machines.coding.coding_tools import TOOLS
from machines.coding.tools.file_arguments import read
from machines.coding.tools.workspace import Workspace
from machines.coding.work_session import Agent, WorkStart
from machines.tool_use.machine_session import SessionListeners
from machines.tool_use.records import as_data

ROUND_MS, GROWTH = 10.0, 1.5
ROUNDS, EARLY, LATE, SAMPLES, RUNS = 30, 5, 200, 11, 5
PLAN = json.dumps(tasks(("Do it", "write_file a.txt")))
FILES = 20


def player(body, number):
    """Read or write another file each time: `look` or `write`, as the goal says."""
    if not body.get("tools"):
        return Said(PLAN)
    does_write = "write" in body["messages"][1]["content"].partition("\n")[0]
    path = f"f{number % FILES}.txt"
    if does_write:
        return Said(calls=(("write_file", {"path": path, "content": f"{number}\n"}),))
    return Said(calls=(("read_file", {"path": path, "offset": number % 3}),))


@contextmanager
def server():
    """Serve from a process of its own; gives the model's name."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def serve():
    """Play until standard input ends."""
    with playing(player) as played:
        print(played.model, flush=True)
        sys.stdin.read()


class Marks:
    """When each round began: wall and processor time."""

    def __init__(self):
        self.taken = []

    def on_moment(self, moment, _is_new):
        """Note a probe."""
        if isinstance(moment.entry, EventEntry) and moment.entry.event == "probed":
            self.taken.append((time.perf_counter(), time.process_time()))

    def rounds_ms(self):
        """Return wall and processor time of each round."""
        return [((b[0] - a[0]) * 1000, (b[1] - a[1]) * 1000) for a, b in itertools.pairwise(self.taken)]


def filled(folder):
    """Return a workspace with some files."""
    workspace = folder / "workspace"
    workspace.mkdir()
    for number in range(FILES):
        (workspace / f"f{number}.txt").write_text(f"{number}\n" * 20)
    return workspace


def worked(model, what, rounds):
    """Work for that number of rounds; return the time of each."""
    marks = Marks()
    with memory_folder() as folder:
        config = config_of(model, filled(folder))
        bounds = {"max_rounds": rounds, "max_turns": rounds}
        settings = WorkStart(what, settings_of(config), parameters=bounds)
        with (
            open_runs(folder / "runs") as runs,
            Agent.begin(settings, runs, SessionListeners(marks.on_moment)) as agent,
        ):
            gc.collect()
            asyncio.run(agent.go_on())
            assert agent.values["rounds"] == rounds, agent.state
            assert sum(agent.work.tools.values()) == rounds
    return marks.rounds_ms()


async def bare(model, what, rounds):
    """Do the same with nothing of ours but the workspace."""
    import httpx

    address, _, name = model.partition("#")
    tools = [tool.as_openai for tool in TOOLS]
    messages, taken = [], []
    head = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": f"GOAL: {what}"}]
    with memory_folder() as folder, Workspace(filled(folder)) as workspace:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            for _ in range(rounds):
                begun = time.perf_counter(), time.process_time()
                body = {"model": name, "messages": [*head, *messages[-10:]], "tools": tools, "stream": True}
                call = await _asked(client, body)
                asked = read(call["function"]["name"], json.loads(call["function"]["arguments"]))
                result = as_data(await asyncio.to_thread(workspace.apply, asked))
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
                taken.append(((time.perf_counter() - begun[0]) * 1000, (time.process_time() - begun[1]) * 1000))
    return taken


async def _asked(client, body):
    call = None
    async with client.stream("POST", "/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                for part in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls") or ():
                    if call is None:
                        call = part
                    else:
                        call["function"]["arguments"] += part["function"]["arguments"]
    return call


def bench_coding_rounds():
    """A round beside the model and the tool."""
    print(
        f"\nwhat the coding machine adds to a round of a loop over bare httpx, ms of processor time where plain Python takes {FULL_SPEED_US} us, medians of {RUNS} runs of {ROUNDS} rounds"
    )
    with server() as model:
        for what, name in (("look", "a round that reads a file"), ("write", "a round that writes a file")):
            runs = [at_full_speed(model, what) for _ in range(RUNS)]
            (wall, used), (their_wall, their_used) = (
                [statistics.median(t) for t in zip(*each, strict=True)] for each in zip(*runs, strict=True)
            )
            added = used - their_used
            print(
                f"  {name:<30}{added:8.2f}   (wall {wall - their_wall:.2f}: {wall:.2f} and {their_wall:.2f})"
                f"   limit {ROUND_MS:g}   {verdict(good=added <= ROUND_MS)}"
            )


def at_full_speed(model, what):
    """Work for some rounds, with all of ours and with nothing of ours; return the medians of both as they would be at the processor's full speed."""
    plain = [plain_python_us()]
    found = []
    for work in (lambda: worked(model, what, ROUNDS), lambda: asyncio.run(bare(model, what, ROUNDS))):
        taken = work()
        plain.append(plain_python_us())
        speed = speed_between(*plain[-2:])
        found.append([statistics.median(times) * speed for times in zip(*taken, strict=True)])
    return found


def bench_coding_growth():
    """Round 200 over round 5 of one run, with the rounds around each; of some runs, for machines are now faster, now slower."""
    ratios, used_ratios = [], []
    with server() as model:
        for _ in range(RUNS):
            taken = worked(model, "write", LATE + SAMPLES)
            early, late = taken[EARLY - 1 : EARLY - 1 + SAMPLES], taken[LATE - 1 : LATE - 1 + SAMPLES]
            (wall, used), (early_wall, early_used) = (
                [statistics.median(t) for t in zip(*each, strict=True)] for each in (late, early)
            )
            ratios.append(wall / early_wall)
            used_ratios.append(used / early_used)
    ratio = statistics.median(ratios)
    print(f"\nround {LATE} and on / round {EARLY} and on, medians of {SAMPLES} rounds each, of {RUNS} runs")
    print(
        f"  wall {ratio:.2f}   ({min(ratios):.2f} to {max(ratios):.2f}; {statistics.median(used_ratios):.2f} of processor time)"
        f"   limit {GROWTH:g}   {verdict(good=ratio <= GROWTH)}"
    )


BENCHES = (bench_coding_rounds, bench_coding_growth)

if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        for bench in BENCHES:
            bench()
