"""Lockstep: what it compares, how it reports a difference, and that it works for implementations of any kind."""

import asyncio

import pytest
from agents import BREACH, NO_RESET, OFF_BY_ONE, Adapted, adapted
from each_row import each_row

from dsa.edge.document_files import load
from dsa.errors import OccurrenceError
from dsa.lang import loads
from dsa.semantics import Occurrence
from dsa.testing import (
    Coverage,
    DisagreementError,
    Lockstep,
    RefusedAction,
    StatechartMachine,
    SteppedMachine,
    View,
    graph_of,
    play,
    tour,
)
from dsa.testing.explored_graph import forget_listener, listen

MACHINE = load("dual_state").at(rmax=2)
SPECIFICATION, ARTIFACT = Occurrence("specification"), Occurrence("artifact")
PASSED, FAILED, FATAL = (Occurrence("verdict", {"g": said}) for said in ("passed", "failed", "fatal"))


@pytest.mark.parametrize("make", [Adapted, lambda: SteppedMachine(MACHINE), lambda: StatechartMachine(MACHINE)])
def test_correct_implementation_agrees_on_the_whole_tour(make):
    coverage = play(MACHINE, make, tour(MACHINE, refusals=True))
    graph = graph_of(MACHINE)
    coverage.require(1.0, graph)
    assert coverage.report(graph) == "7 tests, 37 steps: rows 6 of 6, states 6 of 6, verdicts 3 of 3"


@pytest.mark.parametrize("fault", [OFF_BY_ONE, NO_RESET, BREACH])
def test_tour_finds_a_faulty_agent(fault):
    with pytest.raises(DisagreementError):
        play(MACHINE, adapted(fault), tour(MACHINE))


def test_disagreement_says_what_led_to_it():
    with pytest.raises(DisagreementError) as raised:
        play(MACHINE, adapted(NO_RESET), [[SPECIFICATION, ARTIFACT, FAILED, ARTIFACT, PASSED]])
    assert (raised.value.step, raised.value.line) == (5, 48)
    assert str(raised.value) == (
        "retries after verdict g.passed: dual_state says 0, but the implementation says 1\n"
        "what the table does at rmax = 2:\n"
        "  0  start\n"
        "  1  specification                  line 46: query_llm -> generating\n"
        "  2  artifact                       line 47: execute_guard -> validating\n"
        "  3  verdict g.failed               line 49: refine_context, query_llm -> generating\n"
        "  4  artifact                       line 47: execute_guard -> validating\n"
        "  5  verdict g.passed               line 48: advance_state, reply_to_user -> succeeded"
    )


class Shows(SteppedMachine):
    """A correct implementation, but for the answer or the view passed to it."""

    def __init__(self, answer=None, **shown):
        super().__init__(MACHINE)
        self.answer, self.shown = answer, shown

    def feed(self, occurrence, /):
        right = super().feed(occurrence)
        return right if self.answer is None else self.answer

    def view(self):
        return View(**self.shown)


WRONG = {
    "other effects": (Shows(["reply"]), "the answer: dual_state says query_llm, but the implementation says reply"),
    "no effects": (Shows([]), "dual_state says query_llm, but the implementation says no effects"),
    "refused": (Shows(RefusedAction()), "dual_state says query_llm, but the implementation says refused"),
    "a state": (
        Shows(state="validating"),
        "the state at the start: dual_state says idle, but the implementation says validating",
    ),
    "no state": (Shows(state="nowhere"), "the implementation says nowhere"),
    "a value": (Shows(values={"retries": 1}), "retries at the start: dual_state says 0, but the implementation says 1"),
    "a number for a truth value": (
        Shows(values={"satisfied": 0}),
        "dual_state says false, but the implementation says 0",
    ),
    "pending": (Shows(pending=["query_llm"]), "the pending effects at the start: dual_state says no effects"),
}


@each_row(("implementation", "said"), WRONG.values(), ids=WRONG)
def test_every_difference_is_reported(implementation, said):
    with pytest.raises(DisagreementError, match=said):
        play(MACHINE, lambda: implementation, [[SPECIFICATION]])


def test_refusal_is_compared_by_reason_when_it_has_one():
    for right in (RefusedAction(), RefusedAction("late")):
        lockstep = Lockstep(MACHINE, Shows(right))
        lockstep.feed(ARTIFACT)
    with pytest.raises(
        DisagreementError, match="dual_state says refused: late, but the implementation says refused: finished"
    ):
        Lockstep(MACHINE, Shows(RefusedAction("finished"))).feed(ARTIFACT)
    with pytest.raises(
        DisagreementError, match="dual_state says refused: late, but the implementation says no effects"
    ):
        Lockstep(MACHINE, Shows([])).feed(ARTIFACT)


CANCELS = loads("""# shop
## Events
| event     | from    |
| --------- | ------- |
| buy       | outside |
| withdrawn | outside |
| paid      | charge  |

## Transitions
| source | event     | effects              | target |
| ------ | --------- | -------------------- | ------ |
| start  | buy       | charge               | paying |
| paying | withdrawn | cancel charge, notify | start  |
| paying | paid      |                       | start  |
""")


@pytest.mark.parametrize("answer", [["cancel charge", "notify"], ["cancel", "notify"]])
def test_adapter_that_returns_a_cancellation_gets_a_hint(answer):
    class Cancels(SteppedMachine):
        def feed(self, occurrence, /):
            return answer if occurrence.event == "withdrawn" else super().feed(occurrence)

    with pytest.raises(DisagreementError) as raised:
        play(CANCELS, lambda: Cancels(CANCELS), [[Occurrence("buy"), Occurrence("withdrawn")]])
    first, *_, last = str(raised.value).splitlines()
    assert first.startswith(f"the answer: shop says notify, but the implementation says {', '.join(answer)} (")
    assert first.endswith("not cancellations)")
    assert last.endswith("notify, cancelled charge -> start")


MISUSED = {
    "text": (
        Shows("query_llm"),
        TypeError,
        r"feed must return a sequence of effect names or RefusedAction\(\), not 'query_llm'",
    ),
    "number": (Shows(3), TypeError, r"feed must return a sequence of effect names or RefusedAction\(\), not 3"),
    "unknown variable": (Shows(values={"tries": 1}), KeyError, "'tries', which is not a variable of dual_state"),
}


@pytest.mark.parametrize(("implementation", "error", "said"), MISUSED.values(), ids=MISUSED)
def test_misused_adapter_is_an_error_that_says_what_is_wrong(implementation, error, said):
    with pytest.raises(error, match=said):
        play(MACHINE, lambda: implementation, [[SPECIFICATION]])


class Closes(Adapted):
    closed = 0

    async def close(self):
        await asyncio.sleep(0)
        Closes.closed += 1


def test_every_test_is_closed_however_it_ends():
    play(MACHINE, Closes, [[SPECIFICATION], [SPECIFICATION, ARTIFACT]])
    with pytest.raises(OccurrenceError):
        play(MACHINE, Closes, [[Occurrence("nothing")]])
    assert Closes.closed == 3


class Breaks(Adapted):
    async def feed(self, occurrence):
        raise ConnectionError("no route")


def test_error_of_an_implementation_is_raised_with_what_led_to_it():
    with pytest.raises(ConnectionError) as raised:
        play(MACHINE, Breaks, [[SPECIFICATION]])
    assert "1  specification" in raised.value.__notes__[0]


def test_parent_counts_as_any_of_its_states():
    machine = load("workflow")

    class Coarse(SteppedMachine):
        def view(self):
            return View(state=super().view().state.partition(".")[0])

    play(machine, lambda: Coarse(machine), tour(machine))


def test_rows_missing_from_the_required_coverage_are_named():
    coverage, graph = play(MACHINE, Adapted, [[SPECIFICATION, ARTIFACT, FATAL]]), graph_of(MACHINE)
    coverage.require(0.5, graph)
    with pytest.raises(AssertionError) as raised:
        coverage.require(0.51, graph)
    assert str(raised.value).splitlines() == [
        "3 of 6 rows that can be taken were taken, 51% are required; not taken:",
        "  line 48 (validating | verdict | succeeded)",
        "  line 49 (validating | verdict | generating)",
        "  line 51 (validating | verdict | failed)",
    ]
    assert "states not reached: failed; succeeded" in coverage.report(graph)
    assert "verdicts not given: g.failed; g.passed" in coverage.report(graph)


def test_rows_that_cannot_be_taken_are_not_required():
    machine = load("dual_state").at(rmax=0)
    graph = graph_of(machine)
    coverage = play(machine, lambda: SteppedMachine(machine), tour(machine))
    coverage.require(1.0, graph)
    assert coverage.report(graph).endswith(
        "rows that cannot be taken at these parameters: line 49 (validating | verdict | generating)"
    )
    assert Coverage(machine).report(graph).startswith("0 tests, 0 steps: rows 0 of 5")


def test_listener_hears_of_every_row_taken():
    heard = []

    def hear(machine, occurrence, row, state):
        heard.append((machine.name, occurrence.event, row.target, state))

    listen(hear)
    play(MACHINE, Adapted, [[ARTIFACT, SPECIFICATION]])
    forget_listener(hear)
    play(MACHINE, Adapted, [[SPECIFICATION]])
    assert heard == [("dual_state", "specification", "generating", "generating")]
