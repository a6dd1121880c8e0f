"""Which candidate rows of an event are enabled, and which conjuncts of their conditions are false.

Takes rows and the values that they read; gives a `RowView` for each row, and words. Whether the values can be reached is not asked.
"""

from collections.abc import Iterable

import attrs

from dsa.declarations import Transition
from dsa.expr import And, Environment, Expr, holds, unparse
from dsa.machine import Machine, environment
from dsa.meaning import Configuration, Occurrence, candidates, enabled_rows


@attrs.frozen
class RowView:
    """One candidate row in one case: is it enabled, and its conjuncts with whether each is true."""

    row: Transition
    enabled: bool
    conjuncts: tuple[tuple[str, bool], ...]


def rows_at(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> tuple[RowView, ...]:
    """Give the candidate rows for an occurrence in a configuration, each with which of its conjuncts are true there."""
    rows = candidates(machine, configuration.state, occurrence)
    known: Environment = {**environment(machine, configuration.values), **dict(occurrence.verdicts)}
    enabled = enabled_rows(rows, known)
    return row_views(rows, enabled, known)


def row_views(rows: tuple[Transition, ...], enabled: tuple[Transition, ...], known: Environment) -> tuple[RowView, ...]:
    """Give each row of a group with whether it is enabled, and which of its conjuncts are true at known values."""
    return tuple(_view(row, rows, enabled, known) for row in rows)


def show_false(views: Iterable[RowView]) -> str:
    """Say which conjuncts of which rows are false, in one line."""
    found = []
    for view in views:
        wrong = [text for text, true in view.conjuncts if not true]
        if wrong:
            found.append(f"{', '.join(wrong)} (line {view.row.span.line})" if view.row.span else ", ".join(wrong))
    return f"false: {'; '.join(found)}" if found else ""


def _view(
    row: Transition, rows: tuple[Transition, ...], enabled: tuple[Transition, ...], known: Environment
) -> RowView:
    condition: Expr = row.condition
    operands = condition.operands if isinstance(condition, And) else (condition,)
    conjuncts = [(unparse(operand), holds(operand, known)) for operand in operands]
    if row.is_else:
        others = any(not other.is_else and holds(other.condition, known) for other in rows)
        conjuncts.insert(0, ("else", not others))
    return RowView(row, any(row is other for other in enabled), tuple(conjuncts))
