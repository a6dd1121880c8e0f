"""Effects that start in place: those that wait, those that fail, and those that are stopped before their task has had a turn."""

import asyncio

import pytest

from dsa.edge.event_loop import MonotonicClock, UnderWay


def held(work, *, stopped=False, turns=0):
    """Start work in place, let a number of turns of the loop pass, stop it on request; return what happened and what failed."""
    seen, broken = [], []

    async def lived():
        under_way = UnderWay(MonotonicClock(), lambda _: None, broken.append)
        under_way.start_here("e", lambda: work(seen))
        for _ in range(turns):
            await asyncio.sleep(0)
        if stopped:
            under_way.stop("e")
            await under_way.stop_all()
        else:
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(lived())
    return seen, broken


async def waits(seen):
    seen.append("begun")
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    finally:
        seen.append("left")
    seen.append("ended")


async def waits_for_another(seen):
    inner = asyncio.create_task(asyncio.sleep(3600))
    try:
        await inner
    finally:
        await asyncio.sleep(0)
        seen.append(inner.cancelled())


async def breaks(seen):
    seen.append("begun")
    await asyncio.sleep(0)
    raise ValueError("broken")


def test_effect_that_waits_continues():
    assert held(waits) == (["begun", "left", "ended"], [])


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_stopped_effect_is_cancelled_even_before_its_task_begins(turns):
    assert held(waits, stopped=True, turns=turns) == (["begun", "cancelled", "left"], [])


@pytest.mark.parametrize("turns", [0, 1])
def test_task_that_an_effect_waits_for_is_cancelled_too(turns):
    assert held(waits_for_another, stopped=True, turns=turns) == ([True], [])


def test_failure_of_an_effect_is_reported():
    seen, broken = held(breaks)
    assert (seen, [str(error) for error in broken]) == (["begun"], ["broken"])
