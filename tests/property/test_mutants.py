"""A mutant differs from its machine exactly where `differences` says so: compared with runs of both by `step`."""

import attrs
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import possible, timers_ended
from plain import search
from sample_sizes import sample_size

from dsa.checks.mutants import row_mutants
from dsa.checks.mutation import differences
from dsa.checks.search.engine import SearchLimits
from dsa.ground_system import ground
from dsa.machine import Machine
from dsa.semantics import Configuration, Taken, start, step
from dsa.system import closed_system
from dsa.testing.strategies import machines

MOST = 60


def does(machine: Machine, here: Configuration) -> dict:
    """What a machine does in a configuration: for each occurrence that is taken, where it leads and what it emits."""
    found = {}
    for occurrence in possible(machine, here):
        result = step(machine, here, occurrence)
        if isinstance(result, Taken):
            ended = timers_ended(machine, here, result)
            found[occurrence] = (result.configuration, result.effects, ended)
    return found


def told_apart(one: Machine, other: Machine) -> bool | None:
    """Return whether a run of both comes to a point where they differ; None when the search is too long.

    In the order of timers, only the timers that both have are compared.
    """
    timers = [{(row.source, row.event) for row in machine.transitions if row.is_timer} for machine in (one, other)]
    shared = timers[0] & timers[1]

    def seen(here: Configuration) -> Configuration:
        return attrs.evolve(here, precedence=frozenset(pair for pair in here.precedence if shared.issuperset(pair)))

    if seen(start(one)) != seen(start(other)):
        return True
    order = [(start(one), start(other))]
    known = {*order}
    for first, second in order:  # grows while it is walked
        mine, theirs = does(one, first), does(other, second)
        if mine.keys() != theirs.keys():
            return True
        for occurrence, (there, *rest) in mine.items():
            here, *others = theirs[occurrence]
            if seen(there) != seen(here) or rest != others:
                return True
            if (there, here) not in known:
                known.add((there, here))
                order.append((there, here))
        if len(order) > MOST:
            return None
    return False


@settings(max_examples=sample_size(24, full=120), deadline=None)
@given(st.data())
def test_differences_are_found_exactly_where_a_mutant_behaves_differently(data: st.DataObject) -> None:
    machine = data.draw(machines(claims=False) | crowded_machines() | family_machines())
    every = list(row_mutants(machine))
    mutant = data.draw(st.sampled_from(every)).machine
    expected = told_apart(machine, mutant)
    if expected is None:
        return
    system = closed_system(machine)
    grounded = ground(system)
    sights = differences(system, closed_system(mutant))
    watches = [w for w in grounded.watches((s.location, s.condition) for s in sights) if w is not None]
    found = search(grounded, watches, SearchLimits(10_000))
    assert any(hit is not None for hit in found.hits) == expected


@settings(max_examples=sample_size(18, full=60), deadline=None)
@given(machines(claims=False) | crowded_machines())
def test_mutants_differ_from_the_machine_and_from_each_other(machine: Machine) -> None:
    every = [mutant.machine for mutant in row_mutants(machine)]
    assert machine not in every
    # Duplicate rows give the same mutants; a table of different rows does not.
    if len(set(machine.transitions)) == len(machine.transitions):
        rows = [tuple(m.transitions) for m in every]
        assert len(set(rows)) == len(rows)
