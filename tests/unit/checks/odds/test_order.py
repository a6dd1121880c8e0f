"""The cheapest order, compared with all allowed orders, tried one by one on the expanded machines."""

from itertools import permutations

import pytest
from odds_documents import chain, loose

from dsa.checks.odds.odds_report import Order, cheapest_order
from dsa.checks.odds.run_odds import odds, question
from dsa.lang import loads

ODDS = {"a": [0.9], "b": [0.3], "c": [0.6, 0.9], "d": [0.5]}
FATAL = {"a": [0.0], "b": [0.02], "c": [0.0], "d": [0.2]}


def calls_in_order(names, requires, **given):
    return odds(loose(names, requires), **given).effect("query_llm").average.low


@pytest.mark.parametrize(
    "requires", [{}, {"a": "b"}, {"b": "d", "d": "a"}, {"a": "b and c"}, {"d": "a or c", "b": "d"}], ids=str
)
def test_cheapest_order_is_the_best_of_all_allowed_ones(requires):
    given = {"passes": ODDS, "fatals": FATAL}
    found = cheapest_order(question(loose(list(ODDS), requires), **given))
    assert isinstance(found, Order)
    tried = {}
    for names in permutations(ODDS):
        tried[names] = calls_in_order(names, requires, **given)
    assert found.cost_now == pytest.approx(tried[tuple(ODDS)])
    assert found.cost_best == pytest.approx(min(tried.values()))
    assert calls_in_order(found.best, requires, **given) == pytest.approx(found.cost_best)


def test_riskiest_step_comes_first_and_success_does_not_depend_on_the_order():
    machine = loose(["safe", "risky"])
    given = {"passes": {"safe": [0.95], "risky": [0.2]}}
    found = cheapest_order(question(machine, **given))
    assert found.best == ("risky", "safe")
    assert 0 < found.share_saved < 1
    reordered = loose(["risky", "safe"])
    assert odds(machine, **given).success.low == pytest.approx(odds(reordered, **given).success.low)


def test_prices_of_attempts_count():
    given = {"passes": {"a": [0.5], "b": [0.45]}, "prices": {"refine_context": 100.0, "query_llm": 1.0}}
    found = cheapest_order(question(loose(["a", "b"]), **given))
    priced = odds(loose(list(found.best)), **given)
    assert found.cost_best == pytest.approx(priced.cost.low)


def test_riskiest_ready_step_is_taken_if_there_are_many():
    names = [f"s{number}" for number in range(16)]
    passes = {name: [0.95 - 0.04 * number] for number, name in enumerate(names)}
    found = cheapest_order(question(loose(names, {"s15": "s0"}), passes=passes))
    assert not found.is_exact
    assert found.best[:2] == ("s14", "s13")
    assert found.best[-2:] == ("s0", "s15")
    assert found.cost_best < found.cost_now


def test_chain_has_one_order_and_other_documents_have_none():
    found = cheapest_order(question(chain("a", "b"), passes={"a": [0.9], "b": [0.1]}))
    assert found.best == found.now == ("a", "b")
    assert cheapest_order(question(chain("a", "b"), passes={"a": [0.9]})) == "no odds are given for b"
    optional = loads(
        "# w\n\n## Steps\n| step | guard | optional |\n| - | - | - |\n| a | syntax | yes |\n| b | syntax | |\n"
    )
    assert "optional" in cheapest_order(question(optional, passes={"a": [0.9], "b": [0.1]}))
