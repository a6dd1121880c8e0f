"""Cycles: they are solved exactly however rarely they are left, and only endless growth is infinite."""

from math import inf

import pytest
from odds_documents import TOOLS

from dsa.checks.odds.chain_solver import LARGEST
from dsa.checks.odds.run_odds import odds
from dsa.checks.search.state_graph import components
from dsa.lang import loads


def test_components_come_after_those_they_lead_to():
    ahead = {0: [1, 4], 1: [2], 2: [1, 3], 3: [], 4: [4, 3]}
    found = [sorted(part) for part in components(range(5), lambda node: ahead[node])]
    assert sorted(found) == [[0], [1, 2], [3], [4]]
    place = {node: index for index, part in enumerate(found) for node in part}
    assert all(place[node] >= place[other] for node, others in ahead.items() for other in others)


def _long_circle(size):
    """Return a machine whose run may start again from the beginning at every step."""
    events, states, rows = [], [], []
    for i in range(size):
        events += [f"| on_{i} | step_{i} |", f"| back_{i} | step_{i} |"]
        states.append(f"| s_{i} | |")
        onward = " | succeeded |" if i + 1 == size else f"step_{i + 1} | s_{i + 1} |"
        rows += [f"| s_{i} | on_{i} | {onward}", f"| s_{i} | back_{i} | step_0 | s_0 |"]
    return loads("\n".join([
        "# circle", "", "## Events", "| event | from |", "| - | - |", "| go | outside |", *events,
        "", "## States", "| state | kind |", "| - | - |", "| idle | initial |", *states, "| succeeded | final |",
        "", "## Transitions", "| source | event | effects | target |", "| - | - | - | - |",
        "| idle | go | step_0 | s_0 |", *rows, "",
    ]))  # fmt: skip


@pytest.mark.parametrize(("size", "p"), [(40, 0.99), (300, 0.99), (300, 0.5)])
def test_long_cycle_is_solved_exactly(size, p):
    """A run gets through in the end, however rarely: with 300 steps at 0.5 each, once in 2e90 attempts."""
    found = odds(
        _long_circle(size), events={f"on_{i}": p for i in range(size)} | {f"back_{i}": 1 - p for i in range(size)}
    )
    assert found.success.low == pytest.approx(1, abs=1e-9)
    starts = 1 / p**size  # the expected number of starts until a run gets through
    assert found.effect("step_0").average.low == pytest.approx(starts, rel=1e-9)


def test_average_too_large_for_a_float_is_not_infinite():
    """With sixty steps at 1e-6 each, the expected number of starts is larger than any float."""
    size, p = 60, 1e-6
    events = {f"on_{i}": p for i in range(size)} | {f"back_{i}": 1 - p for i in range(size)}
    found = odds(_long_circle(size), events=events)
    assert found.success.low == pytest.approx(1)
    assert found.effect("step_0").average.high == LARGEST < inf
    assert found.never_ends.high == 0


def test_free_choices_may_go_round_for_ever():
    text = TOOLS.replace("used < 3 | used += 1", "         |          ")
    kept = [line for line in text.split("\n") if "waiting" not in line]
    found = odds(loads("\n".join(kept)))
    calls = found.effect("run_tool").average
    assert (calls.low, calls.high) == (0, inf)
    assert found.effect("run_tool").worst == inf
    assert (found.success.low, found.success.high) == (0, 1)
    assert found.never_ends.high == 1
