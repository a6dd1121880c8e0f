"""Closed models: a machine for model checkers, with its locations, and its commands with their conditions.

`closed_model` returns a `ClosedModel` at the machine's parameter values. Its conditions leave out everything that the values decide; names stay names.
The module knows no target's syntax.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from dsa import expr
from dsa.declarations import Transition, Variable
from dsa.expr import FALSE, all_of, comparison, negation
from dsa.ground_system import Field, Ground, ground
from dsa.machine import Machine, Precedence
from dsa.semantics import Occurrence
from dsa.system import GuardedCommand, Location, Promise, System, closed_system, counter
from dsa.targets.spelling import export_error
from dsa.trace import show_values

#: The whole numbers that the model checkers compute with: 32 bits, with a sign.
LEAST, GREATEST = -(2**31), 2**31 - 1


@attrs.frozen
class ClosedCommand:
    """One command: `number` counts from 1; it is taken exactly when `condition` is true at its location."""

    number: int
    command: GuardedCommand
    condition: expr.Expr
    row: Transition

    @property
    def comment(self) -> str:
        """Return the line, the row and the verdicts: `line 40: idle | specification | generating`."""
        place = f"line {self.row.span.line}" if self.row.span else f"row {self.command.row + 1}"
        verdicts = ", ".join(f"{guard}.{outcome}" for guard, outcome in self.command.occurrence.verdicts)
        return f"{place}: {self.row}" + (f" ({verdicts})" if verdicts else "")


@attrs.frozen(slots=False)
class ClosedModel:
    """A machine at its parameter values, for model checkers. `fields` are its variables, and the numbers outstanding that are counted."""

    machine: Machine
    system: System
    ground: Ground
    steps: tuple[ClosedCommand, ...]
    initial: Mapping[str, expr.Value]

    @property
    def locations(self) -> tuple[Location, ...]:
        """The locations; the first is the start's."""
        return self.system.locations

    @property
    def fields(self) -> tuple[Field, ...]:
        """The variables with the whole numbers they range over."""
        return self.ground.fields

    @property
    def declared_fields(self) -> tuple[tuple[Variable, Field], ...]:
        """The fields, each with the variable that it is of."""
        return tuple(zip(self.system.variables, self.ground.fields, strict=True))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """The values of enumerations, each with its number."""
        declarations = [*(v.domain for v in self.machine.variables), *(p.domain for p in self.machine.parameters)]
        domains = [expr.concrete(domain, self.machine.constants) for domain in declarations]
        values = [value for domain in domains if not isinstance(domain, expr.Interval) for value in domain.values]
        return {value: self.ground.number(value) for value in dict.fromkeys(values) if isinstance(value, str)}

    @property
    def made_for(self) -> str:
        """Return the parameter values, such as `rmax = 3`, or words that there are none."""
        return show_values(self.machine.constants.items()) or "a machine without parameters"

    def label(self, place: int) -> str:
        """Return the name of a location: its state, the outstanding effects, and the number of the order of its timers, if there is one."""
        here = self.locations[place]
        waits = (f"waits {effect}" for effect in sorted(here.outstanding))
        order = [f"order {self._orders[here.precedence]}"] if here.precedence else []
        return " ".join([here.state, *waits, *order])

    @cached_property
    def _orders(self) -> dict[Precedence, int]:
        """The orders of timers (S11), numbered from 1."""
        orders = dict.fromkeys(here.precedence for here in self.locations if here.precedence)
        return {precedence: number for number, precedence in enumerate(orders, 1)}

    def inside(self, state: str) -> tuple[int, ...]:
        """Return the locations whose leaf is the state or lies inside it."""
        ancestry = self.machine.ancestry
        return tuple(p for p, here in enumerate(self.locations) if state in {here.state, *ancestry(here.state)})

    def pending(self, effect: str) -> tuple[tuple[int, expr.Expr], ...]:
        """Return the locations at which an effect may be outstanding, each with when it is."""
        return self.where(lambda place: self.system.is_outstanding(place, effect))

    def promise_places(self, promise: Promise) -> tuple[tuple[int, expr.Expr], ...]:
        """Return the locations at which there may be something that must end some time (S12), each with when there is."""
        return self.where(lambda place: self.system.promises(place).get(promise, FALSE))

    def where(self, condition: Callable[[int], expr.Expr]) -> tuple[tuple[int, expr.Expr], ...]:
        """Return the locations at which a condition can be true, each with the condition there."""
        conditions = ((place, condition(place)) for place in range(len(self.locations)))
        return tuple((place, here) for place, here in conditions if here != FALSE)

    @cached_property
    def promises(self) -> tuple[Promise, ...]:
        """What must end some time somewhere, sorted."""
        every = {promise for place in range(len(self.locations)) for promise in self.system.promises(place)}
        return tuple(sorted(every, key=str))

    def numbers(self, predicate: Callable[[ClosedCommand], bool]) -> tuple[int, ...]:
        """Return the numbers of some steps."""
        return tuple(step.number for step in self.steps if predicate(step))

    def is_idle(self, step: ClosedCommand) -> expr.Expr:
        """Return the condition that a step is possible and changes nothing, so that a checker of behaviours cannot see it; false for most."""
        command = step.command
        if command.source != command.target:
            return FALSE
        same = (comparison(expr.Name(name, "variable"), "==", value) for name, value in command.updates)
        return all_of([step.condition, *same])


def closed_model(machine: Machine) -> ClosedModel:
    """Return the closed model of a machine. Raises DsaError if it is too large, or does not start in its domains."""
    system = closed_system(machine)
    if system.left_out:
        raise export_error(f"{machine.name} is too large to be exported: {'; '.join(system.left_out)}")
    initial = initial_values(machine) | {counter(effect).name: 0 for effect in system.counted_effects}
    whole = ground(system)
    steps = tuple(
        ClosedCommand(number, command, _condition(whole, command, rule.condition), machine.transitions[command.row])
        for number, rule in enumerate(whole.rules, 1)
        for command in [system.commands[rule.command]]
    )
    return ClosedModel(machine, system, whole, steps, initial)


def initial_values(machine: Machine) -> dict[str, expr.Value]:
    """Return the variables' values at the start. Raises DsaError for one outside its domain."""
    values = dict(zip((variable.name for variable in machine.variables), machine.initial_values, strict=True))
    for name, value in values.items():
        domain = machine.values_of[name]
        if not domain.contains(value):
            raise export_error(f"{name} starts at {expr.show_value(value)}, outside its domain {domain}")
    return values


def _condition(whole: Ground, command: GuardedCommand, rule_condition: expr.Expr) -> expr.Expr:
    """Return the condition that a command is taken, without the parts that the parameters' values decide."""
    if rule_condition == expr.TRUE:
        return expr.TRUE
    parts = [command.enabled_when]
    if whole.ground_condition(all_of([command.enabled_when, negation(command.safe)])) != FALSE:
        parts.append(command.safe)
    parts += [negation(c) for c in command.rivals if whole.ground_condition(all_of([command.enabled_when, c])) != FALSE]
    return all_of(parts)


def sequential(updates: Iterable[tuple[str, expr.Expr]]) -> tuple[tuple[str, ...], tuple[tuple[str, expr.Expr], ...]]:
    """Order simultaneous updates (S5) for targets that assign one after the other.

    Return the variables whose old values must be saved first, and the updates in order. Expressions must read the old
    values of these variables.
    """
    left = dict(updates)
    old_names: list[str] = []
    order: list[tuple[str, expr.Expr]] = []
    while left:
        read = {name: _read(value) for name, value in left.items()}
        free = next((name for name in left if not any(name in read[other] for other in left if other != name)), None)
        if free is None:
            free = next(iter(left))
            old_names.append(free)
        order.append((free, left.pop(free)))
    return tuple(old_names), tuple(order)


def _read(whole: expr.Expr) -> set[str]:
    return {node.name for node in expr.walk(whole) if isinstance(node, expr.Name) and node.kind == "variable"}


def require_small(model: ClosedModel, tool: str) -> None:
    """Raise DsaError if a number may lie outside the 32 bits of a model checker."""
    require_few_outstanding(model.machine, tool, GREATEST)
    ranges = ranges_of(model.fields)
    for name, value in model.machine.constants.items():
        number = model.ground.number(value)
        ranges[name] = (number, number)
    steps = ((s.comment, node) for s in model.steps for node in (s.condition, *(v for _, v in s.command.updates)))
    require_numbers(ranges, steps, tool, LEAST, GREATEST)


def require_few_outstanding(machine: Machine, tool: str, greatest: int) -> None:
    """Raise DsaError if more of an effect may be outstanding than a tool can count."""
    for effect, most in machine.most_outstanding.items():
        if most > greatest:
            span = machine.effect_named[effect].span
            where = f"line {span.line}: " if span else ""
            raise export_error(
                f"{where}the effect {effect} may be outstanding {most} times, but {tool} computes only with numbers up to {greatest}"
            )


def ranges_of(fields: Iterable[Field]) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest value of each variable, as numbers."""
    return {field.name: (field.low, field.low + field.size - 1) for field in fields}


def require_numbers(
    ranges: Mapping[str, tuple[int, int]],
    expressions: Iterable[tuple[str, expr.Expr]],
    tool: str,
    least: int,
    greatest: int,
) -> None:
    """Raise DsaError if a value, or a number in an expression (each with its place), may lie outside a tool's range."""
    places = ((where, bounds) for where, node in expressions for bounds in _extents(node, ranges))
    for where, (low, high) in itertools.chain(ranges.items(), places):
        if low < least or high > greatest:
            raise export_error(f"{where}: numbers from {low} to {high}, but {tool} computes with {least} to {greatest}")


def _extents(whole: expr.Expr, ranges: Mapping[str, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the range of every number that an expression computes with."""
    for node in expr.walk(whole):
        if isinstance(node, expr.Integer | expr.Arithmetic | expr.Negate | expr.Count):
            yield _extent(node, ranges)


def _extent(node: expr.Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    match node:
        case expr.Integer(value):
            return value, value
        case expr.Name(name):
            return ranges[name]
        case expr.Negate(operand):
            low, high = _extent(operand, ranges)
            return -high, -low
        case expr.Arithmetic(sign, left, right):
            (a, b), (c, d) = _extent(left, ranges), _extent(right, ranges)
            ends = {"+": (a + c, b + d), "-": (a - d, b - c)}.get(sign) or (a * c, a * d, b * c, b * d)
            return min(ends), max(ends)
        case expr.Count(operands):
            return 0, len(operands)
        case _:
            raise AssertionError("only numbers have an extent")


def timer_text(promise: Promise) -> str:
    """Return a promise as text: an effect, or a timer with its source."""
    return promise if isinstance(promise, str) else f"{promise[1]} of {promise[0]}"


def happened_on(occurrence: Occurrence, effects: tuple[str, ...], name: str) -> bool:
    """Return whether an event or an effect of that name happens with a command."""
    return occurrence.event == name or name in effects
