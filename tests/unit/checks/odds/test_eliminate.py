"""Linear systems of cycles, compared with a linear solver, and beyond the digits of floats."""

from decimal import Decimal, localcontext
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.checks.odds.chain_solver import LARGEST, Elimination, as_float, precise


def nothing():
    pass


def decimals(rows, leaving):
    return [{node: Decimal(p) for node, p in row.items()} for row in rows], list(map(Decimal, leaving))


@settings(max_examples=sample_size(18, full=60), deadline=None)
@given(st.integers(1, 12), st.data())
def test_both_systems_match_a_linear_solver(size, data):
    numpy = pytest.importorskip("numpy")
    weight = st.integers(0, 5)
    weights = [[data.draw(weight) for _ in range(size)] for _ in range(size)]
    out = [data.draw(st.integers(1, 5)) for _ in range(size)]
    totals = [sum(row) + leaves for row, leaves in zip(weights, out, strict=True)]
    rows = [{j: w / total for j, w in enumerate(row) if w} for row, total in zip(weights, totals, strict=True)]
    known = [data.draw(weight) / 5 for _ in range(size)]
    solver = Elimination(*decimals(rows, [n / total for n, total in zip(out, totals, strict=True)]), nothing)
    system = numpy.eye(size) - numpy.array([[row.get(j, 0.0) for j in range(size)] for row in rows])
    given_ = list(map(Decimal, known))
    assert list(map(float, solver.visits(given_))) == pytest.approx(list(numpy.linalg.solve(system.T, known)), abs=1e-9)
    assert list(map(float, solver.values(given_))) == pytest.approx(list(numpy.linalg.solve(system, known)), abs=1e-9)


@pytest.mark.parametrize("onward", [0.5, 1e-6])
def test_no_digits_are_lost_in_a_cycle_that_is_hardly_ever_left(onward):
    """Each of 200 nodes leads to the next or back to the first: floats underflow, and 1 minus a node's value has no digits left."""
    size = 200
    with localcontext(precise(30)):
        on, back = Decimal(onward), 1 - Decimal(onward)
        rows = [{node + 1: on, 0: back} for node in range(size - 1)] + [{0: back}]
        solver = Elimination(rows, [Decimal(0)] * (size - 1) + [on], nothing)
        assert solver.values([Decimal(0)] * (size - 1) + [on])[0] == 1  # it is left in the end
        starts = solver.visits([Decimal(1)] + [Decimal(0)] * (size - 1))[0]
        assert abs(starts * on**size - 1) < Decimal("1e-25")


def test_elimination_checks_the_time():
    class OverError(Exception):
        pass

    def over():
        raise OverError

    size = 512
    with pytest.raises(OverError):
        Elimination([{(node + 1) % size: Decimal(1)} for node in range(size)], [Decimal(1)] * size, over)


def test_number_too_large_for_a_float_is_not_infinite():
    assert as_float(Decimal("1e5000")) == LARGEST < inf
    assert as_float(Decimal("1e-5000")) == 0
