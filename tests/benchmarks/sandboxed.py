"""What a verdict takes in the sandbox: the cases guard against a limit, the pytest guards against pytest started cold."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from timing import verdict

from dsa.edge.sandbox import ladder
from dsa.guards import CasesGuard, GuardInterface, TestGuard
from dsa.runtime.content import Artifact

ROUNDS, WARM_MS, PLAIN, HARDENED = 15, 15.0, 0.5, 0.5
CODE = Artifact("def add(a, b):\n    return a + b\n")
CASES = [("add(2, 3)", 5), ("add('a', 'b')", "'ab'"), ("add([1], [2])", [1, 2])]
TESTS = "from solution import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"


def wall_ms(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def passes(guard: GuardInterface) -> None:
    """Ask for a verdict, which must be a pass."""
    assert guard.validate(CODE).passed


def cold_pytest(folder: Path) -> None:
    """Start pytest over the same test, without the plugins that are installed here."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "test_it.py")]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)


def bench_sandbox() -> None:
    """A verdict by rung, warm; and with one test of pytest, plain and hardened, over a cold start of pytest."""
    rungs = [rung.name for rung in ladder() if not rung.fault]
    print(f"\nsandbox: a verdict of the cases guard, three calls, warm, wall ms, median of {ROUNDS} rounds")
    for rung in rungs:
        guard = CasesGuard(CASES, rung=rung)
        passes(guard)
        median = statistics.median(wall_ms(lambda: passes(guard)) for _ in range(ROUNDS))  # noqa: B023
        limit = f"limit {WARM_MS:g}   {verdict(good=median <= WARM_MS)}" if rung == rungs[0] else ""
        print(f"  {rung:<32}{median:7.1f}   {limit}")
    print(f"sandbox: a verdict with one test, over a cold `python -m pytest`, median of {ROUNDS} rounds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "solution.py").write_text(CODE.content)
        (folder / "test_it.py").write_text(TESTS)
        guards = {"plain": (TestGuard(TESTS), PLAIN), "hardened": (TestGuard(TESTS, hardened=True), HARDENED)}
        cold_pytest(folder)
        for guard, _ in guards.values():
            passes(guard)
        taken = [
            (wall_ms(lambda: cold_pytest(folder)), *(wall_ms(lambda: passes(g)) for g, _ in guards.values()))  # noqa: B023
            for _ in range(ROUNDS)
        ]
    for at, (kind, (_, limit)) in enumerate(guards.items(), start=1):
        ratio = statistics.median(row[at] / row[0] for row in taken)
        median = statistics.median(row[at] for row in taken)
        print(f"  {kind:<32}{ratio:7.2f}   limit {limit:g}   {verdict(good=ratio <= limit)}   ({median:.0f} ms)")


BENCHES = (bench_sandbox,)
