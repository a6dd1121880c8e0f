"""What the generated step does everywhere: at every configuration, reachable or not, on every occurrence, as one hash.

Takes a machine at its parameters' values; gives the SHA-256 that a certificate carries, and that the kernel finds again in the rows. The
numbers are the generated step's (`dsa.fast`); `step`, which runs machines, is asked the same. A row can neither read nor change a variable that
it does not name, and treats all effects alike that it does not name. So for each state and event only the variables and effects count that the rows for
it name: the other variables hold something that cannot be looked at, and one effect stands for all the others.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import attrs

from dsa.checks.certify_proofs import NoProofError
from dsa.compiled_step import Moved, compiled_step
from dsa.declarations import TIMER_PREFIX, Assign, Emit, Transition
from dsa.expr import Choices, EnumDomain, Value, names
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Reason, Refusal, Taken, step

#: An effect that no machine has: it stands for all those that the rows in question do not name.
OTHER = ":other"
Compiled = Callable[[Configuration, Occurrence], Taken | Refusal]


class Sealed:
    """Holds the place of any value: it can be handed on, and raises NoProofError when it is looked at."""

    def _looked_at(self, *_: object) -> Any:  # noqa: ANN401  (it never returns)
        raise NoProofError("the generated step looks at a variable that the rows do not name")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __index__ = _looked_at
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _looked_at


@attrs.frozen
class _Case:
    """An event, or a timer of a source, in a state; the rows for it, and what they name: variables by place, effects."""

    state: str
    event: str
    source: str | None
    rows: tuple[Transition, ...]
    variables: tuple[int, ...]
    effects: tuple[str, ...]


def steps_digest(machine: Machine, most: int) -> str:
    """Give the hash of all that the generated step takes. Raises NoProofError beyond `most` cases, and where it is not `step`."""
    return _Steps(machine, most).digest()


class _Steps:
    def __init__(self, machine: Machine, most: int) -> None:
        self._machine = machine
        self._values = [_listed(machine, variable.name) for variable in machine.variables]
        self._cases = tuple(self._all_cases())
        count = sum(map(self._count, self._cases))
        if count > most:
            raise NoProofError(f"there are {count} cases of state, event, verdicts and values, more than {most}")
        self._compiled = compiled_step(machine)
        self._numbers = _numbers(machine)

    def digest(self) -> str:
        """Give the hash of the sorted lines, one for each step taken."""
        lines = {line for case in self._cases for line in self._lines(case)}
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    def _all_cases(self) -> Iterator[_Case]:
        machine = self._machine
        timers = [(event, source) for source, event in machine.rows_from if event.startswith(TIMER_PREFIX)]
        for state in machine.leaves:
            for event, source in [*((event, None) for event in machine.event_named), *timers]:
                rows = machine.rows_for(state, event)
                if source is not None:
                    rows = machine.rows_from[source, event] if (source, event) in machine.armed(state) else ()
                yield self._case(state, event, source, rows)

    def _case(self, state: str, event: str, source: str | None, rows: tuple[Transition, ...]) -> _Case:
        machine = self._machine
        read = {name for row in rows for name in names(row.condition)}
        read |= {update.variable for row in rows for update in row.updates}
        updates = (update for row in rows for update in row.updates)
        read |= {name for update in updates if isinstance(update, Assign) for name in names(update.value)}
        named = {item.effect for row in rows for item in row.effects}
        named |= set() if source else {machine.event_named[event].origin}
        variables = tuple(place for place, variable in enumerate(machine.variables) if variable.name in read)
        effects = tuple(effect for effect in machine.answers if effect in named)
        return _Case(state, event, source, rows, variables, (*effects, OTHER))

    def _count(self, case: _Case) -> int:
        values = prod(len(self._values[place]) for place in case.variables)
        verdicts = prod(len(self._machine.guard_named[guard].outcomes) for guard in read_guards(case.rows))
        return values * verdicts * (1 << len(case.effects))

    def _lines(self, case: _Case) -> Iterator[str]:
        guards = read_guards(case.rows)
        outcomes = [self._machine.guard_named[guard].outcomes for guard in guards]
        chosen = [self._values[place] for place in case.variables]
        for pending in product((False, True), repeat=len(case.effects)):
            out = frozenset(effect for effect, is_out in zip(case.effects, pending, strict=True) if is_out)
            for values, verdicts in product(product(*chosen), product(*outcomes)):
                occurrence = Occurrence(case.event, tuple(zip(guards, verdicts, strict=True)), case.source)
                taken = self._taken(case, values, out, occurrence)
                if taken is not None:
                    yield self._line(case, values, out, occurrence, taken)

    def _taken(self, case: _Case, values: Sequence[Value], out: frozenset[str], occurrence: Occurrence) -> Taken | None:
        """Give what the generated step takes, having seen that `step` does the same, whatever the other variables hold."""
        sealed, result = tuple(Sealed() for _ in self._values), None
        for others in (tuple(listed[0] for listed in self._values), tuple(listed[-1] for listed in self._values)):
            here = self._at(case, values, others, out)
            expected = step(self._machine, here, occurrence)
            if isinstance(expected, Taken) and result is None:
                result = _as_taken(self._compiled.move(self._at(case, values, sealed, out), occurrence))
            if self._compiled.step(here, occurrence) != expected or not _same(case, sealed, others, result, expected):
                raise NoProofError(f"the generated step is not `step` in {case.state} on {case.event}")
        return result if isinstance(result, Taken) else None

    def _at(
        self, case: _Case, values: Sequence[Value], others: Sequence[Any], outstanding: frozenset[str]
    ) -> Configuration:
        known = dict(zip(case.variables, values, strict=True))
        held = tuple(known.get(place, other) for place, other in enumerate(others))
        return Configuration(case.state, held, outstanding)

    def _line(
        self, case: _Case, values: Sequence[Value], out: frozenset[str], occurrence: Occurrence, taken: Taken
    ) -> str:
        """Write a step as the kernel does; before it `:flag` is 0, after it 1."""
        after = taken.configuration
        said = dict(occurrence.verdicts)
        verdicts = [f"{guard.name}.{said[guard.name]}" for guard in self._machine.guards if guard.name in said]
        effects = [item.effect if isinstance(item, Emit) else "cancel" for item in taken.transition.effects]
        happened = occurrence.event if occurrence.source is None else f"{occurrence.source} {occurrence.event}"
        held = [after.values[place] for place in case.variables]
        before = self._told(case, case.state, out, values, 0)
        return " > ".join(
            [before, happened, *verdicts, *effects, self._told(case, after.state, after.outstanding, held, 1)]
        )

    def _told(self, case: _Case, state: str, out: frozenset[str], values: Sequence[Value], flag: int) -> str:
        listed = [self._machine.variables[place].name for place in case.variables]
        held = (f"{name}={self._number(value)}" for name, value in zip(listed, values, strict=True))
        return " ".join([state, *sorted(out), *held, f":flag={flag} :count=0"])

    def _number(self, value: Value) -> int:
        return self._numbers[value] if isinstance(value, str) else int(value)


def _as_taken(outcome: Moved | Refusal) -> Taken | None:
    if isinstance(outcome, Refusal):
        return None
    move, values = outcome
    return Taken(Configuration(move.target, values, move.outstanding), move.row, move.effects, move.cancelled)


def _same(
    case: _Case,
    sealed: Sequence[Sealed],
    others: Sequence[Value],
    result: Taken | Reason | None,
    expected: Taken | Refusal,
) -> bool:
    """Tell whether the generated step did, with variables sealed, what `step` does with values in their place."""
    if isinstance(expected, Refusal) or not isinstance(result, Taken):
        return isinstance(expected, Refusal) and result in {None, expected.reason}
    put = {id(one): value for one, value in zip(sealed, others, strict=True)}
    after = result.configuration
    held = tuple(value if place in case.variables else put.get(id(value)) for place, value in enumerate(after.values))
    same_values = held == expected.configuration.values
    elsewhere = attrs.evolve(result, configuration=attrs.evolve(after, values=expected.configuration.values))
    return same_values and elsewhere == expected


def _listed(machine: Machine, name: str) -> tuple[Value, ...]:
    """Give the values of a variable's domain. Raises NoProofError when there is no end to them."""
    values = machine.values_of[name]
    if isinstance(values, Choices):
        return values.values
    if values.high is None:
        raise NoProofError(f"{name} has no greatest value")
    return tuple(range(values.low, values.high + 1))


def _numbers(machine: Machine) -> dict[str, int]:
    """Number the values of enumerations as the kernel does."""
    domains = [*(p.domain for p in machine.parameters), *(v.domain for v in machine.variables)]
    listed = [value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values]
    return {value: number for number, value in enumerate(listed)}
