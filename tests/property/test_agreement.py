"""The compiled step answers as `dsa.semantics.step` does, on any machine, whatever it is given."""

import random
from collections import Counter
from functools import partial
from time import process_time

import pytest
import rulebook
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import HealthCheck, event, given, seed, settings
from hypothesis import strategies as st
from random_sample import uses_three_additions
from repository import shipped_machines
from sample_sizes import sample_size

from dsa.compiled_step import compiled_step
from dsa.errors import OccurrenceError
from dsa.machine import read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, accepted_events, candidates, start, step
from dsa.testing.strategies import configurations, machines, occurrences

SHIPPED = shipped_machines()
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def answer(act, configuration, occurrence):
    """Return what `act` answers, or that the occurrence is malformed."""
    try:
        return act(configuration, occurrence)
    except OccurrenceError as malformed:
        return str(malformed)


def as_step_says(compiled, configuration, occurrence):
    """Return what a run makes of an occurrence in the form of `step`: without what follows for keys and the like."""
    outcome = compiled.move(configuration, occurrence)
    if isinstance(outcome, Refusal):
        return outcome
    move, values = outcome
    after = Configuration(move.target, values, move.outstanding, move.precedence)
    return Taken(after, move.row, move.effects, move.cancelled)


@settings(max_examples=sample_size(60, full=300), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_compiled_step_agrees_with_the_reference(data):
    machine = data.draw(machines(claims=False) | crowded_machines() | family_machines())
    compiled, configuration = compiled_step(machine), start(machine)
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 2)) == 0:
            configuration = data.draw(configurations(machine))
        occurrence = data.draw(occurrences(machine, configuration))
        expected = answer(partial(step, machine), configuration, occurrence)
        for _ in range(2):  # the second time from what it remembers
            assert answer(compiled.step, configuration, occurrence) == expected
            assert answer(partial(as_step_says, compiled), configuration, occurrence) == expected
        if isinstance(expected, Taken):
            configuration = expected.configuration


def as_the_rulebook_says(machine, configuration, occurrence):
    """Return what the reference answers in the form of the rulebook: with a reason for a refusal."""
    answer = step(machine, configuration, occurrence)
    return answer.reason if isinstance(answer, Refusal) else answer


def reference_agrees_with_the_rulebook(machine, data):
    configuration = start(machine)
    assert rulebook.begin(machine) == configuration
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 2)) == 0:
            configuration = data.draw(configurations(machine))
        occurrence = data.draw(occurrences(machine, configuration, with_malformed=False))
        expected = rulebook.follow(machine, configuration, occurrence)
        assert as_the_rulebook_says(machine, configuration, occurrence) == expected
        if isinstance(expected, Taken):
            event(f"{max(Counter(expected.configuration.outstanding).values(), default=0)} outstanding of one effect")
            configuration = expected.configuration
        else:
            event(expected)


@settings(max_examples=sample_size(24, full=100), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_reference_agrees_with_the_rulebook(data):
    reference_agrees_with_the_rulebook(data.draw(machines(claims=False) | crowded_machines() | family_machines()), data)


@pytest.mark.full
def test_reference_agrees_with_the_rulebook_on_3000_machines_a_third_with_three_additions(told):
    met, started = Counter(), process_time()

    @settings(max_examples=3_100, deadline=None, suppress_health_check=SLOW)
    @given(st.data())
    def search(data):
        machine = data.draw(machines(claims=False) | crowded_machines() | family_machines())
        reference_agrees_with_the_rulebook(machine, data)
        met.update({"machines": 1, "three additions": uses_three_additions(machine)})

    search()
    told(f"the rulebook: {dict(met)}, {process_time() - started:.0f} s of processor time")
    assert met["machines"] >= 3_000, met
    assert met["three additions"] >= 1_000, met


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_machines_agree_on_random_walks(name, count):
    machine = SHIPPED[name]
    compiled, chance, configuration = compiled_step(machine), random.Random(count), start(machine)
    events = [event for event, *_ in machine.event_named.items()]
    timers = [(row.event, row.source) for row in machine.transitions if row.is_timer]
    taken = 0
    for _ in range(count):
        event, source = chance.choice([(event, None) for event in events] + timers)
        if chance.random() < 0.9:  # mostly what can happen here
            here = [*accepted_events(machine, configuration.state)]
            event, source = (chance.choice(here), None) if here else (event, source)
        rows = candidates(machine, configuration.state, Occurrence(event, source=source))
        verdicts = {guard: chance.choice(machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
        occurrence = Occurrence(event, verdicts, source)
        expected = answer(partial(step, machine), configuration, occurrence)
        assert answer(compiled.step, configuration, occurrence) == expected
        assert answer(partial(as_step_says, compiled), configuration, occurrence) == expected
        if isinstance(expected, Taken):
            taken, configuration = taken + 1, expected.configuration
        elif configuration.state in machine.final_states or chance.random() < 0.05:  # some walks end nowhere
            configuration = start(machine)
    assert taken > count / 4


def test_random_machines_meet_every_reason_of_refusal():
    met = set()

    @settings(max_examples=sample_size(15, full=50), deadline=None, database=None, suppress_health_check=SLOW)
    @given(st.data())
    def search(data):
        machine = data.draw(machines(claims=False))
        for _ in range(5):
            configuration = data.draw(configurations(machine))
            answer = step(machine, configuration, data.draw(occurrences(machine, configuration, with_malformed=False)))
            met.add(answer.reason if isinstance(answer, Refusal) else "taken")

    every = {"taken", "finished", "late", "early", "invalid_state", "ambiguous", "out_of_domain", "emitted_twice"}
    for batch in range(8):
        if met != every:
            seed(batch)(search)()
    assert met == every
