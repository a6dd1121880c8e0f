"""Mutants: machines with one small fault each, in a row, in a declaration, or in what Effects tells the driver."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeVar

import attrs

from dsa import expr
from dsa.checks.places import at_instance
from dsa.declarations import (
    STAY,
    Assign,
    Effect,
    Emit,
    Revoke,
    RunParameter,
    Transition,
    Variable,
    kind_of,
    without_index,
    written_row,
)
from dsa.expr import Expr, constant, evaluate, negation, simplify, substitute
from dsa.machine import Machine, minima

T = TypeVar("T")

_NEIGHBOUR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
#: `rows` change what a run does; `declarations` where it starts, and what Definition 4 keeps; `Effects` what a driver does about failures and doubts.
Group = Literal["rows", "declarations", "Effects"]
GROUPS: tuple[Group, ...] = ("rows", "declarations", "Effects")


@attrs.frozen
class Mutant:
    """A machine with one fault: in which row or declaration of the original, and what was changed, in words."""

    machine: Machine = attrs.field(repr=False)
    at: Transition | Variable | RunParameter | Effect
    what: str

    @property
    def group(self) -> Group:
        """The group of the fault."""
        if isinstance(self.at, Transition):
            return "rows"
        is_of_driver = (
            isinstance(self.at, Effect) and self.machine.effect_named[self.at.name].at_once == self.at.at_once
        )
        return "Effects" if is_of_driver else "declarations"

    @property
    def place(self) -> str:
        """The row, or the declaration, in words."""
        if isinstance(self.at, Transition):
            return f"{self.at}{at_instance(self.at)}"
        return f"{kind_of(self.at)} {without_index(self.at.name)}"


def mutants(machine: Machine) -> Iterator[Mutant]:
    """Yield every mutant, row by row, then declaration by declaration."""
    yield from row_mutants(machine)
    yield from _declaration_mutants(machine)


def row_mutants(machine: Machine) -> Iterator[Mutant]:
    """Yield the mutants of rows; the rows of a workflow are those that its steps expand into.

    A row with families is changed as it is written: all rows that it stands for have the fault, and the mutant names the first of them.
    """
    rows = machine.transitions
    for places in _alike(map(written_row, rows)):
        group = [rows[place] for place in places]
        if len(rows) > len(group):
            rest = tuple(row for place, row in enumerate(rows) if place not in set(places))
            yield Mutant(attrs.evolve(machine, transitions=rest), group[0], "row deleted")
        variants = {tuple(group)}
        for what, variant in _common_faults(_row_faults(machine, row) for row in group):
            if variant not in variants:
                variants.add(variant)
                yield Mutant(attrs.evolve(machine, transitions=_with_others(rows, places, variant)), group[0], what)
    yield from _swapped_durations(machine)


def _alike(keys: Iterable[object]) -> Iterable[list[int]]:
    """Return the places of each key, in order."""
    places: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return places.values()


def _common_faults(faults: Iterable[Iterable[tuple[str, T]]]) -> Iterator[tuple[str, tuple[T, ...]]]:
    """Yield what several have in common, in the words for the first of them. Those that one row stands for have the same faults, in one order."""
    for each in zip(*faults, strict=False):
        yield each[0][0], tuple(variant for _, variant in each)


def _with_others(items: tuple[T, ...], places: Sequence[int], others: Sequence[T]) -> tuple[T, ...]:
    result = [*items]
    for place, other in zip(places, others, strict=True):
        result[place] = other
    return tuple(result)


def _swapped_durations(machine: Machine) -> Iterator[Mutant]:
    """Yield the machines in which two timers of a source ring in each other's place."""
    timers: dict[str, dict[str, Transition]] = {}
    for row in machine.transitions:
        if row.is_timer:
            timers.setdefault(row.source, {}).setdefault(row.event, row)
    for source, rows in timers.items():
        events = [*rows]
        for one, other in pairwise(events):
            exchange = {one: other, other: one}
            mutant_rows = tuple(
                attrs.evolve(row, event=exchange.get(row.event, row.event)) if row.source == source else row
                for row in machine.transitions
            )
            yield Mutant(attrs.evolve(machine, transitions=mutant_rows), rows[one], f"{one} and {other} swapped")


def _declaration_mutants(machine: Machine) -> Iterator[Mutant]:
    """Yield the mutants of declarations, except those that Steps make: no author writes these."""
    if not machine.steps:
        for places in _alike(without_index(variable.name) for variable in machine.variables):
            group = [machine.variables[place] for place in places]
            for what, variant in _common_faults(_variable_faults(machine, variable) for variable in group):
                variables = _with_others(machine.variables, places, variant)
                yield Mutant(attrs.evolve(machine, variables=variables), group[0], what)
    for place, parameter in enumerate(machine.parameters):
        for value in _others(parameter.domain, parameter.default, machine):
            other = attrs.evolve(parameter, default=value)
            parameters = (*machine.parameters[:place], other, *machine.parameters[place + 1 :])
            what = f"default {expr.show_value(value)} instead of {expr.show_value(parameter.default)}"
            yield Mutant(attrs.evolve(machine, parameters=parameters), parameter, what)
    for places in _alike(without_index(effect.name) for effect in machine.effects):
        every = [machine.effects[place] for place in places]
        for what, about in _common_faults(_effect_faults(machine, effect) for effect in every):
            effects = _with_others(machine.effects, places, about)
            yield Mutant(attrs.evolve(machine, effects=effects), every[0], what)


def _variable_faults(machine: Machine, variable: Variable) -> Iterator[tuple[str, Variable]]:
    start = dict(zip((v.name for v in machine.variables), machine.initial_values, strict=True))[variable.name]
    for value in _others(variable.domain, start, machine):
        what = f"initial {expr.show_value(value)} instead of {expr.unparse(variable.initial)}"
        yield what, attrs.evolve(variable, initial=constant(value))
    other: Literal["workflow", "environment"] = "environment" if variable.scope == "workflow" else "workflow"
    yield f"scope {other} instead of {variable.scope}", attrs.evolve(variable, scope=other)


def _others(domain: expr.Domain, value: expr.Value, machine: Machine) -> Iterator[expr.Value]:
    """Yield the next values of a domain on both sides, at the machine's parameter values."""
    if isinstance(value, bool):
        yield not value
        return
    if isinstance(domain, expr.EnumDomain):
        place = domain.values.index(str(value))
        yield from (v for v in (domain.values[(place + 1) % len(domain.values)],) if v != value)
        return
    domain_values = expr.concrete(domain, machine.constants)
    yield from (int(value) + by for by in (1, -1) if domain_values.contains(int(value) + by))


def _effect_faults(machine: Machine, effect: Effect) -> Iterator[tuple[str, Effect]]:
    if effect.at_once is not None and effect.name in machine.numbered_effects:
        for limit in (_changed_limit(effect.at_once, 1), _changed_limit(effect.at_once, -1)):
            if all(int(evaluate(limit, values)) >= 1 for values in (machine.constants, minima(machine))):
                what = f"at once {expr.unparse(limit)} instead of {expr.unparse(effect.at_once)}"
                yield what, attrs.evolve(effect, at_once=limit)
    if effect.time_limit_ms is not None:
        yield "time limit dropped", attrs.evolve(effect, time_limit_ms=None)
    if effect.name in machine.answers or effect.in_doubt:
        for other in ("retry", "ask", "fail"):
            if effect.in_doubt and other != effect.in_doubt:
                yield f"in doubt {other} instead of {effect.in_doubt}", attrs.evolve(effect, in_doubt=other)


def _changed_limit(limit: Expr, by: int) -> Expr:
    """Return how many may be outstanding, one more or less: of `n + 2`, `n + 3` and `n + 1`."""
    if isinstance(limit, expr.Arithmetic) and limit.operator == "+" and isinstance(limit.right, expr.Integer):
        return _plus(limit.left, limit.right.value + by)
    return _plus(limit, by)


def _row_faults(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    yield from _conditions(machine, row)
    yield from _updates(machine, row)
    yield from _effects(machine, row)
    yield from _other_event(machine, row)
    now = row.target if row.target == STAY else machine.entry_leaf(row.target)
    for target in (*machine.leaves, STAY):
        if target != now:
            yield f"target {target} instead of {row.target}", attrs.evolve(row, target=target)


def _other_event(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    """Yield the row for the next two events of the same origin, where its guards judge them too."""
    event = machine.event_named.get(row.event)
    if event is None:
        return
    kin = [e.name for e in machine.events if e.origin == event.origin]
    read = [machine.guard_named[guard] for guard in expr.guards_read(row.condition)]
    place = kin.index(row.event) + 1 if row.event in kin else 0
    for other in (kin[place:] + kin[:place])[:2]:
        if other != row.event and all(other in guard.judges for guard in read):
            yield f"event {other} instead of {row.event}", attrs.evolve(row, event=other)


def _conditions(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    for what, condition in _faulty(row.condition, lambda node: _node_faults(machine, node)):
        yield what, attrs.evolve(row, condition=condition)
    parts = row.condition.operands if isinstance(row.condition, expr.And) else (row.condition,)
    for place, part in enumerate(parts):
        if part != expr.TRUE:
            rest = expr.conjunction([*parts[:place], *parts[place + 1 :]])
            yield f"'{expr.unparse(part)}' dropped", attrs.evolve(row, condition=rest)
    if row.is_else:
        yield "'else' dropped", attrs.evolve(row, is_else=False)


def _node_faults(machine: Machine, node: expr.Expr) -> Iterator[tuple[str, expr.Expr]]:
    """Yield the faults of one node of a condition: a comparison shifted, a verdict changed, `pending` negated."""
    match node:
        case expr.Verdict(guard, outcome):
            for other in machine.guard_named[guard].outcomes:
                if other != outcome:
                    yield f"{guard}.{other} instead of {guard}.{outcome}", expr.Verdict(guard, other)
        case expr.Name(_, "pending"):
            yield f"'{expr.unparse(negation(node))}' instead of '{expr.unparse(node)}'", negation(node)
        case expr.Compare(first, ((sign, second),)):
            neighbours = [expr.Compare(first, ((_NEIGHBOUR[sign], second),))]
            if _is_number(machine, second) and _is_number(machine, first):
                neighbours += [expr.Compare(first, ((sign, _plus(second, by)),)) for by in (1, -1)]
            yield from ((f"'{expr.unparse(new)}' instead of '{expr.unparse(node)}'", new) for new in neighbours)
        case expr.Compare(first, rest):
            for place, (sign, second) in enumerate(rest):
                new = expr.Compare(first, (*rest[:place], (_NEIGHBOUR[sign], second), *rest[place + 1 :]))
                yield f"'{expr.unparse(new)}' instead of '{expr.unparse(node)}'", new
        case expr.Member(operand, choices) if len(choices) > 1:
            for place in range(len(choices)):
                new_member = expr.Member(operand, (*choices[:place], *choices[place + 1 :]))
                yield f"'{expr.unparse(new_member)}' instead of '{expr.unparse(node)}'", new_member


def _faulty(
    node: expr.Expr, faults: Callable[[expr.Expr], Iterator[tuple[str, expr.Expr]]]
) -> Iterator[tuple[str, expr.Expr]]:
    """Yield the expression with one fault, for every fault of every node in it."""
    yield from faults(node)
    for place, child in enumerate(expr.children(node)):
        for what, faulty_child in _faulty(child, faults):
            yield what, _with_child(node, place, faulty_child)


def _with_child(node: expr.Expr, place: int, child: expr.Expr) -> expr.Expr:
    parts = list(expr.children(node))
    parts[place] = child
    match node:
        case expr.Not() | expr.Negate():
            return type(node)(parts[0])
        case expr.Arithmetic(sign):
            return expr.Arithmetic(sign, parts[0], parts[1])
        case expr.Compare(_, rest):
            return expr.Compare(parts[0], tuple((sign, part) for (sign, _), part in zip(rest, parts[1:], strict=True)))
        case expr.Member():
            return expr.Member(parts[0], tuple(parts[1:]))
        case expr.And() | expr.Or():
            return type(node)(tuple(parts))
        case _:
            raise AssertionError(f"{node} has no children")


def _updates(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    for place, update in enumerate(row.updates):
        before, following = row.updates[:place], row.updates[place + 1 :]
        yield f"update of {update.variable} dropped", attrs.evolve(row, updates=(*before, *following))
        for what, faulty_update in _update_faults(machine, update):
            yield what, attrs.evolve(row, updates=(*before, faulty_update, *following))


def _update_faults(machine: Machine, update: Assign | Revoke) -> Iterator[tuple[str, Assign]]:
    if isinstance(update, Revoke):
        return
    name, value = update.variable, update.value
    if name in expr.names(value):
        twice = _read_again(value, name)
        yield f"{name} = {expr.unparse(twice)}, its update doubled", Assign(name, twice)
    domain = machine.values_of[name]
    if domain.contains(True):  # noqa: FBT003  (a truth value)
        yield (
            f"{name} = {expr.unparse(negation(value))} instead of {expr.unparse(value)}",
            Assign(name, negation(value)),
        )
    elif _is_number(machine, value):
        for by in (1, -1):
            neighbour = _plus(value, by)
            yield f"{name} = {expr.unparse(neighbour)} instead of {expr.unparse(value)}", Assign(name, neighbour)


def _read_again(value: expr.Expr, name: str) -> expr.Expr:
    return substitute(value, lambda node: value if isinstance(node, expr.Name) and node.name == name else node)


def _effects(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    items = row.effects
    for place, item in enumerate(items):
        yield f"effect {item} dropped", attrs.evolve(row, effects=(*items[:place], *items[place + 1 :]))
        if isinstance(item, Emit):
            yield f"effect {item} duplicated", attrs.evolve(row, effects=(*items[:place], item, *items[place:]))
            for other in _similar_effects(machine, item.effect):
                faulty_items = (*items[:place], Emit(other), *items[place + 1 :])
                yield f"effect {other} instead of {item}", attrs.evolve(row, effects=faulty_items)
        if place and without_index(str(item)) != without_index(str(items[place - 1])):
            faulty_items = (*items[: place - 1], item, items[place - 1], *items[place + 1 :])
            yield f"effects {items[place - 1]} and {item} swapped", attrs.evolve(row, effects=faulty_items)


def _plus(node: expr.Expr, by: int) -> expr.Expr:
    if isinstance(node, expr.Integer):
        return expr.Integer(node.value + by)
    return simplify(expr.Arithmetic("+" if by > 0 else "-", node, expr.Integer(abs(by))))


def _is_number(machine: Machine, whole: expr.Expr) -> bool:
    """Return whether an expression of a row is a whole number: its leaves are."""
    leaf = next(node for node in expr.walk(whole) if not expr.children(node))
    if isinstance(leaf, expr.Integer):
        return True
    if isinstance(leaf, expr.Name) and leaf.kind in {"variable", "parameter"}:
        value = machine.constants.get(leaf.name)
        if value is None:
            value = dict(zip((v.name for v in machine.variables), machine.initial_values, strict=True))[leaf.name]
        return type(value) is int and not isinstance(whole, expr.Compare | expr.Not | expr.And | expr.Or | expr.Member)
    return False


def _similar_effects(machine: Machine, effect: str) -> tuple[str, ...]:
    """Return the next two effects that have answers as this one has, or none as it."""
    kin = [each.name for each in machine.effects if (each.name in machine.answers) == (effect in machine.answers)]
    place = kin.index(effect) + 1
    return tuple(other for other in (kin[place:] + kin[:place])[:2] if other != effect)
