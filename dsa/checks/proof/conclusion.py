"""Proofs that failed: is there a run behind it, or only a start that no run reaches?

Takes an observed system and the lemmas that were not enough. The smallest values at which induction fails are explored: a sight that is
met there is a violation. Otherwise the start of the failing step is not reached, and what is out of reach about it is said, with what would rule it out.

Conclusions: what came of one attempt to prove something, and what a proof rests on, in words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from dsa.checks.observers import COUNT, NOW, OPEN, SEEN, WAITING, Observer, WatchedCondition
from dsa.checks.proof.induction import (
    Evidence,
    ExhaustiveEvidence,
    Inductive,
    Lemma,
    Lemmas,
    RankEvidence,
    before,
    whole,
)
from dsa.checks.proof.lemma_candidates import Sample
from dsa.checks.proof.solver import Logic
from dsa.checks.properties import PropertyVerdict
from dsa.expr import (
    FALSE,
    Compare,
    Expr,
    Integer,
    Leaf,
    Name,
    Not,
    Symbol,
    Value,
    any_of,
    negation,
    show_value,
    substitute,
    unparse,
)
from dsa.system import GuardedCommand, Location, System
from dsa.trace import Trace, show_occurrence, show_values

#: How observers' variables are called where people read.
SPOKEN = {SEEN: "seen before", WAITING: "owed", NOW: "now", COUNT: "count", OPEN: "scope open"}


#: Of more numbers than this, only the first and the last are said.
_MOST_LISTED = 8


@attrs.frozen
class InductionGap:
    """A configuration from which induction fails: the values there, and the step that leads to a sight (None: it is one)."""

    location: int
    values: Mapping[str, Value]
    command: GuardedCommand | None

    def size(self, parameters: Sequence[str]) -> tuple[int, int]:
        """Return how large the parameters are, and how large everything is."""
        sizes = {n: abs(v) if isinstance(v, int) else 0 for n, v in self.values.items()}
        return sum(sizes.get(name, 0) for name in parameters), sum(sizes.values())


def failing_start(logic: Logic, found: Observer, lemmas: Lemmas) -> InductionGap | None:
    """Return the smallest start of a step that induction cannot rule out."""
    system = found.system
    parameters = [parameter.name for parameter in system.machine.parameters]
    starts = list(_starts(logic, found, lemmas, parameters))
    return min(starts, key=lambda start: start.size(parameters)) if starts else None


def _starts(logic: Logic, found: Observer, lemmas: Lemmas, parameters: Sequence[str]) -> Iterator[InductionGap]:
    seen: dict[int, list[Expr]] = {}
    for sight in found.sights:
        seen.setdefault(sight.location, []).append(sight.condition)
    for sight in found.sights:
        for place, command, conditions in _leading(found.system, sight, seen):
            known = [*conditions, *lemmas.get(place, ())]
            if FALSE not in known:
                answer = logic.smallest(known, parameters)
                if answer.can_be == "yes":
                    yield InductionGap(place, answer.values, command)


def _leading(
    system: System, sight: WatchedCondition, seen: Mapping[int, Sequence[Expr]]
) -> Iterator[tuple[int, GuardedCommand | None, list[Expr]]]:
    """Yield what leads to a sight: the sight's own command, or every command to its location from where nothing is seen."""
    if sight.command is not None:
        yield sight.location, sight.command, [sight.condition]
        return
    region = whole(system)
    for index, command in enumerate(system.commands):
        if command.target == sight.location:
            unseen = negation(any_of(seen.get(command.source, ())))
            yield command.source, command, [*region.condition(index), unseen, before(command, sight.condition)]


@attrs.frozen
class Gap:
    """Why a property is not shown, though nothing refutes it: a configuration that no run reaches, and a row that breaks it from there.

    `values` are those of variables, and of what a property remembers by what it is called; `parameters` those at which it was explored. `hint` is what
    the author may add.
    """

    state: str
    outstanding: tuple[str, ...]
    values: tuple[tuple[str, Value], ...]
    parameters: tuple[tuple[str, Value], ...]
    event: str
    line: int
    reached: str
    hint: str

    @property
    def how(self) -> str:
        """Return which row breaks the property, and from where."""
        waits = f" with {' and '.join(self.outstanding)} outstanding" if self.outstanding else ""
        here = f"{self.state}{waits}" + (f", {show_values(self.values)}" if self.values else "")
        row = f"the row on line {self.line} ({self.event})" if self.line else f"a row for {self.event}"
        return f"not shown, and not refuted: {row} breaks it from {here}"

    @property
    def why(self) -> str:
        """Return why that is no refutation."""
        given = f" at {show_values(self.parameters)}" if self.parameters else ""
        return f"which satisfies it, but no run reaches that{given}: {self.reached}"


def explained(system: System, start: InductionGap, sample: Sample, variables: Sequence[str]) -> Gap:
    """Return what about a start is not reached at a sample's parameter values, what comes nearest, and what would rule it out."""
    machine, location, command = system.machine, system.locations[start.location], start.command
    assert command is not None, "a step leads to what induction does not rule out"
    names = [parameter.name for parameter in machine.parameters]
    shown = {name: start.values[name] for name in variables if name in start.values}
    met = [
        (system.locations[place], dict(zip(variables, values, strict=True))) for place, values in sample.configurations
    ]
    there = [values for where, values in met if where == location]
    odd = [name for name, value in shown.items() if there and all(reached[name] != value for reached in there)]
    said = {name: shown[name] for name in odd} or shown
    if not there:
        reached = f"{_place(location)} is never reached"
    elif odd:
        reached = f"in {_place(location)}, " + ", ".join(
            f"{_name(n)} is {_range([each[n] for each in there])}" for n in odd
        )
    else:
        nearest = min(there, key=lambda each: _distance(shown, each))
        reached = f"these values are not reached together, the nearest are {_spoken({n: nearest[n] for n in shown})}"
    row = machine.transitions[command.row]
    return Gap(
        location.state,
        tuple(sorted(location.outstanding)),
        tuple((_name(name), value) for name, value in (said if len(shown) > _MOST_LISTED else shown).items()),
        tuple(zip(names, sample.parameters, strict=True)),
        show_occurrence(command.occurrence),
        row.span.line if row.span else 0,
        reached,
        _hint(system, location, said if there else {}, met, dict(zip(names, sample.parameters, strict=True))),
    )


def _place(location: Location) -> str:
    waits = " with " + " and ".join(sorted(location.outstanding)) + " outstanding" if location.outstanding else ""
    return f"{location.state}{waits}"


_REMEMBER = "if it is true, let a variable remember what the property looks back to, and state as another property how the two go together"


def _hint(
    system: System,
    here: Location,
    odd: Mapping[str, Value],
    met: Sequence[tuple[Location, Mapping[str, Value]]],
    parameters: Mapping[str, Value],
) -> str:
    """Return what an author may add: a property that rules the configuration out, or a variable that remembers what the property does.

    What is out of reach is so at the parameter values looked at, which the property names therefore.
    """
    own = {variable.name for variable in system.machine.variables}
    named = {name: value for name, value in odd.items() if name in own}
    alike = [
        where for where, values in met if where.state == here.state and all(values[n] == v for n, v in named.items())
    ]
    if any(where.outstanding == here.outstanding for where in alike):
        return _REMEMBER  # what a property can name does not tell the configuration from one that is reached
    parts = [here.state, *(unparse(_equals(name, value)) for name, value in named.items())]
    if alike:
        parts += [
            f"{'' if effect in here.outstanding else 'not '}pending {effect}" for effect in system.machine.answers
        ]
    parts += [unparse(_equals(name, value)) for name, value in parameters.items()]
    example = f"never {' and '.join(parts)}"
    return f"if it is true, state what rules this out as another property that every row keeps; from that should follow: {example}"


def _equals(name: str, value: Value) -> Expr:
    variable = Name(name, "variable")
    if isinstance(value, bool):
        return variable if value else Not(variable)
    return Compare(variable, (("==", Symbol(value) if isinstance(value, str) else Integer(value)),))


def _distance(one: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[int, int]:
    differing = [name for name in one if one[name] != other[name]]
    gaps = [abs(one[n] - other[n]) for n in differing if isinstance(one[n], int) and isinstance(other[n], int)]  # type: ignore[operator]  # both are numbers
    return len(differing), sum(gaps)


def _range(values: Sequence[Value]) -> str:
    numbers = sorted({value for value in values if isinstance(value, int) and not isinstance(value, bool)})
    if not numbers:
        return " or ".join(sorted({show_value(value) for value in values}))
    low, high = numbers[0], numbers[-1]
    if 1 < len(numbers) <= _MOST_LISTED and high - low >= len(numbers):
        return " or ".join(map(str, numbers))
    return str(low) if low == high else f"{low}..{high}"


def _spoken(values: Mapping[str, Value]) -> str:
    return show_values([(_name(name), value) for name, value in values.items()]) or "any values"


def _name(name: str) -> str:
    return SPOKEN.get(name, name)


#: Lemmas that are said; those that say the same of several places are said once.
_MOST_LEMMAS = 3


@attrs.frozen
class ProofResult:
    """A verdict, what it rests on in words, and the evidence or the trace behind it.

    `how` says how it was proved, where it is broken, or why it is not known. PROVED has evidence, VIOLATED a trace (a shortest one at
    the values it shows), NOT INDUCTIVE a gap. `assumptions` are the promises and the fairness that a proof uses.
    """

    verdict: PropertyVerdict
    how: str
    evidence: Evidence | None = None
    trace: Trace | None = None
    assumptions: tuple[str, ...] = ()
    gap: Gap | None = None


def unknown(why: str) -> ProofResult:
    """Return the verdict UNKNOWN, with the reason."""
    return ProofResult("UNKNOWN", why)


def in_words(system: System, evidence: Evidence) -> str:
    """Return what a proof rests on."""
    match evidence:
        case Inductive(lemmas):
            return by_lemmas(system, lemmas)
        case RankEvidence(lemmas, ranks, strategy, _):
            by = f"{_counted(len(strategy), 'step')} lead there, " if strategy else ""
            return f"{by}{_by_rank(ranks)}{_with(system, lemmas)}"
        case ExhaustiveEvidence(valuations, configurations):
            given = _counted(len(valuations), "valuation") if valuations != ((),) else ""
            where = f" at all {given}" if len(valuations) > 1 else f" at {show_values(valuations[0])}" if given else ""
            return f"explored: all {_counted(configurations, 'configuration')}{where}"


def by_lemmas(system: System, lemmas: tuple[Lemma, ...]) -> str:
    """Say by which lemmas something is proved."""
    if not lemmas:
        return "row by row"
    said = _said(system, lemmas)
    shown = "; ".join(said[:_MOST_LEMMAS]) + ("; .." if len(said) > _MOST_LEMMAS else "")
    return f"by induction with {_counted(len(said), 'lemma')}: {shown}"


def _with(system: System, lemmas: tuple[Lemma, ...]) -> str:
    return f", {_counted(len(_said(system, lemmas)), 'lemma')}" if lemmas else ""


def _said(system: System, lemmas: Iterable[Lemma]) -> list[str]:
    """Write lemmas as sentences, those about counts and numbers first: they say most."""
    places: dict[Expr, list[str]] = {}
    for lemma in lemmas:
        places.setdefault(lemma.condition, []).append(system.locations[lemma.location].state)
    ordered = sorted(places.items(), key=lambda item: (item[0] == FALSE, isinstance(item[0], Name), len(item[1])))
    return [_sentence(condition, list(dict.fromkeys(states))) for condition, states in ordered]


def _sentence(condition: Expr, states: list[str]) -> str:
    where = ", ".join(states) if len(states) <= _MOST_LEMMAS else f"{len(states)} states"
    return f"{where} never reached" if condition == FALSE else f"{spoken(condition)} in {where}"


def spoken(expr: Expr) -> str:
    """Write an expression with the observers' variables called what they are."""

    def leaf(node: Leaf) -> Expr:
        return Name(SPOKEN[node.name]) if isinstance(node, Name) and node.name in SPOKEN else node

    return unparse(substitute(expr, leaf))


def _by_rank(ranks: tuple[tuple[Expr, ...], ...]) -> str:
    parts = {part: None for rank in ranks for part in rank if not isinstance(part, Integer)}
    shown = [spoken(part) for part in parts]
    return f"rank ({', '.join(shown)})" if shown else "the order of the states is a rank"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
