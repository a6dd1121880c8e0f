"""Exploration finds what a plain search with `step` finds, on any machine, with every engine that goes through frontiers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import attrs
import pytest
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import HealthCheck, assume, given, settings
from oracle import is_end, possible
from sample_sizes import sample_size

from dsa.checks.search import numpy_engine, python_engine
from dsa.checks.search.engine import Engine
from dsa.checks.search.exploration import Exploration, explore
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.testing.strategies import machines

#: More configurations of a random machine tell no more.
MOST = 400
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@attrs.frozen
class Plainly:
    """What a breadth-first search with the reference finds; refusals with the least distance of each."""

    distance: dict[Configuration, int]
    transitions: int
    rows: frozenset[int]
    refused: dict[tuple[object, ...], int]
    stuck: dict[str, int]


def missing(refusal: Refusal, occurrence: Occurrence) -> tuple[object, ...]:
    """What makes two refusals one fault: for a missing case, state and occurrence; else the rows."""
    if refusal.reason == "invalid_state":
        return refusal.reason, refusal.configuration.state, occurrence
    return refusal.reason, *map(id, refusal.rows)


def plainly(machine: Machine) -> Plainly | None:
    """Search with `step`; None when that takes long."""
    distance = {start(machine): 0}
    places = {id(row): place for place, row in enumerate(machine.transitions)}
    transitions, rows = 0, set()
    refused: dict[tuple[object, ...], int] = {}
    stuck: dict[str, int] = {}
    for here in (order := list(distance)):  # grows while it is walked
        accepted, is_over = 0, is_end(machine, here)
        for occurrence in possible(machine, here):
            result = step(machine, here, occurrence)
            if is_over:
                continue
            if isinstance(result, Refusal):
                refused.setdefault(missing(result, occurrence), distance[here])
                continue
            accepted += 1
            rows.add(places[id(result.transition)])
            if result.configuration not in distance:
                distance[result.configuration] = distance[here] + 1
                order.append(result.configuration)
        transitions += accepted
        waits = here.outstanding or machine.armed_timers(here.state) or here.state in machine.final_states
        if not accepted and not waits and not is_over:
            stuck.setdefault(here.state, distance[here])
        if len(order) > MOST:
            return None
    return Plainly(distance, transitions, frozenset(rows), refused, stuck)


def in_sets() -> AbstractContextManager[object]:
    return patch.object(python_engine, "_MAX_BYTES", -1)


def hashed() -> AbstractContextManager[object]:
    return patch.object(numpy_engine, "MAX_BYTES", -1)


Way = tuple[Engine | None, Callable[[], AbstractContextManager[object]]]
WAYS: dict[str, Way] = {
    "automatic": (None, nullcontext),
    "python": (python_engine.search, nullcontext),
    "python, in sets": (python_engine.search, in_sets),
    "numpy": (numpy_engine.search, nullcontext),
    "numpy, hashed": (numpy_engine.search, hashed),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@settings(deadline=None, max_examples=sample_size(15, full=60), suppress_health_check=SLOW)
@given(machine=machines(claims=False) | crowded_machines() | family_machines())
def test_exploration_agrees_with_the_reference(way: Way, machine: Machine):
    engine, there = way
    expected = plainly(machine)
    assume(expected is not None)
    assert expected is not None
    with there():
        found = explore(machine, engine=engine)
    assert (found.configurations, found.transitions) == (len(expected.distance), expected.transitions)
    assert found.rows == expected.rows
    assert found.states == {here.state for here in expected.distance}
    assert found.complete
    reached = list(found.all_configurations())
    assert set(reached) == set(expected.distance)
    assert [expected.distance[here] for here in reached] == sorted(expected.distance.values())
    assert {here.state: expected.distance[here] for here in found.deadlocks} == expected.stuck
    same_refusals(machine, found, expected)
    for here in reached[:: max(1, len(reached) // 10)]:
        assert len(found.trace_to(here).steps) == expected.distance[here]


def same_refusals(machine: Machine, found: Exploration, expected: Plainly) -> None:
    """Every missing case has a nearest witness; of rows that clash or cannot be taken, each has one."""
    shown = {}
    for witness in found.refusals:
        assert step(machine, witness.configuration, witness.occurrence) == witness.refusal
        shown[missing(witness.refusal, witness.occurrence)] = expected.distance[witness.configuration]
    cases = {key: depth for key, depth in expected.refused.items() if key[0] != "ambiguous"}
    assert {key: depth for key, depth in shown.items() if key[0] != "ambiguous"} == cases
    assert set(pairs(shown)) == set(pairs(expected.refused))


def pairs(refused: dict[tuple[object, ...], int]) -> Iterator[tuple[object, object]]:
    """The pairs of rows that are enabled at once."""
    for reason, *rows in refused:
        if reason == "ambiguous":
            yield from ((one, other) for one in rows for other in rows if one is not other)


@settings(deadline=None, max_examples=sample_size(15, full=60), suppress_health_check=SLOW)
@given(machine=machines(claims=False) | crowded_machines() | family_machines())
def test_trace_that_takes_a_row_is_a_shortest_one(machine: Machine):
    expected = plainly(machine)
    assume(expected is not None)
    assert expected is not None
    nearest: dict[int, int] = {}
    for here, depth in expected.distance.items():
        for occurrence in possible(machine, here):
            result = step(machine, here, occurrence)
            if isinstance(result, Taken):
                row = next(place for place, row in enumerate(machine.transitions) if row is result.transition)
                nearest[row] = min(nearest.get(row, depth + 1), depth + 1)
    found = explore(machine)
    assert {row: len(found.trace_taking(row).steps) for row in found.rows} == nearest
    assert all(found.trace_taking(row).steps[-1].row is machine.transitions[row] for row in found.rows)
