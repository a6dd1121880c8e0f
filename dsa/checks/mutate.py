"""How strong a spec is: which small faults of a machine its checks, properties and scenarios notice.

Takes a machine that passes `check`; gives one `Judged` for each mutant. A mutant that nothing notices is compared with the machine:
equal, when no run can tell the two apart, or a survivor. What Effects says to the driver no run of the table shows: of that, new warnings are noticed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Literal

import attrs

from dsa.checks.definition4 import definition4
from dsa.checks.engines.again import Again
from dsa.checks.engines.choose import automatic
from dsa.checks.engines.found import Engine, Limits
from dsa.checks.engines.python import search
from dsa.checks.engines.sources import Writer, first_where
from dsa.checks.explore import MAX_STATES, Exploration, explored
from dsa.checks.graph import dead_ends, vain_effects
from dsa.checks.mutants import Group, Mutant, mutants
from dsa.checks.observers import Observed, Sight
from dsa.checks.proof.conclusion import Finding
from dsa.checks.proof.safety import Safety
from dsa.checks.proof.session import Session
from dsa.checks.properties import Questions
from dsa.checks.reached import from_explorations
from dsa.checks.report import check
from dsa.checks.scenarios import run_scenarios
from dsa.checks.table_faults import said_otherwise, start_outside
from dsa.checks.verdicts import violated_at
from dsa.claims import show
from dsa.declarations import Parameter
from dsa.errors import Diagnostic
from dsa.expr import TRUE, Expr, Name, Value, evaluate
from dsa.ground import Watch, ground
from dsa.machine import Machine, minima
from dsa.meaning import Occurrence
from dsa.simplify import FALSE, all_of, any_of, compared, negated
from dsa.system import Command, Location, Promise, System, closed_system
from dsa.timers import Timer

#: So many configurations are looked at one by one: a function for them is not worth its making.
_FEW = 100

Kind = Literal["noticed", "survived", "equal", "not judged"]
#: What became of a mutant: its kind, and what noticed it or why it is of that kind.
Outcome = tuple[Kind, str]
#: Does work for each number below a count, and gives the results in order.
Spread = Callable[[Callable[[int], Outcome], int], Iterable[Outcome]]
_LATE: Outcome = ("not judged", "the time limit was met")
#: Given where a mutant differs: tells whether that is proved never to be reached, whatever the parameters.
Prover = Callable[[tuple[Sight, ...]], bool]
#: Gives the engine for a search: of which of the valuations, and for which property, if it is one's own.
Engines = Callable[..., Engine]


@attrs.frozen
class Judged:
    """What became of one mutant.

    `by` is what noticed it: a diagnostic's code, a property or a scenario; for an equal one, how that is known; for a survivor, empty
    when some run tells the two apart, or that no difference was found and none is excluded; for one that is not judged, why.
    """

    mutant: Mutant
    kind: Kind
    by: str


@attrs.frozen
class Strength:
    """The judged mutants of one machine."""

    machine: Machine = attrs.field(repr=False)
    judged: tuple[Judged, ...]

    def of_kind(self, kind: Kind, group: Group | None = None) -> tuple[Judged, ...]:
        """Give the mutants of one kind, and of one group where one is named."""
        return tuple(one for one in self.judged if one.kind == kind and group in {None, one.mutant.group})

    @property
    def score(self) -> float | None:
        """The share noticed of the faults in rows that are not equal, from 0 to 1; None when there are none."""
        return self.share("rows")

    def share(self, group: Group) -> float | None:
        """Return the share noticed of a group's faults that are not equal, from 0 to 1; None when there are none."""
        noticed, survived = len(self.of_kind("noticed", group)), len(self.of_kind("survived", group))
        return noticed / (noticed + survived) if noticed + survived else None


_USUAL = Limits(MAX_STATES)


def _one_by_one(work: "Callable[[int], Outcome]", count: int) -> "Iterable[Outcome]":
    return map(work, range(count))


def mutate(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    limits: Limits = _USUAL,
    prove: Prover | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    spread: Spread = _one_by_one,
) -> Strength:
    """Judge every mutant of a machine.

    It is looked at with the smallest parameters, and with `parameters` or the defaults. A mutant is noticed when `check` of it has an error, a violated property or a scenario that fails. `prove`, when given, is asked about
    parameters that are not explored; without it a mutant of a machine with parameters is equal only if its rows read the same. Mutants that are not judged when the time of `limits` is over are
    of the kind `not judged`. `spread` does work for each number below a count, and gives the results in order. ValueError when the machine itself does not pass.
    """
    judging = _Judging(machine, parameters, limits, prove)
    every = [each for each in mutants(machine) if not _is_set(each, parameters)]
    judged = []
    for mutant, (kind, by) in zip(every, spread(lambda number: judging(every[number]), len(every)), strict=True):
        judged.append(Judged(mutant, kind, by))
        progress(len(judged), len(every))
    return Strength(machine, tuple(judged))


class _Judging:
    """Judges mutants of a machine that passes itself; ValueError for another."""

    def __init__(
        self, machine: Machine, parameters: Mapping[str, Value] | None, limits: Limits, prove: Prover | None
    ) -> None:
        self._machine, self._parameters, self._limits = machine, parameters, limits
        self._values = _looked_at(machine, parameters)
        self._engines = cache(lambda *_: Again())
        self._own = closed_system(machine, limits.expired)
        unsound = complaint(machine, self._values, limits, lambda: self._own, engines=self._engines)
        if unsound and not limits.expired():
            raise ValueError(f"{machine.name} itself does not pass: {unsound}")
        self._compare = _Comparison(self._own, self._values, limits, prove)

    @cached_property
    def _usual(self) -> frozenset[str]:
        return self._warnings(self._machine)

    def __call__(self, mutant: Mutant) -> Outcome:
        """Judge one mutant: its kind, and what noticed it or why it is that."""
        judged = _LATE if self._limits.expired() else self._judged(mutant)
        return _LATE if self._limits.expired() else judged  # what was found in a hurry may be for want of time

    def _judged(self, mutant: Mutant) -> Outcome:
        if mutant.group == "Effects":
            more = sorted(self._warnings(mutant.machine) - self._usual)
            return ("noticed", more[0]) if more else ("survived", "")
        is_default = isinstance(mutant.at, Parameter)
        looked_at = _looked_at(mutant.machine, self._parameters) if is_default else self._values
        laid_out = cache(partial(closed_system, mutant.machine, self._limits.expired, self._own))
        differs = cache(lambda: is_default or self._compare.told_apart(laid_out()))
        noticed = complaint(mutant.machine, looked_at, self._limits, laid_out, differs, self._engines)
        if noticed or differs():
            return "noticed" if noticed else "survived", noticed or ""
        return self._compare(laid_out())

    def _warnings(self, machine: Machine) -> frozenset[str]:
        """Give the codes, each with its words, of what `check` finds at these values."""
        most = self._limits.max_states
        reports = (check(machine, parameters=there, max_states=most) for there in self._values)
        return frozenset(f"{found.code} ({found.message})" for report in reports for found in report.diagnostics)


def _is_set(mutant: Mutant, parameters: Mapping[str, Value] | None) -> bool:
    """Tell whether a mutant's fault is in the default of a parameter that has another value here."""
    return isinstance(mutant.at, Parameter) and mutant.at.name in (parameters or {})


def complaint(
    machine: Machine,
    values: Sequence[Mapping[str, Value]],
    limits: Limits,
    laid_out: Callable[[], System],
    differs: Callable[[], bool] = lambda: True,
    engines: Engines = lambda *_: automatic(),
) -> str | None:
    """Give the first thing that makes a check fail, the cheapest ones first: a scenario, an error, a violated property.

    `values` are the parameters to explore at; `laid_out` gives the machine's system. Properties are judged where it `differs` there from a machine that has them.
    """
    for result in run_scenarios(machine):
        if not result.ok:
            return f"scenario {result.name}"
    static = (*said_otherwise(machine), *dead_ends(machine), *vain_effects(machine), *definition4(machine))
    places = [machine.at(there) for there in values]
    if found := _first_error((*static, *(found for there in places for found in start_outside(there)))):
        return found
    system = laid_out()
    found_at: list[Exploration] = []
    for number, there in enumerate(places):
        here = attrs.evolve(system, machine=there)
        questions = Questions(here, [claim.form for claim in machine.properties])
        found_at.append(explored(here, limits, engine=engines(number), also=questions.conditions, hurries=True))
        errors = from_explorations(found_at[-1:], given=True, warned=False)
        if found := _first_error(errors) or (
            _first_error(from_explorations(found_at, warned=False)) if there is places[-1] else ""
        ):
            return found
        if differs() and (form := next(violated_at(questions, found_at[-1], limits, partial(engines, number)), None)):
            return show(form)
    return None


def _first_error(found: Sequence[Diagnostic]) -> str | None:
    return next((diagnostic.code for diagnostic in found if diagnostic.severity == "error"), None)


def prover(machine: Machine) -> Prover:
    """Give what proves by induction that a machine never comes to a difference. Raises NoSolverError when z3 is not installed."""
    session = Session(machine, lambda: False)

    def never(sights: tuple[Sight, ...]) -> bool:
        finding = Safety(session, Observed(session.system, FALSE, sights)).finding()
        return isinstance(finding, Finding) and finding.verdict == "PROVED"

    return never


class _Comparison:
    """The machine's own system, with which survivors are compared, and where its runs can be."""

    def __init__(
        self, system: System, values: Sequence[Mapping[str, Value]], limits: Limits, prove: Prover | None
    ) -> None:
        self._system, self._prove = system, prove
        self._reached = cache(partial(_Reached, system, limits))
        self._machines = [system.machine.at(there) for there in values]

    def told_apart(self, system: System) -> bool:
        """Tell whether some run at the values explored comes to where a mutant does something else; `system` is the mutant's."""
        sights = differences(self._system, system, never_two=True)
        return bool(sights) and any(reached.comes_to(sights) for reached in map(self._reached, self._machines))

    def __call__(self, system: System) -> Outcome:
        """Judge a mutant that no run at the values explored tells apart: whether it is equal, and how that is known."""
        sights = differences(self._system, system, never_two=True)
        if sights and not self._system.machine.parameters:
            return "equal", "the same steps from everywhere a run can be"
        if self._system.machine.parameters:  # at other values, two rows may be enabled at once
            sights = differences(self._system, system)
        if not sights:
            return "equal", "its rows say the same"
        if self._prove is not None and self._prove(sights):
            return "equal", "the same steps, proved for all parameter values"
        return "survived", "no difference was found at the values explored, and none is excluded at others"


class _Reached:
    """Where the runs of a system can be at its parameters' values: numbers of configurations, by their location."""

    def __init__(self, system: System, limits: Limits, machine: Machine) -> None:
        self._ground = ground(attrs.evolve(system, machine=machine), hurries=True, expired=limits.expired)
        self._data: dict[int, list[int]] = {}
        for layer in search(self._ground, (), attrs.evolve(limits, max_states=MAX_STATES)).layers or ():
            for location, data in (divmod(number, self._ground.volume) for number in layer):
                self._data.setdefault(location, []).append(data)

    def comes_to(self, sights: Iterable[Sight]) -> bool:
        """Tell whether one of these is seen there."""
        watches = self._ground.watches((sight.location, sight.condition) for sight in sights)
        return any(self._is_true(watch) for watch in watches if watch is not None)

    def _is_true(self, watch: Watch) -> bool:
        data = self._data.get(watch.location, [])
        if len(data) > _FEW:
            return first_where(Writer(self._ground), watch.condition)(data) is not None
        return any(evaluate(watch.condition, self._ground.values(each)) for each in data)


def _looked_at(machine: Machine, parameters: Mapping[str, Value] | None) -> tuple[Mapping[str, Value], ...]:
    """Give the parameters to explore at, the smallest ones first: most faults show there, and some rows are taken only there."""
    smallest, given = minima(machine), machine.at(parameters or {}).constants
    return (smallest, given) if dict(smallest) != dict(given) else (given,)


def differences(one: System, other: System, *, never_two: bool = False) -> tuple[Sight, ...]:
    """Give when, at each location of `one`, the two do not do the same; none at locations that the other does not have.

    The two have the same parameters and variables. If no such condition can come true in a run of the first, both take the same steps for
    ever: same events, guards asked, effects in order, states and values.
    The other has every location that both reach by doing the same, so a first difference is always at one it has. Of the order of timers only what is said
    of timers that both have counts. With `never_two` they are compared where, in both, no two rows are enabled at once: as wherever a run comes to that
    passes its check.
    """
    shared = _timer_rows(one.machine) & _timer_rows(other.machine)
    mine, theirs = (tuple(_ordering(shared, location) for location in system.locations) for system in (one, other))
    if one.variables != other.variables or mine[:1] != theirs[:1]:
        return (Sight(0, TRUE),)
    places: dict[Location, list[int]] = {}
    for place, location in enumerate(theirs):
        places.setdefault(location, []).append(place)
    found, told = [], _Told(one, other, mine, theirs, never_two)
    for place, location in enumerate(mine):
        condition = any_of(each for there in places.get(location, ()) for each in told.at(place, there))
        if condition != FALSE:
            found.append(Sight(place, condition))
    return tuple(found)


def _timer_rows(machine: Machine) -> frozenset[Timer]:
    return frozenset((row.source, row.event) for row in machine.transitions if row.is_timer)


def _ordering(timers: frozenset[Timer], location: Location) -> Location:
    """Return a location with the order of these timers alone."""
    return attrs.evolve(location, precedence=frozenset(pair for pair in location.precedence if timers.issuperset(pair)))


@attrs.frozen
class _Told:
    """What two systems do otherwise; `left` and `right` are their locations as they are compared."""

    one: System
    other: System
    left: tuple[Location, ...]
    right: tuple[Location, ...]
    never_two: bool

    def at(self, here: int, there: int) -> Iterator[Expr]:
        """Say when a row of either system is taken and no row of the other does the same."""
        mine, theirs = _by_occurrence(self.one.commands_at[here]), _by_occurrence(self.other.commands_at[there])
        for occurrence in dict.fromkeys([*mine, *theirs]):
            first, second = self._apart(mine.get(occurrence, []), theirs.get(occurrence, []))
            for command in first:
                yield self._unmatched(command, ((other, self._same(command, other)) for other in second))
            for command in second:
                yield self._unmatched(command, ((other, self._same(other, command)) for other in first))

    def _apart(self, mine: list[Command], theirs: list[Command]) -> tuple[list[Command], list[Command]]:
        """Leave out the commands that both have: where one of these is taken, both do the same, since no two are taken at once."""
        first = {self._form(command, self.left): command for command in mine}
        second = {self._form(command, self.right): command for command in theirs}
        if len(first) < len(mine) or len(second) < len(theirs):
            return mine, theirs
        return [first[each] for each in first if each not in second], [
            second[each] for each in second if each not in first
        ]

    def _form(self, command: Command, places: tuple[Location, ...]) -> tuple[object, ...]:
        rivals = () if self.never_two else command.rivals
        taken = command.enabled, command.safe, rivals
        return taken, places[command.target], command.updates, command.effects, _timers(command)

    def _same(self, command: Command, other: Command) -> Expr:
        """Say when two commands lead to the same configuration with the same effects, and end the same timers."""
        there = self.left[command.target] == self.right[other.target]
        if not there or command.effects != other.effects or _timers(command) != _timers(other):
            return FALSE
        assigned = ((name, Name(name, "variable")) for name in sorted({*command.after, *other.after}))
        return all_of(compared(command.after.get(n, kept), "==", other.after.get(n, kept)) for n, kept in assigned)

    def _unmatched(self, command: Command, others: Iterable[tuple[Command, Expr]]) -> Expr:
        """Say when a command is taken and none of the others that does the same; each comes with when it does."""
        mine = self._taken(command)
        alike = [(self._taken(other), same) for other, same in others if same != FALSE]
        if any(theirs == mine and same == TRUE for theirs, same in alike):
            return FALSE
        return all_of([mine, negated(any_of(all_of(each) for each in alike))])

    def _taken(self, command: Command) -> Expr:
        return all_of([command.enabled, command.safe]) if self.never_two else command.condition


def _by_occurrence(commands: tuple[Command, ...]) -> dict[Occurrence, list[Command]]:
    found: dict[Occurrence, list[Command]] = {}
    for command in commands:
        found.setdefault(command.occurrence, []).append(command)
    return found


def _timers(command: Command) -> frozenset[Promise]:
    """Give the timers that a command ends: one whose source is left and entered again starts anew (S11)."""
    return frozenset(promise for promise in command.ended if isinstance(promise, tuple))
