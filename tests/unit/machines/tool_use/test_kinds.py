"""Numbers as models write them: accepted within bounds, refused, or moved to the nearest bound."""

import pytest
from each_row import each_row

from machines.tool_use import LIMIT, NUMBER, Parameter

AMOUNT = Parameter("amount", NUMBER, "how much", least=1, most=100)


@pytest.mark.parametrize(("said", "meant", "fixed"), [(5, 5, []), ("10 EUR", 10, ["number"]), (2.0, 2, [])])
def test_number_within_its_bounds_is_accepted(said, meant, fixed):
    found = []
    assert (NUMBER.read(said, AMOUNT, found), found) == (meant, fixed)
    assert LIMIT.read(said, AMOUNT, []) == meant


@pytest.mark.parametrize("said", [0, 101, 5_000, -1, "5000 EUR", 10**400])
def test_number_out_of_bounds_is_refused_except_for_a_limit(said):
    with pytest.raises(ValueError, match="'amount' must be at least 1 and at most 100, not"):
        NUMBER.read(said, AMOUNT, [])
    found = []
    assert LIMIT.read(said, AMOUNT, found) in {1, 100}
    assert found == ["number"]


@each_row("said", ["many", True, None, [1], float("nan"), float("inf")])
@each_row("kind", [NUMBER, LIMIT])
def test_value_other_than_a_number_is_refused(kind, said):
    with pytest.raises(ValueError, match="must be a whole number, not"):
        kind.read(said, AMOUNT, [])


@each_row("said", [1.5, "1.5", "1.234,50 EUR", "1e3", "0x20", "2026-01-02", "10 or 20", "1,0"])
def test_ambiguous_number_is_refused(said):
    with pytest.raises(ValueError, match="'n' must be a whole number, not"):
        NUMBER.read(said, Parameter("n", NUMBER, "how much"), [])


def test_number_without_bounds_can_be_anything():
    free = Parameter("n", NUMBER, "how much")
    assert [NUMBER.read(said, free, []) for said in (42, "-5 EUR", "1,234,567", "1234567890123")] == [
        42,
        -5,
        1_234_567,
        1_234_567_890_123,
    ]
    assert LIMIT.read(42, free, []) == 42
    assert "minimum" not in free.schema()
