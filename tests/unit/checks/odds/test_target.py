"""The smallest bound on retries for a target, and ceilings that are worked out."""

from math import ceil, log

import attrs
import pytest
from families import any_order, ordered
from odds_documents import TOOLS, UNLIMITED, ceiling, chain, closed_form

import dsa
from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.reckon import question
from dsa.checks.odds.target import TRIED, smallest, varied
from dsa.lang import loads


def wanted(machine, target, name=None, **given):
    return smallest(question(machine, **given), target, varied(machine, name))


@pytest.mark.parametrize(
    ("n", "p", "q", "target", "rmax", "calls"), [(5, 0.7, 0.0, 0.99, 5, 7.13), (20, 0.6, 0.0, 0.999, 10, 33.3)]
)
@pytest.mark.parametrize("form", ["ordered", "steps"])
def test_the_smallest_bound_of_the_acceptance(form, n, p, q, target, rmax, calls):
    names = [f"s{number}" for number in range(n)]
    machine, guards = (ordered(n, 3), ["g"]) if form == "ordered" else (chain(*names), names)
    found = wanted(machine, target, passes=dict.fromkeys(guards, (p,)), fatals=dict.fromkeys(guards, (q,)))
    assert (found.answer, found.value) == ("reached", rmax)
    assert found.reckoning.effect("query_llm").expected.low == pytest.approx(calls, rel=1e-3)
    assert found.value == ceil(log(1 - target ** (1 / n)) / log(1 - p) - 1)


def test_a_target_above_the_ceiling_is_impossible_and_not_searched_for():
    asked = question(ordered(5, 3), passes={"g": [0.5]}, fatals={"g": [0.01]})
    found = smallest(asked, 0.99, varied(ordered(5, 3)))
    assert (found.answer, found.is_ceiling) == ("impossible", True)
    assert found.ceiling == pytest.approx(0.9057308098, abs=1e-9)
    assert found.ceiling == pytest.approx(ceiling([(0.5, 0.01)] * 5), abs=1e-12)


@pytest.mark.parametrize(("p", "q", "target"), [(0.7, 0.001, 0.99), (0.05, 0.0, 0.9), (0.3, 0.02, 0.9 * 0.83)])
def test_the_value_found_is_enough_and_one_less_is_not(p, q, target):
    found = wanted(ordered(3, 0), target, passes={"g": [p]}, fatals={"g": [q]})
    assert closed_form([(p, q)] * 3, found.value)[0] >= target
    assert closed_form([(p, q)] * 3, found.value - 1)[0] < target


def test_a_ceiling_that_is_only_approached_is_impossible_too():
    found = wanted(ordered(2, 0), 1.0, passes={"g": [0.5]})
    assert (found.answer, found.ceiling) == ("impossible", 1.0)
    assert found.reason == "the ceiling is approached as rmax grows, and never reached"
    assert wanted(ordered(2, 0), 1.0, passes={"g": [1.0]}).value == 0
    assert wanted(ordered(2, 0), 1.0, passes={"g": [0.0, 0.0, 1.0]}).value == 2


def test_the_ceiling_with_odds_by_retry_number():
    found = wanted(ordered(1, 0), 0.99, passes={"g": [0.2, 0.6]}, fatals={"g": [0.1, 0.05]})
    assert found.ceiling == pytest.approx(0.2 + 0.7 * 0.6 / 0.65)


def test_a_parameter_that_ends_somewhere_has_its_ceiling_there():
    text = dsa.dumps(ordered(1, 0)).replace("| rmax      | 0..    |", "| rmax      | 0..4   |")
    found = wanted(loads(text), 0.99, passes={"g": [0.5]})
    assert (found.answer, found.ceiling) == ("impossible", 1 - 0.5**5)
    assert found.reason == "rmax is at most 4"


def test_success_that_more_retries_make_rarer_is_tried_value_by_value():
    """What is given up goes on without; each retry may be fatal, so none at all is best."""
    optional = loads("""# chain

## Steps
| step | requires | generator | guard  | rmax | optional |
| ---- | -------- | --------- | ------ | ---- | -------- |
| a    |          | llm       | syntax | 3    | yes      |
| b    |          | llm       | syntax | 3    |          |
""")
    given = {"passes": {"a": [0.5], "b": [1.0]}, "fatals": {"a": [0.2]}}
    found = wanted(optional, 0.8, **given)
    assert (found.answer, found.value, found.is_ceiling) == ("reached", 0, False)
    late = wanted(optional, 0.81, **given)
    assert (late.answer, late.ceiling) == ("unknown", pytest.approx(0.5 / 0.7))
    assert late.reason == f"not reached up to rmax = {TRIED}; success need not grow with rmax"


def test_a_counter_that_runs_down_has_no_limit_but_its_target_is_found():
    text = dsa.dumps(ordered(1, 0)).replace(
        "| retries  | environment | 0..rmax | 0       |", "| retries | environment | 0..rmax | rmax |"
    )
    text = (
        text.replace("retries < rmax", "retries > 0")
        .replace("retries += 1", "retries -= 1")
        .replace("retries = 0", "retries = rmax")
    )
    found = wanted(loads(text), 0.99, passes={"g": [0.5]})
    assert (found.answer, found.value, found.ceiling) == ("reached", 6, None)
    fatal = wanted(loads(text), 0.99, passes={"g": [0.5]}, fatals={"g": [0.1]})
    assert fatal.answer == "unknown"
    assert fatal.reason == (
        f"not reached up to rmax = {TRIED}; what success tends to is not known: variable retries depends on rmax"
    )


def test_nothing_is_searched_for_what_is_not_known():
    assert wanted(ordered(1, 1), 0.9).answer == "unknown"
    text = UNLIMITED.replace(
        "## Events", "## Parameters\n| parameter | domain | default |\n| - | - | - |\n| n | 1..9 | 1 |\n\n## Events", 1
    )
    found = wanted(loads(text), 0.5)
    assert found.answer == "unknown"
    assert "retries are unlimited" in found.reason


def test_what_is_varied_must_be_a_number():
    assert varied(chain("a", "b")).parameters == ("rmax.a", "rmax.b")
    assert varied(chain("a", "b"), "rmax.a").parameters == ("rmax.a",)
    with pytest.raises(OddsError, match=r"has no number 'rmax' to vary \(--vary\); it has: none"):
        varied(loads(TOOLS))
    with pytest.raises(OddsError, match="lies above 0"):
        wanted(ordered(1, 1), 0.0, passes={"g": [0.5]})


def test_the_least_success_counts_where_somebody_chooses():
    machine = any_order(2, 1)
    with pytest.raises(OddsError):
        varied(machine)  # its bound is no parameter
    asked = question(machine, passes={"g": [0.5]}, outside=True)
    assert asked.success_at() == pytest.approx(0.75**2)
    assert attrs.evolve(asked, world=attrs.evolve(asked.world, outside=False)).success_at() == 0
