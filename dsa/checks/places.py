"""Places and names for diagnostics: spans that are always there, words for rows and values, and false conjuncts.

A machine built in Python has no text: its findings get a neutral place. A `RowView` says of a candidate row whether it is enabled, and which of its
conjuncts are true at given values. Whether these values can be reached is not checked.
"""

from collections.abc import Iterable, Sequence

import attrs

from dsa.declarations import Assign, Transition, show_instance
from dsa.errors import SourceNode, Span
from dsa.expr import And, Count, Environment, Expr, Value, holds, names, unparse, walk
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, candidates, enabled_rows, known_values
from dsa.trace import show_values

NOWHERE = Span("<python>", 1, 1, 1, "")


def place(*spans: Span | None) -> Span:
    """Return the first span that is there, else the neutral one."""
    return next((span for span in spans if span is not None), NOWHERE)


def cell(row: Transition, column: str) -> Span:
    """Return the place of a row's cell."""
    return place(row.span_of(column), row.span)


def line_of(declaration: SourceNode) -> int:
    """Return the line of a row or a declaration, 0 of one without text."""
    return declaration.span.line if declaration.span else 0


def show_row(row: Transition) -> str:
    """Name a row: its line, source, event and target."""
    return f"line {row.span.line} ({row})" if row.span else f"the row {row}"


def at_instance(row: Transition) -> str:
    """Return which of the rows this is that one written with families stands for: ` (at f = 2)`; empty for any other row."""
    return f" ({show_instance(row.instance)})" if row.instance else ""


def show_rows(rows: Iterable[Transition], most: int = 5) -> str:
    """Name several rows of one table, by line where they have one; of many, the first few."""
    rows_in_order = sorted(rows, key=line_of)
    more = [f"{len(rows_in_order) - most} more"] if len(rows_in_order) > most else []
    lines = all(row.span for row in rows_in_order)
    *first, last = [str(line_of(row)) if lines else show_row(row) for row in rows_in_order[:most]] + more
    text = f"{', '.join(first)} and {last}" if first else last
    return f"the rows in lines {text}" if lines else text


def read_by(rows: Iterable[Transition]) -> frozenset[str]:
    """Return the names of variables and parameters that the conditions of rows read."""
    return frozenset(name for row in rows for name in names(row.condition))


def changed_by(rows: Iterable[Transition]) -> frozenset[str]:
    """Return the names of the variables that rows change, and the names in their new values."""
    variables = set[str]()
    for row in rows:
        for update in row.updates:
            variables |= {update.variable} | (names(update.value) if isinstance(update, Assign) else set())
    return frozenset(variables)


def show_relevant(machine: Machine, values: Sequence[Value], relevant: frozenset[str]) -> str:
    """Write the values of the variables and then the parameters that are relevant."""
    pairs = [*zip((variable.name for variable in machine.variables), values, strict=True), *machine.constants.items()]
    return show_values((name, value) for name, value in pairs if name in relevant)


@attrs.frozen
class RowView:
    """One candidate row in one case: is it enabled, and its conjuncts with whether each is true.

    `counts` says of each conjunct which conditions of its counts are true; views that differ in nothing else are equal.
    """

    row: Transition
    is_enabled: bool
    conjuncts: tuple[tuple[str, bool], ...]
    counts: tuple[str, ...] = attrs.field(default=(), eq=False)

    @property
    def false_conjuncts(self) -> tuple[str, ...]:
        """The conjuncts that are false, with which conditions of their counts are true."""
        pairs = zip(self.conjuncts, self.counts, strict=True)
        return tuple(f"{text} ({words})" if words else text for (text, true), words in pairs if not true)


def rows_at(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> tuple[RowView, ...]:
    """Return the candidate rows for an occurrence in a configuration, each with which of its conjuncts are true there."""
    rows = candidates(machine, configuration.state, occurrence)
    values = known_values(machine, configuration, occurrence)
    rows_enabled = enabled_rows(rows, values)
    return row_views(rows, rows_enabled, values)


def row_views(
    rows: tuple[Transition, ...], rows_enabled: tuple[Transition, ...], values: Environment
) -> tuple[RowView, ...]:
    """Return each row of a group with whether it is enabled, and which of its conjuncts are true at known values."""
    return tuple(_view(row, rows, rows_enabled, values) for row in rows)


def show_false(views: Iterable[RowView]) -> str:
    """Return which conjuncts of which rows are false, in one line, such as `in line 8, 'g.passed' is false`."""
    texts = []
    for view in views:
        wrong = view.false_conjuncts
        if wrong:
            line = f"in line {view.row.span.line}, " if view.row.span else ""
            conjuncts = " and ".join(
                "'pending' (some effect is outstanding)" if text == "pending" else f"'{text}'" for text in wrong
            )
            texts.append(f"{line}{conjuncts} {'is' if len(wrong) == 1 else 'are'} false")
    return "; ".join(texts)


def _view(
    row: Transition, rows: tuple[Transition, ...], rows_enabled: tuple[Transition, ...], values: Environment
) -> RowView:
    condition: Expr = row.condition
    operands = condition.operands if isinstance(condition, And) else (condition,)
    conjuncts = [(unparse(operand), holds(operand, values)) for operand in operands]
    counts = [_count_words(operand, values) for operand in operands]
    if row.is_else:
        others = any(not other.is_else and holds(other.condition, values) for other in rows)
        conjuncts.insert(0, ("else", not others))
        counts.insert(0, "")
    return RowView(row, any(row is other for other in rows_enabled), tuple(conjuncts), tuple(counts))


def _count_words(condition: Expr, values: Environment) -> str:
    """Return which conditions are true of each count in a condition; empty if there is none."""
    parts = []
    for node in (node for node in walk(condition) if isinstance(node, Count)):
        true = [unparse(operand) for operand in node.operands if holds(operand, values)]
        parts.append(f"{len(true)} of {len(node.operands)}" + (f": {', '.join(true)}" if true else ""))
    return "; ".join(parts)
