"""Budgets: the cost of a run is added up from its ledger, with failed tries and tries in doubt."""

import pytest

from dsa.errors import ParameterError
from dsa.runtime.costs import BudgetLimit, Meter, read_limit
from dsa.runtime.ledger import ArtifactEntry, CallResultEntry, EffectEntry, Ledger, ResultEntry, ResumedEntry

LEDGERS = {}
EFFECTS = ("query_llm", "execute_guard", "log")
ERROR = {"payload": {"error": True, "code": "X"}}
REFUSED = {"payload": {"error": True, "code": "BUDGET"}}


def meter(*limits):
    LEDGERS.clear()
    return Meter([read_limit(limit, EFFECTS) for limit in limits], ["query_llm", "execute_guard"])


def spend(counted, *entries):
    told = LEDGERS[id(counted)] = LEDGERS.get(id(counted), Ledger()).extend(entries)
    counted.follow(told)
    return counted


LOG, ASK, CHECK = (
    EffectEntry(f"1/{place}", effect) for place, effect in ((1, "log"), (2, "query_llm"), (3, "execute_guard"))
)
LOGGED, GENERATED, CHECKED = (ResultEntry(asked.key) for asked in (LOG, ASK, CHECK))


def generated(key, **usage):
    return ArtifactEntry(key, "g", 1, "a", "c", **usage)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("calls=20", BudgetLimit("calls", 20)),
        ("usd=0.5", BudgetLimit("usd", 0.5)),
        ("query_llm.tokens=4000", BudgetLimit("tokens", 4000, "query_llm")),
        (" query_llm.seconds= 1.5", BudgetLimit("seconds", 1.5, "query_llm")),
    ],
)
def test_limit_is_read(text, limit):
    assert read_limit(text, EFFECTS) == limit


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("calls", "write UNIT=NUMBER or EFFECT.UNIT=NUMBER"),
        ("calls=1.5", "calls must be a whole number"),
        ("query_llm.tokens=0.1", "tokens must be a whole number"),
        ("calls=-1", "'-1' is not a number of 0 or more"),
        ("calls=inf", "'inf' is not a number of 0 or more"),
        ("hours=3", "where UNIT is one of calls, tokens, usd, seconds"),
        ("query.calls=3", "no effect is called 'query'; did you mean 'query_llm'?"),
    ],
)
def test_invalid_limit_is_reported(text, why):
    with pytest.raises(ParameterError, match=why) as refused:
        read_limit(text, EFFECTS)
    assert refused.value.code == "BudgetError"


def test_whole_run_limit_stops_only_effects_that_spend():
    limits = [read_limit(text, EFFECTS) for text in ("calls=1", "execute_guard.calls=2")]
    counted = spend(Meter(limits, ["query_llm", "execute_guard"], ["query_llm"]), CHECK, CHECKED)
    assert counted.try_limit("query_llm") == limits[0]
    assert counted.try_limit("execute_guard") is None
    spend(counted, CHECKED)
    assert counted.try_limit("execute_guard") == limits[1]


def test_failed_and_cut_off_tries_count_too():
    counted = meter("query_llm.calls=4")
    spend(counted, EffectEntry("k", "query_llm"), ResultEntry("k", (ERROR,)))
    spend(counted, ResumedEntry(effects={"k": "again"}), ResultEntry("k"))
    assert counted.try_limit("query_llm") is None
    spend(counted, ResumedEntry(effects={"k": "retry"}))
    assert counted.try_limit("query_llm") is None
    counted.begins("query_llm")
    assert str(counted.try_limit("query_llm")) == "at most 4 calls of query_llm"
    counted.ends("query_llm")
    assert counted.try_limit("query_llm") is None
    assert counted.try_limit("execute_guard") is None
    spend(counted, ResultEntry("k"))
    assert counted.try_limit("query_llm") is not None


def test_try_refused_by_the_budget_does_not_count():
    counted = meter("calls=1")
    spend(counted, ResultEntry("k", (REFUSED,)))
    assert counted.try_limit("query_llm") is None


def test_whole_run_limit_is_about_effects_with_answers_only():
    counted = meter("calls=2", "log.calls=1")
    spend(counted, LOG, ASK, CHECK, LOGGED, GENERATED)
    assert counted.try_limit("execute_guard") is None
    assert str(counted.try_limit("log")) == "at most 1 call of log"
    spend(counted, CHECKED)
    assert str(counted.try_limit("execute_guard")) == "at most 2 calls in all"


def test_tokens_and_money_count_for_the_effect_that_generated():
    counted = meter("query_llm.tokens=100", "usd=1")
    spend(counted, EffectEntry("k", "query_llm"), generated("k", prompt_tokens=60, completion_tokens=30))
    assert counted.try_limit("query_llm") is None
    spend(counted, generated("k", prompt_tokens=10), generated("k"), generated("by a person", prompt_tokens=999))
    assert counted.try_limit("query_llm").unit == "tokens"
    assert counted.try_limit("execute_guard") is None
    spend(counted, generated("k", cost_usd=1.0))
    assert str(counted.try_limit("execute_guard")) == "at most 1 US dollar in all"


def test_remaining_seconds_are_a_time_limit():
    counted = meter("query_llm.seconds=10", "seconds=12")
    assert counted.seconds_left("query_llm") == 10
    spend(counted, ASK, CHECK, ResultEntry(ASK.key, seconds=4), ResultEntry(CHECK.key, seconds=1))
    assert counted.seconds_left("query_llm") == 6
    assert counted.seconds_left("log") == float("inf")
    spend(counted, ResultEntry(CHECK.key, seconds=7))
    assert counted.try_limit("query_llm").most == 12


def call_of(key, *usages, path="1.1", made_by="1.1"):
    steps = [{"id": f"{made_by}/{n}", "payload": {"usage": usage}} for n, usage in enumerate(usages, start=1)]
    return CallResultEntry(key, path, steps)


def test_called_policy_with_usage_counts_for_its_effect():
    intent = EffectEntry("1/1", "query_llm")
    usage = {"prompt_tokens": 30, "completion_tokens": 10, "cost_usd": 0.5}
    for limit in ("calls=1", "query_llm.calls=1", "tokens=40", "usd=0.5", "query_llm.tokens=40"):
        counted = spend(meter(limit), intent, call_of("1/1"), call_of("other", usage))
        assert counted.try_limit("query_llm") is None
        assert str(spend(counted, call_of("1/1", usage)).try_limit("query_llm")).startswith("at most")
    counted = spend(meter("calls=1"), intent, call_of("1/1", usage, path="1"))
    assert counted.try_limit("query_llm") is None, "a step that is passed on was counted with the call that made it"


@pytest.mark.parametrize("said", [None, "many", True, -5, float("inf"), [1]])
def test_invalid_usage_counts_as_zero(said):
    intent = EffectEntry("1/1", "query_llm")
    usage = {"prompt_tokens": said, "cost_usd": said}
    counted = spend(meter("tokens=1", "usd=0.1"), intent, call_of("1/1", usage), call_of("1/1"))
    assert counted.try_limit("query_llm") is None


def test_remaining_budget_is_returned_as_limits():
    counted = meter("query_llm.calls=4", "usd=0.5", "calls=1")
    spend(
        counted,
        EffectEntry("1", "query_llm"),
        generated("1", cost_usd=0.2),
        ResultEntry("1"),
    )
    spend(counted, EffectEntry("2", "execute_guard"), ResultEntry("2"))
    assert counted.left() == (BudgetLimit("calls", 3, "query_llm"), BudgetLimit("usd", 0.3), BudgetLimit("calls", 0))
