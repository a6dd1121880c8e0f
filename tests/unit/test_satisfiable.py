"""Satisfiability of conditions: splitting, the limit of effort, and conditions that exclude each other by form alone."""

from itertools import product

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.expr import evaluate, names, simplify
from dsa.ground_system import SearchEffort, outcomes_at_samples, satisfiable
from dsa.lang.cells import condition
from dsa.lang.expression_parser import Findings
from dsa.lang.markdown import Cell
from dsa.system import facts

RANGES = {"x": range(1, 9), "y": range(-2, 3), "up": (False, True), "long": range(-5, 40), "huge": range(10**40)}


def read(text: str):
    """Return the condition of a text, with its names as written."""
    found = condition(Cell(text, "t.md", 1, 1, text), Findings())
    assert found is not None
    return simplify(found[1])


@each_row(
    ("text", "expected"),
    [
        ("x == 3", True),
        ("x == 9", False),
        ("x == 3 and x == 4", False),
        ("x > 3 and x < 5 and x != 4", False),
        ("x == 3 and (y > 0 or up) and not up", True),
        ("x == 3 and (y > 2 or up) and not up", False),
        ("not (x == 1 or x > 1)", False),
        ("not (x == 1 and y == 0)", True),
        ("x + y == 11", False),
        ("x + y == 10", True),
        ("huge == 12345678901 and x == 1", True),
        ("up and not up", False),
        ("huge > 10 and huge < 12 and huge != 11", False),
        ("huge + 5 == 99 or huge - 7 < -8", True),
        ("long > 7 and long < 9 and y > 2", False),
        ("8 < long - 3 and long - 3 < 10", True),
        ("count(huge > 10, huge > 12) == 1 and huge < 12", True),
        ("count(huge > 10, huge > 12, up) == 2 and huge < 12", True),
        ("count(huge > 10, huge > 12, up) == 3 and huge < 13", False),
        ("count(x > 2, y > 0, up) > x", True),
        ("8 < 3 + long and long + 3 < 10", True),
    ],
)
def test_satisfiability_is_decided(text, expected):
    assert satisfiable(read(text), RANGES, SearchEffort(1_000)) is expected


def test_effort_bounds_the_work_and_is_used_up():
    effort = SearchEffort(50)
    assert satisfiable(read("huge * huge == 7"), RANGES, effort) is None
    assert effort.left == 0


def test_nothing_is_tried_after_the_time_limit():
    effort = SearchEffort(1_000, lambda: True)
    assert satisfiable(read("x == 3"), RANGES, effort) is None
    assert effort.left == 1_000


def test_samples_show_the_outcomes_of_a_condition():
    assert outcomes_at_samples(read("x > 4"), RANGES) == {True, False}
    assert outcomes_at_samples(read("huge >= 0"), RANGES) == {True}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("x == 1", "x == 2", True),
        ("x <= 1 and up", "x > 1", True),
        ("x + y == 3", "x + y == 4", True),
        ("x != 1", "x == 1", False),
        ("x >= 1", "x <= 1", False),
        ("x == 1", "y == 2", False),
    ],
)
def test_conditions_exclude_each_other_by_form(one, other, expected):
    assert facts(read(one)).exclude(facts(read(other))) is expected
    assert facts(read(other)).exclude(facts(read(one))) is expected


PARTS = st.sampled_from(
    [
        "x == 2",
        "x != 3",
        "y > 0",
        "y <= x",
        "x + y < 4",
        "up",
        "not up",
        "x in {1, 5, 8}",
        "long - 3 >= 9",
        "2 + long == 11",
        "long < 30",
        "9 != long + 1",
        "long <= y",
        "1 < long < 4",
        "long in {7, 8}",
        "long * 2 > 7",
    ]
)
TEXTS = st.recursive(PARTS, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
                     | st.builds("not ({})".format, inner)
                     | st.builds("count({}, {}, {}) {} {}".format, inner, inner, inner, st.sampled_from(["<", "==", ">="]), st.sampled_from(["1", "2", "y"])), max_leaves=8)  # fmt: skip


@settings(max_examples=sample_size(36, full=150), deadline=None)
@given(TEXTS)
def test_satisfiability_agrees_with_trying_all_values(text):
    node = read(text)
    read_names = sorted(names(node))
    everything = product(*(RANGES[name] for name in read_names))
    expected = any(evaluate(node, dict(zip(read_names, values, strict=True))) is True for values in everything)
    assert satisfiable(node, RANGES, SearchEffort(10_000)) is expected
