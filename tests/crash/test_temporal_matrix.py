"""kill -9 of a worker at every boundary of the activities of shipped machines, with two workers, and of the server in the middle.

A boundary is a moment in the life of an activity: before its policy is called, after that has ended, and after the result was reported. One run of the
machine has no kill, and says how many boundaries there are; then there is a run for each of them, some side by side.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from chat_server import playing
from chats import CARS, following, sql
from temporal_crew import crew
from temporal_server import MISSING, DurableServer, server, temporal_program

import dsa
from dsa.edge.document_files import shipped_documents
from dsa.runs.runs import Resumption
from dsa.runtime.ledger import EffectEntry, ResultEntry, ResumedEntry
from dsa.runtime.run import Run, rederive
from dsa.runtime.run_store import StoreError
from machines.chat.chat_session import NAME, ChatStart
from machines.tool_use.machine_session import begin_run

WORKER = Path(__file__).with_name("killed_worker.py")
BINDINGS = """from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult


class Model(GeneratorInterface):
    def generate(self, context, template=None):
        return Artifact("def add(a, b):\\n    return a + b\\n" if context.feedback_history else "no code")


class Adds(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        return GuardResult("return a + b" in artifact.content, "it does not add")


generators = {"llm": Model()}
guards = {"g": Adds()}
"""
#: How many runs go on side by side.
SIDE_BY_SIDE = 6


Start = Callable[[dsa.Runs, str], Any]


def dual_state(folder: Path) -> Start:
    """Return how a run of the dual-state agent begins: its first answer is rejected, the second one passes."""

    async def start(runs: dsa.Runs, run_id: str) -> dsa.RunHandle:
        options = dsa.Options(bindings=str(folder / "bindings.py"), parameters={"rmax": 1})
        return await runs.start("dual_state", "Write add(a, b).", options=options, run_id=run_id)

    return start


def nested(folder: Path) -> Start:
    """Return how a run begins whose generator is a machine: the dual-state agent, as a part. Its own first artifact passes."""
    text = shipped_documents()["dual_state"].read_text()
    (folder / "inner.md").write_text(text)
    generators = (
        "## Generators\n| generator | is | options |\n| --- | --- | --- |\n| writer | machine | file = inner.md |\n\n"
    )
    (folder / "outer.md").write_text(
        text.replace("# dual_state", "# outer", 1).replace("## Events\n", f"{generators}## Events\n")
    )

    async def start(runs: dsa.Runs, run_id: str) -> dsa.RunHandle:
        return await runs.start(folder / "outer.md", "Write add(a, b).", run_id=run_id)

    return start


def chat(model: str) -> Start:
    """Return how a conversation begins whose model makes a query, and answers."""

    async def start(runs: dsa.Runs, run_id: str) -> dsa.RunHandle:
        handle = begin_run(runs, NAME, ChatStart(model, (CARS,)).options(), run_id=run_id)
        handle.start(dsa.Occurrence("message", data={"text": "How strong are the cars?"}))
        await handle.exists()
        return handle

    return start


async def ends(runs: dsa.Runs, run: dsa.RunHandle) -> dsa.Rest:
    """Wait until a run is finished; look again when no worker was there to answer for a while."""
    while True:
        try:
            rest = await run.rest()
            if rest.kind == "finished":
                return rest
            await go_on(runs, rest)
        except StoreError as error:
            assert "does not answer" in str(error)  # noqa: PT017  (any other is a fault)
        await run.change()


async def go_on(runs: dsa.Runs, rest: dsa.Rest) -> None:
    """Do what a person does: perform again what is in doubt or was lost with four workers, and end a conversation that has its answer."""
    run_id = rest.run.run_id
    if rest.kind == "in doubt":
        await runs.resume(run_id, resumption=Resumption(decisions={each.key: "retry" for each in rest.in_doubt}))
    elif rest.kind == "waiting":
        assert rest.run.configuration.state == "resting.completed"
        await runs.send(run_id, "ended")
    elif "its worker was lost 4 times or more" in str(rest.failure):  # each time for the kill of another run
        await runs.resume(run_id)
    else:
        raise AssertionError(f"{rest.kind}: {rest.failure}")


def check(run: Run, begun: Counter[str]) -> None:
    """Check that a run's story is that of its table, and that each effect was performed no more often than its story says."""
    ledger = run.ledger
    assert rederive(run.machine, ledger).ledger == ledger
    retries = Counter(
        key for entry in ledger if isinstance(entry, ResumedEntry) for key, how in entry.effects if how == "retry"
    )
    results = Counter(entry.key for entry in ledger if isinstance(entry, ResultEntry))
    for entry in ledger:
        if isinstance(entry, EffectEntry):
            assert results[entry.key] == 1, entry
            assert begun[f"{run.run_id}/{entry.key}/"] <= 1 + retries[entry.key], entry


@attrs.frozen
class Outcome:
    """The number of boundaries, of workers that were killed, and of effects that were performed again."""

    boundaries: int
    losses: int
    repeats: int


async def matrix(
    folder: Path, where: str, start: Start, kill_server: Callable[[], None] | None = None, most: int | None = None
) -> Outcome:
    """Kill a worker at each boundary of a run (at `most` of them), each in a run of its own; check how all of them end."""
    for name in ("passed", "kills"):
        (folder / name).mkdir()
    (folder / "bindings.py").write_text(BINDINGS)
    command = [sys.executable, str(WORKER), str(folder), where]
    async with dsa.open_runs(where) as runs, crew(folder, command) as workers:
        outcome = (await ends(runs, await start(runs, "whole"))).outcome
        count = len((folder / "passed" / "whole").read_bytes())
        assert count >= 9
        turns = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(number: int) -> dsa.Rest:
            async with turns:
                run_id = f"killed{number}"
                (folder / "kills" / run_id).write_text(str(number))
                return await ends(runs, await start(runs, run_id))

        numbers = [1 + count * number // (most or count) for number in range(most or count)]
        running = [asyncio.create_task(one(number)) for number in numbers]
        if kill_server is not None:
            while not (folder / "passed" / f"killed{numbers[0]}").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await asyncio.to_thread(kill_server)
        rests = await asyncio.gather(*running)
        assert list((folder / "kills").iterdir()) == [], "each kill has struck"
        assert 0 < workers.loss_count <= len(numbers)  # two kills may strike one process
        begun = Counter((folder / "begun").read_text().splitlines())
        for rest in rests:
            assert rest.outcome == outcome
            for run_id in (each for each in runs.ids() if f"{each}+".startswith(f"{rest.run.run_id}+")):
                check(runs.get(run_id).run, begun)
        return Outcome(count, workers.loss_count, sum(begun.values()) - len(begun))


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[DurableServer]:
    if temporal_program() is None:
        pytest.skip(MISSING)
    with DurableServer(tmp_path / "server.db") as server:
        yield server


@pytest.mark.full
@pytest.mark.limit(400)
@pytest.mark.parametrize("machine", ["dual_state", "nested", "chat"])
def test_kill_at_every_boundary_loses_and_repeats_nothing(
    machine: str, tmp_path: Path, durable: DurableServer, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    with ExitStack() as stack:
        if machine == "chat":
            start = chat(stack.enter_context(playing(following(sql(), answer="They have 119 hp."))).model)
        else:
            start = {"dual_state": dual_state, "nested": nested}[machine](folder)
        outcome = asyncio.run(asyncio.wait_for(matrix(folder, durable.where, start, durable.kill_and_start), 380))
    record_property("outcome", str(outcome))
    print(machine, outcome)


@pytest.mark.full
@pytest.mark.limit(60)
def test_some_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """The generator of the machine is another machine, the dual-state agent."""
    if temporal_program() is None:
        pytest.skip(MISSING)
    folder = tmp_path / "work"
    folder.mkdir()
    with server(1) as (where,):
        asyncio.run(asyncio.wait_for(matrix(folder, where, nested(folder), most=2), 55))
