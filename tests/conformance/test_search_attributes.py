"""Search attributes of runs on Temporal: the server knows the status of each run, and filtered lists query only runs that may match."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dsa

WAITS = """# waits

## States
| state | kind |
| --- | --- |
| idle | initial |
| asked | |
| working | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| approved | outside |
| dropped | outside |
| made | make |

## Transitions
| source | event | effects | target |
| --- | --- | --- | --- |
| idle | order | | asked |
| asked | approved | make | working |
| asked | dropped | | end.done |
| asked | after 1h | | end.done |
| working | made | | end.done |
"""


async def listed(runs: Any, condition: str, expected: list[str]) -> None:
    """Wait until the server lists these runs for a condition: its lists may be a moment old."""
    client = await runs.link.wait(runs.link.client())

    async def ids() -> list[str]:
        return [each.id async for each in client.list_workflows(f"WorkflowType = 'dsa' AND {condition}")]

    while await runs.link.wait(ids()) != expected:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def test_server_knows_the_status_of_a_run(tmp_path: Path, namespaces: Iterator[str]) -> None:
    may_go_on = asyncio.Event()

    @dsa.answering("made")
    async def make(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        await may_go_on.wait()
        return [dsa.event_step("make", "made")]

    async def test() -> None:
        (tmp_path / "waits.md").write_text(WAITS)
        async with dsa.open_runs(next(namespaces)) as runs:
            run = await runs.start(tmp_path / "waits.md", "go", bindings=dsa.Bindings({"make": make}))
            rest = await run.rest()
            asks = "DsaMachine = 'waits' AND DsaStatus = 'waiting' AND DsaWaitsFor = 'approved' AND DsaWaitsFor = 'dropped'"
            await listed(runs, asks, [run.id])
            assert rest.due_ms is not None
            await listed(runs, "DsaDue > '2020-01-01T00:00:00Z'", [run.id])
            await runs.send(run.id, "approved")
            await listed(runs, "DsaStatus = 'under way'", [run.id])
            may_go_on.set()
            await run.rest()
            await listed(runs, "DsaStatus = 'finished' AND DsaWaitsFor IS NULL AND DsaDue IS NULL", [run.id])

    asyncio.run(asyncio.wait_for(test(), 60))


def test_filtered_list_queries_only_runs_that_may_match(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """No worker drives the document, so any query of a run would fail."""

    async def test() -> None:
        (tmp_path / "waits.md").write_text(WAITS)
        where = next(namespaces)
        async with dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "waits.md", "go", bindings=dsa.Bindings({"make": no_steps}))
            await run.rest()
            await listed(runs, "DsaStatus = 'waiting'", [run.id])
            await runs.link.wait(runs.link._stop_workers())  # type: ignore[attr-defined]  # noqa: SLF001
            for how in ({"machine": "other"}, {"waiting_for": "paid"}, {"status": "finished"}, {"status": "stopped"}):
                assert await asyncio.wait_for(runs.list(**how), 5) == ()
            command = [sys.executable, "-m", "dsa", "runs", "--status", "finished", "--runs", where]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=15, check=True
            )
            assert "no run here matches" in done.stdout

    asyncio.run(asyncio.wait_for(test(), 60))


async def no_steps(_action: dsa.Action, _context: dsa.PolicyContext) -> list[dsa.Step]:
    return []


def test_namespace_without_search_attributes_is_logged_with_a_fix(
    namespaces: Iterator[str], caplog: pytest.LogCaptureFixture
) -> None:
    """This server refuses to create attributes in a namespace that does not exist; others refuse for lack of permission."""
    from temporalio.client import Client

    from dsa.temporal.search_attributes import ensure

    async def has_attributes(host: str) -> bool:
        return await ensure(await Client.connect(host, namespace="nowhere"))

    with caplog.at_level(logging.WARNING, "dsa.temporal"):
        assert not asyncio.run(has_attributes(next(namespaces).removeprefix("temporal://").partition("/")[0]))
    assert "namespace nowhere has no search attributes for runs" in caplog.text
    assert "temporal operator search-attribute create --name DsaStatus --type Keyword" in caplog.text


def test_newest_runs_are_listed_even_if_finished_while_others_wait(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The server lists running workflows before finished ones, and there are more of them than one request returns."""

    async def test() -> None:
        (tmp_path / "waits.md").write_text(WAITS)
        async with dsa.open_runs(next(namespaces)) as runs:
            bindings, ids = dsa.Bindings({"make": no_steps}), [f"run{number}" for number in range(24)]
            for each in ids:
                run = await runs.start(tmp_path / "waits.md", "go", bindings=bindings, run_id=each)
            assert (await run.rest()).waits_for
            await runs.send(ids[0], "dropped")
            await runs.send(ids[-1], "dropped")
            await listed(runs, "DsaStatus = 'finished'", [ids[-1], ids[0]])
            assert [each.run for each in await runs.list(newest=2)] == ids[-2:]
            assert [each.run for each in await runs.list(newest=1, status="finished")] == ids[-1:]
            assert [each.run for each in await runs.list(newest=99)] == ids

    asyncio.run(asyncio.wait_for(test(), 60))
