"""Incremental search: a later search of nearly the same system finds the same as a fresh search."""

from collections import Counter

import attrs
import pytest
from repository import all_machines

from dsa.checks.mutants import mutants
from dsa.checks.search import python_engine
from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.checks.search.incremental_search import IncrementalEngine
from dsa.checks.search.state_graph import graph
from dsa.expr import TRUE
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.machine import Machine
from dsa.system import closed_system

LIMITS = SearchLimits(5_000)
MOST_ROWS = 30


def grounded(machine: Machine, like: Ground | None = None) -> Ground:
    """Return the ground system of a machine, with the memo of conditions of another one."""
    memo = like.system.memo if like else {}
    return ground(attrs.evolve(closed_system(machine), memo=memo), hurries=True)


def watches(here: Ground) -> list[GroundWatch]:
    """Return watches for every fault, every rule and every location."""
    system = here.system
    faults = here.watches((fault.location, fault.condition) for fault in system.faults)
    rules = [GroundWatch(rule.source, rule.condition) for rule in here.rules]
    return [
        *(watch for watch in faults if watch),
        *rules,
        *(GroundWatch(place, TRUE) for place in range(len(system.locations))),
    ]


def summary(here: Ground, found: SearchResult) -> tuple[object, ...]:
    layers = [sorted(layer) for layer in found.layers or ()]
    hits = [number is not None for number in found.hits]
    return found.configurations, found.transitions, found.locations, found.taken, hits, found.complete, layers


def steps(here: Ground, found: SearchResult) -> Counter[tuple[int, int, int]]:
    listed = graph(here, found)
    numbers = listed.numbers
    moves = zip(listed.sources, listed.rules, listed.targets, strict=True)
    return Counter((numbers[source], rule, numbers[target]) for source, rule, target in moves)


def machines() -> list[Machine]:
    found = (machine for machine in all_machines().values() if not machine.parameters)
    return [machine for machine in found if len(machine.transitions) < MOST_ROWS]


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.full)], ids=["some mutants", "all mutants"])
@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_later_search_finds_the_same_as_a_fresh_search(machine: Machine, share: int) -> None:
    again = IncrementalEngine()
    first = grounded(machine)
    again(first, watches(first), LIMITS)
    for mutant in [machine, *(each.machine for each in list(mutants(machine))[::share])]:
        here = grounded(mutant, first)
        wanted = python_engine.search(here, watches(here), LIMITS)
        found = again(here, watches(here), LIMITS)
        if wanted.complete:
            assert summary(here, found) == summary(here, wanted)
            assert steps(here, found) == steps(here, wanted)


def test_later_search_of_other_fields_is_a_fresh_search() -> None:
    again = IncrementalEngine()
    names = iter(all_machines().values())
    for machine in (next(names), next(names)):
        here = grounded(machine.at({}))
        assert summary(here, again(here, [], LIMITS)) == summary(here, python_engine.search(here, [], LIMITS))


def test_search_ends_after_the_layer_in_which_an_ending_watch_is_hit() -> None:
    machine = all_machines()["dual_state"]
    here = grounded(machine)
    (first, *_) = here.rules
    watch = GroundWatch(first.source, first.condition)
    found = python_engine.search(here, [attrs.evolve(watch, ends=True)], LIMITS)
    assert found.hits == python_engine.search(here, [watch], LIMITS).hits
    assert found.is_cut_short
    assert not found.complete
    assert found.configurations < python_engine.search(here, [watch], LIMITS).configurations
