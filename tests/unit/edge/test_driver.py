"""What the driver does with effects, cancelling and what is sent; real policies and tables, only what is outside follows a list."""

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


def test_one_without_answers_completes_before_the_next_starts_and_two_with_answers_run_at_once():
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


def test_cancel_stops_the_task_and_the_other_one_goes_on():
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


def test_a_final_state_cancels_what_is_under_way():
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


def test_an_answer_that_comes_in_spite_of_cancelling_is_late_and_recorded():
    async def stubborn(action, _context):
        """Do not let it be cancelled."""
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


def test_the_run_waits_when_only_people_can_go_on_and_can_be_driven_again():
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


def test_an_event_whose_sender_has_gone_with_its_event_loop_is_taken_in_another_one():
    driver = driver_of(TWO_AT_ONCE, Hands().effects(), clock=StillClock())

    async def offered():
        driver.hand(Occurrence("stop")).add_done_callback(heard.append)

    heard = []
    asyncio.run(offered())
    rest = asyncio.run(driver.drive(through_timers=False))
    assert (rest.kind, refusals(rest.run)) == ("waiting", ["invalid_state"])


def test_nobody_outside_can_answer_for_an_effect():
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


def test_data_that_is_no_json_is_refused_before_anything_happens():
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects())
        with pytest.raises(TypeError):
            driver.send(Occurrence("go", data=object()))
        return driver.run

    assert finish(play()).seq == 0
