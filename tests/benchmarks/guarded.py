"""The guarded loop with a scripted model, beside AtomicGuard's: generate, store, judge, refine, until a guard passes.

Both are used through their Python API, in a process of their own each, in turns. Processor time, medians of rounds.
"""

import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from artifact_runs import memory_folder
from durable_peers import HERE, PEERS
from outside import MissingError
from timing import verdict

from dsa.generators.substitutes import ScriptedGenerator
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from machines import ActionPair, ArtifactDAGInterface, DualStateAgent, GitArtifactDAG, InMemoryArtifactDAG

TEXT = "def add(a, b):\n    return a + b\n"
#: How many attempts the loop makes, what our time may be of theirs, rounds.
IN_MEMORY = ((10, 12, 61), (1_000, 1, 1), (2_000, 0.5, 1))
TURNS = 5
ON_FILES = (1_000, 0.08, 3)


class Passing(GuardInterface):
    """Rejects all attempts but the last of a given number."""

    blocks = False

    def __init__(self, attempts: int) -> None:
        self._left = attempts

    def validate(self, _artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        self._left -= 1
        return GuardResult(passed=self._left == 0, feedback="" if self._left == 0 else "no")


def attempt_us(attempts: int, dag: ArtifactDAGInterface) -> float:
    """Return the processor time of an attempt. What was imported before is frozen: to collect it would take it out of the caches."""
    pair = ActionPair(lambda _state: True, ScriptedGenerator([TEXT] * attempts), Passing(attempts))
    agent = DualStateAgent(pair, dag, rmax=attempts)
    gc.collect()
    begun = time.process_time()
    agent.execute("Write add")
    return (time.process_time() - begun) / attempts * 1e6


def theirs_us(attempts: int, rounds: int, *folder: str) -> list[float]:
    """Return the same of AtomicGuard, for each round. Raises MissingError."""
    python = PEERS / "atomicguard" / "bin" / "python"
    if not python.exists():
        raise MissingError("AtomicGuard is not here: run tests/set_up_peers.py")
    command = [str(python), str(HERE / "guarded_peer.py"), str(attempts), str(rounds), *folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [float(each) for each in json.loads(done.stdout)]


def ours_us(attempts: int, rounds: int, folder: Path | None = None) -> list[float]:
    """Return ours, for each round, by a process of its own, as theirs is: with artifacts in memory, or in git."""
    command = [sys.executable, __file__, str(attempts), str(rounds), *([] if folder is None else [str(folder)])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(each) for each in json.loads(done.stdout)]


def timed_us(attempts: int, rounds: int, folder: Path | None = None) -> list[float]:
    """Time it here."""
    places = [
        InMemoryArtifactDAG() if folder is None else GitArtifactDAG(folder / f"{n}.git", "r") for n in range(rounds)
    ]
    gc.freeze()
    return [attempt_us(attempts, place) for place in places]


def bench_guarded_loop() -> None:
    """An attempt of the dual-state agent, ours and AtomicGuard's."""
    print("\nan attempt of the guarded loop, scripted model, processor time, medians")
    try:
        for attempts, limit, rounds in IN_MEMORY:
            turns = [(theirs_us(attempts, rounds), ours_us(attempts, rounds)) for _ in range(TURNS)]
            theirs, ours = ([statistics.median(each) for each in taken] for taken in zip(*turns, strict=True))
            tell(f"{attempts:,} artifacts in memory", theirs, ours, limit)
        attempts, limit, rounds = ON_FILES
        with memory_folder() as folder:
            theirs, in_git = theirs_us(attempts, rounds, str(folder)), ours_us(attempts, rounds, folder)
        tell(f"{attempts:,} artifacts, their DAG in files, ours in memory", theirs, ours_us(attempts, rounds), limit)
        tell(f"{attempts:,} artifacts, their DAG in files, ours in git", theirs, in_git)
    except MissingError as missing:
        print(f"  skipped: {missing}")


def tell(what: str, theirs: list[float], ours: list[float], limit: float | None = None) -> None:
    """Say how both did in as many turns; the limit, where there is one, is for our time as a part of theirs."""
    their_us, our_us = statistics.median(theirs), statistics.median(ours)
    ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    said = "" if limit is None else f"   limit {limit}   {verdict(good=ratio <= limit)}"
    print(
        f"  {what:<52} dsa {our_us:7,.0f} us   AtomicGuard {their_us:7,.0f} us   dsa / AtomicGuard {ratio:6.3f}{said}"
    )


BENCHES = (bench_guarded_loop,)

if __name__ == "__main__":
    how_many, in_rounds, *where = sys.argv[1:]
    print(json.dumps(timed_us(int(how_many), int(in_rounds), *map(Path, where))))
