"""A sample of random machines, for tools that are slow to ask: none is trivial, and a third use at least three additions to the language at once.

The additions are what came to the language with families: several emissions of an effect at once, `pending`, counts, families, sleeps.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

import attrs
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from dsa.checks.search.exploration import explore
from dsa.declarations import Emit, Transition
from dsa.expr import Count, Name, walk
from dsa.machine import Machine
from dsa.testing.strategies import machines

#: Configurations: fewer are trivial, and more take too long.
LEAST, MOST = 5, 2_000
_BATCH = settings(
    max_examples=50, deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
_QUANTIFIER, _NEIGHBOUR = re.compile(r"\b(?:all|any|count) \w+:"), re.compile(r"\[\w+[+-]1\]")


def additions_of(machine: Machine) -> frozenset[str]:
    """Return which additions to the language the rows of a machine use."""
    return frozenset(each for row in machine.transitions for each in _additions_of_row(machine, row))


def _additions_of_row(machine: Machine, row: Transition) -> Iterator[str]:
    text = row.span.text if row.span else ""
    if row.instance or any("[" in name for name in (row.event, *map(str, row.updates), *map(str, row.effects))):
        yield "families"
    if _QUANTIFIER.search(text):
        yield "quantifiers"
    if _NEIGHBOUR.search(text):
        yield "neighbours"
    for node in walk(row.condition):
        if isinstance(node, Count):
            yield "count"
        elif isinstance(node, Name) and node.kind == "pending":
            yield "pending E" if node.name else "pending"
    for item in row.effects:
        effect = machine.effect_named.get(item.effect) if isinstance(item, Emit) else None
        if effect is not None and effect.at_once is not None:
            yield "at once"
        if effect is not None and effect.sleep_ms is not None:
            yield "sleep"


def uses_three_additions(machine: Machine) -> bool:
    """Return whether the rows of a machine use at least three additions."""
    return len(additions_of(machine)) >= 3


def _is_large_enough(machine: Machine) -> bool:
    found = explore(machine, max_states=MOST)
    return found.complete and found.configurations >= LEAST


def _drawn(strategy: st.SearchStrategy[Machine], count: int, is_wanted: Callable[[Machine], bool]) -> list[Machine]:
    """Return `count` machines of a strategy, the same ones every time."""
    found: list[Machine] = []
    for batch in range(1_000):

        @seed(batch)
        @_BATCH
        @given(strategy)
        def search(machine: Machine) -> None:
            if len(found) < count and is_wanted(machine) and _is_large_enough(machine):
                found.append(machine)

        search()
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} machines")


@cache
def random_sample(count: int) -> tuple[Machine, ...]:
    """Return `count` machines without properties: a third are anything, a third have several emissions of an effect, a third use families."""
    third = count // 3
    every = (
        _drawn(machines(claims=False), count - 2 * third, lambda _: True),
        _drawn(crowded_machines(), third, lambda _: True),
        _drawn(family_machines(), third, uses_three_additions),
    )
    return tuple(attrs.evolve(machine, properties=()) for several in every for machine in several)
