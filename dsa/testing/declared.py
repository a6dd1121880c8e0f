"""Hypothesis strategies for what a document declares before its rows: names, domains, states, guards, effects.

Gives a `Skeleton`: a machine without rows, and what its expressions may name. Names are unique; some are dotted, some
are Python's keywords, some are taken in other tools. Values of enumerations may have the names of states, events and effects.
"""

from collections.abc import Iterator

import attrs
from hypothesis import strategies as st

from dsa import declarations, expr
from dsa.machine import Machine
from dsa.testing.expressions import Vocabulary, chosen, condition, number, one_in

PLAIN = (
    "idle", "generating", "query_llm", "verdict", "artifact", "rmax", "retries", "satisfied", "x", "y1", "_z", "go",
)  # fmt: skip
DOTTED = ("retries.g_test", "sigma.g_impl", "rmax.g_test", "ask.user.name")
KEYWORDS = ("class", "def", "lambda", "return", "import", "match", "None", "self", "__init__", "print")
TAKEN = ("send", "model", "states", "configuration", "current_state", "events", "on_enter", "step", "v0", "k", "c")
PARTS = ("draft", "open", "pass", "name")
COLOURS, LEVELS = ("red", "amber", "green"), ("low", "amber")
OUTCOME_SETS: tuple[tuple[expr.Outcome, ...], ...] = (
    expr.OUTCOMES, expr.OUTCOMES, ("passed", "failed"), ("failed", "fatal"), ("passed",),
)  # fmt: skip


def values_in(values: expr.Values) -> st.SearchStrategy[expr.Value]:
    """Draw a value of a domain; of an interval without end, one of the first ten."""
    if isinstance(values, expr.Choices):
        return st.sampled_from(values.values)
    return st.integers(values.low, values.low + 9 if values.high is None else values.high)


@attrs.frozen
class Skeleton:
    """A machine without rows, and what its conditions may name."""

    machine: Machine
    vocabulary: Vocabulary

    def moments(self) -> Vocabulary:
        """Give what properties may name besides: states, events, effects, `pending E`, verdicts."""
        machine = self.machine
        return (
            self.vocabulary.naming("state", tuple(state.name for state in machine.states))
            .naming("event", tuple(machine.event_named))
            .naming("effect", tuple(effect.name for effect in machine.effects))
            .naming("pending", tuple(machine.answers))
            .judged_by(tuple((guard.name, said) for guard in machine.guards for said in guard.outcomes))
        )

    def updates(self, draw: st.DrawFn) -> tuple[declarations.Assign | declarations.Revoke, ...]:
        """Draw the updates of a row: each variable at most once."""
        changed = [variable for variable in self.machine.variables if draw(st.integers(0, 2)) == 0]
        return tuple(self._update(draw, variable) for variable in changed)

    def _update(self, draw: st.DrawFn, variable: declarations.Variable) -> declarations.Assign | declarations.Revoke:
        if variable.scope == "workflow" and one_in(draw, 5):
            return declarations.Revoke(variable.name)
        return declarations.Assign(variable.name, self._value(draw, variable))

    def _value(self, draw: st.DrawFn, variable: declarations.Variable) -> expr.Expr:
        vocabulary = self.vocabulary
        match variable.domain:
            case expr.BooleanDomain():
                return condition(draw, vocabulary) if one_in(draw, 3) else expr.Boolean(draw(st.booleans()))
            case expr.EnumDomain(values):
                alike: list[expr.Expr] = [name for name, others in vocabulary.choices if set(others) & set(values)]
                return chosen(draw, [expr.Symbol(value) for value in values] + alike)
            case expr.RangeDomain():
                name = expr.Name(variable.name, "variable")
                moved = expr.Arithmetic(chosen(draw, ("+", "-")), name, expr.Integer(draw(st.integers(1, 2))))
                return chosen(draw, (expr.Integer(draw(st.integers(0, 2))), moved, moved, number(draw, vocabulary)))


@st.composite
def skeletons(draw: st.DrawFn) -> Skeleton:
    """Draw the declarations of a machine."""
    single = iter(draw(st.permutations(PLAIN + KEYWORDS + TAKEN)))
    states = tuple(_states(draw, single))  # a dot in a state's name means a parent, so they take theirs first
    names = iter(draw(st.permutations([*single, *DOTTED])))
    effects = tuple(_effect(draw, next(names)) for _ in range(draw(st.integers(0, 4))))
    events = tuple(_event(draw, next(names), effects) for _ in range(draw(st.integers(1, 5))))
    domains = (*_DOMAINS, _shared(draw, (*states, *effects, *events)))
    parameters = tuple(_parameter(draw, next(names), domains) for _ in range(draw(st.integers(0, 2))))
    variables = tuple(_variable(draw, next(names), domains, parameters) for _ in range(draw(st.integers(0, 4))))
    guards = tuple(_guard(draw, next(names), events) for _ in range(draw(st.integers(0, 2))))
    generators = tuple(_generator(draw, next(names)) for _ in range(draw(st.integers(0, 1))))
    machine = Machine(
        chosen(draw, ("m", "dual_state", "two.parts", "class")),
        (),
        states,
        next(state.name for state in states if state.kind == "initial" and state.parent is None),
        parameters=parameters,
        variables=variables,
        events=events,
        effects=effects,
        guards=guards,
        generators=generators,
    )
    return Skeleton(machine, _vocabulary(machine))


def _vocabulary(machine: Machine) -> Vocabulary:
    typed = [(expr.Name(parameter.name, "parameter"), parameter.domain) for parameter in machine.parameters]
    typed += [(expr.Name(variable.name, "variable"), variable.domain) for variable in machine.variables]
    return Vocabulary(
        tuple(name for name, domain in typed if isinstance(domain, expr.RangeDomain)),
        tuple(name for name, domain in typed if isinstance(domain, expr.BooleanDomain)),
        tuple((name, domain.values) for name, domain in typed if isinstance(domain, expr.EnumDomain)),
    )


_DOMAINS: tuple[expr.Domain, ...] = (expr.BooleanDomain(), expr.EnumDomain(COLOURS), expr.EnumDomain(LEVELS))


def _shared(
    draw: st.DrawFn, others: tuple[declarations.State | declarations.Effect | declarations.Event, ...]
) -> expr.EnumDomain:
    """Draw an enumeration of which values have the names of something else."""
    names = [other.name for other in others if one_in(draw, 4)][:3] or [others[-1].name]
    return expr.EnumDomain(("amber", *names))


def _parameter(draw: st.DrawFn, name: str, domains: tuple[expr.Domain, ...]) -> declarations.Parameter:
    natural, small = expr.RangeDomain(expr.Integer(0), None), expr.RangeDomain(expr.Integer(1), expr.Integer(4))
    domain = chosen(draw, (natural, natural, small, *domains))
    return declarations.Parameter(name, domain, draw(values_in(_few(expr.concrete(domain, {})))))


def _few(values: expr.Values) -> expr.Values:
    """Keep defaults small: they bound the domains of variables."""
    return values if isinstance(values, expr.Choices) else attrs.evolve(values, high=min(4, values.high or 4))


def _variable(
    draw: st.DrawFn, name: str, domains: tuple[expr.Domain, ...], parameters: tuple[declarations.Parameter, ...]
) -> declarations.Variable:
    ranged = (p.name for p in parameters if isinstance(p.domain, expr.RangeDomain))
    bounds: list[expr.Expr] = [expr.Name(name, "parameter") for name in ranged]
    bounds += [expr.Arithmetic("+", bound, expr.Integer(1)) for bound in bounds]
    high = chosen(draw, [*bounds, expr.Integer(0), expr.Integer(3)])
    low = chosen(draw, (expr.Integer(0), expr.Integer(0), expr.Integer(-2)))
    domain = chosen(draw, (*domains, expr.RangeDomain(low, high), expr.RangeDomain(low, high)))
    scope: declarations.Scope = chosen(draw, ("workflow", "environment"))
    return declarations.Variable(name, scope, domain, _initial(draw, domain))


def _initial(draw: st.DrawFn, domain: expr.Domain) -> expr.Expr:
    match domain:
        case expr.BooleanDomain():
            return expr.Boolean(draw(st.booleans()))
        case expr.EnumDomain(values):
            return expr.Symbol(chosen(draw, values))
        case expr.RangeDomain(low, high):
            return chosen(draw, [low] if high is None else [low, expr.Integer(0), high])


def _states(draw: st.DrawFn, names: Iterator[str]) -> Iterator[declarations.State]:
    """Draw a tree of at most two levels; the first state is initial, and so is the first child of each parent."""
    for place in range(draw(st.integers(1, 4))):
        name = next(names)
        yield declarations.State(name, "initial" if place == 0 else "")
        if draw(st.integers(0, 3)) == 0:
            for inner, part in enumerate(PARTS[: draw(st.integers(1, 3))]):
                last: declarations.StateKind = "final" if draw(st.integers(0, 3)) == 0 else ""
                yield declarations.State(f"{name}.{part}", "initial" if inner == 0 else last)
    for _ in range(draw(st.integers(0, 2))):
        yield declarations.State(next(names), "final")


def _effect(draw: st.DrawFn, name: str) -> declarations.Effect:
    if draw(st.booleans()):
        return declarations.Effect(name)
    return declarations.Effect(
        name,
        chosen(draw, ("", "actuator", "sensing", "internal")),
        chosen(draw, ("", "retry", "ask", "fail")),
        chosen(draw, (None, 250, 30_000, 90_000, 86_400_000)),
        chosen(draw, (None, 0, 3)),
        chosen(draw, ("", "stop")),
    )


def _event(draw: st.DrawFn, name: str, effects: tuple[declarations.Effect, ...]) -> declarations.Event:
    return declarations.Event(name, chosen(draw, [declarations.OUTSIDE, *(effect.name for effect in effects)]))


def _guard(draw: st.DrawFn, name: str, events: tuple[declarations.Event, ...]) -> declarations.Guard:
    outcomes = chosen(draw, OUTCOME_SETS)
    return declarations.Guard(
        name,
        tuple(event.name for event in events if draw(st.booleans())),
        chosen(draw, ("", "cases", "at_least")),
        chosen(draw, ((), (("k", "2"), ("of", "a, b")), (("path", "tests/test_a.py"),))),
        outcomes,
        chosen(draw, ((), (0.5,), (0.25, 0.5, 0.75))),
        (0.01,) if "fatal" in outcomes and draw(st.booleans()) else (),
    )


def _generator(draw: st.DrawFn, name: str) -> declarations.Generator:
    return declarations.Generator(name, chosen(draw, ("", "local")), chosen(draw, ((), (("model", "SmolLM2-135M"),))))
