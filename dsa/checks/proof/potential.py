"""Bounds on counts by potentials: how much may still be counted, as a function of the values, place by place.

Takes what is counted and the bound, gives candidates `count + potential <= bound`. A potential is a sum of terms that are never
negative (`rmax - retries`, a parameter, and for bounds with products `(grants - grants_used) * rmax`), with whole factors that z3
finds over examples of steps: each step must pay for what it counts. A step that a solution does not pay for becomes one more
example. The candidates are only that; induction decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from dsa.checks.observers import COUNT
from dsa.checks.proof.candidates import linear
from dsa.checks.proof.induction import at_start as said_of_start
from dsa.checks.proof.induction import before, whole
from dsa.checks.proof.logic import EFFORT
from dsa.checks.proof.session import Session
from dsa.claims import AtMost
from dsa.expr import TRUE, Arithmetic, Compare, Expr, Integer, Name, RangeDomain, Value, evaluate, names, walk
from dsa.moments import after, at_start
from dsa.simplify import FALSE, compared, negated, simplified

_ROUNDS = 200
_MOST_TERMS = 40
_COUNT = Name(COUNT, "variable")
#: Factors by location and term.
Factors = Mapping[tuple[int, int], int]


@attrs.frozen
class Cost:
    """An example of a step: where from and to, the terms' values before and after, and how many are counted.

    The start is a step from -1, which has as much to give as the bound says.
    """

    source: int
    target: int
    here: tuple[int, ...]
    there: tuple[int, ...]
    counted: int


def terms(session: Session, bound: Expr) -> list[Expr]:
    """Give the terms that a potential may be made of; each is never negative inside the domains."""
    machine = session.machine
    shrinking: list[Expr] = []
    growing: list[Expr] = []
    for variable in machine.variables:
        if isinstance(variable.domain, RangeDomain) and variable.domain.high is not None:
            here = Name(variable.name, "variable")
            shrinking.append(simplified(Arithmetic("-", variable.domain.high, here)))
            growing.append(simplified(Arithmetic("-", here, variable.domain.low)))
    for lesser, greater in _ordered_everywhere(session):
        shrinking.append(simplified(Arithmetic("-", greater, lesser)))
    constants: list[Expr] = [
        simplified(Arithmetic("-", Name(p.name, "parameter"), p.domain.low))
        for p in machine.parameters
        if isinstance(p.domain, RangeDomain)
    ]
    multiplied = [names(node) for node in walk(bound) if isinstance(node, Arithmetic) and node.operator == "*"]
    products = [
        simplified(Arithmetic("*", one, other))
        for one in shrinking
        for other in constants
        if any(names(one) & factors and names(other) <= factors for factors in multiplied)
    ]
    return list(dict.fromkeys([Integer(1), *shrinking, *constants, *products, *growing]))[:_MOST_TERMS]


def _ordered_everywhere(session: Session) -> Iterator[tuple[Expr, Expr]]:
    """Give what the lemmas say of every location that can be reached: a variable is at most something."""
    known = [set(here) for here in session.lemmas.values() if FALSE not in here]
    places = sum(FALSE not in session.lemmas.get(place, ()) for place in range(len(session.system.locations)))
    for lemma in sorted(set.intersection(*known) if len(known) == places > 0 else (), key=str):
        if isinstance(lemma, Compare) and isinstance(lemma.first, Name) and lemma.first.kind == "variable":
            (sign, other) = lemma.rest[0]
            if sign in {"<=", "<"}:
                yield lemma.first, other


def bounding(session: Session, form: AtMost) -> dict[int, list[Expr]]:
    """Give a candidate `count + potential <= bound` for each location; none when no potential is found."""
    every = terms(session, form.bound)
    falling = [term for term in every if not _grows(term)]
    for offered, largest in ((falling, 2), (falling, 4), (every, 2), (every, 6)):
        found = _Search(session, form, offered, largest).candidates()
        if found:
            return found
    return {}


def _grows(term: Expr) -> bool:
    """Tell whether a term grows with a variable."""
    return isinstance(term, Name) and term.kind == "variable"


def _is_missing(cost: Cost, factors: Factors) -> bool:
    """Tell whether a step counts more than its potential falls."""

    def total(place: int, values: tuple[int, ...]) -> int:
        return sum(factors.get((place, index), 0) * value for index, value in enumerate(values))

    paid = cost.here[0] if cost.source < 0 else total(cost.source, cost.here)
    return paid < total(cost.target, cost.there) + cost.counted


def _varied(missed: Iterable[Cost]) -> list[Cost]:
    """Keep the last one between any two places: the largest values are met last."""
    return list({(cost.source, cost.target): cost for cost in missed}.values())


class _Search:
    def __init__(self, session: Session, form: AtMost, every: Sequence[Expr], largest: int) -> None:
        import z3

        self._z3: Any = z3
        self._session, self._form, self._terms = session, form, every
        system = session.system
        self._counted = [after(system, command, form.counted) for command in system.commands]
        self._first = at_start(system, form.counted) == TRUE
        self._live = self._places()
        self._unknown = {(p, i): z3.Int(f"f{p}_{i}") for p in sorted(self._live) for i in range(len(every))}
        self._solver = z3.Solver()
        self._solver.set("rlimit", EFFORT)
        self._solver.add(*[z3.And(factor >= 0, factor <= largest) for factor in self._unknown.values()])

    def _places(self) -> frozenset[int]:
        """Give the locations from which something can still be counted; at all others the potential is 0."""
        system = self._session.system
        found = {c.source for c, counted in zip(system.commands, self._counted, strict=True) if counted != FALSE}
        while more := {c.source for c in system.commands if c.target in found} - found:
            found |= more
        return frozenset(found)

    def candidates(self) -> dict[int, list[Expr]]:
        """Look for factors until every step is paid for."""
        examples = list(dict.fromkeys([*self._starts(), *self._steps()]))
        for _ in range(_ROUNDS):
            if self._session.expired() or self._solver.check() != self._z3.sat:
                return {}
            model = self._solver.model()
            factors = {key: model.eval(f, model_completion=True).as_long() for key, f in self._unknown.items()}
            missed = _varied(cost for cost in examples if _is_missing(cost, factors)) or list(self._unpaid(factors))
            if not missed:
                places = range(len(self._session.system.locations))
                return {place: [self._bounded(place, factors)] for place in places}
            for cost in missed:
                self._require(cost)
        return {}

    def _starts(self) -> Iterator[Cost]:
        """Give the start at each sample: what it costs must be within the bound."""
        bound = self._session.sampler.predicate(simplified(self._form.bound))
        for sample in self._session.own_samples:
            values = sample.configurations[0][1]
            most = int(bound(values, sample.parameters))
            yield Cost(-1, 0, (most,), self._values(values, sample.parameters), int(self._first))

    def _steps(self) -> Iterator[Cost]:
        """Give the steps of the samples."""
        counted = [self._session.sampler.predicate(condition) for condition in self._counted]
        for sample in self._session.own_samples:
            at = [self._values(values, sample.parameters) for _, values in sample.configurations]
            for source, index, target in sample.edges:
                command = self._session.system.commands[index]
                if command.source in self._live:
                    happened = counted[index](sample.configurations[source][1], sample.parameters) is True
                    yield Cost(command.source, command.target, at[source], at[target], int(happened))

    def _values(self, values: tuple[Value, ...], parameters: tuple[Value, ...]) -> tuple[int, ...]:
        return tuple(int(term(values, parameters)) for term in self._compiled)

    @cached_property
    def _compiled(self) -> list[Any]:
        return [self._session.sampler.predicate(term) for term in self._terms]

    def _require(self, cost: Cost) -> None:
        paid = cost.here[0] if cost.source < 0 else self._sum(cost.source, cost.here)
        self._solver.add(paid >= self._sum(cost.target, cost.there) + cost.counted)

    def _sum(self, place: int, values: tuple[int, ...]) -> Any:  # noqa: ANN401  (z3 has no types)
        parts = [value * self._unknown[place, i] for i, value in enumerate(values) if value and place in self._live]
        return self._z3.Sum([self._z3.IntVal(0), *parts])

    def _unpaid(self, factors: Factors) -> Iterator[Cost]:
        """Ask z3 for steps, of any values whatever, that the factors do not pay for."""
        session, system = self._session, self._session.system
        yield from self._dear_start(factors)
        for index, command in enumerate(system.commands):
            if command.source not in self._live:
                continue
            here, there = self._potential(command.source, factors), self._potential(command.target, factors)
            base = [*whole(system).condition(index), *session.lemmas.get(command.source, ())]
            for happened, weight in ((self._counted[index], 1), (negated(self._counted[index]), 0)):
                price = simplified(Arithmetic("+", before(command, there), Integer(weight)))
                answer = session.logic.ask([*base, happened, compared(price, ">", here)])
                if answer.can_be == "yes":
                    full = self._filled(answer.values)
                    after_it = [int(evaluate(before(command, term), full)) for term in self._terms]
                    yield Cost(command.source, command.target, self._at(full), tuple(after_it), weight)

    def _dear_start(self, factors: Factors) -> Iterator[Cost]:
        initial = {v.name: simplified(v.initial) for v in self._session.system.variables}
        begun = said_of_start(self._potential(0, factors), initial)
        cost = simplified(Arithmetic("+", begun, Integer(int(self._first))))
        bound = simplified(self._form.bound)
        answer = self._session.logic.ask([compared(cost, ">", bound)])
        if answer.can_be == "yes":
            full = self._filled(answer.values)
            full |= {name: evaluate(value, full) for name, value in initial.items()}
            yield Cost(-1, 0, (int(evaluate(bound, full)),), self._at(full), int(self._first))

    def _filled(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Give every name a value: what a question did not speak of is 0."""
        return {name: values.get(name, 0) for name in self._names}

    def _at(self, values: Mapping[str, Value]) -> tuple[int, ...]:
        return tuple(int(evaluate(term, values)) for term in self._terms)

    @cached_property
    def _names(self) -> list[str]:
        machine = self._session.machine
        return [*(p.name for p in machine.parameters), *(v.name for v in machine.variables)]

    def _potential(self, place: int, factors: Factors) -> Expr:
        if place not in self._live:
            return Integer(0)
        found = [(term, factors[place, i]) for i, term in enumerate(self._terms)]
        return linear([(term, k) for term, k in found if term != Integer(1)], dict(found)[Integer(1)])

    def _bounded(self, place: int, factors: Factors) -> Expr:
        total = simplified(Arithmetic("+", _COUNT, self._potential(place, factors)))
        return compared(total, "<=", simplified(self._form.bound))
