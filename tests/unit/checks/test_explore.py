import itertools

import pytest
from example_machines import (
    add,
    chain,
    compare,
    dual_state,
    emits,
    jugs,
    passed,
    placed,
    ranged,
    states,
    two_phase_commit,
)

from dsa.checks.search import bdd_engine, numpy_engine, python_engine
from dsa.checks.search.exploration import explore
from dsa.declarations import Event, Guard, Transition, Variable
from dsa.expr import And, Integer
from dsa.lang import loads
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Taken, step


@pytest.mark.parametrize(("machine", "configurations", "transitions"), [
    (dual_state(rmax=3), 15, 17),
    (dual_state(rmax=0), 6, 5),
    (jugs(), 16, 96),
    (two_phase_commit(3), 288, 1145),
    (chain(1001), 2006, 4001),
])  # fmt: skip
def test_counts_are_exact(machine, configurations, transitions):
    found = explore(machine)
    assert (found.configurations, found.transitions, found.complete) == (configurations, transitions, True)


def test_counts_match_a_plain_search_with_the_reference():
    machine = dual_state(rmax=2)
    moves = [("specification", {}), ("artifact", {}), *(("verdict", {"g": g}) for g in ("passed", "failed", "fatal"))]
    found = explore(machine)
    accepted = 0
    from dsa.semantics import OccurrenceError

    for configuration, (event, verdicts) in itertools.product(found.all_configurations(), moves):
        try:
            accepted += isinstance(step(machine, configuration, Occurrence(event, verdicts)), Taken)
        except OccurrenceError:
            continue
    assert accepted == found.transitions


def test_reached_states_and_taken_rows_are_listed():
    found = explore(dual_state(rmax=0))
    assert found.states == {"idle", "generating", "validating", "succeeded", "failed", "escalated"}
    assert found.rows == {0, 1, 2, 4, 5}  # at rmax 0 nothing is refined
    assert found.parameters == {"rmax": 0}
    assert not found.refusals
    assert not found.deadlocks


def test_traces_are_shortest_and_real():
    machine = dual_state(rmax=1)
    found = explore(machine)
    trace = found.trace_to(Configuration("failed", (False, 1), frozenset()))
    assert [taken.occurrence.event for taken in trace.steps] == [
        "specification", "artifact", "verdict", "artifact", "verdict",
    ]  # fmt: skip
    assert [taken.state for taken in trace.steps][-1] == "failed"
    assert [taken.line for taken in trace.steps] == [40, 41, 43, 41, 45]


def test_traces_are_shortest_in_a_graph_with_detours():
    found = explore(jugs())
    depths = {len(found.trace_to(configuration).steps) for configuration in found.all_configurations()}
    four = [c for c in found.all_configurations() if c.values[1] == 4]
    assert min(len(found.trace_to(c).steps) for c in four) == 6  # the film's answer
    assert max(depths) == 7


def test_only_outcomes_that_a_guard_has_are_tried():
    assert explore(dual_state(rmax=0, guards=("passed", "failed"))).transitions == 4


def test_failures_happen_only_where_a_row_names_them():
    rows = (Transition("a", "go", "b", effects=emits("ask")), Transition("b", "answer", "a"))
    events = (Event("go"), Event("answer", "ask"))
    assert explore(Machine("m", rows, states("a", ["b"]), "a", events=events)).transitions == 2
    rows += (Transition("b", "ask.failed", "a"),)
    assert explore(Machine("m", rows, states("a", ["b"]), "a", events=events)).transitions == 3


def test_armed_timers_fire_including_those_of_ancestors():
    rows = (Transition("a", "after 2m", "b"), Transition("*", "after 30s", "="))
    found = explore(Machine("m", rows, states("a", (), ["b"]), "a"))
    # Before and after the shorter one, which comes first (S11).
    assert (found.configurations, found.transitions) == (3, 3)


REMINDER = """# reminder
## Transitions
| source | event | target |
| - | - | - |
| idle | submit | waiting |
| waiting | after {short}, after {middle} | = |
| waiting | after {long} | idle |
| waiting | answer | idle |
"""


@pytest.mark.parametrize("durations", [("24h", "48h", "7d"), ("1m", "24h", "7d"), ("1ms", "2ms", "365d")])
def test_timer_lengths_do_not_change_the_number_of_configurations(durations):
    """Only the order of timers matters: a minute beside a week costs no more than a day does, not ten thousand positions."""
    short, middle, long = durations
    found = explore(loads(REMINDER.format(short=short, middle=middle, long=long)))
    assert (found.configurations, found.transitions) == (5, 13)


def test_first_refusal_of_each_kind_is_recorded():
    rows = placed([
        Transition("a", "e", "=", updates=(add("x", 1),)),
        Transition("a", "f", "=", compare("x", "<", 1)),
        Transition("a", "f", "=", compare("x", "<", 2)),
    ])  # fmt: skip
    machine = Machine(
        "m", rows, states("a"), "a",
        variables=(Variable("x", "environment", ranged(0, 2), Integer(0)),), events=(Event("e"), Event("f")),
    )  # fmt: skip
    kinds = {w.refusal.reason: (w.configuration.values, w.occurrence.event) for w in explore(machine).refusals}
    assert kinds == {"ambiguous": ((0,), "f"), "out_of_domain": ((2,), "e"), "invalid_state": ((2,), "f")}


def test_missing_case_is_recorded_for_each_verdict():
    rows = (Transition("a", "e", "=", passed()),)
    machine = Machine("m", rows, states("a"), "a", events=(Event("e"),), guards=(Guard("g", ("e",)),))
    assert [w.occurrence.verdicts for w in explore(machine).refusals] == [(("g", "failed"),), (("g", "fatal"),)]


def test_deadlock_is_not_final_and_waits_for_nothing():
    rows = (Transition("a", "go", "b"), Transition("b", "go", "=", compare("x", ">", 0)))
    machine = Machine(
        "m", rows, states("a", ["b"]), "a",
        variables=(Variable("x", "environment", ranged(0, 1), Integer(0)),), events=(Event("go"),),
    )  # fmt: skip
    assert explore(machine).deadlocks == (Configuration("b", (0,), frozenset()),)


def test_too_many_verdicts_at_once_make_the_search_incomplete():
    names = [f"g{number}" for number in range(30)]
    rows = (Transition("a", "e", "=", And(tuple(map(passed, names)))),)
    guards = tuple(Guard(name, ("e",)) for name in names)
    assert not explore(Machine("m", rows, states("a"), "a", events=(Event("e"),), guards=guards)).complete


def test_limits_make_the_search_incomplete():
    found = explore(two_phase_commit(3), max_states=50)
    assert not found.complete
    assert 50 < found.configurations < 100
    assert found.trace_to(list(found.all_configurations())[-1]).steps
    seconds = itertools.count()
    assert not explore(two_phase_commit(3), time_limit_s=1, clock=lambda: next(seconds)).complete
    assert explore(jugs(), clock=lambda: next(seconds)).seconds == 1  # began, ended
    with pytest.raises(ValueError, match="clock"):
        explore(jugs(), time_limit_s=1)


def test_progress_is_reported():
    told = []
    explore(two_phase_commit(3), progress=lambda states, depth: told.append((states, depth)))
    assert told == sorted(told)
    assert told[-1] == (288, 11)


def test_engine_can_be_chosen():
    assert explore(jugs()).engine == "python"
    found = explore(jugs(), engine=numpy_engine.search)
    assert (found.engine, found.configurations, found.transitions) == ("numpy", 16, 96)
    assert found == explore(jugs())  # engine and seconds aside
    assert found.result.layers is not None
    assert found.ground.start == found.result.layers[0][0]


@pytest.mark.parametrize(
    "engine", [python_engine.search, numpy_engine.search, bdd_engine.search], ids=["python", "numpy", "bdd"]
)
def test_every_engine_gives_traces(engine):
    machine = dual_state(rmax=1)
    found = explore(machine, engine=engine)
    end = Configuration("failed", (False, 1), frozenset())
    assert [taken.line for taken in found.trace_to(end).steps] == [40, 41, 43, 41, 45]
    assert [len(found.trace_taking(row).steps) for row in sorted(found.rows)] == [1, 2, 3, 3, 3, 5]
    assert [before.state for before, _ in found.way_back(end)] == [
        "validating", "generating", "validating", "generating", "idle",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "engine", [python_engine.search, numpy_engine.search, bdd_engine.search], ids=["python", "numpy", "bdd"]
)
def test_unreached_configurations_and_rows_have_no_trace(engine):
    found = explore(dual_state(rmax=0), engine=engine)
    for missing in (
        Configuration("succeeded", (False, 0), frozenset()),
        Configuration("failed", (False, 7), frozenset()),  # outside its domain
        Configuration("failed", (False, 0), frozenset({"query_llm"})),
        Configuration("nowhere", (False, 0), frozenset()),
    ):
        with pytest.raises(KeyError):
            found.trace_to(missing)
    with pytest.raises(KeyError):
        found.trace_taking(3)  # at rmax 0 nothing is refined


def test_faults_are_listed_nearest_first():
    rows = placed([
        Transition("a", "e", "=", updates=(add("x", 1),)),
        Transition("a", "f", "=", compare("x", "<", 1)),
        Transition("a", "f", "=", compare("x", "<", 2)),
    ])  # fmt: skip
    machine = Machine(
        "m", rows, states("a"), "a",
        variables=(Variable("x", "environment", ranged(0, 2), Integer(0)),), events=(Event("e"), Event("f")),
    )  # fmt: skip
    assert [w.refusal.reason for w in explore(machine).refusals] == ["ambiguous", "out_of_domain", "invalid_state"]
