"""Mutation testing: which small faults of a machine its checks, properties and scenarios notice.

`mutate` takes a machine that passes `check` and gives one `MutantResult` for each mutant. A mutant that nothing notices is compared
with the machine: it is equal when no run can distinguish the two, and otherwise a survivor. No run of the table shows what Effects tells the
driver; there, only new warnings count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Literal

import attrs

from dsa.checks.mutants import Group, Mutant, mutants
from dsa.checks.observers import Observer, WatchedCondition
from dsa.checks.proof.conclusion import ProofResult
from dsa.checks.proof.proof_session import ProofSession
from dsa.checks.proof.safety import Safety
from dsa.checks.properties import Questions
from dsa.checks.reachability import from_explorations
from dsa.checks.report import check, violated_at
from dsa.checks.scenarios import run_scenarios
from dsa.checks.search.engine import Engine, SearchLimits, Writer, first_where
from dsa.checks.search.exploration import MAX_STATES, Exploration, automatic, explore_system
from dsa.checks.search.incremental_search import IncrementalEngine
from dsa.checks.search.python_engine import search
from dsa.checks.table_faults import dead_ends, definition4, spec_differences, start_outside, vain_effects
from dsa.declarations import (
    RunParameter,
    Variable,
    show,
)
from dsa.errors import Diagnostic
from dsa.expr import (
    FALSE,
    TRUE,
    Expr,
    Name,
    Value,
    all_of,
    any_of,
    comparison,
    evaluate,
    negation,
)
from dsa.ground_system import GroundWatch, ground
from dsa.machine import Machine, Timer, minima
from dsa.semantics import Occurrence
from dsa.system import GuardedCommand, Location, Promise, System, closed_system, counter

#: Up to this many configurations are evaluated one by one: compiling a function for them would take longer.
_FEW = 100

Kind = Literal["noticed", "survived", "equal", "not judged"]
#: The kind of a mutant, and what noticed it or why it is of that kind.
Outcome = tuple[Kind, str]
#: Does work for each number below a count, and yields the results in order.
Spread = Callable[[Callable[[int], Outcome], int], Iterable[Outcome]]
_LATE: Outcome = ("not judged", "the time limit was reached")
#: Takes the conditions under which a mutant differs; returns whether it is proved that no run meets them, for all parameters.
Prover = Callable[[tuple[WatchedCondition, ...]], bool]
#: Returns the engine for a search, by the number of the valuation, and by the property when the search is for one property.
Engines = Callable[..., Engine]


@attrs.frozen
class MutantResult:
    """The result for one mutant.

    `by` is what noticed it: a diagnostic's code, a property or a scenario; for an equal one, how that is known; for a survivor, empty
    when some run distinguishes the two, or a sentence when no difference was found and none is excluded; for one that is not judged, why.
    """

    mutant: Mutant
    kind: Kind
    by: str


@attrs.frozen
class Strength:
    """The judged mutants of one machine."""

    machine: Machine = attrs.field(repr=False)
    results: tuple[MutantResult, ...]

    def of_kind(self, kind: Kind, group: Group | None = None) -> tuple[MutantResult, ...]:
        """Return the mutants of one kind, and of one group where one is named."""
        return tuple(one for one in self.results if one.kind == kind and group in {None, one.mutant.group})

    @property
    def score(self) -> float | None:
        """The share noticed of the faults in rows that are not equal, from 0 to 1; None when there are none."""
        return self.share("rows")

    def share(self, group: Group) -> float | None:
        """Return the share noticed of a group's faults that are not equal, from 0 to 1; None when there are none."""
        noticed_count, survivor_count = len(self.of_kind("noticed", group)), len(self.of_kind("survived", group))
        return noticed_count / (noticed_count + survivor_count) if noticed_count + survivor_count else None


def counts_text(strength: Strength, group: Group) -> str:
    """Return how many faults of a group are noticed, and by what; nothing if none of the group was judged."""
    if not any(one.mutant.group == group and one.kind != "not judged" for one in strength.results):
        return ""
    noticed_count, survivor_count, equal_count = (
        len(strength.of_kind(kind, group)) for kind in ("noticed", "survived", "equal")
    )
    kinds = Counter(_noticer(one) for one in strength.of_kind("noticed", group))
    by = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    share = strength.share(group)
    part = "" if share is None else f" ({_percent(share)})"
    counts_text = f"{noticed_count + survivor_count + equal_count} faults of {group}; {noticed_count} of {noticed_count + survivor_count} that are not equal to the machine are noticed{part}"
    return f"{counts_text}: {by}" if by else counts_text


def _percent(share: float) -> str:
    """Return a share as text; a share below 1 is not rounded to 100 %."""
    return f"{min(share, 0.999):.1%}" if share < 1 else "100.0%"


def _noticer(one: MutantResult) -> str:
    if one.by.startswith("DSA"):
        return "checks"
    return "scenarios" if one.by.startswith("scenario ") else "properties"


_USUAL = SearchLimits(MAX_STATES)


def _one_by_one(work: "Callable[[int], Outcome]", count: int) -> "Iterable[Outcome]":
    return map(work, range(count))


def mutate(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    limits: SearchLimits = _USUAL,
    prove: Prover | None = None,
    progress: Callable[[int, int], None] = lambda _count, _total: None,
    spread: Spread = _one_by_one,
) -> Strength:
    """Judge every mutant of a machine.

    Mutants run with the smallest parameters, and with `parameters` or the defaults. A mutant is noticed when `check` of
    it has an error, a violated property or a scenario that fails. `prove`, when given, decides for parameters that are
    not explored; without it a mutant of a machine with parameters is equal only if its rows read the same. Mutants that
    are not judged when the time of `limits` is over are of the kind `not judged`. `spread` does work for each number
    below a count, and yields the results in order. Raises ValueError when the machine itself does not pass.
    """
    judge = _MutantJudge(machine, parameters, limits, prove)
    every = [each for each in mutants(machine) if not _is_set(each, parameters)]
    results = []
    for mutant, (kind, by) in zip(every, spread(lambda number: judge(every[number]), len(every)), strict=True):
        results.append(MutantResult(mutant, kind, by))
        progress(len(results), len(every))
    return Strength(machine, tuple(results))


class _MutantJudge:
    """Judges mutants of a machine that passes itself; ValueError for another."""

    def __init__(
        self, machine: Machine, parameters: Mapping[str, Value] | None, limits: SearchLimits, prove: Prover | None
    ) -> None:
        self._machine, self._parameters, self._limits = machine, parameters, limits
        self._values = _valuations(machine, parameters)
        self._engines = cache(lambda *_: IncrementalEngine())
        self._own = closed_system(machine, limits.is_expired)
        unsound = complaint(machine, self._values, limits, lambda: self._own, engines=self._engines)
        if unsound and not limits.is_expired():
            raise ValueError(f"{machine.name} itself does not pass: {unsound}")
        self._compare = _MutantComparison(self._own, self._values, limits, prove)

    @cached_property
    def _usual(self) -> frozenset[str]:
        return self._warnings(self._machine)

    def __call__(self, mutant: Mutant) -> Outcome:
        """Judge one mutant: its kind, and what noticed it or why it is of that kind."""
        outcome = _LATE if self._limits.is_expired() else self._outcome(mutant)
        return _LATE if self._limits.is_expired() else outcome  # near the limit, a result may be due to lack of time

    def _outcome(self, mutant: Mutant) -> Outcome:
        if mutant.group == "Effects":
            more = sorted(self._warnings(mutant.machine) - self._usual)
            return ("noticed", more[0]) if more else ("survived", "")
        is_default = isinstance(mutant.at, RunParameter)
        values = _valuations(mutant.machine, self._parameters) if is_default else self._values
        build_system = cache(partial(closed_system, mutant.machine, self._limits.is_expired, self._own))
        differs = cache(lambda: is_default or self._compare.is_distinguishable(build_system()))
        complaint_text = complaint(mutant.machine, values, self._limits, build_system, differs, self._engines)
        if complaint_text or differs():
            return "noticed" if complaint_text else "survived", complaint_text or ""
        return self._compare(build_system())

    def _warnings(self, machine: Machine) -> frozenset[str]:
        """Return the codes, each with its words, of what `check` finds at these values."""
        most = self._limits.max_states
        reports = (check(machine, parameters=there, max_states=most) for there in self._values)
        return frozenset(
            f"{diagnostic.code} ({diagnostic.message})" for report in reports for diagnostic in report.diagnostics
        )


def _is_set(mutant: Mutant, parameters: Mapping[str, Value] | None) -> bool:
    """Return whether a mutant's fault is in the default of a parameter that has another value here."""
    return isinstance(mutant.at, RunParameter) and mutant.at.name in (parameters or {})


def complaint(
    machine: Machine,
    values: Sequence[Mapping[str, Value]],
    limits: SearchLimits,
    build_system: Callable[[], System],
    differs: Callable[[], bool] = lambda: True,
    engines: Engines = lambda *_: automatic(),
) -> str | None:
    """Return the first thing that makes a check fail, the cheapest ones first: a scenario, an error, a violated property.

    `values` are the parameters to explore at; `build_system` gives the machine's system. Properties are judged where it
    `differs` there from a machine that has them.
    """
    for result in run_scenarios(machine):
        if not result.ok:
            return f"scenario {result.name}"
    static = (*spec_differences(machine), *dead_ends(machine), *vain_effects(machine), *definition4(machine))
    places = [machine.at(there) for there in values]
    if code := _first_error((*static, *(fault for there in places for fault in start_outside(there)))):
        return code
    system = build_system()
    explorations: list[Exploration] = []
    for number, there in enumerate(places):
        here = attrs.evolve(system, machine=there)
        questions = Questions(here, [claim.form for claim in machine.properties])
        explorations.append(
            explore_system(here, limits, engine=engines(number), also=questions.conditions, hurries=True)
        )
        errors = from_explorations(explorations[-1:], has_parameters=True, with_warnings=False)
        if code := _first_error(errors) or (
            _first_error(from_explorations(explorations, with_warnings=False)) if there is places[-1] else ""
        ):
            return code
        if differs() and (
            form := next(violated_at(questions, explorations[-1], limits, partial(engines, number)), None)
        ):
            return show(form)
    return None


def _first_error(diagnostics: Sequence[Diagnostic]) -> str | None:
    return next((diagnostic.code for diagnostic in diagnostics if diagnostic.severity == "error"), None)


def prover(machine: Machine) -> Prover:
    """Return a prover that shows by induction that a machine never meets a difference. Raises DsaError when z3 is not installed."""
    session = ProofSession(machine, lambda: False)

    def never(sights: tuple[WatchedCondition, ...]) -> bool:
        finding = Safety(session, Observer(session.system, FALSE, sights)).finding()
        return isinstance(finding, ProofResult) and finding.verdict == "PROVED"

    return never


class _MutantComparison:
    """The machine's own system, with which survivors are compared, and where its runs can be."""

    def __init__(
        self, system: System, values: Sequence[Mapping[str, Value]], limits: SearchLimits, prove: Prover | None
    ) -> None:
        self._system, self._prove = system, prove
        self._reachable_sets = cache(partial(_ReachableSets, system, limits))
        self._machines = [system.machine.at(there) for there in values]

    def is_distinguishable(self, system: System) -> bool:
        """Return whether some run at the values explored reaches a place where a mutant does something else; `system` is the mutant's."""
        sights = differences(self._system, system, never_two=True)
        return bool(sights) and any(
            reachable_set.comes_to(sights) for reachable_set in map(self._reachable_sets, self._machines)
        )

    def __call__(self, system: System) -> Outcome:
        """Judge a mutant that no run at the values explored distinguishes: whether it is equal, and how that is known."""
        sights = differences(self._system, system, never_two=True)
        if sights and not self._system.machine.parameters:
            return "equal", "the same steps in every reachable configuration"
        if self._system.machine.parameters:  # at other values, two rows may be enabled at once
            sights = differences(self._system, system)
        if not sights:
            return "equal", "its rows mean the same as before"
        if self._prove is not None and self._prove(sights):
            return "equal", "the same steps, proved for all parameter values"
        return (
            "survived",
            "no difference was found at the parameter values explored, but other values may show a difference",
        )


class _ReachableSets:
    """Where the runs of a system can be at its parameters' values: numbers of configurations, by their location."""

    def __init__(self, system: System, limits: SearchLimits, machine: Machine) -> None:
        self._ground = ground(attrs.evolve(system, machine=machine), hurries=True, is_late=limits.is_expired)
        self._data: dict[int, list[int]] = {}
        for layer in search(self._ground, (), attrs.evolve(limits, max_states=MAX_STATES)).layers or ():
            for location, data in (divmod(number, self._ground.volume) for number in layer):
                self._data.setdefault(location, []).append(data)

    def comes_to(self, sights: Iterable[WatchedCondition]) -> bool:
        """Return whether one of these is seen there."""
        watches = self._ground.watches((sight.location, sight.condition) for sight in sights)
        return any(self._is_true(watch) for watch in watches if watch is not None)

    def _is_true(self, watch: GroundWatch) -> bool:
        data = self._data.get(watch.location, [])
        if len(data) > _FEW:
            return first_where(Writer(self._ground), watch.condition)(data) is not None
        return any(evaluate(watch.condition, self._ground.values(each)) for each in data)


def _valuations(machine: Machine, parameters: Mapping[str, Value] | None) -> tuple[Mapping[str, Value], ...]:
    """Return the parameters to explore at, the smallest ones first: most faults show there, and some rows are taken only there."""
    smallest, current = minima(machine), machine.at(parameters or {}).constants
    return (smallest, current) if dict(smallest) != dict(current) else (current,)


def differences(one: System, other: System, *, never_two: bool = False) -> tuple[WatchedCondition, ...]:
    """Return the conditions under which, at each location of `one`, the two do not do the same; none at locations that the other does not have.

    The two have the same parameters and variables. If no such condition can come true in a run of the first, both take
    the same steps for ever: same events, guards, effects in order, states and values. The other has every location that
    both reach by doing the same, so a first difference is always at one it has. Of the order of timers, only the part
    about timers that both have counts. With `never_two` they are compared where, in both, no two rows are enabled at
    once, which is so wherever runs of a machine lead that passes its check.
    """
    common_timers = _timer_rows(one.machine) & _timer_rows(other.machine)
    mine, theirs = (
        tuple(_ordering(common_timers, location) for location in system.locations) for system in (one, other)
    )
    if _variables(one) != _variables(other) or mine[:1] != theirs[:1]:
        return (WatchedCondition(0, TRUE),)
    places: dict[Location, list[int]] = {}
    for place, location in enumerate(theirs):
        places.setdefault(location, []).append(place)
    conditions, difference = [], _Difference(one, other, mine, theirs, never_two)
    for place, location in enumerate(mine):
        condition = any_of(each for there in places.get(location, ()) for each in difference.at(place, there))
        if condition != FALSE:
            conditions.append(WatchedCondition(place, condition))
    return tuple(conditions)


def _variables(system: System) -> list[Variable | str]:
    """Return the variables; of numbers of effects the names, as what an effect's limit forbids is in the commands' conditions."""
    numbers = {counter(effect).name for effect in system.counted_effects}
    return [variable.name if variable.name in numbers else variable for variable in system.variables]


def _timer_rows(machine: Machine) -> frozenset[Timer]:
    return frozenset((row.source, row.event) for row in machine.transitions if row.is_timer)


def _ordering(timers: frozenset[Timer], location: Location) -> Location:
    """Return a location with the order of these timers alone."""
    return attrs.evolve(location, precedence=frozenset(pair for pair in location.precedence if timers.issuperset(pair)))


@attrs.frozen
class _Difference:
    """The difference of two systems; `left` and `right` are their locations as they are compared."""

    one: System
    other: System
    left: tuple[Location, ...]
    right: tuple[Location, ...]
    never_two: bool

    def at(self, here: int, there: int) -> Iterator[Expr]:
        """Yield when a row of either system is taken and no row of the other does the same."""
        mine, theirs = _by_occurrence(self.one.commands_at[here]), _by_occurrence(self.other.commands_at[there])
        for occurrence in dict.fromkeys([*mine, *theirs]):
            first, second = self._apart(mine.get(occurrence, []), theirs.get(occurrence, []))
            for command in first:
                yield self._mismatch(command, ((other, self._same(command, other)) for other in second))
            for command in second:
                yield self._mismatch(command, ((other, self._same(other, command)) for other in first))

    def _apart(
        self, mine: list[GuardedCommand], theirs: list[GuardedCommand]
    ) -> tuple[list[GuardedCommand], list[GuardedCommand]]:
        """Leave out the commands that both have: where one of these is taken, both do the same, since no two are taken at once."""
        first = {self._form(command, self.left): command for command in mine}
        second = {self._form(command, self.right): command for command in theirs}
        if len(first) < len(mine) or len(second) < len(theirs):
            return mine, theirs
        return [first[each] for each in first if each not in second], [
            second[each] for each in second if each not in first
        ]

    def _form(self, command: GuardedCommand, places: tuple[Location, ...]) -> tuple[object, ...]:
        rivals = () if self.never_two else command.rivals
        taken = command.enabled_when, command.safe, rivals
        return taken, places[command.target], command.updates, command.effects, _timers(command)

    def _same(self, command: GuardedCommand, other: GuardedCommand) -> Expr:
        """Return the condition that two commands lead to the same configuration with the same effects, and end the same timers."""
        there = self.left[command.target] == self.right[other.target]
        if not there or command.effects != other.effects or _timers(command) != _timers(other):
            return FALSE
        variables = ((name, Name(name, "variable")) for name in sorted({*command.after, *other.after}))
        return all_of(
            comparison(command.after.get(n, variable), "==", other.after.get(n, variable)) for n, variable in variables
        )

    def _mismatch(self, command: GuardedCommand, others: Iterable[tuple[GuardedCommand, Expr]]) -> Expr:
        """Return the condition that a command is taken, and none of the others that does the same; each other comes with the condition that it does."""
        mine = self._taken(command)
        alike = [(self._taken(other), same) for other, same in others if same != FALSE]
        if any(theirs == mine and same == TRUE for theirs, same in alike):
            return FALSE
        return all_of([mine, negation(any_of(all_of(each) for each in alike))])

    def _taken(self, command: GuardedCommand) -> Expr:
        return all_of([command.enabled_when, command.safe]) if self.never_two else command.condition


def _by_occurrence(commands: tuple[GuardedCommand, ...]) -> dict[Occurrence, list[GuardedCommand]]:
    groups: dict[Occurrence, list[GuardedCommand]] = {}
    for command in commands:
        groups.setdefault(command.occurrence, []).append(command)
    return groups


def _timers(command: GuardedCommand) -> frozenset[Promise]:
    """Return the timers that a command ends: one whose source is left and entered again starts anew (S11)."""
    return frozenset(promise for promise in command.endings if isinstance(promise, tuple))
