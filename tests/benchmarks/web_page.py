"""The web page: processor time until the first page, from a commit to the page, and the cost of ten open pages; against a Starlette page of twenty lines.

The run is written here, and both servers are processes that read its folder.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import httpx
from timing import verdict

import dsa

LENGTHS, TICKS, PAGES = (0, 5_000, 50_000), 60, 10
MEDIAN_MS, P95_MS, TIMES_PEER, FIRST_PAGE_S, OPENING_S, MOMENT_MS = 60, 200, 2, 1, 1, 30
COUNTER = """# counter
## Events
| event | from |
| - | - |
| tick | outside |
## States
| state | kind |
| - | - |
| idle | initial |
| counting | |
## Transitions
| source | event | target |
| - | - | - |
| idle | tick | counting |
| counting | tick | counting |
"""
PEER = """
import asyncio, sqlite3, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

async def live(request):
    async def commits():
        database, version = sqlite3.connect(sys.argv[1]), None
        while True:
            now = database.execute("PRAGMA data_version").fetchone()
            if now != version:
                version = now
                yield f"data: {database.execute('SELECT line FROM entries ORDER BY place DESC LIMIT 1').fetchone()!r}\\n\\n"
            await asyncio.sleep(0.02)
    return StreamingResponse(commits(), media_type="text/event-stream")

print("http://127.0.0.1:" + sys.argv[2] + "/", flush=True)
uvicorn.run(Starlette(routes=[Route("/live", live)]), port=int(sys.argv[2]), log_level="error")
"""


@attrs.frozen
class PageServer:
    """A server in a process of its own, and a client that it lets in."""

    process: subprocess.Popen[str]
    client: httpx.AsyncClient

    @property
    def cpu_s(self) -> float:
        """The processor time that its process has taken, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def page_server(*command: str) -> AsyncIterator[PageServer]:
    """Run a server that prints its address, and visit the address until there is an answer."""
    process = subprocess.Popen(  # noqa: ASYNC220  (once, before anything is timed)
        [sys.executable, *command], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    base = address.partition("/?")[0]
    try:
        async with httpx.AsyncClient(base_url=base, follow_redirects=True, timeout=60) as client:
            for _ in range(100):
                try:
                    await client.get(address)
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)
            yield PageServer(process, client)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class OpenPage:
    """A page that is open: the times at which something came."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self.came = asyncio.Event()
        self.is_open = asyncio.Event()
        self.came_at = 0.0
        self.task = asyncio.create_task(self._listen(client, address))

    async def _listen(self, client: httpx.AsyncClient, address: str) -> None:
        async with client.stream("GET", address) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    self.came_at = time.perf_counter()
                    self.is_open.set()
                    self.came.set()


class Commits:
    """The time of the last commit; the journal calls it at each moment as soon as it is durable."""

    def __init__(self) -> None:
        self.last_at = 0.0

    def take(self, _moment: dsa.Moment, _is_new: bool) -> None:  # noqa: FBT001  (as it is called)
        """Record the time."""
        self.last_at = time.perf_counter()


async def latencies_ms(run: dsa.RunHandle, commits: Commits, page: OpenPage) -> list[float]:
    """Return the milliseconds from each of some commits to the page."""
    await asyncio.wait_for(page.is_open.wait(), 30)
    await asyncio.sleep(0.5)
    taken = []
    for _ in range(TICKS):
        page.came.clear()
        await run.send("tick")
        await asyncio.wait_for(page.came.wait(), 30)
        taken.append((page.came_at - commits.last_at) * 1e3)
        await asyncio.sleep(0.03)
    return taken


def p95(taken: list[float]) -> float:
    """Return the value that 19 of 20 stay below."""
    return statistics.quantiles(taken, n=20)[-1]


async def at_length(folder: Path, length: int) -> None:
    """Measure with a run of some moments."""
    file, place = folder / "counter.md", folder / f"runs{length}"
    file.write_text(COUNTER)
    async with dsa.open_runs(place) as runs:
        commits = Commits()
        run = await runs.start(file, on_moment=commits.take)
        for _ in range(length // 2):
            await run.send("tick")
        async with page_server("-m", "dsa", "web", str(file), "--runs", str(place)) as ours:
            first_s = ours.cpu_s
            begun = time.perf_counter()
            page = await ours.client.get(f"/runs/{run.id}")
            opening_s = time.perf_counter() - begun
            assert page.status_code == 200
            live = f"/runs/{run.id}/live?have=&after={length}"
            pages = [OpenPage(ours.client, live)]
            own = await latencies_ms(run, commits, pages[0])
            pages += [OpenPage(ours.client, live) for _ in range(PAGES - 1)]
            await asyncio.gather(*(each.is_open.wait() for each in pages))
            before = ours.cpu_s
            await latencies_ms(run, commits, pages[-1])
            moment_ms = (ours.cpu_s - before) * 1e3 / (2 * TICKS)
            for each in pages:
                each.task.cancel()
        async with page_server("-c", PEER, str(place / "ledger.db"), "8765") as theirs:
            page_of_theirs = OpenPage(theirs.client, "/live")
            peer = await latencies_ms(run, commits, page_of_theirs)
            page_of_theirs.task.cancel()
    ratio = statistics.median(own) / statistics.median(peer)
    print(f"\nthe web page, a run of {length:,} moments")
    print(
        f"  to the first page      {first_s:.2f} s CPU, limit {FIRST_PAGE_S} s   {verdict(good=first_s <= FIRST_PAGE_S)}"
    )
    print(f"  the run opens in       {opening_s:.2f} s, limit {OPENING_S} s   {verdict(good=opening_s <= OPENING_S)}")
    print(
        f"  commit to page, median {statistics.median(own):.0f} ms, limit {MEDIAN_MS} ms   {verdict(good=statistics.median(own) <= MEDIAN_MS)}"
    )
    print(f"  commit to page, p95    {p95(own):.0f} ms, limit {P95_MS} ms   {verdict(good=p95(own) <= P95_MS)}")
    print(f"  / twenty lines of Starlette {ratio:.2f}, limit {TIMES_PEER}   {verdict(good=ratio <= TIMES_PEER)}")
    print(
        f"  {PAGES} pages              {moment_ms:.1f} ms CPU a moment, limit {MOMENT_MS} ms   {verdict(good=moment_ms <= MOMENT_MS)}"
    )


def bench_web() -> None:
    """First page, commit to page, ten open pages, at 0, 5,000 and 50,000 moments."""
    with tempfile.TemporaryDirectory() as folder:
        for length in LENGTHS:
            asyncio.run(at_length(Path(folder), length))


BENCHES = (bench_web,)
