"""Two people who answer one question of a run on Temporal from separate clients: one answer is taken, the other is refused and leaves no history."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporal_server import history, worker

import dsa
from dsa.lang import loads
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run_store import StoreError

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| asked | |
| asked_again | |
| end.sent | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| approved | outside |

## Transitions
| source | event | target |
| --- | --- | --- |
| idle | question | asked |
| asked | approved | asked_again |
| asked_again | approved | end.sent |
"""


@pytest.mark.parametrize("worker_is_away", [False, True])
def test_one_of_two_answers_is_refused_and_leaves_no_history(
    *, worker_is_away: bool, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """Without a worker, both answers wait at the server, and reach the next worker at the same moment."""
    from temporalio.api.enums.v1 import EventType
    from temporalio.exceptions import ApplicationError

    from dsa.temporal import payloads

    where, document = next(namespaces), tmp_path / "order.md"
    document.write_text(ORDER)

    async def answers(first: Any, second: Any) -> list[Any]:
        """Send both answers; without a worker, as `send` does when it has looked at the run."""
        if not worker_is_away:
            return list(await asyncio.gather(*(each.send("order", "approved", at="1") for each in (first, second))))
        message = {"occurrence": payloads.occurrence_to_json(dsa.Occurrence("approved")), "at": "1"}
        updates = [each.link.wait(each.store.update("order", payloads.SEND, message)) for each in (first, second)]
        sending = [asyncio.create_task(each) for each in updates]
        await asyncio.sleep(0.5)  # both are at the server
        async with worker(where):
            answers = await asyncio.gather(*sending, return_exceptions=True)
        machine = loads(ORDER, "order.md").at()
        return [
            payloads.outcome_from(machine, each.details[0] if isinstance(each, ApplicationError) else each)
            for each in answers
        ]

    async def whole() -> None:
        async with dsa.open_runs(where) as first, dsa.open_runs(where) as second:
            async with worker(where):
                run = await first.start(document, "go", bindings=tmp_path / "bindings.py", run_id="order")
                assert (await run.rest()).waits_for == {"approved": "1"}
                before = await history(first)
                if not worker_is_away:
                    outcomes = await answers(first, second)
            if worker_is_away:
                outcomes = await answers(first, second)
            async with worker(where):
                taken, refused = sorted(outcomes, key=lambda each: isinstance(each, dsa.Refusal))
                assert isinstance(taken, dsa.Taken)
                assert isinstance(refused, dsa.Refusal)
                assert refused.reason == "late"
                assert refused.configuration.state == "asked_again"
                story = await asyncio.to_thread(first.entries, "order")  # the worker begins its work in this loop
                entries = [each for each in story if isinstance(each, EventEntry)]
                assert [each.event for each in entries] == ["question", "approved"]
                accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
                assert [each.event_type for each in (await history(first))[len(before) :]].count(accepted) == 1
                assert isinstance(await second.send("order", "approved", at="2"), dsa.Taken)

    (tmp_path / "bindings.py").write_text("effects = {}\n")
    asyncio.run(asyncio.wait_for(whole(), 60))


def test_sender_sees_the_result_of_its_event_at_once(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle polls its run from time to time, here once an hour. After an event of its own it does not wait for the next poll."""
    where, document = next(namespaces), tmp_path / "order.md"
    document.write_text(ORDER)
    (tmp_path / "bindings.py").write_text("effects = {}\n")

    async def whole() -> None:
        async with dsa.open_runs(where) as runs, worker(where):
            run = await runs.start(document, "go", bindings=tmp_path / "bindings.py", run_id="order")
            assert (await run.rest()).waits_for == {"approved": "1"}
            for name in ("_FIRST_LOOK_S", "_LONGEST_LOOK_S"):
                monkeypatch.setattr(f"dsa.temporal.temporal_handle.{name}", 3600)
            await run.send("approved", at="1")
            next_look = asyncio.create_task(run.change())
            await run.send("approved", at="2")
            await next_look
            assert (await run.rest()).outcome == "sent"

    asyncio.run(asyncio.wait_for(whole(), 20))


def test_runs_started_in_event_loops_of_other_threads_are_released_cleanly(
    tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """Those loops are already closed when the runs are closed."""
    where, document = next(namespaces), tmp_path / "order.md"
    document.write_text(ORDER)
    (tmp_path / "bindings.py").write_text("effects = {}\n")

    async def whole() -> None:
        async with worker(where), dsa.open_runs(where) as runs:

            async def begin(run_id: str) -> str:
                run = await runs.start(document, "go", bindings=tmp_path / "bindings.py", run_id=run_id)
                return (await run.rest()).kind

            kinds = [asyncio.to_thread(asyncio.run, begin(each)) for each in ("order1", "order2")]
            assert await asyncio.gather(*kinds) == ["waiting", "waiting"]
        with pytest.raises(StoreError, match="this handle is closed"):
            await runs.list()

    asyncio.run(asyncio.wait_for(whole(), 60))
