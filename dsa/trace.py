"""Traces: a machine's steps on a sequence of occurrences, their formats, and the texts of table cells.

`follow` runs a machine and returns a frozen `Trace`, which prints only what changed. `transition_cells` and its neighbours return the plain texts of a
row's cells, `table_lines` the lines of a Markdown table, and `table` a machine's transitions as one in canonical layout. The same machine gives the same
text. The module knows no files.

A `RecordedTrace` is a trace as text: JSON Lines (one line for the start, one for each step), or the Informal Trace Format of Apalache and Quint. Other programs
may have written it: a step needs only its `event`, with its `verdicts` and a timer's `source`; everything else is kept for comparison. The readers raise
ValueError, with the line, for text that is not a trace.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs

from dsa.declarations import Assign, Revoke, State, Transition
from dsa.expr import OUTCOMES, TRUE, Arithmetic, Name, Or, Outcome, Value, show_value, unparse
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
            lines.insert(loop + 1, "-- for ever --" if loop == len(self.steps) else "-- these steps repeat for ever --")
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


# -- recorded traces as text -----------------------------------------------------------------------------------------------

#: The names in the Informal Trace Format of everything but variables; no variable can have them.
_STATE, _EVENT, _VERDICTS, _SOURCE, _LINE = (
    "dsa::state",
    "mbt::actionTaken",
    "dsa::verdicts",
    "dsa::source",
    "dsa::line",
)
_EFFECTS, _CANCELLATIONS = "dsa::effects", "dsa::cancelled"
#: The keys of the first line of JSON Lines.
_HEAD = frozenset({"machine", "parameters", "state", "values", "loop"})


def to_jsonl(trace: RecordedTrace) -> str:
    """Write a trace as JSON Lines."""
    head = {
        "machine": trace.machine,
        "parameters": dict(trace.parameters),
        "state": trace.state,
        "values": dict(trace.values),
        "loop": trace.loop,
    }
    return "".join(f"{json.dumps(line)}\n" for line in (head, *map(step_as_json, trace.steps)))


def step_as_json(step: RecordedStep) -> dict[str, object]:
    """Return a step as a JSON object."""
    return {
        "event": step.occurrence.event,
        "verdicts": dict(step.occurrence.verdicts),
        "source": step.occurrence.source,
        "line": step.line,
        "state": step.state,
        "changed": None if step.changed is None else dict(step.changed),
        "effects": None if step.effects is None else list(step.effects),
        "cancelled": None if step.cancelled is None else list(step.cancelled),
    }


def _fault(message: str, line: int | None = None) -> ValueError:
    return ValueError(f"line {line}: {message}" if line else message)


def from_text(text: str) -> RecordedTrace:
    """Read a trace in either format. Raises ValueError."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return from_jsonl(text)
    return from_itf(whole) if isinstance(whole, dict) and "states" in whole else from_jsonl(text)


def from_jsonl(text: str) -> RecordedTrace:
    """Read JSON Lines. The first line may say where the run began; the default is the machine's start."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    objects = [(number, _object(number, line)) for number, line in lines]
    head = objects.pop(0)[1] if objects and "event" not in objects[0][1] else {}
    if head and not _HEAD & head.keys():
        keys = f"'event', which a step has, nor any of {', '.join(sorted(_HEAD))}, which a first line has"
        raise _fault(f"it has neither {keys}", lines[0][0])
    steps = tuple(_recorded_step(number, record) for number, record in objects)
    if not steps and not head:
        raise _fault('the trace is empty: write one line for each step, such as {"event": "specification"}')
    first = lines[0][0]
    return RecordedTrace(
        steps,
        _text(first, head, "machine"),
        _values(first, head, "parameters") or (),
        _text(first, head, "state"),
        _values(first, head, "values") or (),
        _loop(first, head, len(steps)),
    )


def _object(number: int, line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise _fault(
            f"not JSON ({getattr(fault, 'msg', 'nested too deeply')}); write one JSON object on each line", number
        ) from None
    if not isinstance(value, dict):
        raise _fault('not an object; write one such as {"event": "specification"}', number)
    return value


def _recorded_step(number: int, record: dict[str, object]) -> RecordedStep:
    event = _text(number, record, "event")
    if event is None:
        raise _fault("a step has no 'event'", number)
    occurrence = Occurrence(event, _verdicts(number, record.get("verdicts")), _text(number, record, "source"))
    line = record.get("line")
    return RecordedStep(
        occurrence,
        line if isinstance(line, int) else None,
        _text(number, record, "state"),
        _values(number, record, "changed"),
        _names(number, record, "effects"),
        _names(number, record, "cancelled"),
    )


def _verdicts(number: int, verdicts: object) -> tuple[tuple[str, Outcome], ...]:
    if verdicts is None:
        return ()
    if not isinstance(verdicts, dict) or not all(verdict in OUTCOMES for verdict in verdicts.values()):
        raise _fault(f"'verdicts' must map guards to {', '.join(OUTCOMES)}", number)
    return tuple(cast(dict[str, Outcome], verdicts).items())


def _text(number: int, record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise _fault(f"'{key}' must be a text", number)
    return value


def _values(number: int, record: Mapping[str, Any], key: str) -> tuple[tuple[str, Value], ...] | None:
    values = record.get(key)
    if values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(value, bool | int | str) for value in values.values()):
        raise _fault(f"'{key}' must map names to numbers, true, false or texts", number)
    return tuple(values.items())


def _names(number: int, record: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = record.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _fault(f"'{key}' must be a list of names", number)
    return tuple(names)


def _loop(number: int, head: Mapping[str, Any], steps: int) -> int | None:
    loop = head.get("loop")
    if loop is not None and not (isinstance(loop, int) and 0 <= loop <= steps):
        raise _fault(f"'loop' must be a number of steps, 0 to {steps}", number)
    return loop


def to_itf(trace: RecordedTrace) -> str:
    """Return a trace in the Informal Trace Format: every state with all variables, and its numbers."""
    assert trace.state is not None, "a trace that is written whole says where it begins"
    values, state, states = dict(trace.values), trace.state, []
    for number, recorded_step in enumerate((None, *trace.steps)):
        values |= dict(recorded_step.changed or ()) if recorded_step else {}
        state = (recorded_step.state or state) if recorded_step else state
        itf_state: dict[str, object] = {"#meta": {"index": number}, _STATE: state}
        itf_state |= {name: _itf(value) for name, value in values.items()}
        states.append(itf_state | _moment(recorded_step))
    meta = {"format": "ITF", "machine": trace.machine, "parameters": dict(trace.parameters)}
    variables = [_STATE, *values, *_moment(None)]
    whole = {"#meta": meta, "vars": variables, "states": states}
    return json.dumps(whole | ({} if trace.loop is None else {"loop": trace.loop}), indent=2) + "\n"


def _moment(step: RecordedStep | None) -> dict[str, object]:
    occurrence = step.occurrence if step else None
    return {
        _EVENT: occurrence.event if occurrence else "start",
        _VERDICTS: {"#map": [list(pair) for pair in occurrence.verdicts] if occurrence else []},
        _SOURCE: (occurrence.source or "") if occurrence else "",
        _EFFECTS: list(step.effects or ()) if step else [],
        _CANCELLATIONS: list(step.cancelled or ()) if step else [],
        _LINE: _itf((step.line or 0) if step else 0),
    }


def _itf(value: Value) -> Any:  # noqa: ANN401  (JSON)
    return {"#bigint": str(value)} if isinstance(value, int) and not isinstance(value, bool) else value


def from_itf(whole: dict[str, object]) -> RecordedTrace:
    """Read a trace in the Informal Trace Format, as `to_itf` writes it."""
    states = whole["states"]
    if not isinstance(states, list) or not states or not all(isinstance(s, dict) and _EVENT in s for s in states):
        raise _fault(f"'states' is not a list of states that each have '{_EVENT}'")
    meta = whole.get("#meta")
    head = dict(meta) if isinstance(meta, dict) else {}
    valuations = [dict(_own(state)) for state in states]
    steps = []
    for before, after, state in zip(valuations, valuations[1:], states[1:], strict=False):
        changes = {name: value for name, value in after.items() if before.get(name) != value}
        steps.append(_recorded_step(1, _as_step(state) | {"changed": changes}))
    first = {**head, "state": states[0].get(_STATE), "values": valuations[0], "loop": whole.get("loop")}
    return RecordedTrace(
        tuple(steps),
        _text(1, first, "machine"),
        _values(1, first, "parameters") or (),
        _text(1, first, "state"),
        _values(1, first, "values") or (),
        _loop(1, first, len(steps)),
    )


def _as_step(state: dict[str, object]) -> dict[str, object]:
    verdicts = state.get(_VERDICTS)
    pairs = verdicts.get("#map", []) if isinstance(verdicts, dict) else []
    good = isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)  # noqa: PLR2004  (a pair)
    if not good:
        raise _fault(f"'{_VERDICTS}' must be {{\"#map\": [[GUARD, VERDICT], ..]}}")
    return {
        "event": state[_EVENT],
        "verdicts": dict(pairs),
        "source": state.get(_SOURCE) or None,
        "line": _plain(state.get(_LINE)) or None,
        "state": state.get(_STATE),
        "effects": state.get(_EFFECTS),
        "cancelled": state.get(_CANCELLATIONS),
    }


def _own(state: dict[str, object]) -> Iterator[tuple[str, Any]]:
    """Yield the machine's variables in a state."""
    for name, value in state.items():
        if "::" not in name and not name.startswith("#"):
            yield name, _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401  (JSON)
    if isinstance(value, dict) and "#bigint" in value:
        try:
            return int(value["#bigint"])
        except (TypeError, ValueError):
            raise _fault(f"'#bigint' must be a number written as a text, not {value['#bigint']!r}") from None
    return value
