"""Machines whose properties are known independently to hold or not, and the verdicts of `check` about them."""

import families
import pytest
from plain import search

from dsa.checks.report import check
from dsa.checks.search.engine import SearchLimits
from dsa.ground_system import ground
from dsa.semantics import Taken, start, step
from dsa.system import closed_system


def test_petersons_lock_lets_one_process_in_at_a_time():
    report = check(families.peterson())
    assert len(report.properties) == 6
    assert {result.verdict for result in report.properties} == {"HOLDS"}


def test_petersons_lock_fails_when_a_process_sets_last_before_its_level():
    machine = families.peterson(broken=True)
    violated = [result for result in check(machine).properties if result.verdict == "VIOLATED"]
    pairs = ((1, 2), (1, 3), (2, 3))
    assert [result.text for result in violated] == [
        f"never pc_{i} == critical and pc_{j} == critical" for i, j in pairs
    ]
    distances = _distances_to_two_in_the_critical_section()
    for result, pair in zip(violated, pairs, strict=True):
        assert result.trace is not None
        now = start(machine)
        for moment in result.trace.steps:
            taken = step(machine, now, moment.occurrence)
            assert isinstance(taken, Taken)
            now = taken.configuration
        values = dict(zip((variable.name for variable in machine.variables), now.values, strict=True))
        assert [values[f"pc_{i}"] for i in pair] == ["critical", "critical"]
        assert len(result.trace.steps) == distances[pair]


def _distances_to_two_in_the_critical_section() -> dict[tuple[int, int], int]:
    """Return the distances of the nearest violations, from a search with the simplest engine."""
    system = ground(closed_system(families.peterson(broken=True)))
    found = search(system, (), SearchLimits(10**6))
    assert found.layers is not None
    critical, nearest = system.number("critical"), dict[tuple[int, int], int]()
    for depth, layer in enumerate(found.layers):
        for number in layer:
            values = system.values(number)
            for pair in ((1, 2), (1, 3), (2, 3)):
                if all(values[f"pc_{i}"] == critical for i in pair):
                    nearest.setdefault(pair, depth)
    return nearest


@pytest.mark.parametrize("count", [3, 5, pytest.param(7, marks=pytest.mark.full)])
def test_resource_managers_of_two_phase_commit_never_decide_differently(count: int):
    report = check(families.two_phase_commit(count), max_states=10**6)
    assert {result.verdict for result in report.properties} == {"HOLDS"}
    assert len(report.properties) == count * (count - 1)
    assert report.explorations[0].configurations == families.TWO_PHASE_COMMIT[count]
