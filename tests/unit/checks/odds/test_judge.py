"""The two quantitative forms of properties, judged with the document's odds."""

import pytest
from each_row import each_row
from families import ordered
from odds_documents import HUM, TOOLS, UNLIMITED, chain, closed_form

import dsa
from dsa.checks.odds.run_odds import judge, question
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import Always
from dsa.expr import TRUE
from dsa.lang import loads

ODDS = """## Guards
| guard | judges  | pass | fatal |
| ----- | ------- | ---- | ----- |
| g     | verdict | 0.5  | 0.1   |
"""


def judged(text, claim, **at):
    machine = loads(text + f"\n## Properties\n- {claim}\n").at(at)
    return judge(machine, machine.properties[-1].form)[:2]


def steps(n, rmax):
    before, _, rest = dsa.dumps(ordered(n, rmax)).partition("## Guards")
    return before + ODDS + "\n## States" + rest.partition("## States")[2]


@each_row(
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
def test_number_decides_the_verdict(claim, verdict, number):
    found, reason = judged(steps(2, 2), claim)
    assert found == verdict
    if number is not None:
        assert reason.startswith(("the probability is ", ""))
        assert f"{number:.10g}" in reason


def test_expected_calls_match_the_closed_form():
    _, reason = judged(steps(4, 3), "expected query_llm <= 9", rmax=5)
    assert f"{closed_form([(0.5, 0.1)] * 4, 5)[3]:.10g} are expected" == reason


def test_worst_choice_counts():
    assert judged(TOOLS, "thinking with probability >= 1") == ("HOLDS", "the probability is 1")
    verdict, reason = judged(TOOLS, "run_tool with probability >= 0.5")
    assert verdict == "VIOLATED"
    chosen, _, nobody = reason.partition("; ")
    assert chosen == "the probability is 0 to 1, depending on the choices, at worst 0"
    assert (
        nobody
        == "nothing comes from outside in waiting: to give odds for events that come there, use `dsa odds` with --event"
    )
    assert judged(TOOLS, "expected run_tool <= 3")[0] == "HOLDS"
    assert judged(TOOLS, "expected run_tool <= 2")[0] == "VIOLATED"


def test_missing_odds_and_unlimited_retries_are_unknown():
    machine = chain("a")
    machine = loads(dsa.dumps(machine) + "\n## Properties\n- succeeded with probability >= 0.5\n")
    verdict, reason = judge(machine, machine.properties[0].form)[:2]
    assert (verdict, reason) == (
        "UNKNOWN",
        "guard a has no odds: write them in the column `pass` of Guards, or give --pass a=0.7",
    )
    verdict, reason = judged(UNLIMITED.replace("| 0.6  |", "| 0.5, 0.6 |"), "succeeded with probability >= 0.5")
    assert verdict == "UNKNOWN"
    assert reason.startswith("retries are unlimited")
    assert "if so, the probability is 0.8" in reason


def test_guard_without_memory_is_judged_even_with_unlimited_retries():
    for form, verdict in (
        ("succeeded with probability >= 0.857", "HOLDS"),
        ("succeeded with probability >= 0.858", "VIOLATED"),
        ("succeeded with probability <= 0.858", "HOLDS"),
        ("succeeded with probability <= 0.857", "VIOLATED"),
        ("escalated with probability <= 0.143", "HOLDS"),
    ):
        assert judged(UNLIMITED, form)[0] == verdict, form


def test_upper_bound_is_judged_by_the_highest_odds_of_all_choices():
    verdict, reason = judged(TOOLS, "done with probability <= 0.9")[:2]
    assert (verdict, "--event" in reason) == ("VIOLATED", True)


def test_other_forms_are_not_judged():
    assert judge(ordered(1, 1), Always(TRUE)) == ("UNKNOWN", "the form is not about odds", ())


def form_of(text, claim, **at):
    machine = loads(text + f"\n## Properties\n- {claim}\n").at(at)
    return machine, machine.properties[-1].form


def test_limit_makes_both_forms_unknown():
    for claim in ("succeeded with probability >= 0.5", "expected query_llm <= 9"):
        machine, form = form_of(steps(2, 2), claim)
        assert judge(machine, form, SearchLimits(10)) == ("UNKNOWN", "more than 10 configurations", ())
        stopped = judge(machine, form, SearchLimits(1_000, is_expired=lambda: True))
        assert stopped == ("UNKNOWN", "the time limit was reached after 0 configurations", ())
        assert judge(machine, form, SearchLimits(1_000))[0] == "HOLDS"


@pytest.mark.parametrize(("text", "looks"), [(steps(2, 2), 16), (TOOLS, 5)])
def test_time_limit_reached_while_solving_makes_the_form_unknown(text, looks):
    asked = iter([False] * looks)  # the time runs out after the chain is built and before it is solved
    machine, form = form_of(text, "succeeded with probability >= 0.5")
    found = judge(machine, form, SearchLimits(1_000, is_expired=lambda: next(asked, True)))
    assert found == ("UNKNOWN", "the time limit was reached before the odds were worked out", ())


def test_number_comes_with_its_assumptions():
    for claim in ("expected query_llm <= 9", "expected query_llm <= 1"):
        machine, form = form_of(steps(2, 2), claim)
        assert judge(machine, form)[2] == question(machine).assumptions != ()


def test_unanswered_state_with_a_timer_is_named_in_the_reason():
    reason = judged(HUM, "succeeded with probability >= 0.5")[1]
    assert reason.startswith("the probability is 0; nothing comes from outside in waiting: ")
    assert "nobody" not in judged(HUM, "failed with probability >= 1")[1]


RARELY_LEFT = """# rarely
## Guards
| guard | judges | verdicts       | pass |
| ----- | ------ | -------------- | ---- |
| g     | r      | passed, failed | {}   |
| h     | t      | passed, failed | 0.5  |
## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| r     | ask     |
| t     | try     |
| x     | pick    |
| y     | pick    |
## States
| state     | kind    |
| --------- | ------- |
| a         | initial |
| b         |         |
| c         |         |
| d         |         |
| succeeded | final   |
| failed    | final   |
## Transitions
| source | event | if       | effects | target    |
| ------ | ----- | -------- | ------- | --------- |
| a      | go    |          | ask     | b         |
| b      | r     | g.passed | ask     | b         |
| b      | r     | else     | try     | c         |
| c      | t     | h.passed | pick    | d         |
| c      | t     | else     |         | failed    |
| d      | x, y  |          |         | succeeded |
## Properties
- succeeded with probability >= 0.9
- expected pick <= 1
"""


@pytest.mark.parametrize("stays", ["0.9", "0.9999", "0.999999999", "0.99999999999999"])
def test_cycle_that_is_rarely_left_is_decided(stays):
    """Success is 0.5 whatever the choice; iterating 100,000 times, or until little changes, does not show that."""
    machine = loads(RARELY_LEFT.format(stays))
    found = [judge(machine, claim.form)[:2] for claim in machine.properties]
    assert found == [("VIOLATED", "the probability is 0.5"), ("HOLDS", "0.5 are expected")]


ROUND = """# round
## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| more  | ask     |
| done  | ask     |
## States
| state     | kind    |
| --------- | ------- |
| a         | initial |
| b         |         |
| succeeded | final   |
## Transitions
| source | event | effects | target    |
| ------ | ----- | ------- | --------- |
| a      | go    | ask     | b         |
| b      | more  | ask     | b         |
| b      | done  |         | succeeded |
"""


def test_run_that_may_go_on_for_ever_exceeds_every_number():
    may = judged(ROUND, "expected ask <= 1000")
    assert may == (
        "VIOLATED",
        "1 to infinitely many are expected, depending on the choices: a run may loop for ever; to give odds for these choices, use `dsa odds` with --event",
    )
    must = judged(ROUND.replace("|         | succeeded |", "| ask     | b         |"), "expected ask <= 1000")
    assert must == ("VIOLATED", "infinitely many are expected: a run may loop for ever")
