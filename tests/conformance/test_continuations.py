"""A run on Temporal that continues in new executions of its workflow: nothing is lost, nothing happens twice, and the story stays complete.

The histories are cut as early as possible: the run continues in a new execution whenever nothing is at work.
"""

import asyncio
import importlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

import dsa
from dsa.errors import DsaError
from dsa.lang import loads
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.costs import counters
from dsa.runtime.ledger import EffectEntry, EventEntry, ResultEntry, ResumedEntry
from dsa.runtime.run import rederive
from dsa.runtime.run_store import StoreError
from dsa.runtime.status import next_due_ms

#: A run with everything that has to be carried over: parallel, alternating and single effects, a sleep, a timer, variables, data for a guard, notes of people, a budget.
TOUR = """# tour

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| asked | |
| end.done | final |
| end.late | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| noted | outside |
| approved | outside |
| visited | visit |
| rested | nap |

## Variables
| variable | domain | initial |
| --- | --- | --- |
| rounds | 0..3 | 0 |
| notes | 0..99 | 0 |

## Guards
| guard | judges | uses |
| --- | --- | --- |
| fine | noted | order = order.text |

## Effects
| effect | is | options | together | at once |
| --- | --- | --- | --- | --- |
| visit | | | 2 | 9 |
| nap | sleep | for = 200ms | | |
| tell | | | | |

## Transitions
| source | event | if | update | effects | target |
| --- | --- | --- | --- | --- | --- |
| idle | order | | | tell, tell, visit, visit, visit, nap | busy |
| busy | visited | | | | = |
| busy | noted | fine.passed and notes < 99 | notes += 1 | | = |
| busy | noted | else | | | = |
| busy | rested | rounds < 3 | rounds += 1 | visit, visit, tell, nap | = |
| busy | rested | else | | | asked |
| asked | visited | | | | = |
| asked | noted | fine.passed and notes < 99 | notes += 1 | | = |
| asked | noted | else | | | = |
| asked | approved | | | | end.done |
| asked | after 1h | | | | end.late |
"""


@attrs.frozen
class Fine(GuardInterface):
    """A guard that passes if it is given the text of the order."""

    blocks = False

    def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult:
        return GuardResult(dependencies["order"] == "go", "the order is another one")


@attrs.define
class Tour:
    """A tour under way: the runs, the handle, and how often its effects were performed. `tell` waits for a turn while `is_held`."""

    runs: Any
    run: dsa.RunHandle = attrs.field(init=False)
    performed: Counter[str] = attrs.field(factory=Counter)
    is_held: bool = False
    turns: asyncio.Semaphore = attrs.field(factory=lambda: asyncio.Semaphore(0))

    async def begin(self, folder: Path, **options: Any) -> None:
        document = folder / "tour.md"
        document.write_text(TOUR)
        how = dsa.Options(**options)
        self.run = await self.runs.start(document, {"text": "go"}, bindings=self.bindings, options=how)

    @property
    def bindings(self) -> dsa.Bindings:
        return dsa.Bindings({"visit": dsa.answering("visited")(self.visit), "tell": self.tell}, {"fine": Fine()})

    async def visit(self, action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        self.performed[context.key] += 1
        return [dsa.event_step("visit", "visited", data={"key": context.key})]

    async def tell(self, action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        self.performed[context.key] += 1
        if self.is_held:
            await self.turns.acquire()
        return []

    async def told(self, count: int) -> None:
        """Wait until `tell` has started a number of times."""
        tells = {key for key, effect in self.effects() if effect == "tell"}
        while sum("/".join(key.split("/")[1:3]) in tells for key in self.performed) < count:
            await asyncio.sleep(0.02)
            tells = {key for key, effect in self.effects() if effect == "tell"}

    def effects(self) -> Iterator[tuple[str, str]]:
        yield from ((entry.key, entry.effect) for entry in self.run.run.ledger if isinstance(entry, EffectEntry))

    async def note(self, number: int) -> Any:
        return await self.runs.send(self.run.id, "noted", {"number": number})

    async def asked(self) -> dsa.Rest:
        """Wait until the run asks a person."""
        while (rest := await self.run.rest()).run.configuration.state != "asked" or rest.run.keys:
            await self.run.change()
        return rest

    def notes(self) -> list[int]:
        return [
            each.data["number"]
            for each in self.run.run.ledger
            if isinstance(each, EventEntry) and each.event == "noted"
        ]

    async def executions(self) -> int:
        """Return the number of executions that the run has had."""
        client = await self.runs.link.wait(self.runs.link.client())
        found = await self.runs.link.wait(_count(client, self.run.id))
        return int(found)

    async def begun_with(self, run_id: str) -> Any:
        """Return the input of the last execution of a run."""
        client = await self.runs.link.wait(self.runs.link.client())
        history = await self.runs.link.wait(client.get_workflow_handle(run_id).fetch_history())
        inputs = history.events[0].workflow_execution_started_event_attributes.input.payloads
        return (await self.runs.link.wait(client.data_converter.decode(inputs)))[0]

    async def closed_executions(self) -> set[str]:
        """Return the executions of the run that have ended."""
        client = await self.runs.link.wait(self.runs.link.client())

        async def listed() -> set[str]:
            query = f"WorkflowId = '{self.run.id}' AND ExecutionStatus != 'Running'"
            return {each.run_id async for each in client.list_workflows(query)}

        found: set[str] = await self.runs.link.wait(listed())
        return found

    async def deletions(self) -> list[str]:
        """Return a list that collects the executions which this process asks the server to delete from now on; the server takes minutes to delete them."""
        client, deleted = await self.runs.link.wait(self.runs.link.client()), list[str]()
        delete = client.workflow_service.delete_workflow_execution

        async def delete_and_note(request: Any, *others: Any, **options: Any) -> Any:
            answer = await delete(request, *others, **options)
            if request.workflow_execution.workflow_id == self.run.id:
                deleted.append(request.workflow_execution.run_id)
            return answer

        client.workflow_service.delete_workflow_execution = delete_and_note
        return deleted


async def _count(client: Any, run_id: str) -> int:
    handle, count = client.get_workflow_handle(run_id), 1
    execution = (await handle.describe()).run_id
    while True:
        first = await anext(
            aiter(client.get_workflow_handle(run_id, run_id=execution).fetch_history_events(page_size=1))
        )
        execution = first.workflow_execution_started_event_attributes.continued_execution_run_id
        if not execution:
            return count
        count += 1


@asynccontextmanager
async def a_tour(
    where: str, folder: Path, *, is_held: bool = False, most_events: int = 1, **options: Any
) -> AsyncIterator[Tour]:
    async with dsa.open_runs(where) as runs:
        tour = Tour(runs, is_held=is_held)
        tour.runs.most_events = most_events
        await tour.begin(folder, **options)
        yield tour


def within(seconds: float, test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(test(), seconds)

    asyncio.run(whole())


async def is_whole(tour: Tour) -> None:
    """Check the story of a tour that asks a person, and everything carried over with it, against its table."""
    rest = await tour.asked()
    ledger = rest.run.ledger
    again = rederive(loads(TOUR, "tour.md").at(), ledger)
    assert again.ledger == ledger
    assert not [entry for entry in ledger if isinstance(entry, ResumedEntry)]
    assert rest.due_ms == next_due_ms(again)
    performed = [entry.key for entry in ledger if isinstance(entry, EffectEntry) and entry.effect != "nap"]
    assert tour.performed == Counter(f"{tour.run.id}/{key}/1" for key in performed)
    assert Counter(
        entry.key for entry in ledger if isinstance(entry, ResultEntry) and entry.key in performed
    ) == Counter(performed)
    client = await tour.runs.link.wait(tour.runs.link.client())
    handle = client.get_workflow_handle(tour.run.id)
    assert await tour.runs.link.wait(handle.query("counters")) == counters(ledger)
    state = await tour.runs.link.wait(handle.query("state"))
    assert state == {"state": "asked", "values": again.values, "effects": {}, "rests": True}
    another = tour.runs.store.__class__(tour.runs.link)  # a reader with no earlier state
    assert (await tour.runs.link.wait(another.look_at(tour.run.id))).entries == ledger


async def goes_on_while_it_asks(tour: Tour) -> None:
    """Send a note while a timer runs, and wait for the execution that comes after it."""
    await tour.asked()
    before = await tour.executions()
    assert isinstance(await tour.note(3), dsa.Taken)
    while await tour.executions() == before:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def ends(tour: Tour) -> None:
    """Answer the question of a tour, by its place."""
    rest = await tour.asked()
    outcome = await tour.runs.send(tour.run.id, "approved", at=rest.waits_for["approved"])
    assert isinstance(outcome, dsa.Taken)
    assert (await tour.run.rest()).outcome == "done"


def test_run_continues_in_new_executions_while_people_send_events(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """Notes arrive all the time: each is taken once, and each sender gets its outcome."""

    async def test() -> None:
        async with a_tour(next(namespaces), tmp_path) as tour:
            outcomes = []
            for first in range(0, 40, 5):
                outcomes += await asyncio.gather(*(tour.note(number) for number in range(first, first + 5)))
            assert [type(each) for each in outcomes] == [dsa.Taken] * 40
            await is_whole(tour)
            assert sorted(tour.notes()) == list(range(40))
            assert tour.run.run.values == {"rounds": 3, "notes": 40}
            assert await tour.executions() > 5
            await ends(tour)

    within(60, test)


async def crossing(tour: Tour) -> None:
    """Send notes that move to the next execution with the run, without waiting for them; then ask for the outcome."""
    client = await tour.runs.link.wait(tour.runs.link.client())
    stage = importlib.import_module("temporalio.client").WorkflowUpdateStage

    async def send(number: int, *, is_final: bool) -> Any:
        handle = client.get_workflow_handle(tour.run.id)
        message = {"occurrence": {"event": "noted", "verdicts": {}, "data": {"number": number}}, "at": None}
        how = stage.COMPLETED if is_final else stage.ACCEPTED
        update = await handle.start_update("send", message, id=f"note{number}", wait_for_stage=how, result_type=dict)
        return await update.result() if is_final else None

    await tour.told(1)
    before = await tour.executions()
    await tour.runs.link.wait(send(1, is_final=False))
    await tour.runs.link.wait(send(2, is_final=False))
    tour.turns.release()
    await tour.told(2)
    assert await tour.executions() > before
    assert tour.notes() == []  # the first execution took neither: they are in the inbox of the next one
    for _ in range(9):
        tour.turns.release()
    await tour.asked()
    assert tour.notes() == [1, 2]
    assert (await tour.runs.link.wait(send(1, is_final=True)))["configuration"]["state"] == "busy"
    assert tour.notes() == [1, 2]


def test_event_carried_into_the_next_execution_is_taken_once(tmp_path: Path, namespaces: Iterator[str]) -> None:
    async def test() -> None:
        async with a_tour(next(namespaces), tmp_path, is_held=True) as tour:
            await crossing(tour)
            await goes_on_while_it_asks(tour)
            await is_whole(tour)

    within(60, test)


async def spends(tour: Tour) -> None:
    """Check that the second `tell`, started by the next execution, is refused."""
    while (rest := await tour.run.rest()).kind != "stopped":
        await tour.run.change()
    assert "tell (line 42) failed: the budget is spent: at most 1 call of tell" in str(rest.failure)
    assert tour.performed == {f"{tour.run.id}/1/1/1": 1}
    assert await tour.executions() > 1


def test_budget_counts_what_earlier_executions_spent(tmp_path: Path, namespaces: Iterator[str]) -> None:
    async def test() -> None:
        async with a_tour(next(namespaces), tmp_path, budget=("tell.calls=1",)) as tour:
            await spends(tour)

    within(60, test)


def test_budget_counts_each_try_of_one_execution_once(tmp_path: Path, namespaces: Iterator[str]) -> None:
    async def test() -> None:
        async with a_tour(next(namespaces), tmp_path, most_events=9_999, budget=("tell.calls=2",)) as tour:
            while (rest := await tour.run.rest()).kind != "stopped":
                await tour.run.change()
            assert "at most 2 calls of tell" in str(rest.failure)
            tells = {f"{tour.run.id}/{key}/1" for key, effect in tour.effects() if effect == "tell"}
            assert len(tells & tour.performed.keys()) == 2
            assert await tour.executions() == 1

    within(60, test)


def test_continued_run_can_be_branched_and_removed(tmp_path: Path, namespaces: Iterator[str]) -> None:
    async def test() -> None:
        async with a_tour(next(namespaces), tmp_path) as tour:

            async def is_listed(*names: str) -> None:  # the server's list may be a moment old
                while [each.run for each in await tour.runs.list()] != [*names]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

            await is_whole(tour)
            ledger = tour.run.run.ledger
            new = await asyncio.to_thread(tour.runs.branch, tour.run.id, len(ledger))
            assert tour.runs.entries(new)[1:] == ledger[1:]
            await is_listed(tour.run.id, new)
            options = dsa.Options(tour.bindings)
            branch = await tour.runs.resume(new, options=options)
            while (begun := await tour.begun_with(new))["continuation"] is None:
                assert isinstance(await branch.hand(dsa.Occurrence("noted", data={"number": 1})), dsa.Taken)
            assert (begun["entries"], begun["artifacts"]) == ([], []), "only its first execution needs what it copied"
            await tour.run.interrupt()
            while len(closed := await tour.closed_executions()) != await tour.executions() - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            deleted = await tour.deletions()
            await tour.runs.remove(tour.run.id)
            assert sorted(deleted) == sorted(closed)
            await is_listed(new)

    within(60, test)


def test_story_page_lost_by_the_server_is_named_in_the_error(namespaces: Iterator[str]) -> None:
    pages_after = importlib.import_module("dsa.temporal.story_pages").pages_after

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            link = cast(Any, runs).link

            async def read() -> list[Any]:
                return [each async for each in pages_after(await link.client(), "gone", [(9, 0)], 0, 0)]

            with pytest.raises(StoreError, match=r"no longer has page gone\S+ of a run's record"):
                await link.wait(read())

    within(20, test)


#: The parts that a continuation must not lose, each with a value that simulates its loss. Parts of the run's state have a dot in their names.
LOSSES: dict[str, Any] = {
    "run.configuration": {"state": "busy", "values": [0, 0], "outstanding": [], "precedence": []},
    "run.seq": 1,
    "run.keys": [],
    "run.timers": [],
    "run.entered_seq": 0,
    "run.sleeps": [],
    "entries": (),
    "costs": (),
    "counts": {},
    "story.begin": [0, 0],
    "inbox": (),
    "outcomes": {},
    "is_called": False,
}


@pytest.mark.full
@pytest.mark.parametrize("part", LOSSES)
def test_loss_of_any_part_of_a_continuation_is_detected(
    part: str, tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks above find each part of a continuation that is lost on the way."""
    module = importlib.import_module("dsa.temporal.run_workflow")
    whole, (name, _, field) = module.Continuation, part.partition(".")

    def lossy(*values: Any, **fields: Any) -> Any:
        if not values and name == "entries":
            fields[name] = fields[name][:1]
        elif not values:
            fields[name] = {**fields[name], field: LOSSES[part]} if field else LOSSES[part]
        return whole(*values, **fields)

    async def test() -> None:
        if part == "costs":
            async with a_tour(next(namespaces), tmp_path, budget=("tell.calls=1",)) as tour:
                await spends(tour)
            return
        async with a_tour(next(namespaces), tmp_path, is_held=True) as tour:
            await crossing(tour)
            await goes_on_while_it_asks(tour)
            await is_whole(tour)
            await ends(tour)

    monkeypatch.setattr(module, "Continuation", lossy)
    with pytest.raises((AssertionError, TimeoutError, DsaError)):
        within(15, test)
