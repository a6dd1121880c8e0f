"""Public frozen classes cannot be changed, neither through the object nor through the containers that it was made of."""

import importlib
import inspect
from collections.abc import Mapping

import attrs
import pytest
from each_row import each_row

import dsa
from dsa.generators import ServerSettings, StreamCall, StreamLimits, StreamResult, TokenBudget
from dsa.generators.substitutes import ScriptedGenerator
from dsa.runs.runs import TakeUp
from dsa.runtime.content import AmbientEnvironment, Artifact, Context, GuardInterface, GuardResult, PromptTemplate
from dsa.runtime.run_store import Posted
from dsa.runtime.timeline import Moment, Piece
from dsa.testing import Observation, RefusedAction, View, complete_suite, graph_of
from machines import (
    ActionPair,
    DualStateAgent,
    EnvironmentState,
    InMemoryArtifactDAG,
    WorkflowResult,
    WorkflowState,
    WorkflowStatus,
    WorkflowStep,
)


class Passing(GuardInterface):
    """Passes everything."""

    blocks = False

    def validate(self, _artifact, **_given):
        """Pass."""
        return GuardResult(passed=True)


GENERATOR = ScriptedGenerator(["x = 1"])
PAIR = ActionPair(lambda _state: True, GENERATOR, Passing())
MACHINE = dsa.load("dual_state").at(rmax=1)
GRAPH, START = graph_of(MACHINE), dsa.start(MACHINE)
AGENT = DualStateAgent(PAIR, InMemoryArtifactDAG(), rmax=1)
FIRST = Artifact("x = 0", artifact_id="first")
ARTIFACT = AGENT.execute("write")
LEDGER = AGENT.run.ledger
CONTEXT = Context(
    AmbientEnvironment(InMemoryArtifactDAG()), "write", None, [("x", "no")], {"a": FIRST}, data={"n": "1"}
)
#: An example of each class that is public and frozen, by its name.
EXAMPLES = {
    "Action": dsa.Action("ask", {"text": "hello"}, {"answered"}),
    "Artifact": Artifact("x", dependency_ids=["a", "b"]),
    "AmbientEnvironment": CONTEXT.ambient,
    "Bindings": dsa.Bindings({}, {"g": Passing()}, {"llm": GENERATOR}, config={"a": 1}),
    "CompleteSuite": complete_suite(MACHINE),
    "Configuration": GRAPH.configurations[1],
    "Context": CONTEXT,
    "EnvironmentState": EnvironmentState(FIRST, CONTEXT, 1),
    "ExploredGraph": GRAPH,
    "GuardResult": GuardResult(passed=True),
    "Machine": MACHINE,
    "Moment": Moment("run", 1, LEDGER[0]),
    "Observation": Observation(state=True, values=["retries"]),
    "Occurrence": dsa.Occurrence("verdict", {"g": "passed"}),
    "Options": dsa.Options(parameters={"rmax": 1}, budget=["calls=3"], config={"a": 1}),
    "Piece": Piece("run", "1/1", "text"),
    "Posted": Posted("run", "1"),
    "PromptTemplate": PromptTemplate("You are", "Write", "{specification}"),
    "Refusal": dsa.step(MACHINE, START, dsa.Occurrence("verdict", {"g": "passed"})),
    "StreamLimits": StreamLimits(),
    "RefusedAction": RefusedAction("late"),
    "Rest": dsa.Rest("waiting", AGENT.run, in_doubt=[], accepted=[FIRST]),
    "TokenBudget": TokenBudget(100),
    "ServerSettings": ServerSettings(more={"a": 1}),
    "Step": dsa.event_step("ask", "answered", data={"a": 1}),
    "StreamResult": StreamResult(
        content="text", tool_calls=[StreamCall("1", "look", {})], rescues={"alias": 1}, usage={"tokens": 1}
    ),
    "TakeUp": TakeUp("run"),
    "Taken": dsa.step(MACHINE, START, dsa.Occurrence("specification")),
    "StreamCall": StreamCall("1", "look", {"a": 1}, extra={"b": 2}),
    "View": View("idle", {"retries": 1}, {"query_llm"}, {"query_llm": "1/1"}),
    "WorkflowResult": WorkflowResult(WorkflowStatus.SUCCESS, {"g": FIRST}, provenance=[(FIRST, "no")]),
    "WorkflowState": WorkflowState({"g": True}, {"g": "first"}),
    "WorkflowStep": WorkflowStep("write", PAIR, "g", ["g_test"]),
}

#: For each immutable container: a mutable type that is accepted for it, a change of that original, and an attempt to change the field.
LOOSE = {
    tuple: (list, list.clear, lambda held: held.append("x")),
    frozenset: (set, set.clear, lambda held: held.add("x")),
    Mapping: (dict, dict.clear, lambda held: held.update({"x": 1})),
}


def public_and_frozen():
    """Yield the names of the public frozen classes."""
    for package in ("dsa", "machines", "dsa.generators", "dsa.guards", "dsa.testing"):
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and attrs.has(found) and found.__setattr__ is not object.__setattr__:
                yield name


NAMES = sorted(set(public_and_frozen()))


def containers(example):
    """Return the fields that hold containers, each with its entry of LOOSE."""
    for field in attrs.fields(type(example)):
        held = getattr(example, field.name)
        kind = next((kind for kind in LOOSE if isinstance(held, kind)), None)
        if field.init and kind is not None and not (field.name.startswith("_") or "dict[" in str(field.type)):
            yield field, LOOSE[kind]


def test_every_class_has_an_example():
    assert sorted(EXAMPLES) == NAMES
    assert [type(EXAMPLES[name]).__name__ for name in NAMES] == NAMES


@each_row("name", NAMES)
def test_attributes_cannot_be_set(name):
    example = EXAMPLES[name]
    for field in attrs.fields(type(example)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(example, field.name, None)


PLACES = [(name, field.name) for name in NAMES for field, _ in containers(EXAMPLES[name])]


@each_row(("name", "field"), PLACES)
def test_container_of_a_frozen_object_is_a_copy_that_cannot_be_changed(name, field):
    example = EXAMPLES[name]
    about, (loosely, clear, change) = next(each for each in containers(example) if each[0].name == field)
    held = getattr(example, field)
    given = loosely(held)
    made = attrs.evolve(example, **{about.alias: given})
    assert made == example
    clear(given)
    assert getattr(made, field) == held, "the field must hold a copy"
    with pytest.raises((AttributeError, TypeError)):
        change(getattr(made, field))
    assert made == example


def test_actions_allowed_to_a_call_cannot_be_widened_later():
    may = {"look"}
    action = dsa.Action("ask", {}, may)
    may.add("write")
    assert action.actions == {"look"}
