"""kill -9 of workers and of the server: what is recorded does not happen again, an effect in doubt is handled as its table says, and every run ends.

Two workers share a namespace. A policy ends its own process once for each run, at one of the boundaries of an effect; another worker is started for
each that is gone. Runs go side by side, so what one kills is in doubt for others, too.
"""

import asyncio
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from temporal_crew import crew
from temporal_server import MISSING, DurableServer, at_work, server, temporal_program, until, worker

import dsa
from dsa.lang import loads
from dsa.runs.runs import Resumption
from dsa.runtime.ledger import EffectEntry, ResultEntry, ResumedEntry
from dsa.runtime.run import Run, rederive
from dsa.runtime.run_store import StoreError
from dsa.temporal.temporal_runs import TemporalRuns

T = TypeVar("T")

ORDER = """# {name}

## States
| state | kind |
| --- | --- |
| idle | initial |
| looking | |
| paying | |
| end.paid | final |
| end.failed | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| found | look |
| paid | pay |

## Effects
| effect | in doubt |
| --- | --- |
| look | {handling} |
| pay | retry |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | order | looking | look |
| looking | found | paying | pay |
| looking | look.failed | end.failed | |
| paying | paid | end.paid | |
"""
BINDINGS = """import asyncio
import os
import threading
from pathlib import Path

import dsa

HERE = Path(__file__).parent


def log(context):
    with (HERE / "begun").open("a") as file:
        file.write(context.key + "\\n")


def kill(context, boundary):
    mark = HERE / f"{boundary}.{context.key.split('/')[0]}"
    if mark.exists():
        mark.unlink()
        delay_s = 0.05 if boundary == "later" else 0
        threading.Timer(delay_s, os.kill, (os.getpid(), 9)).start()
        return boundary != "later"
    return False


@dsa.answering("found")
async def look(action, context):
    if kill(context, "before"):
        await asyncio.sleep(60)
    log(context)
    if kill(context, "after"):
        await asyncio.sleep(60)
    kill(context, "later")
    return [dsa.event_step("look", "found", data={"n": 1})]


@dsa.answering("paid")
async def pay(action, context):
    log(context)
    await asyncio.sleep(1)
    return [dsa.event_step("pay", "paid")]


effects = {"look": look, "pay": pay}
"""
#: Before the effect has happened, after it, and after it was reported.
BOUNDARIES = ("before", "after", "later")
HANDLINGS = ("retry", "ask", "fail")
SAMPLE = (("before", "retry"), ("after", "ask"), ("after", "fail"), ("later", "retry"))


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[DurableServer]:
    if temporal_program() is None:
        pytest.skip(MISSING)
    with DurableServer(tmp_path / "server.db") as server:
        yield server


def check(run: Run, text: str, begun: Counter[str]) -> None:
    """Check that a run's story is that of its table, and that each effect has begun no more often than its story says."""
    ledger = run.ledger
    assert rederive(loads(text, "order.md").at(), ledger).ledger == ledger
    retries = Counter(
        key for entry in ledger if isinstance(entry, ResumedEntry) for key, how in entry.effects if how == "retry"
    )
    results = Counter(entry.key for entry in ledger if isinstance(entry, ResultEntry))
    for entry in ledger:
        if isinstance(entry, EffectEntry):
            assert results[entry.key] == 1
            tries = sum(count for key, count in begun.items() if key.startswith(f"{run.run_id}/{entry.key}/"))
            assert tries <= 1 + retries[entry.key]


def marks(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.split(".")[0] in BOUNDARIES]


async def ends(runs: dsa.Runs, run: dsa.RunHandle) -> dsa.Rest:
    """Wait until a run is finished; a person performs again what is in doubt, and asks again while no worker answers."""
    while True:
        try:
            rest = await run.rest()
        except StoreError as error:
            if error.code != "NoAnswerError":
                raise
            continue
        if rest.kind == "finished":
            return rest
        if rest.kind == "in doubt":
            assert [each.effect for each in rest.in_doubt] == ["look"]
            retry = Resumption(decisions={each.key: "retry" for each in rest.in_doubt})
            await runs.resume(run.id, resumption=retry)
        await run.change()


async def whole(folder: Path, server: DurableServer, cases: list[tuple[str, str]], *, kills_server: bool) -> None:
    (folder / "bindings.py").write_text(BINDINGS)
    texts = {handling: ORDER.format(name=f"order_{handling}", handling=handling) for handling in HANDLINGS}
    for handling, text in texts.items():
        (folder / f"{handling}.md").write_text(text)
    command = [sys.executable, "-m", "dsa", "work", str(folder), "--runs", server.where]
    async with dsa.open_runs(server.where) as runs, crew(folder, command) as workers:
        started = []
        for number, (boundary, handling) in enumerate(cases):
            name = f"{handling}{number}"
            (folder / f"{boundary}.{name}").touch()
            started.append((await runs.start(folder / f"{handling}.md", "go", run_id=name), handling))
        if kills_server:
            while not (folder / "begun").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await asyncio.to_thread(server.kill_and_start)
        outcomes = [(await ends(runs, run), handling) for run, handling in started]
        assert workers.loss_count > 0
        # Each kill has struck, but where another's kill had the effect fail before.
        assert not [mark for mark in marks(folder) if not mark.name.partition(".")[2].startswith("fail")]
        log = folder / "begun"  # not there if every effect was lost before it happened, and is not repeated
        begun = Counter(log.read_text().split() if log.exists() else ())
        for rest, handling in outcomes:
            check(rest.run, texts[handling], begun)
            assert rest.outcome == "paid" or handling == "fail"


@pytest.mark.limit(120)
def test_killed_workers_and_server_lose_and_repeat_nothing(tmp_path: Path, durable: DurableServer) -> None:
    asyncio.run(asyncio.wait_for(whole(tmp_path, durable, list(SAMPLE), kills_server=True), 110))


@pytest.mark.full
@pytest.mark.limit(300)
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("handling", HANDLINGS)
def test_kill_at_each_boundary_loses_and_repeats_nothing(
    boundary: str, handling: str, tmp_path: Path, durable: DurableServer
) -> None:
    cases = [(boundary, handling)] * 2
    asyncio.run(asyncio.wait_for(whole(tmp_path, durable, cases, kills_server=False), 200))


#: An effect that never ends, or ends its process, until the file `calm` is there.
RESTLESS = """import asyncio
import os
from pathlib import Path

import dsa

HERE = Path(__file__).parent


@dsa.answering("found")
async def look(action, context):
    with (HERE / "begun").open("a") as file:
        file.write(context.key + "\\n")
    if not (HERE / "calm").exists():
        if (HERE / "deadly").exists():
            os.kill(os.getpid(), 9)
        await asyncio.sleep(60)
    return [dsa.event_step("look", "found", data={"n": 1})]


@dsa.answering("paid")
async def pay(action, context):
    return [dsa.event_step("pay", "paid")]


effects = {"look": look, "pay": pay}
"""
#: How often an effect is performed before its run stops: once, and three times more.
MOST_TRIES = 4


async def stops_and_is_resumed(runs: dsa.Runs, run: dsa.RunHandle, folder: Path) -> None:
    """Check that a run has stopped, with a reason, and continues once the cause is gone."""
    rest = await run.rest()
    assert (rest.kind, len((folder / "begun").read_text().split())) == ("stopped", MOST_TRIES)
    assert str(rest.failure).startswith("look (line ")
    assert (
        "its worker was lost 4 times or more while this effect was under way; remove the cause, then resume the run"
        in str(rest.failure)
    )
    (folder / "calm").touch()
    rest = await (await runs.resume(run.id)).rest()
    assert (rest.outcome, len((folder / "begun").read_text().split())) == ("paid", MOST_TRIES + 1)
    check(rest.run, (folder / "retry.md").read_text(), Counter((folder / "begun").read_text().split()))


def restless(folder: Path) -> Path:
    (folder / "bindings.py").write_text(RESTLESS)
    (folder / "retry.md").write_text(ORDER.format(name="order_retry", handling="retry"))
    return folder / "retry.md"


def test_run_stops_if_its_effect_is_lost_with_every_worker(tmp_path: Path) -> None:
    """Workers that end in order lose what they perform, too, and that is known at once."""
    if temporal_program() is None:
        pytest.skip(MISSING)

    async def begins(count: int) -> None:
        while not (tmp_path / "begun").exists() or len((tmp_path / "begun").read_text().split()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def whole(where: str) -> None:
        async with dsa.open_runs(where) as runs:
            run = await runs.start(restless(tmp_path), "go", run_id="retry")
            for count in range(1, MOST_TRIES + 1):
                async with worker(where):
                    await begins(count)
            async with worker(where):
                await stops_and_is_resumed(runs, run, tmp_path)

    with server(1) as (where,):
        asyncio.run(asyncio.wait_for(whole(where), 50))


GUARDED = """# guarded

## States
| state | kind |
| --- | --- |
| idle | initial |
| end.sent | final |
| end.left | final |

## Events
| event | from |
| --- | --- |
| order | outside |

## Guards
| guard | judges |
| --- | --- |
| careful | order |

## Transitions
| source | event | if | target |
| --- | --- | --- | --- |
| idle | order | careful.passed | end.sent |
| idle | order | else | end.left |
"""
CAREFUL = """import asyncio
from pathlib import Path

from dsa.runtime.content import GuardInterface, GuardResult

HERE = Path(__file__).parent


class Careful(GuardInterface):
    blocks = False

    async def validate(self, artifact, **dependencies):
        with (HERE / "begun").open("a") as file:
            file.write("judging\\n")
        if not (HERE / "calm").exists():
            await asyncio.sleep(60)
        return GuardResult(True, "")


guards = {"careful": Careful()}
"""


def test_guard_call_lost_with_two_workers_is_repeated(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """A verdict that was never reported changes nothing: the third worker gets the same call as the first one."""
    (tmp_path / "guarded.md").write_text(GUARDED)
    (tmp_path / "bindings.py").write_text(CAREFUL)
    begun = tmp_path / "begun"

    async def whole(where: str) -> None:
        async with dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "guarded.md", "go", run_id="guarded")
            for count in (1, 2):
                async with worker(where):
                    while not begun.exists() or len(begun.read_text().split()) < count:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            (tmp_path / "calm").touch()
            async with worker(where):
                assert (await run.rest()).outcome == "sent"
        assert len(begun.read_text().split()) == 3

    asyncio.run(asyncio.wait_for(whole(next(namespaces)), 50))


@pytest.mark.full
def test_worker_whose_first_request_fails_is_started_again(
    tmp_path: Path, namespaces: Iterator[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is away at that moment fails the request, too, but only after 15 s."""
    (tmp_path / "guarded.md").write_text(GUARDED)
    (tmp_path / "bindings.py").write_text(CAREFUL)
    (tmp_path / "calm").touch()
    host = next(namespaces).removeprefix("temporal://").partition("/")[0]

    async def operate(*words: str) -> None:
        command = [str(temporal_program()), "operator", "namespace", *words, "--address", host]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)

    async def known(work: Callable[[], Awaitable[T]]) -> T:
        """Do work once the server knows the new namespace, which takes a moment."""
        while True:
            with suppress(StoreError):
                return await work()
            await asyncio.sleep(0.1)

    async def outcome(runs: dsa.Runs) -> str | None:
        return (await (await runs.start(tmp_path / "guarded.md", "go")).rest()).outcome

    async def whole() -> None:
        await operate("create", "brief")
        async with dsa.open_runs(f"temporal://{host}/brief") as runs:
            assert isinstance(runs, TemporalRuns)
            await known(lambda: runs.link.wait(runs.link.client()))
            await operate("delete", "brief", "--yes")
            async with at_work(runs):
                await until(lambda: caplog.records)
                await operate("create", "brief")
                assert await known(lambda: outcome(runs)) == "sent"

    with caplog.at_level(logging.WARNING, "dsa.notice"):
        asyncio.run(asyncio.wait_for(whole(), 50))
    assert [each.getMessage() for each in caplog.records if each.name == "dsa.notice"] == [
        f"a worker of {host}/brief ended with an error, and is started again: the server has no such namespace"
    ]


#: A worker that notices after 2 s, and not after 15 s, that another one is gone.
QUICK_WORKER = """import sys
from datetime import timedelta
from dsa.cli.main import main
from dsa.temporal import activity_calls
activity_calls.SILENCE = timedelta(seconds=2)
main()
"""


@pytest.mark.full
@pytest.mark.limit(120)
def test_run_stops_if_its_effect_kills_every_worker(tmp_path: Path, durable: DurableServer) -> None:
    document = restless(tmp_path)
    (tmp_path / "deadly").touch()
    command = [sys.executable, "-c", QUICK_WORKER, "work", str(tmp_path), "--runs", durable.where]

    async def whole() -> None:
        async with dsa.open_runs(durable.where) as runs, crew(tmp_path, command) as workers:
            run = await runs.start(document, "go", run_id="retry")
            await stops_and_is_resumed(runs, run, tmp_path)
            assert workers.loss_count >= MOST_TRIES - 1  # the last one may still be unnoticed

    asyncio.run(asyncio.wait_for(whole(), 110))
