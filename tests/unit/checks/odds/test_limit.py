"""The limit of a system when a bound is infinite."""

import pytest
from families import ordered
from odds_documents import chain

import dsa
from dsa.checks.odds.retry_target import limit
from dsa.errors import UndecidedError
from dsa.lang import loads
from dsa.system import closed_system

SUCCESS = ["succeeded"]


def limited(machine, *names):
    return limit(closed_system(machine), names, SUCCESS)


def test_counters_compared_only_with_the_bound_disappear():
    found = limited(ordered(3, 2), "rmax")
    assert [variable.name for variable in found.system.variables] == ["done"]
    assert found.is_ceiling
    assert not any("failed" in found.system.locations[command.target].state for command in found.system.commands)


def test_one_bound_of_several_leaves_the_other_counters():
    machine = chain("a", "b")
    one = limited(machine, "rmax.a")
    assert [variable.name for variable in one.system.variables] == ["retries.b", "grants_used"]
    both = limited(machine, "rmax.a", "rmax.b")
    assert [variable.name for variable in both.system.variables] == ["grants_used"]


@pytest.mark.parametrize(
    ("condition", "otherwise", "is_ceiling"),
    [
        ("retries < rmax", "retries >= rmax", True),
        ("retries + 1 <= rmax", "not (retries + 1 <= rmax)", True),
        ("2 * retries < 2 * rmax", "2 * rmax <= 2 * retries", True),
        ("rmax - retries > 0", "rmax - retries <= 0", True),
        ("-rmax < -retries", "-rmax >= -retries", True),
    ],
)
def test_comparisons_are_decided_however_they_are_written(condition, otherwise, is_ceiling):
    text = dsa.dumps(ordered(2, 1)).replace("retries < rmax", condition)
    found = limited(loads(text.replace("else and g.failed", f"g.failed and {otherwise}")), "rmax")
    assert found.is_ceiling == is_ceiling
    assert [variable.name for variable in found.system.variables] == ["done"]


def test_success_after_the_bound_makes_the_limit_no_ceiling():
    text = dsa.dumps(ordered(1, 1)).replace("| failed     | final   |", "| failed     |         |")
    rest = "| failed | after 1s | | | | succeeded |"
    assert not limited(loads(text.rstrip() + f"\n{rest}\n"), "rmax").is_ceiling


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("retries < rmax", "retries != rmax", "rmax is compared for equality"),
        ("retries < rmax", "rmax < rmax + retries", "variable retries depends on rmax"),
        ("retries += 1", "retries = rmax - 1", "variable retries is set from rmax"),
        ("| 0..rmax | 0       |", "| 0..rmax | rmax    |", "variable retries depends on rmax"),
        ("| 0..rmax | 0       |", "| 0..9 - rmax | 0       |", "the domain of retries shrinks as rmax grows"),
        (
            "retries < rmax",
            "retries * rmax < 3 and retries < rmax",
            "rmax is multiplied by something that is not a constant",
        ),
        ("done + 1 < n", "done + 1 < n and retries < 2", "variable retries depends on rmax"),
    ],
)
def test_parameter_that_is_more_than_a_bound_has_no_limit(old, new, reason):
    text = dsa.dumps(ordered(2, 1)).replace(old, new)
    with pytest.raises(UndecidedError) as refused:
        limited(loads(text), "rmax")
    assert str(refused.value) == reason


def test_domain_that_does_not_grow_keeps_its_counter():
    found = limited(loads(dsa.dumps(ordered(1, 1)).replace("| 0..rmax | 0 ", "| 0..4    | 0 ")), "rmax")
    assert [variable.name for variable in found.system.variables] == ["done", "retries"]
    assert found.is_ceiling


def test_parameter_on_both_sides_cancels_out():
    text = dsa.dumps(ordered(2, 1)).replace("retries < rmax", "retries < rmax and rmax - 1 < rmax + done")
    found = limited(loads(text), "rmax")
    assert [variable.name for variable in found.system.variables] == ["done"]
    assert found.is_ceiling
