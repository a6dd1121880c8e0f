import pytest

from dsa.runtime.content import Usage
from dsa.runtime.costs import Meter, read_limit, totals
from dsa.runtime.generation import GenerationError
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallResultEntry,
    EffectEntry,
    EventEntry,
    GuardVerdict,
    Ledger,
    ResultEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.policy.policies import error_of, error_step

#: A row that asks for both effects.
ASKED = (
    EventEntry(1, "go"),
    RowEntry(1, "a", "b"),
    EffectEntry("1/1", "query_llm"),
    EffectEntry("1/2", "execute_guard"),
)


def call(author="llm", prompt=10, completion=5, cost=0.25, seconds=1.5):
    return ArtifactEntry("k", "g", 1, "id", "d", (), author, "m", seconds, prompt, completion, cost)


def test_totals_add_up_and_people_cost_nothing():
    verdict = VerdictEntry("k", "g", 1, "id", [GuardVerdict("g", "passed")], seconds=0.5)
    sums = totals([call(), verdict, call(), call("person"), verdict], "query_llm")
    assert (sums.calls, sums.prompt_tokens, sums.completion_tokens, sums.cost_usd) == (2, 20, 10, 0.5)
    assert (sums.model_seconds, sums.guard_seconds) == pytest.approx((3.0, 1.0))


def test_unknown_usage_is_not_counted_as_zero():
    failed = ResultEntry("1/1", (error_step("query_llm", "X", "y").without_id(),))
    other = ResultEntry("1/2", (error_step("execute_guard", "X", "y").without_id(),))
    sums = totals([*ASKED, call(prompt=None), call(cost=None), call(), failed, other], "query_llm")
    assert (sums.calls, sums.failed_calls, sums.uncounted_calls) == (4, 1, 1)
    assert sums.cost_usd is None


def test_call_refused_by_the_budget_is_not_counted():
    refused = ResultEntry("1/1", (error_step("query_llm", "BUDGET", "spent").without_id(),))
    sums = totals([*ASKED, call(), refused], "query_llm")
    assert (sums.calls, sums.failed_calls, sums.cost_usd) == (1, 0, 0.25)


def test_usage_of_a_called_policy_counts_once():
    def step(number, usage, path="1.1"):
        return {"id": f"{path}/{number}", "actor": "m", "type": "text", "payload": {"text": "", "usage": usage}}

    known = step(1, {"prompt_tokens": 30, "completion_tokens": 4, "cost_usd": 0.5})
    unknown = step(2, {"model": "m", "cost_usd": None})
    passed_on = CallResultEntry("k", "1", [known, unknown, {**known, "id": "1/3", "payload": {"text": ""}}])
    sums = totals([CallResultEntry("k", "1.1", [known]), CallResultEntry("k", "1.1", [unknown]), passed_on], "")
    assert (sums.calls, sums.uncounted_calls, sums.prompt_tokens, sums.completion_tokens) == (2, 1, 30, 4)
    assert sums.cost_usd is None
    assert totals([CallResultEntry("k", "1.1", [known]), passed_on], "").cost_usd == 0.5


def test_unusable_answer_is_paid_for():
    cut_off = GenerationError("it was cut off", "cut_off", Usage("m", 2.0, 30, 160, 0.5))
    failed = ResultEntry("1/1", (error_of("query_llm", cut_off).without_id(),), seconds=2.1)
    sums = totals([*ASKED, call(), failed], "query_llm")
    assert (sums.calls, sums.failed_calls, sums.uncounted_calls) == (2, 1, 0)
    assert (sums.prompt_tokens, sums.completion_tokens, sums.cost_usd, sums.model_seconds) == (40, 165, 0.75, 3.5)
    meter = Meter([read_limit("tokens=190", ["query_llm"])], ["query_llm"])
    assert meter.try_limit("query_llm") is None
    meter.follow(Ledger([*ASKED, failed]))
    assert meter.try_limit("query_llm") is not None


def test_cost_of_a_failure_without_usage_is_unknown():
    failed = ResultEntry("1/1", (error_of("query_llm", GenerationError("no", "refused")).without_id(),))
    assert totals([*ASKED, failed], "query_llm").cost_usd is None
    assert "usage" not in failed.steps[0]["payload"]
