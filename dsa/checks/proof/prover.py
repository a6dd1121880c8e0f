"""Proofs for all parameter values: what every machine owes, and what its document claims.

Takes a machine, gives a `ProofReport`. Every verdict is one of specs/semantics.md; PROVED carries the evidence that it rests on, for all
values of the parameters in their domains. Needs z3 (the extra `prove`). Has no clock of its own: a caller who wants milliseconds or a time
limit passes one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs

from dsa.checks.observers import Observer, WatchedCondition, observer_of
from dsa.checks.proof.conclusion import Gap, ProofResult, in_words, unknown
from dsa.checks.proof.induction import Evidence, ExhaustiveEvidence, Fair, Inductive, RankEvidence
from dsa.checks.proof.liveness import ObligationProof, ReachabilityProof, comes_to_rest, from_outside
from dsa.checks.proof.proof_session import MOST_EXPLORED, ProofSession
from dsa.checks.proof.safety import Safety, SightHit, first_sight_hit, way_to
from dsa.checks.properties import PropertyValue, PropertyVerdict, Questions, judge
from dsa.checks.report import relied_on, text_of
from dsa.checks.search.engine import SearchLimits
from dsa.checks.table_faults import definition4
from dsa.declarations import EverywherePossible, ExpectedCount, Form, LeadsTo, Possible, Probability, Property
from dsa.errors import UndecidedError
from dsa.expr import FALSE, Value, all_of, any_of, negation, unparse
from dsa.machine import Machine, sleeping_effects
from dsa.system import System, SystemFault, in_domain, start_values
from dsa.trace import Trace, show_occurrence, show_values

Clock = Callable[[], float]
Claim = TypeVar("Claim")


@attrs.frozen
class Obligation:
    """Something a table owes before its properties mean anything.

    It has a name and a text, the observer of what must never be seen, and the fault of each sight.
    """

    name: str
    text: str
    observer: Observer
    faults: tuple[SystemFault, ...] = ()

    def fault(self, sight: WatchedCondition | None) -> SystemFault | None:
        """Return the fault behind a sight."""
        for fault, its in zip(self.faults, self.observer.sights, strict=False):
            if its is sight:
                return fault
        return None


_TEXTS = {
    "determinism": "never two rows at once",
    "completeness": "every answer and every timer has a row",
    "domains": "every update stays in its domain",
    "emission": "no effect is outstanding more often than allowed",
}


def obligations(system: System) -> Iterator[Obligation]:
    """Yield the obligations of a system, the start's first."""
    initial = start_values(system)
    outside = any_of(negation(in_domain(v, initial[v.name])) for v in system.own_variables)
    yield Obligation("start", "every variable starts in its domain", Observer(system, outside, ()))
    sorted_out: dict[str, list[SystemFault]] = {name: [] for name in _TEXTS}
    for fault in system.faults:
        name = _obligation_of(system, fault)
        if name:
            sorted_out[name].append(fault)
    for name, faults in sorted_out.items():
        sights = tuple(WatchedCondition(fault.location, fault.condition) for fault in faults)
        yield Obligation(name, _TEXTS[name], Observer(system, FALSE, sights), tuple(faults))
    yield Obligation("deadlock", "no deadlock", Observer(system, FALSE, tuple(_deadlock_sights(system))))


def _obligation_of(system: System, fault: SystemFault) -> str:
    match fault.reason:
        case "ambiguous":
            return "determinism"
        case "out_of_domain":
            return "domains"
        case "emitted_twice":
            return "emission"
        case _:
            return "" if from_outside(system, fault.occurrence) else "completeness"


def _deadlock_sights(system: System) -> Iterator[WatchedCondition]:
    """Yield the conditions under which nothing can happen any more, although the state is not final and nothing is outstanding."""
    for place in range(len(system.locations)):
        rests = system.may_rest(place)
        if rests != FALSE and not system.is_final(place):
            goes_on = [system.end_at(place), *(command.condition for command in system.commands_at[place])]
            condition = all_of([rests, negation(any_of(goes_on))])
            if condition != FALSE:
                yield WatchedCondition(place, condition)


_DEFINITION_4 = "workflow state is set by guards that passed (Definition 4)"
_RESTS = "every run comes to rest when nothing comes from outside"
NOTHING_TO_KEEP = "there is nothing to check, because no variable is workflow state"


@attrs.frozen
class Proof:
    """One claim, its verdict, and why.

    `text` is the claim as written, `line` its line (0 for what every machine owes), `how` what the proof rests on or
    why there is none, in words. PROVED has `evidence`. VIOLATED has `values`, the parameters at which it is, and a
    shortest `trace` there (none for a `possible` that nothing makes true); its steps from `loop` on can be repeated for
    ever. `milliseconds` is None without a clock. `idle` is the subject of a property when it was not met at small
    values: the property may say little. `relies_on` are the effects without whose answers it would not hold at the
    values explored (S12), `must_not_fail` those of them whose failure no row names. NOT INDUCTIVE has a `gap`: where
    the proof fails.
    """

    name: str
    text: str
    line: int
    verdict: PropertyVerdict
    how: str
    evidence: Evidence | None = None
    values: tuple[tuple[str, Value], ...] = ()
    trace: Trace | None = None
    loop: int | None = None
    assumptions: tuple[str, ...] = ()
    milliseconds: float | None = attrs.field(default=None, eq=False)
    form: Form | None = None
    idle: str = ""
    relies_on: tuple[str, ...] = ()
    must_not_fail: tuple[str, ...] = ()
    gap: Gap | None = None

    @property
    def condition(self) -> str:
        """What the verdict relies on, as written after `if`; empty when it relies on nothing."""
        return relied_on(self.relies_on, self.must_not_fail)

    @property
    def is_asked(self) -> bool:
        """Return whether this is a claim for all values of the parameters; odds hold at given values only."""
        return not isinstance(self.form, Probability | ExpectedCount)


@attrs.frozen
class ProofReport:
    """What `prove` found out: obligations that every machine has, then the document's properties in order.

    `rest` is the proof that every run comes to rest when nothing comes from outside; where there is none, `not_at_rest` says why. No
    machine owes it.
    """

    machine: Machine = attrs.field(repr=False)
    system: System = attrs.field(repr=False)
    obligations: tuple[Proof, ...]
    properties: tuple[Proof, ...]
    rest: Proof | None = None
    not_at_rest: Proof | None = None
    seconds: float | None = attrs.field(default=None, eq=False)

    @property
    def is_proved(self) -> bool:
        """Return whether everything is PROVED that is claimed for all values."""
        return all(proof.verdict == "PROVED" for proof in (*self.obligations, *self.properties) if proof.is_asked)


def prove(
    machine: Machine,
    *,
    time_limit_s: float | None = None,
    clock: Clock | None = None,
    progress: Callable[[str], None] = lambda _claim: None,
) -> ProofReport:
    """Prove what a machine owes and claims, for all values of its parameters.

    `progress` gets the text of each claim before it is proved. `time_limit_s` holds for everything together and needs a
    `clock` that gives seconds; ValueError without one. Raises DsaError when z3 is not installed.
    """
    if time_limit_s is not None and clock is None:
        raise ValueError("a time limit needs a clock")
    return _Prover(machine, time_limit_s, clock, progress).run()


class _Prover:
    """One call of `prove`."""

    def __init__(
        self, machine: Machine, time_limit_s: float | None, clock: Clock | None, progress: Callable[[str], None]
    ) -> None:
        self._machine, self._clock, self._progress = machine, clock, progress
        self._ends_s = None if time_limit_s is None or clock is None else clock() + time_limit_s
        self._session = ProofSession(machine, self._is_expired)
        self._open: tuple[Proof, ...] = ()

    def _is_expired(self) -> bool:
        return self._clock is not None and self._ends_s is not None and self._clock() >= self._ends_s

    def run(self) -> ProofReport:
        """Prove the obligations, then the properties; these mean nothing while some of the obligations are open."""
        began_s = self._clock() if self._clock else 0.0
        session = self._session
        proofs = [
            self._with_time(self._obligation, obligation, obligation.text) for obligation in obligations(session.system)
        ]
        proofs.append(self._with_time(self._definition4, self._machine, _DEFINITION_4))
        self._open = tuple(proof for proof in proofs if proof.verdict != "PROVED" and proof.name in _PRECONDITIONS)
        claims = tuple(self._with_time(self._property, claim, text_of(claim)) for claim in self._machine.properties)
        rest_proof = None if self._open or session.system.left_out else self._with_time(self._rest, session, _RESTS)
        is_shown = rest_proof is not None and rest_proof.verdict == "PROVED"
        rest, restless = (rest_proof, None) if is_shown else (None, rest_proof)
        seconds = self._clock() - began_s if self._clock else None
        return ProofReport(self._machine, session.system, tuple(proofs), claims, rest, restless, seconds)

    def _with_time(self, prove_claim: Callable[[Claim], Proof], claim: Claim, text: str) -> Proof:
        self._progress(text)
        began_s = self._clock() if self._clock else 0.0
        proof = prove_claim(claim)
        return attrs.evolve(proof, milliseconds=(self._clock() - began_s) * 1000) if self._clock else proof

    def _obligation(self, obligation: Obligation) -> Proof:
        draft = Proof(obligation.name, obligation.text, 0, "UNKNOWN", "")
        result = self._safe(obligation.observer, None)
        if isinstance(result, ProofResult):
            late = result.verdict == "UNKNOWN" and self._is_expired()
            return _with(draft, unknown(_TIME_IS_UP) if late else result)
        way = way_to(obligation.observer, result)
        trace = self._session.follow(result.sample, way)
        fault, where = obligation.fault(result.sight), trace.steps[-1].state if trace.steps else trace.state
        if fault is not None:
            how = f"{show_occurrence(fault.occurrence)} is refused in {where} ({fault.reason})"
        else:
            starts = f"starts with {show_values(trace.values)}"
            how = f"nothing can happen in {where}" if obligation.name == "deadlock" else starts
        return attrs.evolve(draft, verdict="VIOLATED", how=how, trace=trace, values=trace.parameters)

    def _definition4(self, machine: Machine) -> Proof:
        errors = [finding for finding in definition4(machine) if finding.severity == "error"]
        keeps = any(variable.scope == "workflow" for variable in machine.variables)
        draft = Proof("definition4", _DEFINITION_4, 0, "PROVED", "row by row" if keeps else NOTHING_TO_KEEP)
        if not errors:
            return attrs.evolve(draft, evidence=Inductive())
        first = errors[0]
        return attrs.evolve(draft, verdict="VIOLATED", how=f"line {first.span.line}: {first.message}")

    def _rest(self, session: ProofSession) -> Proof:
        draft = Proof("rest", _RESTS, 0, "UNKNOWN", _MAY_GO_ON)
        evidence = comes_to_rest(session)
        if evidence is None:
            return attrs.evolve(draft, how=_TIME_IS_UP) if self._is_expired() else draft
        return attrs.evolve(draft, verdict="PROVED", how=in_words(session.system, evidence), evidence=evidence)

    def _property(self, claim: Property) -> Proof:
        line = claim.span.line if claim.span else 0
        draft = Proof("property", text_of(claim), line, "UNKNOWN", "", form=claim.form)
        if not draft.is_asked:
            return attrs.evolve(draft, how=_ODDS)
        if self._is_expired():
            return attrs.evolve(draft, how="not tried: the time limit was used up before its turn")
        result = unknown(_LEFT_OUT) if self._session.system.left_out else self._judge(claim.form)
        if isinstance(result, ProofResult) and result.verdict == "UNKNOWN" and self._is_expired():
            result = unknown(_TIME_IS_UP)
        if isinstance(result, Proof):
            return attrs.evolve(result, name=draft.name, text=draft.text, line=line, form=claim.form)
        if self._open:
            result = unknown(f"this obligation must be proved first: {self._open[0].text}")
        proof = _with(draft, result)
        if result.verdict != "PROVED":
            return proof
        relies_on = self._relied_on(claim.form)
        must_not_fail = tuple(effect for effect in relies_on if effect not in self._machine.failures_handled)
        return attrs.evolve(proof, idle=self._idle(claim.form), relies_on=relies_on, must_not_fail=must_not_fail)

    def _relied_on(self, form: Form) -> tuple[str, ...]:
        """Return the effects without whose answers a proved property would not hold, by search at the values explored; all, where that stops."""
        if not isinstance(form, LeadsTo):
            return ()
        effects = set[str]()
        for values in self._session.few_valuations or self._session.valuations:
            judgement = self._judged_at(form, values)
            every_effect = self._machine.answers.keys() - sleeping_effects(self._machine).keys()
            effects |= set(judgement.relies_on) if judgement.verdict == "HOLDS" else every_effect
        return tuple(effect for effect in self._machine.effects_with_answers if effect in effects)

    def _idle(self, form: Form) -> str:
        """Return the subject of a property when it is not met at small values."""
        what = form.subject
        if what is None:
            return ""
        session = self._session
        hit = first_sight_hit(session.sampler, observer_of(session.system, Possible(what)), session.own_samples)
        return "" if hit else unparse(what)

    def _judge(self, form: Form) -> ProofResult | Proof:
        """Prove a property, or find a violation of it."""
        if isinstance(form, LeadsTo | Possible | EverywherePossible) and self._session.few_valuations is not None:
            search_result = self._search(form)  # faster than finding a rank
            if search_result is not None:
                return search_result
        try:
            match form:
                case LeadsTo():
                    result: ProofResult | SightHit = self._leads_to(form)
                case Possible(condition) | EverywherePossible(condition):
                    result = self._reachability(form, EverywherePossible(condition))
                case Probability() | ExpectedCount():
                    return unknown(_ODDS)
                case _:
                    result = self._safe(observer_of(self._session.system, form), form)
        except UndecidedError as why:
            result = unknown(str(why))
        if isinstance(result, SightHit):
            values = dict(zip(self._session.sampler.parameters, result.sample.parameters, strict=True))
            judgement = self._judged_at(form, values)
            if judgement.verdict != "VIOLATED":
                return unknown(f"a search at {show_values(values.items())} stopped before it could confirm a violation")
            return self._violation(values, judgement)
        return result if result.verdict == "PROVED" else self._search(form) or result

    def _safe(self, observer: Observer, form: Form | None) -> ProofResult | SightHit:
        if self._session.system.left_out:
            return unknown(_LEFT_OUT)
        return Safety(self._session, observer, form).finding()

    def _leads_to(self, form: LeadsTo) -> ProofResult:
        if form.doubtful_effects("fails"):
            return unknown("a property about the failure of an effect is judged only at given values, by dsa check")
        observer = observer_of(self._session.system, form)
        return self._rank_result(
            observer, ObligationProof(self._session, form, observer).evidence(), "no rank was found", is_progress=True
        )

    def _reachability(self, form: Possible | EverywherePossible, goal: EverywherePossible) -> ProofResult:
        observer = observer_of(self._session.system, goal)
        reachability = ReachabilityProof(self._session, observer, everywhere=isinstance(form, EverywherePossible))
        return self._rank_result(observer, reachability.evidence(), "no strategy was found that works for all values")

    def _rank_result(
        self, observer: Observer, evidence: RankEvidence | None, otherwise: str, *, is_progress: bool = False
    ) -> ProofResult:
        if evidence is None:
            return unknown(otherwise)
        expectations = {item for item in evidence.expectations if item is not None}
        assumptions = [_assumption_text(item) for item in expectations if not isinstance(item, str)]
        if is_progress:
            assumptions.insert(0, "progress")
        return ProofResult(
            "PROVED", in_words(observer.system, evidence), evidence, assumptions=tuple(sorted(assumptions))
        )

    def _search(self, form: Form) -> ProofResult | Proof | None:
        """Look for a violation at small values; where these are all there are, their search is a proof."""
        few = self._session.few_valuations
        verdicts, assumptions = set(), set[str]()
        for values in few or self._session.valuations:
            judgement = self._judged_at(form, values)
            verdicts.add(judgement.verdict)
            assumptions |= set(judgement.assumes)
            if judgement.verdict == "VIOLATED":
                return self._violation(values, judgement)
            if self._is_expired():
                return None
        if few is None or verdicts != {"HOLDS"}:
            return None
        samples = (self._session.sampler.sample(values, MOST_EXPLORED, self._is_expired) for values in few)
        count = sum(len(sample.configurations) for sample in samples)
        evidence = ExhaustiveEvidence(tuple(tuple(values.items()) for values in few), count)
        how = in_words(self._session.system, evidence)
        return ProofResult("PROVED", how, evidence, assumptions=tuple(sorted(assumptions)))

    def _judged_at(self, form: Form, values: Mapping[str, Value]) -> PropertyValue:
        """Search at given parameter values."""
        system = attrs.evolve(self._session.system, machine=self._machine.at(values))
        return judge_at(system, form, MOST_EXPLORED, self._is_expired)

    def _violation(self, values: Mapping[str, Value], judgement: PropertyValue) -> Proof:
        parameters = tuple(self._machine.at(values).constants.items())
        how = (
            judgement.reason
            if judgement.trace is not None or not parameters
            else f"{judgement.reason}, at {show_values(parameters)}"
        )
        return Proof("", "", 0, "VIOLATED", how, None, parameters, judgement.trace, judgement.loop, judgement.assumes)


#: While one of these is open, no property is PROVED (specs/semantics.md, "Severities and verdicts").
_PRECONDITIONS = {"start", "determinism", "completeness", "domains", "emission"}
_ODDS = "odds hold at given values only: dsa check judges them"
_TIME_IS_UP = "the time limit was reached before a result"
_MAY_GO_ON = "not shown: no rank was found; a loop may go on for ever by answers and timers alone (no machine has to satisfy this)"
_LEFT_OUT = "the machine has too many combinations of states and outstanding effects to be explored"


def _with(draft: Proof, result: ProofResult) -> Proof:
    return attrs.evolve(
        draft,
        verdict=result.verdict,
        how=result.how,
        evidence=result.evidence,
        assumptions=result.assumptions,
        gap=result.gap,
    )


def _assumption_text(expectation: tuple[str, str] | Fair) -> str:
    """Return what a proof expects, apart from answers of effects."""
    if isinstance(expectation, Fair):
        return f"fairness of {expectation.name}"
    return f"the timer '{expectation[1]}' of {expectation[0]} fires or is dropped"


def judge_at(system: System, form: Form, most: int, is_expired: Callable[[], bool] = lambda: False) -> PropertyValue:
    """Judge a property at the parameter values of the system's machine, within `most` configurations."""
    questions = Questions(system, [form])
    limits = SearchLimits(most, is_expired)
    return judge(questions, questions.search(limits), limits)[form]
