"""Where a finding stands, and how it names rows and values.

Takes rows, configurations and spans; gives spans that are always there, and words. A machine built in Python has no
text: its findings stand at a neutral place.

Which candidate rows of an event are enabled, and which conjuncts of their conditions are false.

Takes rows and the values that they read; gives a `RowView` for each row, and words. Whether the values can be reached is not asked.
"""

from collections.abc import Iterable, Sequence

import attrs

from dsa.declarations import Assign, Transition
from dsa.errors import SourceNode, Span
from dsa.expr import And, Environment, Expr, Value, holds, names, unparse
from dsa.machine import Machine, environment
from dsa.semantics import Configuration, Occurrence, candidates, enabled_rows
from dsa.trace import show_values

NOWHERE = Span("<python>", 1, 1, 1, "")


def place(*spans: Span | None) -> Span:
    """Return the first span that is there, else the neutral one."""
    return next((span for span in spans if span is not None), NOWHERE)


def cell(row: Transition, column: str) -> Span:
    """Return the place of a row's cell."""
    return place(row.span_of(column), row.span)


def line_of(written: SourceNode) -> int:
    """Return the line of a row or a declaration, 0 of one without text."""
    return written.span.line if written.span else 0


def show_row(row: Transition) -> str:
    """Name a row: its line, source, event and target."""
    return f"line {row.span.line} ({row})" if row.span else f"the row {row}"


def show_rows(rows: Iterable[Transition], most: int = 5) -> str:
    """Name several rows of one table, by line where they have one; of many, the first few."""
    found = sorted(rows, key=line_of)
    more = [f"{len(found) - most} more"] if len(found) > most else []
    lines = all(row.span for row in found)
    *first, last = [str(line_of(row)) if lines else show_row(row) for row in found[:most]] + more
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the rows in lines {named}" if lines else named


def read_by(rows: Iterable[Transition]) -> frozenset[str]:
    """Return the names of variables and parameters that the conditions of rows read."""
    return frozenset(name for row in rows for name in names(row.condition))


def changed_by(rows: Iterable[Transition]) -> frozenset[str]:
    """Return the names of the variables that rows change, and of what the new values are made of."""
    found = set[str]()
    for row in rows:
        for update in row.updates:
            found |= {update.variable} | (names(update.value) if isinstance(update, Assign) else set())
    return frozenset(found)


def show_relevant(machine: Machine, values: Sequence[Value], relevant: frozenset[str]) -> str:
    """Write the values of the variables and then the parameters that are relevant."""
    pairs = [*zip((variable.name for variable in machine.variables), values, strict=True), *machine.constants.items()]
    return show_values((name, value) for name, value in pairs if name in relevant)


@attrs.frozen
class RowView:
    """One candidate row in one case: is it enabled, and its conjuncts with whether each is true."""

    row: Transition
    enabled: bool
    conjuncts: tuple[tuple[str, bool], ...]


def rows_at(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> tuple[RowView, ...]:
    """Return the candidate rows for an occurrence in a configuration, each with which of its conjuncts are true there."""
    rows = candidates(machine, configuration.state, occurrence)
    known: Environment = {**environment(machine, configuration.values), **dict(occurrence.verdicts)}
    enabled = enabled_rows(rows, known)
    return row_views(rows, enabled, known)


def row_views(rows: tuple[Transition, ...], enabled: tuple[Transition, ...], known: Environment) -> tuple[RowView, ...]:
    """Return each row of a group with whether it is enabled, and which of its conjuncts are true at known values."""
    return tuple(_view(row, rows, enabled, known) for row in rows)


def show_false(views: Iterable[RowView]) -> str:
    """Return which conjuncts of which rows are false, in one line."""
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
