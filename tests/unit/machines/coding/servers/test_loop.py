"""The event loop beside the threads that use it."""

import asyncio
import concurrent.futures
import threading

import pytest

from machines.coding.tools.mcp_tools import BesideLoop


@pytest.fixture
def beside():
    made = BesideLoop()
    yield made
    made.end()


@pytest.mark.parametrize("begun", [True, False])
def test_work_is_cancelled_when_its_caller_is_interrupted(beside, begun, monkeypatch):
    started, cancelled = threading.Event(), threading.Event()
    goes_on = asyncio.run_coroutine_threadsafe

    async def work():
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    def interrupted(coroutine, loop):
        """Raise after the work is handed over, and before there is anything to cancel."""
        if not begun:
            hold = threading.Event()
            loop.call_soon_threadsafe(hold.wait, 5)
            threading.Timer(0.1, hold.set).start()
        goes_on(coroutine, loop)
        assert not begun or started.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        beside.run(work())
    monkeypatch.undo()
    beside.run(asyncio.sleep(0))
    assert (started.is_set(), cancelled.wait(5) if begun else cancelled.is_set()) == (begun, begun)


def test_work_for_an_ended_loop_is_refused(beside):
    beside.end()
    with pytest.raises(concurrent.futures.CancelledError):
        beside.run(asyncio.sleep(0))
