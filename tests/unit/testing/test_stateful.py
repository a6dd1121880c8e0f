"""Hypothesis walks: correct implementations pass and are covered, wrong ones are found, and counterexamples read as rows."""

import re
import time

import pytest
from agents import BREACH, NO_RESET, OFF_BY_ONE, Adapted, adapted
from hypothesis import Phase, settings
from repository import shipped_machines

from dsa.edge.document_files import load
from dsa.lang import loads
from dsa.testing import (
    DisagreementError,
    RefusedAction,
    SteppedMachine,
    graph_of,
    play,
    run_walks,
    state_machine_test,
    tour,
)
from dsa.testing.lockstep import DEFAULT

MACHINE = load("dual_state").at(rmax=2)
SHIPPED = shipped_machines()
STEADY = settings(DEFAULT, derandomize=True, database=None, phases=[p for p in Phase if p is not Phase.explain])

TestTheHandWrittenAgent = state_machine_test(MACHINE, Adapted, settings=settings(STEADY, max_examples=30)).TestCase


def failing(machine, make, count=200):
    """Walk until a disagreement, and return it."""
    with pytest.raises(DisagreementError) as raised:
        run_walks(state_machine_test(machine, make, settings=settings(STEADY, max_examples=count)))
    return raised.value


@pytest.mark.parametrize(
    ("fault", "rmax", "steps"),
    [
        pytest.param(OFF_BY_ONE, 1, 5, marks=pytest.mark.full),
        (NO_RESET, 2, 5),
        pytest.param(BREACH, 2, 5, marks=pytest.mark.full),
    ],
)
def test_mutant_is_found_and_shrunk_to_rows(fault, rmax, steps, monkeypatch):
    monkeypatch.setattr("dsa.testing.lockstep.LONGEST_S", 600.0)  # on a busy machine, too, it is shrunk to its end
    error = failing(MACHINE.at(rmax=rmax), adapted(fault))
    assert error.step == steps
    program = [note for note in error.__notes__ if note.startswith("state.") and "teardown" not in note]
    assert len(program) == steps
    assert program[0] == "state.happens(row='line 46: idle, specification -> generating')"
    assert all(re.fullmatch(r"state\.happens\(row='line \d+: \w+, .* -> \w+'\)", line) for line in program)


def test_fault_is_found_by_the_first_tests_before_any_walk():
    machine, begun = MACHINE.at(rmax=1), []

    def make():
        begun.append(adapted(OFF_BY_ONE)())
        return begun[-1]

    first = tour(machine)
    with pytest.raises(DisagreementError) as alone:
        play(machine, adapted(OFF_BY_ONE), first)
    with pytest.raises(DisagreementError) as raised:
        run_walks(state_machine_test(machine, make, first=first, settings=STEADY))
    assert str(raised.value) == str(alone.value)
    assert len(begun) <= len(first)


class Slow(Adapted):
    """Slow, like an implementation behind a network."""

    def feed(self, occurrence):
        time.sleep(0.005)
        return super().feed(occurrence)


class SlowAndWrong(Slow):
    """Tries once too often. The fault is found after 262 steps, and shrunk in 9,000."""

    fault = OFF_BY_ONE


def test_walks_of_a_slow_implementation_end(monkeypatch):
    """5,000 steps of 5 ms would take half a minute: the implementation is called only while there is time, and all rows are taken in the end."""
    monkeypatch.setattr("dsa.testing.lockstep.LONGEST_S", 1.0)
    began = time.monotonic()
    with pytest.warns(UserWarning, match="the walks were stopped after 1 s: [0-9]+ of them were not made"):
        coverage = run_walks(state_machine_test(MACHINE, Slow, settings=settings(STEADY, max_examples=100)))
    assert coverage.rows == graph_of(MACHINE).rows
    assert time.monotonic() - began < 20


def test_slow_counterexample_is_shrunk_within_the_time_limit(monkeypatch):
    monkeypatch.setattr("dsa.testing.lockstep.LONGEST_S", 3.0)
    began = time.monotonic()
    error = failing(MACHINE.at(rmax=1), SlowAndWrong)
    assert error.step >= 5
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("limit_s", [0.0, 0.05, 0.3])
def test_counterexample_is_reported_whenever_the_time_to_shrink_it_ends(monkeypatch, limit_s):
    """Hypothesis would call the test flaky if a walk that has failed went on when the same choices are made again."""

    def failed(patience):
        if not patience.has_failed:
            patience.has_failed, patience.ends = True, time.monotonic() + limit_s

    monkeypatch.setattr("dsa.testing.lockstep.TimeBudget.record_failure", failed)
    assert failing(MACHINE.at(rmax=1), SlowAndWrong).step >= 5


@pytest.mark.parametrize("name", ["dual_state", "workflow", "examples/two_phase_commit"])
def test_our_engine_passes_and_every_row_is_taken(name):
    machine = SHIPPED[name]
    test = state_machine_test(machine, lambda: SteppedMachine(machine), settings=settings(STEADY, max_examples=12))
    coverage = run_walks(test)
    assert coverage.rows == graph_of(machine).rows
    assert coverage is test.plan.coverage


def test_aimed_walks_take_more_rows(monkeypatch):
    """Without an aim, random walks hardly leave the first step of a workflow of 25 rows."""
    monkeypatch.setattr("dsa.testing.lockstep.row_tour", lambda *_, **__: ())

    def rows_met():
        machine = SHIPPED["workflow"]
        chosen = settings(STEADY, max_examples=12)
        return len(
            run_walks(
                state_machine_test(machine, lambda: SteppedMachine(machine), settings=chosen, require_rows=0)
            ).rows
        )

    aiming = rows_met()
    monkeypatch.setattr("dsa.testing.lockstep.Walk._is_aim", lambda _, row: row is None)
    assert aiming > 2 * rows_met()


def test_too_few_rows_fail(monkeypatch):
    monkeypatch.setattr("dsa.testing.lockstep.row_tour", lambda *_, **__: ())
    machine = SHIPPED["workflow"]
    with pytest.raises(AssertionError, match="100% are required"):
        run_walks(
            state_machine_test(machine, lambda: SteppedMachine(machine), settings=settings(STEADY, max_examples=1))
        )


ORDERS = loads("""# orders
## Events
| event | from |
| - | - |
| buy | outside |
| stop | outside |
| paid | charge |
| shipped | ship |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| shop | buy | charge | paying |
| paying | paid | ship | sending |
| paying | charge.failed | | shop |
| paying | stop | cancel charge | shop |
| sending | shipped | | done |
## States
| state | kind |
| - | - |
| shop | initial |
| paying | |
| sending | |
| done | final |
""")


class TakesTwice(SteppedMachine):
    """Takes the answer `paid` also when it is not awaited any more."""

    def __init__(self):
        super().__init__(ORDERS)

    def feed(self, occurrence, /):
        state = self.view().state
        return ["ship"] if (state, occurrence.event) == self.wrong else super().feed(occurrence)


class ShipsTwice(TakesTwice):
    wrong = ("sending", "paid")


class ShipsAfterAStop(TakesTwice):
    wrong = ("shop", "paid")


class MovesByItself(SteppedMachine):
    """Moves on when it is viewed a second time without an answer."""

    looked = 0

    def __init__(self):
        super().__init__(ORDERS)

    def feed(self, occurrence, /):
        self.looked = 0
        return super().feed(occurrence)

    def view(self):
        self.looked += 1
        if self.looked > 1 and super().view().pending == {"charge"}:
            super().feed(next(o for o in graph_of(ORDERS).alphabet if o.event == "charge.failed"))
        return super().view()


class ForgetsToRefuse(SteppedMachine):
    """Answers every refused event as if it had been taken."""

    def __init__(self):
        super().__init__(ORDERS)

    def feed(self, occurrence, /):
        answer = super().feed(occurrence)
        return () if isinstance(answer, RefusedAction) else answer


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (ShipsTwice, "refused: late, but the implementation says ship"),
        (ShipsAfterAStop, "refused: late, but the implementation says ship"),
        (MovesByItself, "while charge is not answered"),
        (ForgetsToRefuse, "but the implementation says no effects"),
    ],
)
def test_simulated_faults_expose_careless_implementations(make, word):
    assert word in str(failing(ORDERS, make))


class Notices(SteppedMachine):
    """Records the events taken right after a second view without an answer: an answer was lost then."""

    after_a_loss: set[str]
    looked = 0

    def __init__(self):
        super().__init__(ORDERS)

    def feed(self, occurrence, /):
        answer = super().feed(occurrence)
        if self.looked > 1 and not isinstance(answer, RefusedAction):
            self.after_a_loss.add(occurrence.event)
        self.looked = 0
        return answer

    def view(self):
        self.looked += 1
        return super().view()


def test_lost_answer_does_not_come_but_its_failure_may():
    Notices.after_a_loss = set()
    coverage = run_walks(state_machine_test(ORDERS, Notices, settings=settings(STEADY, max_examples=30)))
    assert coverage.rows == set(range(5))
    assert "charge.failed" in Notices.after_a_loss
    assert "paid" not in Notices.after_a_loss
