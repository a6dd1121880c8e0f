"""Proofs for all parameter values: what every machine owes, and what its document claims.

Takes a machine, gives a `ProofReport`. Every verdict is one of specs/semantics.md; PROVED carries the evidence that it rests on, for
all values of the parameters in their domains. Needs z3 (the extra `prove`). Knows no clock: who wants milliseconds or a time limit hands
one in.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs

from dsa.checks.observers import NotDecidedError, Observer, WatchedCondition, observed
from dsa.checks.proof.conclusion import Gap, ProofResult, in_words, unknown
from dsa.checks.proof.induction import Evidence, ExhaustiveEvidence, Fair, Inductive, RankEvidence
from dsa.checks.proof.liveness import ObligationProof, ReachabilityProof, comes_to_rest, from_outside
from dsa.checks.proof.proof_session import MOST_EXPLORED, ProofSession
from dsa.checks.proof.safety import Safety, SightHit, met, way_to
from dsa.checks.properties import PropertyValue, PropertyVerdict, Questions, judge, subject
from dsa.checks.report import relied_on, text_of
from dsa.checks.search.engine import SearchLimits
from dsa.checks.table_faults import definition4
from dsa.declarations import EverywherePossible, ExpectedCount, Form, LeadsTo, Possible, Probability, Property
from dsa.expr import FALSE, Value, any_of, negation, unparse
from dsa.machine import Machine
from dsa.system import System, SystemFault, in_domain, start_values
from dsa.trace import Trace, show_occurrence, show_values

Clock = Callable[[], float]
Claimed = TypeVar("Claimed")


@attrs.frozen
class Obligation:
    """Something a table owes before its properties mean anything: what it is, what must never be seen, and the occurrence that each sight refuses."""

    name: str
    text: str
    found: Observer
    faults: tuple[SystemFault, ...] = ()

    def fault(self, sight: WatchedCondition | None) -> SystemFault | None:
        """Return the fault behind a sight."""
        for fault, its in zip(self.faults, self.found.sights, strict=False):
            if its is sight:
                return fault
        return None


_TEXTS = {
    "determinism": "never two rows at once",
    "completeness": "every answer and every timer has a row",
    "domains": "every update stays in its domain",
    "emission": "no effect is emitted while it is outstanding",
}


def obligations(system: System) -> Iterator[Obligation]:
    """Yield the obligations of a system, the start's first."""
    initial = start_values(system)
    outside = any_of(negation(in_domain(v, initial[v.name])) for v in system.machine.variables)
    yield Obligation("start", "every variable starts in its domain", Observer(system, outside, ()))
    sorted_out: dict[str, list[SystemFault]] = {name: [] for name in _TEXTS}
    for fault in system.faults:
        name = _obligation_of(system, fault)
        if name:
            sorted_out[name].append(fault)
    for name, faults in sorted_out.items():
        sights = tuple(WatchedCondition(fault.location, fault.condition) for fault in faults)
        yield Obligation(name, _TEXTS[name], Observer(system, FALSE, sights), tuple(faults))
    yield Obligation("deadlock", "no deadlock", Observer(system, FALSE, tuple(_stuck(system))))


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


def _stuck(system: System) -> Iterator[WatchedCondition]:
    """Yield where nothing can happen any more, although the state is not final and nothing is awaited."""
    for place in range(len(system.locations)):
        if system.may_rest(place) and not system.is_final(place):
            end = system.end_at(place)
            stuck = negation(any_of([end, *(command.condition for command in system.commands_at[place])]))
            if stuck != FALSE:
                yield WatchedCondition(place, stuck)


_DEFINITION_4 = "workflow state is set by guards that passed (Definition 4)"
_RESTS = "every run comes to rest when nothing comes from outside"
NOTHING_TO_KEEP = "there is nothing to keep: no variable is workflow state"


@attrs.frozen
class Proof:
    """One claim, its verdict, and why.

    `text` is the claim as written, `line` its line (0 for what every machine owes), `how` what the proof rests on or why there is none, in
    words. PROVED has `evidence`. VIOLATED has `values`, the parameters at which it is, and a shortest `trace` there (none for a `possible`
    that nothing makes true); its steps from `loop` on can be repeated for ever. `milliseconds` is None without a clock. `idle` is what a
    property speaks of and what was not met at small values: it may say little. `relies_on` are the effects without whose answers it would not hold at
    the values explored (S12), `unfailing` those of them whose failure no row names. NOT INDUCTIVE has a `gap`: where the proof fails.
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
    unfailing: tuple[str, ...] = ()
    gap: Gap | None = None

    @property
    def condition(self) -> str:
        """What the verdict relies on, as it stands behind `if`; empty when on nothing."""
        return relied_on(self.relies_on, self.unfailing)

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
    def proved(self) -> bool:
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

    `progress` is told each claim in its words, before it is proved. `time_limit_s` holds for everything together and needs a `clock` that gives seconds; ValueError without one. Raises NoSolverError
    when z3 is not installed.
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
        self._session = ProofSession(machine, self._expired)
        self._open: tuple[Proof, ...] = ()

    def _expired(self) -> bool:
        return self._clock is not None and self._ends_s is not None and self._clock() >= self._ends_s

    def run(self) -> ProofReport:
        """Prove the obligations, then the properties; these mean nothing while some of the obligations are open."""
        began_s = self._clock() if self._clock else 0.0
        session = self._session
        owed = [
            self._timed(self._obligation, obligation, obligation.text) for obligation in obligations(session.system)
        ]
        owed.append(self._timed(self._definition4, self._machine, _DEFINITION_4))
        self._open = tuple(proof for proof in owed if proof.verdict != "PROVED" and proof.name in _MEANT)
        claims = tuple(self._timed(self._property, claim, text_of(claim)) for claim in self._machine.properties)
        resting = None if self._open or session.system.left_out else self._timed(self._rest, session, _RESTS)
        is_shown = resting is not None and resting.verdict == "PROVED"
        rest, restless = (resting, None) if is_shown else (None, resting)
        seconds = self._clock() - began_s if self._clock else None
        return ProofReport(self._machine, session.system, tuple(owed), claims, rest, restless, seconds)

    def _timed(self, proving: Callable[[Claimed], Proof], claimed: Claimed, text: str) -> Proof:
        self._progress(text)
        began_s = self._clock() if self._clock else 0.0
        proof = proving(claimed)
        return attrs.evolve(proof, milliseconds=(self._clock() - began_s) * 1000) if self._clock else proof

    def _obligation(self, owed: Obligation) -> Proof:
        draft = Proof(owed.name, owed.text, 0, "UNKNOWN", "")
        found = self._safe(owed.found, None)
        if isinstance(found, ProofResult):
            late = found.verdict == "UNKNOWN" and self._expired()
            return _with(draft, unknown(_TIME_IS_UP) if late else found)
        way = way_to(owed.found, found)
        trace = self._session.follow(found.sample, way)
        fault, where = owed.fault(found.sight), trace.steps[-1].state if trace.steps else trace.state
        if fault is not None:
            how = f"{show_occurrence(fault.occurrence)} is refused in {where} ({fault.reason})"
        else:
            starts = f"starts with {show_values(trace.values)}"
            how = f"nothing can happen in {where}" if owed.name == "deadlock" else starts
        return attrs.evolve(draft, verdict="VIOLATED", how=how, trace=trace, values=trace.parameters)

    def _definition4(self, machine: Machine) -> Proof:
        broken = [found for found in definition4(machine) if found.severity == "error"]
        keeps = any(variable.scope == "workflow" for variable in machine.variables)
        draft = Proof("definition4", _DEFINITION_4, 0, "PROVED", "row by row" if keeps else NOTHING_TO_KEEP)
        if not broken:
            return attrs.evolve(draft, evidence=Inductive())
        first = broken[0]
        return attrs.evolve(draft, verdict="VIOLATED", how=f"line {first.span.line}: {first.message}")

    def _rest(self, session: ProofSession) -> Proof:
        draft = Proof("rest", _RESTS, 0, "UNKNOWN", _MAY_GO_ON)
        evidence = comes_to_rest(session)
        if evidence is None:
            return attrs.evolve(draft, how=_TIME_IS_UP) if self._expired() else draft
        return attrs.evolve(draft, verdict="PROVED", how=in_words(session.system, evidence), evidence=evidence)

    def _property(self, claim: Property) -> Proof:
        line = claim.span.line if claim.span else 0
        draft = Proof("property", text_of(claim), line, "UNKNOWN", "", form=claim.form)
        if not draft.is_asked:
            return attrs.evolve(draft, how=_ODDS)
        if self._expired():
            return attrs.evolve(draft, how="not tried: the time limit was used up before its turn")
        found = unknown(_LEFT_OUT) if self._session.system.left_out else self._judged(claim.form)
        if isinstance(found, ProofResult) and found.verdict == "UNKNOWN" and self._expired():
            found = unknown(_TIME_IS_UP)
        if isinstance(found, Proof):
            return attrs.evolve(found, name=draft.name, text=draft.text, line=line, form=claim.form)
        if self._open:
            found = unknown(f"not before this is proved: {self._open[0].text}")
        proof = _with(draft, found)
        if found.verdict != "PROVED":
            return proof
        relies_on = self._relied_on(claim.form)
        unfailing = tuple(effect for effect in relies_on if effect not in self._machine.failures_handled)
        return attrs.evolve(proof, idle=self._idle(claim.form), relies_on=relies_on, unfailing=unfailing)

    def _relied_on(self, form: Form) -> tuple[str, ...]:
        """Return the effects without whose answers a proved property would not hold, by search at the values explored; all, where that stops."""
        if not isinstance(form, LeadsTo):
            return ()
        found = set[str]()
        for values in self._session.few_valuations or self._session.valuations:
            judgement = self._judged_at(form, values)
            found |= set(judgement.relies_on if judgement.verdict == "HOLDS" else self._machine.answers)
        return tuple(effect for effect in self._machine.effects_with_answers if effect in found)

    def _idle(self, form: Form) -> str:
        """Return what a property speaks of when it is not met at small values."""
        what = subject(form)
        if what is None:
            return ""
        session = self._session
        found = met(session.sampler, observed(session.system, Possible(what)), session.own_samples)
        return "" if found else unparse(what)

    def _judged(self, form: Form) -> ProofResult | Proof:
        """Prove a property, or find a violation of it."""
        if isinstance(form, LeadsTo | Possible | EverywherePossible) and self._session.few_valuations is not None:
            searched = self._searched(form)  # sooner done than a rank is found
            if searched is not None:
                return searched
        try:
            match form:
                case LeadsTo():
                    found: ProofResult | SightHit = self._leads_to(form)
                case Possible(condition) | EverywherePossible(condition):
                    found = self._reached(form, EverywherePossible(condition))
                case Probability() | ExpectedCount():
                    return unknown(_ODDS)
                case _:
                    found = self._safe(observed(self._session.system, form), form)
        except NotDecidedError as why:
            found = unknown(str(why))
        if isinstance(found, SightHit):
            values = dict(zip(self._session.sampler.parameters, found.sample.parameters, strict=True))
            judgement = self._judged_at(form, values)
            if judgement.verdict != "VIOLATED":
                return unknown(f"a search at {show_values(values.items())} stopped before it could confirm a violation")
            return self._violated(values, judgement)
        return found if found.verdict == "PROVED" else self._searched(form) or found

    def _safe(self, found: Observer, form: Form | None) -> ProofResult | SightHit:
        if self._session.system.left_out:
            return unknown(_LEFT_OUT)
        return Safety(self._session, found, form).finding()

    def _leads_to(self, form: LeadsTo) -> ProofResult:
        if form.doubtful_effects("fails"):
            return unknown("what an effect's failure ends is looked for at given values: dsa check judges it")
        found = observed(self._session.system, form)
        return self._ranked(
            found, ObligationProof(self._session, form, found).evidence(), "no rank was found", is_progress=True
        )

    def _reached(self, form: Possible | EverywherePossible, followed: EverywherePossible) -> ProofResult:
        found = observed(self._session.system, followed)
        reaching = ReachabilityProof(self._session, found, everywhere=isinstance(form, EverywherePossible))
        return self._ranked(found, reaching.evidence(), "no strategy was found that works for all values")

    def _ranked(
        self, found: Observer, evidence: RankEvidence | None, otherwise: str, *, is_progress: bool = False
    ) -> ProofResult:
        if evidence is None:
            return unknown(otherwise)
        awaited = {item for item in evidence.awaited if item is not None}
        assumed = [_assumed(item) for item in awaited if not isinstance(item, str)]
        if is_progress:
            assumed.insert(0, "progress (S12)")
        return ProofResult("PROVED", in_words(found.system, evidence), evidence, assumptions=tuple(sorted(assumed)))

    def _searched(self, form: Form) -> ProofResult | Proof | None:
        """Look for a violation at small values; where these are all there are, their search is a proof."""
        few = self._session.few_valuations
        verdicts, assumed = set(), set[str]()
        for values in few or self._session.valuations:
            found = self._judged_at(form, values)
            verdicts.add(found.verdict)
            assumed |= set(found.assumes)
            if found.verdict == "VIOLATED":
                return self._violated(values, found)
            if self._expired():
                return None
        if few is None or verdicts != {"HOLDS"}:
            return None
        samples = (self._session.sampler.sample(values, MOST_EXPLORED, self._expired) for values in few)
        count = sum(len(sample.configurations) for sample in samples)
        evidence = ExhaustiveEvidence(tuple(tuple(values.items()) for values in few), count)
        how = in_words(self._session.system, evidence)
        return ProofResult("PROVED", how, evidence, assumptions=tuple(sorted(assumed)))

    def _judged_at(self, form: Form, values: Mapping[str, Value]) -> PropertyValue:
        """Search at given parameter values."""
        system = attrs.evolve(self._session.system, machine=self._machine.at(values))
        return judged(system, form, MOST_EXPLORED, self._expired)

    def _violated(self, values: Mapping[str, Value], found: PropertyValue) -> Proof:
        given = tuple(self._machine.at(values).constants.items())
        how = found.reason if found.trace is not None or not given else f"{found.reason}, at {show_values(given)}"
        return Proof("", "", 0, "VIOLATED", how, None, given, found.trace, found.loop, found.assumes)


#: While one of these is open, no property is PROVED (specs/semantics.md, "Severities and verdicts").
_MEANT = {"start", "determinism", "completeness", "domains", "emission"}
_ODDS = "not for prove: odds hold at given values; dsa check judges them"
_TIME_IS_UP = "the time limit came before an answer"
_MAY_GO_ON = (
    "not shown: no rank was found; a loop may go on for ever by answers and timers alone (no machine owes this)"
)
_LEFT_OUT = "the machine has too many combinations of states and outstanding effects to be laid out"


def _with(draft: Proof, found: ProofResult) -> Proof:
    return attrs.evolve(
        draft,
        verdict=found.verdict,
        how=found.how,
        evidence=found.evidence,
        assumptions=found.assumptions,
        gap=found.gap,
    )


def _assumed(awaited: tuple[str, str] | Fair) -> str:
    """Return what a proof waits for, answers of effects apart."""
    if isinstance(awaited, Fair):
        return f"fairness of {awaited.name}"
    return f"'{awaited[1]}' of {awaited[0]} fires or is dropped"


def judged(system: System, form: Form, most: int, expired: Callable[[], bool] = lambda: False) -> PropertyValue:
    """Judge a property at the parameter values of the system's machine, within `most` configurations."""
    questions = Questions(system, [form])
    limits = SearchLimits(most, expired)
    return judge(questions, questions.search(limits), limits)[form]
