"""Certificates: what a verdict rests on, written so that `dsa.kernel` accepts it without believing us.

Takes a machine, its canonical text, and the verdicts that `check` and `prove` gave; gives a JSON value, and what is left out of it with
the reason. Everything is tried on the kernel while it is written: what the kernel would refuse is left out. Needs z3 for claims about
all values.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa.checks.certify_proofs import NoProofError, proved
from dsa.checks.certify_ranks import Reached, explored, reached
from dsa.checks.evidence import Evidence, Explored, Fair, Inductive, Lemma, Ranked
from dsa.checks.observers import COUNT, NOW, OPEN, SEEN, WAITING
from dsa.checks.prove import ProofReport
from dsa.checks.report import Report
from dsa.claims import (
    Always,
    AtMost,
    EverywherePossible,
    Form,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Unchanged,
    show,
)
from dsa.declarations import Effect
from dsa.expr import Expr, Name, Value, show_value, unparse
from dsa.machine import Machine
from dsa.simplify import Leaf, substituted
from dsa.system import Promise, System

#: A claim as the kernel reads it, and what it says.
Claim = dict[str, Any]
#: What the kernel calls what observers remember.
_GHOSTS = {SEEN: ":flag", WAITING: ":flag", NOW: ":flag", OPEN: ":flag", COUNT: ":count"}
#: Configurations beyond so many are not explored again by the kernel, which is slow.
MOST_CONFIGURATIONS = 20_000


@attrs.frozen
class Certified:
    """A certificate, and what it does not say: texts with reasons."""

    certificate: dict[str, Any]
    left_out: tuple[tuple[str, str], ...]

    @property
    def claims(self) -> int:
        """How many claims it makes."""
        return len(self.certificate["claims"])


def behaviour(machine: Machine) -> Machine:
    """Leave out what `step` never reads: texts, policies, odds, claims. What is left is what a certificate is about."""
    guards = tuple(attrs.evolve(g, kind="", options=(), pass_odds=(), fatal_odds=()) for g in machine.guards)
    return attrs.evolve(
        machine,
        guards=guards,
        effects=tuple(Effect(effect.name) for effect in machine.effects),
        generators=(),
        properties=(),
        scenarios=(),
        cases=(),
        prompts=(),
        constraints="",
    )


class Certifier:
    """A certificate in the making, about `behaviour(machine)` with Steps expanded, whose canonical document is `text`."""

    def __init__(self, machine: Machine, text: str) -> None:
        self._machine, self._text = machine, text
        self._claims: list[Claim] = []
        self._left_out: list[tuple[str, str]] = []
        self._sound: dict[str, list[str]] | None = None
        self._reached: dict[tuple[tuple[str, Value], ...], Reached] = {}

    def hold(self, form: Form | None, values: Mapping[str, Value]) -> None:
        """Claim a property at values of all parameters; without a property, that no fault is reachable there."""
        at = {name: show_value(values[name]) for name in self._machine.constants}

        def write(claim: Claim) -> Claim:
            return explored(self._text, claim | {"at": at}, self._found(values), MOST_CONFIGURATIONS)

        self._add(form, write)

    def fits(self, values: Mapping[str, Value]) -> bool:
        """Tell whether the kernel can explore everything at values of all parameters."""
        try:
            self._found(values)
        except NoProofError:
            return False
        return True

    def _found(self, values: Mapping[str, Value]) -> Reached:
        key = tuple(values.items())
        if key not in self._reached:
            self._reached[key] = reached(self._machine.at(values), MOST_CONFIGURATIONS)
        return self._reached[key]

    def prove(self, form: Form | None, system: System, evidence: Evidence) -> None:
        """Claim a property for all parameter values; without one, that no fault is reachable, which the others rest on."""
        if isinstance(evidence, Explored):
            for values in evidence.valuations:
                self.hold(form, dict(values))
            return
        given = _evidence(system, evidence)
        if (
            self._add(form, lambda claim: proved(self._text, claim | given, None if form is None else self._sound))
            and form is None
        ):
            self._sound = given["lemmas"]

    def leave_out(self, said: str, why: str) -> None:
        """Say that something is not certified."""
        self._left_out.append((said, why))

    def certified(self) -> Certified:
        """Give what was certified."""
        digest = hashlib.sha256(self._text.encode()).hexdigest()
        return Certified({"digest": digest, "machine": self._text, "claims": self._claims}, tuple(self._left_out))

    def _add(self, form: Form | None, write: Callable[[Claim], Claim]) -> bool:
        said = "no fault" if form is None else show(form)
        claim = {"form": "no fault", "parts": []} if form is None else spelled(form)
        if claim is None:
            self.leave_out(said, "odds are not certified")
            return False
        try:
            self._claims.append(write(claim))
        except NoProofError as why:
            self.leave_out(said, str(why))
            return False
        return True


def spelled(form: Form) -> Claim | None:
    """Give a property as the kernel reads it; None for the two forms that speak of odds."""
    match form:
        case Always(p):
            return _claim("always {}", p)
        case Never(p):
            return _claim("never {}", p)
        case Possible(p):
            return _claim("possible {}", p)
        case EverywherePossible(p):
            return _claim("from everywhere possible {}", p)
        case OnlyAfter(later, earlier):
            return _claim("{} only after {}", later, earlier)
        case Unchanged(trigger, expressions):
            return {"form": "on {}: {} unchanged", "parts": [unparse(trigger), ", ".join(map(unparse, expressions))]}
        case LeadsTo(cause, goal, ()):
            return _claim("{} leads to {}", cause, goal)
        case LeadsTo(cause, goal, fair):
            parts = [unparse(cause), unparse(goal), ", ".join(fair)]
            return {"form": "{} leads to {} assuming fair {}", "parts": parts}
        case AtMost(bound, counted, None):
            return {"form": "at most {} {}", "parts": [unparse(bound), unparse(counted, alone=True)]}
        case AtMost(bound, counted, (opens, closes)):
            parts = [unparse(bound), unparse(counted, alone=True), *(unparse(e, closed=True) for e in (opens, closes))]
            return {"form": "at most {} {} between {} and {}", "parts": parts}
    return None


def _claim(form: str, *parts: Expr) -> Claim:
    return {"form": form, "parts": [unparse(part) for part in parts]}


def _evidence(system: System, evidence: Inductive | Ranked) -> dict[str, Any]:
    """Write evidence down by the kernel's names of locations."""
    keys = [" ".join([place.state, *sorted(place.outstanding)]) for place in system.locations]
    lemmas: dict[str, list[str]] = {}
    for lemma in evidence.lemmas:
        lemmas.setdefault(keys[lemma.location], []).append(_spoken(lemma.condition))
    if isinstance(evidence, Inductive):
        return {"lemmas": lemmas}
    awaited = evidence.awaited or (None,) * len(keys)
    ranks = {
        key: _levels([*map(_spoken, parts)], promise)
        for key, parts, promise in zip(keys, evidence.ranks, awaited, strict=True)
    }
    return {"lemmas": lemmas, "ranks": ranks}


def _levels(parts: Sequence[str], awaited: Promise | Fair | None) -> list[list[str]]:
    levels = [[part, ""] for part in parts]
    if isinstance(awaited, Fair):
        return [*levels, ["0", f"fair {awaited.name}"]]
    if awaited is not None:
        return [*levels, ["0", awaited if isinstance(awaited, str) else " ".join(awaited)]]
    return levels or [["0", ""]]


def _spoken(expr: Expr) -> str:
    def leaf(node: Leaf) -> Expr:
        return Name(_GHOSTS.get(node.name, node.name), node.kind) if isinstance(node, Name) else node

    return unparse(substituted(expr, leaf))


#: What every machine owes, as far as it is certified: together these say that no fault is reachable.
_FAULTLESS = ("start", "determinism", "completeness", "domains", "emission")


def certify_proofs(certifier: Certifier, report: ProofReport) -> None:
    """Claim all that was proved for all parameter values; without parameters, all values are one exploration."""
    alone = None if report.machine.parameters or not certifier.fits({}) else Explored(((),), 0)
    owed = [proof for proof in report.obligations if proof.name in _FAULTLESS]
    others = [proof for proof in report.obligations if proof.name not in _FAULTLESS]
    others += [] if report.rest is None else [report.rest]
    if all(proof.evidence is not None for proof in owed):
        evidence = alone or _together(proof.evidence for proof in owed if proof.evidence is not None)
        certifier.prove(None, report.system, evidence)
    for proof in others:
        certifier.leave_out(proof.text, "the kernel has no such claim")
    for proof in report.properties:
        if proof.verdict == "PROVED" and proof.form is not None and proof.evidence is not None:
            certifier.prove(proof.form, report.system, alone or proof.evidence)
        else:
            certifier.leave_out(proof.text, f"it is {proof.verdict}")


def _together(evidence: Iterable[Evidence]) -> Evidence:
    """Give evidence for all claims at once: an exploration of all values, or the lemmas of all of them."""
    lemmas: dict[Lemma, None] = {}
    for each in evidence:
        if isinstance(each, Explored):
            return each
        lemmas |= dict.fromkeys(each.lemmas)
    return Inductive(tuple(lemmas))


def certify_verdicts(certifier: Certifier, report: Report) -> None:
    """Claim all that holds at the parameter values that a check explored."""
    for exploration in report.explorations:
        certifier.hold(None, exploration.parameters)
    for result in report.properties:
        if result.verdict == "HOLDS" and result.claim is not None:
            for values in result.values:
                certifier.hold(result.claim.form, dict(values))
        else:
            certifier.leave_out(result.text, f"it is {result.verdict}")
