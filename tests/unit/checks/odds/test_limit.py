"""What a system becomes when a bound is infinite."""

import pytest
from families import ordered
from odds_documents import chain

import dsa
from dsa.checks.odds.limit import NoLimitError, limit
from dsa.lang import loads
from dsa.system import closed_system

SUCCESS = ["succeeded"]


def limited(machine, *names):
    return limit(closed_system(machine), names, SUCCESS)


def test_counters_that_only_the_bound_is_compared_with_are_gone():
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


def test_success_after_the_bound_is_no_ceiling():
    text = dsa.dumps(ordered(1, 1)).replace("| failed     | final   |", "| failed     |         |")
    rest = "| failed | after 1s | | | | succeeded |"
    assert not limited(loads(text.rstrip() + f"\n{rest}\n"), "rmax").is_ceiling


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("retries < rmax", "retries != rmax", "rmax is compared for equality"),
        ("retries < rmax", "rmax < rmax + retries", "rmax stands on both sides of a comparison"),
        ("retries < rmax", "retries * rmax < 3 and retries < rmax", "rmax is multiplied by what is no constant"),
        ("done + 1 < n", "done + 1 < n and retries < 2", "variable retries depends on rmax"),
    ],
)
def test_what_is_more_than_a_bound_has_no_limit(old, new, reason):
    text = dsa.dumps(ordered(2, 1)).replace(old, new)
    with pytest.raises(NoLimitError) as refused:
        limited(loads(text), "rmax")
    assert str(refused.value) == reason
