"""Conclusions: the result of one attempt to prove something, and what a proof rests on, in words.

When a proof fails, `failing_start` and `explain_gap` ask whether there is a run behind it, or only a start that no run reaches. They take an observed
system and the lemmas that were not enough. The smallest values at which induction fails are explored: a sight that is met there is a violation.
Otherwise the start of the failing step is not reached; a `Gap` says what about it is out of reach, and what would rule it out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from dsa.checks.observers import COUNT, HISTORY, NOW, OBLIGATION, OPEN, Observer, WatchedCondition
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
from dsa.checks.proof.proof_session import Sample
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
from dsa.system import GuardedCommand, Location, System, counter
from dsa.text import plural
from dsa.trace import Trace, show_occurrence, show_values

#: What people read for the observers' variables.
OBSERVER_WORDS = {HISTORY: "seen before", OBLIGATION: "owed", NOW: "now", COUNT: "count", OPEN: "scope open"}


#: Of more numbers than this, only the first and the last are written.
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


def failing_start(logic: Logic, observer: Observer, lemmas: Lemmas) -> InductionGap | None:
    """Return the smallest start of a step that induction cannot rule out."""
    system = observer.system
    parameters = [parameter.name for parameter in system.machine.parameters]
    starts = list(_starts(logic, observer, lemmas, parameters))
    return min(starts, key=lambda start: start.size(parameters)) if starts else None


def _starts(logic: Logic, observer: Observer, lemmas: Lemmas, parameters: Sequence[str]) -> Iterator[InductionGap]:
    conditions_at: dict[int, list[Expr]] = {}
    for sight in observer.sights:
        conditions_at.setdefault(sight.location, []).append(sight.condition)
    for sight in observer.sights:
        for place, command, conditions in _steps_before(observer.system, sight, conditions_at):
            all_conditions = [*conditions, *lemmas.get(place, ())]
            if FALSE not in all_conditions:
                answer = logic.smallest(all_conditions, parameters)
                if answer.can_be == "yes":
                    yield InductionGap(place, answer.values, command)


def _steps_before(
    system: System, sight: WatchedCondition, conditions_at: Mapping[int, Sequence[Expr]]
) -> Iterator[tuple[int, GuardedCommand | None, list[Expr]]]:
    """Yield what leads to a sight: the sight's own command, or every command to its location from where nothing is seen."""
    if sight.command is not None:
        yield sight.location, sight.command, [sight.condition]
        return
    region = whole(system)
    for index, command in enumerate(system.commands):
        if command.target == sight.location:
            unseen = negation(any_of(conditions_at.get(command.source, ())))
            yield command.source, command, [*region.condition(index), unseen, before(command, sight.condition)]


@attrs.frozen
class Gap:
    """Why a property is not shown, though nothing refutes it: a configuration that no run reaches, and a row that breaks it from there.

    `values` are those of variables, and of what a property remembers by what it is called; `parameters` those at which
    it was explored. `hint` is what the author may add.
    """

    state: str
    outstanding: tuple[str, ...]
    values: tuple[tuple[str, Value], ...]
    parameters: tuple[tuple[str, Value], ...]
    event: str
    line: int
    reach_text: str
    hint: str

    @property
    def how(self) -> str:
        """Return which row breaks the property, and from where."""
        waits = f" with {' and '.join(self.outstanding)} outstanding" if self.outstanding else ""
        here = f"{self.state}{waits}" + (f", {show_values(self.values)}" if self.values else "")
        row = f"the row on line {self.line} ({self.event})" if self.line else f"a row for {self.event}"
        return f"not shown, and not refuted: {row} breaks the claim from {here}"

    @property
    def why(self) -> str:
        """Return why that is not a refutation."""
        where = f" at {show_values(self.parameters)}" if self.parameters else ""
        return f"that configuration satisfies the claim, but no run reaches it{where}: {self.reach_text}"


def explain_gap(system: System, start: InductionGap, sample: Sample, variables: Sequence[str]) -> Gap:
    """Return the gap at a start: what is not reached at a sample's parameter values, what comes nearest, and what would rule it out."""
    machine, location, command = system.machine, system.locations[start.location], start.command
    assert command is not None, "a step leads to what induction does not rule out"
    names = [parameter.name for parameter in machine.parameters]
    gap_values = {name: start.values[name] for name in variables if name in start.values}
    points = [
        (system.locations[place], dict(zip(variables, values, strict=True))) for place, values in sample.configurations
    ]
    outstanding = _outstanding(system, location, gap_values)
    there = [
        values for where, values in points if where == location and _outstanding(system, where, values) == outstanding
    ]
    gap_values = {name: value for name, value in gap_values.items() if name not in _counters(system)}
    odd = [name for name, value in gap_values.items() if there and all(each[name] != value for each in there)]
    odd_values = {name: gap_values[name] for name in odd} or gap_values
    row = machine.transitions[command.row]
    return Gap(
        location.state,
        tuple(sorted(outstanding)),
        tuple(
            (_name(name), value)
            for name, value in (odd_values if len(gap_values) > _MOST_LISTED else gap_values).items()
        ),
        tuple(zip(names, sample.parameters, strict=True)),
        show_occurrence(command.occurrence),
        row.span.line if row.span else 0,
        _reach_text(_place(location.state, outstanding), gap_values, odd, there),
        _hint(
            system,
            location.state,
            outstanding,
            odd_values if there else {},
            points,
            dict(zip(names, sample.parameters, strict=True)),
        ),
    )


def _reach_text(
    place: str, gap_values: Mapping[str, Value], odd: Sequence[str], there: Sequence[Mapping[str, Value]]
) -> str:
    """Return what is reached instead of a gap; `there` are the values that are reached at its place, `odd` the variables that never have its values."""
    if not there:
        return f"{place} is never reached"
    if odd:
        return f"in {place}, " + ", ".join(f"{_name(n)} is {_range([each[n] for each in there])}" for n in odd)
    nearest = min(there, key=lambda each: _distance(gap_values, each))
    return f"no run reaches these values together; the nearest reached values are {_values_text({n: nearest[n] for n in gap_values})}"


def _counters(system: System) -> frozenset[str]:
    return frozenset(counter(effect).name for effect in system.counted_effects)


def _outstanding(system: System, here: Location, values: Mapping[str, Value]) -> frozenset[str]:
    """Return what is outstanding at a location with these values."""
    counted_effects = (effect for effect in system.counted_effects if values.get(counter(effect).name, 0))
    return here.outstanding.union(counted_effects)


def _place(state: str, outstanding: Iterable[str]) -> str:
    effects = sorted(outstanding)
    return f"{state} with {' and '.join(effects)} outstanding" if effects else state


_REMEMBER = "if the claim is true, add a variable that remembers the past events in the claim, and state in another property how this variable relates to them"


def _hint(
    system: System,
    state: str,
    outstanding: frozenset[str],
    odd: Mapping[str, Value],
    points: Sequence[tuple[Location, Mapping[str, Value]]],
    parameters: Mapping[str, Value],
) -> str:
    """Return what an author may add: a property that rules the configuration out, or a variable that remembers what the property does.

    Something is out of reach only at the parameter values that were explored; therefore the property names these.
    """
    own = {variable.name for variable in system.machine.variables}
    own_values = {name: value for name, value in odd.items() if name in own}
    alike = [
        _outstanding(system, where, values)
        for where, values in points
        if where.state == state and all(values[n] == v for n, v in own_values.items())
    ]
    if outstanding in alike:
        return _REMEMBER  # nothing that a property can name distinguishes the configuration from one that is reached
    parts = [state, *(unparse(_equals(name, value)) for name, value in own_values.items())]
    if alike:
        parts += [f"{'' if effect in outstanding else 'not '}pending {effect}" for effect in system.machine.answers]
    parts += [unparse(_equals(name, value)) for name, value in parameters.items()]
    example = f"never {' and '.join(parts)}"
    return f"if the claim is true, state another property that every row keeps and that rules out this configuration; it should imply: {example}"


def _equals(name: str, value: Value) -> Expr:
    variable = Name(name, "variable")
    if isinstance(value, bool):
        return variable if value else Not(variable)
    return Compare(variable, (("==", Symbol(value) if isinstance(value, str) else Integer(value)),))


def _distance(one: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[int, int]:
    names = [name for name in one if one[name] != other[name]]
    gaps = [abs(one[n] - other[n]) for n in names if isinstance(one[n], int) and isinstance(other[n], int)]  # type: ignore[operator]  # both are numbers
    return len(names), sum(gaps)


def _range(values: Sequence[Value]) -> str:
    numbers = sorted({value for value in values if isinstance(value, int) and not isinstance(value, bool)})
    if not numbers:
        return " or ".join(sorted({show_value(value) for value in values}))
    low, high = numbers[0], numbers[-1]
    if 1 < len(numbers) <= _MOST_LISTED and high - low >= len(numbers):
        return " or ".join(map(str, numbers))
    return str(low) if low == high else f"{low}..{high}"


def _values_text(values: Mapping[str, Value]) -> str:
    return show_values([(_name(name), value) for name, value in values.items()]) or "any values"


def _name(name: str) -> str:
    return OBSERVER_WORDS.get(name, name)


#: The most lemmas that are written; one that holds at several places is written once.
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
            by = f"{plural(len(strategy), 'step')} lead there, " if strategy else ""
            return f"{by}{_by_rank(ranks)}{_with(system, lemmas)}"
        case ExhaustiveEvidence(valuations, configurations):
            valuation_text = plural(len(valuations), "valuation") if valuations != ((),) else ""
            where = (
                f" at all {valuation_text}"
                if len(valuations) > 1
                else f" at {show_values(valuations[0])}"
                if valuation_text
                else ""
            )
            return f"explored: all {plural(configurations, 'configuration')}{where}"


def by_lemmas(system: System, lemmas: tuple[Lemma, ...]) -> str:
    """Return by which lemmas something is proved."""
    if not lemmas:
        return "row by row"
    sentences = _lemma_sentences(system, lemmas)
    text = "; ".join(sentences[:_MOST_LEMMAS]) + ("; .." if len(sentences) > _MOST_LEMMAS else "")
    return f"by induction with {plural(len(sentences), 'lemma')}: {text}"


def _with(system: System, lemmas: tuple[Lemma, ...]) -> str:
    return f", {plural(len(_lemma_sentences(system, lemmas)), 'lemma')}" if lemmas else ""


def _lemma_sentences(system: System, lemmas: Iterable[Lemma]) -> list[str]:
    """Return lemmas as sentences, those about counts and numbers first: they explain most."""
    places: dict[Expr, list[str]] = {}
    for lemma in lemmas:
        places.setdefault(lemma.condition, []).append(system.locations[lemma.location].state)
    pairs = sorted(places.items(), key=lambda item: (item[0] == FALSE, isinstance(item[0], Name), len(item[1])))
    return [_sentence(condition, list(dict.fromkeys(states))) for condition, states in pairs]


def _sentence(condition: Expr, states: list[str]) -> str:
    where = ", ".join(states) if len(states) <= _MOST_LEMMAS else f"{len(states)} states"
    return f"{where} never reached" if condition == FALSE else f"{expression_text(condition)} in {where}"


def expression_text(expr: Expr) -> str:
    """Return an expression as text, with words for the observers' variables."""

    def leaf(node: Leaf) -> Expr:
        return Name(OBSERVER_WORDS[node.name]) if isinstance(node, Name) and node.name in OBSERVER_WORDS else node

    return unparse(substitute(expr, leaf))


def _by_rank(ranks: tuple[tuple[Expr, ...], ...]) -> str:
    parts = {part: None for rank in ranks for part in rank if not isinstance(part, Integer)}
    texts = [expression_text(part) for part in parts]
    return f"rank ({', '.join(texts)})" if texts else "the order of the states is a rank"
