"""Timers and time limits on a clock that only the test moves: when they fire, when they are dropped."""

import asyncio

import pytest
from hands import HOLES, TWO_AT_ONCE, Hands, driver_of, finish, refusals

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run import begin
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock


def test_timer_fires_at_its_time_and_not_before():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive())
        await clock.advance(4.9)
        assert driver.run.configuration.state == "idle"
        await clock.advance(0.2)
        rest = await driving
        assert (rest.kind, rest.run.configuration.state) == ("waiting", "bored")
        assert hands.log == ["log starts", "log ends"]
        assert (await driver.drive(Occurrence("stop"))).run.outcome == "done"

    finish(play())


def test_timer_is_dropped_when_its_state_is_left():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.advance(6)
        assert driver.run.configuration.state == "idle", "right has taken longer than its three seconds"
        assert refusals(driver.run) == []
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving

    finish(play())


def test_time_limit_of_an_effect_is_a_failure_that_a_row_can_handle():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.advance(3)
        failed = next(e for e in driver.run.ledger if isinstance(e, EventEntry) and e.event == "right.failed")
        assert "3 s" in failed.data["message"]
        assert driver.run.configuration.state == "idle"
        assert hands.log[-2:] == ["right cancelled", "left cancelled"]
        await clock.advance(5)
        assert (await driving).run.configuration.state == "bored"

    finish(play())


def test_timer_that_fired_for_an_earlier_stay_is_ignored():
    """It was queued behind an event that left its state and entered it again."""

    async def play():
        clock, hands, gate = StillClock(), Hands(), asyncio.Event()

        async def slow(_action, _context):
            await gate.wait()
            return []

        driver = driver_of(HOLES, hands.effects(log=slow), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("slow")))
        await clock.settle()
        driver.send(Occurrence("same"))
        await clock.advance(5)
        gate.set()
        await clock.settle()
        assert driver.run.configuration.state == "idle"
        await clock.advance(5)
        assert (await driving).run.configuration.state == "bored"

    finish(play())


class Broken(StillClock):
    """A clock that fails after a number of readings, and whenever something waits for it."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def now_s(self):
        self.times -= 1
        if self.times < 0:
            raise OSError("the clock has stopped")
        return super().now_s()

    async def sleep(self, seconds):
        raise OSError("the clock has stopped")


@pytest.mark.parametrize(("events", "times"), [((), 99), (("go",), 0), (("go",), 2)], ids=str)
def test_error_in_a_task_of_the_driver_ends_the_drive(events, times):
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects(), clock=Broken(times))
        with pytest.raises(OSError, match="the clock has stopped"):
            await asyncio.wait_for(driver.drive(*map(Occurrence, events)), 20)

    finish(play())


ASKING = loads("""# asking
## Events
| event | from |
| - | - |
| approved | outside |
## States
| state | kind |
| - | - |
| asking | initial |
| paid | final |
| lapsed | |
## Transitions
| source | event | target |
| - | - | - |
| asking | approved | paid |
| asking | after 10s | lapsed |
| lapsed | approved | = |
""")


@pytest.mark.parametrize(("posted_s", "state"), [(9.9, "paid"), (10.0, "paid"), (10.1, "lapsed")])
def test_message_posted_before_a_timer_was_due_is_taken_before_it_fires(posted_s, state):
    """A driver that reads the inbox only now and then reads it once more before a timer fires."""

    async def play():
        clock = StillClock()
        run, commands = begin(ASKING, "r", at_ms=clock.wall_ms())
        begun_ms = clock.wall_ms()

        def look():
            driver.hand(Occurrence("approved"), posted_ms=begun_ms + round(posted_s * 1000))

        driver = Driver(run, Bindings({}), MemoryArtifacts(), commands=commands, clock=clock, on_ring=look)
        driving = asyncio.create_task(driver.drive())
        await clock.settle()
        await clock.advance(10)
        await clock.settle()
        driving.cancel()
        return driver.run

    run = finish(play())
    assert run.configuration.state == state
    assert [entry.event for entry in run.ledger if isinstance(entry, EventEntry)] == (
        ["approved"] if state == "paid" else ["after 10s", "approved"]
    )
