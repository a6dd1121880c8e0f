"""Traces: a machine's steps on a sequence of occurrences, and the texts of table cells.

`follow` runs a machine and returns a frozen `Trace`, which prints only what changed. `transition_cells` and its neighbours return the plain texts of a
row's cells, `table_lines` the lines of a Markdown table, and `table` a machine's transitions as one in canonical layout. The same machine gives the same
text. The module knows no files.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from dsa.declarations import Assign, Revoke, State, Transition
from dsa.expr import TRUE, Arithmetic, Name, Or, Value, show_value, unparse
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Taken, start, step


@attrs.frozen
class TraceStep:
    """One step: the occurrence, the row, the state after it, and the changed variables."""

    occurrence: Occurrence
    row: Transition
    state: str
    changed: tuple[tuple[str, Value], ...]
    effects: tuple[str, ...]
    cancelled: tuple[str, ...]

    @property
    def line(self) -> int | None:
        """The row's line in its document, from 1; None for a machine built in Python."""
        return self.row.span.line if self.row.span else None


@attrs.frozen
class Trace:
    """A run from the start: parameters, the state and values it begins with, and its steps."""

    parameters: tuple[tuple[str, Value], ...]
    state: str
    values: tuple[tuple[str, Value], ...]
    steps: tuple[TraceStep, ...] = ()

    def show(self, loop: int | None = None) -> str:
        """Return the trace as aligned text: one line for the start, one for each step, with its changes.

        The steps after the first `loop` are marked as repeating for ever; if there are none, the trace rests there for ever.
        """
        rows = [("0", "start", self.state, "", show_values(self.values), "")]
        for number, taken in enumerate(self.steps, 1):
            line = f"line {taken.line}" if taken.line else ""
            effects = ", ".join([*taken.effects, *(f"cancelled {effect}" for effect in taken.cancelled)])
            changes = show_values(taken.changed)
            rows.append((str(number), show_occurrence(taken.occurrence), taken.state, line, changes, effects))
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        texts = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        lines = [line.rstrip() for line in texts]
        if loop is not None:
            lines.insert(loop + 1, "-- for ever --" if loop == len(self.steps) else "-- and from here for ever --")
        heading = [f"at {show_values(self.parameters)}"] if self.parameters else []
        return "\n".join([*heading, *lines])


def follow(machine: Machine, occurrences: Iterable[Occurrence]) -> Trace:
    """Run a machine from its start. Raises ValueError at the first refused occurrence."""
    configuration = start(machine)
    names = tuple(variable.name for variable in machine.variables)
    steps = []
    for occurrence in occurrences:
        taken = step(machine, configuration, occurrence)
        if not isinstance(taken, Taken):
            raise ValueError(f"{show_occurrence(occurrence)} is refused in {configuration.state}: {taken.message}")  # noqa: TRY004  (the sequence is wrong, not its type)
        steps.append(_step(names, configuration, occurrence, taken))
        configuration = taken.configuration
    values = tuple(zip(names, machine.initial_values, strict=True))
    return Trace(tuple(machine.constants.items()), machine.entry_leaf(machine.initial), values, tuple(steps))


def _step(names: tuple[str, ...], before: Configuration, occurrence: Occurrence, taken: Taken) -> TraceStep:
    after = taken.configuration
    triples = zip(names, before.values, after.values, strict=True)
    changes = tuple((name, new) for name, old, new in triples if old != new)
    return TraceStep(occurrence, taken.transition, after.state, changes, taken.effects, taken.cancelled)


def show_occurrence(occurrence: Occurrence) -> str:
    """Return an occurrence as in a scenario: `verdict g.failed`; a timer with its state."""
    verdicts = ", ".join(f"{guard}.{outcome}" for guard, outcome in occurrence.verdicts)
    where = f"of {occurrence.source}" if occurrence.source else ""
    return " ".join(part for part in (occurrence.event, where, verdicts) if part)


def show_events(occurrences: Sequence[Occurrence], most: int = 9) -> str:
    """Return the events on one line; if there are more than `most`, the first two and the last ones."""
    if len(occurrences) <= most:
        return ", ".join(map(show_occurrence, occurrences))
    left_out = f"({len(occurrences) - most} events left out)"
    first, last = map(show_occurrence, occurrences[:2]), map(show_occurrence, occurrences[2 - most :])
    return ", ".join([*first, left_out, *last])


def show_loop(loop: int, last: int) -> str:
    """Return the steps after the first `loop`, up to the last: `step 4`, `steps 3 to 4`."""
    return f"step {last}" if last == loop + 1 else f"steps {loop + 1} to {last}"


def show_values(values: Iterable[tuple[str, Value]]) -> str:
    """Return values as in a document: `satisfied = true, retries = 0`."""
    return ", ".join(f"{name} = {show_value(value)}" for name, value in values)


@attrs.frozen
class RecordedStep:
    """A recorded step; None for what the record does not say."""

    occurrence: Occurrence
    line: int | None = None
    state: str | None = None
    changed: tuple[tuple[str, Value], ...] | None = None
    effects: tuple[str, ...] | None = None
    cancelled: tuple[str, ...] | None = None


@attrs.frozen
class RecordedTrace:
    """A trace that this program or another recorded: the machine, its parameters, and the steps.

    `loop` is the number of steps before those that repeat for ever.
    """

    steps: tuple[RecordedStep, ...]
    machine: str | None = None
    parameters: tuple[tuple[str, Value], ...] = ()
    state: str | None = None
    values: tuple[tuple[str, Value], ...] = ()
    loop: int | None = None


def to_record(trace: Trace, machine: str, loop: int | None = None) -> RecordedTrace:
    """Return a trace as a record."""
    steps = (RecordedStep(t.occurrence, t.line, t.state, t.changed, t.effects, t.cancelled) for t in trace.steps)
    return RecordedTrace(tuple(steps), machine, trace.parameters, trace.state, trace.values, loop)


ROW_COLUMNS = ("source", "event", "if", "update", "effects", "target")


def transition_cells(row: Transition) -> dict[str, str]:
    """Return the text of each of `ROW_COLUMNS`, in that order; cells may be empty."""
    return {
        "source": row.source,
        "event": row.event,
        "if": condition_text(row),
        "update": "; ".join(update_texts(row)),
        "effects": ", ".join(effect_texts(row)),
        "target": row.target,
    }


def state_kind(state: State) -> str:
    """Write the `kind` cell of a state."""
    end = "" if state.end is None else f"end when {unparse(state.end)}"
    return ", ".join(filter(None, (state.kind, end)))


def condition_text(row: Transition) -> str:
    """Write the `if` cell: nothing, a condition, `else`, or `else and` a condition."""
    if not row.is_else:
        return "" if row.condition == TRUE else unparse(row.condition)
    if row.condition == TRUE:
        return "else"
    # `and` binds more tightly than `or`: of all conditions only a disjunction needs parentheses here.
    condition = f"({unparse(row.condition)})" if isinstance(row.condition, Or) else unparse(row.condition)
    return f"else and {condition}"


def update_texts(row: Transition) -> tuple[str, ...]:
    """Write each update: `x = 1`, `x += 1` for `x = x + 1`, `x -= 1` for `x = x - 1`, `revoke x`."""
    return tuple(_update_text(update) for update in row.updates)


def _update_text(update: Assign | Revoke) -> str:
    name = update.variable
    if isinstance(update, Revoke):
        return f"revoke {name}"
    match update.value:
        case Arithmetic("+" | "-" as sign, Name(left), right) if left == name:
            return f"{name} {sign}= {unparse(right)}"
        case value:
            return f"{name} = {unparse(value)}"


def effect_texts(row: Transition) -> tuple[str, ...]:
    """Write each effect: its name, `cancel E` or `cancel`."""
    return tuple(str(item) for item in row.effects)


def escape_cell(text: str) -> str:
    r"""Write a text so that it stays in its cell: `|` becomes `\|`."""
    return text.replace("|", "\\|")


def align_rows(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return rows as lines with aligned columns; columns without any text are left out."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, columns padded to the widest cell; texts must be escaped already."""
    widths = [max(3, *(len(row[place]) for row in (header, *rows))) for place in range(len(header))]
    rule = ["-" * width for width in widths]
    return [_line(cells, widths) for cells in (header, rule, *rows)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def table(machine: Machine) -> str:
    """Write the transitions as an aligned table of `ROW_COLUMNS`, one row each in table order, ending in a newline."""
    rows = [[escape_cell(text) for text in transition_cells(row).values()] for row in machine.transitions]
    return "\n".join(table_lines(ROW_COLUMNS, rows)) + "\n"
