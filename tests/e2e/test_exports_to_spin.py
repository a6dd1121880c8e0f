"""Exports opened in SPIN: the same counts, the same verdicts. Without SPIN the tests are skipped with a reason."""

import families
import pytest
from export_cases import ALL, CLAIMS, COUNTS, FULL, HARD, HARD_COUNT, LOOPS, PROMISED, PROMISED_CLAIMS, SMALL, count_of
from outside_tools import spin
from random_sample import random_sample

from dsa.declarations import show
from dsa.lang import dumps, loads
from dsa.targets.promela import promela


@pytest.mark.parametrize(
    ("machine", "count"),
    [
        *COUNTS,
        pytest.param(lambda: families.any_order(9, 3), 47_656_251, id="any-order 9/3", marks=FULL),
        pytest.param(lambda: families.ordered(1_000, 1_000), 3_004_002, id="ordered 1000/1000", marks=FULL),
    ],
)
def test_spin_stores_the_same_number_of_states(machine, count, tmp_path):
    assert spin(promela(machine()), tmp_path, memory_mb=12_000) == (count, 0)


def test_spin_stores_the_same_number_of_states_of_a_hard_case(tmp_path):
    assert spin(promela(loads(HARD)), tmp_path) == (HARD_COUNT, 0)


@FULL
@pytest.mark.parametrize("name", SMALL)
def test_spin_stores_the_same_number_of_states_of_every_document(name, tmp_path):
    assert spin(promela(ALL[name]), tmp_path) == (count_of(ALL[name]), 0)


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=FULL)])
def test_spin_stores_the_same_number_of_states_of_random_machines(count, tmp_path):
    for machine in random_sample(count):
        assert spin(promela(machine), tmp_path, is_small=True) == (count_of(machine), 0), dumps(machine)


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        pytest.param(claim, holds, id=claim, marks=() if number % 5 == 1 else FULL)
        for number, (claim, holds) in enumerate(CLAIMS)
    ],
)
def test_spin_agrees_about_properties(claim, holds, tmp_path):
    machine = loads(f"{LOOPS}- {claim}\n")
    assert show(machine.properties[0].form) == claim
    _, errors = spin(promela(machine), tmp_path, define="PROPERTY_1")
    is_witness = claim.startswith("possible")
    assert (errors > 0) == (holds if is_witness else not holds)


@FULL
@pytest.mark.parametrize(("claim", "holds"), PROMISED_CLAIMS)
def test_spin_agrees_about_promises(claim, holds, tmp_path):
    _, errors = spin(promela(loads(f"{PROMISED}- {claim}\n")), tmp_path, define="PROPERTY_1")
    assert bool(errors) == (not holds)
