"""Runs that wait for people: 500 refunds with no process, and how long `dsa work --once` takes for the 50 of them that are due."""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import verdict

import dsa
from dsa.semantics import Occurrence

RUNS, DUE, LIMIT_S, ROUNDS = 500, 50, 2.0, 3
DSA = Path(sys.executable).with_name("dsa")
REFUND = """# refund
## Events
| event | from |
| - | - |
| asked | outside |
| small | look_up |
| large | look_up |
| approved | outside |
| paid | pay |
## Effects
| effect | kind | in doubt |
| - | - | - |
| look_up | | retry |
| pay | actuator | retry |
## States
| state | kind |
| - | - |
| idle | initial |
| checking | |
| asking | |
| paying | |
| refunded | final |
| lapsed | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | asked | look_up | checking |
| checking | small | pay | paying |
| checking | large | | asking |
| asking | approved | pay | paying |
| asking | after 24h | | lapsed |
| paying | paid | | refunded |
"""
BINDINGS = """
import dsa

@dsa.answering("small", "large")
async def look_up(action, context):
    return [dsa.event_step("look_up", "small" if context.latest("asked.amount") <= 100 else "large")]

@dsa.answering("paid")
async def pay(action, context):
    return [dsa.event_step("pay", "paid")]

effects = {"look_up": look_up, "pay": pay}
"""


async def begun(folder: Path) -> list[str]:
    """Begin the runs, and let go of them; return their ids."""
    async with dsa.open_runs(folder / ".dsa") as runs:
        document, bindings = str(folder / "refund.md"), str(folder / "bindings.py")
        handles = [await runs.start(document, {"amount": 500}, bindings=bindings) for _ in range(RUNS)]
        for handle in handles:
            await handle.rest()
            await handle.let_go()
        return [handle.id for handle in handles]


def worked_s(folder: Path, due: list[str]) -> float:
    """Post an approval to each of these runs, and return the seconds of one `dsa work --once`."""
    with dsa.open_runs(folder / ".dsa") as runs:
        for run in due:
            runs.post(run, Occurrence("approved"), runs.summary(run).summary.waits_for["approved"])
    began = time.perf_counter()
    done = subprocess.run([DSA, "work", "--once"], cwd=folder, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    assert len(done.stdout.splitlines()) == len(due), done.stdout
    return seconds


def bench_waiting() -> None:
    """Wall time of a whole process: it reads 500 summaries, and takes up 50 runs."""
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        (folder / "refund.md").write_text(REFUND, encoding="utf-8")
        (folder / "bindings.py").write_text(BINDINGS, encoding="utf-8")
        began = time.perf_counter()
        runs = asyncio.run(begun(folder))
        print(f"\nruns that wait for a person: {RUNS} begun in {time.perf_counter() - began:.1f} s")
        taken = [worked_s(folder, runs[DUE * number : DUE * (number + 1)]) for number in range(ROUNDS)]
    median = statistics.median(taken)
    print(
        f"  dsa work --once, {DUE} due: {median:.2f} s, median of {ROUNDS}   limit {LIMIT_S:g}   {verdict(good=median < LIMIT_S)}"
    )


BENCHES = (bench_waiting,)
