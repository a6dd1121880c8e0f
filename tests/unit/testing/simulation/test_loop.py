"""An event loop on which waiting costs nothing: order, cancelling, time, and endless loops."""

import asyncio
import gc

import pytest

from dsa.testing.simulation.virtual_loop import BEGIN_MS, SpinningError, Time, VirtualClock, VirtualLoop


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def loop(time):
    return VirtualLoop(time)


def wake(loop):
    """Return a callback that lets time pass until nothing sleeps any more."""

    def idle():
        if loop.next_s == float("inf"):
            return False
        loop.wake_next()
        return True

    return idle


def nobody():
    return False


def run(loop, coroutine):
    """Run a coroutine to its end, and return its result."""
    task = loop.create_task(coroutine)
    assert loop.play(task, wake(loop))
    return task.result()


def test_sleep_of_a_day_takes_no_time(loop, time):
    async def sleeps():
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run(loop, sleeps()) == 86_400
    assert time.now_s == 86_400
    assert time.wall_ms() == BEGIN_MS + 86_400_000


def test_sleepers_wake_in_order_of_time_and_then_of_arrival(loop):
    order = []

    async def sleeps(name, seconds):
        await asyncio.sleep(seconds)
        order.append(name)

    async def all_of_them():
        await asyncio.gather(sleeps("late", 3), sleeps("first", 1), sleeps("second", 1), sleeps("soon", 0))

    run(loop, all_of_them())
    assert order == ["soon", "first", "second", "late"]


def test_soon_calls_run_in_order_before_time_passes(loop, time):
    called = []

    async def calls():
        loop.call_later(0, called.append, "later")
        for name in ("one", "two", "three"):
            loop.call_soon(called.append, name)
        loop.call_soon(called.append, "cancelled").cancel()
        await asyncio.sleep(0)

    assert loop.play(loop.create_task(calls()), nobody)
    assert called == ["one", "two", "three", "later"]
    assert time.now_s == 0


def test_cancelled_timer_does_not_wake(loop, time):
    called = []
    early = loop.call_later(1, called.append, "early")
    loop.call_later(2, called.append, "late")
    assert loop.next_s == 1
    early.cancel()
    assert loop.next_s == 2
    loop.wake_next()
    assert (called, time.now_s) == (["late"], 2)
    assert loop.next_s == float("inf")


def test_cancelled_task_ends_where_it_waits(loop):
    ends = []

    async def waits():
        try:
            await loop.create_future()
        finally:
            ends.append("over")

    task = loop.create_task(waits())
    assert not loop.play(task, nobody)
    task.cancel()
    assert loop.play(task, nobody)
    assert task.cancelled()
    assert ends == ["over"]


def test_idle_callback_is_called_only_when_nothing_can_run(loop):
    asked = []

    async def waits():
        turn = loop.create_future()
        for n in range(3):
            await asyncio.sleep(0)
            asked.append(n)
        loop.call_soon(turn.set_result, "world")
        return await turn

    task = loop.create_task(waits())
    assert loop.play(task, nobody)
    assert task.result() == "world"

    async def asks():
        turn = loop.create_future()
        turns.append(turn)
        return await turn

    def idle():
        asked.append("idle")
        turns[0].set_result("done")
        return True

    turns = []
    task = loop.create_task(asks())
    assert loop.play(task, idle)
    assert (task.result(), asked) == ("done", [0, 1, 2, "idle"])


def test_endless_loop_without_waiting_is_found(loop):
    def spin():
        loop.call_soon(spin)

    async def begins():
        spin()

    with pytest.raises(SpinningError, match=r"none of them waited for anything"):
        loop.play(loop.create_task(begins()), nobody)


def test_loops_of_one_story_share_its_time(time):
    one, other = VirtualLoop(time), VirtualLoop(time)
    run(one, asyncio.sleep(5))
    assert other.time() == 5
    other.call_at(3, lambda: None)  # it is overdue: time does not go back
    other.wake_next()
    assert time.now_s == 5


def test_nested_loop_restores_the_outer_one(loop, time):
    async def inner():
        await asyncio.sleep(1)
        return asyncio.get_running_loop()

    async def outer():
        other = VirtualLoop(time)
        assert run(other, inner()) is other
        return asyncio.get_running_loop()

    assert run(loop, outer()) is loop
    with pytest.raises(RuntimeError, match=r"no running event loop"):
        asyncio.get_running_loop()


def test_wall_clock_may_be_set_while_true_time_goes_on(time, loop):
    clock = VirtualClock(time)
    time.set_by_ms = -3_600_000

    async def sleeps():
        await clock.sleep(1.5)

    run(loop, sleeps())
    assert clock.now_s() == 1.5
    assert clock.wall_ms() == BEGIN_MS - 3_600_000 + 1_500


def test_unhandled_error_is_recorded(loop):
    async def fails():
        raise ValueError("nobody looks")

    async def waits():
        loop.create_task(fails())
        await asyncio.sleep(0)

    assert loop.play(loop.create_task(waits()), nobody)
    gc.collect()
    assert [str(each["exception"]) for each in loop.unheard] == ["nobody looks"]
