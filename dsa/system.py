"""The closed transition system of a machine: locations, and what can happen in each as guarded commands.

Takes a machine, gives a `System`. What S1-S7 and S11 decide by names alone is decided here, once: which rows are candidates,
which guards are asked, what is outstanding afterwards. What is left are conditions and updates over variables and parameters, so
one system serves every engine, every proof and every export. Parameters stay names: `dsa.ground` takes their values.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import attrs

from dsa import expr
from dsa.declarations import OUTSIDE, STAY, Assign, Emit, Transition, Variable
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Reason, after_effects
from dsa.satisfiable import facts
from dsa.simplify import FALSE, Leaf, all_of, any_of, compared, constant, negated, simplified, substituted
from dsa.timers import Precedence, precedence_after, precedence_at_start, preceding, sources_left, timers_after

#: More combinations of state, outstanding effects and order of timers than this are not laid out.
MAX_LOCATIONS = 50_000
#: An event on which more combinations of verdicts are possible is left out: some nine guards read at once.
MAX_COMBINATIONS = 20_000

#: What S12 promises an end to: an outstanding effect by its name, an armed timer by its source and `after DURATION`.
Promise = str | tuple[str, str]


@attrs.frozen
class Location:
    """A leaf, what is outstanding there and the order of its timers: all of a configuration but the variables' values."""

    state: str
    outstanding: frozenset[str]
    precedence: Precedence = frozenset()


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
    enabled: expr.Expr
    safe: expr.Expr
    rivals: tuple[expr.Expr, ...]
    updates: tuple[tuple[str, expr.Expr], ...]
    effects: tuple[str, ...]
    ended: frozenset[Promise]

    @property
    def condition(self) -> expr.Expr:
        """When the row is taken."""
        return all_of([self.enabled, self.safe, *map(negated, self.rivals)])

    @cached_property
    def after(self) -> dict[str, expr.Expr]:
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
    condition: expr.Expr


@attrs.frozen(slots=False)
class System:
    """Everything that can happen, location by location; the first location is the start's.

    `variables` are the machine's, and those that observers added. `commands` and `faults` are sorted by location. `left_out` says what was too much to
    lay out: then nothing may be concluded from what is not here. `silent` are effects of which no answer is promised.
    """

    machine: Machine = attrs.field(repr=False)
    locations: tuple[Location, ...]
    variables: tuple[Variable, ...]
    commands: tuple[Command, ...]
    faults: tuple[Fault, ...]
    left_out: tuple[str, ...] = ()
    silent: frozenset[str] = frozenset()
    #: What was worked out of conditions, by whoever did: systems that are made of one another share it.
    memo: dict[Hashable, Any] = attrs.field(factory=dict, repr=False, eq=False)

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
        return (here.outstanding - self.silent) | frozenset(self.machine.armed(here.state))

    def is_final(self, location: int) -> bool:
        """Tell whether the location's state is final."""
        return self.locations[location].state in self.machine.final_states

    def end_at(self, location: int) -> expr.Expr:
        """Return when a run is finished at a location that is not final, provided that nothing can be taken there; FALSE where it never is."""
        end = self.machine.ends.get(self.locations[location].state)
        if end is None or not self.may_rest(location):
            return FALSE
        faults = (fault for fault in self.faults if fault.location == location and fault.reason != "invalid_state")
        return all_of(
            [end, *(negated(fault.condition) for fault in faults)]
        )  # a row that is enabled and refused is one that is enabled

    def may_rest(self, location: int) -> bool:
        """Tell whether a run may stay here for ever: only outside events could go on, and they may never come (S12)."""
        return not self.promises(location)


def closed_system(machine: Machine, expired: Callable[[], bool] = lambda: False, like: System | None = None) -> System:
    """Lay out a machine: every location that names alone allow, and what can happen there (S1-S7, S11).

    Which conditions can be true is not looked at, so there may be locations that no run reaches. Any outside event with rows
    here may come, any answer of an outstanding effect (`E.failed` where some row names it, S7), and any armed timer. Where `expired` says that the
    time is over, the rest is left out. What was worked out for a system that is `like` this one, which shares rows with it, is known.
    """
    return _Layout(machine, expired, {} if like is None else like.memo).run()


@attrs.frozen
class _Case:
    """A row that can be enabled on an occurrence, and what can be said of it wherever that comes.

    `overlaps` are the rows after it that are enabled at once with it somewhere, each with when. It would leave a domain when
    `unsafe`, and is taken, unless it emits an effect twice, when `allowed`. The rest is as in `Command`.
    """

    row: Transition
    number: int
    enabled: expr.Expr
    rivals: tuple[expr.Expr, ...]
    overlaps: tuple[tuple[int, expr.Expr], ...]
    changed: tuple[tuple[str, expr.Expr], ...]
    safe: expr.Expr
    unsafe: expr.Expr
    allowed: expr.Expr


#: When no row is enabled on an occurrence, and the rows that can be.
_Answer = tuple[expr.Expr, tuple[_Case, ...]]


class _Layout:
    def __init__(self, machine: Machine, expired: Callable[[], bool], memo: dict[Hashable, Any]) -> None:
        self._machine, self._expired, self._memo = machine, expired, memo
        self._index: dict[Location, int] = {}
        self._locations: list[Location] = []
        self._commands: list[Command] = []
        self._faults: list[Fault] = []
        self._left_out: list[str] = []
        self._row_index = {id(row): place for place, row in enumerate(machine.transitions)}
        self._domains = {variable.name: variable for variable in machine.variables}
        self._answers: dict[tuple[object, ...], _Answer] = {}

    def run(self) -> System:
        machine = self._machine
        state = machine.entered(machine.initial)
        self._place(Location(state, frozenset(), precedence_at_start(machine, state)))
        for place, location in enumerate(self._locations):  # grows while it is walked
            if place >= MAX_LOCATIONS:
                self._left_out.append(
                    f"more than {MAX_LOCATIONS} combinations of state, outstanding effects and order of timers"
                )
                break
            if self._expired():
                break
            for occurrence, rows in self._possible(location):
                self._happens(place, occurrence, rows)
        if self._expired():
            self._left_out.append(f"the time limit was met while the rows of {place + 1} locations were compared")
        del self._locations[MAX_LOCATIONS:]
        last = len(self._locations)
        commands = tuple(command for command in self._commands if command.target < last)
        left_out = tuple(dict.fromkeys(self._left_out))
        return System(
            machine, tuple(self._locations), machine.variables, commands, tuple(self._faults), left_out, memo=self._memo
        )

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
            if not preceding(location.precedence, (source, timer)):
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
        key = (*map(id, rows), occurrence.verdicts)
        if key not in self._answers:
            self._answers[key] = self._known_answer(occurrence, rows)
        nothing, cases = self._answers[key]
        self._fault(place, occurrence, "invalid_state", (), nothing)
        for case in cases:
            for other, condition in case.overlaps:
                self._fault(place, occurrence, "ambiguous", (case.number, other), condition)
            self._row(place, occurrence, case)

    def _known_answer(self, occurrence: Occurrence, rows: tuple[Transition, ...]) -> "_Answer":
        """Give what `_answer` gives, which is worked out once for the same rows at the same places."""
        variables = self._machine.variables
        places = tuple((id(row), self._row_index[id(row)]) for row in rows)
        key = ("answer", id(variables), places, occurrence.verdicts)
        if key not in self._memo:
            answer = self._answer(occurrence, rows)
            if self._expired():
                return answer
            self._memo[key] = answer, rows, variables  # while these are held, no others have their ids
        found: _Answer = self._memo[key][0]
        return found

    def _answer(self, occurrence: Occurrence, rows: tuple[Transition, ...]) -> "_Answer":
        """Give when no row is enabled on an occurrence, and the rows that can be: the same at every location."""
        found = tuple(self._enabled(occurrence, rows))
        said = [facts(condition) for _, condition in found]
        cases = []
        for place, (row, enabled) in enumerate(found):
            if self._expired():
                break
            others = [(i, c) for i, (_, c) in enumerate(found) if i != place and not said[place].exclude(said[i])]
            rivals = [(i, c) for i, c in others if all_of([enabled, c]) != FALSE]
            later = [(self._row_index[id(found[i][0])], all_of([enabled, c])) for i, c in rivals if place < i]
            updates = tuple((u.variable, self._updated(u)) for u in row.updates)
            safe = all_of(
                in_domain(self._domains[name], value) for name, value in updates if not self._fits(name, value)
            )
            alone = tuple(condition for _, condition in rivals)
            taken = all_of([enabled, *map(negated, alone)])
            changed = tuple((name, value) for name, value in updates if value != expr.Name(name, "variable"))
            unsafe, allowed = all_of([taken, negated(safe)]), all_of([taken, safe])
            number = self._row_index[id(row)]
            cases.append(_Case(row, number, enabled, alone, tuple(later), changed, safe, unsafe, allowed))
        return negated(any_of(enabled for _, enabled in found)), tuple(cases)

    def _fits(self, name: str, value: expr.Expr) -> bool:
        """Tell whether a value lies in a variable's domain because it is that of a variable with the same domain."""
        other = self._domains.get(value.name) if isinstance(value, expr.Name) else None
        return other is not None and other.domain == self._domains[name].domain

    def _enabled(self, occurrence: Occurrence, rows: tuple[Transition, ...]) -> Iterator[tuple[Transition, expr.Expr]]:
        """Give the rows that can be enabled, each with when it is: verdicts and `else` decided (S3)."""
        said = dict(occurrence.verdicts)

        def decided(node: Leaf) -> expr.Expr:
            return constant(said[node.guard] == node.outcome) if isinstance(node, expr.Verdict) else node

        plain = [(row, substituted(row.condition, decided)) for row in rows if not row.is_else]
        otherwise = negated(any_of(condition for _, condition in plain))
        others = [(row, all_of([otherwise, substituted(row.condition, decided)])) for row in rows if row.is_else]
        return ((row, enabled) for row, enabled in (*plain, *others) if enabled != FALSE)

    def _row(self, place: int, occurrence: Occurrence, case: "_Case") -> None:
        machine, location, row = self._machine, self._locations[place], case.row
        self._fault(place, occurrence, "out_of_domain", (case.number,), case.unsafe)
        state = location.state if row.target == STAY else machine.entered(row.target)
        outstanding, cancelled, twice = after_effects(machine, location.outstanding, row, state)
        if twice is not None:
            self._fault(place, occurrence, "emitted_twice", (case.number,), case.allowed)
            return
        timers = timers_after(machine, location.state, row, state)
        precedence = precedence_after(machine, location.precedence, timers, state)
        target = self._place(Location(state, outstanding, precedence))
        emitted = tuple(item.effect for item in row.effects if isinstance(item, Emit))
        ended = self._ended(location, occurrence, row, state, cancelled)
        what = (case.enabled, case.safe, case.rivals, case.changed)
        self._commands.append(Command(place, target, occurrence, case.number, *what, emitted, ended))

    def _updated(self, update: object) -> expr.Expr:
        if isinstance(update, Assign):
            return simplified(update.value)
        return simplified(self._domains[update.variable].initial)  # type: ignore[attr-defined]  # Revoke

    def _fault(
        self, place: int, occurrence: Occurrence, reason: Reason, rows: tuple[int, ...], when: expr.Expr
    ) -> None:
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


def in_domain(variable: Variable, value: expr.Expr) -> expr.Expr:
    """Say that a value lies in a variable's domain."""
    match variable.domain:
        case expr.BooleanDomain():
            return expr.TRUE
        case expr.EnumDomain(choices):
            if isinstance(value, expr.Symbol):
                return constant(value.value in choices)
            return simplified(expr.Member(value, tuple(map(expr.Symbol, choices))))
        case expr.RangeDomain(low, high):
            above = compared(simplified(low), "<=", value)
            return above if high is None else all_of([above, compared(value, "<=", simplified(high))])


def start_values(system: System) -> dict[str, expr.Expr]:
    """Give the variables' values at the start, over parameters."""
    return {variable.name: simplified(variable.initial) for variable in system.variables}


def location_of(system: System, configuration: Configuration) -> int:
    """Give the place of a configuration's location; KeyError when names alone do not allow it."""
    return system.index[Location(configuration.state, configuration.outstanding, configuration.precedence)]
