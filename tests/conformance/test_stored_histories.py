"""Stored histories: the code of the workflow gives the same commands as when they were recorded, and a changed table is detected by name.

Runs that are under way when a new version is installed continue from their histories. `UPDATE_GOLDEN=1` records them again: then runs under way need
workers of the old version (docs/how-to/temporal.md), which the changelog has to say.
"""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from temporal_server import MISSING, server, temporal_program

import dsa
from dsa.cli.replay import difference_lines
from dsa.lang import loads
from dsa.runtime.ledger import Ledger, from_json, to_json
from dsa.runtime.timeline import first_difference

HISTORIES = Path(__file__).parents[1] / "golden" / "histories"
HEAD = """# {name}

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| asked | |
| end.done | final |
| end.escalated | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| approved | outside |
| found | look |
| priced | price |

## Effects
| effect | retries |
| --- | --- |
| look | 1 |
| price | |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
"""
ROWS = {
    "approval": """| idle | order | busy | look, price |
| busy | found | asked | |
| busy | priced | = | |
| asked | priced | = | |
| asked | approved | end.done | |
| asked | after 24h | end.escalated | |
""",
    "cancellation": """| idle | order | busy | look, price |
| busy | found | asked | cancel |
| busy | priced | = | |
| asked | approved | end.done | |
| asked | after 24h | end.escalated | |
""",
    "escalation": """| idle | order | busy | price, look |
| busy | priced | = | |
| busy | found | asked | |
| busy | look.failed | end.escalated | |
| asked | approved | end.done | |
""",
}


def document(name: str) -> str:
    return HEAD.format(name=name) + ROWS[name]


def bindings(name: str) -> dsa.Bindings:
    @dsa.answering("found")
    async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        if name == "escalation":
            raise OSError("no route")
        return [dsa.event_step("look", "found", data={"order": "A17"})]

    @dsa.answering("priced")
    async def price(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        await asyncio.sleep(60 if name == "cancellation" else 0)
        return [dsa.event_step("price", "priced", data={"eur": 3})]

    return dsa.Bindings({"look": look, "price": price})


async def record(where: str, name: str, most_events: int | None) -> dict[str, Any]:
    """Return the histories of the executions of a run, and its ledger, without names of computers."""
    async with dsa.open_runs(where) as runs:
        runs.most_events = most_events  # type: ignore[attr-defined]  # of runs on Temporal
        machine = loads(document(name), f"{name}.md").at()
        run = await runs.start(machine, "go", bindings=bindings(name), run_id=name)
        rest = await run.rest()
        if rest.kind == "waiting":
            await runs.send(name, "order")  # it is refused, and leaves nothing
            await runs.send(name, "approved", at=rest.waits_for["approved"])
        assert (await run.rest()).kind == "finished"
        client = await runs.link.wait(runs.link.client())  # type: ignore[attr-defined]
        histories = await runs.link.wait(_histories(client, name))  # type: ignore[attr-defined]
        return {"histories": histories, "ledger": [to_json(each) for each in runs.get(name).run.ledger]}


async def _histories(client: Any, run_id: str) -> list[Any]:
    histories, execution = [], (await client.get_workflow_handle(run_id).describe()).run_id
    while execution:
        text = (await client.get_workflow_handle(run_id, run_id=execution).fetch_history()).to_json()
        histories.append(json.loads(re.sub(r'"[0-9]+@[^"]*"', '"worker"', text)))
        first = histories[-1]["events"][0]["workflowExecutionStartedEventAttributes"]
        execution = first.get("continuedExecutionRunId", "")
    return histories[::-1]


#: The recorded runs: a document, and the length of a history after which the run continues in a new execution.
RECORDED = {"approval": None, "cancellation": None, "escalation": None, "approval-continued": 1}


@pytest.mark.skipif(
    not os.environ.get("UPDATE_GOLDEN"), reason="it records the histories, which the other tests replay"
)
def test_histories_are_recorded() -> None:
    assert temporal_program() is not None, MISSING
    HISTORIES.mkdir(exist_ok=True)
    with server(len(RECORDED)) as addresses:
        for where, (name, most_events) in zip(addresses, RECORDED.items(), strict=True):
            recorded = asyncio.run(record(where, name.partition("-")[0], most_events))
            (HISTORIES / f"{name}.json").write_text(json.dumps(recorded) + "\n")


def replay(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replay histories as a worker would; return the ledgers of the executions. Raises what differs."""
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    import dsa.temporal.run_workflow as module
    from dsa.temporal.payloads import CONVERTER
    from dsa.temporal.server_link import RUNNER
    from dsa.temporal.temporal_runs import WORKFLOWS

    executions: list[Any] = []

    class Remembered(module.Execution):
        def __init__(self, start: Any) -> None:
            executions.append(self)
            super().__init__(start)

    monkeypatch.setattr(module, "Execution", Remembered)
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=RUNNER, data_converter=CONVERTER)

    async def all_of_them() -> None:
        for history in recorded["histories"]:
            await replayer.replay_workflow(WorkflowHistory.from_json("run", history))

    asyncio.run(all_of_them())
    return [each.run.ledger for each in executions]


def stored(name: str) -> Any:
    return json.loads((HISTORIES / f"{name}.json").read_text())


@pytest.fixture(autouse=True)
def _needs_the_sdk() -> None:
    pytest.importorskip("temporalio")


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_run_replays_with_the_current_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = stored(name)
    ledgers = replay(recorded, monkeypatch)
    assert len(ledgers) == len(recorded["histories"]) == (1 if RECORDED[name] is None else len(ledgers))
    if len(ledgers) == 1:
        assert [json.loads(json.dumps(to_json(each))) for each in ledgers[0]] == recorded["ledger"]
    else:
        assert len(ledgers) > 1


@pytest.mark.parametrize("name", RECORDED)
def test_changed_workflow_code_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that names its activities differently gives other commands; the message names the effect."""
    from dsa.temporal import activity_calls

    call = activity_calls.call_activity

    async def renamed(*arguments: Any, activity_id: str | None = None, **options: Any) -> Any:
        return await call(*arguments, activity_id=f"{activity_id}:new", **options)

    monkeypatch.setattr(activity_calls, "call_activity", renamed)
    with pytest.raises(Exception, match=r"\[TMPRL1100\].*1:1:(look|price)"):
        replay(stored(name), monkeypatch)


#: Changes of a table: how a document is changed, and the words that a difference must have.
CHANGES = {
    "a renamed state": (lambda text: text.replace("asked", "waiting_for_people"), "waiting_for_people"),
    "a swapped target": (
        lambda text: text.replace("| busy | found | asked |", "| busy | found | end.done |"),
        "end.done",
    ),
    "an added effect": (
        lambda text: text.replace("| busy | found | asked | |", "| busy | found | asked | look |"),
        "look",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_table_is_detected_by_name(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay of a history does not notice a renamed state; the story derived from it does, as `dsa replay --against` and `dsa diff` do."""
    rewrite, word = CHANGES[change]
    old, new = (loads(text, "new.md").at() for text in (document("approval"), rewrite(document("approval"))))
    (ledger,) = replay(stored("approval"), monkeypatch)
    assert first_difference(old, ledger, old) is None
    difference = first_difference(new, Ledger(from_json(to_json(each)) for each in ledger), old)
    assert difference is not None
    lines = difference_lines(new, difference, "new.md")
    assert re.match("event [23], found in busy:", lines[0])
    assert word in "\n".join(lines)
    assert word not in lines[1], "what was recorded"
