"""A property of a random machine that is PROVED holds at every parameter value explored; one that is VIOLATED is violated where the report says so."""

import time

import attrs
import pytest
from crowds import crowded_machines
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.checks.observers import observer_of
from dsa.checks.proof.liveness import ObligationProof, ReachabilityProof
from dsa.checks.proof.proof_session import ProofSession
from dsa.checks.proof.prover import Proof, ProofReport, _Prover, judge_at, prove
from dsa.checks.search.exploration import explore
from dsa.declarations import EverywherePossible, LeadsTo, Possible
from dsa.expr import Interval, Value, concrete
from dsa.machine import Machine, every_valuation
from dsa.system import closed_system
from dsa.testing import strategies
from dsa.testing.strategies import skeletons

LIMIT_S = 2  # what is not proved in time is UNKNOWN
FULL_LIMIT_S = 20

REASONS = {
    "determinism": "ambiguous",
    "domains": "out_of_domain",
    "emission": "emitted_twice",
    "completeness": "invalid_state",
}


@st.composite
def claimed_machines(draw: st.DrawFn, least: int = 4) -> Machine:
    """Draw a machine with many properties."""
    skeleton = draw(skeletons())
    rows = tuple(strategies.drawn_row(draw, skeleton) for _ in range(draw(st.integers(1, 10))))
    claims = tuple(strategies.claim(draw, skeleton) for _ in range(least))
    return attrs.evolve(skeleton.machine, transitions=rows, properties=claims)


def most_states() -> int:
    """Return how many states are explored at most at each valuation: beyond them the verdict is UNKNOWN."""
    return sample_size(5_000, full=20_000)


def some_valuations(machine: Machine) -> list[dict[str, Value]]:
    """Return values of the parameters: all when they are few, else those near the bounds."""
    most = sample_size(12, full=40)
    few = every_valuation(machine, most)
    if few is not None:
        return list(few)
    found: list[dict[str, Value]] = [{}]
    for parameter in machine.parameters:
        domain = concrete(parameter.domain, {})
        values: list[Value] = (
            [v for v in range(domain.low, domain.low + 7) if domain.contains(v)]
            if isinstance(domain, Interval)
            else list(domain.values)
        )
        found = [given | {parameter.name: value} for given in found for value in values]
    return found[:: max(1, len(found) // most)]


def check_report(machine: Machine) -> ProofReport:
    limit_s = sample_size(LIMIT_S, full=FULL_LIMIT_S)
    report = prove(machine, time_limit_s=limit_s, clock=time.perf_counter)
    # A proof must be right even if it is not reported because an obligation is open.
    proving = _Prover(machine, limit_s, time.perf_counter, lambda _claim: None)
    claims = tuple(proving._property(claim) for claim in machine.properties)  # noqa: SLF001  (what is not shown)
    report = attrs.evolve(report, properties=claims)
    for values in some_valuations(machine):
        there = machine.at(values)
        check_obligations(report, there)
        check_properties(report, there)
    for proof in report.properties:
        if proof.verdict == "VIOLATED":
            there = machine.at(dict(proof.values))
            assert judge_at(closed_system(there), proof.form, 200_000).verdict == "VIOLATED"
    return report


def check_ranks(machine: Machine) -> None:
    """Ranks and strategies are right also where few values are explored instead."""
    end = time.perf_counter() + sample_size(LIMIT_S, full=FULL_LIMIT_S)
    session = ProofSession(machine, lambda: time.perf_counter() > end)
    for claim in machine.properties:
        form = claim.form
        if isinstance(form, LeadsTo):
            if form.doubtful_effects("fails"):  # ranks know nothing of failures: `prove` looks for none here
                continue
            evidence = ObligationProof(session, form, observer_of(session.system, form)).evidence()
        elif isinstance(form, Possible | EverywherePossible):
            found = observer_of(session.system, EverywherePossible(form.condition))
            evidence = ReachabilityProof(session, found, everywhere=isinstance(form, EverywherePossible)).evidence()
        else:
            continue
        event(f"{type(form).__name__} ranked: {evidence is not None}")
        for values in some_valuations(machine) if evidence else []:
            system = closed_system(machine.at(values))
            assert judge_at(system, form, most_states()).verdict in {"HOLDS", "UNKNOWN"}, (form, values)


def check_obligations(report: ProofReport, there: Machine) -> None:
    verdicts = {proof.name: proof.verdict for proof in report.obligations}
    inside = all(
        there.values_of[v.name].contains(x) for v, x in zip(there.variables, there.initial_values, strict=True)
    )
    assert inside or verdicts["start"] != "PROVED"
    if not inside:
        return
    exploration = explore(there, max_states=most_states())
    outside = {e.name for e in there.events if e.origin == "outside"}
    for witness in exploration.refusals:
        reason = witness.refusal.reason
        for name, refused in REASONS.items():
            if reason == refused and (name != "completeness" or witness.occurrence.event not in outside):
                assert verdicts[name] != "PROVED", (name, witness)
    assert not exploration.deadlocks or verdicts["deadlock"] != "PROVED"


def check_properties(report: ProofReport, there: Machine) -> None:
    proved = [proof.form for proof in report.properties if proof.verdict == "PROVED" and proof.form is not None]
    for form in proved:
        found = judge_at(closed_system(there), form, most_states())
        assert found.verdict in {"HOLDS", "UNKNOWN"}, (form, there.constants, found)


def tell(proof: Proof) -> None:
    kind = type(proof.form).__name__ if proof.form else proof.name
    by = type(proof.evidence).__name__ if proof.evidence else ""
    event(f"{kind} {proof.verdict} {by}")


@settings(max_examples=sample_size(8, full=40), deadline=None)
@given(claimed_machines() | crowded_machines(claims=4))
def test_proved_property_holds(machine: Machine) -> None:
    report = check_report(machine)
    check_ranks(machine)
    for proof in (*report.obligations, *report.properties):
        tell(proof)


@pytest.mark.full
@settings(max_examples=600, deadline=None)
@given(claimed_machines() | crowded_machines(claims=4))
def test_proved_property_of_many_machines_holds(machine: Machine) -> None:
    check_report(machine)
    check_ranks(machine)
