"""The public `dsa.check`, `dsa.explore` and `dsa.prove` need no clock for a time limit."""

import pytest

import dsa
from dsa.checks.report import check

MACHINE = dsa.load("dual_state")


@pytest.mark.parametrize("judge", [dsa.check, dsa.explore, dsa.prove])
def test_time_limit_needs_no_clock(judge):
    assert judge(MACHINE, time_limit_s=60) is not None


def test_time_limit_stops_the_exploration():
    found = dsa.check(MACHINE, parameters={"rmax": 10**6}, time_limit_s=0.05)
    assert [exploration.limit for exploration in found.explorations] == ["the time limit"]


def test_custom_clock_is_used():
    times = iter(range(10**6))
    found = dsa.explore(MACHINE, clock=lambda: float(next(times)))
    assert found.seconds is not None
    assert found.seconds >= 1
    with pytest.raises(ValueError, match="a time limit needs a clock"):
        check(MACHINE, time_limit_s=1)
