"""The tree of an effect's calls: their steps and incidents in a ledger, and which of them are in doubt."""

from each_row import each_row

from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, ResultEntry, ResumedEntry
from dsa.runtime.policy.call_tree import call_key, call_named, calls_of, doubted_calls
from dsa.runtime.policy.policies import Action, action_call_step, action_result_step, error_step, text_step

KEY = "1/1"


def begun(path, policy="look", in_doubt="retry", key=KEY):
    return CallEntry(key, path, policy, "0", {}, (), in_doubt)


def ended(path, *steps):
    return CallResultEntry(KEY, path, [step.to_json() for step in steps])


def failed(path, policy="look"):
    about = {"call": {"policy": policy, "path": path}}
    return ResultEntry(KEY, [error_step("perform", "GONE", "no route", about=about).without_id()])


def resumed(**calls):
    return ResumedEntry(effects={KEY: "retry"}, calls={call_key(KEY, path): how for how, path in calls.items()})


FIRST = begun("1.1", "trip")


def test_calls_are_sorted_by_place_and_those_of_other_keys_left_out():
    entries = [FIRST, begun("1.10"), begun("1.2"), begun("1.2.1"), begun("1.3", key="r/1/2")]
    assert [call.path for call in calls_of(entries, KEY)] == ["1.1", "1.2", "1.2.1", "1.10"]


def test_passed_on_step_belongs_to_the_call_that_made_it():
    call = action_call_step("assistant", Action("look"), step_id="1.1.1.1/1")
    result = action_result_step("look", {"a": 1}, step_id="1.1.1.1/1.result")
    own = text_step("trip", "done", step_id="1.1/3")
    passed_on = ended("1.1.1", call, result)
    entries = [FIRST, begun("1.1.1"), begun("1.1.1.1"), ended("1.1.1.1", call), passed_on]
    root, outer, inner = calls_of([*entries, ended("1.1", call, result, own)], KEY)
    assert [step["id"] for step in root.own] == ["1.1/3"]
    assert (outer.own, [step["id"] for step in inner.own]) == ((), ["1.1.1.1/1"])
    assert len(root.steps) == 3


def cached(entries):
    return [call.path for call in calls_of(entries, KEY) if call.is_cached]


def test_call_finished_before_the_last_resumption_is_cached():
    entries = [FIRST, begun("1.1.1"), ended("1.1.1"), begun("1.1.2")]
    later = [*entries, resumed(), ended("1.1.2"), begun("1.1.3")]
    assert (cached(entries), cached(later), cached([*later, resumed()])) == ([], ["1.1.1"], ["1.1.1", "1.1.2"])


def test_decided_call_is_cached_only_after_another_resumption():
    entries = [FIRST, begun("1.1.1"), DecidedEntry(KEY, "done", "1.1.1"), ended("1.1.1"), resumed()]
    assert cached(entries) == []
    assert cached([*entries, resumed()]) == ["1.1.1"]
    assert calls_of(entries, KEY)[1].incidents == ("done",)


def test_each_call_in_progress_has_its_decision_at_resumption():
    entries = [FIRST, begun("1.1.1"), begun("1.1.2", "pay", "fail"), resumed(retry="1.1.1", fail="1.1.2")]
    assert [call.incidents for call in calls_of(entries, KEY)] == [(), ("retry",), ("fail",)]


def test_call_that_raised_is_stopped_until_the_run_resumes():
    entries = [FIRST, begun("1.1.1"), begun("1.1.2"), failed("1.1.2")]
    first, beside, raised = calls_of(entries, KEY)
    assert (first.is_stopped, beside.is_stopped, raised.is_stopped) == (False, False, True)
    assert raised.incidents[0]["message"] == "no route"
    _, beside, raised = calls_of([*entries, resumed(retry="1.1.1", again="1.1.2")], KEY)
    assert (raised.is_stopped, raised.incidents[1], beside.incidents) == (False, "again", ("retry",))


def test_another_try_has_its_own_calls():
    entries = [FIRST, failed("1.1"), begun("2.1"), resumed(retry="2.1")]
    first, second = calls_of(entries, KEY)
    assert ([type(what) for what in first.incidents], second.incidents) == ([dict], ("retry",))


def test_abandoned_call_ends_with_its_caller():
    entries = [FIRST, begun("1.1.1"), ended("1.1")]
    assert [(call.steps, call.is_over) for call in calls_of(entries, KEY)] == [((), True), (None, True)]


def test_call_that_raised_is_named_with_its_key():
    payload = failed("1.1.2").steps[0]["payload"]
    assert call_named(KEY, payload) == "look 1/1/1.1.2"
    assert call_named(KEY, {}) == ""
    assert (call_key(KEY, "1.1"), call_key("", "1.1")) == ("1/1/1.1", "1.1")


DOUBTS = {
    "in a call": ([FIRST, begun("1.1.1")], None, ["1.1.1"]),
    "between calls": ([FIRST, begun("1.1.1"), ended("1.1.1")], None, ["1.1"]),
    "in several calls": ([FIRST, begun("1.1.1"), begun("1.1.1.1"), begun("1.1.2")], None, ["1.1.1.1", "1.1.2"]),
    "one of them asks": ([FIRST, begun("1.1.1"), begun("1.1.2", "pay", "ask")], None, ["1.1.1", "1.1.2"]),
    "within one that asks": ([FIRST, begun("1.1.1", "pay", "ask"), begun("1.1.1.1")], None, ["1.1.1"]),
    "within one that fails": ([FIRST, begun("1.1.1", "pay", "fail"), begun("1.1.1.1")], None, ["1.1.1"]),
    "the policy itself asks": ([begun("1.1", "pay", "ask"), begun("1.1.1")], None, ["1.1"]),
    "call that raised": ([FIRST, begun("1.1.1", "pay", "ask")], "1.1.1", []),
    "nested call that raised": ([FIRST, begun("1.1.1"), begun("1.1.1.1")], "1.1.1.1", []),
    "call that raised beside another": ([FIRST, begun("1.1.1"), begun("1.1.2", "pay", "ask")], "1.1.1", ["1.1.2"]),
    "abandoned call": ([FIRST, begun("1.1.1"), begun("1.1.1.1"), ended("1.1.1")], None, ["1.1"]),
    "finished": ([FIRST, begun("1.1.1"), ended("1.1")], None, []),
}


@each_row(("entries", "raised", "paths"), DOUBTS.values(), ids=DOUBTS)
def test_doubted_call_is_the_outermost_unrepeatable_or_else_the_innermost(entries, raised, paths):
    assert [call.path for call in doubted_calls(entries, raised)] == paths
