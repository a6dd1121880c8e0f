"""Proofs that failed: is there a run behind it, or only a start that no run reaches?

Takes an observed system and the lemmas that were not enough. The smallest values at which induction fails are explored: a sight that is
met there is a violation. Otherwise the start of the failing step is not reached, and what is out of reach about it is said.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from dsa.checks.observers import COUNT, NOW, OPEN, SEEN, WAITING, Observed, Sight
from dsa.checks.proof.induction import Lemmas, before, whole
from dsa.checks.proof.logic import Logic
from dsa.checks.proof.samples import Sample
from dsa.expr import Expr, Value, show_value
from dsa.simplify import FALSE, any_of, negated
from dsa.system import Command, System
from dsa.trace import show_occurrence, show_values

#: How observers' variables are called where people read.
SPOKEN = {SEEN: "seen before", WAITING: "owed", NOW: "now", COUNT: "count", OPEN: "scope open"}


#: Of more numbers than this, only the first and the last are said.
_MOST_LISTED = 8


@attrs.frozen
class Start:
    """A configuration from which induction fails: the values there, and the step that leads to a sight (None: it is one)."""

    location: int
    values: Mapping[str, Value]
    command: Command | None

    def size(self, parameters: Sequence[str]) -> tuple[int, int]:
        """Give how large the parameters are, and how large everything is."""
        sizes = {n: abs(v) if isinstance(v, int) else 0 for n, v in self.values.items()}
        return sum(sizes.get(name, 0) for name in parameters), sum(sizes.values())


def failing_start(logic: Logic, found: Observed, lemmas: Lemmas) -> Start | None:
    """Give the smallest start of a step that induction cannot rule out."""
    system = found.system
    parameters = [parameter.name for parameter in system.machine.parameters]
    starts = list(_starts(logic, found, lemmas, parameters))
    return min(starts, key=lambda start: start.size(parameters)) if starts else None


def _starts(logic: Logic, found: Observed, lemmas: Lemmas, parameters: Sequence[str]) -> Iterator[Start]:
    seen: dict[int, list[Expr]] = {}
    for sight in found.sights:
        seen.setdefault(sight.location, []).append(sight.condition)
    for sight in found.sights:
        for place, command, conditions in _leading(found.system, sight, seen):
            known = [*conditions, *lemmas.get(place, ())]
            if FALSE not in known:
                answer = logic.smallest(known, parameters)
                if answer.can_be == "yes":
                    yield Start(place, answer.values, command)


def _leading(
    system: System, sight: Sight, seen: Mapping[int, Sequence[Expr]]
) -> Iterator[tuple[int, Command | None, list[Expr]]]:
    """Give what leads to a sight: the sight's own command, or every command to its location from where nothing is seen."""
    if sight.command is not None:
        yield sight.location, sight.command, [sight.condition]
        return
    region = whole(system)
    for index, command in enumerate(system.commands):
        if command.target == sight.location:
            unseen = negated(any_of(seen.get(command.source, ())))
            yield command.source, command, [*region.condition(index), unseen, before(command, sight.condition)]


def explained(system: System, start: Start, sample: Sample, variables: Sequence[str]) -> str:
    """Say what about a start is not reached at a sample's parameter values, and what comes nearest."""
    where = system.locations[start.location].state
    shown = {name: value for name, value in start.values.items() if name in variables}
    found = (values for place, values in sample.configurations if place == start.location)
    there = [dict(zip(variables, values, strict=True)) for values in found]
    names = [parameter.name for parameter in system.machine.parameters]
    at = show_values(zip(names, sample.parameters, strict=True))
    step = "" if start.command is None else f" before {show_occurrence(start.command.occurrence)}"
    odd = [name for name, value in shown.items() if there and all(reached[name] != value for reached in there)]
    said = {name: shown[name] for name in odd} or shown
    begin = f"not inductive from {where} with {_spoken(said)}{step}" + (f", at {at}" if at else "")
    if not there:
        return f"{begin}: {where} is not reached there"
    if odd:
        ranges = ", ".join(f"{_name(name)} is {_range([reached[name] for reached in there])}" for name in odd)
        return f"{begin}: reached there, {ranges}"
    nearest = min(there, key=lambda reached: _distance(shown, reached))
    return f"{begin}: these values are not reached together; the nearest are {_spoken({n: nearest[n] for n in shown})}"


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
