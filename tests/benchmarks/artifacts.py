"""Artifacts in git: what one costs, whether that grows, what durability costs, and what the naive way costs.

Wall time, since a disk is waited for; the naive way syncs nothing.
"""

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import git
from artifact_runs import attempt, filled, memory_folder, open_files, said_of
from os_calls import handled
from timing import verdict

from dsa.edge.git_artifacts import GitArtifacts
from dsa.runtime.artifacts import ArtifactStore, MemoryArtifacts

MANY, SOME, EDGE, ATTEMPTS, RUNS = 10_000, 500, 500, 1_000, 2_000


def timed_ms(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def stores(store: ArtifactStore, count: int) -> list[float]:
    """Store a chain of attempts; return the milliseconds of each."""
    taken, made = [], None
    for number in range(1, count + 1):
        artifact = attempt(number, made)
        begun = time.perf_counter()
        made = store.store(artifact, "llm")
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken


def naive(folder: Path, count: int) -> list[float]:
    """Write a file for each attempt, add it to the index, commit: what GitPython's tutorial shows."""
    repository, taken = git.Repo.init(folder), []
    for number in range(1, count + 1):
        begun = time.perf_counter()
        file = folder / f"impl-{number}.txt"
        file.write_text(attempt(number).content)
        repository.index.add([str(file)])
        repository.index.commit(f"impl attempt {number}")
        taken.append((time.perf_counter() - begun) * 1e3)
    repository.close()
    return taken


def growth(taken: list[float]) -> float:
    """Return the median of the last over that of the first."""
    return statistics.median(taken[-EDGE:]) / statistics.median(taken[:EDGE])


def bench_git_store() -> None:
    """One artifact in memory, in git on tmpfs, in the naive way."""
    with memory_folder() as folder:
        ours = stores(GitArtifacts(folder / "a.git", "r"), MANY)
        theirs = naive(folder / "naive", SOME)
        in_memory = stores(MemoryArtifacts(), MANY)
    median, grown = statistics.median(ours), growth(ours)
    early = statistics.median(ours[:SOME])
    ratio = statistics.median(theirs) / early
    print(f"\nstoring an artifact on tmpfs, wall milliseconds, medians; {MANY:,} in one run")
    print(f"  git store                       {median:8.3f} ms   limit 3      {verdict(good=median <= 3)}")
    print(f"  last {EDGE} / first {EDGE}             {grown:8.2f}      limit 1.5    {verdict(good=grown <= 1.5)}")
    print(
        f"  index.add + commit, {SOME}         {statistics.median(theirs):8.3f} ms   {ratio:.1f} x git store's first {SOME}"
    )
    print(f"    its last 50 / first 50        {statistics.median(theirs[-50:]) / statistics.median(theirs[:50]):8.2f}")
    print(
        f"  in memory                       {statistics.median(in_memory):8.4f} ms   last / first {growth(in_memory):.2f}"
    )


def bench_git_disk() -> None:
    """What it costs that an artifact is on disk when `store` returns, beside what one fsync costs at the same time."""
    counted = [0]

    def handle(name: str, _: object, perform: Callable[[], object]) -> object:
        counted[0] += name == "fsync"
        return perform()

    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as disk, memory_folder() as memory:
        one_fsync, on_disk, judged, made = [], [], [], None
        store = GitArtifacts(Path(disk) / "a.git", "r")
        fast = statistics.median(stores(GitArtifacts(memory / "a.git", "r"), 300))
        for number in range(1, 301):
            one_fsync.append(timed_ms(lambda number=number: synced(Path(disk) / str(number))))
            begun = time.perf_counter()
            made = store.store(attempt(number, made), "llm")
            on_disk.append((time.perf_counter() - begun) * 1e3)
            judged.append(timed_ms(lambda made=made: store.record_verdict(said_of(made))))
        with handled(handle):
            made = store.store(attempt(301, made), "llm")
            syncs, counted[0] = counted[0], 0
            store.record_verdict(said_of(made))
    raw, median, verdicts = (statistics.median(taken) for taken in (one_fsync, on_disk, judged))
    print("\nstoring an artifact on disk, wall milliseconds, medians of 300")
    print(f"  one file written and synced     {raw:8.3f} ms")
    print(
        f"  artifact, {syncs} fsyncs             {median:8.3f} ms   {median / raw:.1f} x one file, {median / fast:.1f} x tmpfs"
    )
    print(f"  verdict, {counted[0]} fsyncs              {verdicts:8.3f} ms   {verdicts / raw:.1f} x one file")


def synced(path: Path) -> None:
    """Write a small file and wait for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"x" * 300)
    os.fsync(descriptor)
    os.close(descriptor)


def processor_ms(work: Callable[[], object]) -> float:
    """Return the processor time of one call, that of processes which it starts and waits for included."""
    begun = processor_s()
    work()
    return (processor_s() - begun) * 1e3


def processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def bench_git_provenance() -> None:
    """The provenance of a long chain, in a new handle, before and after `git gc`."""
    with memory_folder() as folder:
        _, made = filled(folder / "a.git", ATTEMPTS, "r")
        last = made[-1].artifact_id
        asked: dict[str, Callable[[], object]] = {
            "open": lambda: GitArtifacts(folder / "a.git", "r"),
            "without texts": lambda: GitArtifacts(folder / "a.git", "r").lineage(last),
            "with texts": lambda: GitArtifacts(folder / "a.git", "r").get_provenance(last),
        }
        print(f"\nprovenance of {ATTEMPTS:,} attempts with their verdicts, a new handle each time, medians of 9")
        for state in ("loose objects", "after git gc"):
            for name, work in asked.items():
                median = statistics.median(processor_ms(work) for _ in range(9))
                wall = statistics.median(timed_ms(work) for _ in range(9))
                limit = f"   limit 150    {verdict(good=median <= 150)}" if name == "without texts" else ""
                print(f"  {state:<14} {name:<14} {wall:8.1f} ms, processor {median:6.1f} ms{limit}")
            git.Git(str(folder / "a.git")).gc("--quiet", "--prune=now")


def bench_git_runs() -> None:
    """Many runs on one repository, all handles kept."""
    with memory_folder() as folder:
        opened, before_mb = open_files(), peak_mb()
        handles = [GitArtifacts(folder / "a.git", f"r{number}") for number in range(RUNS)]
        taken = [timed_ms(lambda store=store: store.store(attempt(1))) for store in handles]
        more = open_files() - opened
        print(f"\n{RUNS:,} runs on one repository, a handle each: {statistics.median(taken):.3f} ms an artifact, last / first "
              f"{growth(taken):.2f}, {more} more open files, {peak_mb() - before_mb:.0f} MB more memory at the peak")  # fmt: skip


def peak_mb() -> float:
    """Return the most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


BENCHES = (bench_git_store, bench_git_disk, bench_git_provenance, bench_git_runs)
