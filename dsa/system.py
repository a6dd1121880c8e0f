"""The closed transition system of a machine: locations, and guarded commands for everything that can happen in each.

`closed_system` turns a machine into a `System`. Rules S1 to S7 and S11 decide many things by names alone, and it decides these once: the candidate rows, the
guards that they read, the outstanding effects afterwards. What remains are conditions and updates over variables and parameters, so one system serves
every engine, every proof and every export. Parameters stay names; `dsa.ground_system` puts in their values.

What is outstanding is either part of a location, or *counted*: then the number outstanding of an effect is a further variable, a whole number (`counter`).
Few effects side by side are faster in locations, as names alone then decide what can happen. Many would make a location of each of their sets.

`at_location`, `at_start` and `after` return the meaning of a property's expression at a moment, that is at the start or at a command
(specs/semantics.md, "What properties mean"), as an expression over variables and parameters.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import Any

import attrs

from dsa import expr
from dsa.declarations import OUTSIDE, STAY, Assign, Cancel, Emit, Transition, Variable
from dsa.expr import (
    FALSE,
    Bounds,
    Expr,
    Leaf,
    Name,
    Symbol,
    Verdict,
    all_of,
    any_of,
    comparison,
    constant,
    facts,
    negation,
    simplify,
    substitute,
    walk,
)
from dsa.machine import (
    Machine,
    Precedence,
    precedence_after,
    precedence_at_start,
    read_guards,
    sources_left,
    timers_after,
    timers_before,
)
from dsa.semantics import Configuration, Occurrence, Reason, after_effects, may_be_outstanding

#: The most combinations of state, outstanding effects and order of timers in a system.
MAX_LOCATIONS = 50_000
#: With more sets of outstanding effects than this, all effects are counted.
MOST_SETS = 256
#: An event with more combinations of verdicts is left out: some nine guards read at once.
MAX_COMBINATIONS = 20_000

#: Something that must end by S12: an outstanding effect by its name, an armed timer by its source and `after DURATION`.
Promise = str | tuple[str, str]


@attrs.frozen
class Location:
    """A leaf, the outstanding effects and the order of timers: a configuration without the variables' values.

    Effects that the system counts are not in `outstanding`.
    """

    state: str
    outstanding: frozenset[str]
    precedence: Precedence = frozenset()


@attrs.frozen
class GuardedCommand:
    """One row, taken at one location on one occurrence.

    The row is taken exactly when `enabled_when` and `safe` are true and none of `rivals` is. `enabled_when` says that the row is enabled (verdicts
    and `else` are decided), `safe` that every update stays in its domain, `rivals` when another row is enabled too.
    `updates` maps variables to expressions over the values before. `row` indexes the machine's transitions. `endings` are the
    promises of the source that end with this step: answered, fired, cancelled or dropped.
    """

    source: int
    target: int
    occurrence: Occurrence
    row: int
    enabled_when: expr.Expr
    safe: expr.Expr
    rivals: tuple[expr.Expr, ...]
    updates: tuple[tuple[str, expr.Expr], ...]
    effects: tuple[str, ...]
    endings: frozenset[Promise]

    @cached_property
    def condition(self) -> expr.Expr:
        """When the row is taken."""
        return all_of([self.enabled_when, self.safe, *map(negation, self.rivals)])

    @cached_property
    def after(self) -> dict[str, expr.Expr]:
        """The new value of each updated variable."""
        return dict(self.updates)


@attrs.frozen
class SystemFault:
    """An occurrence that is refused at a location when `condition` is true, which is an error or worth a warning.

    `rows` index the rows enabled at once, or the one that cannot be taken.
    """

    location: int
    occurrence: Occurrence
    reason: Reason
    rows: tuple[int, ...]
    condition: expr.Expr


@attrs.frozen(slots=False)
class System:
    """Everything that can happen, location by location; the first location is the start's.

    `variables` are the machine's, the counters, and those that observers added. `commands` and `faults` are sorted by location. `left_out` says what is
    missing because it was too much: then the absence of something proves nothing. `silent` are effects without a promise of an answer.
    `counted_effects` are those whose number is a variable, and `counted_at` has for each location which of them may be outstanding there.
    """

    machine: Machine = attrs.field(repr=False)
    locations: tuple[Location, ...]
    variables: tuple[Variable, ...]
    commands: tuple[GuardedCommand, ...]
    faults: tuple[SystemFault, ...]
    left_out: tuple[str, ...] = ()
    silent: frozenset[str] = frozenset()
    counted_effects: tuple[str, ...] = ()
    counted_at: tuple[frozenset[str], ...] = attrs.field(default=(), repr=False)
    #: A cache for results about conditions; systems made of one another share it.
    memo: dict[Hashable, Any] = attrs.field(factory=dict, repr=False, eq=False)

    @cached_property
    def commands_at(self) -> tuple[tuple[GuardedCommand, ...], ...]:
        """The commands of each location."""
        commands: list[list[GuardedCommand]] = [[] for _ in self.locations]
        for command in self.commands:
            commands[command.source].append(command)
        return tuple(map(tuple, commands))

    @cached_property
    def index(self) -> dict[Location, int]:
        """The place of each location."""
        return {location: place for place, location in enumerate(self.locations)}

    @cached_property
    def own_variables(self) -> tuple[Variable, ...]:
        """The machine's variables and the counters: those that always lie in their domains."""
        return self.variables[: len(self.machine.variables) + len(self.counted_effects)]

    def is_outstanding(self, location: int, effect: str) -> expr.Expr:
        """Return the condition that an effect is outstanding at a location; for the empty name, that any effect is."""
        here = self.locations[location]
        if not effect:
            return any_of(self.is_outstanding(location, each) for each in self.machine.effects_with_answers)
        if effect in self.counted_at[location]:
            return comparison(counter(effect), ">", expr.Integer(0))
        return constant(effect in here.outstanding)

    def promises(self, location: int) -> Mapping[Promise, expr.Expr]:
        """Return what must end some time (S12), the outstanding effects and the armed timers, each with when it is there."""
        return self._promises_at[location]

    @cached_property
    def _promises_at(self) -> tuple[dict[Promise, expr.Expr], ...]:
        promises: list[dict[Promise, expr.Expr]] = []
        for place, here in enumerate(self.locations):
            effects = sorted((here.outstanding | self.counted_at[place]) - self.silent)
            timers = dict.fromkeys(self.machine.armed_timers(here.state), expr.TRUE)
            promises.append({effect: self.is_outstanding(place, effect) for effect in effects} | timers)
        return tuple(promises)

    def is_final(self, location: int) -> bool:
        """Return whether the location's state is final."""
        return self.locations[location].state in self.machine.final_states

    def end_at(self, location: int) -> expr.Expr:
        """Return the condition that a run is finished at a location that is not final, provided that no row can be taken there; FALSE for never."""
        end = self.machine.ends.get(self.locations[location].state)
        if end is None or self.may_rest(location) == FALSE:
            return FALSE
        faults = (fault for fault in self.faults if fault.location == location and fault.reason != "invalid_state")
        # An enabled row counts even if it is refused.
        return all_of([end, self.may_rest(location), *(negation(fault.condition) for fault in faults)])

    def is_idle(self, location: int) -> expr.Expr:
        """Return the condition that no effect is outstanding here."""
        return negation(self.is_outstanding(location, ""))

    def may_rest(self, location: int) -> expr.Expr:
        """Return the condition that a run may stay here for ever: only outside events could go on, and they may never come (S12)."""
        return negation(any_of(self.promises(location).values()))


def counter(effect: str) -> Name:
    """Return the variable that has the number outstanding of a counted effect."""
    return Name(f"pending {effect}", "variable")


def closed_system(
    machine: Machine,
    is_late: Callable[[], bool] = lambda: False,
    like: System | None = None,
    *,
    counted_effects: Collection[str] | None = None,
) -> System:
    """Return the system of a machine: every location that names alone allow, and what can happen there (S1 to S7, S11).

    It hardly checks which conditions can be true, so there may be locations that no run reaches: of conditions it knows only which counted effects are not
    outstanding where they are true. Any outside event with rows
    here may come, any answer of an outstanding effect (`E.failed` if some row names it, S7), and any armed timer. Once `is_late` says that the
    time is over, the rest is left out. Results are shared with the system `like`, which has rows in common. Counted are effects of which several may be
    outstanding, and `counted_effects`: by default those that `like` counts; without one all, if otherwise there were more than `MOST_SETS` sets of
    outstanding effects, or else none.
    """
    memo = {} if like is None else like.memo
    if counted_effects is None and like is not None:
        counted_effects = like.counted_effects
    layout = _SystemLayout(machine, is_late, memo, machine.numbered_effects.union(counted_effects or ()))
    if not layout.is_filled(MOST_SETS if counted_effects is None else MAX_LOCATIONS):
        layout = _SystemLayout(machine, is_late, memo, machine.effects_with_answers)
        layout.is_filled()
    return layout.system()


@attrs.frozen
class _Case:
    """A row that can be enabled on an occurrence, with what is true of it at every location.

    `overlaps` are later rows that can be enabled together with it, each with the condition. It would leave a domain when
    `unsafe`, and is taken, unless it emits an effect twice, when `may_take`. The rest is as in `GuardedCommand`.
    """

    row: Transition
    number: int
    enabled_when: expr.Expr
    rivals: tuple[expr.Expr, ...]
    overlaps: tuple[tuple[int, expr.Expr], ...]
    updates: tuple[tuple[str, expr.Expr], ...]
    safe: expr.Expr
    unsafe: expr.Expr
    may_take: expr.Expr


#: The effects that rows read as outstanding, sorted, each with when it is; the empty name stands for any effect.
_Pending = tuple[tuple[str, expr.Expr], ...]
#: The condition under which no row is enabled on an occurrence, and the rows that can be.
_Answer = tuple[expr.Expr, tuple[_Case, ...]]


class _RowCases:
    """Decides which rows can be enabled on an occurrence. This is the same wherever what they read is outstanding under the same conditions."""

    def __init__(self, machine: Machine, is_late: Callable[[], bool], memo: dict[Hashable, Any]) -> None:
        self._machine, self._is_late, self._memo = machine, is_late, memo
        self._row_index = {id(row): place for place, row in enumerate(machine.transitions)}
        self._domains = {variable.name: variable for variable in machine.variables}

    def answer(self, occurrence: Occurrence, rows: tuple[Transition, ...], pending: "_Pending") -> "_Answer":
        """Return the result of `_answer`, which is computed once for the same rows at the same places."""
        variables = self._machine.variables
        places = tuple((id(row), self._row_index[id(row)]) for row in rows)
        key = ("answer", id(variables), places, occurrence.verdicts, pending)
        if key not in self._memo:
            answer = self._answer(occurrence, rows, pending)
            if self._is_late():
                return answer
            self._memo[key] = answer, rows, variables  # while these are held, no others have their ids
        result: _Answer = self._memo[key][0]
        return result

    def _answer(self, occurrence: Occurrence, rows: tuple[Transition, ...], pending: "_Pending") -> "_Answer":
        """Return the condition under which no row is enabled on an occurrence, and the rows that can be.

        Both are the same at every location where what the rows read is outstanding under the same conditions.
        """
        candidates = tuple(self._enabled_rows(occurrence, rows, dict(pending)))
        row_facts = [facts(condition) for _, condition in candidates]
        cases = []
        for place, (row, enabled_when) in enumerate(candidates):
            if self._is_late():
                break
            others = [
                (i, c)
                for i, (_, c) in enumerate(candidates)
                if i != place and not row_facts[place].exclude(row_facts[i])
            ]
            rivals = [(i, c) for i, c in others if all_of([enabled_when, c]) != FALSE]
            later = [(self._row_index[id(candidates[i][0])], all_of([enabled_when, c])) for i, c in rivals if place < i]
            updates = tuple((u.variable, self._new_value(u)) for u in row.updates)
            safe = all_of(
                in_domain(self._domains[name], value) for name, value in updates if not self._fits(name, value)
            )
            alone = tuple(condition for _, condition in rivals)
            taken = all_of([enabled_when, *map(negation, alone)])
            changes = tuple((name, value) for name, value in updates if value != expr.Name(name, "variable"))
            unsafe, may_take = all_of([taken, negation(safe)]), all_of([taken, safe])
            number = self._row_index[id(row)]
            cases.append(_Case(row, number, enabled_when, alone, tuple(later), changes, safe, unsafe, may_take))
        return negation(any_of(enabled_when for _, enabled_when in candidates)), tuple(cases)

    def _fits(self, name: str, value: expr.Expr) -> bool:
        """Return whether a value lies in a variable's domain because it is a variable with the same domain."""
        other = self._domains.get(value.name) if isinstance(value, expr.Name) else None
        return other is not None and other.domain == self._domains[name].domain

    def _enabled_rows(
        self, occurrence: Occurrence, rows: tuple[Transition, ...], pending: Mapping[str, expr.Expr]
    ) -> Iterator[tuple[Transition, expr.Expr]]:
        """Return the rows that can be enabled, each with its condition, in which verdicts, `pending` and `else` are decided (S3)."""
        verdicts = dict(occurrence.verdicts)

        def decide(node: Leaf) -> expr.Expr:
            if isinstance(node, expr.Verdict):
                return constant(verdicts[node.guard] == node.outcome)
            return pending[node.name] if isinstance(node, Name) and node.kind == "pending" else node

        plain = [(row, substitute(row.condition, decide)) for row in rows if not row.is_else]
        otherwise = negation(any_of(condition for _, condition in plain))
        others = [(row, all_of([otherwise, substitute(row.condition, decide)])) for row in rows if row.is_else]
        return ((row, when) for row, when in (*plain, *others) if when != FALSE)

    def _new_value(self, update: object) -> expr.Expr:
        if isinstance(update, Assign):
            return simplify(update.value)
        return simplify(self._domains[update.variable].initial)  # type: ignore[attr-defined]  # Revoke


class _SystemLayout:
    def __init__(
        self,
        machine: Machine,
        is_late: Callable[[], bool],
        memo: dict[Hashable, Any],
        counted_effects: Collection[str],
    ) -> None:
        self._machine, self._is_late, self._memo = machine, is_late, memo
        self._counted_effects = tuple(effect for effect in machine.effects_with_answers if effect in counted_effects)
        self._counted_in = may_be_outstanding(machine) if counted_effects else {}
        #: By location: the counted effects that may be outstanding there, the commands, and the faults.
        self._counted_at: list[frozenset[str]] = []
        self._commands: list[list[GuardedCommand]] = []
        self._faults: list[list[SystemFault]] = []
        self._todo: deque[int] = deque()
        self._sets: set[frozenset[str]] = set()
        self._changes: dict[tuple[int, str, frozenset[str]], _NumberChanges] = {}
        self._absences: dict[expr.Expr, Mapping[expr.Expr, Bounds]] = {}
        self._index: dict[Location, int] = {}
        self._locations: list[Location] = []
        self._left_out: list[str] = []
        self._cases = _RowCases(machine, is_late, memo)
        self._answers: dict[tuple[object, ...], _Answer] = {}

    def is_filled(self, most_sets: int = MAX_LOCATIONS) -> bool:
        """Find all locations and what can happen there. Return whether there are at most `most_sets` sets of outstanding effects."""
        machine = self._machine
        state = machine.entry_leaf(machine.initial)
        self._place(Location(state, frozenset(), precedence_at_start(machine, state)), frozenset())
        while self._todo:  # a location comes again when more may be outstanding there than was known
            place = self._todo.popleft()
            self._commands[place], self._faults[place] = [], []
            if place >= MAX_LOCATIONS:
                self._left_out.append(
                    f"more than {MAX_LOCATIONS} combinations of state, outstanding effects and order of timers"
                )
                break
            if self._is_late():
                break
            if len(self._sets) > most_sets:
                return False
            for occurrence, rows in self._possible(place):
                self._happens(place, occurrence, rows)
        if self._is_late():
            number = len(self._locations) - len(self._todo)
            self._left_out.append(f"the time limit was reached while the rows of {number} locations were compared")
        return True

    def system(self) -> System:
        """Return what was found."""
        machine = self._machine
        del self._locations[MAX_LOCATIONS:]
        last = len(self._locations)
        commands = tuple(command for here in self._commands for command in here if command.target < last)
        return System(
            machine,
            tuple(self._locations),
            (*machine.variables, *(_counter_variable(machine, effect) for effect in self._counted_effects)),
            commands,
            tuple(chain.from_iterable(self._faults)),
            tuple(dict.fromkeys(self._left_out)),
            counted_effects=self._counted_effects,
            counted_at=tuple(self._counted_at[:last]),
            memo=self._memo,
        )

    def _place(self, location: Location, counted_effects: frozenset[str]) -> int:
        """Return the place of a location, at which these effects may be outstanding too."""
        place = self._index.setdefault(location, len(self._locations))
        if place == len(self._locations):
            self._locations.append(location)
            self._counted_at.append(counted_effects)
            self._commands.append([])
            self._faults.append([])
            self._sets.add(location.outstanding)
            self._todo.append(place)
        elif not counted_effects <= self._counted_at[place]:
            self._counted_at[place] |= counted_effects
            if place not in self._todo:
                self._todo.append(place)
        return place

    def _possible(self, place: int) -> Iterator[tuple[Occurrence, tuple[Transition, ...]]]:
        """Yield every occurrence that can come, with its candidate rows."""
        machine, location, counted_effects = self._machine, self._locations[place], self._counted_at[place]
        state = location.state
        if state in machine.final_states:
            return
        for event in machine.events:
            if event.origin == OUTSIDE and (rows := machine.rows_for(state, event.name)):
                yield from self._with_verdicts(event.name, rows)
        for effect, answers in machine.answers.items():
            if effect in location.outstanding or effect in counted_effects:
                failed = (f"{effect}.failed",) if effect in machine.failures_handled else ()
                for answer in (*answers, *failed):
                    yield from self._with_verdicts(answer, machine.rows_for(state, answer))
        for source, timer in machine.armed_timers(state):
            if not timers_before(location.precedence, (source, timer)):
                yield from self._with_verdicts(timer, machine.rows_from[source, timer], source)

    def _with_verdicts(
        self, event: str, rows: tuple[Transition, ...], source: str | None = None
    ) -> Iterator[tuple[Occurrence, tuple[Transition, ...]]]:
        """Yield an event with each combination of the verdicts that its rows read (S2)."""
        guards = read_guards(rows)
        choices = [self._machine.guard_named[guard].outcomes for guard in guards]
        if prod(map(len, choices)) > MAX_COMBINATIONS:
            self._left_out.append(f"{event}: more than {MAX_COMBINATIONS} combinations of verdicts")
            return
        for outcomes in product(*choices):
            yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source), rows

    def _happens(self, place: int, occurrence: Occurrence, rows: tuple[Transition, ...]) -> None:
        """Add the results of one occurrence: a command for each row that can be enabled, a fault for each refusal."""
        pending = self._pending(place, occurrence, rows)
        key = (*map(id, rows), occurrence.verdicts, pending)
        if key not in self._answers:
            self._answers[key] = self._cases.answer(occurrence, rows, pending)
        nothing, cases = self._answers[key]
        comes = self._comes_when(occurrence)
        self._fault(place, occurrence, "invalid_state", (), all_of([comes, nothing]))
        for case in cases:
            for other, condition in case.overlaps:
                self._fault(place, occurrence, "ambiguous", (case.number, other), all_of([comes, condition]))
            self._row(place, occurrence, case, comes)

    def _comes_when(self, occurrence: Occurrence) -> expr.Expr:
        """Return the condition that an occurrence can come at a location where names do not forbid it: of a counted effect, some must be outstanding."""
        origin = OUTSIDE if occurrence.source is not None else self._machine.event_named[occurrence.event].origin
        return comparison(counter(origin), ">", expr.Integer(0)) if origin in self._counted_effects else expr.TRUE

    def _pending(self, place: int, occurrence: Occurrence, rows: tuple[Transition, ...]) -> "_Pending":
        """Return for each effect that the rows read the condition that it is outstanding, once the answer has discharged its own (S3)."""
        effects = sorted({effect for row in rows for effect in expr.pending_effects(row.condition)})
        every = self._machine.effects_with_answers
        numbers = {name: self._number_before(place, occurrence, name) for name in (every if "" in effects else effects)}
        whole = any_of(numbers.values())
        return tuple((effect, numbers[effect] if effect else whole) for effect in effects)

    def _number_before(self, place: int, occurrence: Occurrence, effect: str) -> expr.Expr:
        """Return the condition that an effect is outstanding, once the answer has discharged its own."""
        origin = OUTSIDE if occurrence.source is not None else self._machine.event_named[occurrence.event].origin
        if effect not in self._counted_at[place]:
            return constant(effect != origin and effect in self._locations[place].outstanding)
        return comparison(counter(effect), ">", expr.Integer(1 if effect == origin else 0))

    def _row(self, place: int, occurrence: Occurrence, case: "_Case", comes: expr.Expr) -> None:
        machine, location, row = self._machine, self._locations[place], case.row
        self._fault(place, occurrence, "out_of_domain", (case.number,), all_of([comes, case.unsafe]))
        state = location.state if row.target == STAY else machine.entry_leaf(row.target)
        changes = self._changes_of(row, case.number, state, self._counted_at[place])
        outstanding, cancelled, twice = after_effects(machine, tuple(location.outstanding), changes.located_row, state)
        too_many = expr.TRUE if twice is not None else changes.too_many
        self._fault(place, occurrence, "emitted_twice", (case.number,), all_of([comes, case.may_take, too_many]))
        if too_many == expr.TRUE:
            return
        timers = timers_after(machine, location.state, row, state)
        precedence = precedence_after(machine, location.precedence, timers, state)
        enabled_when, safe = all_of([comes, case.enabled_when]), all_of([case.safe, negation(too_many)])
        counted_effects = self._counted_after(changes, enabled_when) & self._counted_in.get(state, frozenset())
        target = self._place(Location(state, frozenset(outstanding), precedence), counted_effects)
        effects = tuple(item.effect for item in row.effects if isinstance(item, Emit))
        endings = self._endings(place, occurrence, row, state, (*cancelled, *changes.cancelled))
        what = (enabled_when, safe, case.rivals, (*case.updates, *changes.updates))
        self._commands[place].append(GuardedCommand(place, target, occurrence, case.number, *what, effects, endings))

    def _changes_of(
        self, row: Transition, number: int, state: str, counted_effects: frozenset[str]
    ) -> "_NumberChanges":
        """Return the changes of a row that leads to a state to the numbers of counted effects, of which these may be outstanding before."""
        key = number, state, counted_effects
        if key not in self._changes:
            numbers: dict[str, expr.Expr] = {
                effect: counter(effect) if effect in counted_effects else expr.Integer(0)
                for effect in self._counted_effects
            }
            self._changes[key] = _number_changes(self._machine, numbers, row, state)
        return self._changes[key]

    def _counted_after(self, changes: "_NumberChanges", condition: expr.Expr) -> frozenset[str]:
        """Return the counted effects that may be outstanding after a row that is taken under a condition, as far as its conjuncts tell."""
        if condition not in self._absences:
            self._absences[condition] = facts(condition).bounds
        bounds = self._absences[condition]

        def may_be_left(effect: str, number: expr.Expr) -> bool:
            most = bounds.get(counter(effect), (None, None))[1]
            if most is None and effect not in self._machine.numbered_effects:
                most = 1
            if number == counter(effect):
                return most is None or most > 0
            if isinstance(number, expr.Arithmetic) and number.operator == "-":
                return most is None or most > 1
            return number != expr.Integer(0)

        return frozenset(effect for effect, number in changes.numbers.items() if may_be_left(effect, number))

    def _fault(
        self, place: int, occurrence: Occurrence, reason: Reason, rows: tuple[int, ...], when: expr.Expr
    ) -> None:
        if when != FALSE:
            self._faults[place].append(SystemFault(place, occurrence, reason, rows, when))

    def _endings(
        self, place: int, occurrence: Occurrence, row: Transition, state: str, cancelled: tuple[str, ...]
    ) -> frozenset[Promise]:
        """Return the promises that end with this step, if they are there: answered, cancelled, fired, or their source left (S7, S11)."""
        machine, before = self._machine, self._locations[place]
        outstanding = before.outstanding | self._counted_at[place]
        endings: set[Promise] = {effect for effect in cancelled if effect in outstanding}
        if occurrence.source is not None:
            endings.add((occurrence.source, occurrence.event))
        else:
            endings |= outstanding & {machine.event_named[occurrence.event].origin}
        if row.target != STAY:
            left = sources_left(machine, before.state, state)
            endings |= {(source, timer) for source, timer in machine.armed_timers(before.state) if source in left}
        return frozenset(endings)


@attrs.frozen
class _NumberChanges:
    """What a row does to the numbers outstanding of counted effects; `located_row` has its other effects alone.

    `updates` are the new numbers that differ from the old ones. The row is refused when `too_many` would be outstanding. `cancelled` are the effects of which
    all are cancelled, if there are any. `numbers` are all numbers afterwards.
    """

    located_row: Transition
    updates: tuple[tuple[str, expr.Expr], ...]
    too_many: expr.Expr
    cancelled: tuple[str, ...]
    numbers: Mapping[str, expr.Expr]


def _number_changes(
    machine: Machine, numbers_before: Mapping[str, expr.Expr], row: Transition, state: str
) -> _NumberChanges:
    """Return the changes of a row that leads to a state (S7): one less for an answer, then the effects in the order written."""
    if not numbers_before:
        return _NumberChanges(row, (), FALSE, (), {})
    counted_effects, numbers = tuple(numbers_before), dict(numbers_before)
    cancelled: dict[str, None] = {}
    excesses = []
    origin = OUTSIDE if row.is_timer else machine.event_named[row.event].origin
    if origin in numbers:
        numbers[origin] = simplify(expr.Arithmetic("-", numbers[origin], expr.Integer(1)))
    for item in row.effects:
        if isinstance(item, Cancel):
            dropped_effects = [effect for effect in counted_effects if item.effect in {None, effect}]
            numbers |= dict.fromkeys(dropped_effects, expr.Integer(0))
            cancelled |= dict.fromkeys(dropped_effects)
        elif item.effect in numbers:
            limit = simplify(machine.number_limits[item.effect])
            excesses.append(comparison(numbers[item.effect], ">=", limit))
            numbers[item.effect] = simplify(expr.Arithmetic("+", numbers[item.effect], expr.Integer(1)))
    if state in machine.final_states:
        numbers = dict.fromkeys(counted_effects, expr.Integer(0))
    updates = ((counter(effect).name, number) for effect, number in numbers.items() if number != numbers_before[effect])
    located_effects = (item for item in row.effects if item.effect is None or item.effect not in counted_effects)
    return _NumberChanges(
        attrs.evolve(row, effects=tuple(located_effects)),
        tuple(updates),
        any_of(excesses),
        tuple(cancelled),
        numbers,
    )


def _counter_variable(machine: Machine, effect: str) -> Variable:
    domain = expr.RangeDomain(expr.Integer(0), machine.number_limits[effect])
    return Variable(counter(effect).name, "environment", domain, expr.Integer(0))


def in_domain(variable: Variable, value: expr.Expr) -> expr.Expr:
    """Return the condition that a value lies in a variable's domain."""
    match variable.domain:
        case expr.BooleanDomain():
            return expr.TRUE
        case expr.EnumDomain(choices):
            if isinstance(value, expr.Symbol):
                return constant(value.value in choices)
            return simplify(expr.Member(value, tuple(map(expr.Symbol, choices))))
        case expr.RangeDomain(low, high):
            above = comparison(simplify(low), "<=", value)
            return above if high is None else all_of([above, comparison(value, "<=", simplify(high))])


def start_values(system: System) -> dict[str, expr.Expr]:
    """Return the variables' values at the start, over parameters."""
    return {variable.name: simplify(variable.initial) for variable in system.variables}


def location_of(system: System, configuration: Configuration) -> int:
    """Return the place of a configuration's location; KeyError when names alone do not allow it."""
    located_effects = frozenset(configuration.outstanding).difference(system.counted_effects)
    return system.index[Location(configuration.state, located_effects, configuration.precedence)]


def happens(expr: Expr) -> bool:
    """Return whether the expression names events, effects or verdicts, which only a moment has."""
    return any(isinstance(n, Verdict) or (isinstance(n, Name) and n.kind in {"event", "effect"}) for n in walk(expr))


def at_location(system: System, location: int, expr: Expr) -> Expr:
    """Return the expression at a location, over the values there; nothing happens: events, effects and verdicts are false."""
    return substitute(expr, _reader(system, location, lambda _: FALSE))


def at_start(system: System, expr: Expr) -> Expr:
    """Return the expression at the start, over parameters."""
    initial = start_values(system)
    return substitute(at_location(system, 0, expr), lambda node: initial.get(_name(node), node))


def after(system: System, command: GuardedCommand, expr: Expr) -> Expr:
    """Return the expression at the moment of a command, over the values before it."""
    verdicts, occurrence = set(command.occurrence.verdicts), command.occurrence

    def moment_value(node: Leaf) -> Expr:
        if isinstance(node, Verdict):
            return constant((node.guard, node.outcome) in verdicts)
        assert isinstance(node, Name), "a symbol happens nowhere"
        if node.kind == "event":
            return constant(node.name == occurrence.event)
        return constant(node.name in command.effects)

    here = substitute(expr, _reader(system, command.target, moment_value))
    return substitute(here, lambda node: command.after.get(_name(node), node))


def _name(node: Leaf) -> str:
    return node.name if isinstance(node, Name) and node.kind == "variable" else ""


def _reader(system: System, location: int, moment_value: Callable[[Leaf], Expr]) -> Callable[[Leaf], Expr]:
    here = system.locations[location]
    inside = {*system.machine.ancestry(here.state), here.state}

    def read(node: Leaf) -> Expr:
        if isinstance(node, Symbol):
            return node
        if isinstance(node, Name):
            if node.kind == "state":
                return constant(node.name in inside)
            if node.kind == "pending":
                return system.is_outstanding(location, node.name)
            if node.kind in {"variable", "parameter"}:
                return node
        return moment_value(node)

    return read
