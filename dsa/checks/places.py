"""Where a finding stands, and how it names rows and values.

Takes rows, configurations and spans; gives spans that are always there, and words. A machine built in Python has no
text: its findings stand at a neutral place.
"""

from collections.abc import Iterable, Sequence

from dsa.declarations import Assign, Transition
from dsa.errors import Placed, Span
from dsa.expr import Value, names
from dsa.machine import Machine
from dsa.trace import show_values

NOWHERE = Span("<python>", 1, 1, 1, "")


def place(*spans: Span | None) -> Span:
    """Give the first span that is there, else the neutral one."""
    return next((span for span in spans if span is not None), NOWHERE)


def cell(row: Transition, column: str) -> Span:
    """Give the place of a row's cell."""
    return place(row.span_of(column), row.span)


def line_of(written: Placed) -> int:
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
    """Give the names of variables and parameters that the conditions of rows read."""
    return frozenset(name for row in rows for name in names(row.condition))


def changed_by(rows: Iterable[Transition]) -> frozenset[str]:
    """Give the names of the variables that rows change, and of what the new values are made of."""
    found = set[str]()
    for row in rows:
        for update in row.updates:
            found |= {update.variable} | (names(update.value) if isinstance(update, Assign) else set())
    return frozenset(found)


def show_relevant(machine: Machine, values: Sequence[Value], relevant: frozenset[str]) -> str:
    """Write the values of the variables and then the parameters that are relevant."""
    pairs = [*zip((variable.name for variable in machine.variables), values, strict=True), *machine.constants.items()]
    return show_values((name, value) for name, value in pairs if name in relevant)
