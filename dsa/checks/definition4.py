"""S9, Definition 4 of the paper: workflow state changes only when the guards have passed.

Takes a machine, gives diagnostics, one row at a time, for all values at once: nothing is explored. Whether a condition implies
that its guards passed is decided by going through the verdicts and taking everything else in it (comparisons, Boolean
variables) as free. That is sound: a row that is not reported cannot break the rule. It may report a row whose
condition would need arithmetic to be understood (`x < 1 and x > 2 or g.passed`); such a condition can be written plainer.
"""

from collections.abc import Iterator, Mapping

from dsa.checks.places import cell, place
from dsa.declarations import Assign, Revoke, Transition
from dsa.errors import Diagnostic
from dsa.expr import And, Boolean, Expr, Not, Or, Outcome, Verdict, conjunction, disjunction, guards_read
from dsa.machine import Machine, read_guards

Known = Mapping[Expr | str, object]


def definition4(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the rows that set workflow state without their guards having passed, and (as information) those that may."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    judged = machine.judged_events | {row.event for row in machine.transitions if guards_read(row.condition)}
    found: list[Diagnostic] = []
    for rows in machine.rows_from.values():
        for row in rows:
            touched = [update for update in row.updates if update.variable in workflow]
            if touched:
                found += _row(machine, row, rows, touched, judged=row.event in judged)
    return tuple(found)


def _row(
    machine: Machine, row: Transition, rows: tuple[Transition, ...], touched: list[Assign | Revoke], *, judged: bool
) -> Iterator[Diagnostic]:
    for update in touched:
        span = place(update.span, cell(row, "update"))
        if isinstance(update, Revoke):
            yield Diagnostic("DSA211", "info", f"{row.source} on {row.event} takes back {update.variable}", span)
        elif not judged:
            message = f"{row.source} on {row.event} sets {update.variable}, and no guard judges {row.event}"
            yield Diagnostic("DSA211", "info", message, span)
    assigned = [update for update in touched if isinstance(update, Assign)]
    why = _unguarded(machine, row, rows) if judged and assigned else ""
    if why:
        names = ", ".join(update.variable for update in assigned)
        message = f"workflow state ({names}) is set although {why} (Definition 4)"
        judges = sorted(guards_read(row.condition)) or [g.name for g in machine.guards if row.event in g.judges]
        passed = f"write {judges[0]}.passed in the condition" if judges else "ask for a verdict in the condition"
        hint = f"{passed}, make {assigned[0].variable} an environment variable, or take it back with 'revoke {assigned[0].variable}'"
        yield Diagnostic("DSA210", "error", message, place(assigned[0].span, cell(row, "update")), hint)


def _unguarded(machine: Machine, row: Transition, rows: tuple[Transition, ...]) -> str:
    """Return how the row can be taken without every guard it reads having passed; empty when it cannot."""
    condition, guards = row.condition, tuple(sorted(guards_read(row.condition)))
    if row.is_else:
        plain = [other.condition for other in rows if not other.is_else]
        condition, guards = conjunction([condition, Not(disjunction(plain))]), read_guards(rows)
    if not guards:
        return f"the row reads no verdict, and {row.event} is judged"
    outcomes = {guard.name: guard.outcomes for guard in machine.guards}
    for guard in guards:
        for outcome in outcomes[guard]:
            if outcome != "passed" and possible(condition, outcomes, {guard: outcome}):
                return f"the row can be taken on {guard}.{outcome}"
    return ""


def possible(condition: Expr, outcomes: Mapping[str, tuple[Outcome, ...]], known: Known) -> bool:
    """Return whether a condition can be true, given the verdicts and atoms known; all others are free.

    Decides one unknown at a time, and only those that the condition then still hangs on.
    """
    unknown = _value(condition, known)
    if isinstance(unknown, bool):
        return unknown
    if isinstance(unknown, Verdict):
        guard = unknown.guard
        return any(possible(condition, outcomes, {**known, guard: said}) for said in outcomes[guard])
    return any(possible(condition, outcomes, {**known, unknown: choice}) for choice in (True, False))


def _value(expr: Expr, known: Known) -> bool | Expr:
    """Return the value of a condition, or the first atom that it hangs on and that is not known yet."""
    match expr:
        case Boolean(value):
            return value
        case Verdict(guard, outcome):
            return known[guard] == outcome if guard in known else expr
        case Not(operand):
            inner = _value(operand, known)
            return not inner if isinstance(inner, bool) else inner
        case And(operands):
            return _joined(operands, known, decides=False)
        case Or(operands):
            return _joined(operands, known, decides=True)
        case _:
            return bool(known[expr]) if expr in known else expr


def _joined(operands: tuple[Expr, ...], known: Known, *, decides: bool) -> bool | Expr:
    values = [_value(operand, known) for operand in operands]
    if decides in values:
        return decides
    return next((value for value in values if not isinstance(value, bool)), not decides)
