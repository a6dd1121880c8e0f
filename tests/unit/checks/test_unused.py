import attrs
from example_machines import FALSE, dual_state, ranged, var

from dsa.checks.table_faults import unused_names
from dsa.declarations import (
    Always,
    Effect,
    Event,
    Generator,
    Guard,
    Property,
    RunParameter,
    Scenario,
    ScenarioStep,
    Variable,
)
from dsa.expr import BooleanDomain


def names(machine):
    found = unused_names(machine)
    assert {finding.code for finding in found} <= {"DSA212"}
    assert {finding.severity for finding in found} <= {"warning"}
    return [finding.message.split(" is never used")[0].replace("'", "") for finding in found]


def grown(**more):
    machine = dual_state()
    return attrs.evolve(machine, **{field: (*getattr(machine, field), *items) for field, items in more.items()})


def test_everything_of_dual_state_is_used():
    assert names(dual_state()) == []


def test_each_kind_of_unused_name_is_listed():
    machine = grown(
        parameters=[RunParameter("p", ranged(0, None), 0)],
        variables=[Variable("v", "environment", BooleanDomain(), FALSE)],
        events=[Event("e")],
        effects=[Effect("f")],
        guards=[Guard("h", ("verdict",))],
        generators=[Generator("other"), Generator("another")],
    )
    assert names(machine) == [
        "generator other",
        "generator another",
        "parameter p",
        "variable v",
        "event e",
        "effect f",
        "guard h",
    ]


def test_properties_and_scenarios_use_variables_and_domains_use_parameters():
    more = grown(
        parameters=[RunParameter("p", ranged(0, None), 0)],
        variables=[Variable("v", "environment", ranged(0, "p"), var("p"))],
    )
    assert names(more) == ["variable v"]
    assert names(attrs.evolve(more, properties=(Property(Always(var("v"))),))) == []
    scenario = Scenario("s", (ScenarioStep("specification", values=(("v", 0),)),))
    assert names(attrs.evolve(more, scenarios=(scenario,))) == []


def test_part_of_a_composition_is_used():
    machine = grown(guards=[Guard("h"), Guard("i")])
    assert names(machine) == ["guard h", "guard i"]
    (g, *parts) = machine.guards
    composed = attrs.evolve(g, options=(("k", "1"), ("of", "h, i")))
    assert names(attrs.evolve(machine, guards=(composed, *parts))) == []


def test_generator_is_used_by_the_model_call_and_by_a_judge():
    assert names(grown(generators=[Generator("writer")])) == []
    assert names(grown(generators=[Generator("llm"), Generator("writer")])) == ["generator writer"]
    judge = Guard("j", ("verdict",), "judge", (("question", "Is it so?"), ("by", "writer")))
    assert names(grown(generators=[Generator("llm"), Generator("writer")], guards=[judge])) == ["guard j"]
