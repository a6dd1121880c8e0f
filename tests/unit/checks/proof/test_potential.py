"""Potentials: they bound counts, and induction checks them like any other condition."""

from dsa.checks.observers import observer_of
from dsa.checks.proof.induction import whole
from dsa.checks.proof.proof_session import ProofSession
from dsa.checks.proof.safety import bound_candidates, terms
from dsa.declarations import AtMost
from dsa.edge.document_files import load
from dsa.expr import Expr, Name, unparse


def claim(machine_name: str, start: str) -> tuple[ProofSession, AtMost]:
    machine = load(machine_name)
    forms = [item.form for item in machine.properties if isinstance(item.form, AtMost)]
    return ProofSession(machine, lambda: False), next(form for form in forms if unparse(form.bound).startswith(start))


def test_terms_have_products_only_if_the_bound_has() -> None:
    session, linear = claim("specs/dual_state", "rmax + 1")
    assert {"1", "rmax - retries", "rmax", "retries"} == set(map(unparse, terms(session, linear.bound)))
    session, product = claim("specs/workflow", "(grants + 1) *")
    assert "(grants - grants_used) * rmax.g_test" in set(map(unparse, terms(session, product.bound)))


def test_bound_with_products_is_inductive_at_every_location() -> None:
    session, form = claim("specs/workflow", "(grants + 1) *")
    guessed = bound_candidates(session, form)
    found = observer_of(session.system, form)
    session.logic.learn(found.system)
    kept = session.inductive(whole(found.system), guessed, session.lemmas)
    assert all(candidate in kept[place] for place, (candidate,) in guessed.items() if place in session.lemmas)
    assert set(guessed) == set(range(len(session.system.locations)))


def test_no_potential_pays_for_more_than_the_bound() -> None:
    session, form = claim("specs/dual_state", "rmax + 1")
    low: Expr = Name("rmax", "parameter")
    assert bound_candidates(session, AtMost(low, form.moment)) == {}
