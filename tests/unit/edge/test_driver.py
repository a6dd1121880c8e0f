"""Effects, cancellation and sent events in the driver; policies and tables are real, and only events from outside follow a list."""

import asyncio

import pytest
from hands import TWO_AT_ONCE, Hands, driver_of, finish, refusals
from results import results_of

from dsa.edge.performer import steps_of
from dsa.errors import OccurrenceError
from dsa.runtime.policy.policies import Step, event_step
from dsa.runtime.run import replay
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock


def test_effects_without_answers_run_in_sequence_and_those_with_answers_overlap():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        assert hands.log == ["log starts", "log ends", "left starts", "tidy starts", "tidy ends", "right starts"]
        hands.gates["right"].set()
        await clock.settle()
        assert driver.run.configuration.state == "half"
        hands.gates["left"].set()
        rest = await driving
        assert (rest.kind, rest.run.outcome) == ("finished", "done")
        assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run

    finish(play())


def test_cancel_stops_one_effect_and_the_other_continues():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        await clock.settle()
        assert hands.log[-1] == "left cancelled"
        hands.gates["left"].set()
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert "left ends" not in hands.log

    finish(play())


def test_final_state_cancels_effects_under_way():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(right=hands.slow), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert "left cancelled" in hands.log

    finish(play())


def test_answer_of_a_cancelled_effect_is_late_and_recorded():
    async def stubborn(action, _context):
        """Answer in spite of a cancellation."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return [event_step(action.policy, "left_done")]

    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(left=stubborn), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        await clock.settle()
        assert refusals(driver.run) == ["late"]
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run

    finish(play())


def test_run_that_waits_for_people_rests_and_can_be_driven_again():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        hands.gates["left"].set()
        hands.gates["right"].set()
        rest = await driving
        assert (rest.kind, rest.run.configuration.state) == ("waiting", "half")
        refused = await driver.drive(Occurrence("stop"))
        assert (refused.kind, refusals(refused.run)) == ("waiting", ["invalid_state"])

    finish(play())


def test_event_from_a_closed_event_loop_is_taken_in_another_one():
    driver = driver_of(TWO_AT_ONCE, Hands().effects(), clock=StillClock())

    async def offered():
        driver.hand(Occurrence("stop")).add_done_callback(heard.append)

    heard = []
    asyncio.run(offered())
    rest = asyncio.run(driver.drive(through_timers=False))
    assert (rest.kind, refusals(rest.run)) == ("waiting", ["invalid_state"])


def test_only_outside_events_can_be_sent():
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects())
        for occurrence in (
            Occurrence("left_done"),
            Occurrence("left.failed"),
            Occurrence("gossip"),
            Occurrence("after 5s", source="idle"),
        ):
            with pytest.raises(OccurrenceError):
                driver.send(occurrence)

    finish(play())


def test_steps_are_numbered_under_the_key_of_their_effect():
    async def chatty(action, _context):
        return [Step("", "left", "text", {"text": "hm"}), event_step(action.policy, "left_done")]

    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(left=chatty), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driving.cancel()
        return driver.run

    run = finish(play())
    result = results_of(run.ledger, "left")[0]
    assert [step.id for step in steps_of(result)] == ["1/2/1", "1/2/2"]


def test_non_json_data_is_refused_before_anything_happens():
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects())
        with pytest.raises(TypeError):
            driver.send(Occurrence("go", data=object()))
        return driver.run

    assert finish(play()).seq == 0
