"""Effects that are cancelled, interrupted, or lost with their worker: the effect is notified, and the moments on Temporal are those in a folder."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from same_moments import comparable
from temporal_server import until, worker

import dsa
from dsa.runs.runs import Resumption

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| asked | |
| end.done | final |
| end.failed | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| dropped | outside |
| approved | outside |
| found | look |
| priced | price |

## Effects
| effect | in doubt | time limit |
| --- | --- | --- |
| look | {handling} | {limit} |
| price | retry | |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | busy | look, price |
| busy | found | asked | cancel |
| busy | priced | = | |
| busy | look.failed | end.failed | |
| busy | dropped | asked | cancel look |
| asked | priced | = | |
| asked | approved | end.done | |
"""


@attrs.define
class Desk:
    """Two effects that take a minute, and notice when they are cancelled. The second time, `look` answers at once."""

    begun: list[str] = attrs.field(factory=list)
    heard: list[str] = attrs.field(factory=list)
    at_work: int = 0

    @property
    def bindings(self) -> dsa.Bindings:
        return dsa.Bindings({"look": self.policy("look", "found"), "price": self.policy("price", "priced")})

    def policy(self, effect: str, event: str) -> Any:
        @dsa.answering(event)
        async def perform(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
            self.begun.append(effect)
            self.at_work += 1
            try:
                if effect == "price" or self.begun.count(effect) == 1:
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.heard.append(effect)
                raise
            finally:
                self.at_work -= 1
            return [dsa.event_step(effect, event)]

        return perform

    async def begins(self, count: int) -> None:
        await until(lambda: len(self.begun) >= count)

    async def hears(self, *effects: str) -> None:
        await until(lambda: sorted(self.heard) == sorted(effects))


Test = Callable[[Any, dsa.RunHandle, Desk], Awaitable[None]]


def moments(where: str | Path, folder: Path, test: Test, handling: str = "retry", limit: str = "") -> list[Any]:
    """Return the comparable moments of an order after the actions of people."""
    document = folder / "order.md"
    document.write_text(ORDER.format(handling=handling, limit=limit))

    async def whole() -> list[Any]:
        desk = Desk()
        async with dsa.open_runs(where) as runs:
            run = await runs.start(document, "go", bindings=desk.bindings, run_id="order")
            await desk.begins(2)
            await test(runs, run, desk)
            told = [*comparable("order", list(runs.get("order").run.ledger))]
            if not run.run.is_finished:
                await run.interrupt()
            return told

    return asyncio.run(asyncio.wait_for(whole(), 20))


async def row_cancels(runs: Any, run: dsa.RunHandle, desk: Desk) -> None:
    await runs.send("order", "dropped")
    await desk.hears("look")
    assert desk.at_work == 1, "the other one goes on"
    assert run.run.configuration.state == "asked"


async def person_interrupts(runs: Any, run: dsa.RunHandle, desk: Desk) -> None:
    """An interrupted run stays, and a resumption handles its effects as its table says."""
    await run.interrupt()
    assert (await run.rest()).kind == "interrupted"
    await desk.hears("look", "price")
    run = await runs.resume("order")
    rest = await run.rest()
    if rest.kind == "in doubt":
        assert [each.effect for each in rest.in_doubt] == ["look"]
        run = await runs.resume("order", resumption=Resumption(decisions={"1/1": "retry"}))
        rest = await run.rest()
    assert rest.run.configuration.state in {"asked", "end.failed"}


async def time_runs_out(runs: Any, run: dsa.RunHandle, desk: Desk) -> None:
    rest = await run.rest()
    assert rest.run.configuration.state == "end.failed"
    await desk.hears("look", "price")


CASES: dict[str, tuple[Test, str, str]] = {
    "a row": (row_cancels, "retry", ""),
    "a person, retry": (person_interrupts, "retry", ""),
    "a person, ask": (person_interrupts, "ask", ""),
    "a person, fail": (person_interrupts, "fail", ""),
    "time": (time_runs_out, "retry", "1s"),
}


@pytest.mark.parametrize("case", CASES)
def test_cancelled_effects_are_notified_and_moments_match_those_in_a_folder(
    case: str, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    test, handling, limit = CASES[case]
    here = moments(tmp_path / "runs", tmp_path, test, handling, limit)
    there = moments(next(namespaces), tmp_path, test, handling, limit)
    assert there == here
    assert [each["kind"] for each in here].count("effect") == 2


async def server_cancels(runs: Any, run: dsa.RunHandle, desk: Desk) -> None:
    client = await runs.link.wait(runs.link.client())
    cancel = client.get_workflow_handle("order").cancel
    await runs.link.wait(cancel())
    assert (await run.rest()).kind == "interrupted"
    await desk.hears("look", "price")
    run = await runs.resume("order")
    assert (await run.rest()).run.configuration.state == "asked"


def test_run_that_is_cancelled_at_the_server_is_interrupted(tmp_path: Path, namespaces: Iterator[str]) -> None:
    there = moments(next(namespaces), tmp_path, server_cancels)
    assert [each["kind"] for each in there].count("resumed") == 1


def test_run_that_is_cancelled_at_rest_still_waits(tmp_path: Path, namespaces: Iterator[str]) -> None:
    where, document = next(namespaces), tmp_path / "order.md"
    document.write_text(ORDER.format(handling="retry", limit="").replace("look, price |", "look |"))

    async def whole() -> None:
        desk = Desk(begun=["look"])  # it answers at once
        async with dsa.open_runs(where) as runs:
            run = await runs.start(document, "go", bindings=desk.bindings, run_id="order")
            assert (await run.rest()).kind == "waiting"
            client = await runs.link.wait(runs.link.client())  # type: ignore[attr-defined]  # of runs on Temporal
            await runs.link.wait(client.get_workflow_handle("order").cancel())  # type: ignore[attr-defined]
            assert (await run.rest()).kind == "waiting"
            await runs.send("order", "approved")
            assert (await run.rest()).kind == "finished"

    asyncio.run(asyncio.wait_for(whole(), 30))


JUDGED = """# judged

## States
| state | kind |
| --- | --- |
| idle | initial |
| asked | |
| end.done | final |
| end.refused | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| approved | outside |

## Guards
| guard | judges |
| --- | --- |
| fine | approved |

## Transitions
| source | event | if | target |
| --- | --- | --- | --- |
| idle | question | | asked |
| asked | approved | fine.passed | end.done |
| asked | approved | else | end.refused |
"""
SLOW_GUARD = """import asyncio
from pathlib import Path

from dsa.runtime.content import GuardInterface, GuardResult

MARK = Path(__file__).with_name("asked")


class Fine(GuardInterface):
    blocks = False

    async def validate(self, artifact, **dependencies):
        if not MARK.exists():
            MARK.touch()
            await asyncio.sleep(60)
        return GuardResult(True)


effects = {}
guards = {"fine": Fine()}
"""


def test_guard_lost_with_its_worker_is_called_again(tmp_path: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    (tmp_path / "judged.md").write_text(JUDGED)
    (tmp_path / "bindings.py").write_text(SLOW_GUARD)

    async def whole() -> None:
        async with dsa.open_runs(where) as runs:
            async with worker(where):
                run = await runs.start(tmp_path / "judged.md", "go", run_id="judged")
                assert (await run.rest()).kind == "waiting"
                sending = asyncio.create_task(runs.send("judged", "approved"))
                await until((tmp_path / "asked").exists)
            async with worker(where):
                assert isinstance(await sending, dsa.Taken)
                assert (await run.rest()).run.configuration.state == "end.done"

    asyncio.run(asyncio.wait_for(whole(), 40))


#: `look` is under way until there is a file `ends`.
PATIENT = """import asyncio
from pathlib import Path

import dsa

HERE = Path(__file__).parent


@dsa.answering("found")
async def look(action, context):
    with (HERE / "begun").open("a") as file:
        file.write("x")
    while not (HERE / "ends").exists():
        await asyncio.sleep(0.02)
    return [dsa.event_step("look", "found")]


@dsa.answering("priced")
async def price(action, context):
    return [dsa.event_step("price", "priced")]


effects = {"look": look, "price": price}
"""
#: The same, but the second import of the module takes longer than a worker may be silent. The client makes the first one.
SLOW = f"""import time
{PATIENT}

with (HERE / "imports").open("a") as file:
    file.write("x")
if (HERE / "imports").read_text() != "x":
    time.sleep(6)
    (HERE / "slow").touch()
"""


async def has_begun(folder: Path, count: int) -> None:
    await until(lambda: (folder / "begun").exists() and (folder / "begun").read_text() == count * "x")


def test_run_taken_over_performs_its_effect_again_at_once(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The worker learns of the cancellation a moment later; until then the effect is under way for the server. Done twice, as an impatient person would."""
    where = next(namespaces)
    (tmp_path / "order.md").write_text(ORDER.format(handling="retry", limit="60s"))
    (tmp_path / "bindings.py").write_text(PATIENT)

    async def whole() -> None:
        async with worker(where), dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "order.md", "go", run_id="order")
            for count in (1, 2):
                await has_begun(tmp_path, count)
                run = await runs.resume("order", resumption=Resumption(take=True))
            await has_begun(tmp_path, 3)
            (tmp_path / "ends").touch()
            assert (await run.rest()).run.configuration.state == "asked"

    asyncio.run(asyncio.wait_for(whole(), 40))


@pytest.mark.limit(60)
def test_worker_importing_a_slow_module_counts_as_alive(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other effects go on meanwhile, and the effect of the module starts once."""
    monkeypatch.setattr("dsa.temporal.activity_calls.SILENCE", timedelta(seconds=4))
    where, patient, slow = next(namespaces), tmp_path / "patient", tmp_path / "slow"

    for folder, code in ((patient, PATIENT), (slow, SLOW)):
        folder.mkdir()
        (folder / "order.md").write_text(ORDER.format(handling="ask", limit=""))
        (folder / f"{folder.name}_bindings.py").write_text(code)
    (slow / "ends").touch()

    async def begin(runs: dsa.Runs, folder: Path) -> dsa.RunHandle:
        module = folder / f"{folder.name}_bindings.py"
        return await runs.start(folder / "order.md", "go", bindings=module, run_id=folder.name)

    async def whole() -> None:
        async with worker(where), dsa.open_runs(where) as runs:
            patient_run = await begin(runs, patient)
            await has_begun(patient, 1)
            slow_run = await begin(runs, slow)
            for run in (slow_run, patient_run):
                rest = await run.rest()
                assert (rest.kind, rest.run.configuration.state) == ("waiting", "asked")
                (patient / "ends").touch()

    asyncio.run(asyncio.wait_for(whole(), 50))
    assert (slow / "slow").exists()
    assert [(each / "begun").read_text() for each in (slow, patient)] == ["x", "x"]


@pytest.mark.parametrize("by_server", [False, True])
def test_run_can_be_interrupted_before_any_worker_drives_it(
    *, by_server: bool, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """Start and interruption both wait at the server until a worker comes, which receives them at the same moment."""
    from dsa.temporal import payloads

    where = next(namespaces)
    (tmp_path / "order.md").write_text(ORDER.format(handling="retry", limit="60s"))
    (tmp_path / "bindings.py").write_text(PATIENT)

    async def whole() -> None:
        async with dsa.open_runs(where) as runs:
            run = await runs.start(tmp_path / "order.md", "go", run_id="order")
            await run.exists()
            client = await runs.link.wait(runs.link.client())
            work = runs.store.update("order", payloads.INTERRUPT)
            if by_server:
                work.close()
                work = client.get_workflow_handle("order").cancel()
            interruption = asyncio.create_task(runs.link.wait(work))
            await asyncio.sleep(0.3)  # it is at the server
            async with worker(where):
                await interruption
                assert (await run.rest()).run.configuration.state == "busy"  # its event is not lost
                news = await runs.look("order")
                assert (news.summary.status, news.is_driven) == ("interrupted", False)

    asyncio.run(asyncio.wait_for(whole(), 40))
