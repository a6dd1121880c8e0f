"""The status of a run, computed from its ledger alone."""

import pytest
from stored_runs import SHOP, begun

from dsa.runtime.ledger import CallEntry, CallResultEntry, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import oldest_key
from dsa.runtime.status import outside_events, status_of
from dsa.semantics import Occurrence

FAILED = (error_step("x", "NO", "the shop is closed").to_json(),)


def ordered(text=SHOP):
    return begun(text).feed(Occurrence("order"))[0]


def done(run, key, steps=(), effect=None):
    """Record the result of an effect."""
    effect = effect or {"1/1": "log", "1/2": "pay", "2/1": "mail", "2/2": "log"}[key]
    return run.record(ResultEntry(key, tuple(steps)))


def paid(text=SHOP):
    run = done(done(ordered(text), "1/1"), "1/2", [event_step("pay", "paid").to_json()])
    return run.feed(Occurrence("paid"), oldest_key(run.keys, "pay"))[0]


def resting():
    return done(done(paid(), "2/1"), "2/2")


def test_run_without_work_is_waiting_or_finished():
    assert status_of(begun()).kind == "waiting"
    assert outside_events(begun()) == ("order",)
    assert status_of(resting()).kind == "waiting"
    assert outside_events(resting()) == ("more",)
    assert status_of(resting().feed(Occurrence("more"))[0]).kind == "finished"


def test_interrupted_actuator_is_in_doubt():
    found = status_of(done(ordered(), "1/1"))
    assert (found.kind, [intent.effect for intent in found.doubts]) == ("in doubt", ["pay"])
    found = status_of(done(paid(), "2/1"))
    assert (found.kind, found.doubts) == ("cut off", ())
    assert [(f.intent.effect, f.in_doubt) for f in found.left.in_flight] == [("log", True)]


def test_doubt_follows_the_in_doubt_column_of_the_table():
    assert (
        status_of(
            done(ordered(SHOP.replace("| pay    | actuator |          |", "| pay    | actuator | retry    |")), "1/1")
        ).kind
        == "cut off"
    )
    asking = SHOP.replace("| log    |          |          |", "| log    |          | ask      |")
    assert [intent.effect for intent in status_of(ordered(asking)).doubts] == ["log"], "pay waits for it"


def test_result_not_taken_yet_is_left_to_do():
    run = done(done(ordered(), "1/1"), "1/2", [event_step("pay", "paid").to_json()])
    found = status_of(run)
    assert (found.kind, [intent.effect for intent, _ in found.left.answers]) == ("cut off", ["pay"])


def test_failure_that_no_row_takes_stops_the_run():
    found = status_of(done(ordered(), "1/1", FAILED))
    assert (found.kind, found.failure) == ("stopped", "log 1/1 (line 30) failed: the shop is closed")
    assert [(f.intent.effect, f.in_doubt) for f in found.left.in_flight] == [("log", False), ("pay", False)]
    found = status_of(done(paid(), "2/1", FAILED))
    assert (found.kind, found.failure) == ("stopped", "mail 2/1 (line 31) failed: the shop is closed")
    again = done(paid(), "2/1", FAILED)
    again = again.record(ResumedEntry(effects={"2/1": "retry"}))
    assert status_of(again).kind == "in doubt", "it was tried again, and cut off"


def test_failure_without_a_reason_is_reported():
    silent = error_step("x", "NO", "").to_json()
    assert "its policy gives no reason" in status_of(done(paid(), "2/1", [silent])).failure


def test_answer_that_no_row_takes_stops_the_run():
    text = SHOP.replace("| paying  | declined   |           | failed    |\n", "")
    run = done(done(ordered(text), "1/1"), "1/2", [event_step("pay", "declined").to_json()])
    run, _ = run.feed(Occurrence("declined"), oldest_key(run.keys, "pay"))
    found = status_of(run)
    assert found.kind == "stopped"
    assert found.failure == "pay 1/2 (line 30): no row takes its answer (invalid_state: no row for declined here)"


def test_finished_run_may_have_an_effect_in_doubt():
    text = SHOP.replace("| resting | more       |           |", "| resting | more       | mail      |")
    run = done(done(paid(text), "2/1"), "2/2").feed(Occurrence("more"))[0]
    assert run.is_finished
    assert status_of(run).kind == "in doubt"
    assert status_of(done(run, "3/1", effect="mail")).kind == "finished"


def test_timer_stays_armed_while_a_run_waits():
    text = SHOP.replace("| resting | more       |", "| resting | after 2s   |").replace("| more     | outside |\n", "")
    run = done(done(paid(text), "2/1"), "2/2")
    found = status_of(run)
    assert (found.kind, found.left.timers) == ("waiting", {("resting", "after 2s"): 2000})


@pytest.mark.parametrize("run", [begun(), ordered(), paid()])
def test_held_run_is_under_way(run):
    found = status_of(run, "process 1")
    assert (found.kind, found.holder, found.doubts) == ("under way", "process 1", ())


def test_effect_with_a_call_that_must_not_be_repeated_is_in_doubt():
    text = SHOP.replace("| log    |          |          |", "| log    |          | retry    |")
    key = "1/1"

    def call_of(path, in_doubt):
        return CallEntry(key, path, "post", "d", {}, (), in_doubt)

    asking = ordered(text).record(call_of("1.1", "ask"))
    found = status_of(asking)
    assert (found.kind, [intent.effect for intent in found.doubts]) == ("in doubt", ["log"])
    assert [call.path for call in found.left.in_flight[0].calls] == ["1.1"]
    assert status_of(ordered(text).record(call_of("1.1", "retry"))).kind == "cut off"
    assert status_of(asking.record(CallResultEntry(key, "1.1"))).kind == "cut off"
    assert status_of(ordered(text).record(call_of("2.1", "ask"))).kind == "cut off", "no such try was made"
    failing = ordered(text.replace("| retry    |", "| fail     |")).record(call_of("1.1", "ask"))
    assert status_of(failing).kind == "cut off", "the effect counts as failed: nothing is called again"
