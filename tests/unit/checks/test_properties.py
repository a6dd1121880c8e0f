"""Forms on machines whose answers are known; on random machines: tests/property/test_properties.py."""

import families
import pytest
from each_row import each_row
from example_machines import dual_state, emits, jugs, states, two_phase_commit

from dsa.checks.properties import Questions, judge
from dsa.checks.report import check
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import (
    Always,
    AtMost,
    Event,
    EverywherePossible,
    ExpectedCount,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Transition,
    UnchangedClaim,
)
from dsa.edge.document_files import locate
from dsa.expr import Arithmetic, Compare, Integer, Name, Or, Verdict
from dsa.lang import loads
from dsa.machine import Machine
from dsa.system import closed_system

SPECIFICATION, QUERY, RMAX = Name("specification", "event"), Name("query_llm", "effect"), Name("rmax", "parameter")
RETRIES, SATISFIED = Name("retries", "variable"), Name("satisfied", "variable")
PETERSON = locate("examples/peterson").read_text(encoding="utf-8")
POLLING = locate("examples/polling").read_text(encoding="utf-8")


def state(name):
    return Name(name, "state")


def judged(machine, form, **options):
    questions = Questions(closed_system(machine), [form])
    return judge(questions, questions.search(SearchLimits(100_000)), SearchLimits(100_000), **options)[form]


def lines(judgement):
    return [taken.line for taken in judgement.trace.steps]


@each_row(("form", "verdict", "trace", "reason"), [
    (Always(Compare(RETRIES, (("<=", RMAX),))), "HOLDS", None, ""),
    (Always(Compare(RETRIES, (("<", RMAX),))), "VIOLATED", [40, 41, 43], "retries < rmax is false at step 3"),
    (Never(state("failed")), "VIOLATED", [40, 41, 43, 41, 45], "failed is true at step 5"),
    (Never(state("idle")), "VIOLATED", [], "idle is true at the start"),
    (UnchangedClaim(Verdict("g", "failed"), (SATISFIED,)), "HOLDS", None, ""),
    (UnchangedClaim(Verdict("g", "failed"), (SATISFIED, RETRIES)), "VIOLATED", [40, 41, 43], "retries changes from 0 to 1 at step 3"),
    (OnlyAfter(SATISFIED, Verdict("g", "passed")), "HOLDS", None, ""),
    (OnlyAfter(QUERY, Verdict("g", "failed")), "VIOLATED", [40], "query_llm at step 1, but never g.failed before"),
    (AtMost(Arithmetic("+", RMAX, Integer(1)), QUERY), "HOLDS", None, ""),
    (AtMost(RMAX, QUERY), "VIOLATED", [40, 41, 43], "the count of query_llm at step 3 is more than 1"),
    (AtMost(Integer(-1), QUERY), "VIOLATED", [], "the count of query_llm at the start is more than -1"),
    (AtMost(Integer(0), QUERY, (SPECIFICATION, state("validating"))), "VIOLATED", [40], "the count of query_llm at step 1 is more than 0"),
    (OnlyAfter(QUERY, SPECIFICATION), "HOLDS", None, ""),  # at the same moment
    (AtMost(Integer(1), QUERY, (QUERY, Name("artifact", "event"))), "HOLDS", None, ""),  # each scope has one
    (AtMost(Integer(1), QUERY, (QUERY, SATISFIED)), "VIOLATED", [40, 41, 43], "the count of query_llm at step 3 is more than 1"),
    (Possible(state("failed")), "HOLDS", [40, 41, 43, 41, 45], ""),
    (Possible(Compare(RETRIES, ((">", RMAX),))), "VIOLATED", None, "the condition is never true"),
    (LeadsTo(SPECIFICATION, Or((state("succeeded"), state("failed"), state("escalated")))), "HOLDS", None, ""),
    (LeadsTo(SPECIFICATION, Or((state("succeeded"), state("failed")))), "VIOLATED", [40, 41, 44],
     "specification at step 1, then never succeeded or failed: the run ends in escalated"),
    (LeadsTo(state("idle"), state("generating")), "VIOLATED", [],
     "idle at the start, then never generating: the run may rest in idle for ever"),
    (LeadsTo(state("idle"), state("generating"), ("specification",)), "HOLDS", None, ""),
    (EverywherePossible(Or((state("succeeded"), state("failed"), state("escalated")))), "HOLDS", None, ""),
    (EverywherePossible(SPECIFICATION), "VIOLATED", [40, 41], "specification can no longer become true after step 2"),
])  # fmt: skip
def test_dual_state_with_one_retry_has_the_known_verdicts(form, verdict, trace, reason):
    found = judged(dual_state(rmax=1), form)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert (None if found.trace is None else lines(found)) == trace


def test_effects_that_progress_relies_on_are_named():
    goal = Or((state("succeeded"), state("failed"), state("escalated")))
    found = judged(dual_state(), LeadsTo(SPECIFICATION, goal))
    assert (found.assumes, found.relies_on) == ((), ("query_llm", "execute_guard"))


def test_jugs_witness_takes_six_steps():
    found = judged(jugs(), Possible(Compare(Name("big", "variable"), (("==", Integer(4)),))))
    assert found.verdict == "HOLDS"
    assert len(found.trace.steps) == 6


def test_limit_makes_undecided_properties_unknown():
    machine = two_phase_commit(3)
    never, possible = Never(state("nowhere")), Possible(state("deciding"))
    questions = Questions(closed_system(machine), [never, possible, LeadsTo(state("deciding"), state("nowhere"))])
    found = judge(questions, questions.search(SearchLimits(20)), SearchLimits(20))
    assert [judgement.verdict for judgement in found.values()] == ["UNKNOWN", "HOLDS", "UNKNOWN"]
    assert found[never].reason.startswith("the search stopped at the limit of 20 configurations, after ")


def test_odds_are_left_to_the_function_that_computes_them():
    form = ExpectedCount(QUERY, 2.0)
    assert judged(dual_state(), form).verdict == "UNKNOWN"
    found = judged(
        dual_state(), form, odds=lambda machine, form, _limits: ("HOLDS", f"{machine.name} {form.at_most}", ("fair",))
    )
    assert (found.verdict, found.reason) == ("HOLDS", "dual_state 2.0")


def asking(*rows, events):
    """Return a machine that begins in `start`, asks, and goes on in `a` with the rows for the answers."""
    first = Transition("start", "go", "a", effects=emits("ask", *(["tell"] if "told" in events else [])))
    answers = [Event(name, "tell" if name == "told" else "ask") for name in events]
    return Machine("m", (first, *rows), states("start", ["a", "b", "goal"]), "start", events=(Event("go"), *answers))


def again(source, event, target="=", *, effect="ask"):
    return Transition(source, event, target, effects=emits(effect))


def cycle(judgement):
    return [taken.occurrence.event for taken in judgement.trace.steps[judgement.loop :]]


def test_promised_answer_comes_eventually():
    machine = asking(again("a", "no"), Transition("a", "told", "goal", effects=emits("cancel")), events=("no", "told"))
    assert (
        judged(machine, LeadsTo(state("a"), state("goal"))).verdict == "HOLDS"
    )  # `tell` is answered, whatever `ask` says


def test_cycle_keeps_every_promise():
    machine = asking(again("a", "no"), again("a", "told", effect="tell"), events=("no", "told"))
    found = judged(machine, LeadsTo(state("a"), state("goal")))
    assert (found.verdict, sorted(cycle(found))) == ("VIOLATED", ["no", "told"])


def test_cycle_is_fair():
    machine = asking(again("a", "no"), again("a", "yes"), events=("no", "yes"))
    assert cycle(judged(machine, LeadsTo(state("a"), state("goal"), ("yes",)))) == ["yes"]
    assert sorted(cycle(judged(machine, LeadsTo(state("a"), state("goal"), ("yes", "no"))))) == ["no", "yes"]


def test_fair_event_need_not_become_possible():
    rows = (again("a", "no"), again("a", "move", "b"), again("b", "no", "a"), Transition("b", "yes", "goal"))
    rows += (again("a", "yes"), again("b", "move"))
    machine = asking(*rows, events=("no", "move", "yes"))
    found = judged(machine, LeadsTo(state("a"), state("goal"), ("move",)))
    assert found.verdict == "VIOLATED"
    avoiding = asking(*rows[:4], again("b", "move"), events=("no", "move", "yes"))
    found = judged(avoiding, LeadsTo(state("a"), state("goal"), ("yes",)))
    assert (found.verdict, cycle(found)) == ("VIOLATED", ["no"])  # it stays in a, where `yes` never is
    assert judged(avoiding, LeadsTo(state("a"), state("goal"), ("yes", "move"))).verdict == "HOLDS"


def test_petersons_lock_is_exclusive_and_a_broken_one_is_not():
    machine = loads(PETERSON)
    report = check(machine)
    assert report.explorations[0].configurations == 288
    assert {result.verdict for result in report.properties} == {"HOLDS"}
    old = "at_1 == wait_2 and (level_2 < 2 and level_3 < 2 or last_2 != 1)"
    assert PETERSON.count(old) == 1
    broken = check(loads(PETERSON.replace(old, "at_1 == wait_2 and (level_2 < 2 or level_3 < 2 or last_2 != 1)")))
    (violated, *_) = [result for result in broken.properties if result.verdict == "VIOLATED"]
    assert violated.text.startswith("never at_1 == critical")
    before = dict(violated.trace.values) | {
        name: value for taken in violated.trace.steps for name, value in taken.changed
    }
    assert [before["at_1"], before["at_2"], before["at_3"]].count("critical") == 2


def test_end_that_needs_fairness_has_a_lasso_without_it():
    fair = "- submitted leads to finished or failed assuming fair done"
    assert {result.verdict for result in check(loads(POLLING)).properties} == {"HOLDS"}
    (found,) = [r for r in check(loads(POLLING.replace(fair, fair.partition(" assuming")[0]))).properties if r.failed]
    assert (found.verdict, found.loop) == ("VIOLATED", 2)
    assert [taken.occurrence.event for taken in found.trace.steps] == ["submitted", "accepted", "after 30s", "running"]
    assert found.trace.steps[-1].state == found.trace.steps[found.loop - 1].state
    assert "-- these steps repeat for ever --" in found.trace.show(found.loop)


@pytest.mark.parametrize(
    ("managers", "configurations"),
    [(3, 288), pytest.param(5, 8_832, marks=pytest.mark.full), pytest.param(7, 296_448, marks=pytest.mark.full)],
)
def test_two_phase_commit_is_consistent(managers, configurations):
    report = check(families.two_phase_commit(managers))
    assert report.explorations[0].configurations == configurations
    assert [result.verdict for result in report.properties] == ["HOLDS"] * managers * (managers - 1)


@pytest.mark.parametrize("broken", [False, True])
def test_petersons_lock_is_exclusive_with_single_reads_unless_broken(broken):
    report = check(families.peterson(3, broken=broken))
    exclusive = [result for result in report.properties if result.text.startswith("never")]
    assert {result.verdict == "VIOLATED" for result in exclusive} == {broken}
    assert all(result.trace.steps for result in exclusive if broken)
