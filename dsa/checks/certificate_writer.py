"""Certificates: what a verdict rests on, written so that `dsa.kernel` can check it without trusting us.

Takes a machine, its canonical text, and the verdicts of `check` and `prove`; gives a JSON value, and what is left out of it with the reason.
Everything is tried on the kernel while it is written, and what the kernel would refuse is left out. Claims about all values need z3.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa import declarations, kernel
from dsa.checks.certificate_proofs import Prover, explore_claim, guard_claim, require_few_cases
from dsa.checks.observers import COUNT, HISTORY, NOW, OBLIGATION, OPEN
from dsa.checks.proof.induction import Evidence, ExhaustiveEvidence, Fair, Inductive, Lemma, RankEvidence
from dsa.checks.proof.prover import Proof, ProofReport
from dsa.checks.report import CheckReport
from dsa.declarations import Effect, Event
from dsa.errors import UndecidedError
from dsa.expr import Expr, Leaf, Name, Value, negation, show_value, substitute, unparse
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, REST, TABLE
from dsa.machine import Machine, minima
from dsa.system import Location, Promise, System, counter
from dsa.trace import show_values

#: A claim as the kernel reads it.
Claim = dict[str, Any]
#: The lemmas of locations, by the kernel's names for these.
Lemmas = dict[str, list[str]]
#: What the kernel calls a machine in which no reachable configuration is faulty.
FAULTLESS = "no fault"
#: The kernel's names for what observers remember.
_GHOSTS = {HISTORY: ":flag", OBLIGATION: ":flag", NOW: ":flag", OPEN: ":flag", COUNT: ":count"}
#: What the name of a number of outstanding effects begins with, in a system and in the kernel.
_COUNTER, _NUMBER = counter("").name, ":number."
#: The most configurations that the kernel, which is slow, explores again.
MOST_CONFIGURATIONS = 20_000

_ODDS = "odds are not certified"
_NUMBERS_AS_VARIABLES = (
    "its proof counts how often an effect is outstanding, but the kernel allows that effect only once"
)


@attrs.frozen
class CertificateDraft:
    """A certificate, and what it leaves out: texts with reasons."""

    certificate: dict[str, Any]
    left_out: tuple[tuple[str, str], ...]

    @property
    def claims(self) -> int:
        """How many claims it makes."""
        return len(self.certificate["claims"])


def behaviour(machine: Machine) -> Machine:
    """Leave out what `step` never reads: texts, policies, odds, claims. What is left is what a certificate is about."""
    guards = tuple(attrs.evolve(g, kind="", options=(), uses=(), pass_odds=(), fatal_odds=()) for g in machine.guards)
    return attrs.evolve(
        machine,
        guards=guards,
        events=tuple(Event(event.name, event.origin) for event in machine.events),
        effects=tuple(
            Effect(effect.name, at_once=effect.at_once if effect.name in machine.numbered_effects else None)
            for effect in machine.effects
        ),
        generators=(),
        properties=(),
        scenarios=(),
        cases=(),
        prompts=(),
        constraints="",
    )


class Certifier:
    """A certificate in the making, about `behaviour(machine)` with Steps expanded, whose canonical document is `text`; `tell` gets what is certified now."""

    def __init__(self, machine: Machine, text: str, tell: Callable[[str], None] = lambda _: None) -> None:
        self._machine, self._text, self._tell = machine, text, tell
        self._claims: list[Claim] = []
        self._left_out: list[tuple[str, str]] = []
        self._faultless: Lemmas = {}
        self._prover: Prover | None = None

    def hold(self, form: declarations.Form | str, values: Mapping[str, Value], configurations: int = 0) -> bool:
        """Claim something at values of all parameters: a property, or, as a text, one of the kernel's claims about every machine.

        The kernel visits every configuration, so it is not asked where it is known that there are too many `configurations`.
        """

        def write(claim: Claim) -> Claim:
            if configurations > MOST_CONFIGURATIONS:
                raise UndecidedError(f"the kernel would visit more than {MOST_CONFIGURATIONS} configurations")
            return explore_claim(self._text, claim | {"at": self._at(values)}, MOST_CONFIGURATIONS)

        return self._add(form, write, values)

    def fits(self, values: Mapping[str, Value]) -> bool:
        """Return whether the kernel can explore everything at values of all parameters, and finds no fault there."""
        try:
            explore_claim(self._text, {"form": FAULTLESS, "parts": [], "at": self._at(values)}, MOST_CONFIGURATIONS)
        except UndecidedError:
            return False
        return True

    def claim_definition4(self) -> bool:
        """Claim Definition 4 (S9), which needs no evidence: the kernel checks it wherever the rows lead, whatever the values are."""
        return self._add(DEFINITION_4, lambda claim: guard_claim(self._text, claim, MOST_CONFIGURATIONS))

    def same_steps(self, values: Mapping[str, Value]) -> bool:
        """Claim that the generated step is the table at values of all parameters; a verifier compares the two."""

        def write(claim: Claim) -> Claim:
            full_claim = claim | {"at": self._at(values), "proofs": []}
            require_few_cases(self._machine.at(values), kernel.Claim(self._text, full_claim))
            return full_claim

        return self._add(TABLE, write, values)

    def prove(self, form: declarations.Form | str, system: System, evidence: Evidence) -> bool:
        """Claim something for all parameter values; the lemmas that show the machine free of faults go into every such claim."""
        if isinstance(evidence, ExhaustiveEvidence):
            results = [self.hold(form, dict(values)) for values in evidence.valuations]
            return all(results)
        if set(system.counted_effects) != system.machine.numbered_effects:
            self.leave_out(form if isinstance(form, str) else declarations.show(form), _NUMBERS_AS_VARIABLES)
            return False
        keys = [_key(place) for place in system.locations]
        lemmas = _with_numbers(system, keys, _lemmas(keys, form, evidence))
        all_lemmas = {key: [*dict.fromkeys([*self._faultless.get(key, ()), *lemmas.get(key, ())])] for key in keys}
        additions = {"lemmas": all_lemmas}
        if isinstance(evidence, RankEvidence):
            additions["ranks"] = _ranks(keys, evidence)
        if self._prover is None:
            self._prover = Prover(self._text, frozenset(keys))
        prover = self._prover
        is_proved = self._add(form, lambda claim: prover.prove_claim(claim | additions))
        if is_proved and form == FAULTLESS:
            self._faultless = lemmas
        return is_proved

    def leave_out(self, text: str, why: str) -> None:
        """Record that something is not certified."""
        self._left_out.append((text, why))

    def draft(self) -> CertificateDraft:
        """Return what was certified."""
        digest = hashlib.sha256(self._text.encode()).hexdigest()
        return CertificateDraft(
            {"digest": digest, "machine": self._text, "claims": self._claims}, tuple(self._left_out)
        )

    def _at(self, values: Mapping[str, Value]) -> dict[str, str]:
        return {name: show_value(values[name]) for name in self._machine.constants}

    def _add(
        self, form: declarations.Form | str, write: Callable[[Claim], Claim], values: Mapping[str, Value] | None = None
    ) -> bool:
        claim, text = kernel_claim(form), form if isinstance(form, str) else declarations.show(form)
        if claim is None:
            self.leave_out(text, reason_without_claim(form))
            return False
        self._tell(f"certifying: {text}")
        try:
            self._claims.append(write(claim))
        except UndecidedError as why:
            self.leave_out(text, f"at {show_values(values.items())}, {why}" if values else str(why))
            return False
        return True


def _key(place: Location) -> str:
    """Return what the kernel calls a location."""
    waits = (f"{' '.join(timer)}>{' '.join(shorter)}" for shorter, timer in place.precedence)
    return " ".join([place.state, *sorted(place.outstanding), *sorted(waits)])


def kernel_claim(form: declarations.Form | str) -> Claim | None:
    """Return a claim as the kernel reads it; None for a form that it does not know, such as the two that speak of odds."""
    match form:
        case str():
            return _claim(form)
        case declarations.Always(p):
            return _claim("always {}", p)
        case declarations.Never(p):
            return _claim("never {}", p)
        case declarations.Possible(p):
            return _claim("possible {}", p)
        case declarations.EverywherePossible(p):
            return _claim("from everywhere possible {}", p)
        case declarations.OnlyAfter(later, earlier):
            return _claim("{} only after {}", later, earlier)
        case declarations.UnchangedClaim(trigger, expressions):
            return {"form": "on {}: {} unchanged", "parts": [unparse(trigger), ", ".join(map(unparse, expressions))]}
        case declarations.LeadsTo(cause, goal, fair, is_weak, doubts):
            assumption = f" assuming {'weakly ' if is_weak else ''}fair {{}}" if fair else ""
            parts = [unparse(cause), unparse(goal), *([", ".join(fair)] if fair else [])]
            parts += [", ".join(map(str, doubts))] if doubts else []
            return {"form": f"{{}} leads to {{}}{assumption}{' even if {}' if doubts else ''}", "parts": parts}
        case declarations.AtMost(bound, counted, None):
            return {"form": "at most {} {}", "parts": [unparse(bound), unparse(counted, alone=True)]}
        case declarations.AtMost(bound, counted, (opens, closes)):
            parts = [
                unparse(bound),
                unparse(counted, alone=True),
                *(unparse(e, is_closed=True) for e in (opens, closes)),
            ]
            return {"form": "at most {} {} between {} and {}", "parts": parts}
    return None


def reason_without_claim(form: declarations.Form | str) -> str:
    """Return why a form that `kernel_claim` does not know is not certified."""
    is_about_odds = isinstance(form, declarations.Probability | declarations.ExpectedCount)
    return _ODDS if is_about_odds else "properties of this form are not certified"


def _claim(form: str, *parts: Expr) -> Claim:
    return {"form": form, "parts": [unparse(part) for part in parts]}


def _lemmas(keys: Sequence[str], form: declarations.Form | str, evidence: Inductive | RankEvidence) -> Lemmas:
    """Return the lemmas by location; the kernel needs a bound at every moment, so a bound is a lemma everywhere."""
    lemmas: Lemmas = {key: [] for key in keys}
    for lemma in evidence.lemmas:
        lemmas[keys[lemma.location]].append(_kernel_text(lemma.condition))
    if isinstance(form, declarations.AtMost):
        limit = f":count <= {unparse(form.bound)}"
        for here in lemmas.values():
            here.append(limit if form.between is None else f"not :flag or {limit}")
    return lemmas


def _with_numbers(system: System, keys: Sequence[str], lemmas: Lemmas) -> Lemmas:
    """Add to the lemmas that effects which names alone do not allow at a location are not outstanding there: the system knows it, the kernel does not."""
    absent = (
        [effect for effect in system.counted_effects if effect not in counted_effects]
        for counted_effects in system.counted_at
    )
    pairs = zip(keys, absent, strict=True)
    return {key: [*lemmas[key], *(f"{_NUMBER}{effect} == 0" for effect in effects)] for key, effects in pairs}


def _ranks(keys: Sequence[str], evidence: RankEvidence) -> dict[str, list[list[str]]]:
    promises = evidence.expectations or (None,) * len(keys)
    ranks = zip(keys, evidence.ranks, promises, strict=True)
    return {key: _levels([*map(_kernel_text, parts)], promise) for key, parts, promise in ranks}


def _levels(parts: Sequence[str], promise: Promise | Fair | None) -> list[list[str]]:
    levels = [[part, ""] for part in parts]
    if isinstance(promise, Fair):
        return [*levels, ["0", f"fair {promise.name}"]]
    if promise is not None:
        return [*levels, ["0", promise if isinstance(promise, str) else " ".join(promise)]]
    return levels or [["0", ""]]


def _kernel_text(expr: Expr) -> str:
    def leaf(node: Leaf) -> Expr:
        if not isinstance(node, Name):
            return node
        ghost = Name(_GHOSTS.get(node.name, node.name), node.kind)
        if node.kind == "variable" and node.name.startswith(_COUNTER):
            ghost = Name(_NUMBER + node.name.removeprefix(_COUNTER), node.kind)
        return negation(ghost) if node.name == NOW else ghost

    return unparse(substitute(expr, leaf))


#: The obligations that make up one claim: that no fault is reachable.
_FAULTLESS = ("start", "determinism", "completeness", "domains", "emission")


def certify_proofs(certifier: Certifier, report: ProofReport) -> None:
    """Claim all that was proved for all parameter values; without parameters, all values are one exploration."""
    obligations = {proof.name: proof for proof in report.obligations}
    faultless = [obligations[name] for name in _FAULTLESS]
    failure = next((proof for proof in faultless if proof.evidence is None), None)
    if failure is None:
        _certify_evidence(certifier, report, [proof.evidence for proof in faultless if proof.evidence is not None])
    else:
        for _, proof in _other_claims(report):
            certifier.leave_out(proof.text, f"it rests on an obligation that is {failure.verdict}: {failure.text}")
    if obligations["definition4"].verdict == "PROVED":
        certifier.claim_definition4()
    for proof in (*report.obligations, *report.properties):
        if proof.verdict != "PROVED":
            certifier.leave_out(proof.text, f"it is {proof.verdict}" if proof.is_asked else _ODDS)
    for values in compared_at(report.machine):
        certifier.same_steps(values)


def _certify_evidence(certifier: Certifier, report: ProofReport, faultless: Sequence[Evidence]) -> None:
    """Claim what has evidence; where the whole machine was explored, an exploration shows everything else too."""
    explorable = not report.machine.parameters and certifier.fits({})
    together = ExhaustiveEvidence(((),), 0) if explorable else _together(faultless)
    is_faultless = certifier.prove(FAULTLESS, report.system, together)
    for form, proof in _other_claims(report):
        evidence = together if isinstance(together, ExhaustiveEvidence) else proof.evidence
        if not is_faultless:
            certifier.leave_out(proof.text, f"it rests on the claim '{FAULTLESS}', which is not certified")
        elif evidence is not None:
            certifier.prove(form, report.system, evidence)


def _other_claims(report: ProofReport) -> list[tuple[declarations.Form | str, Proof]]:
    """Return what was proved beyond the machine being free of faults, as forms."""
    deadlock = next(proof for proof in report.obligations if proof.name == "deadlock")
    forms = [(NO_DEADLOCK, deadlock), (REST, report.rest), *((proof.form, proof) for proof in report.properties)]
    return [(form, proof) for form, proof in forms if form and proof and proof.evidence is not None]


def _together(evidence: Iterable[Evidence]) -> Evidence:
    """Return evidence for all claims at once: an exploration of all values, or the lemmas of all of them."""
    lemmas: dict[Lemma, None] = {}
    for each in evidence:
        if isinstance(each, ExhaustiveEvidence):
            return each
        lemmas |= dict.fromkeys(each.lemmas)
    return Inductive(tuple(lemmas))


def certify_verdicts(certifier: Certifier, report: CheckReport) -> None:
    """Claim what every machine owes, and every property that holds, at the parameter values that a check explored."""
    sizes = {tuple(each.parameters.items()): each.configurations for each in report.explorations}
    for values, size in sizes.items():
        certifier.hold(FAULTLESS, dict(values), size)
        certifier.hold(NO_DEADLOCK, dict(values), size)
    certifier.claim_definition4()
    for result in report.properties:
        if result.verdict == "HOLDS" and result.claim is not None:
            for values in result.values:
                certifier.hold(result.claim.form, dict(values), sizes[values])
        else:
            certifier.leave_out(result.text, f"it is {result.verdict}")
    for exploration in report.explorations:
        certifier.same_steps(exploration.parameters)


def compared_at(machine: Machine) -> tuple[dict[str, Value], ...]:
    """Return the parameter values at which the generated step is compared: all defaults, and all minima where these are others."""
    smallest = machine.at(minima(machine)).constants
    return (machine.constants,) if smallest == machine.constants else (machine.constants, smallest)
