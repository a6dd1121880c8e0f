"""Causes that stop a run: failing effects, invalid answers, and answers that the table cannot take."""

import pytest
from hands import HOLES, TWO_AT_ONCE, Hands, driver_of, finish
from results import results_of

from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import replay
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock


def test_failing_effect_without_answers_stops_the_run():
    async def broken(_action, _context):
        raise OSError("disk full")

    hands_log = []

    async def play():
        hands = Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(log=broken))
        rest = await driver.drive(Occurrence("go"))
        hands_log.extend(hands.log)
        return rest

    rest = finish(play())
    assert rest.kind == "stopped"
    line = next(row.span.line for row in TWO_AT_ONCE.transitions if row.source == "idle")
    assert (rest.failure.what, rest.failure.line, rest.failure.message) == ("log", line, "disk full")
    assert hands_log == [], "nothing after it has started"
    assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [event_step("left", "right_done")],
        [event_step("left", "gossip")],
        [event_step("left", "left_done"), event_step("left", "left_done")],
        [event_step("left", "left_done", verdicts={"nobody": "passed"})],
        [error_step("left", "GONE", "the tool is gone")],
    ],
    ids=["nothing", "another's", "unknown", "twice", "unknown guard", "error as data"],
)
def test_invalid_answer_fails_the_effect(steps):
    async def odd(_action, _context):
        return steps

    async def play():
        return await driver_of(TWO_AT_ONCE, Hands().effects(left=odd)).drive(Occurrence("go"))

    rest = finish(play())
    assert rest.kind == "stopped"
    assert rest.failure.what == "left"
    assert rest.failure.code in {"BAD_ANSWER", "GONE"}
    results = results_of(rest.run.ledger, "left")
    assert any(step["payload"].get("error") for step in results[0].steps)


def test_answer_that_the_table_cannot_take_stops_the_run():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(HOLES, hands.effects(), clock=clock)
        hands.gates["left"].set()
        return await driver.drive(Occurrence("go"))

    rest = finish(play())
    assert (rest.kind, rest.failure.code, rest.run.configuration.state) == ("stopped", "out_of_domain", "working")
    assert "left_done in working" in str(rest.failure)


def test_stopped_run_leaves_nothing_under_way():
    async def broken(_action, _context):
        raise OSError("disk full")

    async def play():
        clock, hands = StillClock(), Hands()
        rest = await driver_of(TWO_AT_ONCE, hands.effects(tidy=broken), clock=clock).drive(Occurrence("go"))
        assert rest.kind == "stopped"
        assert hands.log == ["log starts", "log ends", "left starts", "left cancelled"]
        assert clock.sleeper_count == 0

    finish(play())
