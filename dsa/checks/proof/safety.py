"""Proofs that something is never seen: by induction with lemmas, by exploring the few values there are, or not at all.

Takes an observed system, gives a `Finding`, or what was `Seen`. First small values are explored: what is seen there is a violation, with
a shortest way. Then the claim is tried without lemmas, with those about the machine, with those read off examples of the observed
system, with potentials, and with what Spacer finds. Whatever finds lemmas, what is proved rests on plain questions to z3.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa.checks.evidence import Explored, Inductive
from dsa.checks.observers import COUNT, OPEN, SEEN, WAITING, Observed, Sight
from dsa.checks.proof.conclusion import Finding, in_words, unknown
from dsa.checks.proof.induction import Lemmas, Needs, Slicer, whole
from dsa.checks.proof.logic import Logic
from dsa.checks.proof.potential import bounding
from dsa.checks.proof.refuted import explained, failing_start
from dsa.checks.proof.samples import Sample, Sampler
from dsa.checks.proof.session import MOST_EXPLORED, Session
from dsa.claims import AtMost, Form
from dsa.expr import COMPARISONS, And, Arithmetic, Boolean, EnumDomain, Expr, Integer, Name, Negate, Symbol, Value, walk
from dsa.machine import minima
from dsa.meaning import Occurrence
from dsa.simplify import all_of, any_of, compared, negated
from dsa.system import start_values

OBSERVERS = (SEEN, WAITING, COUNT, OPEN)
#: Milliseconds that Spacer may think about one claim.
SPACER_MS = 3_000


@attrs.frozen
class Seen:
    """A sight that was met: in which sample, at which configuration, and which it is; None is the start."""

    sample: Sample
    place: int
    sight: Sight | None

    @property
    def steps(self) -> int:
        """How long the shortest way is."""
        return len(self.sample.way_to(self.place)) + (self.sight is not None and self.sight.command is not None)


def met(sampler: Sampler, found: Observed, samples: Iterable[Sample]) -> Seen | None:
    """Give the sight that is met soonest, over all samples; the smallest values first."""
    start = sampler.predicate(found.at_start)
    looks = [(sight, sampler.predicate(sight.condition)) for sight in found.sights]
    here: dict[int, list[int]] = {}
    for index, (sight, _) in enumerate(looks):
        here.setdefault(sight.location, []).append(index)
    soonest: Seen | None = None
    for sample in samples:
        if start(sample.configurations[0][1], sample.parameters) is True:
            return Seen(sample, 0, None)
        for place, (location, values) in enumerate(sample.configurations):
            hits = [i for i in here.get(location, ()) if looks[i][1](values, sample.parameters) is True]
            if hits:
                at_once = [i for i in hits if looks[i][0].command is None]
                seen = Seen(sample, place, looks[(at_once or hits)[0]][0])
                if soonest is None or seen.steps < soonest.steps:
                    soonest = seen
                if at_once:
                    break
    return soonest


def way_to(found: Observed, seen: Seen) -> tuple[Occurrence, ...]:
    """Give what happens on the way to what was seen, the moment itself included."""
    way = [found.system.commands[index].occurrence for index in seen.sample.way_to(seen.place)]
    if seen.sight is not None and seen.sight.command is not None:
        way.append(seen.sight.command.occurrence)
    return tuple(way)


class Safety:
    """The attempts to prove one observed system free of its sights."""

    def __init__(self, session: Session, found: Observed, form: Form | None = None) -> None:
        self._session, self._found, self._form = session, found, form
        self._system = found.system
        session.logic.learn(found.system)
        self._is_own = found.system is session.system
        self._sampler = session.sampler if self._is_own else Sampler(found.system)
        self._samples = session.own_samples if self._is_own else session.samples(self._sampler)
        self._strongest: Lemmas = {}

    def seen(self) -> Seen | None:
        """Give a sight that is met at small parameter values, soonest."""
        return met(self._sampler, self._found, self._samples) or self._at_start()

    def finding(self) -> Finding | Seen:
        """Give the verdict, or a sight that is met."""
        seen = self.seen()
        if seen is not None:
            return seen
        # A bound with a product is seldom implied by what can be guessed.
        counting = [self._by_guessing, self._by_potential][:: -1 if self._is_product() else 1]
        for attempt in (self._by_lemmas, self._by_exploring, *counting, self._by_spacer):
            found = None if self._session.expired() else attempt()
            if found is not None:
                return found
        return self._refuted()

    def _at_start(self) -> Seen | None:
        """Give values of the parameters at which the start itself is a sight."""
        wanted = [self._found.at_start] if self._form is None else [self._found.at_start, *self._session.legal_start]
        answer = self._session.logic.smallest(wanted, self._sampler.parameters)
        return Seen(self._sample_at(answer.values, 1), 0, None) if answer.can_be == "yes" else None

    def _sample_at(self, values: Mapping[str, Value], most: int) -> Sample:
        machine = self._session.machine
        given = {**minima(machine), **values}
        return self._sampler.sample({p.name: given[p.name] for p in machine.parameters}, most, self._session.expired)

    def _by_lemmas(self) -> Finding | None:
        """Try without lemmas, then with those about the machine itself."""
        return self._shown({}) or self._shown(self._session.lemmas)

    def _by_exploring(self) -> Finding | None:
        """Explore all values the parameters may have, when these are few."""
        few = self._session.few_valuations
        if few is None:
            return None
        configurations = 0
        for values in few:
            sample = self._sampler.sample(values, MOST_EXPLORED, self._session.expired)
            if not sample.complete or met(self._sampler, self._found, [sample]):
                return None
            configurations += len(sample.configurations)
        return self._proved(Explored(tuple(tuple(values.items()) for values in few), configurations))

    def _by_guessing(self) -> Finding | None:
        """Try with lemmas read off examples of the observed system, then with the claim itself as one."""
        session = self._session
        guessed = session.guesses(self._system, self._samples, OBSERVERS)
        found = self._shown(self._inductive(guessed))
        if found is not None:
            return found
        for sight in self._found.sights:
            guessed[sight.location].append(negated(sight.condition))
        return self._shown(self._inductive(guessed))

    def _is_product(self) -> bool:
        if not isinstance(self._form, AtMost):
            return False
        return any(isinstance(node, Arithmetic) and node.operator == "*" for node in walk(self._form.bound))

    def _by_potential(self) -> Finding | None:
        """Try with a potential that bounds what is counted."""
        if not isinstance(self._form, AtMost) or self._form.between is not None:
            return None
        return self._shown(self._inductive(bounding(self._session, self._form)))

    def _by_spacer(self) -> Finding | None:
        """Try with what Spacer finds."""
        return self._shown(self._inductive(invariants(self._session.logic, self._found, SPACER_MS)))

    def _inductive(self, guessed: Lemmas) -> Lemmas:
        """Keep what is inductive of the candidates, also for what is tried later."""
        known = self._strongest or self._session.lemmas
        self._strongest = self._session.inductive(whole(self._system), guessed, known)
        return self._strongest

    def _refuted(self) -> Finding | Seen:
        """Explore where induction fails: a violation, or a start that is not reached."""
        session, lemmas = self._session, self._strongest or self._session.lemmas
        if session.expired():
            return unknown("the time limit was reached")
        start = failing_start(session.logic, self._found, lemmas)
        if start is None:
            return unknown("z3 does not decide it")
        given = {n: start.values[n] for n in self._sampler.parameters if n in start.values}
        sample = self._sample_at(given, MOST_EXPLORED)
        seen = met(self._sampler, self._found, [sample])
        if seen is not None:
            return seen
        if not sample.complete:
            return unknown("induction fails, and at the values where it does there is too much to explore")
        gap = explained(self._system, start, sample, self._sampler.variables)
        return Finding("NOT INDUCTIVE", gap.how, gap=gap)

    def _shown(self, lemmas: Lemmas) -> Finding | None:
        """Give the proof that no sight is true where the lemmas are, with those that it needs; None when it is none."""
        session = self._session
        if session.logic.ask([self._found.at_start]).can_be != "no":
            return None
        own = self._is_own and lemmas is session.lemmas
        needs = Needs(session.slicer if own else Slicer(whole(self._system), session.logic, lemmas))
        if not all(needs.impossible(sight.location, [sight.condition]) for sight in self._found.sights):
            return None
        kept = needs.lemmas()
        return None if kept is None else self._proved(Inductive(kept))

    def _proved(self, evidence: Inductive | Explored) -> Finding:
        return Finding("PROVED", in_words(self._system, evidence), evidence)


# -- Spacer -----------------------------------------------------------------------------------------------------------
# Invariants found by z3's engine for Horn clauses (Komuravelli, Gurfinkel and Chaki, 2014). They are not trusted: induction checks them like any
# other candidate.


def invariants(logic: Logic, found: Observed, milliseconds: int) -> Lemmas:
    """Give candidates for each location; none when Spacer finds no invariant in time, or one that cannot be written here."""
    return _Clauses(logic, found).solved(milliseconds)


#: Without these, locations are merged, and nothing can be read off for them.
_KEEP_RELATIONS = {"xform.inline_eager": False, "xform.inline_linear": False, "xform.slice": False}


class _Clauses:
    """The system as Horn clauses: a relation for each location, over parameters and variables."""

    def __init__(self, logic: Logic, found: Observed) -> None:
        import z3

        self._z3: Any = z3
        self._logic, self._found, self._system = logic, found, found.system
        machine = found.system.machine
        self._names = [Name(p.name, "parameter") for p in machine.parameters]
        self._names += [Name(v.name, "variable") for v in found.system.variables]
        domains = {parameter.name: parameter.domain for parameter in machine.parameters}
        domains |= {variable.name: variable.domain for variable in found.system.variables}
        self._values = {name: domain.values for name, domain in domains.items() if isinstance(domain, EnumDomain)}
        self._terms = [logic.term(name) for name in self._names]
        sorts = [term.sort() for term in self._terms]
        places = range(len(found.system.locations))
        self._at = [z3.Function(f"at{place}", *sorts, z3.BoolSort()) for place in places]
        self._bad = z3.Function("bad", z3.BoolSort())

    def solved(self, milliseconds: int) -> Lemmas:
        """Ask whether a sight can be reached, and read what holds at each location when none can."""
        z3 = self._z3
        fixedpoint = z3.Fixedpoint()
        fixedpoint.set(**{"engine": "spacer", "timeout": milliseconds, **_KEEP_RELATIONS})
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
        facts = [term(fact) for fact in self._logic.known_of([name.name for name in self._names])]
        initial = start_values(system)
        begins = [term(compared(Name(v.name, "variable"), "==", initial[v.name])) for v in system.variables]
        rules = [(self._at[0](*self._terms), [*facts, *begins])]
        for command in system.commands:
            after = [term(command.after.get(name.name, name)) for name in self._names]
            here = self._at[command.source](*self._terms)
            rules.append((self._at[command.target](*after), [here, *facts, term(command.condition)]))
        return rules + [
            (self._bad(), [self._at[sight.location](*self._terms), *facts, term(sight.condition)])
            for sight in self._found.sights
        ]

    def _read(self, found: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        """Write a formula of z3 in our words; NotImplementedError for what has none."""
        z3 = self._z3
        if z3.is_var(found):
            place: int = z3.get_var_index(found)
            return self._names[place]
        if z3.is_int_value(found):
            return Integer(found.as_long())
        parts = [self._read(child) for child in found.children()]
        kind = found.decl().kind()
        if kind in {z3.Z3_OP_TRUE, z3.Z3_OP_FALSE}:
            return Boolean(bool(kind == z3.Z3_OP_TRUE))
        if kind == z3.Z3_OP_AND:
            return all_of(parts)
        if kind == z3.Z3_OP_OR:
            return any_of(parts)
        if kind == z3.Z3_OP_NOT:
            return negated(parts[0])
        if kind == z3.Z3_OP_UMINUS:
            return Negate(parts[0])
        signs = {z3.Z3_OP_LE: "<=", z3.Z3_OP_GE: ">=", z3.Z3_OP_LT: "<", z3.Z3_OP_GT: ">", z3.Z3_OP_EQ: "=="}
        if kind in signs:
            return self._compared(parts, signs[kind], found)
        operators = {z3.Z3_OP_ADD: "+", z3.Z3_OP_SUB: "-", z3.Z3_OP_MUL: "*"}
        if kind not in operators:
            raise NotImplementedError(str(found.decl()))
        return _folded(operators[kind], parts)

    def _compared(self, parts: Sequence[Expr], sign: str, found: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        """Compare two sides; the values of enumerations are numbers to z3, and so `hue <= 1` is `hue == red or hue == green`."""
        listed = [part.name in self._values if isinstance(part, Name) else False for part in parts]
        if any(
            node.name in self._values
            for part in parts
            for node in walk(part)
            if isinstance(node, Name) and node is not part
        ):
            raise NotImplementedError("arithmetic on values of an enumeration")
        if any(listed) and not (all(listed) and sign == "=="):
            name, number = parts if listed[0] else parts[::-1]
            if not (isinstance(name, Name) and isinstance(number, Integer)):
                raise NotImplementedError("an order of the values of enumerations")
            holds = COMPARISONS[sign]
            numbers = {value: self._logic.number_of(value) for value in self._values[name.name]}
            kept = (v for v, n in numbers.items() if (holds(n, number.value) if listed[0] else holds(number.value, n)))
            return any_of(compared(name, "==", Symbol(value)) for value in kept)
        if sign == "==" and self._z3.is_bool(found.arg(0)):
            one, other = parts
            return any_of([all_of([one, other]), all_of([negated(one), negated(other)])])
        return compared(parts[0], sign, parts[1])


def _folded(sign: Any, parts: Sequence[Expr]) -> Expr:  # noqa: ANN401  (one of three signs)
    total = parts[0]
    for part in parts[1:]:
        total = Arithmetic(sign, total, part)
    return total


def _conjuncts(found: Expr) -> Sequence[Expr]:
    return found.operands if isinstance(found, And) else (found,)
