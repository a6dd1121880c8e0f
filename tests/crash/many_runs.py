"""Many runs at once in one process on one store; started by test_many_runs.py.

Takes the folder of runs and how many. All of them are in the middle of an effect at the same time. Prints what it took, as JSON.
"""

import asyncio
import json
import re
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import parcels
from quick_time import hurry

import dsa
from dsa.edge.binding import Bindings
from dsa.runs.setup import MachineDocument, Options
from dsa.runtime.policy.policies import error_step, event_step
from dsa.semantics import Occurrence


class Crowd:
    """Policies that count, and hold every run in the effect `price` until all runs are in it."""

    def __init__(self, size):
        self.size, self.times = size, Counter()
        self.most_at_once = self.at_once = 0
        self.all_here = asyncio.Event()

    def binding(self):
        return Bindings(dict.fromkeys(parcels.HANDLED, self.happen))

    async def happen(self, action, _context):
        key, effect = action.payload["key"], action.policy
        self.times[key] += 1
        if effect == "price":
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            if self.at_once == self.size:
                self.all_here.set()
            await self.all_here.wait()
            self.at_once -= 1
        if effect == "weigh" and self.times[key] == 1:
            return [error_step(effect, "UNSTEADY", "the scales are not still")]
        answer = parcels.ANSWERS.get(effect)
        return [event_step(effect, answer, data=f"answer to {key}")] if answer else []


async def drive(runs, name, crowd):
    """Drive one run; return how it ended."""
    setup = runs.setup(MachineDocument(parcels.MACHINE, parcels.TEXT), Options(bindings=lambda *_: crowd.binding()))
    rest = await runs.begin(setup, run_id=name).drive(Occurrence("specification", data=name))
    return rest.kind, len(rest.run.ledger)


async def drive_all(root, size):
    """Drive all of them, and return what it took."""
    crowd, memory_kb = Crowd(size), _memory_kb()
    async with dsa.open_runs(root) as runs:
        began = time.perf_counter()
        ends = await asyncio.gather(*(drive(runs, f"r{number:05}", crowd) for number in range(size)))
        seconds = time.perf_counter() - began
        entries = [len(runs.get(name).stored_run.entries) for name in runs.ids()]
    return {
        "finished": sum(kind == "finished" for kind, _ in ends),
        "entries": entries,
        "expected": [length for _, length in ends],
        "most_at_once": crowd.most_at_once,
        "most_times": max(crowd.times.values()),
        "effects": crowd.times.total(),
        "seconds": seconds,
        "memory_kb": _memory_kb() - memory_kb,
        "size_bytes": (root / "ledger.db").stat().st_size,
    }


def _memory_kb():
    """Return the most that this program has had; what `getrusage` says includes the process that forked it."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # runs must not cost open files
    hurry()
    print(json.dumps(asyncio.run(drive_all(Path(sys.argv[1]), int(sys.argv[2])))))
