"""Versions of workers: a run stays with the version at which its execution began, and its next execution begins at the current one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporal_server import at_work, history

import dsa

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| asked | |
| end.sent | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| noted | outside |
| approved | outside |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | asked | |
| asked | noted | = | note |
| asked | approved | end.sent | |
"""
BINDINGS = """from pathlib import Path


async def note(action, context):
    with Path(__file__).with_name("noted").open("a") as file:
        file.write(context.run.run_id + "\\n")
    return []


effects = {"note": note}
"""


@asynccontextmanager
async def worker(where: str, build: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Run a worker whose environment names a version."""
    async with dsa.open_runs(where) as runs:
        monkeypatch.setenv("DSA_TEMPORAL_BUILD", build)
        async with at_work(runs):
            await asyncio.sleep(0.5)  # the server knows this worker now, and the next one reads another environment
            yield


async def make_current(runs: Any, build: str) -> None:
    """Do what `temporal worker deployment set-current-version` does, as soon as the server knows the version."""
    from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
    from temporalio.service import RPCError

    client = await runs.link.wait(runs.link.client())
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name="dsa", build_id=build, identity="test"
    )
    while True:
        try:
            await runs.link.wait(client.workflow_service.set_worker_deployment_current_version(request))
        except RPCError:
            await asyncio.sleep(0.2)
        else:
            return


async def builds(runs: Any, run_id: str) -> set[str]:
    """Return the versions of the workers that drove the present execution of a run."""
    done = [event.workflow_task_completed_event_attributes for event in await history(runs, run_id)]
    return {each.deployment_version.build_id for each in done if each.deployment_version.build_id}


@pytest.mark.limit(90)
def test_run_stays_with_its_version_until_its_next_execution(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with a version may have a queue: its effects have no version."""
    where, document = f"{next(namespaces)}?queue=lab", tmp_path / "order.md"
    document.write_text(ORDER)
    (tmp_path / "bindings.py").write_text(BINDINGS)

    async def whole() -> None:
        async with dsa.open_runs(where) as runs, worker(where, "1", monkeypatch):
            await make_current(runs, "1")
            old = await runs.start(document, "go", run_id="old")
            runs.most_events = 1  # type: ignore[attr-defined]  # of runs on Temporal
            moving = await runs.start(document, "go", run_id="moving")
            for run in (old, moving):
                assert (await run.rest()).kind == "waiting"
            async with worker(where, "2", monkeypatch):
                await make_current(runs, "2")
                runs.most_events = None  # type: ignore[attr-defined]
                new = await runs.start(document, "go", run_id="new")
                assert (await new.rest()).kind == "waiting"
                for run in (old, moving, new):
                    await runs.send(run.id, "noted")
                while await builds(runs, "moving") != {"2"}:  # the next execution begins a moment later
                    await runs.send("moving", "noted")
                assert (await builds(runs, "old"), await builds(runs, "new")) == ({"1"}, {"2"})
                for run in (old, moving, new):
                    await runs.send(run.id, "approved")
                    assert (await run.rest()).kind == "finished"
            assert {"old", "moving", "new"} == set((tmp_path / "noted").read_text().split())

    asyncio.run(asyncio.wait_for(whole(), 40))
