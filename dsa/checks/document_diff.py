"""Differences between two documents: rows and declarations, compared by meaning.

Takes two machines, gives `DocumentChange` values with the lines of both documents. Order, notes and the spelling of expressions make no difference: a
condition or an update is the same when it is the same after constants are folded and operands sorted, and a target when the same leaf is entered. A
change is one of *control* when a run could go another way because of it; of *content* when guards, generators or effects work differently under the
same control; of *claims* when only what is claimed of the machine changes. Whether different rows lead to the same behaviour is a question for
`dsa.checks.equivalence`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import attrs

from dsa.checks.places import at_instance
from dsa.declarations import (
    EFFECT_COLUMNS,
    STAY,
    Assign,
    Effect,
    Guard,
    RefusedAction,
    Scenario,
    ScenarioStep,
    StepRow,
    Transition,
    show,
    written_row,
)
from dsa.errors import Span
from dsa.expr import (
    And,
    Arithmetic,
    Compare,
    Count,
    Domain,
    EnumDomain,
    Expr,
    Integer,
    Not,
    Or,
    guards_read,
    show_value,
    simplify,
    unparse,
    unparse_domain,
)
from dsa.machine import Machine, spelled_like
from dsa.semantics import Occurrence
from dsa.trace import show_occurrence, show_values, state_kind, transition_cells

T = TypeVar("T")
Aspect = Literal["control", "content", "claims"]
Kind = Literal["added", "removed", "changed"]


@attrs.frozen
class Detail:
    """One field that differs: its column, and its text in the old and in the new document."""

    field: str
    old: str
    new: str


@attrs.frozen
class DocumentChange:
    """One thing that was added, removed or changed: a `what` (transition, variable, ..) of some name, with its lines where it has any."""

    aspect: Aspect
    what: str
    kind: Kind
    name: str
    old_line: int | None = None
    new_line: int | None = None
    details: tuple[Detail, ...] = ()


@attrs.frozen
class _Declaration:
    """Something declared: its place, and its fields as texts that are equal when they mean the same."""

    span: Span | None
    fields: Mapping[str, str]


_Declarations = dict[str, _Declaration]


def declared_changes(old: Machine, new: Machine) -> Iterator[DocumentChange]:
    """Yield every change but those of rows, control first."""
    for aspect, what, mine, theirs in _declarations(old, new):
        yield from _changes(aspect, what, mine, theirs)
    yield from _claims(old, new)


def _declarations(old: Machine, new: Machine) -> Iterator[tuple[Aspect, str, _Declarations, _Declarations]]:
    yield "control", "initial state", _initial(old), _initial(new)
    yield "control", "state", _states(old), _states(new)
    yield "control", "parameter", _parameters(old), _parameters(new)
    yield "control", "variable", _variables(old), _variables(new)
    yield "control", "event", _events(old), _events(new)
    yield "control", "guard", _guard_control(old.guards), _guard_control(new.guards)
    effect_names = {effect.name for effect in (*old.effects, *new.effects)}
    yield "control", "effect", _limits(old, effect_names), _limits(new, effect_names)
    both = {guard.name for guard in old.guards} & {guard.name for guard in new.guards}
    yield "content", "guard", _guard_bindings(old, both), _guard_bindings(new, both)
    yield "content", "effect", _effects(old, effect_names), _effects(new, effect_names)
    yield "content", "generator", _generators(old), _generators(new)
    yield "content", "step", _steps(old.steps), _steps(new.steps)
    yield "content", "cases", _cases(old), _cases(new)
    yield "content", "prompt", _prompts(old), _prompts(new)
    yield "content", "document", _document(old), _document(new)


def _changes(aspect: Aspect, what: str, mine: _Declarations, theirs: _Declarations) -> Iterator[DocumentChange]:
    for name in dict.fromkeys([*mine, *theirs]):
        old, new = mine.get(name), theirs.get(name)
        if old is None or new is None:
            kind: Kind = "added" if old is None else "removed"
            yield DocumentChange(aspect, what, kind, name, _line(old), _line(new), _fields(old, new))
        elif old.fields != new.fields:
            yield DocumentChange(aspect, what, "changed", name, _line(old), _line(new), _fields(old, new))


def _fields(old: _Declaration | None, new: _Declaration | None) -> tuple[Detail, ...]:
    """Return the fields that differ; of what was added or removed, those that are not empty."""
    mine, theirs = (old.fields if old else {}), (new.fields if new else {})
    pairs = ((name, mine.get(name, ""), theirs.get(name, "")) for name in dict.fromkeys([*mine, *theirs]))
    return tuple(Detail(*pair) for pair in pairs if pair[1] != pair[2])


def _line(thing: _Declaration | None) -> int | None:
    return None if thing is None else line_at(thing.span)


def line_at(span: Span | None) -> int | None:
    """Return a place's line; None for a machine without a text."""
    return None if span is None else span.line


# -- control ----------------------------------------------------------------------------------------------------------


def _initial(machine: Machine) -> _Declarations:
    state = machine.state_named[machine.initial]
    return {"": _Declaration(state.span, {"": machine.entry_leaf(machine.initial)})}


def _states(machine: Machine) -> _Declarations:
    return {
        state.name: _Declaration(
            state.span,
            {
                "kind": state_kind(attrs.evolve(state, kind="")) or state.kind.removeprefix("initial"),
                "enters": _entered_leaf(machine, state.name) if state.name in machine.parents else "",
            },
        )
        for state in machine.states
    }


def _entered_leaf(machine: Machine, parent: str) -> str:
    """Return the leaf that is entered with a parent; empty for one that nothing enters, which needs no initial child."""
    children = [state for state in machine.states if state.parent == parent]
    initial = next((state.name for state in children if state.kind == "initial"), "")
    return _entered_leaf(machine, initial) if initial in machine.parents else initial


def _parameters(machine: Machine) -> _Declarations:
    return {
        p.name: _Declaration(p.span, {"domain": unparse_domain(p.domain), "default": show_value(p.default)})
        for p in machine.parameters
    }


def _variables(machine: Machine) -> _Declarations:
    return {
        v.name: _Declaration(
            v.span, {"scope": v.scope, "domain": _domain(v.domain), "initial": unparse(canonical(v.initial))}
        )
        for v in machine.variables
    }


def _domain(domain: Domain) -> str:
    return unparse_domain(EnumDomain(tuple(sorted(domain.values))) if isinstance(domain, EnumDomain) else domain)


def _events(machine: Machine) -> _Declarations:
    return {event.name: _Declaration(event.span, {"from": event.origin}) for event in machine.events}


def _guard_control(guards: Iterable[Guard]) -> _Declarations:
    return {
        guard.name: _Declaration(
            guard.span, {"judges": ", ".join(sorted(guard.judges)), "verdicts": ", ".join(sorted(guard.outcomes))}
        )
        for guard in guards
    }


def _limits(machine: Machine, effect_names: set[str]) -> _Declarations:
    """Return how many of each effect may be outstanding, which `step` reads; all else in Effects is for drivers."""
    effects = {effect.name: effect for effect in machine.effects}
    limits = {name: machine.number_limits.get(name, Integer(1)) for name in sorted(effect_names)}
    return {
        name: _Declaration(effects[name].span if name in effects else None, {"at once": unparse(canonical(limit))})
        for name, limit in limits.items()
    }


# -- content ----------------------------------------------------------------------------------------------------------


def _guard_bindings(machine: Machine, both: set[str]) -> _Declarations:
    """Return what guards are bound to; one that only one document has is named as control already."""
    return {
        guard.name: _Declaration(
            guard.span,
            {
                "is": guard.kind,
                "options": _options(guard.options),
                "uses": _options(tuple((name, str(reference)) for name, reference in guard.uses)),
                "pass": ", ".join(map(str, guard.pass_odds)),
                "fatal": ", ".join(map(str, guard.fatal_odds)),
            },
        )
        for guard in machine.guards
        if guard.name in both
    }


def _effects(machine: Machine, effect_names: set[str]) -> _Declarations:
    """Return how drivers handle effects; whether an effect is used at all is a matter of rows."""
    effects = {effect.name: effect for effect in machine.effects}
    return {
        name: _Declaration(effects[name].span if name in effects else None, _policy(effects.get(name)))
        for name in sorted(effect_names)
    }


def _policy(effect: Effect | None) -> dict[str, str]:
    columns = (column for column in EFFECT_COLUMNS if column.field != "at_once")
    return {column.header: column.cell(effect or Effect("")) for column in columns}


def _generators(machine: Machine) -> _Declarations:
    return {g.name: _Declaration(g.span, {"is": g.kind, "options": _options(g.options)}) for g in machine.generators}


def _steps(steps: Iterable[StepRow]) -> _Declarations:
    return {
        step.name: _Declaration(
            step.span,
            {
                "generator": step.generator,
                "guard": ", ".join(step.guards),
                "uses": _options(step.uses),
                "task": step.task,
            },
        )
        for step in steps
    }


def _cases(machine: Machine) -> _Declarations:
    return {
        cases.name: _Declaration(cases.span, {"": "; ".join(f"{case.call} = {case.expected}" for case in cases.cases)})
        for cases in machine.cases
    }


def _prompts(machine: Machine) -> _Declarations:
    return {
        p.name: _Declaration(
            p.span,
            {
                "system": p.system,
                "role": p.role,
                "constraints": p.constraints,
                "task": p.task,
                "feedback": p.feedback,
            },
        )
        for p in machine.prompts
    }


def _document(machine: Machine) -> _Declarations:
    return {
        "": _Declaration(
            machine.span,
            {"name": machine.name, "constraints": machine.constraints, "result": machine.result or ""},
        )
    }


def _options(options: tuple[tuple[str, str], ...]) -> str:
    return "; ".join(f"{key} = {value}" for key, value in options)


# -- claims -----------------------------------------------------------------------------------------------------------


def _claims(old: Machine, new: Machine) -> Iterator[DocumentChange]:
    mine, theirs = ([(show(claim.form), claim.span) for claim in machine.properties] for machine in (old, new))
    for kind, ones, others in (("removed", mine, theirs), ("added", theirs, mine)):
        left = Counter(text for text, _ in others)
        for text, span in ones:
            left[text] -= 1
            if left[text] < 0:
                lines = (line_at(span), None) if kind == "removed" else (None, line_at(span))
                yield DocumentChange("claims", "property", kind, text, *lines)  # type: ignore[arg-type]  # one of the two
    yield from _changes("claims", "scenario", _scenarios(old.scenarios), _scenarios(new.scenarios))


def _scenarios(scenarios: Iterable[Scenario]) -> _Declarations:
    return {
        each.name: _Declaration(each.span, {"": "; ".join([show_values(each.parameters), *map(_percept, each.steps)])})
        for each in scenarios
    }


def _percept(step: ScenarioStep) -> str:
    """Write a step of a scenario in one line."""
    action = step.action
    did = f"refused {action.reason or ''}".strip() if isinstance(action, RefusedAction) else ", ".join(map(str, action))
    input_text = show_occurrence(Occurrence(step.event, step.verdicts))
    uses = "" if step.dependencies is None else f" with {_options(step.dependencies)}"
    return f"{input_text} -> {did} ({', '.join(filter(None, (step.state, show_values(step.values))))}){uses}"


# -- expressions ------------------------------------------------------------------------------------------------------


def canonical(expr: Expr) -> Expr:
    """Return an expression of the same value everywhere, spelled in one way: operands whose order makes no difference are sorted."""
    return _sorted_operands(simplify(expr))


def _sorted_operands(expr: Expr) -> Expr:
    match expr:
        case And(operands) | Or(operands) | Count(operands):
            return type(expr)(tuple(sorted(map(_sorted_operands, operands), key=unparse)))
        case Not(operand):
            return Not(_sorted_operands(operand))
        case Arithmetic("+" | "*" as sign, left, right):
            one, other = sorted((_sorted_operands(left), _sorted_operands(right)), key=unparse)
            return Arithmetic(sign, one, other)
        case Arithmetic(sign, left, right):
            return Arithmetic(sign, _sorted_operands(left), _sorted_operands(right))
        case Compare(left, ((">" | ">=" as sign, right),)):
            return _sorted_operands(Compare(right, (("<" if sign == ">" else "<=", left),)))
        case Compare(left, (("==" | "!=" as sign, right),)):
            first, second = sorted((_sorted_operands(left), _sorted_operands(right)), key=unparse)
            return Compare(first, ((sign, second),))
        case Compare(left, ((sign, right),)):
            return Compare(_sorted_operands(left), ((sign, _sorted_operands(right)),))
        case _:
            return expr


#: The meaning of a row, column by column; equal when the rows mean the same.
_Meaning = tuple[object, ...]
_COLUMNS = ("source", "event", "if", "update", "effects", "target")
_PLACE = slice(0, 2)
_DOES = slice(2, None)


class _Row:
    """A row with what it means."""

    def __init__(self, machine: Machine, row: Transition) -> None:
        self.row = row
        # at most one of each variable, so that nothing else is compared
        updates = sorted((u.variable, canonical(u.value) if isinstance(u, Assign) else None) for u in row.updates)
        self.meaning: _Meaning = (
            row.source,
            ("after", row.duration_ms) if row.is_timer else row.event,
            # S2: the guards in the condition are run, also where their verdict decides nothing
            (row.is_else, canonical(row.condition), guards_read(row.condition)),
            tuple(updates),
            row.effects,
            row.target if row.target == STAY else machine.entry_leaf(row.target),
        )

    def alike(self, other: "_Row") -> int:
        """Count the columns that mean the same."""
        return sum(mine == theirs for mine, theirs in zip(self.meaning, other.meaning, strict=True))


_Match = Callable[[_Row, _Row], bool]


def changes(old: Machine, new: Machine) -> tuple[DocumentChange, ...]:
    """Return every change from one machine to another, transitions first."""
    new = spelled_like(new, old)
    return (*_row_changes(old, new), *declared_changes(old, new))


def same_control(document_changes: tuple[DocumentChange, ...]) -> bool:
    """Return whether no change is one of control: then both machines do the same, whatever the parameters' values."""
    return all(change.aspect != "control" for change in document_changes)


def _row_changes(old: Machine, new: Machine) -> Iterator[DocumentChange]:
    mine, theirs = ([_Row(machine, row) for row in machine.transitions] for machine in (old, new))
    old_rows, new_rows = _without_same(mine, theirs), _without_same(theirs, mine)
    pairs: list[tuple[_Row, _Row]] = []
    for match in (_same_place, _is_move):
        pairs += _take_pairs(old_rows, new_rows, match)
    pairs.sort(key=lambda pair: line_at(pair[0].row.span) or 0)
    for one, other in _by_written_row(pairs, lambda pair: (written_row(pair[0].row), written_row(pair[1].row))):
        yield _row_change(one, other)
    for row in _by_written_row([each.row for each in old_rows], written_row):
        yield DocumentChange("control", "transition", "removed", _name(row), line_at(row.span), None, _cells(row, None))
    for row in _by_written_row([each.row for each in new_rows], written_row):
        yield DocumentChange("control", "transition", "added", _name(row), None, line_at(row.span), _cells(None, row))


def _by_written_row(items: Iterable[T], key: Callable[[T], object]) -> Iterator[T]:
    """Yield the first of those that stand in the same rows as written."""
    firsts: dict[object, T] = {}
    for item in items:
        firsts.setdefault(key(item), item)
    return iter(firsts.values())


def _name(row: Transition) -> str:
    return f"{row}{at_instance(row)}"


def _without_same(ones: list[_Row], others: list[_Row]) -> list[_Row]:
    """Leave out the rows that the other machine has too, each as often as it has it."""
    counts, left = Counter(row.meaning for row in others), []
    for row in ones:
        counts[row.meaning] -= 1
        if counts[row.meaning] < 0:
            left.append(row)
    return left


def _same_place(one: _Row, other: _Row) -> bool:
    return one.meaning[_PLACE] == other.meaning[_PLACE]


def _is_move(one: _Row, other: _Row) -> bool:
    """Return whether a row does the same for another source or another event."""
    return one.meaning[_DOES] == other.meaning[_DOES] and one.alike(other) == len(_COLUMNS) - 1


def _take_pairs(old_rows: list[_Row], new_rows: list[_Row], match: _Match) -> Iterator[tuple[_Row, _Row]]:
    """Take the pairs that match out of both lists, those that have most in common first."""
    pairs = [(one, other) for one in old_rows for other in new_rows if match(one, other)]
    for one, other in sorted(pairs, key=lambda pair: -pair[0].alike(pair[1])):
        if one in old_rows and other in new_rows:
            old_rows.remove(one)
            new_rows.remove(other)
            yield one, other


def _row_change(one: _Row, other: _Row) -> DocumentChange:
    details = _cells(one.row, other.row)
    pairs = zip(_COLUMNS, one.meaning, other.meaning, strict=True)
    changed_columns = {column for column, mine, theirs in pairs if mine != theirs}
    column_details = tuple(detail for detail in details if detail.field in changed_columns)
    if "target" in changed_columns - {
        detail.field for detail in column_details
    }:  # the same parent enters another child
        column_details = (*column_details, Detail("target", str(one.meaning[-1]), str(other.meaning[-1])))
    old_line, new_line = line_at(one.row.span), line_at(other.row.span)
    return DocumentChange("control", "transition", "changed", _name(one.row), old_line, new_line, column_details)


def _cells(old: Transition | None, new: Transition | None) -> tuple[Detail, ...]:
    """Return the cells that differ; of a row that only one document has, those that its name does not show."""
    mine, theirs = (transition_cells(row) if row else {} for row in (old, new))
    columns = _COLUMNS if old and new else ("if", "update", "effects")
    pairs = ((column, mine.get(column, ""), theirs.get(column, "")) for column in columns)
    return tuple(Detail(*pair) for pair in pairs if pair[1] != pair[2])
