"""A run on Temporal whose table changes: it continues with another one only on request and only if its history fits, as in a folder."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from same_moments import comparable
from temporal_server import history, until, worker

import dsa
from dsa.cli.command_line import CommandExit
from dsa.cli.resume import MachineChange
from dsa.lang import loads
from dsa.runs.runs import Resumption
from dsa.runtime.ledger import ChangeEntry, EventEntry
from dsa.runtime.run_store import StoreError

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| looking | |
| asked | |
| end.sent | final |
| end.dropped | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| approved | outside |
| noted | outside |
| found | look |

## Effects
| effect | in doubt |
| --- | --- |
| look | ask |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | looking | look |
| looking | found | asked | |
| asked | approved | end.sent | |
| asked | noted | = | |
| asked | after 60m | end.dropped | |
"""
#: A timer that is written differently, one more effect, and a longer way to the end.
LONGER = (
    ORDER.replace("| asked | |\n", "| asked | |\n| priced | |\n", 1)
    .replace("| look | ask |\n", "| look | ask |\n| price | |\n")
    .replace("| found | look |\n", "| found | look |\n| cost | price |\n")
    .replace(
        "| asked | approved | end.sent | |\n", "| asked | approved | priced | price |\n| priced | cost | end.sent | |\n"
    )
    .replace("after 60m", "after 1h")
)
#: The same with one state renamed.
RENAMED = ORDER.replace("asked", "waiting_for_people")
BINDINGS = """import asyncio
from pathlib import Path

import dsa

HERE = Path(__file__).parent


@dsa.answering("found")
async def look(action, context):
    if (HERE / "holds").exists():
        (HERE / "holds").unlink()
        (HERE / "begun").touch()
        await asyncio.sleep(60)
    return [dsa.event_step("look", "found", data={"order": "A17"})]


@dsa.answering("cost")
async def price(action, context):
    return [dsa.event_step("price", "cost", data={"eur": 3})]


effects = {"look": look, "price": price}
"""


def change_to(folder: Path, text: str) -> Callable[[Any], ChangeEntry | None]:
    """Return the change that `dsa resume --machine` requests for a document with this text."""
    path = folder / "new.md"
    path.write_text(text)
    return MachineChange("new.md", str(path), text, loads(text, "new.md").at(), {}).entry


Test = Callable[[Any, dsa.RunHandle, Path], Awaitable[None]]


def moments(
    where: str | Path, folder: Path, test: Test, most_events: int | None = None, text: str = ORDER
) -> list[Any]:
    """Return the comparable moments of an order after the actions of people, as a later reader sees them."""
    (folder / "order.md").write_text(text)
    (folder / "bindings.py").write_text(BINDINGS)

    async def whole() -> list[Any]:
        async with worker(where), dsa.open_runs(where) as runs:
            runs.most_events = most_events  # type: ignore[attr-defined]  # of runs on Temporal
            run = await runs.start(folder / "order.md", "go", run_id="order")
            await test(runs, run, folder)
            async with dsa.open_runs(where) as later:
                return [*comparable("order", list(later.get("order").run.ledger))]

    return asyncio.run(asyncio.wait_for(whole(), 40))


async def changes_at_rest(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    assert (await run.rest()).run.configuration.state == "asked"
    if not run.run.is_finished:
        await run.interrupt()  # in a folder, a run that waits for a timer is driven
    run = await runs.resume("order", resumption=Resumption(change=change_to(folder, LONGER)))
    rest = await run.rest()
    assert (rest.waits_for, rest.run.machine.name) == ({"approved": "2", "noted": "2"}, "order")
    await runs.send("order", "approved", at="2")
    rest = await run.rest()
    assert rest.run.configuration.state == "end.sent"
    assert [each.event for each in rest.run.ledger if isinstance(each, EventEntry)][-1] == "cost"


async def changes_in_doubt(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    """An effect that was under way is still in doubt after the change: it is performed again only if a person decides so."""
    (folder / "begun").unlink(missing_ok=True)
    await until((folder / "begun").exists)
    await run.interrupt()
    run = await runs.resume("order", resumption=Resumption(change=change_to(folder, LONGER)))
    rest = await run.rest()
    assert (rest.kind, [each.key for each in rest.in_doubt]) == ("in doubt", ["1/1"])
    run = await runs.resume("order", resumption=Resumption(decisions={"1/1": "retry"}))
    assert (await run.rest()).run.configuration.state == "asked"
    await run.interrupt()


async def changes_twice(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    await run.rest()
    for text in (LONGER, ORDER, LONGER):
        await run.interrupt()
        run = await runs.resume("order", resumption=Resumption(change=change_to(folder, text)))
        await run.rest()
    await runs.send("order", "approved")
    assert (await run.rest()).run.configuration.state == "end.sent"


async def changes_while_a_timer_runs(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    """The timer is written differently in the new table, and fires as it was armed."""
    await run.rest()
    await run.interrupt()
    run = await runs.resume("order", resumption=Resumption(change=change_to(folder, LONGER.replace("1h", "1s"))))
    rest = await run.rest(through_timers=True)
    assert rest.run.configuration.state == "end.dropped"


CASES = {
    "a timer": changes_while_a_timer_runs,
    "at rest": changes_at_rest,
    "in doubt": changes_in_doubt,
    "twice": changes_twice,
}

#: Cases that continue in a new execution as soon as possible.
CONTINUED = [pytest.param(case, 1, marks=[] if case == "twice" else [pytest.mark.full]) for case in CASES]


@pytest.mark.parametrize(("case", "most_events"), [(case, None) for case in CASES] + CONTINUED)
def test_changed_run_has_the_same_moments(
    case: str, most_events: int | None, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    told = []
    for where in (tmp_path / "runs", next(namespaces)):
        if case == "in doubt":
            (tmp_path / "holds").touch()
        text = ORDER.replace("60m", "1000ms") if case == "a timer" else ORDER
        told.append(moments(where, tmp_path, CASES[case], most_events, text))
    assert told[1] == told[0]
    assert "change" in [each["kind"] for each in told[0]]


async def is_refused(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    await run.rest()
    count = len(runs.entries("order"))
    with pytest.raises(CommandExit, match="cannot continue with new"):
        await runs.resume("order", resumption=Resumption(change=change_to(folder, RENAMED)))
    judged = change_to(folder, LONGER)(runs.get("order").run)

    async def late(_run: Any) -> None:
        await runs.send("order", "noted")

    def slow(_run: Any) -> ChangeEntry | None:  # an answer comes while the change is judged
        sender.append(asyncio.ensure_future(late(_run)))
        return judged

    sender: list[Any] = []
    assert len(runs.entries("order")) == count
    handle = runs.hold("order", resumption=Resumption(change=slow))
    await sender[0]
    with pytest.raises(
        StoreError,
        match="run order went on while dsa was checking whether this run can change to the new document: try again",
    ):
        await handle.drive()
    assert (await run.rest()).kind == "waiting"


def test_change_that_does_not_fit_leaves_the_run_as_it_is(tmp_path: Path, namespaces: Iterator[str]) -> None:
    entries = moments(next(namespaces), tmp_path, is_refused)
    assert "change" not in [each["kind"] for each in entries]


async def rest_or_none(run: dsa.RunHandle) -> dsa.Rest | None:
    """Return the rest of a run; None while its last task has failed."""
    try:
        return await run.rest()
    except StoreError:
        return None


def test_worker_that_reads_the_document_differently_leaves_the_run_to_another(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker acts like one of another version: the run waits, and continues with a worker that reads its document unchanged."""
    from temporalio.api.enums.v1 import EventType

    import dsa.temporal.run_workflow as module

    where = next(namespaces)
    (tmp_path / "order.md").write_text(ORDER)
    (tmp_path / "bindings.py").write_text(BINDINGS)

    async def failed_tasks(runs: Any) -> list[str]:
        return [
            event.workflow_task_failed_event_attributes.failure.message
            for event in await history(runs)
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        ]

    async def whole() -> None:
        read = module.recorded_machine
        monkeypatch.setattr(module, "recorded_machine", lambda *document: (read(*document)[0], "0" * 64))
        async with worker(where), dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "order.md", "go", run_id="order")
            while not (messages := await failed_tasks(runs)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert "run order belongs to another machine" in messages[0]
            monkeypatch.setattr(module, "recorded_machine", read)
            while (rest := await rest_or_none(run)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            assert rest.run.configuration.state == "asked"

    asyncio.run(asyncio.wait_for(whole(), 40))
