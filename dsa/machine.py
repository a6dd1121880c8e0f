"""The machine: everything that a document declares, as one frozen value.

`dsa.lang` creates it and every other module uses it. It computes the facts that follow from the declarations (ancestors, the rows for an event,
bounds at the parameters' values) once. The module also has the rules for timers: which ones a row drops and starts, and which may not fire before others
(S11).

The text of a timer identifies it, so that everything printed shows it as written. Two spellings of one duration (`after 120s`, `after 2m`) mean the same
timer: a document's first spelling counts, and comparisons of machines spell both alike first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import attrs

from dsa import declarations, expr
from dsa.declarations import (
    STAY,
    TIMER_PREFIX,
    Property,
    Scenario,
    SpecDeclaration,
    Transition,
    kind_of,
    parse_duration,
    show_duration,
)
from dsa.errors import ParameterError, Span
from dsa.immutable import immutable
from dsa.text import closest, nearest


@attrs.frozen(slots=False, field_transformer=immutable)
class Machine:
    """A whole document. One with Steps or families has what they expand into; `steps`, `goal`, `result` and `source_tables` are as an author wrote them."""

    name: str
    transitions: tuple[declarations.Transition, ...]
    states: tuple[declarations.State, ...]
    initial: str
    parameters: tuple[declarations.RunParameter, ...] = ()
    variables: tuple[declarations.Variable, ...] = ()
    events: tuple[declarations.Event, ...] = ()
    effects: tuple[declarations.Effect, ...] = ()
    guards: tuple[declarations.Guard, ...] = ()
    generators: tuple[declarations.Generator, ...] = ()
    properties: tuple[Property, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    spec_declarations: tuple[SpecDeclaration, ...] = attrs.field(default=(), eq=False)
    cases: tuple[declarations.Cases, ...] = ()
    prompts: tuple[declarations.Prompt, ...] = ()
    constraints: str = ""
    steps: tuple[declarations.StepRow, ...] = ()
    goal: expr.Expr | None = None
    result: str | None = None
    families: tuple[declarations.Family, ...] = attrs.field(default=(), eq=False)
    source_tables: tuple[declarations.WrittenTable, ...] = attrs.field(default=(), eq=False, repr=False)
    span: Span | None = attrs.field(default=None, eq=False, repr=False, kw_only=True)

    def at(self, values: Mapping[str, expr.Value] | None = None, /, **more: expr.Value) -> "Machine":
        """Return the machine with other parameter values.

        A name that is the first part of several parameters (`rmax` of `rmax.g_test`, `rmax.g_impl`) sets
        them all. Raises ParameterError for an unknown name or a value outside its domain.
        """
        new_values: dict[str, expr.Value] = {}
        for name, value in {**(values or {}), **more}.items():
            new_values |= dict.fromkeys(self._parameters_named(name), value)
        for parameter in self.parameters:
            if parameter.name in new_values and (fault := fault_of_value(parameter, new_values[parameter.name], {})):
                raise ParameterError(fault)
        parameters = (attrs.evolve(p, default=new_values.get(p.name, p.default)) for p in self.parameters)
        return attrs.evolve(self, parameters=tuple(parameters)) if new_values else self

    def _parameters_named(self, name: str) -> list[str]:
        names = [parameter.name for parameter in self.parameters]
        matches = [name] if name in names else [other for other in names if other.startswith(f"{name}.")]
        if not matches:
            raise ParameterError(f"machine {self.name} has no parameter '{name}'; {closest(name, names)}")
        return matches

    @cached_property
    def constants(self) -> dict[str, expr.Value]:
        """The parameters' values."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    @cached_property
    def values_of(self) -> dict[str, expr.Values]:
        """For each variable, the values of its domain at the parameters' values."""
        return {variable.name: expr.concrete(variable.domain, self.constants) for variable in self.variables}

    @cached_property
    def initial_values(self) -> tuple[expr.Value, ...]:
        """The variables' values at the start, in declared order."""
        return tuple(expr.evaluate(variable.initial, self.constants) for variable in self.variables)

    @cached_property
    def state_named(self) -> dict[str, declarations.State]:
        """All states, parents included, by name."""
        return {state.name: state for state in self.states}

    @cached_property
    def event_named(self) -> dict[str, declarations.Event]:
        """All events by name, with `E.failed` for every effect that has answers (S7); timers are not in it."""
        events = {event.name: event for event in self.events}
        failures = (declarations.Event(f"{effect}.failed", effect) for effect in self.answers)
        return events | {failure.name: failure for failure in failures}

    @cached_property
    def answers(self) -> dict[str, tuple[str, ...]]:
        """For each effect that has answers, the declared events that answer it."""
        answers: dict[str, tuple[str, ...]] = {}
        for event in self.events:
            if event.origin != declarations.OUTSIDE:
                answers[event.origin] = (*answers.get(event.origin, ()), event.name)
        return answers

    @cached_property
    def effects_with_answers(self) -> tuple[str, ...]:
        """The effects that have answers, in the order of Effects; others follow in the order of the rows that emit them."""
        emissions = (
            item.effect for row in self.transitions for item in row.effects if isinstance(item, declarations.Emit)
        )
        names = dict.fromkeys([*(effect.name for effect in self.effects), *emissions, *self.answers])
        return tuple(name for name in names if name in self.answers)

    @cached_property
    def number_limits(self) -> dict[str, expr.Expr]:
        """For each effect with answers, how many of it may be outstanding: a number over parameters, mostly 1 (S7)."""
        effects = {effect.name: effect.at_once for effect in self.effects}
        return {name: effects.get(name) or expr.Integer(1) for name in self.effects_with_answers}

    @cached_property
    def numbered_effects(self) -> frozenset[str]:
        """The effects of which several may be outstanding, at some values of the parameters."""
        return frozenset(name for name, limit in self.number_limits.items() if limit != expr.Integer(1))

    @cached_property
    def most_outstanding(self) -> dict[str, int]:
        """For each effect with answers, how many of it may be outstanding at the parameters' values."""
        return {name: int(expr.evaluate(limit, self.constants)) for name, limit in self.number_limits.items()}

    @cached_property
    def effect_named(self) -> dict[str, declarations.Effect]:
        """The declaration of each effect that Effects lists or a row emits; an empty one if Effects does not list it."""
        emissions = {
            item.effect for row in self.transitions for item in row.effects if isinstance(item, declarations.Emit)
        }
        return {name: declarations.Effect(name) for name in sorted(emissions)} | {
            effect.name: effect for effect in self.effects
        }

    @cached_property
    def step_named(self) -> dict[str, declarations.StepRow]:
        """The workflow's steps by name; only a Steps document has any."""
        return {step.name: step for step in self.steps}

    @cached_property
    def guard_named(self) -> dict[str, declarations.Guard]:
        """All guards by name."""
        return {guard.name: guard for guard in self.guards}

    @cached_property
    def judged_events(self) -> frozenset[str]:
        """The events on which some guard gives a verdict."""
        return frozenset(event for guard in self.guards for event in guard.judges)

    @cached_property
    def final_states(self) -> frozenset[str]:
        """The names of the final states."""
        return frozenset(state.name for state in self.states if state.kind == "final")

    @cached_property
    def events_from_outside(self) -> tuple[str, ...]:
        """The names of the events from outside, in declared order."""
        return tuple(event.name for event in self.events if event.origin == declarations.OUTSIDE)

    @cached_property
    def ends(self) -> dict[str, expr.Expr]:
        """The leaves that are not final and in which a run may be finished, each with the condition."""
        return {state.name: state.end for state in self.states if state.end is not None}

    @cached_property
    def parents(self) -> frozenset[str]:
        """The names of the states that have children."""
        return frozenset(state.parent for state in self.states if state.parent is not None)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The names of the states a configuration can be in: those without children, in declared order."""
        return tuple(state.name for state in self.states if state.name not in self.parents)

    def ancestry(self, state: str) -> tuple[str, ...]:
        """Return the state, its ancestors from the inside out, and `*` unless it is final (S3)."""
        ancestry = self._ancestries.get(state)
        if ancestry is None:
            around, above = state, []
            while around:
                above.append(around)
                around = around.rpartition(".")[0]
            ancestry = self._ancestries[state] = (*above, *([] if state in self.final_states else [declarations.STAR]))
        return ancestry

    @cached_property
    def _ancestries(self) -> dict[str, tuple[str, ...]]:
        return {}

    def entry_leaf(self, target: str) -> str:
        """Return the leaf that a row into `target` enters: its initial child, and so on inwards."""
        while target in self.parents:
            target = next(s.name for s in self.states if s.parent == target and s.kind == "initial")
        return target

    @cached_property
    def rows_from(self) -> dict[tuple[str, str], tuple[declarations.Transition, ...]]:
        """The rows as written, by source and event."""
        rows: dict[tuple[str, str], tuple[declarations.Transition, ...]] = {}
        for row in self.transitions:
            rows[row.source, row.event] = (*rows.get((row.source, row.event), ()), row)
        return rows

    @cached_property
    def events_from(self) -> dict[str, tuple[str, ...]]:
        """The events and timers that each source has rows for."""
        events: dict[str, tuple[str, ...]] = {}
        for source, event in self.rows_from:
            events[source] = (*events.get(source, ()), event)
        return events

    def rows_for(self, state: str, event: str) -> tuple[declarations.Transition, ...]:
        """Return the rows for an event that is not a timer: those of the innermost source that has any (S3).

        A final state has none, its parents' rows included.
        """
        if state in self.final_states:
            return ()
        for source in self.ancestry(state):
            if rows := self.rows_from.get((source, event)):
                return rows
        return ()

    @cached_property
    def _timers_of(self) -> dict[str, tuple[str, ...]]:
        pairs = ((s, tuple(e for e in events if e.startswith(TIMER_PREFIX))) for s, events in self.events_from.items())
        return {source: timers for source, timers in pairs if timers}

    def armed_timers(self, state: str) -> tuple[tuple[str, str], ...]:
        """Return the timers armed in a state, innermost first, as pairs of source and `after DURATION` (S11)."""
        if not self._timers_of or state in self.final_states:
            return ()
        return tuple((s, event) for s in self.ancestry(state) for event in self._timers_of.get(s, ()))

    @cached_property
    def orders_timers(self) -> bool:
        """Return whether timers of different durations are armed together somewhere, so that one may precede the other (S11)."""
        together = ({self.rows_from[timer][0].duration_ms for timer in self.armed_timers(leaf)} for leaf in self.leaves)
        return any(len(durations) > 1 for durations in together)

    @cached_property
    def worked_out(self) -> dict[object, Any]:
        """A cache for what other modules compute from this machine."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Return the declarations, for a copy, which computes everything else anew."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(Machine)}

    def is_failure(self, event: str) -> bool:
        """Return whether an event is `E.failed` of an effect E that has answers."""
        return event.endswith(".failed") and event.removesuffix(".failed") in self.answers

    @cached_property
    def failures_handled(self) -> frozenset[str]:
        """The effects whose `E.failed` some row names: there it must be handled wherever E is outstanding (S7)."""
        return frozenset(row.event.removesuffix(".failed") for row in self.transitions if self.is_failure(row.event))

    def resolve_state(self, name: str) -> str | None:
        """Return the full name of a state written by its full name or by its last part where that is unique."""
        if name in self.state_named:
            return name
        matches = [state.name for state in self.states if state.name.rpartition(".")[2] == name]
        return matches[0] if len(matches) == 1 else None


def sleeping_effects(machine: Machine) -> Mapping[str, int]:
    """Return the effects that answer by themselves after a time (`sleep`), with the milliseconds."""
    effects: Mapping[str, int] | None = machine.worked_out.get("sleeping")
    if effects is None:
        effects = {effect.name: effect.sleep_ms for effect in machine.effects if effect.sleep_ms is not None}
        machine.worked_out["sleeping"] = effects
    return effects


def read_guards(rows: tuple[declarations.Transition, ...]) -> tuple[str, ...]:
    """Return the guards that rows for one event read, sorted: exactly these have a verdict (S2)."""
    return tuple(sorted({guard for row in rows for guard in expr.guards_read(row.condition)}))


def step_of(machine: Machine, state: str) -> str:
    """Return the name of the step that a state works on: in a Steps machine, or what it expands into, the state's last part.

    Any other machine has one step, however its states are nested. Its name is that of the machine's one guard, or of the machine
    if it has several.
    """
    name: str | None = machine.worked_out.get(("step", state))
    if name is None:
        name = machine.worked_out["step", state] = _step_of(machine, state)
    return name


def used_in(machine: Machine, state: str) -> tuple[tuple[str, str], ...]:
    """Return the artifacts that the step in progress uses, as pairs of a name and the step that made it. The step is the last part of `generating.STEP`."""
    step = machine.step_named.get(state.partition(".")[2])
    return () if step is None else tuple(sorted(step.uses))


def show_used(uses: Iterable[tuple[str, str]]) -> str:
    """Return the artifacts that a step uses as text."""
    return ", ".join(f"{name} = {step}" for name, step in sorted(uses))


def step_names(machine: Machine) -> frozenset[str]:
    """Return the names of the steps that the states of a machine work on."""
    names: frozenset[str] | None = machine.worked_out.get("step names")
    if names is None:
        works_on = (step_of(machine, leaf) for leaf in machine.leaves)
        names = machine.worked_out["step names"] = frozenset([*machine.step_named, *works_on])
    return names


def _step_of(machine: Machine, state: str) -> str:
    last = state.rpartition(".")[2]
    guards = [guard.name for guard in machine.guards if guard.judges]
    if "." in state and last in guards:  # every step has a guard of its name
        return last
    return guards[0] if len(guards) == 1 else machine.name


def workflow_variables_set(machine: Machine, row: declarations.Transition) -> tuple[str, ...]:
    """Return the workflow variables that a row assigns."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    return tuple(u.variable for u in row.updates if isinstance(u, declarations.Assign) and u.variable in workflow)


def fault_of_value(
    declaration: declarations.RunParameter | declarations.Variable, value: expr.Value, constants: expr.Environment
) -> str:
    """Return why a value does not fit a declaration; an empty text if it does."""
    values = expr.concrete(declaration.domain, constants)
    if values.contains(value):
        return ""
    name, domain = f"{kind_of(declaration)} {declaration.name}", expr.unparse_domain(declaration.domain)
    if isinstance(values, expr.Interval) and (isinstance(value, bool) or not isinstance(value, int)):
        text = f"'{value}'" if isinstance(value, str) else expr.show_value(value)
        return f"{name} = {text} is not a whole number; its domain is {domain}"
    match = nearest(str(value), map(expr.show_value, values.values)) if isinstance(values, expr.Choices) else None
    hint = "" if match is None else f"; did you mean '{match}'?"
    return f"{name} = {expr.show_value(value)} is outside its domain {domain}{hint}"


def minima(machine: Machine) -> dict[str, expr.Value]:
    """Return the smallest value of every parameter: the low bound, `false`, the first of an enumeration."""
    smallest: dict[str, expr.Value] = {}
    for parameter in machine.parameters:
        domain = expr.concrete(parameter.domain, {})
        smallest[parameter.name] = domain.low if isinstance(domain, expr.Interval) else domain.values[0]
    return smallest


#: A machine can be explored at each valuation of its parameters if there are at most this many.
FEW_VALUATIONS = 64


def smallest_values(domain: expr.Domain, count: int) -> tuple[expr.Value, ...]:
    """Return the first values of a parameter's domain, at most `count`."""
    values = expr.concrete(domain, {})
    if not isinstance(values, expr.Interval):
        return values.values[:count]
    last = values.low + count - 1 if values.high is None else min(values.high, values.low + count - 1)
    return tuple(range(values.low, last + 1))


def every_valuation(
    machine: Machine, most: int, overrides: Mapping[str, expr.Value] | None = None
) -> tuple[dict[str, expr.Value], ...] | None:
    """Return all valuations of the parameters if there are at most `most`, else None. The parameters in `overrides` have only that value."""
    choices: list[Sequence[expr.Value]] = []
    count = 1
    for parameter in machine.parameters:
        is_override = overrides is not None and parameter.name in overrides
        values = (
            (overrides[parameter.name],) if overrides and is_override else smallest_values(parameter.domain, most + 1)
        )
        choices.append(values)
        count *= len(values)
        if count > most:
            return None
    names = [parameter.name for parameter in machine.parameters]
    return tuple(dict(zip(names, values, strict=True)) for values in product(*choices))


def environment(machine: Machine, values: tuple[expr.Value, ...]) -> expr.Environment:
    """Return the flat environment of parameters and variables that expressions are evaluated in."""
    return machine.constants | {variable.name: value for variable, value in zip(machine.variables, values, strict=True)}


#: A timer by its source and `after DURATION`.
Timer = tuple[str, str]
#: Pairs of armed timers: while it is armed, the first of a pair precedes the second, which may not fire (S11).
Precedence = frozenset[tuple[Timer, Timer]]
_NONE: Precedence = frozenset()


@attrs.frozen
class ArmTimer:
    """Start a timer, from zero if it runs already."""

    source: str
    event: str
    duration_ms: int


@attrs.frozen
class DropTimer:
    """Forget a timer."""

    source: str
    event: str


def timers_after(machine: Machine, before: str, row: Transition, after: str) -> tuple[DropTimer | ArmTimer, ...]:
    """Return the commands for timers: those of the states left are dropped, those of the states entered are armed, or started again."""
    old, new = machine.armed_timers(before), machine.armed_timers(after)
    if after in machine.final_states:
        return tuple(DropTimer(source, event) for source, event in old)
    left = frozenset[str]() if row.target == STAY else sources_left(machine, before, after)
    remaining = frozenset(machine.ancestry(before)) - left
    again = [(row.source, row.event)] if row.is_timer and row.source in remaining else []
    drops = [DropTimer(source, event) for source, event in old if source not in remaining]
    entries = [(source, event) for source, event in new if source not in remaining]
    return (*drops, *arm_commands(machine, (*entries, *again)))


def arm_commands(machine: Machine, timers: Iterable[Timer]) -> tuple[ArmTimer, ...]:
    """Return the commands that start timers, which are pairs of source and `after DURATION`."""
    return tuple(ArmTimer(*timer, duration_ms(machine, timer)) for timer in timers)


def duration_ms(machine: Machine, timer: Timer) -> int:
    """Return the duration of a timer in milliseconds."""
    return machine.rows_from[timer][0].duration_ms


def precedence_at_start(machine: Machine, state: str) -> Precedence:
    """Return which timers precede which in a state whose timers have all just been started."""
    timers = machine.armed_timers(state)
    return frozenset((shorter, timer) for timer in timers for shorter in _shorter(machine, timer, timers))


def precedence_after(
    machine: Machine, before: Precedence, changes: Iterable[DropTimer | ArmTimer], state: str
) -> Precedence:
    """Return which timers precede which after some were dropped and started, at one moment; `state` is the state after it.

    Dropped and restarted timers lose their old pairs. A timer that starts is preceded by every armed timer that is shorter.
    """
    if not before and len(machine.armed_timers(state)) <= 1:
        return _NONE  # a timer alone precedes nothing
    commands = tuple(changes)
    timers = {(command.source, command.event) for command in commands}
    old = (pair for pair in before if timers.isdisjoint(pair))
    starts = [(command.source, command.event) for command in commands if isinstance(command, ArmTimer)]
    new = ((shorter, timer) for timer in starts for shorter in _shorter(machine, timer, machine.armed_timers(state)))
    return frozenset([*old, *new])


def _shorter(machine: Machine, timer: Timer, timers: Iterable[Timer]) -> Iterable[Timer]:
    return (other for other in timers if duration_ms(machine, other) < duration_ms(machine, timer))


def timers_before(precedence: Precedence, timer: Timer) -> tuple[Timer, ...]:
    """Return the timers that must fire or be dropped before a timer may fire, sorted."""
    return tuple(sorted(first for first, then in precedence if then == timer))


def sources_left(machine: Machine, before: str, after: str) -> frozenset[str]:
    """Return the sources that a row with a target leaves, `*` included when a final state is entered."""
    if before == after:
        return frozenset({before})
    return frozenset(machine.ancestry(before)) - frozenset(machine.ancestry(after))


def duration_of(event: str) -> int:
    """Return the duration of a timer in milliseconds; 0 for any other event."""
    return (parse_duration(event.removeprefix(TIMER_PREFIX)) or 0) if event.startswith(TIMER_PREFIX) else 0


def spelling_of(machine: Machine) -> dict[int, str]:
    """Return the spellings of a machine's timers, by their durations in milliseconds."""
    return {duration_of(row.event): row.event for row in machine.transitions if row.is_timer}


def with_spelling(machine: Machine, spelling: Mapping[int, str]) -> Machine:
    """Return the machine with its timers spelled this way; other timers keep their spelling."""

    def name(event: str) -> str:
        return spelling.get(duration_of(event), event)

    if all(name(event) == event for event in spelling_of(machine).values()):
        return machine
    rows: tuple[Transition, ...] = tuple(attrs.evolve(row, event=name(row.event)) for row in machine.transitions)
    return attrs.evolve(
        machine, transitions=rows, scenarios=tuple(_with_spelling(each, name) for each in machine.scenarios)
    )


def spelled_like(machine: Machine, other: Machine) -> Machine:
    """Return the machine with its timers spelled as in another machine, if it has the same durations."""
    return with_spelling(machine, spelling_of(other))


def spelled_shortest(machine: Machine) -> Machine:
    """Return the machine with its timers in the largest units that fit. Its meaning stays the same."""
    spelling = spelling_of(machine)
    return with_spelling(machine, {duration_ms: TIMER_PREFIX + show_duration(duration_ms) for duration_ms in spelling})


def _with_spelling(scenario: Scenario, name: Callable[[str], str]) -> Scenario:
    return attrs.evolve(scenario, steps=tuple(attrs.evolve(each, event=name(each.event)) for each in scenario.steps))
