"""The two quantitative forms of properties, judged with the document's odds."""

import pytest
from families import ordered
from odds_documents import TOOLS, UNLIMITED, chain, closed_form

import dsa
from dsa.checks.odds import judge
from dsa.claims import Always
from dsa.expr import TRUE
from dsa.lang import loads

ODDS = """## Guards
| guard | judges  | pass | fatal |
| ----- | ------- | ---- | ----- |
| g     | verdict | 0.5  | 0.1   |
"""


def judged(text, claim, **at):
    machine = loads(text + f"\n## Properties\n- {claim}\n").at(at)
    return judge(machine, machine.properties[-1].form)


def steps(n, rmax):
    before, _, rest = dsa.dumps(ordered(n, rmax)).partition("## Guards")
    return before + ODDS + "\n## States" + rest.partition("## States")[2]


@pytest.mark.parametrize(
    ("claim", "verdict", "number"),
    [
        ("succeeded with probability >= 0.54", "HOLDS", 0.78**2),
        ("succeeded with probability >= 0.61", "VIOLATED", 0.78**2),
        ("escalated with probability >= 0.1", "HOLDS", 0.156 * 1.78),
        ("g.failed with probability >= 0.5", "HOLDS", 1 - 0.6 + 0.0 + 0.5 * 0.4),
        ("g.fatal and done == 1 with probability >= 0.1", "HOLDS", 0.78 * 0.156),
        ("done >= 1 with probability >= 0.7", "HOLDS", 0.78),
        ("idle with probability >= 1", "HOLDS", 1.0),
        ("retries == rmax with probability >= 0.01", "HOLDS", None),
        ("expected query_llm <= 3", "HOLDS", None),
        ("expected query_llm <= 2.7", "VIOLATED", None),
        ("expected (artifact and retries == 0) <= 1.8", "HOLDS", 1.78),
        ("expected idle <= 1", "HOLDS", 1.0),
    ],
)
def test_the_number_decides(claim, verdict, number):
    found, reason = judged(steps(2, 2), claim)
    assert found == verdict
    if number is not None:
        assert reason.startswith(("the probability is ", ""))
        assert f"{number:.10g}" in reason


def test_expected_calls_are_the_closed_form():
    _, reason = judged(steps(4, 3), "expected query_llm <= 9", rmax=5)
    assert f"{closed_form([(0.5, 0.1)] * 4, 5)[3]:.10g} are expected" == reason


def test_the_worst_choice_counts():
    assert judged(TOOLS, "thinking with probability >= 1") == ("HOLDS", "the probability is 1")
    verdict, reason = judged(TOOLS, "run_tool with probability >= 0.5")
    assert (verdict, reason) == ("VIOLATED", "the probability is 0 to 1, as somebody chooses, at worst 0")
    assert judged(TOOLS, "expected run_tool <= 3")[0] == "HOLDS"
    assert judged(TOOLS, "expected run_tool <= 2")[0] == "VIOLATED"


def test_missing_odds_and_unlimited_retries_are_unknown():
    machine = chain("a")
    machine = loads(dsa.dumps(machine) + "\n## Properties\n- succeeded with probability >= 0.5\n")
    verdict, reason = judge(machine, machine.properties[0].form)
    assert (verdict, reason) == (
        "UNKNOWN",
        "no odds of guard a: write them in the column `pass` of Guards, or --pass a=0.7",
    )
    verdict, reason = judged(UNLIMITED, "succeeded with probability >= 0.5")
    assert verdict == "UNKNOWN"
    assert reason.startswith("retries are unlimited")
    assert "0.8571428571" in reason


def test_other_forms_are_not_its_affair():
    assert judge(ordered(1, 1), Always(TRUE)) == ("UNKNOWN", "the form does not speak of odds")
