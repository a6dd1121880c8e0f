"""How many runs are simulated a second: `dsa sim dual_state`, as users call it, its own start left out."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from runtime import commit_us
from timing import verdict

SEEDS, FEW, ROUNDS = 4_000, 40, 3
#: What a run costs one processor, in bare commits (docs/decisions/0026-what-an-effect-costs.md).
MOST = 420


def simulated(seeds: int, workers: int) -> dict[str, float]:
    """Simulate `seeds` seeds in a process of its own; return the figures that it prints."""
    dsa = str(Path(sys.executable).with_name("dsa"))
    command = [dsa, "sim", "dual_state", "--seeds", str(seeds), "--workers", str(workers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def bench_simulation() -> None:
    """Whole runs a second: real driver, run, ledger and handlers, each seed through all of its processes, every oracle asked."""
    print(f"\nruns of dual_state simulated a second, {SEEDS:,} seeds, median of {ROUNDS} rounds")
    costs = list[float]()
    for workers in sorted({1, os.cpu_count() or 1}):
        simulated(FEW, workers)
        told = [simulated(SEEDS, workers) for _ in range(ROUNDS)]
        rate = SEEDS / statistics.median(each["seconds"] for each in told)
        rows, processes = (told[0][name] / SEEDS for name in ("rows_taken", "processes"))
        print(f"  {workers} workers   {rate:8,.0f}/s   {rows:.1f} rows and {processes:.1f} processes a run")
        costs.append(workers / rate * 1e6)
    many = min(costs) / commit_us()
    print(f"  a run costs a processor {many:.0f} bare commits   limit {MOST}   {verdict(good=many <= MOST)}")


BENCHES = (bench_simulation,)
