"""Safety proofs: that a sight is never reached, by induction with lemmas or by exploring the few values there are.

Takes an observed system; gives a `ProofResult`, or the `SightHit` that it met. It explores small values first: a sight that is met there is a
violation, with a shortest way. Then it tries the claim without lemmas, with lemmas about the machine, with lemmas read off examples of the observed
system, with potentials, and with what Spacer finds. Wherever a lemma comes from, a proof rests on plain questions to z3.

A potential bounds how much may still be counted, place by place: the candidate is `count + potential <= bound`. It is a sum of terms that are never
negative (`rmax - retries`, a parameter, and for bounds with products `(grants - grants_used) * rmax`) with whole factors. z3 finds the factors over
examples of steps: each step must pay for what it counts, and a step that a solution does not pay for becomes one more example.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from dsa.checks.observers import COUNT, HISTORY, OBLIGATION, OPEN, Observer, WatchedCondition
from dsa.checks.proof.conclusion import ProofResult, explain_gap, failing_start, in_words, unknown
from dsa.checks.proof.induction import ExhaustiveEvidence, Inductive, Lemmas, Needs, Slicer, before, whole
from dsa.checks.proof.induction import at_start as said_of_start
from dsa.checks.proof.proof_session import MOST_EXPLORED, ProofSession, Sample, Sampler, linear
from dsa.checks.proof.solver import EFFORT, Logic
from dsa.declarations import AtMost, Form
from dsa.expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Boolean,
    Compare,
    EnumDomain,
    Expr,
    Integer,
    Name,
    Negate,
    RangeDomain,
    Symbol,
    Value,
    all_of,
    any_of,
    comparison,
    evaluate,
    names,
    negation,
    simplify,
    walk,
)
from dsa.machine import minima
from dsa.semantics import Occurrence
from dsa.system import after, at_start, start_values

_ROUNDS = 200
_MOST_TERMS = 40
_COUNT = Name(COUNT, "variable")
#: Factors by location and term.
Factors = Mapping[tuple[int, int], int]


@attrs.frozen
class Cost:
    """An example of a step: where from and to, the terms' values before and after, and how many are counted.

    The start is a step from -1, whose potential is the bound.
    """

    source: int
    target: int
    here: tuple[int, ...]
    there: tuple[int, ...]
    count: int


def terms(session: ProofSession, upper_bound: Expr) -> list[Expr]:
    """Return the terms that a potential may be made of; each is never negative inside the domains."""
    machine = session.machine
    shrinking_terms: list[Expr] = []
    growing_terms: list[Expr] = []
    for variable in session.system.own_variables:
        if isinstance(variable.domain, RangeDomain) and variable.domain.high is not None:
            here = Name(variable.name, "variable")
            shrinking_terms.append(simplify(Arithmetic("-", variable.domain.high, here)))
            growing_terms.append(simplify(Arithmetic("-", here, variable.domain.low)))
    for lesser, greater in _ordered_everywhere(session):
        shrinking_terms.append(simplify(Arithmetic("-", greater, lesser)))
    constants: list[Expr] = [
        simplify(Arithmetic("-", Name(p.name, "parameter"), p.domain.low))
        for p in machine.parameters
        if isinstance(p.domain, RangeDomain)
    ]
    factor_sets = [names(node) for node in walk(upper_bound) if isinstance(node, Arithmetic) and node.operator == "*"]
    products = [
        simplify(Arithmetic("*", one, other))
        for one in shrinking_terms
        for other in constants
        if any(names(one) & factors and names(other) <= factors for factors in factor_sets)
    ]
    return list(dict.fromkeys([Integer(1), *shrinking_terms, *constants, *products, *growing_terms]))[:_MOST_TERMS]


def _ordered_everywhere(session: ProofSession) -> Iterator[tuple[Expr, Expr]]:
    """Yield the upper bounds of variables that the lemmas imply at every location that can be reached."""
    lemma_sets = [set(here) for here in session.lemmas.values() if FALSE not in here]
    places = sum(FALSE not in session.lemmas.get(place, ()) for place in range(len(session.system.locations)))
    for lemma in sorted(set.intersection(*lemma_sets) if len(lemma_sets) == places > 0 else (), key=str):
        if isinstance(lemma, Compare) and isinstance(lemma.first, Name) and lemma.first.kind == "variable":
            (sign, other) = lemma.rest[0]
            if sign in {"<=", "<"}:
                yield lemma.first, other


def bound_candidates(session: ProofSession, form: AtMost) -> dict[int, list[Expr]]:
    """Return a candidate `count + potential <= bound` for each location; none when no potential is found."""
    every = terms(session, form.bound)
    falling_terms = [term for term in every if not _grows(term)]
    for term_choice, largest in ((falling_terms, 2), (falling_terms, 4), (every, 2), (every, 6)):
        candidates = _SafetySearch(session, form, term_choice, largest).candidates()
        if candidates:
            return candidates
    return {}


def _grows(term: Expr) -> bool:
    """Return whether a term grows with a variable."""
    return isinstance(term, Name) and term.kind == "variable"


def _is_missing(cost: Cost, factors: Factors) -> bool:
    """Return whether a step counts more than its potential falls."""

    def total(place: int, values: tuple[int, ...]) -> int:
        return sum(factors.get((place, index), 0) * value for index, value in enumerate(values))

    available = cost.here[0] if cost.source < 0 else total(cost.source, cost.here)
    return available < total(cost.target, cost.there) + cost.count


def _one_per_edge(costs: Iterable[Cost]) -> list[Cost]:
    """Return the last cost between any two places: the largest values are met last."""
    return list({(cost.source, cost.target): cost for cost in costs}.values())


class _SafetySearch:
    def __init__(self, session: ProofSession, form: AtMost, every: Sequence[Expr], largest: int) -> None:
        import z3

        self._z3: Any = z3
        self._session, self._form, self._terms = session, form, every
        system = session.system
        self._count_conditions = [after(system, command, form.moment) for command in system.commands]
        self._first = at_start(system, form.moment) == TRUE
        self._live = self._places()
        self._context = session.logic.context
        self._unknown = {
            (p, i): z3.Int(f"f{p}_{i}", self._context) for p in sorted(self._live) for i in range(len(every))
        }
        self._solver = z3.SimpleSolver(ctx=self._context)
        self._solver.set("rlimit", EFFORT)
        self._solver.add(*[z3.And(factor >= 0, factor <= largest) for factor in self._unknown.values()])

    def _places(self) -> frozenset[int]:
        """Return the locations from which something can still be counted; at all others the potential is 0."""
        system = self._session.system
        sources = {
            c.source for c, condition in zip(system.commands, self._count_conditions, strict=True) if condition != FALSE
        }
        while more := {c.source for c in system.commands if c.target in sources} - sources:
            sources |= more
        return frozenset(sources)

    def candidates(self) -> dict[int, list[Expr]]:
        """Look for factors until every step is paid for."""
        examples = list(dict.fromkeys([*self._starts(), *self._steps()]))
        for _ in range(_ROUNDS):
            if self._session.is_expired() or self._solver.check() != self._z3.sat:
                return {}
            model = self._solver.model()
            factors = {key: model.eval(f, model_completion=True).as_long() for key, f in self._unknown.items()}
            unpaid_costs = _one_per_edge(cost for cost in examples if _is_missing(cost, factors)) or list(
                self._unpaid(factors)
            )
            if not unpaid_costs:
                places = range(len(self._session.system.locations))
                return {place: [self._bound_at(place, factors)] for place in places}
            for cost in unpaid_costs:
                self._require(cost)
        return {}

    def _starts(self) -> Iterator[Cost]:
        """Yield the start at each sample: what it costs must be within the bound."""
        bound_function = self._session.sampler.predicate(simplify(self._form.bound))
        for sample in self._session.own_samples:
            values = sample.configurations[0][1]
            most = int(bound_function(values, sample.parameters))
            yield Cost(-1, 0, (most,), self._values(values, sample.parameters), int(self._first))

    def _steps(self) -> Iterator[Cost]:
        """Yield the steps of the samples."""
        predicates = [self._session.sampler.predicate(condition) for condition in self._count_conditions]
        for sample in self._session.own_samples:
            at = [self._values(values, sample.parameters) for _, values in sample.configurations]
            for source, index, target in sample.edges:
                command = self._session.system.commands[index]
                if command.source in self._live:
                    is_counted = predicates[index](sample.configurations[source][1], sample.parameters) is True
                    yield Cost(command.source, command.target, at[source], at[target], int(is_counted))

    def _values(self, values: tuple[Value, ...], parameters: tuple[Value, ...]) -> tuple[int, ...]:
        return tuple(int(term(values, parameters)) for term in self._term_functions)

    @cached_property
    def _term_functions(self) -> list[Any]:
        return [self._session.sampler.predicate(term) for term in self._terms]

    def _require(self, cost: Cost) -> None:
        available = cost.here[0] if cost.source < 0 else self._sum(cost.source, cost.here)
        self._solver.add(available >= self._sum(cost.target, cost.there) + cost.count)

    def _sum(self, place: int, values: tuple[int, ...]) -> Any:  # noqa: ANN401  (z3 has no types)
        parts = [value * self._unknown[place, i] for i, value in enumerate(values) if value and place in self._live]
        return self._z3.Sum([self._z3.IntVal(0, self._context), *parts])

    def _unpaid(self, factors: Factors) -> Iterator[Cost]:
        """Yield steps, at any values, that the factors do not pay for, as z3 finds them."""
        session, system = self._session, self._session.system
        yield from self._dear_start(factors)
        for index, command in enumerate(system.commands):
            if command.source not in self._live:
                continue
            here, there = self._potential(command.source, factors), self._potential(command.target, factors)
            base = [*whole(system).condition(index), *session.lemmas.get(command.source, ())]
            for condition, weight in ((self._count_conditions[index], 1), (negation(self._count_conditions[index]), 0)):
                price = simplify(Arithmetic("+", before(command, there), Integer(weight)))
                answer = session.logic.ask([*base, condition, comparison(price, ">", here)])
                if answer.can_be == "yes":
                    full = self._with_defaults(answer.values)
                    after_it = [int(evaluate(before(command, term), full)) for term in self._terms]
                    yield Cost(command.source, command.target, self._at(full), tuple(after_it), weight)

    def _dear_start(self, factors: Factors) -> Iterator[Cost]:
        initial = {v.name: simplify(v.initial) for v in self._session.system.variables}
        start_potential = said_of_start(self._potential(0, factors), initial)
        cost = simplify(Arithmetic("+", start_potential, Integer(int(self._first))))
        upper_bound = simplify(self._form.bound)
        answer = self._session.logic.ask([comparison(cost, ">", upper_bound)])
        if answer.can_be == "yes":
            full = self._with_defaults(answer.values)
            full |= {name: evaluate(value, full) for name, value in initial.items()}
            yield Cost(-1, 0, (int(evaluate(upper_bound, full)),), self._at(full), int(self._first))

    def _with_defaults(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return a value for every name: 0 where the answer has none."""
        return {name: values.get(name, 0) for name in self._names}

    def _at(self, values: Mapping[str, Value]) -> tuple[int, ...]:
        return tuple(int(evaluate(term, values)) for term in self._terms)

    @cached_property
    def _names(self) -> list[str]:
        machine = self._session.machine
        return [*(p.name for p in machine.parameters), *(v.name for v in self._session.system.own_variables)]

    def _potential(self, place: int, factors: Factors) -> Expr:
        if place not in self._live:
            return Integer(0)
        pairs = [(term, factors[place, i]) for i, term in enumerate(self._terms)]
        return linear([(term, k) for term, k in pairs if term != Integer(1)], dict(pairs)[Integer(1)])

    def _bound_at(self, place: int, factors: Factors) -> Expr:
        total = simplify(Arithmetic("+", _COUNT, self._potential(place, factors)))
        return comparison(total, "<=", simplify(self._form.bound))


OBSERVERS = (HISTORY, OBLIGATION, COUNT, OPEN)
#: How long Spacer may think about one claim, in z3's own units: some 3 seconds, and the same on every machine.
SPACER_EFFORT = 12_000_000


@attrs.frozen
class SightHit:
    """A sight that was met: in which sample, at which configuration, and which it is; None is the start."""

    sample: Sample
    place: int
    sight: WatchedCondition | None

    @property
    def steps(self) -> int:
        """How long the shortest way is."""
        return len(self.sample.way_to(self.place)) + (self.sight is not None and self.sight.command is not None)


def first_sight_hit(sampler: Sampler, observer: Observer, samples: Iterable[Sample]) -> SightHit | None:
    """Return the sight that is met soonest, over all samples; the smallest values first."""
    start = sampler.predicate(observer.at_start)
    looks = [(sight, sampler.predicate(sight.condition)) for sight in observer.sights]
    here: dict[int, list[int]] = {}
    for index, (sight, _) in enumerate(looks):
        here.setdefault(sight.location, []).append(index)
    soonest: SightHit | None = None
    for sample in samples:
        if start(sample.configurations[0][1], sample.parameters) is True:
            return SightHit(sample, 0, None)
        for place, (location, values) in enumerate(sample.configurations):
            hits = [i for i in here.get(location, ()) if looks[i][1](values, sample.parameters) is True]
            if hits:
                at_once = [i for i in hits if looks[i][0].command is None]
                hit = SightHit(sample, place, looks[(at_once or hits)[0]][0])
                if soonest is None or hit.steps < soonest.steps:
                    soonest = hit
                if at_once:
                    break
    return soonest


def way_to(observer: Observer, hit: SightHit) -> tuple[Occurrence, ...]:
    """Return what happens on the way to what was seen, the moment itself included."""
    way = [observer.system.commands[index].occurrence for index in hit.sample.way_to(hit.place)]
    if hit.sight is not None and hit.sight.command is not None:
        way.append(hit.sight.command.occurrence)
    return tuple(way)


class Safety:
    """The attempts to prove one observed system free of its sights."""

    def __init__(self, session: ProofSession, observer: Observer, form: Form | None = None) -> None:
        self._session, self._observer, self._form = session, observer, form
        self._system = observer.system
        session.logic.learn(observer.system)
        self._is_own = observer.system is session.system
        self._sampler = session.sampler if self._is_own else Sampler(observer.system)
        self._samples = session.own_samples if self._is_own else session.samples(self._sampler)
        self._strongest: Lemmas = {}

    def first_hit(self) -> SightHit | None:
        """Return a sight that is met at small parameter values, soonest."""
        return first_sight_hit(self._sampler, self._observer, self._samples) or self._at_start()

    def finding(self) -> ProofResult | SightHit:
        """Return the verdict, or a sight that is met."""
        hit = self.first_hit()
        if hit is not None:
            return hit
        # A bound with a product is seldom implied by what can be guessed.
        attempts = [self._by_guessing, self._by_potential][:: -1 if self._is_product() else 1]
        for attempt in (self._by_lemmas, self._by_exploring, *attempts, self._by_spacer):
            result = None if self._session.is_expired() else attempt()
            if result is not None:
                return result
        return self._explore_failure()

    def _at_start(self) -> SightHit | None:
        """Return values of the parameters at which the start itself is a sight."""
        conditions = (
            [self._observer.at_start] if self._form is None else [self._observer.at_start, *self._session.legal_start]
        )
        answer = self._session.logic.smallest(conditions, self._sampler.parameters)
        return SightHit(self._sample_at(answer.values, 1), 0, None) if answer.can_be == "yes" else None

    def _sample_at(self, values: Mapping[str, Value], most: int) -> Sample:
        machine = self._session.machine
        valuation = {**minima(machine), **values}
        return self._sampler.sample(
            {p.name: valuation[p.name] for p in machine.parameters}, most, self._session.is_expired
        )

    def _by_lemmas(self) -> ProofResult | None:
        """Try without lemmas, then with those about the machine itself."""
        return self._proof_with({}) or self._proof_with(self._session.lemmas)

    def _by_exploring(self) -> ProofResult | None:
        """Explore all values the parameters may have, when these are few."""
        few = self._session.few_valuations
        if few is None:
            return None
        configurations = 0
        for values in few:
            sample = self._sampler.sample(values, MOST_EXPLORED, self._session.is_expired)
            if not sample.complete or first_sight_hit(self._sampler, self._observer, [sample]):
                return None
            configurations += len(sample.configurations)
        return self._proof(ExhaustiveEvidence(tuple(tuple(values.items()) for values in few), configurations))

    def _by_guessing(self) -> ProofResult | None:
        """Try with lemmas read off examples of the observed system, then with the claim itself as one."""
        session = self._session
        guesses = session.guesses(self._system, self._samples, OBSERVERS)
        result = self._proof_with(self._inductive(guesses))
        if result is not None:
            return result
        for sight in self._observer.sights:
            guesses[sight.location].append(negation(sight.condition))
        return self._proof_with(self._inductive(guesses))

    def _is_product(self) -> bool:
        if not isinstance(self._form, AtMost):
            return False
        return any(isinstance(node, Arithmetic) and node.operator == "*" for node in walk(self._form.bound))

    def _by_potential(self) -> ProofResult | None:
        """Try with a potential that bounds what is counted."""
        if not isinstance(self._form, AtMost) or self._form.between is not None:
            return None
        return self._proof_with(self._inductive(bound_candidates(self._session, self._form)))

    def _by_spacer(self) -> ProofResult | None:
        """Try with what Spacer finds."""
        return self._proof_with(self._inductive(invariants(self._session.logic, self._observer, SPACER_EFFORT)))

    def _inductive(self, candidates: Lemmas) -> Lemmas:
        """Keep what is inductive of the candidates, also for what is tried later."""
        lemmas = self._strongest or self._session.lemmas
        self._strongest = self._session.inductive(whole(self._system), candidates, lemmas)
        return self._strongest

    def _explore_failure(self) -> ProofResult | SightHit:
        """Explore where induction fails: a violation, or a start that is not reached."""
        session, lemmas = self._session, self._strongest or self._session.lemmas
        if session.is_expired():
            return unknown("the time limit was reached")
        start = failing_start(session.logic, self._observer, lemmas)
        if start is None:
            return unknown("z3 does not decide it")
        parameters = {n: start.values[n] for n in self._sampler.parameters if n in start.values}
        sample = self._sample_at(parameters, MOST_EXPLORED)
        hit = first_sight_hit(self._sampler, self._observer, [sample])
        if hit is not None:
            return hit
        if not sample.complete:
            return unknown("induction fails, and at the values where it fails there is too much to explore")
        gap = explain_gap(self._system, start, sample, self._sampler.variables)
        return ProofResult("NOT INDUCTIVE", gap.how, gap=gap)

    def _proof_with(self, lemmas: Lemmas) -> ProofResult | None:
        """Return the proof that no sight is true where the lemmas are, with those that it needs; None when there is no proof."""
        session = self._session
        if session.logic.ask([self._observer.at_start]).can_be != "no":
            return None
        own = self._is_own and lemmas is session.lemmas
        needs = Needs(session.slicer if own else Slicer(whole(self._system), session.logic, lemmas))
        if not all(needs.impossible(sight.location, [sight.condition]) for sight in self._observer.sights):
            return None
        lemmas_used = needs.lemmas()
        return None if lemmas_used is None else self._proof(Inductive(lemmas_used))

    def _proof(self, evidence: Inductive | ExhaustiveEvidence) -> ProofResult:
        return ProofResult("PROVED", in_words(self._system, evidence), evidence)


# -- Spacer -----------------------------------------------------------------------------------------------------------
# Invariants found by z3's engine for Horn clauses (Komuravelli, Gurfinkel and Chaki, 2014). They are not trusted: induction checks them like any
# other candidate.


def invariants(logic: Logic, observer: Observer, effort: int) -> Lemmas:
    """Return candidates for each location; none when Spacer finds no invariant within its effort, or one that cannot be written here."""
    return _Clauses(logic, observer).solve(effort)


#: Without these, locations are merged, and nothing can be read off for them.
_KEEP_RELATIONS = {"xform.inline_eager": False, "xform.inline_linear": False, "xform.slice": False}


class _Clauses:
    """The system as Horn clauses: a relation for each location, over parameters and variables."""

    def __init__(self, logic: Logic, observer: Observer) -> None:
        import z3

        self._z3: Any = z3
        self._logic, self._observer, self._system = logic, observer, observer.system
        machine = observer.system.machine
        self._names = [Name(p.name, "parameter") for p in machine.parameters]
        self._names += [Name(v.name, "variable") for v in observer.system.variables]
        domains = {parameter.name: parameter.domain for parameter in machine.parameters}
        domains |= {variable.name: variable.domain for variable in observer.system.variables}
        self._values = {name: domain.values for name, domain in domains.items() if isinstance(domain, EnumDomain)}
        self._terms = [logic.term(name) for name in self._names]
        sorts = [term.sort() for term in self._terms]
        places = range(len(observer.system.locations))
        truth = z3.BoolSort(logic.context)
        self._at = [z3.Function(f"at{place}", *sorts, truth) for place in places]
        self._bad = z3.Function("bad", truth)

    def solve(self, effort: int) -> Lemmas:
        """Return what holds at each location when no sight can be reached; nothing when one can, or when that is not known."""
        z3 = self._z3
        fixedpoint = z3.Fixedpoint(ctx=self._logic.context)
        fixedpoint.set(**{"engine": "spacer", "rlimit": effort, **_KEEP_RELATIONS})
        fixedpoint.declare_var(*self._terms)
        for relation in (*self._at, self._bad):
            fixedpoint.register_relation(relation)
        for head, body in self._rules():
            fixedpoint.rule(head, body)
        try:
            if fixedpoint.query(self._bad()) != z3.unsat:
                return {}
            covers = [fixedpoint.get_cover_delta(-1, relation) for relation in self._at]
            return {place: _conjuncts(self._read(cover)) for place, cover in enumerate(covers)}
        except (z3.Z3Exception, NotImplementedError):
            return {}

    def _rules(self) -> list[tuple[Any, list[Any]]]:
        term, system = self._logic.term, self._system
        facts = [term(fact) for fact in self._logic.facts_about([name.name for name in self._names])]
        initial = start_values(system)
        begins = [term(comparison(Name(v.name, "variable"), "==", initial[v.name])) for v in system.variables]
        rules = [(self._at[0](*self._terms), [*facts, *begins])]
        for command in system.commands:
            after = [term(command.after.get(name.name, name)) for name in self._names]
            here = self._at[command.source](*self._terms)
            rules.append((self._at[command.target](*after), [here, *facts, term(command.condition)]))
        return rules + [
            (self._bad(), [self._at[sight.location](*self._terms), *facts, term(sight.condition)])
            for sight in self._observer.sights
        ]

    def _read(self, formula: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        """Return a formula of z3 as an expression; raises NotImplementedError for one that cannot be written here."""
        z3 = self._z3
        if z3.is_var(formula):
            place: int = z3.get_var_index(formula)
            return self._names[place]
        if z3.is_int_value(formula):
            return Integer(formula.as_long())
        parts = [self._read(child) for child in formula.children()]
        kind = formula.decl().kind()
        if kind in {z3.Z3_OP_TRUE, z3.Z3_OP_FALSE}:
            return Boolean(bool(kind == z3.Z3_OP_TRUE))
        if kind == z3.Z3_OP_AND:
            return all_of(parts)
        if kind == z3.Z3_OP_OR:
            return any_of(parts)
        if kind == z3.Z3_OP_NOT:
            return negation(parts[0])
        if kind == z3.Z3_OP_UMINUS:
            return Negate(parts[0])
        signs = {z3.Z3_OP_LE: "<=", z3.Z3_OP_GE: ">=", z3.Z3_OP_LT: "<", z3.Z3_OP_GT: ">", z3.Z3_OP_EQ: "=="}
        if kind in signs:
            return self._comparison(parts, signs[kind], formula)
        operators = {z3.Z3_OP_ADD: "+", z3.Z3_OP_SUB: "-", z3.Z3_OP_MUL: "*"}
        if kind not in operators:
            raise NotImplementedError(str(formula.decl()))
        return _left_fold(operators[kind], parts)

    def _comparison(self, parts: Sequence[Expr], sign: str, formula: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        """Compare two sides; the values of enumerations are numbers to z3, and so `hue <= 1` is `hue == red or hue == green`."""
        is_enumeration = [part.name in self._values if isinstance(part, Name) else False for part in parts]
        if any(
            node.name in self._values
            for part in parts
            for node in walk(part)
            if isinstance(node, Name) and node is not part
        ):
            raise NotImplementedError("arithmetic on values of an enumeration")
        if any(is_enumeration) and not (all(is_enumeration) and sign == "=="):
            name, number = parts if is_enumeration[0] else parts[::-1]
            if not (isinstance(name, Name) and isinstance(number, Integer)):
                raise NotImplementedError("an order of the values of enumerations")
            holds = COMPARISONS[sign]
            numbers = {value: self._logic.number_of(value) for value in self._values[name.name]}
            values = (
                v
                for v, n in numbers.items()
                if (holds(n, number.value) if is_enumeration[0] else holds(number.value, n))
            )
            return any_of(comparison(name, "==", Symbol(value)) for value in values)
        if sign == "==" and self._z3.is_bool(formula.arg(0)):
            one, other = parts
            return any_of([all_of([one, other]), all_of([negation(one), negation(other)])])
        return comparison(parts[0], sign, parts[1])


def _left_fold(sign: Any, parts: Sequence[Expr]) -> Expr:  # noqa: ANN401  (one of three signs)
    total = parts[0]
    for part in parts[1:]:
        total = Arithmetic(sign, total, part)
    return total


def _conjuncts(expression: Expr) -> Sequence[Expr]:
    return expression.operands if isinstance(expression, And) else (expression,)
