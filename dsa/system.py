"""The closed transition system of a machine: locations, and what can happen in each as guarded commands.

Takes a machine, gives a `System`. What S1-S7 and S11 decide by names alone is decided here, once: which rows are candidates,
which guards are asked, what is outstanding afterwards. What is left are conditions and updates over variables and parameters, so
one system serves every engine, every proof and every export. Parameters stay names: `dsa.ground` takes their values.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from math import prod

import attrs

from dsa.declarations import OUTSIDE, STAY, Assign, Emit, Transition, Variable
from dsa.expr import (
    TRUE,
    BooleanDomain,
    EnumDomain,
    Expr,
    Member,
    Name,
    RangeDomain,
    Symbol,
    Verdict,
)
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Reason, after_effects
from dsa.simplify import FALSE, Leaf, all_of, any_of, compared, constant, negated, simplified, substituted

#: More combinations of state and outstanding effects than this are not laid out.
MAX_LOCATIONS = 50_000
#: An event on which more combinations of verdicts are possible is left out: some nine guards read at once.
MAX_COMBINATIONS = 20_000

#: What S12 promises an end to: an outstanding effect by its name, an armed timer by its source and `after DURATION`.
Promise = str | tuple[str, str]


@attrs.frozen
class Location:
    """A leaf and what is outstanding there: all of a configuration but the variables' values."""

    state: str
    outstanding: frozenset[str]


@attrs.frozen
class Command:
    """One row, taken at one location on one occurrence.

    The row is taken exactly when `enabled` and `safe` are true and no one of `rivals` is: `enabled` says that the row is (verdicts
    and `else` are decided), `safe` that every update stays in its domain, `rivals` when another row is enabled too.
    `updates` maps variables to expressions over the values before. `row` indexes the machine's transitions. `ended` are the
    promises of the source that this step keeps: answered, fired, cancelled or dropped.
    """

    source: int
    target: int
    occurrence: Occurrence
    row: int
    enabled: Expr
    safe: Expr
    rivals: tuple[Expr, ...]
    updates: tuple[tuple[str, Expr], ...]
    effects: tuple[str, ...]
    ended: frozenset[Promise]

    @property
    def condition(self) -> Expr:
        """When the row is taken."""
        return all_of([self.enabled, self.safe, *map(negated, self.rivals)])

    @cached_property
    def after(self) -> dict[str, Expr]:
        """What each updated variable is set to."""
        return dict(self.updates)


@attrs.frozen
class Fault:
    """An occurrence that is refused at a location when `condition` is true, and must not be or is worth a warning.

    `rows` index the rows concerned: those enabled at once, or the one that cannot be taken.
    """

    location: int
    occurrence: Occurrence
    reason: Reason
    rows: tuple[int, ...]
    condition: Expr


@attrs.frozen(slots=False)
class System:
    """Everything that can happen, location by location; the first location is the start's.

    `variables` are the machine's, and those that observers added. `commands` and `faults` are sorted by location. `left_out` says what was too much to
    lay out: then nothing may be concluded from what is not here.
    """

    machine: Machine = attrs.field(repr=False)
    locations: tuple[Location, ...]
    variables: tuple[Variable, ...]
    commands: tuple[Command, ...]
    faults: tuple[Fault, ...]
    left_out: tuple[str, ...] = ()

    @cached_property
    def commands_at(self) -> tuple[tuple[Command, ...], ...]:
        """The commands of each location."""
        found: list[list[Command]] = [[] for _ in self.locations]
        for command in self.commands:
            found[command.source].append(command)
        return tuple(map(tuple, found))

    @cached_property
    def index(self) -> dict[Location, int]:
        """Where each location stands."""
        return {location: place for place, location in enumerate(self.locations)}

    def promises(self, location: int) -> frozenset[Promise]:
        """Give what must end some time (S12): what is outstanding, and the timers that are armed."""
        here = self.locations[location]
        return here.outstanding | frozenset(self.machine.armed(here.state))

    def is_final(self, location: int) -> bool:
        """Tell whether the location's state is final."""
        return self.locations[location].state in self.machine.final_states

    def may_rest(self, location: int) -> bool:
        """Tell whether a run may stay here for ever: only outside events could go on, and they may never come (S12)."""
        return not self.promises(location)


def closed_system(machine: Machine) -> System:
    """Lay out a machine: every location that names alone allow, and what can happen there (S1-S7, S11).

    Which conditions can be true is not looked at, so there may be locations that no run reaches. Any outside event with rows
    here may come, any answer of an outstanding effect (`E.failed` where some row names it, S7), and any armed timer.
    """
    return _Layout(machine).run()


class _Layout:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._index: dict[Location, int] = {}
        self._locations: list[Location] = []
        self._commands: list[Command] = []
        self._faults: list[Fault] = []
        self._left_out: list[str] = []
        self._row_index = {id(row): place for place, row in enumerate(machine.transitions)}
        self._domains = {variable.name: variable for variable in machine.variables}
        self._cases: dict[tuple[object, ...], tuple[tuple[Transition, Expr], ...]] = {}

    def run(self) -> System:
        machine = self._machine
        self._place(Location(machine.entered(machine.initial), frozenset()))
        for place, location in enumerate(self._locations):  # grows while it is walked
            if place >= MAX_LOCATIONS:
                self._left_out.append(f"more than {MAX_LOCATIONS} combinations of state and outstanding effects")
                break
            for occurrence, rows in self._possible(location):
                self._happens(place, occurrence, rows)
        del self._locations[MAX_LOCATIONS:]
        last = len(self._locations)
        commands = tuple(command for command in self._commands if command.target < last)
        left_out = tuple(dict.fromkeys(self._left_out))
        return System(machine, tuple(self._locations), machine.variables, commands, tuple(self._faults), left_out)

    def _place(self, location: Location) -> int:
        if location not in self._index:
            self._index[location] = len(self._locations)
            self._locations.append(location)
        return self._index[location]

    def _possible(self, location: Location) -> Iterator[tuple[Occurrence, tuple[Transition, ...]]]:
        """Give every occurrence that can come, with its candidate rows."""
        machine, state = self._machine, location.state
        if state in machine.final_states:
            return
        for event in machine.events:
            if event.origin == OUTSIDE and (rows := machine.rows_for(state, event.name)):
                yield from self._judged(event.name, rows)
        for effect, answers in machine.answers.items():
            if effect in location.outstanding:
                failed = (f"{effect}.failed",) if effect in machine.failures_handled else ()
                for answer in (*answers, *failed):
                    yield from self._judged(answer, machine.rows_for(state, answer))
        for source, timer in machine.armed(state):
            yield from self._judged(timer, machine.rows_from[source, timer], source)

    def _judged(
        self, event: str, rows: tuple[Transition, ...], source: str | None = None
    ) -> Iterator[tuple[Occurrence, tuple[Transition, ...]]]:
        """Give an event with each combination of the verdicts that its rows read (S2)."""
        guards = read_guards(rows)
        said = [self._machine.guard_named[guard].outcomes for guard in guards]
        if prod(map(len, said)) > MAX_COMBINATIONS:
            self._left_out.append(f"{event}: more than {MAX_COMBINATIONS} combinations of verdicts")
            return
        for outcomes in product(*said):
            yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source), rows

    def _happens(self, place: int, occurrence: Occurrence, rows: tuple[Transition, ...]) -> None:
        """Lay out what one occurrence does: a command for each row that can be enabled, a fault for each way to be refused."""
        cases = self._enabled(occurrence, rows)
        numbers = [self._row_index[id(row)] for row, _ in cases]
        nothing = negated(any_of(enabled for _, enabled in cases))
        self._fault(place, occurrence, "invalid_state", (), nothing)
        for number, (row, enabled) in enumerate(cases):
            rivals = [
                (other, c) for other, (_, c) in enumerate(cases) if other != number and all_of([enabled, c]) != FALSE
            ]
            for other, condition in rivals:
                if number < other:
                    both = (numbers[number], numbers[other])
                    self._fault(place, occurrence, "ambiguous", both, all_of([enabled, condition]))
            alone = tuple(condition for _, condition in rivals)
            self._row(place, occurrence, row, enabled, alone)

    def _enabled(self, occurrence: Occurrence, rows: tuple[Transition, ...]) -> tuple[tuple[Transition, Expr], ...]:
        """Give the rows that can be enabled, each with when it is: verdicts and `else` decided (S3)."""
        key = (*map(id, rows), occurrence.verdicts)
        if key not in self._cases:
            said = dict(occurrence.verdicts)

            def decided(node: Leaf) -> Expr:
                return constant(said[node.guard] == node.outcome) if isinstance(node, Verdict) else node

            plain = [(row, substituted(row.condition, decided)) for row in rows if not row.is_else]
            otherwise = negated(any_of(condition for _, condition in plain))
            others = [(row, all_of([otherwise, substituted(row.condition, decided)])) for row in rows if row.is_else]
            self._cases[key] = tuple((row, enabled) for row, enabled in (*plain, *others) if enabled != FALSE)
        return self._cases[key]

    def _row(
        self, place: int, occurrence: Occurrence, row: Transition, enabled: Expr, rivals: tuple[Expr, ...]
    ) -> None:
        machine, location = self._machine, self._locations[place]
        number = self._row_index[id(row)]
        updates = tuple((u.variable, self._updated(u)) for u in row.updates)
        safe = all_of(in_domain(self._domains[name], value) for name, value in updates)
        taken = [enabled, *map(negated, rivals)]
        self._fault(place, occurrence, "out_of_domain", (number,), all_of([*taken, negated(safe)]))
        state = location.state if row.target == STAY else machine.entered(row.target)
        outstanding, cancelled, twice = after_effects(machine, location.outstanding, row, state)
        if twice is not None:
            self._fault(place, occurrence, "emitted_twice", (number,), all_of([*taken, safe]))
            return
        target = self._place(Location(state, outstanding))
        emitted = tuple(item.effect for item in row.effects if isinstance(item, Emit))
        ended = self._ended(location, occurrence, row, state, cancelled)
        changed = tuple((name, value) for name, value in updates if value != Name(name, "variable"))
        self._commands.append(
            Command(place, target, occurrence, number, enabled, safe, rivals, changed, emitted, ended)
        )

    def _updated(self, update: object) -> Expr:
        if isinstance(update, Assign):
            return simplified(update.value)
        return simplified(self._domains[update.variable].initial)  # type: ignore[attr-defined]  # Revoke

    def _fault(self, place: int, occurrence: Occurrence, reason: Reason, rows: tuple[int, ...], when: Expr) -> None:
        if when != FALSE:
            self._faults.append(Fault(place, occurrence, reason, rows, when))

    def _ended(
        self, before: Location, occurrence: Occurrence, row: Transition, state: str, cancelled: tuple[str, ...]
    ) -> frozenset[Promise]:
        """Give the promises that end with this step: answered, cancelled, fired, or their source left (S7, S11)."""
        machine = self._machine
        ended: set[Promise] = {effect for effect in cancelled if effect in before.outstanding}
        if occurrence.source is not None:
            ended.add((occurrence.source, occurrence.event))
        else:
            ended |= before.outstanding & {machine.event_named[occurrence.event].origin}
        if row.target != STAY:
            left = sources_left(machine, before.state, state)
            ended |= {(source, timer) for source, timer in machine.armed(before.state) if source in left}
        return frozenset(ended)


def sources_left(machine: Machine, before: str, after: str) -> frozenset[str]:
    """Give the sources that a row with a target leaves, `*` included when a final state is entered (S11)."""
    if before == after:
        return frozenset({before})
    return frozenset(machine.ancestry(before)) - frozenset(machine.ancestry(after))


def in_domain(variable: Variable, value: Expr) -> Expr:
    """Say that a value lies in a variable's domain."""
    match variable.domain:
        case BooleanDomain():
            return TRUE
        case EnumDomain(choices):
            if isinstance(value, Symbol):
                return constant(value.value in choices)
            return simplified(Member(value, tuple(map(Symbol, choices))))
        case RangeDomain(low, high):
            above = compared(simplified(low), "<=", value)
            return above if high is None else all_of([above, compared(value, "<=", simplified(high))])


def start_values(system: System) -> dict[str, Expr]:
    """Give the variables' values at the start, over parameters."""
    return {variable.name: simplified(variable.initial) for variable in system.variables}


def location_of(system: System, configuration: Configuration) -> int:
    """Give the place of a configuration's location; KeyError when names alone do not allow it."""
    return system.index[Location(configuration.state, configuration.outstanding)]
