"""The order of timers (S11): updated row by row, it is what the rule says about the whole run so far; and real deadlines never break it."""

import heapq
from itertools import count

from hypothesis import event, given, settings
from hypothesis import strategies as st
from oracle import possible
from sample_sizes import sample_size

from dsa.declarations import STAR, STAY, Event, State, Transition
from dsa.machine import ArmTimer, Machine, timers_after
from dsa.semantics import Occurrence, Refusal, Taken, start, step

DURATIONS = ("after 100ms", "after 250ms", "after 1s", "after 90s")
STATES = ("a", "a.one", "a.two", "b", "b.one")


@st.composite
def timed_machines(draw) -> Machine:
    """A machine of two parents and three leaves, whose rows are timers and two events from outside."""
    sources, targets = (STAR, *STATES), (STAY, "a", "b", "a.one", "a.two", "b.one")
    timers = {
        (draw(st.sampled_from(sources)), draw(st.sampled_from(DURATIONS))): draw(st.sampled_from(targets))
        for _ in range(draw(st.integers(2, 7)))
    }
    events = {(source, name): draw(st.sampled_from(targets)) for source in ("a", "b") for name in ("go", "on")}
    rows = [Transition(source, what, target) for (source, what), target in (timers | events).items()]
    kinds = {"a": "initial", "a.one": "initial", "b.one": "initial"}
    states = tuple(State(name, kinds.get(name, "")) for name in STATES)
    return Machine("timed", tuple(rows), states, "a", events=(Event("go"), Event("on")))


def started_by(machine: Machine, before: str, taken: Taken) -> set:
    commands = timers_after(machine, before, taken.transition, taken.configuration.state)
    return {(each.source, each.event) for each in commands if isinstance(each, ArmTimer)}


def duration(machine: Machine, timer) -> int:
    return machine.rows_from[timer][0].duration_ms


@settings(max_examples=sample_size(30, full=150), deadline=None)
@given(timed_machines(), st.data())
def test_timer_precedence_is_what_the_rule_says_of_the_whole_run(machine: Machine, data) -> None:
    here, begun = start(machine), dict.fromkeys(machine.armed_timers(start(machine).state), 0)
    for moment in range(1, 16):
        timers = {timer: when for timer, when in begun.items() if timer in machine.armed_timers(here.state)}
        expected = {
            (u, t) for u in timers for t in timers
            if duration(machine, u) < duration(machine, t) and timers[u] <= timers[t]
        }  # fmt: skip
        assert here.precedence == expected
        for source, name in machine.armed_timers(here.state):
            answer = step(machine, here, Occurrence(name, source=source))
            is_behind = any(t == (source, name) for _, t in expected)
            assert (isinstance(answer, Refusal) and answer.reason == "early") == is_behind
        taken = step(machine, here, data.draw(st.sampled_from(list(possible(machine, here)))))
        begun = timers | dict.fromkeys(started_by(machine, here.state, taken), moment)
        here = taken.configuration


@settings(max_examples=sample_size(36, full=200), deadline=None)
@given(timed_machines(), st.data())
def test_timer_fired_in_order_of_deadlines_is_never_early(machine: Machine, data) -> None:
    """The clock is read late, stops, is put back (then the earlier reading counts), and is not read for days."""
    here, reading, number = start(machine), 0, count()
    due = [(duration(machine, timer), next(number), timer) for timer in machine.armed_timers(here.state)]
    rung = 0
    for _ in range(25):
        jump = data.draw(st.sampled_from((0, 1, 40, 100, 249, 251, 1_000, 90_000, 400_000, -5_000)))
        reading = max(reading, reading + jump)
        heapq.heapify(due)
        if due and due[0][0] <= reading:
            _, _, (source, name) = heapq.heappop(due)
            occurrence, rung = Occurrence(name, source=source), rung + 1
        else:
            occurrence = Occurrence(data.draw(st.sampled_from(("go", "on"))))
        taken = step(machine, here, occurrence)
        assert isinstance(taken, Taken), taken
        begun = started_by(machine, here.state, taken)
        armed = set(machine.armed_timers(taken.configuration.state))
        due = [(at, place, timer) for at, place, timer in due if timer in armed - begun]
        due += [(reading + duration(machine, timer), next(number), timer) for timer in sorted(begun)]
        here = taken.configuration
    event(f"rung {min(rung, 10)}")
