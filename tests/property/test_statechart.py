"""python-statemachine and `step` in lockstep: the same answers, refusals and their reasons included."""

import random
from itertools import product

import pytest
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_sample import random_sample
from repository import all_machines, shipped_machines
from sample_sizes import sample_size

from dsa.checks.search.exploration import explore
from dsa.errors import OccurrenceError
from dsa.machine import read_guards
from dsa.semantics import Configuration, Occurrence, Taken, start, step
from dsa.targets.statechart import StatechartRun
from dsa.testing.strategies import configurations, machines, occurrences

SHIPPED, ALL = shipped_machines(), all_machines()
#: These read many verdicts at once: an occurrence takes milliseconds, and all of them half a minute.
LARGE_HERE = ("chat", "coding")
#: Those that are looked at wherever they can be in a full run only; random walks meet them always.
WHOLE_IN_FULL = (*LARGE_HERE, "katas/katas")


def answer(take, *arguments):
    """Return the answer, or the class of the error that an occurrence which is malformed raises."""
    try:
        return take(*arguments)
    except OccurrenceError as error:
        return type(error)


def both(machine, run, here, occurrence):
    """Feed both engines at one configuration, compare, and give where they are after."""
    expected = answer(step, machine, here, occurrence)
    assert answer(run.send, occurrence) == expected
    after = expected.configuration if isinstance(expected, Taken) else here
    assert run.configuration == after
    return after


def lockstep(data, machine):
    run = StatechartRun(machine)
    here = start(machine)
    assert run.configuration == here
    for index in range(12):
        if index % 4 == 3:
            here = run.configuration = data.draw(configurations(machine))
        here = both(machine, run, here, data.draw(occurrences(machine, here)))


SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(SLOW, max_examples=sample_size(15, full=40))
@given(st.data())
def test_statechart_agrees_on_random_machines(data):
    lockstep(data, data.draw(machines(claims=False) | crowded_machines() | family_machines()))


@pytest.mark.full
@settings(SLOW, max_examples=300)
@given(st.data())
def test_statechart_agrees_on_300_random_machines(data):
    lockstep(data, data.draw(machines(claims=False) | crowded_machines() | family_machines()))


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.full)])
def test_statechart_agrees_in_every_configuration_of_sampled_machines(count):
    for machine in random_sample(count):
        agree_everywhere(machine, max_states=100)


def walk(machine, seed, count):
    """Feed `count` random occurrences; start anew when a run has ended, and now and then in the middle."""
    chance, run = random.Random(seed), StatechartRun(machine)
    keys = [*((None, event) for event in machine.event_named), *(k for k in machine.rows_from if k[1][:6] == "after ")]
    here, taken = start(machine), 0
    for _ in range(count):
        if (here.state in machine.final_states and chance.random() < 0.8) or chance.random() < 0.01:
            here = run.configuration = start(machine)
        likely = [key for key in keys if _is_likely(machine, here, *key)]
        source, event = chance.choice(likely if likely and chance.random() < 0.8 else keys)
        rows = machine.rows_from[source, event] if source else machine.rows_for(here.state, event)
        verdicts = {guard: chance.choice(machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
        after = both(machine, run, here, Occurrence(event, verdicts, source))
        taken += after is not here
        here = after
    return taken


def _is_likely(machine, here: Configuration, source, event) -> bool:
    if source is not None:
        return (source, event) in machine.armed_timers(here.state)
    origin = machine.event_named[event].origin
    return bool(machine.rows_for(here.state, event)) and (origin == "outside" or origin in here.outstanding)


@pytest.mark.parametrize("name", SHIPPED)
def test_statechart_agrees_on_random_walks_of_a_shipped_machine(name):
    # A chart that has ended is built anew, which takes 30 ms there.
    count = 100 if name in LARGE_HERE else sample_size(180, full=2_000)
    assert walk(SHIPPED[name], seed=1, count=count) > count // 4


@pytest.mark.full
@pytest.mark.parametrize("name", SHIPPED)
def test_statechart_agrees_on_100_000_random_occurrences(name):
    assert walk(SHIPPED[name], seed=2, count=100_000) > 25_000


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name in WHOLE_IN_FULL else []) for name in ALL]
)
def test_statechart_agrees_in_every_configuration_of_every_machine_here(name):
    agree_everywhere(ALL[name], max_states=sample_size(180, full=2_000))


def agree_everywhere(machine, max_states):
    """Feed everything that there is at each configuration that an exploration finds."""
    run = StatechartRun(machine)
    for here in explore(machine, max_states=max_states).all_configurations():
        for occurrence in _everything(machine, here):
            run.configuration = here
            both(machine, run, here, occurrence)


def _everything(machine, here: Configuration):
    """Return every event and armed timer, each with every combination of the verdicts that its rows read."""
    keys = [(None, event) for event in machine.event_named] + list(machine.armed_timers(here.state))
    for source, event in keys:
        rows = machine.rows_from[source, event] if source else machine.rows_for(here.state, event)
        guards = read_guards(rows)
        for outcomes in product(*(machine.guard_named[guard].outcomes for guard in guards)):
            yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source)
