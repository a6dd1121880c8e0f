"""Events on Temporal whose data a worker has to read first, while the run's queue has no worker: nothing else of the run is blocked by that."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporal_server import at_work, worker

import dsa
from dsa.cli.resume import MachineChange
from dsa.lang import loads
from dsa.runs.runs import Resumption

DOCUMENT = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| asked | |
| looking | |
| end.sent | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| more | outside |
| approved | outside |
| found | look |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | asked | |
| asked | more | looking | look |
| looking | found | asked | |
| asked | approved | end.sent | |
"""
#: The same with one more row, which the history of a run does not reach.
LONGER = f"{DOCUMENT}| looking | approved | end.sent | |\n"
BINDINGS = """import dsa


def read(data):
    return {**data, "is_read": True}


@dsa.answering("found", reads={"more": read})
async def look(action, context):
    return [dsa.event_step("look", "found")]


effects = {"look": look}
"""
Meanwhile = Callable[[Any, str, Path], Awaitable[None]]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def outcome_of_unread_event(where: str, folder: Path, meanwhile: Meanwhile) -> tuple[Any, list[Any]]:
    """Return the outcome of an event that no worker can read at first, after the action `meanwhile`, and the data of the run's events.

    The run has the queue `lab`, which has no worker; one of another queue drives it.
    """
    (folder / "order.md").write_text(DOCUMENT)
    (folder / "bindings.py").write_text(BINDINGS)

    async def whole() -> tuple[Any, list[Any]]:
        async with worker(f"{where}?queue=office"), dsa.open_runs(f"{where}?queue=lab") as runs:
            run = await runs.start(folder / "order.md", "go", run_id="order")
            assert (await run.rest()).run.configuration.state == "asked"
            sender = asyncio.create_task(runs.send("order", "more", {"order": "A17"}))

            async def is_named() -> bool:
                return (await runs.wanted_worker("order")).startswith("a worker of the queue 'lab'; start one")

            await until(is_named)
            assert not sender.done()
            await meanwhile(runs, where, folder)
            outcome = await sender
            rest = await run.rest()
            assert rest.run.configuration.state == "asked"
            assert await runs.wanted_worker("order") == ""
            return outcome, [entry.data for entry in rest.run.ledger if getattr(entry, "event", "") == "more"]

    return asyncio.run(asyncio.wait_for(whole(), 40))


async def worker_comes(_runs: Any, where: str, _folder: Path) -> None:
    await keep_worker(f"{where}?queue=lab")


async def moves(_runs: Any, where: str, _folder: Path) -> None:
    """Move the run to the queue `desk`, which has a worker."""
    desk = f"{where}?queue=desk"
    await keep_worker(desk)
    async with dsa.open_runs(desk) as runs:
        handle = runs.hold("order")
        handle.start()
        await handle.exists()


async def changes(runs: Any, where: str, folder: Path) -> None:
    """Let the run continue with another table, in a new execution, and only then start a worker."""
    change = MachineChange("new.md", str(folder / "new.md"), LONGER, loads(LONGER, "new.md").at(), {}).entry
    first_execution = await execution(runs)
    await runs.resume("order", resumption=Resumption(change=change))

    async def is_changed() -> bool:
        return await execution(runs) != first_execution

    await until(is_changed)
    await keep_worker(f"{where}?queue=lab")


async def execution(runs: Any) -> str:
    """Return the id of the run's present execution."""
    client = await runs.link.wait(runs.link.client())
    return str((await runs.link.wait(client.get_workflow_handle("order").describe())).run_id)


async def keep_worker(where: str) -> None:
    """Start a worker that works until the loop of the test ends."""

    async def work() -> None:
        async with worker(where):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


_TASKS: set[asyncio.Task[None]] = set()


@pytest.mark.limit(60)
@pytest.mark.parametrize("meanwhile", [worker_comes, moves, changes])
def test_event_that_waits_for_its_reader_is_taken_once(
    meanwhile: Meanwhile, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    outcome, data = outcome_of_unread_event(next(namespaces), tmp_path, meanwhile)
    assert isinstance(outcome, dsa.Taken)
    assert data == [{"order": "A17", "is_read": True}]


def test_event_dropped_by_the_server_is_sent_again_with_its_id(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server drops an event if the workflow task that delivered it fails because more events came while the run moved to a new execution."""
    from temporalio.client import WorkflowHandle
    from temporalio.service import RPCError, RPCStatusCode

    (tmp_path / "order.md").write_text(DOCUMENT)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    update_ids, start_update = list[str](), WorkflowHandle.start_update

    async def drop_first(self: Any, *arguments: Any, **how: Any) -> Any:
        update_ids.append(how["id"])
        if len(update_ids) == 1:
            words = "Unable to perform workflow execution update due to unexpected workflow task failure."
            raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")
        return await start_update(self, *arguments, **how)

    async def whole() -> None:
        where = next(namespaces)
        async with worker(where), dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "order.md", "go", run_id="order")
            await run.rest()
            monkeypatch.setattr(WorkflowHandle, "start_update", drop_first)
            assert isinstance(await runs.send("order", "approved"), dsa.Taken)
            assert (await run.rest()).outcome == "sent"

    asyncio.run(asyncio.wait_for(whole(), 30))
    assert len(update_ids) == 2
    assert len(set(update_ids)) == 1


def test_worker_that_lacks_the_files_of_its_run_leaves_the_effects_to_another(
    tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """An activity that the workers of a run reject does not go to the worker that drives it, which would take each at once."""
    (tmp_path / "order.md").write_text(DOCUMENT)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    (tmp_path / "empty").mkdir()

    async def whole() -> None:
        where = next(namespaces)
        async with dsa.open_runs(where) as runs, at_work(runs, folders=[tmp_path / "empty"]):
            run = await runs.start(tmp_path / "order.md", "go", run_id="order")
            await run.rest()
            sender = asyncio.create_task(runs.send("order", "more", {"order": "A17"}))

            async def is_turned_down() -> bool:
                return "the last one cannot: " in await runs.wanted_worker("order")

            await until(is_turned_down)
            async with dsa.open_runs(where) as others, at_work(others, folders=[tmp_path]):
                assert isinstance(await sender, dsa.Taken)
                assert (await run.rest()).run.configuration.state == "asked"

    asyncio.run(asyncio.wait_for(whole(), 40))
