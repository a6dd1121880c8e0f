"""Candidates for lemmas: they are true in every sampled row, and include the useful ones."""

from hypothesis import given
from hypothesis import strategies as st

from dsa.checks.proof.proof_session import Column, SampleTable, candidates, linear
from dsa.expr import FALSE, BooleanDomain, EnumDomain, Integer, Name, RangeDomain, evaluate, unparse

NUMBERS = RangeDomain(Integer(0), None)
DOMAINS = {
    "p": NUMBERS,
    "x": NUMBERS,
    "y": NUMBERS,
    "a": BooleanDomain(),
    "b": BooleanDomain(),
    "e": EnumDomain(("r", "s", "t")),
}
ROWS = st.tuples(*[st.integers(0, 3)] * 3, st.booleans(), st.booleans(), st.sampled_from(("r", "s", "t")))


def table(rows: list[tuple[object, ...]]) -> SampleTable:
    kinds = {"p": "parameter"}
    columns = tuple(
        Column(Name(name, kinds.get(name, "variable")), domain, tuple(row[place] for row in rows))
        for place, (name, domain) in enumerate(DOMAINS.items())
    )
    return SampleTable(columns, tuple(int(str(row[0])) for row in rows))


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_candidates_are_true_in_every_row(rows: list[tuple[object, ...]]) -> None:
    for candidate in candidates(table(rows), ["a"]):
        for row in rows:
            assert evaluate(candidate, dict(zip(DOMAINS, row, strict=True))) is True, unparse(candidate)


def test_location_never_sampled_is_guessed_unreachable() -> None:
    assert candidates(table([])) == [FALSE]


def test_bounds_sums_constants_and_implications_are_found() -> None:
    rows = [(p, x, p - x, x > 1, True, "r" if x else "s") for p in range(4) for x in range(p + 1)]
    found = {unparse(candidate) for candidate in candidates(table(rows))}
    assert {"x <= p", "b", "e in {r, s}", "x + y == p", "not a or x >= 2"} <= found
    assert "x <= 3" not in found, "a bound met at one valuation only is an accident"


def test_linear_sums_are_written_as_people_write_them() -> None:
    x, y = Name("x", "variable"), Name("y", "variable")
    assert unparse(linear([(x, 1), (y, -2)], 3)) == "x - 2 * y + 3"
    assert unparse(linear([(x, 0)], 0)) == "0"
    assert unparse(linear([], -2)) == "0 - 2"
