"""The smallest bound on retries for a target, and ceilings of success."""

from math import ceil, log

import attrs
import pytest
from families import any_order, ordered
from odds_documents import TOOLS, UNLIMITED, ceiling, chain, closed_form

import dsa
from dsa.checks.odds.retry_target import MOST_TRIALS, smallest, varied_parameter
from dsa.checks.odds.run_odds import question
from dsa.errors import ParameterError
from dsa.lang import loads


def wanted(machine, target, name=None, **given):
    return smallest(question(machine, **given), target, varied_parameter(machine, name))


@pytest.mark.parametrize(
    ("n", "p", "q", "target", "rmax", "calls"), [(5, 0.7, 0.0, 0.99, 5, 7.13), (20, 0.6, 0.0, 0.999, 10, 33.3)]
)
@pytest.mark.parametrize("form", ["ordered", "steps"])
def test_smallest_bound_matches_the_closed_form(form, n, p, q, target, rmax, calls):
    names = [f"s{number}" for number in range(n)]
    machine, guards = (ordered(n, 3), ["g"]) if form == "ordered" else (chain(*names), names)
    found = wanted(machine, target, passes=dict.fromkeys(guards, (p,)), fatals=dict.fromkeys(guards, (q,)))
    assert (found.answer, found.value) == ("reached", rmax)
    assert found.odds.effect("query_llm").average.low == pytest.approx(calls, rel=1e-3)
    assert found.value == ceil(log(1 - target ** (1 / n)) / log(1 - p) - 1)


def test_target_above_the_ceiling_is_impossible():
    asked = question(ordered(5, 3), passes={"g": [0.5]}, fatals={"g": [0.01]})
    found = smallest(asked, 0.99, varied_parameter(ordered(5, 3)))
    assert (found.answer, found.is_ceiling) == ("impossible", True)
    assert found.ceiling == pytest.approx(0.9057308098, abs=1e-9)
    assert found.ceiling == pytest.approx(ceiling([(0.5, 0.01)] * 5), abs=1e-12)


@pytest.mark.parametrize(("p", "q", "target"), [(0.7, 0.001, 0.99), (0.05, 0.0, 0.9), (0.3, 0.02, 0.9 * 0.83)])
def test_value_found_is_enough_and_one_less_is_not(p, q, target):
    found = wanted(ordered(3, 0), target, passes={"g": [p]}, fatals={"g": [q]})
    assert closed_form([(p, q)] * 3, found.value)[0] >= target
    assert closed_form([(p, q)] * 3, found.value - 1)[0] < target


def test_ceiling_that_is_only_approached_is_impossible_as_target():
    found = wanted(ordered(2, 0), 1.0, passes={"g": [0.5]})
    assert (found.answer, found.ceiling) == ("impossible", 1.0)
    assert found.reason == "the ceiling is approached as rmax grows, and never reached"
    assert wanted(ordered(2, 0), 1.0, passes={"g": [1.0]}).value == 0
    assert wanted(ordered(2, 0), 1.0, passes={"g": [0.0, 0.0, 1.0]}).value == 2


def test_ceiling_accounts_for_odds_by_retry_number():
    found = wanted(ordered(1, 0), 0.99, passes={"g": [0.2, 0.6]}, fatals={"g": [0.1, 0.05]})
    assert found.ceiling == pytest.approx(0.2 + 0.7 * 0.6 / 0.65)


def test_parameter_with_a_maximum_has_its_ceiling_there():
    text = dsa.dumps(ordered(1, 0)).replace("| rmax      | 0..    |", "| rmax      | 0..4   |")
    found = wanted(loads(text), 0.99, passes={"g": [0.5]})
    assert (found.answer, found.ceiling) == ("impossible", 1 - 0.5**5)
    assert found.reason == "rmax is at most 4"


def test_success_that_falls_with_more_retries_is_searched_value_by_value():
    """The optional step may fail without harm, but each retry may be fatal, so no retries are best."""
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
    assert late.reason == f"not reached up to rmax = {MOST_TRIALS}; success might not grow with rmax"


def test_counter_that_runs_down_has_no_limit_but_its_target_is_found():
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
        f"not reached up to rmax = {MOST_TRIALS}; the limit that success tends to is not known: variable retries depends on rmax"
    )


def test_unknown_odds_and_unlimited_retries_make_the_answer_unknown():
    assert wanted(ordered(1, 1), 0.9).answer == "unknown"
    text = UNLIMITED.replace(
        "## Events", "## Parameters\n| parameter | domain | default |\n| - | - | - |\n| n | 1..9 | 1 |\n\n## Events", 1
    )
    found = wanted(loads(text.replace("| 0.6  |", "| 0.5, 0.6 |")), 0.5)
    assert found.answer == "unknown"
    assert "retries are unlimited" in found.reason


def test_varied_parameter_must_be_a_number():
    assert varied_parameter(chain("a", "b")).parameters == ("rmax.a", "rmax.b")
    assert varied_parameter(chain("a", "b"), "rmax.a").parameters == ("rmax.a",)
    with pytest.raises(
        ParameterError, match=r"has no numeric parameter 'rmax' to vary \(--vary\); none are known here"
    ):
        varied_parameter(loads(TOOLS))
    with pytest.raises(ParameterError, match="must be above 0"):
        wanted(ordered(1, 1), 0.0, passes={"g": [0.5]})


def test_least_success_counts_if_choices_are_free():
    machine = any_order(2, 1)
    with pytest.raises(ParameterError):
        varied_parameter(machine)  # its bound is not a parameter
    asked = question(machine, passes={"g": [0.5]}, outside=True)
    assert asked.success_at() == pytest.approx(0.75**2)
    assert attrs.evolve(asked, world=attrs.evolve(asked.world, outside=False)).success_at() == 0


#: A machine that asks one guard again and again; the counter and its bound are filled in.
COUNTED = """# counted

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | {rmax} | 3       |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | {n}    | {first} |

## Events
| event   | from    |
| ------- | ------- |
| go      | outside |
| verdict | query   |

## Guards
| guard | judges  | pass |
| ----- | ------- | ---- |
| g     | verdict | 0.5  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| work      |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source | event   | if                    | update   | effects | target    |
| ------ | ------- | --------------------- | -------- | ------- | --------- |
| idle   | go      |                       |          | query   | work      |
| work   | verdict | g.passed              |          |         | succeeded |
| work   | verdict | not g.passed and {on} | {update} | query   | work      |
| work   | verdict | else                  |          |         | failed    |
"""


def counted(rmax="0..", n="0..5", first="0", on="n < rmax", update="n += 1"):
    return loads(COUNTED.format(rmax=rmax, n=n, first=first, on=on, update=update))


REFUSES = "at rmax = 6: the table refuses an event that can come in work; `dsa check` says which"


@pytest.mark.parametrize("target", [0.9, 63 / 64])
def test_target_below_a_domain_that_does_not_grow_is_reached(target):
    found = wanted(counted(), target)
    assert (found.answer, found.value) == ("reached", 3 if target == 0.9 else 5)


@pytest.mark.parametrize("target", [0.99, 1.0])
def test_counter_whose_domain_does_not_grow_ends_the_search(target):
    found = wanted(counted(), target)
    assert (found.answer, found.ceiling, found.is_ceiling) == ("impossible", 63 / 64, True)
    assert found.reason == f"rmax is at most 5; {REFUSES}"


def test_ceiling_that_is_reached_is_not_called_only_approached():
    found = wanted(counted(on="n < rmax and n < 5"), 63 / 64)
    assert (found.answer, found.value) == ("reached", 5)
    above = wanted(counted(on="n < rmax and n < 5"), 0.99)
    assert (above.answer, above.ceiling, above.reason) == ("impossible", 63 / 64, "")


def test_value_with_a_start_outside_its_domain_ends_the_search():
    """The counter runs down from `rmax`, and its domain ends at 5. A start at 12 would be read as another variable's value."""
    machine = counted(first="rmax", on="n > 0", update="n -= 1")
    assert wanted(machine, 63 / 64).value == 5
    for target in (0.99, 1.0):
        found = wanted(machine, target)
        assert (found.answer, found.ceiling) == ("unknown", None)
        assert found.reason == (
            "not reached up to rmax = 5, where success is 0.98438; at rmax = 6: n starts as 6, outside 0..5"
        )


def test_counter_that_jumps_to_the_bound_has_no_known_ceiling():
    """There is one retry whatever the bound is, so the success without a bound is not a ceiling."""
    found = wanted(counted(n="0..rmax", update="n = rmax"), 0.9)
    assert (found.answer, found.ceiling) == ("unknown", None)
    assert found.reason == (
        "not reached up to rmax = 100; the limit that success tends to is not known: variable n is set from rmax"
    )


def test_values_with_faults_are_skipped():
    """Below rmax = 2 the table refuses the last failure."""
    text = COUNTED.format(rmax="0..", n="0..rmax", first="0", on="n < rmax", update="n += 1")
    machine = loads(text.replace("| else  ", "| not g.passed and n >= rmax and rmax > 1  "))
    assert [wanted(machine, target).value for target in (0.1, 0.9)] == [2, 3]
    sure = wanted(machine, 1.0)
    assert (sure.answer, sure.ceiling) == ("impossible", 1.0)


@pytest.mark.parametrize(
    ("rmax", "n", "first", "target", "answer", "value", "ceiling"),
    [
        ("0..4", "0..5", "0", 0.99, "impossible", None, 31 / 32),
        ("0..4", "0..rmax", "0", 1.0, "impossible", None, 31 / 32),
        ("0..4", "0..rmax", "0", 31 / 32, "reached", 4, 1.0),
        ("-3..", "-3..rmax", "-3", 0.9, "reached", 0, 1.0),
        ("-3..", "-3..1", "-3", 0.99, "impossible", None, 31 / 32),
        ("2..9", "0..2 * rmax", "0", 1e-9, "reached", 2, None),
        ("0..", "0..rmax", "0", 1.0, "impossible", None, 1.0),
    ],
)
def test_every_search_ends(rmax, n, first, target, answer, value, ceiling):
    found = wanted(counted(rmax=rmax, n=n, first=first), target)
    assert (found.answer, found.value, found.ceiling) == (answer, value, ceiling)


def test_system_that_is_too_large_is_unknown():
    asked = question(counted(n="0..rmax"), passes={"g": [1e-6]}, max_nodes=500)
    found = smallest(asked, 0.9, varied_parameter(asked.system.machine))
    assert (found.answer, found.reason) == ("unknown", "at rmax = 255: more than 500 configurations")
    asked = question(counted(n="0..700"), passes={"g": [1e-6]}, max_nodes=500)
    found = smallest(asked, 0.9, varied_parameter(asked.system.machine))
    assert (found.answer, found.reason) == ("unknown", "if rmax is unlimited: more than 500 configurations")


def test_odds_missing_only_beyond_the_smallest_value_are_unknown_there():
    text = COUNTED.format(rmax="0..", n="0..rmax", first="0", on="n < rmax", update="n += 1")
    text = text.replace("| g     | verdict | 0.5  |", "| g     | verdict | 0.5  |\n| h     | second  |      |")
    text = text.replace("| verdict | query   |", "| verdict | query   |\n| second  | again   |")
    text = text.replace("| n += 1 | query   | work      |", "| n += 1 | again   | more      |")
    text = text.replace("| work      |         |\n", "| work      |         |\n| more      |         |\n")
    text += "| more   | second  | h.passed |     | query   | work      |\n| more   | second  | else     |     |         | failed    |\n"
    found = wanted(loads(text), 0.9)
    assert found.answer == "unknown"
    assert found.reason.startswith(
        "not reached up to rmax = 0, where success is 0.5; at rmax = 1: guard h has no odds: "
    )


def test_parameters_that_share_no_value_are_varied_one_by_one():
    head = "| parameter | domain | default |\n| --------- | ------ | ------- |\n"
    text = COUNTED.format(rmax="0..", n="0..9", first="0", on="n < rmax.a", update="n += 1")
    text = text.replace(f"{head}| rmax      | 0.. | 3       |", f"{head}| rmax.a | 0..2 | 1 |\n| rmax.b | 5..9 | 5 |")
    with pytest.raises(
        ParameterError, match=r"the domains of rmax.a, rmax.b have no value in common: vary only one of them"
    ):
        varied_parameter(loads(text))
    assert wanted(loads(text), 0.8, "rmax.a").value == 2
