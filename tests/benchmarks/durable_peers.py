"""Runs that last, beside other engines that keep theirs in SQLite; artifacts, beside another DAG of them.

Every engine does the same work in a process of its own (`durable_peers_work.py`), in the way its documentation shows for runs that must
survive. Processor time is taken where no disk is waited for; what a disk costs is said in fsyncs, which no neighbour on the machine changes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from artifact_runs import attempt, memory_folder, said_of
from fault_shim import preloaded
from outside import MissingError
from timing import verdict

from dsa.edge.git_artifacts import GitArtifacts

HERE = Path(__file__).parent
PEERS = Path(sys.prefix) / "peers"
ENGINES = ("dsa", "LangGraph", "Burr")
WARM_UP, TRANSITIONS, ON_DISK, ROUNDS = 100, 1_000, 2_500, 5
ATTEMPTS, EDGE = 1_000, 50
#: How many times the processor time of ours each peer takes at least (docs/decisions/0026-what-an-effect-costs.md).
LEAST = {"LangGraph": 3.5, "Burr": 0.9}
#: The bytes that a transition left when every run had its ledger twice, and the part of them that it may leave now.
BYTES, PART = 1_373, 0.61


def told(command: list[str], peer: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a peer's program and read what it prints. Raises MissingError."""
    if not Path(command[0]).exists():
        raise MissingError(f"{peer} is not here: run tests/set_up_peers.py")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if f"No module named '{peer.lower()}'" in done.stderr:
        raise MissingError(f"{peer} is not here: run tests/set_up_peers.py")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def took(
    engine: str,
    transitions: int,
    folder: Path,
    *,
    state: str = "fixed",
    warm_up: int = 0,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Have an engine do its work in a folder of its own. Raises MissingError."""
    python = sys.executable if engine == "dsa" else str(PEERS / "durable" / "bin" / "python")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        arguments = [engine, state, str(warm_up), str(transitions), place]
        return told([python, str(HERE / "durable_peers_work.py"), *arguments], engine, environment)


def here(engines: Iterable[str], folder: Path) -> list[str]:
    """Return the engines that are here, and say of the others why not."""
    found = []
    for engine in engines:
        try:
            took(engine, 2, folder)
        except MissingError as missing:
            print(f"  {engine:<10} skipped: {missing}")
        else:
            found.append(engine)
    return found


def bench_durable_processor() -> None:
    """Processor time of a transition when no disk is waited for."""
    print(f"\na durable transition of {TRANSITIONS:,} on tmpfs, processor time, median of {ROUNDS} rounds")
    with memory_folder() as folder:
        engines = here(ENGINES, folder)
        taken: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(ROUNDS):
            for engine in engines:
                took_s = took(engine, TRANSITIONS, folder, warm_up=WARM_UP)["processor_s"]
                taken[engine].append(took_s * 1e6 / TRANSITIONS)
    for engine, times in taken.items():
        print(f"  {engine:<10} {statistics.median(times):9.0f} us")
    for peer, least in LEAST.items():
        if peer in taken:
            ratio = statistics.median(theirs / own for theirs, own in zip(taken[peer], taken["dsa"], strict=True))
            print(f"  {peer + ' / dsa':<18} {ratio:7.2f}   at least {least}   {verdict(good=ratio >= least)}")


def bench_durable_fsyncs() -> None:
    """What a transition asks of a disk."""
    print(f"\na durable transition of {ON_DISK} on disk: fsyncs, and wall time while this disk is as it is now")
    try:
        environment = preloaded()
    except pytest.skip.Exception as missing:
        print(f"  skipped: {missing}")
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as disk:
        engines = here(ENGINES, Path(disk))
        found = {
            engine: took(engine, ON_DISK, Path(disk), warm_up=WARM_UP, environment=environment) for engine in engines
        }
    ours = found["dsa"]["fsyncs"]
    for engine, each in found.items():
        count, wall_ms = each["fsyncs"], each["wall_s"] * 1e3 / ON_DISK
        each_of_ours = ours / ON_DISK
        limit = (
            f"   limit 1.01   {verdict(good=each_of_ours <= 1.01)}"
            if engine == "dsa"
            else f"   dsa no more   {verdict(good=ours <= count)}"
        )
        print(f"  {engine:<10} {count / ON_DISK:6.3f} fsyncs   {wall_ms:8.3f} ms{limit}")


def bench_durable_bytes() -> None:
    """Bytes that a transition leaves, in short and in long runs; where the state has all that was said, too."""
    lengths, growing = (100, 1_000, 10_000), (100, 200, 400, 800)
    print("\nbytes on disk for a transition that gives 300 characters, whole files, by the length of the run")
    with memory_folder() as folder:
        engines = here(ENGINES, folder)
        rows: dict[tuple[str, str], list[float]] = {}
        for engine in engines:
            rows[engine, "fixed"] = [took(engine, length, folder)["bytes"] / length for length in lengths]
        for engine in engines:
            sizes = [took(engine, length, folder, state="growing")["bytes"] / length for length in growing]
            rows[engine, "growing"] = sizes
    for state, columns in (("fixed", lengths), ("growing", growing)):
        print(
            f"  {'a state of fixed size' if state == 'fixed' else 'all texts are kept':<22}"
            + "".join(f"{n:>10,}" for n in columns)
        )
        for engine in engines:
            print(f"    {engine:<20}" + "".join(f"{size:10,.0f}" for size in rows[engine, state]))
    ours = rows["dsa", "fixed"]
    flat = ours[-1] / ours[-2]
    print(
        f"  dsa, 10,000           {ours[-1]:8.0f}   limit {PART * BYTES:.0f}   {verdict(good=ours[-1] <= PART * BYTES)}"
    )
    print(f"  dsa, 10,000 / 1,000   {flat:8.2f}   limit 1.1   {verdict(good=flat <= 1.1)}")
    if "LangGraph" in engines:
        grown = rows["LangGraph", "growing"]
        own = rows["dsa", "growing"]
        print(f"  all texts kept, 800 / 100: dsa {own[-1] / own[0]:.2f}, LangGraph {grown[-1] / grown[0]:.2f}")


def bench_artifact_dag() -> None:
    """Our git store beside AtomicGuard's DAG in files, which syncs nothing."""
    print(
        f"\nstoring {ATTEMPTS:,} judged attempts of one step on tmpfs, wall milliseconds, medians; the provenance of all, new handle"
    )
    with memory_folder() as folder:
        rows = {"git store": dag_in_git(folder / "a.git")}
        try:
            rows["AtomicGuard"] = dag_of_atomicguard(folder / "dag")
        except MissingError as missing:
            print(f"  AtomicGuard skipped: {missing}")
    for name, (taken, provenance_ms) in rows.items():
        first, last = statistics.median(taken[:EDGE]), statistics.median(taken[-EDGE:])
        print(f"  {name:<12} {statistics.median(taken):7.3f} ms   first {EDGE} {first:7.3f}   last {EDGE} {last:7.3f}   "
              f"last / first {last / first:6.2f}   provenance {provenance_ms:6.1f} ms")  # fmt: skip


def dag_in_git(repository: Path) -> tuple[list[float], float]:
    """Store attempts and their verdicts in our git store; return the time of each pair, and that of all with their texts."""
    store, taken, made = GitArtifacts(repository, "r"), [], None
    for number in range(1, ATTEMPTS + 1):
        artifact, begun = attempt(number, made), time.perf_counter()
        made = store.store(artifact, "llm")
        store.record_verdict(said_of(made))
        taken.append((time.perf_counter() - begun) * 1e3)
    assert made is not None
    begun = time.perf_counter()
    assert len(GitArtifacts(repository, "r").get_provenance(made.artifact_id)) == ATTEMPTS
    return taken, (time.perf_counter() - begun) * 1e3


def dag_of_atomicguard(folder: Path) -> tuple[list[float], float]:
    """Do the same in AtomicGuard's. Raises MissingError."""
    python = str(PEERS / "atomicguard" / "bin" / "python")
    said = told([python, str(HERE / "durable_peers_dag.py"), str(ATTEMPTS), str(folder)], "AtomicGuard")
    return list(said["stores_ms"]), float(said["provenance_ms"])


BENCHES = (bench_durable_processor, bench_durable_fsyncs, bench_durable_bytes, bench_artifact_dag)
