"""Small faults, one at a time: every mutant of a machine's rows.

Takes a machine, gives `Mutant` values. A mutant is a machine like any other; whether it is noticed, or means the same as the machine, is for `dsa.checks.mutate`.
"""

from collections.abc import Callable, Iterator

import attrs

from dsa import expr
from dsa.declarations import STAY, Assign, Emit, Revoke, Transition
from dsa.machine import Machine
from dsa.simplify import negated, simplified, substituted

_NEIGHBOUR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


@attrs.frozen
class Mutant:
    """A machine with one fault: in which row of the original (its index), and what was changed, in words."""

    machine: Machine = attrs.field(repr=False)
    row: int
    what: str


def mutants(machine: Machine) -> Iterator[Mutant]:
    """Give every mutant, row by row; the rows of a workflow are those that its steps expand into."""
    rows = machine.transitions
    for place, row in enumerate(rows):
        if len(rows) > 1:
            yield Mutant(attrs.evolve(machine, transitions=(*rows[:place], *rows[place + 1 :])), place, "row deleted")
        met = {row}
        for what, changed in _changed(machine, row):
            if changed not in met:
                met.add(changed)
                mutated = (*rows[:place], changed, *rows[place + 1 :])
                yield Mutant(attrs.evolve(machine, transitions=mutated), place, what)


def _changed(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    yield from _conditions(machine, row)
    yield from _updates(machine, row)
    yield from _effects(row)
    yield from _other_event(machine, row)
    now = row.target if row.target == STAY else machine.entered(row.target)
    for target in (*machine.leaves, STAY):
        if target != now:
            yield f"target {target} instead of {row.target}", attrs.evolve(row, target=target)


def _other_event(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    """Give the row for the next two events of the same origin, where its guards judge them too."""
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
    """Give the faults of one node of a condition: a comparison shifted, a verdict changed."""
    match node:
        case expr.Verdict(guard, outcome):
            for other in machine.guard_named[guard].outcomes:
                if other != outcome:
                    yield f"{guard}.{other} instead of {guard}.{outcome}", expr.Verdict(guard, other)
        case expr.Compare(first, ((sign, second),)):
            shifted = [expr.Compare(first, ((_NEIGHBOUR[sign], second),))]
            if _is_number(machine, second) and _is_number(machine, first):
                shifted += [expr.Compare(first, ((sign, _plus(second, by)),)) for by in (1, -1)]
            yield from ((f"'{expr.unparse(new)}' instead of '{expr.unparse(node)}'", new) for new in shifted)
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
    """Give the expression with one fault, for every fault of every node in it."""
    yield from faults(node)
    for place, child in enumerate(expr.children(node)):
        for what, changed in _faulty(child, faults):
            yield what, _with_child(node, place, changed)


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
        for what, changed in _update_faults(machine, update):
            yield what, attrs.evolve(row, updates=(*before, changed, *following))


def _update_faults(machine: Machine, update: Assign | Revoke) -> Iterator[tuple[str, Assign]]:
    if isinstance(update, Revoke):
        return
    name, value = update.variable, update.value
    if name in expr.names(value):
        twice = _read_again(value, name)
        yield f"{name} = {expr.unparse(twice)}, its update doubled", Assign(name, twice)
    domain = machine.values_of[name]
    if domain.contains(True):  # noqa: FBT003  (a truth value)
        yield f"{name} = {expr.unparse(negated(value))} instead of {expr.unparse(value)}", Assign(name, negated(value))
    elif _is_number(machine, value):
        for by in (1, -1):
            shifted = _plus(value, by)
            yield f"{name} = {expr.unparse(shifted)} instead of {expr.unparse(value)}", Assign(name, shifted)


def _read_again(value: expr.Expr, name: str) -> expr.Expr:
    return substituted(value, lambda node: value if isinstance(node, expr.Name) and node.name == name else node)


def _effects(row: Transition) -> Iterator[tuple[str, Transition]]:
    items = row.effects
    for place, item in enumerate(items):
        yield f"effect {item} dropped", attrs.evolve(row, effects=(*items[:place], *items[place + 1 :]))
        if isinstance(item, Emit):
            yield f"effect {item} duplicated", attrs.evolve(row, effects=(*items[:place], item, *items[place:]))
        if place and item != items[place - 1]:
            swapped = (*items[: place - 1], item, items[place - 1], *items[place + 1 :])
            yield f"effects {items[place - 1]} and {item} swapped", attrs.evolve(row, effects=swapped)


def _plus(node: expr.Expr, by: int) -> expr.Expr:
    if isinstance(node, expr.Integer):
        return expr.Integer(node.value + by)
    return simplified(expr.Arithmetic("+" if by > 0 else "-", node, expr.Integer(abs(by))))


def _is_number(machine: Machine, whole: expr.Expr) -> bool:
    """Tell whether an expression of a row is a whole number: its leaves are."""
    leaf = next(node for node in expr.walk(whole) if not expr.children(node))
    if isinstance(leaf, expr.Integer):
        return True
    if isinstance(leaf, expr.Name) and leaf.kind in {"variable", "parameter"}:
        value = machine.constants.get(leaf.name)
        if value is None:
            value = dict(zip((v.name for v in machine.variables), machine.initial_values, strict=True))[leaf.name]
        return type(value) is int and not isinstance(whole, expr.Compare | expr.Not | expr.And | expr.Or | expr.Member)
    return False
