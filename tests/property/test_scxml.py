"""SCXML there and back: what `dsa export` writes `dsa import` reads, through the document that it carries and through its states alone."""

import random

import attrs
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from repository import SMALL, all_machines

from dsa.checks.explore import explore
from dsa.declarations import Event
from dsa.expr import OUTCOMES
from dsa.lang import dumps
from dsa.lang.from_scxml import from_scxml
from dsa.lang.scxml_tree import read_tree, same
from dsa.targets import ExportError, emit
from dsa.targets.scxml import scxml
from dsa.testing.strategies import machines

LARGE = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
ALL = {name: machine.at(SMALL.get(name, {})) for name, machine in all_machines().items()}


def exported(machine):
    """Write a machine; one that does not start in its domains cannot be."""
    try:
        return scxml(machine, dumps(machine))
    except ExportError as refusal:
        assert "outside its domain" in str(refusal)  # noqa: PT017  (any other refusal is a fault)
        assume(condition=False)


def require_round_trip(machine):
    text = exported(machine)
    again = from_scxml(text)
    assert again.machine == machine
    assert same(read_tree(scxml(again.machine, again.document)), read_tree(text))


@settings(LARGE, max_examples=40)
@given(machines())
def test_what_is_exported_is_imported(machine):
    require_round_trip(machine)


@pytest.mark.full
@settings(LARGE, max_examples=1_000)
@given(machines())
def test_many_machines_that_are_exported_are_imported(machine):
    require_round_trip(machine)


def require_states_alone(machine):
    """Its states and transitions alone give a machine with the same configurations: flags stand for what is outstanding."""
    found = from_scxml(exported(machine), carried=False)
    if found.machine is None:  # every row's condition is false by itself
        assert [finding.message for finding in found.findings if finding.is_error] == ["there is no transition"]
        return None
    there, here = explore(machine, max_states=3_000), explore(found.machine, max_states=3_000)
    if there.complete:
        assert here.configurations == there.configurations
    return there, here


def saying_anything(machine):
    """Let each guard say anything, and each timer ring at any time: of states alone is not read that one never says something, nor delays."""
    guards = tuple(attrs.evolve(guard, outcomes=OUTCOMES) for guard in machine.guards)
    rows = machine.transitions
    rings = {row.event: row.event.replace(" ", "_") for row in rows if row.event.startswith("after ")}
    rows = tuple(attrs.evolve(row, event=rings.get(row.event, row.event)) for row in rows)
    events = (*machine.events, *(Event(name) for name in rings.values()))
    return attrs.evolve(machine, guards=guards, transitions=rows, events=events)


@pytest.mark.parametrize("name", ALL)
def test_the_states_alone_mean_the_same(name):
    there, here = require_states_alone(saying_anything(ALL[name]))
    assert here.transitions == there.transitions


@pytest.mark.full
@settings(LARGE, max_examples=300)
@given(machines(claims=False))
def test_the_states_of_random_machines_alone_mean_the_same(machine):
    require_states_alone(saying_anything(machine))


@settings(LARGE, max_examples=25)
@given(machines())
def test_every_machine_is_written_for_every_tool_or_refused_in_words(machine):
    for tool in ("promela", "tla", "prism", "scxml", "xstate"):
        try:
            assert emit(machine, tool) == emit(machine, tool)
        except ExportError as refusal:
            assert "outside its domain" in str(refusal)  # noqa: PT017  (as above)


def test_a_changed_file_is_told_from_what_its_document_gives():
    machine = ALL["dual_state"]
    text = scxml(machine, dumps(machine))
    chance, lines = random.Random(1), text.splitlines()
    places = [
        n for n, line in enumerate(lines) if any(tag in line for tag in ("<transition", "<assign", "<send", "<data "))
    ]
    for place in chance.sample(places, 12):
        changed = "\n".join([*lines[:place], lines[place].replace('"', '"x', 1), *lines[place + 1 :]])
        assert not same(read_tree(changed), read_tree(text))
