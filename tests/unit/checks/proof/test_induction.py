"""Induction: inductive conditions stay, others are dropped, and a claim gets the few lemmas that it needs."""

from dsa.checks.proof.induction import Induction, Lemma, Needs, Slicer, whole
from dsa.checks.proof.proof_session import ProofSession
from dsa.expr import Expr, Integer, Name, comparison, negation, unparse

RETRIES, RMAX, SATISFIED = Name("retries", "variable"), Name("rmax", "parameter"), Name("satisfied", "variable")


def places(session: ProofSession) -> dict[str, int]:
    return {location.state: place for place, location in enumerate(session.system.locations)}


def inductive_conditions(session: ProofSession, guessed: dict[int, list[Expr]]) -> dict[int, set[str]]:
    found = Induction(whole(session.system), session.logic, {}).largest(guessed)
    assert found is not None
    return {place: set(map(unparse, here)) for place, here in found.items()}


def test_condition_that_a_command_breaks_is_dropped_with_its_dependents(session: ProofSession) -> None:
    at = places(session)
    guessed: dict[int, list[Expr]] = {
        at["idle"]: [comparison(RETRIES, "==", Integer(0))],
        at["generating"]: [comparison(RETRIES, "<=", Integer(2)), negation(SATISFIED)],
        at["validating"]: [comparison(RETRIES, "<=", Integer(2)), negation(SATISFIED)],
    }
    # A retry exceeds 2; and nothing says here that satisfied is false at the start, so that is dropped too.
    assert inductive_conditions(session, guessed) == {at["idle"]: {"retries == 0"}}


def test_unsatisfied_holds_only_if_known_at_the_start(session: ProofSession) -> None:
    at = places(session)
    working = {at[state]: [negation(SATISFIED)] for state in ("idle", "generating", "validating")}
    assert set(inductive_conditions(session, working)) == set(working)
    assert inductive_conditions(session, {at["generating"]: [negation(SATISFIED)]}) == {}


def test_condition_false_at_the_start_is_dropped(session: ProofSession) -> None:
    assert inductive_conditions(session, {0: [comparison(RETRIES, ">", Integer(0))]}) == {}


def test_no_time_gives_no_result(session: ProofSession) -> None:
    assert Induction(whole(session.system), session.logic, {}, lambda: True).largest({}) is None


def test_claim_gets_exactly_the_lemmas_that_it_needs(session: ProofSession) -> None:
    at = places(session)
    needs = Needs(Slicer(whole(session.system), session.logic, session.lemmas))
    assert needs.impossible(at["succeeded"], [negation(SATISFIED)])
    assert needs.lemmas() == (Lemma(at["succeeded"], SATISFIED),)
    assert not needs.impossible(at["failed"], [comparison(RETRIES, "==", RMAX)])
    assert needs.impossible(at["generating"], [SATISFIED])
    lemmas = needs.lemmas()
    assert lemmas is not None
    assert {session.system.locations[lemma.location].state for lemma in lemmas} == {
        "succeeded",
        "idle",
        "generating",
        "validating",
    }
