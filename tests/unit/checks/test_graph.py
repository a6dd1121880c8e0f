import pytest
from example_machines import emits, placed, states

from dsa.checks.table_faults import dead_ends, vain_effects
from dsa.declarations import Event, State, Transition
from dsa.machine import Machine

EVENTS = (Event("e"), Event("answer", "ask"))


def machine(*rows, tree=None):
    return Machine("m", placed(rows), tree or states("a", (), ["z"]), "a", events=EVENTS)


def test_state_that_only_inherits_rows_is_not_a_dead_end():
    tree = (State("a", "initial"), State("a.b", "initial"), State("c"), State("z", "final"))
    assert not dead_ends(machine(Transition("a", "e", "a"), Transition("c", "e", "z"), tree=tree))
    assert not dead_ends(machine(Transition("*", "e", "z"), tree=tree))
    (found,) = dead_ends(machine(Transition("a", "e", "z"), tree=tree))
    assert found.code == "DSA303"
    assert found.message.startswith("state 'c' is not final")


@pytest.mark.parametrize(("effects", "target", "message"), [
    (emits("ask", "cancel ask"), "a", "this row emits 'ask', and then cancels"),
    (emits("ask", "cancel"), "a", "this row emits 'ask', and then cancels"),
    (emits("log", "cancel log"), "a", "the effect 'log' has no answers"),
    (emits("ask"), "z", "this row emits 'ask' and ends the run, since state 'z' is final"),
])  # fmt: skip
def test_useless_effects_are_reported_at_their_cell(effects, target, message):
    found = vain_effects(machine(Transition("a", "e", target, effects=effects)))
    assert message in found[0].message
    assert {finding.code for finding in found} == {"DSA213"}
    assert found[0].span.line == 40
    assert found[0].span.column == 43  # the effects cell


def test_effect_that_nothing_emits_cannot_be_cancelled():
    (found,) = vain_effects(machine(Transition("a", "e", "a", effects=emits("cancel ask"))))
    assert "no row emits the effect 'ask'" in found.message


@pytest.mark.parametrize("effects", [emits("cancel ask", "ask"), emits("log", "cancel"), emits("cancel", "ask")])
def test_meaningful_effects_are_not_reported(effects):
    assert not vain_effects(machine(Transition("a", "e", "a", effects=effects)))


def test_machine_without_text_has_findings_at_a_neutral_place():
    bare = Machine("m", (Transition("a", "e", "b"),), (State("a", "initial"), State("b")), "a", events=EVENTS)
    (found,) = dead_ends(bare)
    assert str(found.span) == "<python>:1:1"
    assert found.render()
