"""A module that takes long to import stops nothing else that its worker does on Temporal, and its own effect begins once."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporal_server import MISSING, temporal_program, worker

import dsa

if temporal_program() is None:
    pytest.skip(MISSING, allow_module_level=True)

from dsa.temporal import activity_calls

DOCUMENT = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| looking | |
| asked | |
| end.sent | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| approved | outside |
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
"""
#: The client imports the module first; the worker's import takes longer than a worker may be silent.
SLOW = """import time
from pathlib import Path

import dsa

HERE = Path(__file__).parent
with (HERE / "imports").open("a") as file:
    file.write("x")
if (HERE / "imports").read_text() != "x":
    (HERE / "slow").touch()
    time.sleep(6)


@dsa.answering("found")
async def look(action, context):
    with (HERE / "begun").open("a") as file:
        file.write("x")
    return [dsa.event_step("look", "found")]


effects = {"look": look}
"""
#: An effect that is under way all the time.
PATIENT = """import asyncio
from pathlib import Path

import dsa

HERE = Path(__file__).parent


@dsa.answering("found")
async def look(action, context):
    with (HERE / "begun").open("a") as file:
        file.write("x")
    while not (HERE / "ends").exists():
        await asyncio.sleep(0.05)
    return [dsa.event_step("look", "found")]


effects = {"look": look}
"""


@pytest.mark.limit(60)
def test_worker_that_imports_a_slow_module_is_alive(
    tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity_calls, "SILENCE", timedelta(seconds=4))
    where = next(namespaces)
    for name, code in (("slow", SLOW), ("patient", PATIENT)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "order.md").write_text(DOCUMENT)
        (folder / f"{name}_bindings.py").write_text(code)

    async def begin(runs: dsa.Runs, name: str) -> dsa.RunHandle:
        folder = tmp_path / name
        return await runs.start(folder / "order.md", "go", bindings=folder / f"{name}_bindings.py", run_id=name)

    async def whole() -> None:
        async with worker(where), dsa.open_runs(where) as runs:
            patient = await begin(runs, "patient")
            while not (tmp_path / "patient" / "begun").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            slow = await begin(runs, "slow")
            for run in (slow, patient):
                rest = await run.rest()
                assert (rest.kind, rest.run.configuration.state) == ("waiting", "asked")
                (tmp_path / "patient" / "ends").touch()

    asyncio.run(asyncio.wait_for(whole(), 50))
    assert (tmp_path / "slow" / "slow").exists()
    assert [(tmp_path / name / "begun").read_text() for name in ("slow", "patient")] == ["x", "x"]
