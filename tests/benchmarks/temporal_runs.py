"""Runs on a Temporal server: what an effect costs beside a bare activity, what a second worker brings, and what many or long runs need.

`make bench-temporal` starts a server and its workers, prints one line for each figure, and ends with 1 if a limit is missed.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from temporal_server import MISSING, server, temporal_program
from temporalio import activity, workflow
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import Worker
from timing import missed, verdict

import dsa
from dsa.temporal.payloads import CONVERTER, QUEUE

EFFECTS, ROUNDS, RUNS, LONG = 60, 4, 500, int(os.environ.get("EFFECTS", "5000"))
#: The runs of each of three parts that wait: the worker's memory levels off after some 3,000.
WAITING = int(os.environ.get("WAITING", "3334"))
BINDINGS = """import asyncio

import dsa


@dsa.answering("made")
async def make(action, context):
    return [dsa.event_step("make", "made", data={"text": "x" * 80})]


@dsa.answering("slept")
async def nap(action, context):
    await asyncio.sleep(0.2)
    return [dsa.event_step("nap", "slept")]


effects = {"make": make, "nap": nap}
"""


def loop_of(name: str, effect: str, answer: str, count: int) -> str:
    """Return a document that performs an effect some times, one after the other."""
    return f"""# {name}
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| done | final |
## Events
| event | from |
| - | - |
| order | outside |
| {answer} | {effect} |
## Variables
| variable | domain | initial |
| - | - | - |
| n | 0..{count} | 0 |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | order | | | {effect} | busy |
| busy | {answer} | n < {count - 1} | n += 1 | {effect} | = |
| busy | {answer} | else | | | done |
"""


BESIDE = """# beside
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| done | final |
## Events
| event | from |
| - | - |
| order | outside |
| slept | nap |
## Effects
| effect | at once |
| - | - |
| nap | 9 |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | order | | nap, nap, nap, nap | busy |
| busy | slept | pending nap | | = |
| busy | slept | else | | done |
"""
WAIT = """# wait
## States
| state | kind |
| - | - |
| idle | initial |
| asked | |
| done | final |
## Events
| event | from |
| - | - |
| order | outside |
| approved | outside |
## Transitions
| source | event | target |
| - | - | - |
| idle | order | asked |
| asked | approved | done |
| asked | after 30d | done |
"""


@activity.defn(name="bare")
async def bare(request: Any) -> Any:
    return {"steps": [{"actor": "make", "type": "event", "payload": {"event": "made", "data": {"text": "x" * 80}}}]}


@workflow.defn(name="bare", sandboxed=False)
class BareWorkflow:
    """As many activities as a run has effects, and nothing else."""

    @workflow.run
    async def run(self, count: int) -> None:
        for number in range(count):
            await workflow.execute_activity(
                "bare",
                {"run": "bare", "key": "1/1", "effect": "make", "root": 1, "payload": {"data": {"text": "x" * 80}}},
                activity_id=f"{number}:1:make",
                start_to_close_timeout=timedelta(seconds=60),
                heartbeat_timeout=timedelta(seconds=15),
            )


def rss_mb(process: int) -> float:
    """Return the resident memory of a process, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def until_polled(where: str, pids: list[int]) -> None:
    """Wait until these processes ask for work. The server lists those that have ended, too, for some minutes."""
    host, _, namespace = where.removeprefix("temporal://").partition("/")
    client = await Client.connect(host, namespace=namespace)
    queue = TaskQueue(name=QUEUE)
    request = DescribeTaskQueueRequest(
        namespace=namespace, task_queue=queue, task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    )
    present = set[str]()
    while not {str(pid) for pid in pids} <= present:
        answer = await client.workflow_service.describe_task_queue(request)
        present = {each.identity.partition("@")[0] for each in answer.pollers}
        await asyncio.sleep(0.2)


@asynccontextmanager
async def workers(folder: Path, where: str, count: int, slots: int) -> AsyncIterator[list[int]]:
    """Start workers, each with some slots; yield their process ids, and stop them."""
    command = [sys.executable, "-m", "dsa", "work", str(folder), "--runs", where, "--limit", str(slots)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [await asyncio.create_subprocess_exec(*command, cwd=folder, **quiet) for _ in range(count)]
    try:
        pids = [each.pid for each in processes]
        await until_polled(where, pids)
        yield pids
    finally:
        for each in processes:
            each.terminate()
        for each in processes:
            await each.wait()


async def span_s(client: Client, run_id: str) -> tuple[float, int]:
    """Return how long a workflow took, in seconds, and the number of its events."""
    events = (await client.get_workflow_handle(run_id).fetch_history()).events
    begun, ended = (each.event_time.ToDatetime() for each in (events[0], events[-1]))
    return (ended - begun).total_seconds(), len(events)


async def start_all(runs: dsa.Runs, file: Path, count: int, name: str) -> list[str]:
    """Start many runs, 50 at a time."""
    ids = [f"{name}{number}" for number in range(count)]
    for first in range(0, count, 50):
        together = ids[first : first + 50]
        await asyncio.gather(*(runs.start(file, "go", run_id=each) for each in together))
    return ids


async def all_done(client: Client, ids: list[str]) -> None:
    await asyncio.gather(*(client.get_workflow_handle(each).result() for each in ids))


async def bench_effect(client: Client, runs: dsa.Runs, folder: Path, where: str) -> None:
    """Compare an effect with a bare activity, in turns, each on a worker process of its own kind in this run."""
    file = folder / "steps.md"
    file.write_text(loop_of("steps", "make", "made", EFFECTS))
    bare_worker = Worker(client, task_queue="bare", workflows=[BareWorkflow], activities=[bare])
    ratios, ours, others, events = [], [], [], 0.0
    async with workers(folder, where, 1, 16), bare_worker:
        for number in range(ROUNDS):
            await client.execute_workflow("bare", EFFECTS, id=f"bare{number}", task_queue="bare")
            await all_done(client, await start_all(runs, file, 1, f"steps{number}x"))
            (its_s, _), (our_s, count) = await span_s(client, f"bare{number}"), await span_s(client, f"steps{number}x0")
            ours.append(our_s / EFFECTS * 1000)
            others.append(its_s / EFFECTS * 1000)
            ratios.append(our_s / its_s)
            events = count / EFFECTS
    ratio = statistics.median(ratios)
    print(
        f"an effect: {statistics.median(ours):.1f} ms, a bare activity {statistics.median(others):.1f} ms, "
        f"{ratio:.2f} x (limit 1.3)  {verdict(good=ratio <= 1.3)}"
    )
    print(f"history events an effect: {events:.2f} (limit 6.2)  {verdict(good=events <= 6.2)}")


async def bench_two_workers(client: Client, runs: dsa.Runs, folder: Path, where: str) -> None:
    """Compare two workers with one, in turns: what else the machine does changes from minute to minute."""
    file = folder / "beside.md"
    file.write_text(BESIDE)
    taken_s: dict[int, list[float]] = {1: [], 2: []}
    for number in range(ROUNDS):
        for count, times in taken_s.items():
            async with workers(folder, where, count, 4):
                begun = time.monotonic()
                await all_done(client, await start_all(runs, file, 30, f"beside{number}x{count}x"))
                times.append(time.monotonic() - begun)
    ratio = statistics.median(one / two for one, two in zip(*taken_s.values(), strict=True))
    one_s, two_s = (" ".join(f"{each:.1f}" for each in times) for times in taken_s.values())
    print(
        f"30 runs of 4 effects of 200 ms, 4 slots a worker: one worker {one_s} s, two {two_s} s, "
        f"{ratio:.2f} x (median, limit 1.8)  {verdict(good=ratio >= 1.8)}"
    )


async def bench_in_flight(client: Client, runs: dsa.Runs, folder: Path, where: str) -> None:
    file = folder / "naps.md"
    file.write_text(loop_of("naps", "nap", "slept", 3))
    async with workers(folder, where, 1, 100) as (process,):
        before, begun = rss_mb(process), time.monotonic()
        ids = await start_all(runs, file, RUNS, "naps")
        await all_done(client, ids)
        took_s, after = time.monotonic() - begun, rss_mb(process)
    print(
        f"{RUNS} runs in flight on one worker: {took_s:.0f} s, {RUNS * 3 / took_s:.0f} effects a second, worker {before:.0f} to {after:.0f} MB"
    )


async def all_wait(client: Client, count: int) -> None:
    """Wait until that many runs wait."""
    while (await client.count_workflows("DsaStatus = 'waiting'")).count < count:  # noqa: ASYNC110  (the server is asked)
        await asyncio.sleep(0.5)


async def bench_waiting(client: Client, runs: dsa.Runs, folder: Path, where: str) -> None:
    """Let a sample of runs wait, and see what one more costs a worker that has let go of the first ones."""
    file = folder / "wait.md"
    file.write_text(WAIT)
    async with workers(folder, where, 1, 16) as (process,):
        begun, sizes, answered_ms = time.monotonic(), list[float](), list[float]()
        for part in range(3):
            ids = await start_all(runs, file, WAITING, f"wait{part}x")
            await all_wait(client, (part + 1) * WAITING)
            sizes.append(rss_mb(process))
        took_s = time.monotonic() - begun
        for run_id in ("wait0x0", ids[0]):  # the worker has let go of the first one
            asked = time.monotonic()
            await runs.send(run_id, "approved")
            await client.get_workflow_handle(run_id).result()
            answered_ms.append((time.monotonic() - asked) * 1000)
    each_kb = (sizes[-1] - sizes[0]) / (2 * WAITING) * 1024
    print(
        f"{3 * WAITING} runs waiting: {took_s:.0f} s, {3 * WAITING / took_s:.0f} a second, an answer to the first {answered_ms[0]:.0f} ms, to a newer one {answered_ms[1]:.0f} ms, worker {' '.join(f'{each:.0f}' for each in sizes)} MB, "
        f"{each_kb:.1f} kB for one more (limit 5)  {verdict(good=each_kb <= 5)}"
    )


async def bench_long(client: Client, runs: dsa.Runs, folder: Path, where: str) -> None:
    file = folder / "long.md"
    file.write_text(loop_of("long", "make", "made", LONG))
    async with workers(folder, where, 1, 16) as (process,):
        begun, sizes = time.monotonic(), list[float]()
        (run_id,) = await start_all(runs, file, 1, "long")
        handle = client.get_workflow_handle(run_id)
        done, count = asyncio.create_task(handle.result()), 1
        while not done.done():
            await asyncio.wait({done}, timeout=5)
            made = (await handle.query("counters")).get("effects", {}).get("make", 0)
            if made >= count * LONG / 5:
                sizes.append(rss_mb(process))
                count += 1
        took_s = time.monotonic() - begun
        executions = [each async for each in client.list_workflows(f"WorkflowId = '{run_id}'")]
        longest = max([each.history_length or 0 for each in executions])
        entries = len(runs.entries(run_id))
    print(
        f"{LONG} effects in one run: {took_s:.0f} s, {len(executions)} executions, the longest history {longest} events, {entries} entries in the story, "
        f"worker {' '.join(f'{each:.0f}' for each in sizes)} MB (limit: 1.3 x)  {verdict(good=sizes[-1] <= 1.3 * sizes[0])}"
    )


BENCHES: tuple[Callable[..., Awaitable[None]], ...] = (
    bench_effect,
    bench_two_workers,
    bench_in_flight,
    bench_waiting,
    bench_long,
)


async def whole(addresses: list[str], names: list[str]) -> None:
    chosen = [each for each in BENCHES if not names or each.__name__.removeprefix("bench_") in names]
    for bench, where in zip(chosen, addresses, strict=False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "bindings.py").write_text(BINDINGS)
            host, _, namespace = where.removeprefix("temporal://").partition("/")
            client = await Client.connect(host, namespace=namespace, data_converter=CONVERTER)
            async with dsa.open_runs(where) as runs:
                await bench(client, runs, folder, where)
            sys.stdout.flush()


def main() -> None:
    if temporal_program() is None:
        print(MISSING)
        return
    with server(len(BENCHES), is_measured=True) as addresses:
        asyncio.run(whole(addresses, sys.argv[1:]))
    sys.exit(1 if missed() else 0)


if __name__ == "__main__":
    main()
