"""What a ledger tells of a run of a policy: the tree of its calls, how it stands, what may be said of it."""

import pytest
from dsa.runtime.called import CallDoubtError, calls_of, policy_standing, require_decidable, settled

from dsa.runtime.ledger import CallEntry, CallResultEntry, DoubtEntry, PolicyEntry, ResultEntry
from dsa.runtime.policies import Action, action_call_step, action_result_step, error_step, text_step

FIRST = PolicyEntry("r", "trip", "0", {"text": "a"})


def begun(path, policy="look", in_doubt="retry"):
    return CallEntry("r", path, policy, "d", {}, (), in_doubt)


def ended(path, *steps):
    return CallResultEntry("r", path, [step.to_json() for step in steps])


def said(path, text="x"):
    return text_step("look", text, step_id=f"{path}/1")


def failed(path, policy="look"):
    return ResultEntry(f"r/{path}", policy, [error_step(policy, "GONE", "no route").to_json()])


def doubted(path, handling="retry"):
    return DoubtEntry(f"r/{path}", "look", handling)


def test_calls_stand_in_the_order_of_their_places():
    entries = [FIRST, begun("1.10"), begun("1.2"), begun("1.2.1")]
    assert [(call.path, call.depth) for call in calls_of(entries)] == [("1", 0), ("1.2", 1), ("1.2.1", 2), ("1.10", 1)]


def test_a_step_belongs_to_the_call_that_made_it_however_far_it_is_passed_on():
    call = action_call_step("assistant", Action("look"), step_id="1.1.1/1")
    result = action_result_step("look", {"a": 1}, step_id="1.1.1/1.result")
    own = text_step("trip", "done", step_id="1/3")
    passed_on = ended("1.1", call, result)
    entries = [FIRST, begun("1.1"), begun("1.1.1"), ended("1.1.1", call), passed_on, ended("1", call, result, own)]
    root, outer, inner = calls_of(entries)
    assert [step["id"] for step in root.own] == ["1/3"]
    assert (outer.own, [step["id"] for step in inner.own]) == ((), ["1.1.1/1"])
    assert len(root.steps) == 3


def test_what_had_given_its_steps_when_the_run_was_taken_up_last_is_cached():
    entries = [FIRST, begun("1.1"), ended("1.1"), begun("1.2")]
    later = [*entries, doubted("1.2"), ended("1.2"), begun("1.3")]
    assert [call.is_cached for call in calls_of(later)] == [False, True, False, False]
    assert policy_standing(later).cached == 1
    assert policy_standing([*later, doubted("1.3")]).cached == 2
    assert policy_standing(entries).cached == 0


STANDINGS = {
    "nothing called": ([FIRST], "cut off", [("1", "retry")]),
    "in a call": ([FIRST, begun("1.1")], "cut off", [("1.1", "retry")]),
    "between calls": ([FIRST, begun("1.1"), ended("1.1")], "cut off", [("1", "retry")]),
    "in several": ([FIRST, begun("1.1"), begun("1.1.1"), begun("1.2")], "cut off", [("1.1.1", "retry"), ("1.2", "retry")]),
    "one of them asks": ([FIRST, begun("1.1"), begun("1.2", "pay", "ask")], "in doubt", [("1.1", "retry"), ("1.2", "ask")]),
    "within one that asks": ([FIRST, begun("1.1", "pay", "ask"), begun("1.1.1")], "in doubt", [("1.1", "ask")]),
    "within one that fails": ([FIRST, begun("1.1", "pay", "fail"), begun("1.1.1")], "cut off", [("1.1", "fail")]),
    "the policy itself asks": ([PolicyEntry("r", "pay", "0", in_doubt="ask")], "in doubt", [("1", "ask")]),
    "a call that raised": ([FIRST, begun("1.1", "pay", "ask"), failed("1.1", "pay")], "stopped", [("1.1", "again")]),
    "raised deeper": ([FIRST, begun("1.1"), begun("1.1.1"), failed("1.1.1")], "stopped", [("1.1.1", "again")]),
    "raised beside another": (
        [FIRST, begun("1.1"), begun("1.2", "pay", "ask"), failed("1.1")],
        "in doubt",
        [("1.1", "again"), ("1.2", "ask")],
    ),
    "taken up after that": ([FIRST, begun("1.1"), failed("1.1"), doubted("1.1", "again")], "cut off", [("1.1", "retry")]),
    "a call nobody waited for": ([FIRST, begun("1.1"), begun("1.1.1"), ended("1.1")], "cut off", [("1", "retry")]),
    "over": ([FIRST, begun("1.1"), ended("1", said("1"))], "finished", []),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "kind", "todo"), STANDINGS.values(), ids=STANDINGS)
def test_how_a_run_stands_and_what_is_done_about_what_was_under_way(entries, kind, todo):
    stands = policy_standing(entries)
    assert (stands.kind, [(call.path, handling) for call, handling in stands.doubted]) == (kind, todo)
    held = policy_standing(entries, "process 7")
    assert (held.kind, held.holder) == (("finished", None) if kind == "finished" else ("under way", "process 7"))


def test_the_failure_that_stopped_a_run_is_told_until_it_goes_on():
    entries = [FIRST, begun("1.1"), begun("1.1.1"), failed("1.1.1")]
    failure = policy_standing(entries).failure
    assert (failure.path, failure.failure["message"]) == ("1.1.1", "no route")
    assert policy_standing([*entries, doubted("1.1.1", "again")]).failure is None
    assert len(calls_of([*entries, doubted("1.1.1", "again")])[2].happened) == 2


def test_what_the_run_gave_is_its_answer_or_an_error():
    text, error = said("1"), error_step("trip", "MAX_TURNS", "too many", step_id="1/2")
    assert policy_standing([FIRST, ended("1", text)]).error is None
    assert policy_standing([FIRST, ended("1", text, error)]).error["code"] == "MAX_TURNS"
    assert policy_standing([FIRST, ended("1", error, text)]).error is None
    assert (policy_standing([FIRST, ended("1")]).answer, policy_standing([FIRST]).answer) == ((), ())


ASKED = [FIRST, begun("1.1"), begun("1.2", "pay", "ask")]


@pytest.mark.parametrize(
    ("decided", "answers", "said"),
    [
        (["1.3"], [], r"1\.3 is not in doubt; in doubt: 1\.1, 1\.2"),
        ([], ["1"], "1 is not in doubt"),
        (["1.2"], ["1.2"], r"1\.2 is decided twice"),
    ],
)
def test_nothing_is_said_of_what_is_not_in_doubt(decided, answers, said):
    with pytest.raises(CallDoubtError, match=said):
        require_decidable(policy_standing(ASKED), decided, answers)


def test_of_what_failed_there_is_no_doubt():
    with pytest.raises(CallDoubtError, match="in doubt: nothing"):
        require_decidable(policy_standing([FIRST, begun("1.1"), failed("1.1")]), ["1.1"], [])


def test_what_is_done_about_each_call_is_recorded_with_what_it_gave():
    stands = policy_standing(ASKED)
    retried = settled("r", stands, {"1.2": "retry"}, {})
    assert retried == (DoubtEntry("r/1.1", "look", "retry"), DoubtEntry("r/1.2", "pay", "retry"))
    given = action_result_step("pay", {"paid": 5})
    answered = settled("r", stands, {}, {"1.2": given})
    assert answered[1:] == (
        DoubtEntry("r/1.2", "pay", "done"),
        ended("1.2", action_result_step("pay", {"paid": 5}, step_id="1.2/1")),
    )
    *_, result = settled("r", stands, {"1.1": "fail", "1.2": "done"}, {})
    assert result.steps[0]["payload"]["done"] is True
    _, result, *_ = settled("r", stands, {"1.1": "fail", "1.2": "done"}, {})
    assert (result.path, result.steps[0]["payload"]["code"]) == ("1.1", "IN_DOUBT")
    calls = calls_of([*ASKED, *settled("r", stands, {"1.1": "fail", "1.2": "done"}, {})])
    assert [call.steps is not None for call in calls] == [False, True, True]
