"""Exports opened in TLC: the same counts, the same verdicts. Without TLC the tests are skipped with a reason."""

from pathlib import Path

import attrs
import pytest
from export_cases import (
    ALL,
    CLAIMS,
    COUNTS,
    FULL,
    HARD,
    HARD_COUNT,
    LOOPS,
    PROMISED,
    PROMISED_CLAIMS,
    SHIPPED,
    SMALL,
    count_of,
)
from outside_tools import tlc
from random_sample import random_sample

from dsa.lang import dumps, loads
from dsa.machine import Machine
from dsa.targets.tla import module_name, tla, tla_config


def without_claims(machine: Machine) -> Machine:
    return attrs.evolve(machine, properties=())


def tlc_count(machine: Machine, folder: Path) -> tuple[int, list[str]]:
    return tlc(tla(machine), tla_config(machine), module_name(machine), folder)


@pytest.mark.parametrize("name", ["dual_state"])
def test_tlc_finds_the_same_number_of_states(name, tmp_path):
    assert tlc_count(SHIPPED[name], tmp_path) == (count_of(SHIPPED[name]), [])


@FULL
@pytest.mark.parametrize(("machine", "count"), COUNTS)
def test_tlc_finds_the_same_number_of_states_of_families(machine, count, tmp_path):
    assert tlc_count(machine(), tmp_path) == (count, [])


@FULL
def test_tlc_finds_the_same_number_of_states_of_a_hard_case(tmp_path):
    assert tlc_count(loads(HARD), tmp_path) == (HARD_COUNT, [])


@FULL
@pytest.mark.parametrize("name", ["_1", "_", "Integers", "Naturals", "AXIOM", "THEOREM", "WF_x", "Spec", "MODULE"])
def test_tlc_accepts_a_module_for_any_machine_name(name, tmp_path):
    assert tlc_count(without_claims(attrs.evolve(SHIPPED["dual_state"], name=name)), tmp_path) == (15, [])


@FULL
@pytest.mark.parametrize("name", SMALL)
def test_tlc_finds_the_same_number_of_states_of_every_document(name, tmp_path):
    assert tlc_count(without_claims(ALL[name]), tmp_path) == (count_of(ALL[name]), [])


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=FULL)])
def test_tlc_finds_the_same_number_of_states_of_random_machines(count, tmp_path):
    for number, machine in enumerate(random_sample(count)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert tlc_count(machine, folder) == (count_of(machine), []), dumps(machine)


TLC_CLAIMS = [
    *(pair for pair in CLAIMS if pair[0].startswith(("always", "never", "on "))),
    ("pending ask leads to done", False),
    ("idle leads to busy", False),
    ("busy leads to n == 0 or n == 1", True),
    ("busy and n == 1 leads to n == 0 assuming fair tock", False),
    ("idle and n == 1 leads to busy", True),
]


@pytest.mark.parametrize(
    ("text", "claim", "holds"),
    [
        pytest.param(text, claim, holds, id=claim, marks=() if number < 1 else FULL)
        for text, claims in ((PROMISED, PROMISED_CLAIMS), (LOOPS, TLC_CLAIMS))
        for number, (claim, holds) in enumerate(claims)
    ],
)
def test_tlc_agrees_about_properties(text, claim, holds, tmp_path):
    _, violated = tlc_count(loads(f"{text}- {claim}\n"), tmp_path)
    assert bool(violated) == (not holds)
