"""Hypothesis strategies for machines, configurations and occurrences.

`machines` draws machines that are valid documents (every name declared, every type right) and otherwise anything: rows that
overlap, updates that leave their domain, effects emitted twice, answers that no row handles. They are for tests of what must hold for
every machine. Documents with Steps are not drawn. Properties, scenarios, cases and prompts are well formed and well typed, and mostly
not true.

A `Skeleton` is a machine without rows: names, domains, states, guards and effects. Names are unique; some are dotted, some
are Python's keywords, some mean something to other tools. Values of enumerations may have the names of states, events and effects.

A `Vocabulary` is what expressions may name, with its types; the expressions drawn over it are resolved trees as `dsa.lang` builds them. The
functions draw directly: building a recursive strategy anew for the names of every machine is ten times slower.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import attrs
from hypothesis import strategies as st

from dsa import declarations, expr
from dsa.declarations import STAR, STAY, Cancel, Case, Cases, Emit, Prompt, Transition
from dsa.expr import OUTCOMES, Expr, concrete
from dsa.machine import Machine, Timer, precedence_at_start, read_guards
from dsa.semantics import Configuration, Occurrence

T = TypeVar("T")

_SIGNS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS: tuple[Literal["+", "-", "*"], ...] = ("+", "-", "*")
_EQUALITY = ("==", "!=")


def pick(draw: st.DrawFn, items: Sequence[T]) -> T:
    """Draw one of some values; it shrinks towards the first."""
    return items[draw(st.integers(0, len(items) - 1))]


def one_in(draw: st.DrawFn, count: int) -> bool:
    """Draw true once in `count` times; it shrinks towards false."""
    return draw(st.integers(1, count)) == count


@attrs.frozen
class Vocabulary:
    """What an expression may name.

    `numbers` and `conditions` are names of that type, `choices` pairs of a name and its enumeration's values, `verdicts`
    pairs of a guard and an outcome it has.
    """

    numbers: tuple[expr.Name, ...] = ()
    conditions: tuple[expr.Name, ...] = ()
    choices: tuple[tuple[expr.Name, tuple[str, ...]], ...] = ()
    verdicts: tuple[tuple[str, expr.Outcome], ...] = ()

    def with_names(self, kind: expr.NameKind, names: tuple[str, ...]) -> "Vocabulary":
        """Return the vocabulary with more names that are true or false: states, events, effects, `pending E`."""
        return attrs.evolve(self, conditions=self.conditions + tuple(expr.Name(name, kind) for name in names))

    def with_verdicts(self, verdicts: tuple[tuple[str, expr.Outcome], ...]) -> "Vocabulary":
        """Return the vocabulary with these verdicts."""
        return attrs.evolve(self, verdicts=verdicts)


def label(draw: st.DrawFn, vocabulary: Vocabulary) -> expr.Expr:
    """Draw a condition of names and verdicts, for places of a property where a comparison would be read otherwise."""
    leaves: list[expr.Expr] = [*vocabulary.conditions, *(expr.Verdict(*pair) for pair in vocabulary.verdicts)]
    leaves = leaves or [expr.Boolean(value=True)]
    first, second = pick(draw, leaves), pick(draw, leaves)
    labels: tuple[expr.Expr, ...] = (first, first, expr.Not(first), expr.Or((first, second)), expr.And((first, second)))
    return pick(draw, labels)


def number(draw: st.DrawFn, vocabulary: Vocabulary, depth: int = 1) -> expr.Expr:
    """Draw a number: a constant, a name, or a sum, difference or product of them."""
    form = pick(draw, ("name", "constant", "binary", "negation")[: 4 if depth else 2])
    if form == "binary":
        sign = pick(draw, _OPERATORS)
        return expr.Arithmetic(sign, number(draw, vocabulary, depth - 1), number(draw, vocabulary, depth - 1))
    if form == "negation":
        return expr.Negate(number(draw, vocabulary, depth - 1))
    if form == "name" and vocabulary.numbers:
        return pick(draw, vocabulary.numbers)
    return expr.Integer(draw(st.integers(-3, 5)))


def condition(draw: st.DrawFn, vocabulary: Vocabulary, depth: int = 2) -> expr.Expr:
    """Draw a condition: a name, comparison, membership or verdict, or these with `and`, `or` and `not`."""
    form = pick(draw, ("atom", "atom", "and", "or", "not")) if depth else "atom"
    if form == "atom":
        return _atom(draw, vocabulary)
    if form == "not":
        return expr.Not(condition(draw, vocabulary, depth - 1))
    operands = tuple(condition(draw, vocabulary, depth - 1) for _ in range(draw(st.integers(2, 3))))
    return expr.And(operands) if form == "and" else expr.Or(operands)


def _atom(draw: st.DrawFn, vocabulary: Vocabulary) -> expr.Expr:
    forms = ["verdict"] * 2 if vocabulary.verdicts else []
    forms += ["name", "alike"] if vocabulary.conditions else []
    forms += ["compare", "chain", "member"] if vocabulary.numbers else []
    forms += ["choice"] if vocabulary.choices else []
    match pick(draw, forms or ["constant"]):
        case "verdict":
            return expr.Verdict(*pick(draw, vocabulary.verdicts))
        case "name":
            return pick(draw, vocabulary.conditions)
        case "alike":
            left, right = pick(draw, vocabulary.conditions), pick(draw, vocabulary.conditions)
            return expr.Compare(left, ((pick(draw, _EQUALITY), right),))
        case "choice":
            return _about_choice(draw, *pick(draw, vocabulary.choices))
        case "constant":
            return expr.Boolean(draw(st.booleans()))
        case form:
            return _about_number(draw, vocabulary, form)


def _about_number(draw: st.DrawFn, vocabulary: Vocabulary, form: str) -> expr.Expr:
    name = pick(draw, vocabulary.numbers)
    if form == "member":
        return expr.Member(name, tuple(expr.Integer(value) for value in _several(draw, (0, 1, 2, -1, 3))))
    count = 1 if form == "compare" else 2
    return expr.Compare(name, tuple((pick(draw, _SIGNS), number(draw, vocabulary)) for _ in range(count)))


def _about_choice(draw: st.DrawFn, name: expr.Name, values: tuple[str, ...]) -> expr.Expr:
    if draw(st.booleans()):
        return expr.Member(name, tuple(expr.Symbol(value) for value in _several(draw, values)))
    return expr.Compare(name, ((pick(draw, _EQUALITY), expr.Symbol(pick(draw, values))),))


def _several(draw: st.DrawFn, items: Sequence[T]) -> list[T]:
    return [item for item in items if draw(st.booleans())] or [items[0]]


PLAIN_NAMES = (
    "idle", "generating", "query_llm", "verdict", "artifact", "rmax", "retries", "satisfied", "x", "y1", "_z", "go",
)  # fmt: skip
DOTTED_NAMES = ("retries.g_test", "sigma.g_impl", "rmax.g_test", "ask.user.name")
KEYWORDS = ("class", "def", "lambda", "return", "import", "match", "None", "self", "__init__", "print")
TOOL_NAMES = ("send", "model", "states", "configuration", "current_state", "events", "on_enter", "step", "v0", "k", "c")
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
        """Return what properties may name besides: states, events, effects, `pending E`, verdicts."""
        machine = self.machine
        return (
            self.vocabulary.with_names("state", tuple(state.name for state in machine.states))
            .with_names("event", tuple(machine.event_named))
            .with_names("effect", tuple(effect.name for effect in machine.effects))
            .with_names("pending", (*machine.answers, ""))
            .with_verdicts(tuple((guard.name, outcome) for guard in machine.guards for outcome in guard.outcomes))
        )

    def updates(self, draw: st.DrawFn) -> tuple[declarations.Assign | declarations.Revoke, ...]:
        """Draw the updates of a row: each variable at most once."""
        variables = [variable for variable in self.machine.variables if draw(st.integers(0, 2)) == 0]
        return tuple(self._update(draw, variable) for variable in variables)

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
                return pick(draw, [expr.Symbol(value) for value in values] + alike)
            case expr.RangeDomain():
                name = expr.Name(variable.name, "variable")
                shift = expr.Arithmetic(pick(draw, ("+", "-")), name, expr.Integer(draw(st.integers(1, 2))))
                return pick(draw, (expr.Integer(draw(st.integers(0, 2))), shift, shift, number(draw, vocabulary)))


@st.composite
def skeletons(draw: st.DrawFn) -> Skeleton:
    """Draw the declarations of a machine."""
    single = iter(draw(st.permutations(PLAIN_NAMES + KEYWORDS + TOOL_NAMES)))
    states = tuple(_states(draw, single))  # a dot in a state's name means a parent, so they take theirs first
    names = iter(draw(st.permutations([*single, *DOTTED_NAMES])))
    effects = tuple(_effect(draw, next(names)) for _ in range(draw(st.integers(0, 4))))
    events = tuple(_event(draw, next(names), effects) for _ in range(draw(st.integers(1, 5))))
    enumeration = _shared_enum(draw, (*states, *effects, *events))
    domains = (*_DOMAINS, enumeration)
    parameters = tuple(_parameter(draw, next(names), domains) for _ in range(draw(st.integers(0, 2))))
    effects = tuple(_with_limit(draw, effect, events, parameters) for effect in effects)
    variables = tuple(_variable(draw, next(names), domains, parameters) for _ in range(draw(st.integers(0, 4))))
    parts = {value.rpartition(".")[0] for value in enumeration.values}
    guard_names = (name for name in names if name not in parts)  # `a.b` of a guard `a` is a verdict, not a value
    guards = tuple(_guard(draw, next(guard_names), events) for _ in range(draw(st.integers(0, 2))))
    generators = tuple(_generator(draw, next(names)) for _ in range(draw(st.integers(0, 1))))
    machine = Machine(
        pick(draw, ("m", "dual_state", "two.parts", "class")),
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
    typed_names = [(expr.Name(parameter.name, "parameter"), parameter.domain) for parameter in machine.parameters]
    typed_names += [(expr.Name(variable.name, "variable"), variable.domain) for variable in machine.variables]
    return Vocabulary(
        tuple(name for name, domain in typed_names if isinstance(domain, expr.RangeDomain)),
        tuple(name for name, domain in typed_names if isinstance(domain, expr.BooleanDomain)),
        tuple((name, domain.values) for name, domain in typed_names if isinstance(domain, expr.EnumDomain)),
    )


_DOMAINS: tuple[expr.Domain, ...] = (expr.BooleanDomain(), expr.EnumDomain(COLOURS), expr.EnumDomain(LEVELS))


def _shared_enum(
    draw: st.DrawFn, others: tuple[declarations.State | declarations.Effect | declarations.Event, ...]
) -> expr.EnumDomain:
    """Draw an enumeration whose values have the names of something else."""
    names = [other.name for other in others if one_in(draw, 4)][:3] or [others[-1].name]
    return expr.EnumDomain(("amber", *names))


def _parameter(draw: st.DrawFn, name: str, domains: tuple[expr.Domain, ...]) -> declarations.RunParameter:
    natural, small = expr.RangeDomain(expr.Integer(0), None), expr.RangeDomain(expr.Integer(1), expr.Integer(4))
    domain = pick(draw, (natural, natural, small, *domains))
    return declarations.RunParameter(name, domain, draw(values_in(_few(expr.concrete(domain, {})))))


def _few(values: expr.Values) -> expr.Values:
    """Keep defaults small: they bound the domains of variables."""
    return values if isinstance(values, expr.Choices) else attrs.evolve(values, high=min(4, values.high or 4))


def _variable(
    draw: st.DrawFn, name: str, domains: tuple[expr.Domain, ...], parameters: tuple[declarations.RunParameter, ...]
) -> declarations.Variable:
    range_names = (p.name for p in parameters if isinstance(p.domain, expr.RangeDomain))
    bounds: list[expr.Expr] = [expr.Name(name, "parameter") for name in range_names]
    bounds += [expr.Arithmetic("+", limit, expr.Integer(1)) for limit in bounds]
    high = pick(draw, [*bounds, expr.Integer(0), expr.Integer(3)])
    low = pick(draw, (expr.Integer(0), expr.Integer(0), expr.Integer(-2)))
    domain = pick(draw, (*domains, expr.RangeDomain(low, high), expr.RangeDomain(low, high)))
    scope: declarations.Scope = pick(draw, ("workflow", "environment"))
    return declarations.Variable(name, scope, domain, _initial(draw, domain))


def _initial(draw: st.DrawFn, domain: expr.Domain) -> expr.Expr:
    match domain:
        case expr.BooleanDomain():
            return expr.Boolean(draw(st.booleans()))
        case expr.EnumDomain(values):
            return expr.Symbol(pick(draw, values))
        case expr.RangeDomain(low, high):
            return pick(draw, [low] if high is None else [low, expr.Integer(0), high])


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
        pick(draw, ("", "actuator", "sensing", "internal")),
        pick(draw, ("", "retry", "ask", "fail")),
        pick(draw, (None, 250, 30_000, 90_000, 86_400_000)),
        pick(draw, (None, 0, 3)),
        pick(draw, ("", "stop")),
    )


def _with_limit(
    draw: st.DrawFn,
    effect: declarations.Effect,
    events: tuple[declarations.Event, ...],
    parameters: tuple[declarations.RunParameter, ...],
) -> declarations.Effect:
    """Draw how many of an effect may be outstanding; mostly for one that has answers."""
    has_answers = any(event.origin == effect.name for event in events)
    if not one_in(draw, 2 if has_answers else 10):
        return effect
    limits: list[expr.Expr] = [expr.Integer(2), expr.Integer(3)]
    for parameter in parameters:
        if isinstance(parameter.domain, expr.RangeDomain):
            more = expr.Arithmetic("+", expr.Name(parameter.name, "parameter"), expr.Integer(1))
            limits += [more, more]
    return attrs.evolve(effect, at_once=pick(draw, limits))


def _event(draw: st.DrawFn, name: str, effects: tuple[declarations.Effect, ...]) -> declarations.Event:
    return declarations.Event(name, pick(draw, [declarations.OUTSIDE, *(effect.name for effect in effects)]))


def _guard(draw: st.DrawFn, name: str, events: tuple[declarations.Event, ...]) -> declarations.Guard:
    outcomes = pick(draw, OUTCOME_SETS)
    return declarations.Guard(
        name,
        tuple(event.name for event in events if draw(st.booleans())),
        pick(draw, ("", "cases", "at_least")),
        pick(draw, ((), (("k", "2"), ("of", "a, b")), (("path", "tests/test_a.py"),))),
        outcomes,
        pick(draw, ((), (0.5,), (0.25, 0.5, 0.75))),
        (0.01,) if "fatal" in outcomes and draw(st.booleans()) else (),
    )


def _generator(draw: st.DrawFn, name: str) -> declarations.Generator:
    return declarations.Generator(name, pick(draw, ("", "local")), pick(draw, ((), (("model", "SmolLM2-135M"),))))


CASES = (
    Case("add(2, 3)", "5"),
    Case('join("a|b", sep="`")', "'a|b'"),
    Case("f([1, 2], {'k': None})", "{'k': [True, None]}"),
)
TEXTS = (
    "Write a function for {specification}.",
    "Two lines,\n\nand {{braces}}.",
    "```python\ndef f():\n    return 1\n```",
    "| a | b |\n## not a heading",
)


def items(draw: st.DrawFn, machine: Machine, most: int) -> tuple[Emit | Cancel, ...]:
    """Draw an effects cell. Where several of an effect may be outstanding, one in two emissions stands there twice."""
    drawn_items = tuple(_item(draw, machine) for _ in range(draw(st.integers(0, most))))
    several = {effect.name for effect in machine.effects if effect.at_once is not None}
    return tuple(item for item in drawn_items for _ in range(_times(draw, item, several)))


def _times(draw: st.DrawFn, item: Emit | Cancel, several: set[str]) -> int:
    return 2 if isinstance(item, Emit) and item.effect in several and one_in(draw, 2) else 1


def _item(draw: st.DrawFn, machine: Machine) -> Emit | Cancel:
    if not machine.effects:
        return Cancel()
    effect = pick(draw, machine.effects).name
    several: tuple[Emit | Cancel, ...] = (Emit(effect), Emit(effect), Emit(effect), Cancel(effect), Cancel())
    return pick(draw, several)


def claim(draw: st.DrawFn, skeleton: Skeleton) -> declarations.Property:
    """Draw a property of any form."""
    moments = skeleton.moments()
    form = draw(st.integers(0, 9))
    if form in _CONDITIONS:
        return declarations.Property(_CONDITIONS[form](condition(draw, moments)))
    p, q = condition(draw, moments), condition(draw, moments)
    match form:
        case 4:
            return declarations.Property(declarations.OnlyAfter(p, q))
        case 5:
            return declarations.Property(
                declarations.Probability(p, pick(draw, (0.01, 0.5, 0.99, 1.0)), draw(st.booleans()))
            )
        case 6:
            return declarations.Property(
                declarations.ExpectedCount(label(draw, moments), pick(draw, (0.5, 2.0, 12.25)))
            )
        case 7:
            terms = (condition(draw, skeleton.vocabulary), number(draw, skeleton.vocabulary))
            return declarations.Property(declarations.UnchangedClaim(p, terms[: draw(st.integers(1, 2))]))
        case 8:
            return declarations.Property(leads_to(draw, skeleton.machine, p, q))
        case _:
            limits = Vocabulary(numbers=tuple(name for name in skeleton.vocabulary.numbers if name.kind == "parameter"))
            limit, event = number(draw, limits), label(draw, moments)
            return declarations.Property(declarations.AtMost(limit, event, pick(draw, (None, (p, q)))))


_CONDITIONS: dict[int, Callable[[Expr], declarations.Form]] = {
    0: declarations.Always, 1: declarations.Never, 2: declarations.Possible, 3: declarations.EverywherePossible,
}  # fmt: skip


def leads_to(draw: st.DrawFn, machine: Machine, cause: Expr, goal: Expr) -> declarations.LeadsTo:
    """Draw a `leads to` with the fairness that it assumes and the failures that it allows."""
    names = [event.name for event in machine.events] + [effect.name for effect in machine.effects]
    names += [f"{guard.name}.{outcome}" for guard in machine.guards for outcome in guard.outcomes if one_in(draw, 3)]
    fair = tuple(name for name in names if one_in(draw, 5))
    doubts = tuple(
        declarations.Doubt(
            effect.name, "never answers" if effect.name in machine.answers and draw(st.booleans()) else "fails"
        )
        for effect in machine.effects
        if one_in(draw, 5)
    )
    return declarations.LeadsTo(cause, goal, fair, bool(fair) and one_in(draw, 3), doubts)


def scenario(draw: st.DrawFn, machine: Machine, name: str) -> declarations.Scenario:
    """Draw a scenario over the events and timers of a machine with rows."""
    domains = {parameter.name: parameter.domain for parameter in machine.parameters if draw(st.booleans())}
    values = {parameter: draw(values_in(concrete(domain, {}))) for parameter, domain in domains.items()}
    there = machine.at(values)
    events = [*machine.event_named, *(row.event for row in machine.transitions if row.is_timer)]
    steps = tuple(_percept(draw, there, pick(draw, events)) for _ in range(draw(st.integers(1, 4))))
    return declarations.Scenario(name, steps, tuple(values.items()))


def _percept(draw: st.DrawFn, machine: Machine, event: str) -> declarations.ScenarioStep:
    guards = [guard for guard in machine.guards if event in guard.judges]
    verdicts = [(guard.name, pick(draw, guard.outcomes)) for guard in guards if draw(st.booleans())]
    action: tuple[Emit | Cancel, ...] | declarations.RefusedAction = items(draw, machine, 2)
    if draw(st.integers(0, 3)) == 0:
        action = declarations.RefusedAction(pick(draw, (None, "late", "invalid_state")))
    names = [variable.name for variable in machine.variables if draw(st.booleans())]
    values = tuple((name, draw(values_in(machine.values_of[name]))) for name in names)
    state = pick(draw, [None, *(state.name for state in machine.states)])
    return declarations.ScenarioStep(event, tuple(sorted(verdicts)), action, state, values)


def cases(draw: st.DrawFn, machine: Machine) -> tuple[Cases, ...]:
    """Draw cases for some of the guards."""
    return tuple(
        Cases(guard.name, tuple(draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=2))))
        for guard in machine.guards
        if draw(st.booleans())
    )


def prompts(draw: st.DrawFn, machine: Machine) -> tuple[Prompt, ...]:
    """Draw prompts for some of the effects; a part that is not there is empty."""
    part = st.sampled_from(("", *TEXTS))
    return tuple(
        Prompt(effect.name, draw(part), draw(part), draw(st.sampled_from(TEXTS)), draw(part))
        for effect in machine.effects
        if draw(st.integers(0, 2)) == 0
    )


@st.composite
def machines(draw: st.DrawFn, *, claims: bool = True) -> Machine:
    """Draw a machine; with `claims` it has properties, scenarios, cases, prompts and constraints too."""
    skeleton = draw(skeletons())
    rows = tuple(drawn_row(draw, skeleton) for _ in range(draw(st.integers(1, 12))))
    machine = with_end(draw, attrs.evolve(skeleton.machine, transitions=rows), skeleton)
    if not claims:
        return machine
    return attrs.evolve(
        machine,
        properties=tuple(claim(draw, skeleton) for _ in range(draw(st.integers(0, 3)))),
        scenarios=tuple(scenario(draw, machine, name) for name in ("refinement loop", "2")[: draw(st.integers(0, 2))]),
        cases=cases(draw, machine),
        prompts=prompts(draw, machine),
        constraints=draw(st.sampled_from(("", "Write plain Python.", "No network.\n\nNo files."))),
    )


def with_end(draw: st.DrawFn, machine: Machine, skeleton: Skeleton) -> Machine:
    """Add an end condition to one of the leaves that are not final, for one machine in three."""
    if not one_in(draw, 3):
        return machine
    leaf = pick(draw, [leaf for leaf in machine.leaves if leaf not in machine.final_states])
    end = condition(draw, skeleton.vocabulary)
    states = (attrs.evolve(state, end=end) if state.name == leaf else state for state in machine.states)
    return attrs.evolve(machine, states=tuple(states))


def drawn_row(draw: st.DrawFn, skeleton: Skeleton) -> Transition:
    """Draw a row of a machine, well typed and otherwise anything."""
    machine = skeleton.machine
    event = pick(draw, [*machine.event_named, "after 30s", "after 250ms", "after 2m"])
    sources = [state.name for state in machine.states if state.kind != "final"]
    verdicts = tuple(
        (guard.name, outcome) for guard in machine.guards if event in guard.judges for outcome in guard.outcomes
    )
    row = Transition(
        pick(draw, [*sources, *sources, STAR]),
        event,
        pick(draw, [*(state.name for state in machine.states), STAY]),
        is_else=one_in(draw, 5),
        updates=skeleton.updates(draw),
        effects=items(draw, machine, 3),
    )
    if draw(st.booleans()):
        return row
    vocabulary = skeleton.vocabulary.with_verdicts(verdicts)
    if one_in(draw, 3):
        effects = (*skeleton.machine.effects_with_answers, "")
        vocabulary = vocabulary.with_names("pending", effects)
        if draw(st.booleans()):
            name = expr.Name(pick(draw, effects), "pending")
            return attrs.evolve(row, condition=expr.Not(name) if draw(st.booleans()) else name)
    return attrs.evolve(row, condition=condition(draw, vocabulary))


def configurations(machine: Machine) -> st.SearchStrategy[Configuration]:
    """Draw any configuration: any leaf, any value of each domain, as many outstanding of each effect as may be, any order of its timers."""
    values = st.tuples(*(values_in(machine.values_of[variable.name]) for variable in machine.variables))
    numbers = {effect: st.integers(0, most) for effect, most in machine.most_outstanding.items()}
    effects = st.fixed_dictionaries(numbers).map(
        lambda each: [effect for effect, number in each.items() for _ in range(number)]
    )

    def at(leaf: str) -> st.SearchStrategy[Configuration]:
        pairs = sorted(precedence_at_start(machine, leaf))
        precedence = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset[tuple[Timer, Timer]]())
        return st.builds(Configuration, st.just(leaf), values, effects, precedence)

    return st.sampled_from(machine.leaves).flatmap(at)


def occurrences(
    machine: Machine, at: Configuration | None = None, *, with_malformed: bool = True
) -> st.SearchStrategy[Occurrence]:
    """Draw an occurrence, mostly with exactly the verdicts that some rows read; the machine must have rows.

    Given `at`, most are for rows of that configuration's state and their verdicts are those read there. One in twelve is
    malformed (`step` raises OccurrenceError, or refuses where the run is over), unless `with_malformed` is False.
    """
    return _occurrences(machine, at, with_malformed)


@st.composite
def _occurrences(draw: st.DrawFn, machine: Machine, at: Configuration | None, with_malformed: bool) -> Occurrence:  # noqa: FBT001  (behind a keyword)
    keys = list(machine.rows_from)
    if at is not None and not one_in(draw, 10):
        sources = set(machine.ancestry(at.state))
        keys = [key for key in keys if key[0] in sources] or keys
    source, event = pick(draw, keys)
    rows = machine.rows_from[source, event]
    is_timer = rows[0].is_timer
    if at is not None and not is_timer:
        rows = machine.rows_for(at.state, event)
    verdicts = {guard: pick(draw, machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
    occurrence = Occurrence(event, verdicts, source if is_timer else None)
    return _spoil(draw, machine, occurrence) if with_malformed and one_in(draw, 12) else occurrence


def _spoil(draw: st.DrawFn, machine: Machine, occurrence: Occurrence) -> Occurrence:
    guards = [*(guard.name for guard in machine.guards), "no_guard"]
    outcomes: tuple[Any, ...] = (*OUTCOMES, "maybe")  # no outcome is called that, on purpose
    other = {guard: pick(draw, outcomes) for guard in guards if draw(st.booleans())}
    variants = (
        attrs.evolve(occurrence, verdicts=other),
        attrs.evolve(occurrence, event="no_event", source=None),
        attrs.evolve(occurrence, source=None if occurrence.source else machine.initial),
        Occurrence("after 7d", source=machine.initial),
    )
    return pick(draw, variants)
