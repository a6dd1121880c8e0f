"""The state tree: a machine as statechart tools run it, with nested states and their timers, and transitions between leaves.

`Leaves` returns the transitions at the machine's parameter values, each with the whole condition under which `step` takes its row. One flag for each
effect with answers says whether it is outstanding; if several of it may be, a number says how many are. Conditions read these, the verdicts and the
variables. A tool that takes any transition whose condition is true, and ignores events without one, does what `step` does (S3 to S7, S11).

`tree` returns the states as frozen nodes. Only the start enters the tree from above: transitions lead to leaves.
"""

from collections.abc import Iterator
from typing import Literal

import attrs

from dsa.declarations import OUTSIDE, STAR, STAY, TIMER_PREFIX, Assign, Cancel, Transition, parse_duration
from dsa.expr import (
    FALSE,
    TRUE,
    Arithmetic,
    Expr,
    Integer,
    Leaf,
    Name,
    all_of,
    any_of,
    comparison,
    constant,
    negation,
    simplify,
    substitute,
)
from dsa.ground_system import ground
from dsa.machine import Machine, sources_left
from dsa.semantics import Reason
from dsa.system import closed_system, counter, in_domain
from dsa.targets.closed_model import ranges_of, require_few_outstanding, require_numbers
from dsa.targets.spelling import export_error
from dsa.targets.statechart import EventKey, leaf_rows

#: The greatest whole number up to which a double has them all.
_EXACT = 2**53 - 1


@attrs.frozen
class LeafTransition:
    """One row in one leaf.

    `key` is the event, or the timer with its source. `target` is the leaf entered, None if no state is left. `flags` are the
    new values of effects' flags that change, `numbers` those of their numbers (`dsa.system.counter`). `again` says that the row's own timer
    starts again although its source is not left.
    """

    leaf: str
    key: EventKey
    row: Transition
    number: int
    condition: Expr
    updates: tuple[tuple[str, Expr], ...]
    flags: tuple[tuple[str, bool], ...]
    numbers: tuple[tuple[str, Expr], ...]
    target: str | None
    again: bool

    @property
    def comment(self) -> str:
        """Return the line and the row: `line 40: idle | specification | generating`."""
        return f"{f'line {self.row.span.line}' if self.row.span else f'row {self.number + 1}'}: {self.row}"


class Leaves:
    """The arrows of a machine, leaf by leaf.

    A condition has only what it needs. It requires that an update stays in its domain, that no other row is enabled and that no effect is
    emitted twice only if names and domains do not exclude it; and `else` is the order in which arrows are tried, unless a row
    before it may be refused.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._domains = {variable.name: variable for variable in machine.variables}
        self._places = {id(row): place for place, row in enumerate(machine.transitions)}
        system = closed_system(machine)
        if system.left_out:
            raise export_error(f"{machine.name} is too large to be exported: {'; '.join(system.left_out)}")
        whole = ground(system)
        self._ranges = ranges_of(whole.fields)
        self._taken = {(system.locations[c.source].state, c.occurrence.source, c.row) for c in system.commands}
        self._doubts: set[tuple[str, int, Reason]] = {
            (system.locations[fault.location].state, row, fault.reason)
            for fault in system.faults
            if fault.rows and whole.ground_condition(fault.condition) != FALSE
            for row in fault.rows
        }

    def require_exact(self, tool: str) -> None:
        """Raise DsaError if a number may lie outside the exact whole numbers of ECMAScript."""
        require_few_outstanding(self._machine, tool, _EXACT)
        arrows = (arrow for leaf in self._machine.leaves for arrow in self.arrows(leaf))
        expressions = ((a.comment, expr) for a in arrows for expr in (a.condition, *(value for _, value in a.updates)))
        require_numbers(self._ranges, expressions, tool, -_EXACT, _EXACT)

    def arrows(self, leaf: str) -> Iterator[LeafTransition]:
        """Yield the arrows that leave a leaf: for each event, those of `else` last, else in table order."""
        for key, rows in leaf_rows(self._machine, leaf):
            for row in sorted(rows, key=lambda row: row.is_else):
                if (leaf, key[0], self._places[id(row)]) in self._taken:
                    yield self._arrow(leaf, key, row, rows)

    def _arrow(self, leaf: str, key: EventKey, row: Transition, rows: tuple[Transition, ...]) -> LeafTransition:
        machine, number = self._machine, self._places[id(row)]
        target_leaf = leaf if row.target == STAY else machine.entry_leaf(row.target)
        updates = tuple(_updates(machine, row))
        room, outstanding = _outstanding(machine, row, key, target_leaf)
        parts = [_is_pending(machine, key), *self._enabling_conditions(leaf, row, rows)]
        if (leaf, number, "out_of_domain") in self._doubts:
            parts += [in_domain(self._domains[name], value) for name, value in updates]
        if (leaf, number, "emitted_twice") in self._doubts:
            parts += room
        condition = self._with_values(all_of(parts))
        changes = tuple((n, self._with_values(v)) for n, v in updates if v != Name(n, "variable"))
        target = None if row.target == STAY else target_leaf
        again = key[0] is not None and (target is None or key[0] not in sources_left(machine, leaf, target_leaf))
        flags = tuple(
            (effect, value == TRUE) for effect, value in outstanding if effect not in machine.numbered_effects
        )
        numbers = tuple((effect, value) for effect, value in outstanding if effect in machine.numbered_effects)
        return LeafTransition(leaf, key, row, number, condition, changes, flags, numbers, target, again)

    def _enabling_conditions(self, leaf: str, row: Transition, rows: tuple[Transition, ...]) -> Iterator[Expr]:
        """Yield the conditions under which a row, and no other, is enabled, unless the order in which arrows are tried implies them."""
        plain = [other for other in rows if not other.is_else]
        is_by_order = not any(
            (leaf, self._places[id(other)], reason) in self._doubts for other in plain for reason in _REASONS
        )
        otherwise = negation(any_of(self._read(other) for other in plain))
        yield self._read(row)
        if row.is_else and not is_by_order:
            yield otherwise
        if (leaf, self._places[id(row)], "ambiguous") in self._doubts:
            for other in rows:
                if other is not row:
                    condition = self._read(other)
                    yield negation(all_of([otherwise, condition]) if other.is_else else condition)

    def _read(self, row: Transition) -> Expr:
        """Return a row's condition over flags and numbers: `pending` does not count what the row's event answers (S3)."""
        origin = OUTSIDE if row.is_timer else self._machine.event_named[row.event].origin

        def leaf(node: Leaf) -> Expr:
            if not isinstance(node, Name) or node.kind != "pending":
                return node
            effects = [node.name] if node.name else self._machine.effects_with_answers
            return any_of(_more_than(self._machine, effect, 1 if effect == origin else 0) for effect in effects)

        return substitute(row.condition, leaf)

    def _with_values(self, expr: Expr) -> Expr:
        """Replace the parameters by their values."""
        constants = self._machine.constants

        def leaf(node: Leaf) -> Expr:
            return constant(constants[node.name]) if isinstance(node, Name) and node.kind == "parameter" else node

        return substitute(expr, leaf)


_REASONS: tuple[Reason, ...] = ("ambiguous", "out_of_domain", "emitted_twice")


def _is_pending(machine: Machine, key: EventKey) -> Expr:
    """Return the condition that the effect of an answer is outstanding (S7)."""
    source, event = key
    origin = OUTSIDE if source is not None else machine.event_named[event].origin
    return TRUE if origin == OUTSIDE else _more_than(machine, origin, 0)


def _more_than(machine: Machine, effect: str, number: int) -> Expr:
    """Return the condition that more of an effect are outstanding than 0 or 1."""
    if effect in machine.numbered_effects:
        return comparison(counter(effect), ">", Integer(number))
    return FALSE if number else Name(effect, "pending")


def _updates(machine: Machine, row: Transition) -> Iterator[tuple[str, Expr]]:
    initial = {variable.name: variable.initial for variable in machine.variables}
    for update in row.updates:
        yield update.variable, simplify(update.value if isinstance(update, Assign) else initial[update.variable])


def _outstanding(
    machine: Machine, row: Transition, key: EventKey, target_leaf: str
) -> tuple[list[Expr], list[tuple[str, Expr]]]:
    """Return the conditions that no effect is emitted once too often, and the new value of each flag and number that a row changes (S7)."""
    source, event = key
    several = machine.numbered_effects
    none: dict[str, Expr] = {effect: Integer(0) if effect in several else FALSE for effect in machine.answers}
    before: dict[str, Expr] = {e: counter(e) if e in several else Name(e, "pending") for e in none}
    now = dict(before)
    origin = OUTSIDE if source is not None else machine.event_named[event].origin
    if origin in now:
        now[origin] = _changed_by(now[origin], "-") if origin in several else FALSE
    room = []
    for item in row.effects:
        if isinstance(item, Cancel):
            now |= {effect: nothing for effect, nothing in none.items() if item.effect in {None, effect}}
        elif item.effect in several:
            room.append(comparison(now[item.effect], "<", Integer(machine.most_outstanding[item.effect])))
            now[item.effect] = _changed_by(now[item.effect], "+")
        elif item.effect in now:
            room.append(negation(now[item.effect]))
            now[item.effect] = TRUE
    if target_leaf in machine.final_states:
        now = none
    return room, [(effect, value) for effect, value in now.items() if value != before[effect]]


def _changed_by(number: Expr, sign: Literal["+", "-"]) -> Expr:
    return simplify(Arithmetic(sign, number, Integer(1)))


@attrs.frozen
class Timer:
    """A timer of one source. `event` is a unique name with its source; no event of a machine has such a name."""

    source: str
    duration: str
    event: str

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        duration_ms = parse_duration(self.duration.removeprefix(TIMER_PREFIX))
        assert duration_ms is not None, "timers are read as durations"
        return duration_ms


@attrs.frozen
class Node:
    """A state. `initial` is the child entered at the start, or the first one marked; `drops` are the timers that end here.

    `timers` start when it is entered and are dropped when it is left (S11). A final leaf drops those of everything around it.
    """

    name: str
    is_final: bool
    children: tuple["Node", ...]
    initial: str | None
    timers: tuple[Timer, ...]
    drops: tuple[Timer, ...] = ()


def timer(source: str, duration: str) -> Timer:
    """Return a timer: `after 30s` of `review`."""
    return Timer(source, duration, f"{duration} of {source}")


def timers_of(machine: Machine, source: str) -> tuple[Timer, ...]:
    """Return the timers of a source; `*` has some too."""
    events = machine.events_from.get(source, ())
    return tuple(timer(source, event) for event in events if event.startswith(TIMER_PREFIX))


def tree(machine: Machine) -> tuple[Node, ...]:
    """Return the states at the top level, with their children."""
    start = machine.entry_leaf(machine.initial)
    path = {start, *machine.ancestry(start)}
    return tuple(_node(machine, state.name, path) for state in machine.states if state.parent is None)


def _node(machine: Machine, name: str, path: set[str]) -> Node:
    inside = [state for state in machine.states if state.parent == name]
    first = [s for s in inside if s.name in path] or [s for s in inside if s.kind == "initial"] or inside
    is_final = name in machine.final_states
    drops: list[Timer] = []
    if is_final:
        around = name
        while around := around.rpartition(".")[0]:
            drops += timers_of(machine, around)
        drops += timers_of(machine, STAR)
    children = tuple(_node(machine, state.name, path) for state in inside)
    initial = first[0].name if first else None
    return Node(name, is_final, children, initial, timers_of(machine, name), tuple(drops))


def start_of(machine: Machine) -> str:
    """Return the state at the top level in which a run begins."""
    return machine.entry_leaf(machine.initial).partition(".")[0]
