"""The strategies give valid documents, and occurrences as they promise."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsa.errors import OccurrenceError
from dsa.semantics import require_known, start, step
from dsa.testing.strategies import configurations, machines, occurrences

RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@RELAXED
@given(machines())
def test_names_are_unique_and_every_name_is_declared(machine):
    named = (machine.states, machine.events, machine.effects, machine.variables, machine.parameters, machine.guards)
    names = [item.name for items in named for item in items]
    assert len(names) == len(set(names))
    states = {state.name for state in machine.states}
    for row in machine.transitions:
        assert row.is_timer or row.event in machine.event_named
        assert row.source in states | {"*"}
        assert row.target in states | {"="}
        assert row.source not in machine.final_states
    start(machine)


@RELAXED
@given(st.data())
def test_configurations_are_within_their_domains(data):
    machine = data.draw(machines(claims=False))
    configuration = data.draw(configurations(machine))
    assert configuration.state in machine.leaves
    for variable, value in zip(machine.variables, configuration.values, strict=True):
        assert machine.values_of[variable.name].contains(value)
    assert set(configuration.outstanding) <= set(machine.answers)


@RELAXED
@given(st.data())
def test_occurrences_without_malformed_ones_are_well_formed(data):
    machine = data.draw(machines(claims=False))
    configuration = data.draw(configurations(machine))
    step(machine, configuration, data.draw(occurrences(machine, configuration, with_malformed=False)))
    require_known(machine, data.draw(occurrences(machine, with_malformed=False)))


def test_malformed_occurrences_and_unusual_names_are_drawn():
    met = set()

    @settings(RELAXED, max_examples=300, derandomize=True, database=None)
    @given(st.data())
    def search(data):
        machine = data.draw(machines(claims=False))
        met.update(item.name for item in (*machine.states, *machine.events, *machine.variables))
        met.update("final child" for state in machine.states if state.parent and state.kind == "final")
        met.update("timer" for row in machine.transitions if row.is_timer)
        met.update("star" for row in machine.transitions if row.source == "*")
        try:
            require_known(machine, data.draw(occurrences(machine)))
        except OccurrenceError:
            met.add("malformed")

    search()
    assert met >= {"class", "def", "lambda", "send", "model", "states", "configuration", "retries.g_test"}
    assert met >= {"final child", "timer", "star", "malformed"}
