"""The Transitions table: its rows as written, and with every name resolved and every type checked.

`read_rows` reads the cells. `resolve_rows` takes the declared `Names` and returns `Transition` values in table order, one for each source and event.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import attrs

from dsa.declarations import STAR, STAY, TIMER_PREFIX, Assign, Cancel, Emit, Instance, Revoke, Transition
from dsa.errors import Span
from dsa.expr import TRUE, Expr, Verdict, walk
from dsa.lang import cells, namespace
from dsa.lang.cells import TableRecord
from dsa.lang.expression_parser import Findings
from dsa.lang.namespace import Names
from dsa.machine import duration_of

T = TypeVar("T")
_COLUMNS = ("source", "event", "if", "update", "effects", "target")
#: Columns whose names count as declared if the document has no table for them.
_DECLARING_COLUMNS = ("source", "event", "effects", "target")


@attrs.frozen
class WrittenRow:
    """A row whose cells could be read; its names are not resolved yet."""

    sources: tuple[cells.WrittenName, ...]
    events: tuple[cells.WrittenName, ...]
    is_else: bool
    condition: Expr
    updates: tuple[Assign | Revoke, ...]
    effects: tuple[Emit | Cancel, ...]
    target: cells.WrittenName
    span: Span
    spans: tuple[tuple[str, Span], ...]
    instance: Instance = ()


def read_rows(records: list[TableRecord], findings: Findings) -> list[WrittenRow]:
    """Read the cells of every row; a row with an unreadable cell is reported and left out."""
    rows, spelling = [], dict[int, str]()
    reader = _CellReader(findings)
    for record in records:
        before = findings.count
        target = reader(_target, record, "target", "target")
        is_else, condition = reader(_conditions, record, "if", "if")
        row = WrittenRow(
            reader(_sources, record, "source", "source"),
            reader(_events, record, "event", "event"),
            is_else,
            condition,
            reader(_updates, record, "update", "update"),
            reader(_effects, record, "effects", "effects"),
            target or cells.WrittenName(STAY, record.span),
            record.span,
            reader(_spans, record, "source", "spans"),
            record.instance,
        )
        if findings.count == before:
            rows.append(row)
        for column in _DECLARING_COLUMNS if findings.count > before else ():
            findings.doubt(record[column].text)
    return [_spelled_alike(row, spelling) for row in rows]


class _CellReader:
    """A reader that reads each cell once that the rows share which a row with families stands for."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._results: dict[tuple[int, str], object] = {}
        self._span: Span | None = None

    def __call__(self, read: Callable[[TableRecord, Findings], T], record: TableRecord, column: str, what: str) -> T:
        """Return what a cell of a row says; a fault is reported for each row."""
        if record.span is not self._span:
            self._results, self._span = {}, record.span
        key = (id(record.cells.get(column)), what)
        if key not in self._results:
            before = self._findings.count
            result = read(record, self._findings)
            if self._findings.count > before:
                return result
            self._results[key] = result
        return self._results[key]  # type: ignore[return-value]  # of this reader


def _spans(record: TableRecord, _: Findings) -> tuple[tuple[str, Span], ...]:
    return tuple((column, record[column].span()) for column in _COLUMNS if column in record.cells)


def _conditions(record: TableRecord, findings: Findings) -> tuple[bool, Expr]:
    return cells.condition(record["if"], findings) or (False, TRUE)


def _events(record: TableRecord, findings: Findings) -> tuple[cells.WrittenName, ...]:
    return cells.events(record["event"], findings)


def _updates(record: TableRecord, findings: Findings) -> tuple[Assign | Revoke, ...]:
    return cells.updates(record["update"], findings) or ()


def _effects(record: TableRecord, findings: Findings) -> tuple[Emit | Cancel, ...]:
    return cells.effects(record["effects"], findings)


def _spelled_alike(row: WrittenRow, spelling: dict[int, str]) -> WrittenRow:
    """Spell timers as in the first row with the same duration."""
    if not any(event.name.startswith(TIMER_PREFIX) for event in row.events):
        return row
    events = (
        attrs.evolve(each, name=spelling.setdefault(duration, each.name))
        if (duration := duration_of(each.name))
        else each
        for each in row.events
    )
    return attrs.evolve(row, events=tuple(events))


def _sources(record: TableRecord, findings: Findings) -> tuple[cells.WrittenName, ...]:
    cell = record["source"]
    if cell.plain in {STAR, r"\*", STAY}:
        return (cells.WrittenName(STAY if cell.plain == STAY else STAR, cell.span()),)
    star = cell.text.find(STAR)
    if star >= 0:
        message = "'*' stands for all states that are not final, so it must be alone in its cell"
        findings.error("DSA107", message, cell.span(star, star + 1))
        return ()
    return cells.name_list(cell, "a state", findings)


def _target(record: TableRecord, findings: Findings) -> cells.WrittenName | None:
    cell = record["target"]
    if cell.plain in {STAY, STAR}:
        return cells.WrittenName(cell.plain, cell.span())
    name = cells.one_name(cell, "a state, or '='", findings)
    return None if name is None else cells.WrittenName(name, cell.span())


def mentioned_states(rows: Iterable[WrittenRow]) -> list[tuple[str, Span]]:
    """Return the states that rows mention: sources and targets, row by row."""
    mentions = [(place.name, place.span) for row in rows for place in (*row.sources, row.target)]
    return [(name, span) for name, span in mentions if name not in {STAR, STAY}]


def first_source(rows: Iterable[WrittenRow]) -> str:
    """Return the first source that is a state, or else the first target, or the empty text."""
    sources = [place.name for row in rows for place in row.sources]
    targets = [row.target.name for row in rows]
    return next((name for name in (*sources, *targets) if name not in {STAR, STAY}), "")


def mentioned_events(rows: Iterable[WrittenRow]) -> list[tuple[str, Span]]:
    """Return the events that rows mention, without timers."""
    several = list(rows)
    failures = {f"{effect}.failed" for effect, _ in mentioned_effects(several)}
    places = (event for row in several for event in row.events)
    names = ((event.name, event.span) for event in places if not event.name.startswith(TIMER_PREFIX))
    return [(name, span) for name, span in names if name not in failures]


def mentioned_effects(rows: Iterable[WrittenRow]) -> list[tuple[str, Span]]:
    """Return the effects that rows emit."""
    emits = (item for row in rows for item in row.effects if isinstance(item, Emit))
    return [(emit.effect, emit.span) for emit in emits if emit.span is not None]


def resolve_rows(rows: Iterable[WrittenRow], names: Names, findings: Findings) -> tuple[Transition, ...]:
    """Resolve the names of every row; a row stands for one transition for each of its sources and events."""
    transitions: list[Transition] = []
    for row in rows:
        before = findings.count
        sources = [_state(source, names, findings) for source in row.sources]
        events = [_event(event, names, findings) for event in row.events]
        target = _state(row.target, names, findings)
        condition = _condition(row, names, findings)
        updates = tuple(_update(update, names, findings) for update in row.updates)
        _require_assigned_once(updates, findings)
        effects = tuple(_effect(item, names, findings) for item in row.effects)
        _require_places(row, sources, target, names, findings)
        if findings.count > before:
            continue
        transitions += [
            Transition(
                source,
                event,
                target,
                condition,
                row.is_else,
                updates,
                effects,
                span=row.span,
                spans=row.spans,
                instance=row.instance,
            )
            for source in sources
            for event in events
        ]
    return tuple(transitions)


def _state(place: cells.WrittenName, names: Names, findings: Findings) -> str:
    if place.name in {STAR, STAY}:
        return place.name
    full = names.full_state(place.name)
    if full is None:
        names.report_unknown("state", place, findings)
    return full or place.name


def _event(place: cells.WrittenName, names: Names, findings: Findings) -> str:
    if not place.name.startswith(TIMER_PREFIX) and place.name not in names.events:
        names.report_unknown("event", place, findings)
    return place.name


def _condition(row: WrittenRow, names: Names, findings: Findings) -> Expr:
    resolver = namespace.Resolver(names.conditions, findings, row.span)
    condition = resolver.condition(row.condition)
    guards = set()
    for node in walk(condition):
        if isinstance(node, Verdict) and node.guard not in guards:
            guards.add(node.guard)
            strangers = [
                event.name for event in row.events if event.name not in names.judged_events.get(node.guard, ())
            ]
            if strangers:
                message = f"guard '{node.guard}' does not judge {'the event' if len(strangers) == 1 else 'the events'} {', '.join(map(repr, strangers))}"
                findings.error(
                    "DSA209", message, node.span or row.span, names.judging_hint(node.guard), about=node.guard
                )
    return condition


def _update(update: Assign | Revoke, names: Names, findings: Findings) -> Assign | Revoke:
    span = update.span
    assert span is not None, "every update from cells.updates has its place"
    if update.variable not in names.variables:
        names.report_unknown("variable", cells.WrittenName(update.variable, span), findings)
        return update
    if isinstance(update, Revoke):
        if names.variable_scopes[update.variable] != "workflow":
            message = (
                f"'{update.variable}' has the scope environment; 'revoke' is only for variables with the scope workflow"
            )
            findings.error("DSA204", message, span, f"write {update.variable} = VALUE")
        return update
    resolver = namespace.Resolver(names.updates, findings, span)
    value = resolver.expect(update.value, namespace.type_of(names.variables[update.variable]))
    return Assign(update.variable, value, span=span)


def _require_assigned_once(updates: tuple[Assign | Revoke, ...], findings: Findings) -> None:
    spans: dict[str, Span | None] = {}
    for update in updates:
        if update.variable in spans and update.span is not None:
            hint = f"all updates of a row happen at the same time: keep one assignment to '{update.variable}'"
            if spans[update.variable] == update.span:
                hint = "an update that begins with 'all f:' is made for each value of f: use f in the index of the variable, or leave out 'all f:'"
            findings.error("DSA208", f"'{update.variable}' is assigned twice in this row", update.span, hint)
        spans.setdefault(update.variable, update.span)


def _effect(item: Emit | Cancel, names: Names, findings: Findings) -> Emit | Cancel:
    if item.effect is not None and item.effect not in names.effects and item.span is not None:
        names.report_unknown("effect", cells.WrittenName(item.effect, item.span), findings)
    return item


def _require_places(row: WrittenRow, sources: list[str], target: str, names: Names, findings: Findings) -> None:
    for source, place in zip(sources, row.sources, strict=True):
        if source == STAY:
            findings.error(
                "DSA207",
                "'=' is a target, not a source",
                place.span,
                "name a state, or write '*' for every state that is not final",
            )
        elif source in names.final_states:
            message = f"state '{source}' is final, so no row can leave it"
            findings.error(
                "DSA207",
                message,
                place.span,
                "a final state ends the run; if runs continue from here, do not mark it final",
            )
    if target == STAR:
        findings.error("DSA207", "'*' is a source, not a target", row.target.span, "name a state, or write '=' to stay")
