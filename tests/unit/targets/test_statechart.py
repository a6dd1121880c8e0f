"""The python-statemachine class: what is refused and why, names, and every reachable transition in lockstep."""

import itertools

import attrs
import pytest
from statemachine import StateChart

from dsa.declarations import OUTSIDE, Assign, Event, State, Transition, Variable
from dsa.errors import OccurrenceError
from dsa.expr import Integer, Name, RangeDomain
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.targets.statechart import Memory, StatechartRun, event_ids, state_ids, statechart

NONE: frozenset[str] = frozenset()


def occurrences_at(machine, configuration):
    """Return every occurrence that names something of the machine, with every combination of the verdicts read here."""
    events = [(None, event) for event in machine.event_named]
    for source, event in [*events, *(key for key in machine.rows_from if key[1].startswith("after "))]:
        rows = machine.rows_from[source, event] if source else machine.rows_for(configuration.state, event)
        guards = read_guards(rows)
        for outcomes in itertools.product(*(machine.guard_named[guard].outcomes for guard in guards)):
            yield Occurrence(event, dict(zip(guards, outcomes, strict=True)), source)


@pytest.mark.parametrize("name", ["dual_state", "review"])
def test_every_reachable_occurrence_is_answered_as_by_step(name, request):
    machine = request.getfixturevalue(name)
    run, seen, queue, taken_rows = StatechartRun(machine), {start(machine)}, [start(machine)], set()
    while queue:
        here = queue.pop()
        for occurrence in occurrences_at(machine, here):
            run.configuration = here
            expected = step(machine, here, occurrence)
            assert run.send(occurrence) == expected
            if isinstance(expected, Taken):
                assert run.configuration == expected.configuration
                taken_rows.add(expected.transition)
                if expected.configuration not in seen:
                    seen.add(expected.configuration)
                    queue.append(expected.configuration)
            else:
                assert run.configuration == here
    assert taken_rows == set(machine.transitions)


def test_class_is_strict_and_has_the_true_names(dual_state):
    built = statechart(dual_state)
    assert issubclass(built, StateChart)
    assert (built.catch_errors_as_events, built.allow_event_without_transition) == (False, False)
    assert (built.atomic_configuration_update, built.enable_self_transition_entries) == (True, True)
    assert [state.name for state in built.states] == list(dual_state.leaves)
    assert built.initial_state.name == "idle"
    assert [state.name for state in built.final_states] == ["succeeded", "failed", "escalated"]


def test_class_can_be_used_without_the_adapter(dual_state):
    memory = Memory((False, 0), NONE)
    chart = statechart(dual_state)(model=memory)
    chart.send(event_ids(dual_state)[None, "specification"], occurrence=Occurrence("specification"))
    assert chart.current_state_value == state_ids(dual_state)["generating"]
    assert memory.outstanding == ("query_llm",)
    assert memory.effects == ("query_llm",)


def test_event_that_no_row_accepts_raises_and_so_does_an_unknown_one(dual_state):
    chart = statechart(dual_state)(model=Memory((False, 0), NONE))
    with pytest.raises(chart.TransitionNotAllowed):
        chart.send(event_ids(dual_state)[None, "artifact"], occurrence=Occurrence("artifact"))
    with pytest.raises(chart.TransitionNotAllowed):
        chart.send("typo", occurrence=Occurrence("typo"))


@pytest.mark.parametrize(
    ("configuration", "occurrence", "reason"),
    [
        (Configuration("failed", (False, 0), NONE), Occurrence("specification"), "finished"),
        (Configuration("validating", (False, 0), NONE), Occurrence("verdict", {"g": "passed"}), "late"),
        (Configuration("idle", (False, 0), NONE), Occurrence("verdict"), "late"),
        (Configuration("generating", (False, 0), NONE), Occurrence("specification"), "invalid_state"),
    ],
)
def test_refusal_has_its_reason_and_changes_nothing(dual_state, configuration, occurrence, reason):
    run = StatechartRun(dual_state, configuration)
    answer = run.send(occurrence)
    assert isinstance(answer, Refusal)
    assert answer.reason == reason
    assert answer == step(dual_state, configuration, occurrence)
    assert run.configuration == configuration


def test_overlapping_rows_are_refused_although_the_engine_would_take_the_first():
    rows = (Transition("a", "go", "b"), Transition("a", "go", "a"))
    machine = Machine("m", rows, (State("a", "initial"), State("b")), "a", events=(Event("go"),))
    answer = StatechartRun(machine).send(Occurrence("go"))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.rows) == ("ambiguous", rows)


def test_updates_read_the_values_before_the_row():
    x, y = Name("x", "variable"), Name("y", "variable")
    swap = Transition("a", "swap", "=", updates=(Assign("x", y), Assign("y", x)))
    variables = tuple(
        Variable(name, "environment", RangeDomain(Integer(0), Integer(9)), Integer(first))
        for name, first in (("x", 1), ("y", 2))
    )
    machine = Machine("m", (swap,), (State("a", "initial"),), "a", variables=variables, events=(Event("swap"),))
    answer = StatechartRun(machine).send(Occurrence("swap"))
    assert isinstance(answer, Taken)
    assert answer.configuration.values == (2, 1)


def test_malformed_occurrence_raises_and_changes_nothing(dual_state):
    here = Configuration("validating", (False, 0), frozenset({"execute_guard"}))
    run = StatechartRun(dual_state, here)
    for occurrence in (Occurrence("verdict"), Occurrence("typo"), Occurrence("verdict", {"h": "passed"})):
        with pytest.raises(OccurrenceError):
            run.send(occurrence)
        assert run.configuration == here


def test_ended_run_can_be_set_to_another_configuration(dual_state):
    here = Configuration("validating", (False, 0), frozenset({"execute_guard"}))
    run = StatechartRun(dual_state, here)
    assert isinstance(run.send(Occurrence("verdict", {"g": "fatal"})), Taken)
    refused = run.send(Occurrence("specification"))
    assert isinstance(refused, Refusal)
    assert refused.reason == "finished"
    run.configuration = here
    assert isinstance(run.send(Occurrence("verdict", {"g": "passed"})), Taken)


def test_names_reserved_by_python_statemachine_are_ordinary_names():
    names = ("model", "send", "states", "configuration", "class", "is_terminated", "_engine")
    events = ("model", "events", "before_transition", "on_enter_state", "done.state", "raise_", "prepare_event")
    rows = tuple(
        Transition(one, event, other)
        for (one, other), event in zip(itertools.pairwise((*names, names[0])), events, strict=True)
    )
    states = tuple(State(name, "initial" if name == "model" else "") for name in names)
    machine = Machine("class", rows, states, "model", events=tuple(Event(name, OUTSIDE) for name in events))
    run = StatechartRun(machine)
    for event, expected in zip(events, (*names[1:], names[0]), strict=True):
        answer = run.send(Occurrence(event))
        assert isinstance(answer, Taken)
        assert answer.configuration.state == expected


def test_machine_with_dead_ends_and_unreachable_states_has_a_class(dual_state):
    odd = attrs.evolve(dual_state, transitions=dual_state.transitions[:1])
    assert isinstance(StatechartRun(odd).send(Occurrence("specification")), Taken)
