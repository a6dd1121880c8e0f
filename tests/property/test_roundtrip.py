"""Writing and reading are inverse: machines, expressions, and the texts between them."""

import attrs
import pytest
from crowds import crowded_machines
from documents import shipped_texts
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.declarations import Event, State, Transition
from dsa.errors import Span
from dsa.expr import Environment, Name, children, evaluate, unparse, with_children
from dsa.lang import digest, dumps, loads, spell_out
from dsa.lang.expression_parser import ExpressionParser, Findings
from dsa.lang.markdown import Cell
from dsa.lang.namespace import Resolver, Scope
from dsa.machine import Machine
from dsa.testing.strategies import Vocabulary, condition, machines, number, skeletons

#: Machines are large: shrinking one takes minutes, and the failing document says enough.
LARGE = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@settings(LARGE, max_examples=sample_size(18, full=60))
@given(machines() | crowded_machines(claims=2))
def test_machine_is_the_same_after_writing_and_reading(machine):
    text = dumps(machine)
    assert loads(text) == machine
    assert dumps(loads(text)) == text
    assert digest(loads(text)) == digest(machine)


@pytest.mark.full
@settings(LARGE, max_examples=2_000)
@given(machines() | crowded_machines(claims=2))
def test_many_machines_are_the_same_after_writing_and_reading(machine):
    assert loads(dumps(machine)) == machine


@pytest.mark.parametrize("text", shipped_texts(), ids=lambda text: text.split("\n", maxsplit=1)[0].strip("# \r"))
def test_document_means_the_same_when_written_again(text):
    machine = loads(text) if "\nMachine:" not in text else None
    if machine is None:
        pytest.skip("a spec is not a machine")
    assert loads(dumps(machine)) == machine
    whole = spell_out(machine)
    assert loads(dumps(whole)) == whole
    assert whole.transitions == machine.transitions


def reread(text: str, machine: Machine, *, with_moments: bool):
    """Read an expression in the scope of a machine's names."""
    parser = ExpressionParser(Cell(text, "m.md", 1, 1, text))
    expr = parser.expression()
    parser.end()
    findings = Findings()
    symbols = frozenset(
        v for item in (*machine.parameters, *machine.variables) for v in getattr(item.domain, "values", ())
    )
    scope = Scope(
        "a test",
        {item.name: item.domain for item in machine.parameters},
        {item.name: item.domain for item in machine.variables},
        {guard.name: guard.outcomes for guard in machine.guards},
        symbols,
        moments(machine) if with_moments else {},
        effects_with_answers=frozenset(machine.answers),
        has_pending=with_moments,
    )
    resolved, _ = Resolver(scope, findings, Span("m.md", 1, 1, 2, text)).infer(expr)
    assert findings.diagnostics == ()
    return resolved


def moments(machine):
    kinds = dict.fromkeys(machine.state_named, "state") | dict.fromkeys(machine.event_named, "event")
    return kinds | {effect.name: "effect" for effect in machine.effects}


@settings(LARGE, max_examples=sample_size(30, full=150))
@given(st.data())
def test_expression_is_the_same_after_writing_and_reading(data):
    skeleton = data.draw(skeletons())
    for draw_one, vocabulary, with_moments in (
        (condition, skeleton.vocabulary, False),
        (number, skeleton.vocabulary, False),
        (condition, skeleton.moments(), True),
    ):
        expr = draw_one(data.draw, vocabulary, 3)
        assert reread(unparse(expr), skeleton.machine, with_moments=with_moments) == expr
        assert reread(unparse(expr, alone=True), skeleton.machine, with_moments=with_moments) == expr
        assert reread(unparse(expr, is_closed=True), skeleton.machine, with_moments=with_moments) == expr


def as_python(text: str) -> str:
    return text.replace("true", "True").replace("false", "False")


@settings(LARGE, max_examples=sample_size(24, full=100))
@given(st.data())
def test_written_number_means_what_python_says(data):
    """Expressions are a subset of Python's, so Python itself is the reference for precedence and chaining; it counts with a list."""
    vocabulary = Vocabulary(data.draw(skeletons()).vocabulary.numbers)
    known: Environment = {name.name: data.draw(st.integers(-3, 5)) for name in vocabulary.numbers}
    expr = number(data.draw, vocabulary, 4)
    python = {f"n{place}": value for place, value in enumerate(known.values())}
    python["count"] = lambda *conditions: [*conditions].count(True)
    renamed = replaced(expr, {name: f"n{place}" for place, name in enumerate(known)})
    assert evaluate(expr, known) == eval(as_python(unparse(renamed)), {}, python)


def replaced(expr, names):
    if isinstance(expr, Name):
        return attrs.evolve(expr, name=names[expr.name])
    return with_children(expr, (replaced(child, names) for child in children(expr)))


def test_names_that_are_also_words_of_properties_are_written_and_read():
    machine = Machine(
        "switch",
        (Transition("on", "always", "off"), Transition("off", "expected", "on")),
        (State("on", "initial"), State("off")),
        "on",
        events=(Event("always"), Event("expected")),
    )
    text = (
        dumps(machine) + "\n## Properties\n- on leads to off\n- always only after expected\n- on always: on unchanged\n"
    )
    again = loads(text)
    assert len(again.properties) == 3
    assert loads(dumps(again)) == again
