"""Mutants: machines with one small fault each, in a row, in a declaration, or in what Effects tells the driver.

A fault is one change of the document as written: all rows that a row with families stands for have it, and so has each body of an `all f:`, `any f:` or
`count f:`. What is written once is found by its place in the document, as the reader gives each body the places of the one that is written.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, TypeVar

import attrs

from dsa import expr
from dsa.checks.places import at_instance
from dsa.declarations import (
    STAY,
    Assign,
    Cancel,
    Effect,
    Emit,
    Revoke,
    RunParameter,
    Transition,
    Variable,
    index_in,
    kind_of,
    without_index,
    written_row,
)
from dsa.errors import SourceNode
from dsa.expr import Expr, constant, evaluate, negation, simplify, substitute
from dsa.machine import Machine, minima

T = TypeVar("T")

_NEIGHBOUR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
#: `rows` change what a run does; `declarations` where it starts, and what Definition 4 keeps; `Effects` what a driver does about failures and doubts.
Group = Literal["rows", "declarations", "Effects"]
GROUPS: tuple[Group, ...] = ("rows", "declarations", "Effects")
#: What begins a quantified part.
_QUANTIFIER = re.compile(r"\b(all|any|count)[ \t]+([A-Za-z_]\w*)[ \t]*:")
Path = tuple[int, ...]
Item = TypeVar("Item", bound=SourceNode)


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
    """Yield the machines in which two timers of a source are swapped."""
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
    for what, condition in _faulty(row.condition, lambda node: _other_index(machine, node), are_alone=True):
        yield what, attrs.evolve(row, condition=condition)
    is_split = isinstance(row.condition, expr.And) and _quantifier(row.condition) is None
    parts = expr.children(row.condition) if is_split else (row.condition,)
    for place, part in enumerate(parts):
        if part != expr.TRUE:
            rest = expr.conjunction([*parts[:place], *parts[place + 1 :]])
            yield f"'{_text(part)}' dropped", attrs.evolve(row, condition=rest)
    if row.is_else:
        yield "'else' dropped", attrs.evolve(row, is_else=False)


def _quantifier(node: expr.Expr) -> re.Match[str] | None:
    """Return the `all f:`, `any f:` or `count f:` that a node was written with, or None."""
    if node.span is None or not isinstance(node, expr.And | expr.Or | expr.Count):
        return None
    return _QUANTIFIER.match(node.span.text, node.span.column - 1)


def _text(node: expr.Expr) -> str:
    """Return an expression as text; one with a quantifier as it is written."""
    return (
        node.span.text[node.span.column - 1 : node.span.end - 1]
        if _quantifier(node) and node.span
        else expr.unparse(node)
    )


def _key(node: SourceNode, other: object) -> object:
    """Return what is the same for all that one written part stands for: its place, where a quantifier comes before it; else `other`."""
    return (type(node), node.span) if node.span and _family_before(node) else other


def _family_before(node: SourceNode) -> str:
    """Return the family of the last quantifier before a node in its line; empty where there is none."""
    matches = [*_QUANTIFIER.finditer(node.span.text, 0, node.span.column - 1)] if node.span else []
    return matches[-1][2] if matches else ""


def _for_each(nodes: Sequence[SourceNode]) -> str:
    """Return the words for a fault that several have which are written once."""
    return f" (for each {_family_before(nodes[0])})" if len(nodes) > 1 else ""


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
        case expr.Count():
            yield from _count_faults(node)
        case expr.And() | expr.Or():
            yield from _other_quantifier(machine, node)


def _other_quantifier(machine: Machine, node: expr.And | expr.Or) -> Iterator[tuple[str, expr.Expr]]:
    """Yield `any f: P` for `all f: P`, and the other way round."""
    quantifier = _quantifier(node)
    family = next((each for each in machine.families if quantifier and each.name == quantifier[2]), None)
    if quantifier is None or family is None or len(node.operands) % len(family.indices):
        return
    bodies = len(family.indices)
    size = len(node.operands) // bodies
    parts = [node.operands[place : place + size] for place in range(0, len(node.operands), size)]
    if len({tuple(part.span for part in each) for each in parts}) > 1:
        return  # some bodies are shorter, as their index decides a part of them
    inner, outer, word = (expr.And, expr.Or, "any") if isinstance(node, expr.And) else (expr.Or, expr.And, "all")
    operands = tuple(each[0] if size == 1 else inner(tuple(each)) for each in parts)
    text = _text(node)
    yield f"'{word}{text.removeprefix(quantifier[1])}' instead of '{text}'", outer(operands)


def _other_index(machine: Machine, node: expr.Expr) -> Iterator[tuple[str, expr.Expr]]:
    """Yield a name with the next index of its family."""
    if isinstance(node, expr.Name) and node.kind in {"variable", "pending"}:
        names = [variable.name for variable in machine.variables] if node.kind == "variable" else machine.answers
        for other in _next_name(machine, node.name, names):
            new = attrs.evolve(node, name=other)
            yield f"'{expr.unparse(new)}' instead of '{expr.unparse(node)}'", new


def _next_name(machine: Machine, name: str, names: Iterable[str]) -> Iterator[str]:
    """Yield `x[2]` for `x[1]`, and for the last one of its family the first one."""
    index, declarations = index_in(name), set(names)
    for family in machine.families if index is not None else ():
        indices = [*map(str, family.indices)]
        kin = [f"{name.partition('[')[0]}[{each}]" for each in indices]
        if name in kin and len(kin) > 1 and declarations.issuperset(kin):
            yield kin[(kin.index(name) + 1) % len(kin)]
            return


def _count_faults(node: expr.Expr) -> Iterator[tuple[str, expr.Expr]]:
    """Yield a count without one of its conditions; a count over a family has one condition, as written."""
    parts = node.operands if isinstance(node, expr.Count) and _quantifier(node) is None else ()
    if len(parts) > 1:
        fewer = (expr.Count((*parts[:place], *parts[place + 1 :])) for place in range(len(parts)))
        yield from ((f"'{expr.unparse(new)}' instead of '{expr.unparse(node)}'", new) for new in dict.fromkeys(fewer))


def _faulty(
    node: expr.Expr, faults: Callable[[expr.Expr], Iterator[tuple[str, expr.Expr]]], *, are_alone: bool = False
) -> Iterator[tuple[str, expr.Expr]]:
    """Yield the expression with one fault, for every fault of every node in it; with `are_alone`, of nodes outside quantified parts."""
    nodes = dict(_with_paths(node))
    paths = [*nodes]
    for places in _alike(_key(nodes[path], path) for path in paths):
        group = [nodes[paths[place]] for place in places]
        if are_alone and len(group) > 1:
            continue
        for what, variants in _common_faults(faults(each) for each in group):
            new = dict(zip((paths[place] for place in places), variants, strict=True))
            yield f"{what}{_for_each(group)}", _with_nodes(node, new)


def _with_paths(node: expr.Expr, path: Path = ()) -> Iterator[tuple[Path, expr.Expr]]:
    yield path, node
    for place, child in enumerate(expr.children(node)):
        yield from _with_paths(child, (*path, place))


def _with_nodes(node: expr.Expr, new: Mapping[Path, expr.Expr], path: Path = ()) -> expr.Expr:
    if path in new:
        return new[path]
    parts = expr.children(node)
    others = [_with_nodes(child, new, (*path, place)) for place, child in enumerate(parts)]
    return expr.with_children(node, others) if others != [*parts] else node


def _written_items(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    """Return the updates or effects of a row as they are written: those that one `all f:` stands for together."""
    places = _alike(_key(item, place) for place, item in enumerate(items))
    return [tuple(items[place] for place in each) for each in places]


def _in_one(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(item for group in groups for item in group)


def _updates(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    groups = _written_items(row.updates)
    for place, group in enumerate(groups):
        before, following = groups[:place], groups[place + 1 :]
        words = _for_each(group)
        without = _in_one([*before, *following])
        yield f"update of {group[0].variable} dropped{words}", attrs.evolve(row, updates=without)
        for what, faulty in _common_faults(_update_faults(machine, update) for update in group):
            yield f"{what}{words}", attrs.evolve(row, updates=_in_one([*before, faulty, *following]))
        for other in _next_name(machine, group[0].variable, machine.values_of) if len(group) == 1 else ():
            if all(update.variable != other for update in row.updates):
                other_update = attrs.evolve(group[0], variable=other)
                what = f"update of {other} instead of {group[0].variable}"
                yield what, attrs.evolve(row, updates=_in_one([*before, [other_update], *following]))


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
    yield from ((what, Assign(name, faulty)) for what, faulty in _faulty(value, _count_faults))


def _read_again(value: expr.Expr, name: str) -> expr.Expr:
    return substitute(value, lambda node: value if isinstance(node, expr.Name) and node.name == name else node)


def _effects(machine: Machine, row: Transition) -> Iterator[tuple[str, Transition]]:
    groups = _written_items(row.effects)
    for place, group in enumerate(groups):
        before, following, first = groups[:place], groups[place + 1 :], group[0]
        words = _for_each(group)

        variant = partial(_with_effects, row, before, following)
        yield f"effect {first} dropped{words}", variant()
        if isinstance(first, Emit):
            yield f"effect {first} duplicated{words}", variant(group, group)
            for what, others in _common_faults(_other_effects(machine, item) for item in group):
                yield f"{what}{words}", variant(others)
        if place and without_index(str(first)) != without_index(str(groups[place - 1][0])):
            other_order = _in_one([*groups[: place - 1], group, groups[place - 1], *following])
            yield f"effects {groups[place - 1][0]} and {first} swapped", attrs.evolve(row, effects=other_order)


def _with_effects(
    row: Transition,
    before: Sequence[Iterable[Emit | Cancel]],
    following: Sequence[Iterable[Emit | Cancel]],
    *now: Iterable[Emit | Cancel],
) -> Transition:
    return attrs.evolve(row, effects=_in_one([*before, *now, *following]))


def _other_effects(machine: Machine, item: Emit | Cancel) -> Iterator[tuple[str, Emit]]:
    for other in _similar_effects(machine, item.effect or ""):
        yield f"effect {other} instead of {item}", Emit(other)


def _plus(node: expr.Expr, by: int) -> expr.Expr:
    if isinstance(node, expr.Integer):
        return expr.Integer(node.value + by)
    return simplify(expr.Arithmetic("+" if by > 0 else "-", node, expr.Integer(abs(by))))


def _is_number(machine: Machine, whole: expr.Expr) -> bool:
    """Return whether an expression of a row is a whole number: it is made as one, or its leaf is."""
    if isinstance(whole, expr.Count | expr.Arithmetic | expr.Negate):
        return True
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
