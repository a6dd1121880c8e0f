"""Exports opened in Storm: the same counts, and odds equal to closed forms. Without Storm the tests are skipped with a reason."""

from pathlib import Path

import attrs
import families
import pytest
from export_cases import ALL, FULL, HARD, HARD_COUNT, SMALL, count_of
from random_sample import random_sample

from dsa.lang import dumps, loads
from dsa.machine import Machine
from dsa.targets.prism import prism


def storm(text: str, folder: Path, *formulas: str) -> tuple[int, list[float], bool]:
    """Build a PRISM model; return its number of states, the formulas' values at the start, and whether it has no choices."""
    stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed")
    (folder / "model.pm").write_text(text, encoding="utf-8")
    program = stormpy.parse_prism_program(str(folder / "model.pm"))
    model = stormpy.build_model(program)
    values = []
    for formula in formulas:
        asked = stormpy.parse_properties(formula, program)
        built = stormpy.build_model(program, asked)
        values.append(stormpy.model_checking(built, asked[0]).get_value(built.initial_states[0]))
    return model.nr_states, values, str(model.model_type) == "ModelType.DTMC"


def with_odds(machine: Machine, passed: tuple[float, ...], fatal: float) -> Machine:
    guards = tuple(attrs.evolve(guard, pass_odds=passed, fatal_odds=(fatal,)) for guard in machine.guards)
    return attrs.evolve(machine, guards=guards)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[FULL] if name in {"chat", "coding"} else []) for name in SMALL]
)
def test_storm_builds_the_same_number_of_states(name, tmp_path):
    machine = attrs.evolve(ALL[name], guards=tuple(attrs.evolve(g, pass_odds=()) for g in ALL[name].guards))
    assert storm(prism(machine), tmp_path)[0] == count_of(machine)


def test_storm_builds_the_same_number_of_states_of_a_hard_case(tmp_path):
    assert storm(prism(loads(HARD)), tmp_path)[0] == HARD_COUNT


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=FULL)])
def test_storm_builds_the_same_number_of_states_of_random_machines(count, tmp_path):
    for drawn in random_sample(count):
        machine = attrs.evolve(drawn, guards=tuple(attrs.evolve(guard, pass_odds=()) for guard in drawn.guards))
        assert storm(prism(machine), tmp_path)[0] == count_of(machine), dumps(machine)


@pytest.mark.parametrize(("n", "r", "p", "q"), [(1, 3, 0.7, 0.01), (3, 3, 0.7, 0.01), (10, 3, 0.9, 0.001)])
def test_storm_agrees_with_the_closed_forms(n, r, p, q, tmp_path):
    """A step passes with odds p g, where g sums the powers of the odds a of one more attempt (notes on the family in families.py)."""
    machine = with_odds(families.ordered(n, r), (p,), q)
    a = 1 - p - q
    g = (1 - a ** (r + 1)) / (1 - a)
    succeeded, calls = (p * g) ** n, sum((p * g) ** i for i in range(n)) * g
    formulas = ('P=? [ F "in_succeeded" ]', 'P=? [ F "in_escalated" ]', 'R{"effect_query_llm"}=? [ C ]')
    states, values, is_chain = storm(prism(machine), tmp_path, *formulas)
    assert is_chain
    assert states == families.ordered_configurations(n, r)
    assert values == pytest.approx([succeeded, sum((p * g) ** i for i in range(n)) * q * g, calls], abs=1e-9)


@pytest.mark.parametrize("n", [1, 2])
def test_storm_finds_odds_that_change_with_every_retry(n, tmp_path):
    """Every step starts again: the number of failures in a row is reset when the guard passes."""
    machine = with_odds(families.ordered(n, 3), (0.5, 0.8, 0.9), 0.02)
    one, reached = 0.0, 1.0
    for passed in (0.5, 0.8, 0.9, 0.9):
        one, reached = one + reached * passed, reached * (1 - passed - 0.02)
    assert storm(prism(machine), tmp_path, 'P=? [ F "in_succeeded" ]')[1] == pytest.approx([one**n], abs=1e-9)


def test_order_of_steps_does_not_change_the_odds(tmp_path):
    machine = with_odds(families.any_order(3, 2), (0.7,), 0.01)
    formulas = ('Pmin=? [ F "in_succeeded" ]', 'Pmax=? [ F "in_succeeded" ]')
    states, values, is_chain = storm(prism(machine), tmp_path, *formulas)
    assert not is_chain
    assert states == families.any_order_configurations(3, 2)
    one = sum(0.29**i for i in range(3)) * 0.7
    assert values == pytest.approx([one**3, one**3], abs=1e-6)
