"""How strong a spec is: which small faults of a machine its checks, properties and scenarios notice.

Takes a machine that passes `check`; gives one `Judged` for each mutant. A mutant that nothing notices is compared with the machine:
equal, when no run can tell the two apart, or a survivor. Reads no files and prints nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import attrs

from dsa.checks.definition4 import definition4
from dsa.checks.engines.found import Limits
from dsa.checks.engines.python import search
from dsa.checks.explore import MAX_STATES, Exploration, explore
from dsa.checks.graph import dead_ends, vain_effects
from dsa.checks.mutants import Mutant, mutants
from dsa.checks.observers import Observed, Sight
from dsa.checks.proof.conclusion import Finding
from dsa.checks.proof.safety import Safety
from dsa.checks.proof.session import Session
from dsa.checks.properties import Questions
from dsa.checks.reached import from_explorations, start_outside
from dsa.checks.scenarios import run_scenarios
from dsa.checks.verdicts import judged_at
from dsa.claims import show
from dsa.errors import Diagnostic
from dsa.expr import TRUE, Expr, Name, Value
from dsa.ground import ground
from dsa.machine import Machine, minima
from dsa.meaning import Occurrence
from dsa.simplify import FALSE, all_of, any_of, compared, negated
from dsa.system import Command, Promise, System, closed_system

Kind = Literal["noticed", "survived", "equal"]
#: Given where a mutant differs: tells whether that is proved never to be reached, whatever the parameters.
Prover = Callable[[tuple[Sight, ...]], bool]


@attrs.frozen
class Judged:
    """What became of one mutant.

    `by` is what noticed it: a diagnostic's code, a property or a scenario; for an equal one, how that is known; for a survivor, empty
    when some run tells the two apart, or that no difference was found and none is excluded.
    """

    mutant: Mutant
    kind: Kind
    by: str


@attrs.frozen
class Strength:
    """The judged mutants of one machine."""

    machine: Machine = attrs.field(repr=False)
    judged: tuple[Judged, ...]

    def of_kind(self, kind: Kind) -> tuple[Judged, ...]:
        """Give the mutants of one kind."""
        return tuple(one for one in self.judged if one.kind == kind)

    @property
    def score(self) -> float | None:
        """The share noticed of those that are not equal, from 0 to 1; None when there are none."""
        noticed, survived = len(self.of_kind("noticed")), len(self.of_kind("survived"))
        return noticed / (noticed + survived) if noticed + survived else None


def mutate(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    max_states: int = MAX_STATES,
    prove: Prover | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Strength:
    """Judge every mutant of a machine.

    It is looked at with the smallest parameters, and with `parameters` or the defaults. A mutant is noticed when `check` of it has an error, a violated property or a scenario that fails. `prove`, when given, is asked about
    parameters that are not explored; without it a mutant of a machine with parameters is equal only if its rows read the same. ValueError when
    the machine itself does not pass.
    """
    values = _looked_at(machine, parameters)
    if unsound := complaint(machine, values, max_states):
        raise ValueError(f"{machine.name} itself does not pass: {unsound}")
    compare = _Comparison(machine, values, prove)
    every, judged = list(mutants(machine)), []
    for number, mutant in enumerate(every):
        progress(number, len(every))
        noticed = complaint(mutant.machine, values, max_states)
        judged.append(Judged(mutant, "noticed", noticed) if noticed else compare(mutant))
    return Strength(machine, tuple(judged))


def complaint(machine: Machine, values: Sequence[Mapping[str, Value]], max_states: int = MAX_STATES) -> str | None:
    """Give the first thing that makes a check fail, the cheapest ones first: a scenario, an error, a violated property.

    `values` are the parameters to explore at.
    """
    for result in run_scenarios(machine):
        if not result.ok:
            return f"scenario {result.name}"
    static = (*dead_ends(machine), *vain_effects(machine), *definition4(machine))
    places = [machine.at(there) for there in values]
    if found := _first_error((*static, *(found for there in places for found in start_outside(there)))):
        return found
    system = closed_system(machine)
    explored: list[Exploration] = []
    for there in places:
        here = attrs.evolve(system, machine=there)
        questions = Questions(here, [claim.form for claim in machine.properties])
        explored.append(explore(there, max_states=max_states, system=here, also=questions.conditions))
        if found := _first_error(from_explorations(explored[-1:], given=True)):
            return found
        judged = judged_at(questions, explored[-1], Limits(max_states))
        for claim, judgement in zip(machine.properties, judged.judgements, strict=True):
            if judgement.verdict == "VIOLATED":
                return show(claim.form)
    return _first_error(from_explorations(explored))


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
    """The machine's own system, with which survivors are compared."""

    def __init__(self, machine: Machine, values: Sequence[Mapping[str, Value]], prove: Prover | None) -> None:
        self._system, self._prove, self._values = closed_system(machine), prove, values

    def __call__(self, mutant: Mutant) -> Judged:
        """Tell a survivor from a mutant that means the same."""
        sights = differences(self._system, closed_system(mutant.machine))
        if not sights:
            return Judged(mutant, "equal", "its rows say the same")
        for values in self._values:
            if self._told_apart(sights, values):
                return Judged(mutant, "survived", "")
        if not self._system.machine.parameters:
            return Judged(mutant, "equal", "the same steps from everywhere a run can be")
        if self._prove is not None and self._prove(sights):
            return Judged(mutant, "equal", "the same steps, proved for all parameter values")
        return Judged(
            mutant, "survived", "no difference was found at the values explored, and none is excluded at others"
        )

    def _told_apart(self, sights: Iterable[Sight], values: Mapping[str, Value]) -> bool:
        """Tell whether some run at these values comes to a difference."""
        grounded = ground(attrs.evolve(self._system, machine=self._system.machine.at(values)))
        watches = [w for w in grounded.watches((s.location, s.condition) for s in sights) if w is not None]
        found = search(grounded, watches, Limits(MAX_STATES))
        return any(hit is not None for hit in found.hits)


def _looked_at(machine: Machine, parameters: Mapping[str, Value] | None) -> tuple[Mapping[str, Value], ...]:
    """Give the parameters to explore at, the smallest ones first: most faults show there, and some rows are taken only there."""
    return minima(machine), machine.at(parameters or {}).constants


def differences(one: System, other: System) -> tuple[Sight, ...]:
    """Give when, at each location of `one`, the two do not do the same; none at locations that the other does not have.

    The two have the same parameters and variables. If no such condition can come true in a run of the first, both take the same steps for
    ever: same events, guards asked, effects in order, states and values.
    The other has every location that both reach by doing the same, so a first difference is always at one it has.
    """
    if one.variables != other.variables or one.locations[:1] != other.locations[:1]:
        return (Sight(0, TRUE),)
    found = []
    for place, location in enumerate(one.locations):
        if location in other.index:
            condition = any_of(_differences(one, other, place, other.index[location]))
            if condition != FALSE:
                found.append(Sight(place, condition))
    return tuple(found)


def _differences(one: System, other: System, here: int, there: int) -> Iterator[Expr]:
    """Say when a row of either system is taken and no row of the other does the same."""
    mine, theirs = _by_occurrence(one.commands_at[here]), _by_occurrence(other.commands_at[there])
    for occurrence in dict.fromkeys([*mine, *theirs]):
        left, right = mine.get(occurrence, []), theirs.get(occurrence, [])
        for command in left:
            yield _unmatched(one, command, other, right)
        for command in right:
            yield _unmatched(other, command, one, left)


def _by_occurrence(commands: tuple[Command, ...]) -> dict[Occurrence, list[Command]]:
    found: dict[Occurrence, list[Command]] = {}
    for command in commands:
        found.setdefault(command.occurrence, []).append(command)
    return found


def _unmatched(mine: System, command: Command, theirs: System, others: list[Command]) -> Expr:
    if any(
        other.condition == command.condition and _same_configuration(mine, command, theirs, other) == TRUE
        for other in others
    ):
        return FALSE
    matched = any_of(all_of([other.condition, _same_configuration(mine, command, theirs, other)]) for other in others)
    return all_of([command.condition, negated(matched)])


def _same_configuration(mine: System, command: Command, theirs: System, other: Command) -> Expr:
    """Say when two commands lead to the same configuration with the same effects, and end the same timers."""
    there = mine.locations[command.target] == theirs.locations[other.target]
    if not there or command.effects != other.effects or _timers(command) != _timers(other):
        return FALSE
    assigned = sorted({*command.after, *other.after})
    values = (Name(name, "variable") for name in assigned)
    return all_of(
        compared(command.after.get(name.name, name), "==", other.after.get(name.name, name)) for name in values
    )


def _timers(command: Command) -> frozenset[Promise]:
    """Give the timers that a command ends: one whose source is left and entered again starts anew (S11)."""
    return frozenset(promise for promise in command.ended if isinstance(promise, tuple))
