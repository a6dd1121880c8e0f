"""A timer and a sleep of 30 days on Temporal, at a server that skips the time in which nothing happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporal_server import MISSING, temporal_program

import dsa
from dsa.runtime.ledger import EventEntry

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| waiting | |
| end.dropped | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| approved | outside |
| found | look |
| rested | nap |

## Effects
| effect | is | options |
| --- | --- | --- |
| look | | |
| nap | sleep | for = 30d |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
"""
#: The rows of each document, and the event after 30 days.
ROWS = {
    "a timer": (
        """| idle | question | waiting | look |
| waiting | found | = | |
| waiting | approved | = | nap |
| waiting | rested | = | |
| waiting | after 30d | end.dropped | |
""",
        "after 30d",
    ),
    "a sleep": (
        """| idle | question | waiting | look, nap |
| waiting | found | = | |
| waiting | approved | = | |
| waiting | rested | end.dropped | |
""",
        "rested",
    ),
}
DAYS_MS = 30 * 24 * 3_600_000


@asynccontextmanager
async def skipping_runs() -> AsyncIterator[Any]:
    """Open runs at a server of their own that skips time."""
    from temporalio.client import Client
    from temporalio.testing import WorkflowEnvironment

    from dsa.temporal.payloads import CONVERTER

    allowed = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        ip="127.0.0.1",
        dev_server_existing_path=temporal_program(),
        dev_server_log_level="never",
        dev_server_extra_args=allowed,
    )
    try:
        config = environment.client.config()
        config["data_converter"] = CONVERTER
        async with dsa.open_runs(f"temporal://{environment.client.service_client.config.target_host}/default") as runs:
            runs.link._client = Client(**config)  # type: ignore[attr-defined]  # noqa: SLF001  (it asks for the skipping)
            yield runs
    finally:
        await environment.shutdown()


@pytest.mark.skipif(temporal_program() is None, reason=MISSING)
@pytest.mark.parametrize("document", ROWS)
def test_thirty_days_pass_at_once(document: str, tmp_path: Path) -> None:
    rows, event = ROWS[document]
    file = tmp_path / "order.md"
    file.write_text(ORDER + rows)

    @dsa.answering("found")
    async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        return [dsa.event_step("look", "found")]

    async def whole() -> None:
        async with skipping_runs() as runs:
            run = await runs.start(file, "go", bindings=dsa.Bindings({"look": look}))
            rest = await run.rest(through_timers=True)
            assert (rest.kind, rest.run.configuration.state) == ("finished", "end.dropped")
            events = [each for each in rest.run.ledger if isinstance(each, EventEntry)]
            assert [each.event for each in events] == ["question", "found", event]
            assert DAYS_MS <= events[-1].at_ms - events[0].at_ms <= DAYS_MS + 60_000

    asyncio.run(asyncio.wait_for(whole(), 40))
