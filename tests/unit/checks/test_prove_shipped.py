"""The shipped machines are proved for all parameter values, and their mutants are not."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from dsa.checks.mutants import row_mutants
from dsa.checks.proof.induction import Inductive, RankEvidence
from dsa.checks.proof.prover import ProofReport, judge_at, prove
from dsa.edge.document_files import load
from dsa.expr import Value
from dsa.lang import loads, read_spec
from dsa.machine import Machine
from dsa.system import closed_system

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def dual_state() -> ProofReport:
    return prove(load("specs/dual_state"), clock=time.perf_counter)


@pytest.fixture(scope="module")
def workflow() -> ProofReport:
    return prove(load("specs/workflow"))


def test_everything_about_dual_state_is_proved_without_exploring(dual_state: ProofReport) -> None:
    proofs = (*dual_state.obligations, *dual_state.properties)
    assert [(proof.text, proof.how) for proof in proofs if proof.verdict != "PROVED"] == []
    assert dual_state.is_proved
    assert all(isinstance(proof.evidence, Inductive | RankEvidence) for proof in proofs)
    assert all(proof.milliseconds is not None for proof in proofs)


def test_everything_about_the_workflow_is_proved(workflow: ProofReport) -> None:
    assert [(proof.text, proof.how) for proof in workflow.properties if proof.verdict != "PROVED"] == []
    assert workflow.is_proved


def explored_at(report: ProofReport, values: list[dict[str, Value]]) -> None:
    for given in values:
        system = closed_system(report.machine.at(given))
        for proof in report.properties:
            assert proof.form is not None
            assert judge_at(system, proof.form, 100_000).verdict == "HOLDS", (proof.text, given)


def test_proved_properties_of_dual_state_hold_at_rmax_0_to_5(dual_state: ProofReport) -> None:
    explored_at(dual_state, [{"rmax": rmax} for rmax in range(6)])


def test_proved_properties_of_the_workflow_hold_at_some_values(workflow: ProofReport) -> None:
    explored_at(workflow, [{"rmax": 0, "grants": 2}, {"rmax.g_test": 2, "rmax.g_impl": 1, "grants": 1}])


@pytest.mark.full
def test_proved_properties_of_the_workflow_hold_at_rmax_0_to_5(workflow: ProofReport) -> None:
    for rmax in range(6):
        values = [{"rmax.g_test": rmax, "rmax.g_impl": impl, "grants": 1 + impl % 2} for impl in range(6)]
        explored_at(workflow, [{**given} for given in values])


def lost(machines: Iterable[Machine], texts: set[str]) -> set[str]:
    """Return the properties that are neither VIOLATED nor NOT INDUCTIVE in any of the machines."""
    for mutant in machines:
        texts = texts - {p.text for p in prove(mutant).properties if p.verdict in {"VIOLATED", "NOT INDUCTIVE"}}
        if not texts:
            break
    return texts


def rewritten(*changes: tuple[str, str]) -> Machine:
    """Return dual_state, as its spec checks it, with changes to its text."""
    text = (ROOT / "machines" / "dual_state" / "machine.md").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    reading = read_spec((ROOT / "specs" / "dual_state.md").read_text(encoding="utf-8"), loads(text), "dual_state.md")
    assert reading.machine is not None
    return reading.machine


#: Faults that take a whole new update, effect or domain.
BY_HAND = (
    (("| refine_context, reply_failure | failed     |", "| refine_context, reply_failure | escalated  |"),),
    (("| refine_context, query_llm     | generating |", "| advance_state, refine_context, query_llm | generating |"),),
    (("0..rmax | 0 ", "0..rmax + 1 | 0 "), ("retries < rmax", "retries <= rmax")),
    (
        (
            "| validating | verdict       | g.fatal                     |  ",
            "| validating | verdict | g.fatal | retries = 0 ",
        ),
    ),
    (("| query_llm                     | generating |\n| generating", "| execute_guard | validating |\n| generating"),),
    (
        (
            "| generating | artifact      |                             |                   ",
            "| generating | artifact | retries < rmax | retries += 1 | query_llm | generating |\n| generating | artifact | else | ",
        ),
    ),
)


def test_every_property_of_dual_state_is_lost_in_some_mutant() -> None:
    original = load("specs/dual_state")
    every = [*(rewritten(*changes) for changes in BY_HAND), *(m.machine for m in list(row_mutants(original))[1::5])]
    assert lost(every, {proof.text for proof in prove(original).properties}) == set()


@pytest.mark.full
def test_every_property_of_the_workflow_is_unproved_in_some_mutant() -> None:
    original = load("specs/workflow")
    texts = {proof.text for proof in prove(original).properties}
    for mutant in list(row_mutants(original))[::23]:
        texts -= {proof.text for proof in prove(mutant.machine).properties if proof.verdict != "PROVED"}
    assert texts == set()


def test_retry_loops_come_to_rest(dual_state: ProofReport) -> None:
    assert dual_state.rest is not None
    assert dual_state.rest.how == "rank (rmax - retries)"
    assert dual_state.not_at_rest is None


def test_proof_names_the_effects_that_it_relies_on(dual_state: ProofReport) -> None:
    conditions = {proof.text: proof.condition for proof in dual_state.properties if proof.condition}
    assert all("leads to" in text for text in conditions)
    ends = "specification leads to succeeded or failed or escalated"
    assert conditions[ends] == "query_llm, execute_guard answer and do not fail"
