"""Questions to z3: domains of names, needed conditions, smallest values."""

from dsa.checks.proof.proof_session import ProofSession
from dsa.checks.proof.solver import Logic
from dsa.expr import FALSE, BooleanDomain, EnumDomain, Integer, Name, RangeDomain, any_of, comparison, negation
from dsa.lang import loads
from dsa.machine import smallest_values

RETRIES, RMAX = Name("retries", "variable"), Name("rmax", "parameter")


def test_domains_are_known(session: ProofSession) -> None:
    assert session.logic.ask([comparison(RETRIES, ">", RMAX)]).can_be == "no"
    assert session.logic.ask([comparison(RMAX, "<", Integer(0))]).can_be == "no"
    assert session.logic.ask([comparison(RETRIES, "==", RMAX)]).can_be == "yes"


def test_values_found_make_the_conditions_true(session: ProofSession) -> None:
    answer = session.logic.ask([comparison(RETRIES, ">", Integer(6)), negation(Name("satisfied", "variable"))])
    assert answer.values["satisfied"] is False
    assert 6 < int(answer.values["retries"]) <= int(answer.values["rmax"])


def test_needed_conditions_are_reported(session: ProofSession) -> None:
    conditions = [
        negation(Name("satisfied", "variable")),
        comparison(RETRIES, "<", Integer(3)),
        comparison(RETRIES, ">", Integer(4)),
    ]
    answer = session.logic.ask(conditions, track=True)
    assert (answer.can_be, answer.core) == ("no", {1, 2})
    assert session.logic.ask([*conditions, FALSE], track=True).core == {3}


def test_small_values_come_first(session: ProofSession) -> None:
    answer = session.logic.smallest(
        [comparison(RMAX, ">", Integer(2)), comparison(RETRIES, "!=", Integer(0))], ["rmax"]
    )
    assert dict(answer.values) == {"rmax": 3, "retries": 1}


def test_values_of_enumerations_are_distinguished() -> None:
    machine = loads(
        "# m\n## Variables\n| variable | domain | initial |\n| - | - | - |\n| lamp | {on, off} | off |\n| next | {off, broken} | off |\n\n"
        "## Transitions\n| source | event | if | target |\n| - | - | - | - |\n| here | go | lamp == next | here |\n"
    )
    logic = ProofSession(machine, lambda: False).logic
    lamp, following = Name("lamp", "variable"), Name("next", "variable")
    assert logic.ask([comparison(lamp, "==", following)]).values == {"lamp": "off", "next": "off"}
    assert logic.ask([comparison(lamp, "!=", following), any_of([])]).can_be == "no"


def test_question_too_hard_for_z3_is_unknown_not_no(session: ProofSession) -> None:
    cube = "rmax * rmax * rmax"
    machine = loads(
        "# m\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| rmax | 2.. | 2 |\n| b | 2.. | 2 |\n| c | 2.. | 2 |\n\n"
        f"## Transitions\n| source | event | if | target |\n| - | - | - | - |\n| here | go | {cube} + b * b * b == c * c * c | here |\n"
    )
    logic = ProofSession(machine, lambda: False).logic
    assert logic.ask([machine.transitions[0].condition]).can_be == "unknown"


def test_nothing_is_asked_after_the_time_limit(session: ProofSession) -> None:
    late = Logic(session.system, lambda: True)
    assert late.ask([comparison(RETRIES, ">", RMAX)]).can_be == "unknown"
    assert late.smallest([comparison(RETRIES, "<", RMAX)], ["rmax"]).can_be == "unknown"
    assert late.question_count == 0


def test_first_values_of_domains_are_listed() -> None:
    assert smallest_values(RangeDomain(Integer(2), None), 3) == (2, 3, 4)
    assert smallest_values(RangeDomain(Integer(2), Integer(3)), 3) == (2, 3)
    assert smallest_values(BooleanDomain(), 4) == (False, True)
    assert smallest_values(EnumDomain(("a", "b", "c")), 2) == ("a", "b")
