"""Long payloads of runs on Temporal are in a store that clients and workers reach; and no secret leaves a process, to the server or to the store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporal_server import MISSING, server, temporal_program

import dsa
from dsa.runtime.run_store import StoreError

MAKES = """# makes

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| asked | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| approved | outside |
| made | make |

## Transitions
| source | event | effects | target |
| --- | --- | --- | --- |
| idle | order | make | busy |
| busy | made | | asked |
| busy | make.failed | | asked |
| asked | approved | | end.done |
"""
LONG = 1_500_000


@pytest.fixture(scope="module")
def namespaces() -> Iterator[Iterator[str]]:
    if temporal_program() is None:
        pytest.skip(MISSING)
    with server(3) as addresses:
        yield iter(addresses)


def makes(folder: Path) -> Path:
    path = folder / "makes.md"
    path.write_text(MAKES)
    return path


def on_disk(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def history_bytes(runs: Any, run_id: str) -> bytes:
    """Return all that the server has of a run, as bytes."""
    client = await runs.link.wait(runs.link.client())

    async def whole() -> bytes:
        events = [event async for event in client.get_workflow_handle(run_id).fetch_history_events()]
        return b"".join(event.SerializeToString() for event in events)

    return bytes(await runs.link.wait(whole()))


@dsa.answering("made")
async def make(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    """Answer with something long, of which the server must not hear."""
    text = action.payload["data"]["text"]
    return [dsa.event_step("make", "made", data={"text": text[::-1] + "m" * LONG})]


def test_long_data_is_in_the_store_and_the_server_has_references(tmp_path: Path, namespaces: Iterator[str]) -> None:
    store, where = tmp_path / "store", next(namespaces)

    async def test() -> None:
        async with dsa.open_runs(f"{where}?store={store}") as runs:
            run = await runs.start(makes(tmp_path), {"text": "go" * LONG}, bindings=dsa.Bindings({"make": make}))
            rest = await run.rest()
            assert rest.run.configuration.state == "asked", rest.failure
            answer = next(entry.data for entry in rest.run.ledger if getattr(entry, "event", "") == "made")
            assert answer["text"] == "og" * LONG + "m" * LONG
            assert isinstance(await runs.send(run.id, "approved", {"note": "n" * LONG}), dsa.Taken)
            assert (await run.rest()).outcome == "done"
            assert len(await history_bytes(runs, run.id)) < 30_000
            assert any(len(content) > LONG for content in on_disk(store).values())
            async with dsa.open_runs(f"{where}?store={store}") as readers:
                assert len(readers.entries(run.id)) == len(run.run.ledger)
            async with dsa.open_runs(where) as readers:
                with pytest.raises(StoreError, match=r"long payloads are in a store.*\?store="):
                    readers.entries(run.id)
            for path, content in on_disk(store).items():
                path.write_bytes(content[:-1] + b"?")
            async with dsa.open_runs(f"{where}?store={store}") as readers:
                with pytest.raises(StoreError, match="was changed: its content is not what its name says"):
                    readers.entries(run.id)

    asyncio.run(asyncio.wait_for(test(), 60))


SECRET = "kx8-4f5TTq-not-for-the-server"


@dsa.answering("made")
async def leak(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    return [dsa.event_step("make", "made", data={"text": SECRET + "m" * 100_000})]


@dsa.answering("made")
async def raise_it(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    raise OSError(f"no access with {SECRET}")


@pytest.mark.parametrize("policy", [leak, raise_it])
def test_no_secret_leaves_the_process(
    policy: Any, tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    store, where = tmp_path / "store", next(namespaces)

    async def test() -> None:
        async with dsa.open_runs(f"{where}?store={store}") as runs:
            data = {"text": f"my key is {SECRET}", "long": "x" * 100_000}
            run = await runs.start(makes(tmp_path), data, bindings=dsa.Bindings({"make": policy}))
            assert (await run.rest()).run.configuration.state == "asked"
            await runs.send(run.id, "approved", {"note": f"with {SECRET}", "long": "x" * 100_000})
            await run.rest()
            history, files = await history_bytes(runs, run.id), on_disk(store)
            assert files
            assert b"SHOP_API_KEY" in history + b"".join(files.values())  # the marker says what was there
            for content in (history, *files.values()):
                assert SECRET.encode() not in content

    asyncio.run(asyncio.wait_for(test(), 60))
