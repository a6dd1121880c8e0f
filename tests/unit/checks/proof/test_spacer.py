"""Spacer: its invariants become lemmas that plain induction accepts."""

from dsa.checks.observers import observer_of
from dsa.checks.proof.induction import unseen, whole
from dsa.checks.proof.proof_session import ProofSession
from dsa.checks.proof.safety import SPACER_EFFORT, invariants
from dsa.declarations import Always, Never
from dsa.expr import And, Integer, Name, comparison, negation

RETRIES, SATISFIED = Name("retries", "variable"), Name("satisfied", "variable")


def test_invariant_is_found_and_inductive(session: ProofSession) -> None:
    found = observer_of(session.system, Never(And((Name("succeeded", "state"), negation(SATISFIED)))))
    guessed = invariants(session.logic, found, SPACER_EFFORT)
    assert guessed
    kept = session.inductive(whole(session.system), guessed, {})
    assert all(unseen(session.logic, kept, sight).can_be == "no" for sight in found.sights)


def test_nothing_is_found_for_a_false_claim(session: ProofSession) -> None:
    found = observer_of(session.system, Always(comparison(RETRIES, "<", Integer(2))))
    assert invariants(session.logic, found, SPACER_EFFORT) == {}


def test_search_ends_with_its_effort(session: ProofSession) -> None:
    found = observer_of(session.system, Never(And((Name("succeeded", "state"), negation(SATISFIED)))))
    assert invariants(session.logic, found, 100) == {}
