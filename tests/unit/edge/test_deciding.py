"""Decisions of a person about effects in doubt."""

import pytest
from stored_runs import begun

from dsa.errors import DsaError, OccurrenceError
from dsa.runs.runs import record_decisions, require_decidable
from dsa.runtime.ledger import DecidedEntry, ResultEntry
from dsa.runtime.run import replay
from dsa.runtime.status import status_of, unfinished_work
from dsa.semantics import Occurrence

PAY, LOG = "1/2", "1/1"


@pytest.fixture
def doubted():
    """Return a run that was cut off while it paid."""
    run, _ = begun().feed(Occurrence("order"))
    return run.record(ResultEntry(LOG))


def decide(run, decided=None, answers=None):
    require_decidable(run.machine, unfinished_work(run), decided or {}, answers or {})


@pytest.mark.parametrize(("decided", "answers", "fault", "said"), [
    ({"x": "retry"}, {}, DsaError, f"x is not in doubt; the effects and calls in doubt are: {PAY}"),
    ({LOG: "retry"}, {}, DsaError, f"{LOG} is not in doubt"),
    ({PAY: "done"}, {}, DsaError, r"pay ends with an answer.*\(paid, declined\)"),
    ({PAY: "retry"}, {PAY: Occurrence("paid")}, DsaError, "decided twice"),
    ({}, {LOG: Occurrence("paid")}, DsaError, "is not in doubt"),
    ({}, {PAY: Occurrence("order")}, OccurrenceError, "'order' is not an answer of pay; its answers: paid, declined"),
    ({}, {PAY: Occurrence("pay.failed")}, OccurrenceError, "is not an answer of pay"),
    ({}, {PAY: Occurrence("paid", {"g": "passed"})}, OccurrenceError, "has no guard 'g'"),
])  # fmt: skip
def test_invalid_decision_is_refused(doubted, decided, answers, fault, said):
    with pytest.raises(fault, match=said):
        decide(doubted, decided, answers)


def test_valid_decisions_are_accepted(doubted):
    for handling in ("retry", "fail"):
        decide(doubted, {PAY: handling})
    decide(doubted, {}, {PAY: Occurrence("declined", data={"why": "no money"})})


def test_effect_without_answers_can_be_marked_done_but_not_answered(doubted):
    run = doubted.record(ResultEntry(PAY)).feed(Occurrence("paid"), PAY)[0]
    mail = "2/1"
    decide(run, {mail: "done"})
    with pytest.raises(OccurrenceError, match="it has no answers"):
        decide(run, {}, {mail: Occurrence("paid")})


def test_answer_of_a_person_is_recorded_and_left_to_be_taken(doubted):
    run = record_decisions(doubted, {}, {PAY: Occurrence("paid", data={"n": 1})}, 7)
    assert run.ledger[-1].at_ms == 7
    assert run.ledger[-2] == DecidedEntry(PAY, "done", at_ms=7)
    (step,) = run.ledger[-1].steps
    assert (step["payload"]["event"], step["payload"]["data"]) == ("paid", {"n": 1})
    assert [intent.key for intent, _ in status_of(run).left.answers] == [PAY]
    assert replay(run.machine, run.ledger) == run
    assert record_decisions(doubted, {}, {}, 7) is doubted
