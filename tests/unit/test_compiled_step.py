"""The compiled step on known machines; on random ones: tests/property/test_agreement.py."""

import attrs
import pytest
from example_machines import add, assign, chain, compare, dual_state, emits, passed, placed, ranged, states, var

from dsa import compiled_step as module
from dsa.compiled_step import compiled_step
from dsa.declarations import Event, Guard, Revoke, RunParameter, State, Transition, Variable
from dsa.errors import OccurrenceError
from dsa.expr import Boolean, BooleanDomain, EnumDomain, Integer, Negate, Symbol
from dsa.lang import loads
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step


def verdict(outcome):
    return Occurrence("verdict", {"g": outcome})


def test_whole_run_matches_the_reference():
    machine = dual_state(rmax=1)
    act, configuration = compiled_step(machine).step, start(machine)
    run = ["specification", "artifact", "failed", "artifact", "failed"]
    for word in run:
        occurrence = verdict(word) if word == "failed" else Occurrence(word)
        result = act(configuration, occurrence)
        assert result == step(machine, configuration, occurrence)
        assert isinstance(result, Taken)
        configuration = result.configuration
    assert configuration == Configuration("failed", (False, 1), frozenset())


@pytest.fixture
def _no_reference(monkeypatch):
    monkeypatch.setattr(module, "step", None)


@pytest.mark.usefixtures("_no_reference")
def test_taken_row_is_decided_without_the_reference():
    here = Configuration("validating", (False, 2), frozenset({"execute_guard"}))
    result = compiled_step(dual_state()).step(here, verdict("failed"))
    assert result.configuration == Configuration("generating", (False, 3), ("query_llm",))
    assert result.effects == ("refine_context", "query_llm")
    move, values = compiled_step(dual_state()).move(here, verdict("failed"))
    assert (move.target, values, move.outstanding) == ("generating", (False, 3), ("query_llm",))


def test_compiled_step_must_take_a_row_that_the_reference_takes(monkeypatch):
    """The reference may explain why no row is taken, but not choose another one."""
    monkeypatch.setattr(module._StepWriter, "source", lambda *_: ("def group(c, o): return None",))  # noqa: SLF001
    with pytest.raises(AssertionError, match="the compiled step of dual_state takes no row in"):
        compiled_step(dual_state()).move(start(dual_state()), Occurrence("specification"))


def test_refusals_and_malformed_occurrences_match_the_reference():
    machine = dual_state()
    act, idle = compiled_step(machine).step, start(machine)
    late = act(idle, Occurrence("artifact"))
    assert isinstance(late, Refusal)
    assert late == step(machine, idle, Occurrence("artifact"))
    for wrong in (
        Occurrence("nothing"),
        Occurrence("specification", {"g": "passed"}),
        Occurrence("after 30s", source="idle"),
    ):
        with pytest.raises(OccurrenceError):
            act(idle, wrong)
    with pytest.raises(OccurrenceError):
        act(Configuration("validating", (False, 0), frozenset({"execute_guard"})), Occurrence("verdict"))


def test_compiled_step_uses_the_parameters_of_its_machine():
    at = Configuration("validating", (False, 3), frozenset({"execute_guard"}))
    assert compiled_step(dual_state(rmax=3)).step(at, verdict("failed")).configuration.state == "failed"
    assert compiled_step(dual_state(rmax=4)).step(at, verdict("failed")).configuration.state == "generating"


def test_hostile_names_do_not_change_the_compiled_step():
    hostile = "__import__('os')"
    rows = (
        Transition("class", "def", "=", compare("lambda", "==", hostile), updates=(assign("v0", 1), assign("k", 2))),
    )
    machine = Machine(
        "hostile",
        rows,
        states("class"),
        "class",
        variables=(
            Variable("lambda", "environment", EnumDomain((hostile, "x")), Symbol(hostile)),
            Variable("v0", "environment", ranged(0, 2), Integer(0)),
            Variable("k", "environment", ranged(0, 2), Integer(0)),
            Variable("c", "workflow", BooleanDomain(), Boolean(value=False)),
        ),
        events=(Event("def"),),
    )
    result = compiled_step(machine).step(start(machine), Occurrence("def"))
    assert result == step(machine, start(machine), Occurrence("def"))
    assert result.configuration.values == (hostile, 1, 2, False)


def test_negative_parameter_keeps_its_sign_in_arithmetic():
    machine = Machine(
        "negative",
        (Transition("a", "e", "=", compare(Negate(var("p")), "==", 3), updates=(assign("x", Negate(var("p"))),)),),
        states("a"),
        "a",
        parameters=(RunParameter("p", ranged(-5, 5), -3),),
        variables=(Variable("x", "environment", ranged(0, 3), Integer(0)),),
        events=(Event("e"),),
    )
    assert compiled_step(machine).step(start(machine), Occurrence("e")).configuration.values == (3,)


@pytest.mark.parametrize(("row", "reason"), [
    (Transition("a", "e", "=", updates=(add("x", 2),)), "out_of_domain"),
    (Transition("a", "e", "=", updates=(assign("x", var("y")),)), None),
    (Transition("a", "e", "=", effects=emits("ask", "ask")), "emitted_twice"),
    (Transition("a", "e", "=", effects=emits("ask", "cancel ask", "ask")), None),
    (Transition("a", "e", "=", compare("x", ">", 0)), "invalid_state"),
    (Transition("a", "e", "=", updates=(Revoke("w"),)), None),
])  # fmt: skip
def test_each_refusal_reason_matches_the_reference(row, reason):
    machine = Machine(
        "m",
        (row,),
        states("a"),
        "a",
        variables=(
            Variable("x", "environment", ranged(0, 1), Integer(0)),
            Variable("y", "environment", ranged(0, 3), Integer(1)),
            Variable("w", "workflow", BooleanDomain(), Boolean(value=True)),
        ),
        events=(Event("e"), Event("answer", "ask")),
    )
    result = compiled_step(machine).step(start(machine), Occurrence("e"))
    assert result == step(machine, start(machine), Occurrence("e"))
    assert getattr(result, "reason", None) == reason


def test_rows_of_the_innermost_source_replace_the_outer_ones():
    rows = [Transition("*", "e", "b"), Transition("a", "e", "a.two"), Transition("a.one", "e", "=")]
    tree = (State("a", "initial"), State("a.one", "initial"), State("a.two"), State("b"))
    machine = Machine("nested", placed(rows), tree, "a", events=(Event("e"),))
    act = compiled_step(machine).step
    for leaf in machine.leaves:
        at = Configuration(leaf, (), frozenset())
        assert act(at, Occurrence("e")) == step(machine, at, Occurrence("e"))
    assert act(Configuration("a.two", (), frozenset()), Occurrence("e")).transition is machine.transitions[1]


def test_answered_effect_is_pending_while_another_emission_is_outstanding():
    machine = loads("""# several
## Events
| event | from |
| - | - |
| go | outside |
| said | ask |
## Effects
| effect | at once |
| - | - |
| ask | 3 |
## States
| state | kind |
| - | - |
| idle | initial |
| working | |
| done | final |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | go | | ask, ask, ask | working |
| working | said | pending ask | | = |
| working | said | not pending ask | | done |
""")
    act, configuration, states = compiled_step(machine).step, start(machine), []
    for event in ("go", "said", "said", "said"):
        result = act(configuration, Occurrence(event))
        assert result == step(machine, configuration, Occurrence(event))
        configuration = result.configuration
        states.append(configuration.state)
    assert states == ["working", "working", "working", "done"]


def test_timer_is_found_by_its_source():
    rows = [Transition("a", "after 30s", "b"), Transition("a.one", "after 30s", "=")]
    tree = (State("a", "initial"), State("a.one", "initial"), State("b", "final"))
    machine = Machine("timed", placed(rows), tree, "a")
    act = compiled_step(machine).step
    assert act(start(machine), Occurrence("after 30s", source="a")).configuration.state == "b"
    assert act(start(machine), Occurrence("after 30s", source="a.one")).configuration.state == "a.one"


def test_results_are_remembered_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 1)
    machine = dual_state()
    act = compiled_step(machine).step
    first = act(start(machine), Occurrence("specification"))
    assert act(start(machine), Occurrence("specification")) is first
    second = act(first.configuration, Occurrence("artifact"))
    assert act(first.configuration, Occurrence("artifact")) is not second
    assert act(first.configuration, Occurrence("artifact")) == second


def test_verdict_that_a_guard_cannot_give_is_refused():
    machine = attrs.evolve(dual_state(), guards=(Guard("g", ("verdict",), outcomes=("passed", "failed")),))
    at = Configuration("validating", (False, 0), frozenset({"execute_guard"}))
    with pytest.raises(OccurrenceError, match="cannot say"):
        compiled_step(machine).step(at, verdict("fatal"))
    assert compiled_step(machine).step(at, verdict("passed")).transition.condition == passed()


def test_machine_with_a_thousand_rows_compiles_and_runs():
    machine = chain(1001)
    assert len(machine.transitions) == 1001
    act, configuration = compiled_step(machine).step, start(machine)
    for occurrence in (Occurrence("specification"), *[Occurrence("artifact"), verdict("passed")] * 250):
        configuration = act(configuration, occurrence).configuration
    assert configuration.state == "done"


def test_machine_has_one_compiled_step_that_compiles_rows_on_demand(monkeypatch):
    machine, written = attrs.evolve(dual_state()), []
    real = module._StepWriter.source  # noqa: SLF001
    monkeypatch.setattr(module._StepWriter, "source", lambda writer, rows: written.append(rows) or real(writer, rows))  # noqa: SLF001
    first = compiled_step(machine).step(start(machine), Occurrence("specification"))
    assert compiled_step(machine) is compiled_step(machine)
    compiled_step(machine).step(start(machine), Occurrence("specification", data="again"))
    compiled_step(machine).move(start(machine), Occurrence("specification"))
    assert [[row.event for row in rows] for rows in written] == [["specification"]]
    compiled_step(machine).step(first.configuration, Occurrence("artifact"))
    assert [[row.event for row in rows] for rows in written] == [["specification"], ["artifact"]]


def test_variable_that_starts_outside_its_domain_must_be_set_by_the_row():
    machine = Machine(
        "outside",
        (Transition("a", "e", "="), Transition("a", "f", "=", updates=(assign("x", 1),))),
        states("a"),
        "a",
        variables=(Variable("x", "environment", ranged(0, 3), Integer(7)),),
        events=(Event("e"), Event("f")),
    )
    for event, reason in (("e", "out_of_domain"), ("f", None)):
        result = compiled_step(machine).step(start(machine), Occurrence(event))
        assert result == step(machine, start(machine), Occurrence(event))
        assert getattr(result, "reason", None) == reason
