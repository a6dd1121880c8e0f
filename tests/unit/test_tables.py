"""Table rows as texts of cells."""

import pytest

from dsa.declarations import Assign, Cancel, Emit, Revoke, Transition
from dsa.expr import TRUE, And, Arithmetic, Boolean, Compare, Integer, Name, Or, Verdict
from dsa.trace import ROW_COLUMNS, escape_cell, table_lines, transition_cells

X = Name("x", "variable")
Y = Name("y", "variable")
LOW = Compare(X, (("<", Integer(3)),))
PASSED = Verdict("g", "passed")


def test_full_row_has_every_cell_in_column_order():
    row = Transition(
        "a", "verdict", "b.c", And((PASSED, LOW)), updates=(Assign("x", Integer(1)),), effects=(Emit("tell"),)
    )
    cells = transition_cells(row)
    assert tuple(cells) == ROW_COLUMNS
    assert tuple(cells.values()) == ("a", "verdict", "g.passed and x < 3", "x = 1", "tell", "b.c")


def test_bare_row_has_empty_cells():
    assert tuple(transition_cells(Transition("*", "after 30s", "=")).values()) == ("*", "after 30s", "", "", "", "=")


@pytest.mark.parametrize(
    ("condition", "is_else", "text"),
    [
        (TRUE, True, "else"),
        (LOW, True, "else and x < 3"),
        (And((LOW, PASSED)), True, "else and x < 3 and g.passed"),
        (Or((LOW, PASSED)), True, "else and (x < 3 or g.passed)"),
        (Or((LOW, PASSED)), False, "x < 3 or g.passed"),
        (Boolean(value=False), False, "false"),
    ],
)
def test_if_cell_shows_the_condition_and_else(condition, is_else, text):
    assert transition_cells(Transition("a", "e", "b", condition, is_else))["if"] == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Arithmetic("+", X, Integer(1)), "x += 1"),
        (Arithmetic("-", X, Arithmetic("+", Y, Integer(1))), "x -= y + 1"),
        (Arithmetic("*", X, Integer(2)), "x = x * 2"),
        (Arithmetic("+", Y, X), "x = y + x"),
        (Arithmetic("+", Arithmetic("+", X, Y), Integer(1)), "x = x + y + 1"),
    ],
)
def test_update_is_written_short_only_if_it_means_the_same(value, text):
    assert transition_cells(Transition("a", "e", "b", updates=(Assign("x", value),)))["update"] == text


def test_updates_and_effects_are_joined_in_the_order_written():
    row = Transition(
        "a",
        "e",
        "b",
        updates=(Revoke("done"), Assign("y", X)),
        effects=(Cancel("ask"), Emit("tell"), Cancel(None)),
    )
    assert transition_cells(row)["update"] == "revoke done; y = x"
    assert transition_cells(row)["effects"] == "cancel ask, tell, cancel"


def test_pipe_in_a_cell_is_escaped_and_counted_in_the_width():
    rows = [[escape_cell("x|y"), ""]]
    assert table_lines(("a", "long"), rows) == ["| a    | long |", "| ---- | ---- |", "| x\\|y |      |"]


def test_column_is_at_least_three_wide():
    assert table_lines(("a",), []) == ["| a   |", "| --- |"]
