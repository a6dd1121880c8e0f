"""Linear systems and circles: two ways to solve them agree, and what grows without end is infinite."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odds_documents import TOOLS

from dsa.checks.components import components
from dsa.checks.odds.reckon import odds
from dsa.checks.odds.solve import eliminated
from dsa.lang import loads


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.data())
def test_elimination_solves_the_same_system_as_a_linear_solver(size, data):
    numpy = pytest.importorskip("numpy")
    weight = st.integers(0, 5)
    weights = [[data.draw(weight) for _ in range(size)] for _ in range(size)]
    out = [data.draw(st.integers(1, 5)) for _ in range(size)]
    totals = [sum(row) + leaves for row, leaves in zip(weights, out, strict=True)]
    rows = [{j: w / total for j, w in enumerate(row) if w} for row, total in zip(weights, totals, strict=True)]
    inflow = [data.draw(weight) / 5 for _ in range(size)]
    solved = eliminated(rows, [leaves / total for leaves, total in zip(out, totals, strict=True)], inflow)
    dense = numpy.array([[row.get(j, 0.0) for j in range(size)] for row in rows])
    expected = numpy.linalg.solve(numpy.eye(size) - dense.T, numpy.array(inflow))
    assert solved == pytest.approx(list(expected), abs=1e-9)


def test_components_come_after_those_they_lead_to():
    ahead = {0: [1, 4], 1: [2], 2: [1, 3], 3: [], 4: [4, 3]}
    found = [sorted(part) for part in components(range(5), lambda node: ahead[node])]
    assert sorted(found) == [[0], [1, 2], [3], [4]]
    place = {node: index for index, part in enumerate(found) for node in part}
    assert all(place[node] >= place[other] for node, others in ahead.items() for other in others)


def _long_circle(size):
    """A walk that may start again from the beginning at every step."""
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


@pytest.mark.parametrize("size", [40, 300])
def test_a_long_circle_is_solved_exactly(size):
    pytest.importorskip("scipy")
    p = 0.99
    found = odds(
        _long_circle(size), events={f"on_{i}": p for i in range(size)} | {f"back_{i}": 1 - p for i in range(size)}
    )
    assert found.success.low == pytest.approx(1, abs=1e-9)
    starts = 1 / p**size  # as often from the beginning until it goes through
    assert found.effect("step_0").expected.low == pytest.approx(starts, rel=1e-9)


def test_whoever_chooses_may_go_round_without_end():
    text = TOOLS.replace("used < 3 | used += 1", "         |          ")
    kept = [line for line in text.split("\n") if "waiting" not in line]
    found = odds(loads("\n".join(kept)))
    calls = found.effect("run_tool").expected
    assert (calls.low, calls.high) == (0, inf)
    assert found.effect("run_tool").worst == inf
    assert (found.success.low, found.success.high) == (0, 1)
    assert found.never_ends.high == 1
