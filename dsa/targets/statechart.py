"""Statecharts: a machine as a python-statemachine class, which is a second, independent engine and the way into its ecosystem.

`statechart` returns a `StateChart` subclass. `StatechartRun` sends it occurrences, and answers with the values of `dsa.semantics.step`. It must not call
`step`: python-statemachine chooses the row and the state.

The class is flat: one state per leaf, with the rows that S3 and S11 give it. Nested states would be less faithful: python-statemachine takes an outer
transition if every inner condition is false (in S3, inner rows replace outer ones), and a final child ends only its parent (here it ends the run).

The strict flags have these reasons: an exception in a callback must escape instead of becoming an event; an event without a row must raise; the
state must not change before the row's own code has agreed; and a target equal to the current state leaves and re-enters it (S11; `=` is a
transition without target). The ids are made here, because states or events named `model`, `send` or `states` would overwrite the
library's own attributes.
"""

import re
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import attrs

from dsa import semantics
from dsa.declarations import OUTSIDE, STAY, Assign, Cancel, Emit, Transition
from dsa.errors import OccurrenceError
from dsa.expr import Environment, Value, evaluate, holds, show_value
from dsa.machine import Machine, Precedence, duration_ms, environment, read_guards, sources_left

if TYPE_CHECKING:
    from statemachine import StateChart

#: A timer is its source and `after DURATION`; any other event has no source.
EventKey = tuple[str | None, str]

_STRICT = {
    "catch_errors_as_events": False,
    "allow_event_without_transition": False,
    "atomic_configuration_update": True,
    "enable_self_transition_entries": True,
    # Unreachable states and dead ends are findings of dsa.checks, with a place; here they would only be exceptions.
    "validate_disconnected_states": False,
    "validate_trap_states": False,
    "validate_final_reachability": False,
}


def statechart(machine: Machine) -> "type[StateChart]":
    """Build the python-statemachine class of a machine at its parameter values.

    An instance needs a `Memory` as its model and takes `send(event_id, occurrence=Occurrence(..))` with the ids of
    `event_ids`; `StatechartRun` does both. An event that no row accepts raises `TransitionNotAllowed`, a row that
    cannot be taken `RowRefusedError`, missing or extra verdicts `OccurrenceError`; nothing changes then.
    """
    from statemachine.io import create_machine_class_from_definition

    names, events = state_ids(machine), event_ids(machine)
    initial = semantics.start(machine).state
    states: dict[str, dict[str, Any]] = {}
    for leaf, state_id in names.items():
        transitions = {events[key]: _transitions(machine, names, leaf, rows) for key, rows in leaf_rows(machine, leaf)}
        final = leaf in machine.final_states
        states[state_id] = {"name": leaf, "initial": leaf == initial, "final": final, "on": transitions}
    class_name = re.sub(r"\W", "_", machine.name) or "machine"
    return create_machine_class_from_definition(class_name, states=states, **_STRICT)  # type: ignore[no-any-return]  # the library is not typed for us


def state_ids(machine: Machine) -> dict[str, str]:
    """Return the id of each leaf in the class: `s3_review_draft`, unique by its number, and never a reserved name."""
    return {leaf: f"s{index}_{_identifier(leaf)}" for index, leaf in enumerate(machine.leaves)}


def event_ids(machine: Machine) -> dict[EventKey, str]:
    """Return the id of each event, `E.failed` and timer in the class: `e1_verdict`, `e7_after_30s`."""
    timers = [(source, event) for source, event in machine.rows_from if event not in machine.event_named]
    keys: list[EventKey] = [*((None, event) for event in machine.event_named), *timers]
    return {key: f"e{index}_{_identifier(key[1])}" for index, key in enumerate(keys)}


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def leaf_rows(machine: Machine, leaf: str) -> list[tuple[EventKey, tuple[Transition, ...]]]:
    """Return the rows of a leaf by event: the innermost source's for events (S3), each armed timer's own (S11)."""
    if leaf in machine.final_states:
        return []
    events = ((event, machine.rows_for(leaf, event)) for event in machine.event_named)
    result: list[tuple[EventKey, tuple[Transition, ...]]] = [((None, event), rows) for event, rows in events if rows]
    result.extend(((source, event), machine.rows_from[source, event]) for source, event in machine.armed_timers(leaf))
    return result


def _transitions(
    machine: Machine, names: dict[str, str], leaf: str, rows: tuple[Transition, ...]
) -> list[dict[str, Any]]:
    """Return the definitions of one leaf's transitions for one event, in table order."""
    definitions = []
    for row in rows:
        target_leaf = leaf if row.target == STAY else machine.entry_leaf(row.target)
        code = _RowCode(machine, row, rows, leaf, target_leaf)
        target = None if row.target == STAY else names[target_leaf]
        definitions.append({"target": target, "validators": code.admit, "cond": code.is_met, "on": code.take})
    return definitions


@attrs.define(eq=False)
class Memory:
    """The memory of an instance of the class: python-statemachine's state id, the values, the outstanding effects, the order of timers.

    `row`, `effects` and `cancelled` are those of the last row taken.
    """

    values: tuple[Value, ...]
    outstanding: tuple[str, ...]
    state: str | None = None
    precedence: Precedence = frozenset()
    row: Transition | None = None
    effects: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class RowRefusedError(Exception):
    """Raised inside the engine by a row that cannot be taken; `reason`, `message` and `rows` are a Refusal's."""

    def __init__(self, reason: semantics.Reason, message: str, rows: tuple[Transition, ...] = ()) -> None:
        self.reason, self.message, self.rows = reason, message, rows
        super().__init__(message)


@attrs.frozen(eq=False)
class _RowCode:
    """The callables of one row in one leaf; python-statemachine hands in `model` and `occurrence` by name."""

    machine: Machine
    row: Transition
    rows: tuple[Transition, ...]
    leaf: str
    target_leaf: str

    def admit(self, model: Memory, occurrence: semantics.Occurrence) -> None:
        """Refuse a late occurrence, then one with other verdicts than these rows read (S4)."""
        if why := _late(self.machine, model, occurrence):
            raise RowRefusedError("late", why)
        if why := semantics.early(model.precedence, occurrence.source, occurrence.event):
            raise RowRefusedError("early", why)
        required_guards, actual_guards = read_guards(self.rows), tuple(guard for guard, _ in occurrence.verdicts)
        if required_guards != actual_guards:
            raise OccurrenceError(
                f"'{occurrence.event}' needs verdicts of ({', '.join(required_guards)}), not of ({', '.join(actual_guards)})"
            )

    def is_met(self, model: Memory, occurrence: semantics.Occurrence) -> bool:
        """Return whether this row's condition is true here, with `else` as in S3."""
        return self._is_enabled(self.row, self._valuation(model, occurrence))

    def take(self, model: Memory, occurrence: semantics.Occurrence) -> None:
        """Update the memory, or raise and change nothing; the engine moves to the target after this returns."""
        valuation = self._valuation(model, occurrence)
        # The engine stops at the first row whose condition is true; S4 asks that it be the only one.
        rivals = tuple(row for row in self.rows if self._is_enabled(row, valuation))
        if len(rivals) > 1:
            raise RowRefusedError("ambiguous", f"{len(rivals)} rows are enabled at once", rivals)
        values = self._values_after(model.values, valuation)
        outstanding, cancelled = self._effects_after(model.outstanding)
        model.values, model.outstanding, model.row = values, outstanding, self.row
        model.precedence = self._precedence_after(model.precedence)
        model.effects = tuple(item.effect for item in self.row.effects if isinstance(item, Emit))
        model.cancelled = cancelled

    def _effects_after(self, before: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the outstanding effects after the row, and those it dropped. This is S7 again, for a second engine."""
        origin = OUTSIDE if self.row.is_timer else self.machine.event_named[self.row.event].origin
        now, dropped_effects = [(effect, "older") for effect in before], set[str]()
        if (origin, "older") in now:
            now.remove((origin, "older"))
        for item in self.row.effects:
            if isinstance(item, Cancel):
                dropped_effects |= {effect for effect, age in now if age == "older" and item.effect in (None, effect)}
                now = [each for each in now if item.effect not in (None, each[0])]
            elif item.effect in self.machine.answers:
                limit = self.machine.most_outstanding[item.effect]
                if [effect for effect, _ in now].count(item.effect) == limit:
                    why = semantics.too_many_text(self.machine, item.effect)
                    raise RowRefusedError("emitted_twice", why, (self.row,))
                now.append((item.effect, "new"))
        if self.target_leaf in self.machine.final_states:
            dropped_effects |= {effect for effect, age in now if age == "older"}
            now = []
        return tuple(sorted(effect for effect, _ in now)), tuple(sorted(dropped_effects))

    def _precedence_after(self, before: Precedence) -> Precedence:
        """Return the order of timers after the row. This is S11 again, for a second engine."""
        old, new = set(self.machine.armed_timers(self.leaf)), set(self.machine.armed_timers(self.target_leaf))
        left = set[str]() if self.row.target == STAY else sources_left(self.machine, self.leaf, self.target_leaf)
        remaining = {
            timer for timer in old & new if timer[0] not in left and timer != (self.row.source, self.row.event)
        }
        pairs = ((u, t) for t in new for u in new if duration_ms(self.machine, u) < duration_ms(self.machine, t))
        return frozenset((u, t) for u, t in pairs if t not in remaining or (u in remaining and (u, t) in before))

    def _valuation(self, model: Memory, occurrence: semantics.Occurrence) -> Environment:
        """Return values, verdicts, and what is outstanding without the effect that this answers. This is S3 again, for a second engine."""
        origin = None if self.row.is_timer else self.machine.event_named[self.row.event].origin
        names = list(model.outstanding)
        if origin in names:
            names.remove(origin)
        pending = {f"pending {effect}": effect in names for effect in self.machine.answers} | {"pending": names != []}
        return {**environment(self.machine, model.values), **dict(occurrence.verdicts), **pending}

    def _is_enabled(self, row: Transition, valuation: Environment) -> bool:
        if row.is_else and any(holds(other.condition, valuation) for other in self.rows if not other.is_else):
            return False
        return holds(row.condition, valuation)

    def _values_after(self, before: tuple[Value, ...], valuation: Environment) -> tuple[Value, ...]:
        """Return the values after the updates, all of which read the values before (S5)."""
        updates = {update.variable: update for update in self.row.updates}
        after: list[Value] = []
        for index, variable in enumerate(self.machine.variables):
            update = updates.get(variable.name)
            if update is None:
                value = before[index]
            elif isinstance(update, Assign):
                value = evaluate(update.value, valuation)
            else:
                value = self.machine.initial_values[index]
            domain = self.machine.values_of[variable.name]
            if not domain.contains(value):
                why = f"{variable.name} = {show_value(value)} lies outside {domain}"
                raise RowRefusedError("out_of_domain", why, (self.row,))
            after.append(value)
        return tuple(after)


def _late(machine: Machine, memory: Memory, occurrence: semantics.Occurrence) -> str:
    """Return why an answer comes too late, or return the empty text; a timer that is not armed has no transition."""
    if occurrence.source is not None:
        return ""
    origin = machine.event_named[occurrence.event].origin
    if origin == OUTSIDE or origin in memory.outstanding:
        return ""
    return f"{occurrence.event} answers {origin}, which is not outstanding"


class StatechartRun:
    """A run of a machine on python-statemachine, from any configuration; mutable, for one thread.

    `send` answers like `dsa.semantics.step` at the run's configuration, and moves on if a row is taken.
    """

    def __init__(self, machine: Machine, configuration: semantics.Configuration | None = None) -> None:
        self.machine = machine
        self._class = statechart(machine)
        self._id_of_state = state_ids(machine)
        self._state_of_id = {state_id: leaf for leaf, state_id in self._id_of_state.items()}
        self._id_of_event = event_ids(machine)
        self._rows = {leaf: dict(leaf_rows(machine, leaf)) for leaf in machine.leaves}
        self._place(configuration or semantics.start(machine))

    def _place(self, configuration: semantics.Configuration) -> None:
        state_id = self._id_of_state[configuration.state]
        self._memory = Memory(configuration.values, configuration.outstanding, state_id, configuration.precedence)
        self._chart = self._class(model=self._memory)

    @property
    def configuration(self) -> semantics.Configuration:
        """The run's configuration; it may be set to any of the machine."""
        state = self._state_of_id[self._chart.current_state_value]
        here = self._memory
        return semantics.Configuration(state, here.values, here.outstanding, here.precedence)

    @configuration.setter
    def configuration(self, configuration: semantics.Configuration) -> None:
        if self._chart.is_terminated:  # the engine stops for good when it enters a final state
            self._place(configuration)
            return
        self._memory.values, self._memory.outstanding = configuration.values, configuration.outstanding
        self._memory.precedence = configuration.precedence
        self._chart.current_state_value = self._id_of_state[configuration.state]

    def send(self, occurrence: semantics.Occurrence) -> semantics.Taken | semantics.Refusal:
        """Let the engine take a row, or refuse and change nothing. Raises OccurrenceError as `step` does."""
        semantics.require_known(self.machine, occurrence)
        event_id = self._id_of_event[occurrence.source, occurrence.event]
        try:
            self._chart.send(event_id, occurrence=occurrence)
        except RowRefusedError as fault:
            return self._refusal(fault.reason, fault.message, fault.rows)
        except self._chart.TransitionNotAllowed:
            return self._not_allowed(occurrence)
        assert self._memory.row is not None, "the engine took no row and did not say so"
        return semantics.Taken(self.configuration, self._memory.row, self._memory.effects, self._memory.cancelled)

    def _not_allowed(self, occurrence: semantics.Occurrence) -> semantics.Refusal:
        """Return the refusal, with its reason (S4), behind the engine's TransitionNotAllowed."""
        state = self.configuration.state
        if state in self.machine.final_states:
            return self._refusal("finished", f"{state} is final")
        rows = self._rows[state].get((occurrence.source, occurrence.event), ())
        if rows:
            return self._refusal("invalid_state", f"no row for {occurrence.event} is enabled", rows)
        if occurrence.source is not None:
            return self._refusal("late", f"the timer '{occurrence.event}' of {occurrence.source} is not armed")
        if why := _late(self.machine, self._memory, occurrence):
            return self._refusal("late", why)
        return self._refusal("invalid_state", f"no row for {occurrence.event} here")

    def _refusal(self, reason: semantics.Reason, message: str, rows: tuple[Transition, ...] = ()) -> semantics.Refusal:
        here = self.configuration
        return semantics.Refusal(reason, here, message, rows, semantics.accepted_events(self.machine, here.state))


def statechart_module(machine: Machine, document: str) -> str:
    """Return a Python module with the document, the machine, and the class."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]+", machine.name) if part) or "Machine"
    is_free = name.isidentifier() and not iskeyword(name) and name not in {"DOCUMENT", "StatechartRun"}
    name = name if is_free else f"Machine{name}"
    return f'''"""{machine.name} as a class of python-statemachine, written by `dsa export --to statechart`.

`StatechartRun(machine)` feeds it occurrences and answers as `dsa.step` does.
"""

from dsa import loads
from dsa.targets.statechart import StatechartRun, statechart

__all__ = ["DOCUMENT", "{name}", "StatechartRun", "machine"]

DOCUMENT = {_lines(document)}

machine = loads(DOCUMENT)
{name} = statechart(machine)
'''


def _lines(text: str) -> str:
    """Return a text as one literal for each of its lines."""
    pieces = "".join(f"\n    {piece!r}" for piece in text.splitlines(keepends=True))
    return f"({pieces}\n)" if pieces else "''"
