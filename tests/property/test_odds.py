"""The odds of any machine are those of walking it with `step`; for steps in order, and for choices in cycles, those of Storm."""

from fractions import Fraction

import attrs
import pytest
from crowds import crowded_machines
from families import ordered
from family_documents import family_machines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odds_chains import as_prism, chains, gained
from odds_documents import chain, closed_form
from sample_sizes import sample_size

from dsa.checks.mutants import row_mutants
from dsa.checks.odds.chain_solver import DecisionChain
from dsa.checks.odds.retry_target import limit, varied_parameter
from dsa.checks.odds.run_odds import odds, question
from dsa.declarations import OUTSIDE
from dsa.errors import UndecidedError
from dsa.expr import OUTCOMES
from dsa.machine import read_guards
from dsa.semantics import Occurrence, Taken, start, step
from dsa.testing.strategies import machines

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much)
ROUNDS = 120


def occurrences(machine, configuration, first):
    """Return what can come, as docs/how-to/odds.md says: a list of choices, each an event with its source."""
    state = configuration.state
    if state in machine.final_states:
        return []
    if configuration.outstanding:
        return [
            (event, None) for effect in dict.fromkeys(configuration.outstanding) for event in machine.answers[effect]
        ]
    if timers := machine.armed_timers(state):
        return [(event, source) for source, event in timers]
    outside = [
        event.name for event in machine.events if event.origin == OUTSIDE and machine.rows_for(state, event.name)
    ]
    return [(event, None) for event in outside] if first else []


def without_odds(machine):
    """Return the machine with guards that assume nothing, all of which can pass and fail."""
    guards = (attrs.evolve(g, outcomes=OUTCOMES, pass_odds=(), fatal_odds=()) for g in machine.guards)
    return attrs.evolve(machine, guards=tuple(guards))


def combinations(machine, rows, passes):
    """Return every combination of verdicts with its probability."""
    found = [((), 1.0)]
    for guard in read_guards(rows):
        odds_of = {"passed": passes, "failed": 1 - passes, "fatal": 0.0}
        found = [
            ((*said, (guard, outcome)), chance * odds_of[outcome])
            for said, chance in found
            for outcome in machine.guard_named[guard].outcomes
        ]
    return found


def walked(machine, passes):
    """Follow all runs with `step`, and return how likely each way to end is; None where several things can come, or what comes is refused."""
    mass, ended = {(start(machine), True): 1.0}, {}
    for _ in range(ROUNDS):
        after = {}
        for (configuration, first), here in mass.items():
            choices = []
            for event, source in occurrences(machine, configuration, first):
                rows = machine.rows_from[source, event] if source else machine.rows_for(configuration.state, event)
                taken = [
                    (step(machine, configuration, Occurrence(event, said, source)), chance)
                    for said, chance in combinations(machine, rows, passes)
                ]
                is_taken = all(isinstance(result, Taken) for result, _ in taken)
                if not is_taken and first and not configuration.outstanding and source is None:
                    continue  # not accepted at the start
                if not is_taken:
                    return None
                choices.append(taken)
            if len(choices) > 1:
                return None
            if not choices:
                key = configuration.state
                ended[key] = ended.get(key, 0.0) + here
            for result, chance in choices[0] if choices else []:
                if chance > 0:
                    key = (result.configuration, False)
                    after[key] = after.get(key, 0.0) + here * chance
        mass = after
    return ended, sum(mass.values())


def agrees(machine, passes):
    """Compare the odds with walking; return whether there was something to compare."""
    expected = walked(machine, passes)
    if expected is None:
        return False
    ended, left = expected
    found = odds(machine, passes={guard.name: [passes] for guard in machine.guards})
    assert found.is_known
    reckoned = {}
    for end, bounds in found.ends:
        reckoned[end.state] = reckoned.get(end.state, 0.0) + bounds.low
    for state, chance in ended.items():
        assert reckoned[state] == pytest.approx(chance, abs=left + 1e-9)
    assert sum(reckoned.values()) + found.never_ends.low == pytest.approx(1)
    return len(ended) > 1


@settings(max_examples=sample_size(18, full=60), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_odds_are_those_of_walking_the_machine(data):
    machine = without_odds(data.draw(machines(claims=False) | crowded_machines() | family_machines()))
    agrees(machine, data.draw(st.sampled_from([0.25, 0.5, 0.75])))


@pytest.mark.parametrize("base", [ordered(2, 2), chain("a", "b", rmax=1)], ids=["ordered", "steps"])
def test_odds_of_mutants_are_those_of_walking_them(base):
    compared = [agrees(mutant.machine, 0.6) for mutant in row_mutants(base)]
    assert sum(compared) >= 30


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.floats(0.05, 0.95), st.floats(0, 0.3), st.integers(0, 6))
def test_success_grows_with_the_retry_bound_up_to_the_ceiling(n, p, q, rmax):
    q = min(q, 1 - p)
    asked = question(ordered(n, 0), passes={"g": [p]}, fatals={"g": [q]})
    here, next_ = (asked.success_at({"rmax": bound}) for bound in (rmax, rmax + 1))
    at_infinity = limit(asked.system, ["rmax"], asked.success)
    ceiling = attrs.evolve(asked, system=at_infinity.system).success_at()
    assert at_infinity.is_ceiling
    assert here <= next_ + 1e-12
    assert here == pytest.approx(closed_form([(p, q)] * n, rmax)[0], abs=1e-9)
    assert ceiling == pytest.approx((p / (p + q)) ** n, abs=1e-12)


@pytest.mark.parametrize(
    "base", [ordered(2, 2), pytest.param(chain("a", "b", rmax=1), marks=pytest.mark.full)], ids=["ordered", "steps"]
)
def test_success_never_exceeds_the_ceiling(base):
    compared = 0
    for mutant in row_mutants(base):
        passes = {guard.name: [0.5] for guard in base.guards}
        asked = question(mutant.machine, passes=passes, fatals={guard.name: [0.1] for guard in base.guards})
        try:
            at_infinity = limit(asked.system, varied_parameter(base).parameters, asked.success)
        except UndecidedError:
            continue
        if not at_infinity.is_ceiling or asked.chain().is_chosen:
            continue
        ceiling, before = attrs.evolve(asked, system=at_infinity.system).success_at(), 0.0
        for value in range(5):
            here = asked.at(varied_parameter(base).at(value))
            if any(bounds.high > 0 for end, bounds in here.ends if end.kind == "refused"):
                break  # a table with a fault
            assert before - 1e-12 <= here.success.low <= ceiling + 1e-12, mutant
            before = here.success.low
            compared += 1
    assert compared >= 200


PRISM = """dtmc
const int N = {n};
const int R = {rmax};
module steps
  phase : [0..4] init 0; // 0 generating, 1 validating, 2 succeeded, 3 failed, 4 escalated
  done : [0..N] init 0;
  retries : [0..R] init 0;
  [call] phase = 0 -> (phase' = 1);
  [] phase = 1 & retries < R -> {p} : (done' = done + 1) & (retries' = 0) & (phase' = done + 1 < N ? 0 : 2)
    + {q} : (phase' = 4) + {a} : (retries' = retries + 1) & (phase' = 0);
  [] phase = 1 & retries = R -> {p} : (done' = done + 1) & (retries' = 0) & (phase' = done + 1 < N ? 0 : 2)
    + {q} : (phase' = 4) + {a} : (phase' = 3);
endmodule
rewards "calls"
  [call] true : 1;
endrewards
"""


@pytest.mark.parametrize(("n", "rmax", "p", "q"), [(3, 3, 0.7, 0.01), (10, 3, 0.6, 0.02), (30, 10, 0.5, 0.0)])
@pytest.mark.parametrize("form", ["ordered", "steps"])
def test_storm_finds_the_same_odds_and_averages(form, n, rmax, p, q, tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed: Storm has no say here")
    path = tmp_path / "steps.prism"
    path.write_text(PRISM.format(n=n, rmax=rmax, p=p, q=q, a=1 - p - q))
    program = stormpy.parse_prism_program(str(path))
    wanted = 'P=? [F phase = 2]; P=? [F phase = 3]; P=? [F phase = 4]; R{"calls"}=? [F phase >= 2]'
    properties = stormpy.parse_properties(wanted, program)
    model = stormpy.build_model(program, properties)
    initial = model.initial_states[0]
    precise = [stormpy.model_checking(model, formula).get_value(initial) for formula in properties]
    if form == "ordered":
        found = odds(ordered(n, rmax), passes={"g": [p]}, fatals={"g": [q]})
    else:
        names = [f"s{number}" for number in range(n)]
        machine = chain(*names, rmax=rmax)
        found = odds(machine, passes=dict.fromkeys(names, (p,)), fatals=dict.fromkeys(names, (q,)))
    ends = {}
    for end, bounds in found.ends:
        ends[end.state.split(".")[0]] = ends.get(end.state.split(".")[0], 0.0) + bounds.low
    ours = [ends["succeeded"], ends["failed"], ends["escalated"], found.effect("query_llm").average.low]
    assert ours == pytest.approx(precise, abs=1e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=(*SLOW, HealthCheck.function_scoped_fixture))
@given(drawn=chains(most_nodes=12))
def test_storm_finds_the_same_exact_bounds_where_there_are_choices(drawn, tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed: Storm has no say here")
    laid_out, worth = drawn
    path = tmp_path / "chain.prism"
    path.write_text(as_prism(laid_out, worth))
    program = stormpy.parse_prism_program(str(path))
    wanted = 'Pmin=? [F "wanted"]; Pmax=? [F "wanted"]; R{"gain"}min=? [C]; R{"gain"}max=? [C]'
    properties = stormpy.parse_properties(wanted, program)
    model = stormpy.build_model[stormpy.Rational](program, properties)
    exact = [stormpy.model_checking(model, each).get_value(model.initial_states[0]) for each in properties]
    solver = DecisionChain(laid_out)
    ours = [solver.best(None, lambda end: float(worth[end]), most=most) for most in (False, True)]
    ours += [solver.best(gained, lambda _: 0.0, most=most) for most in (False, True)]
    assert ours == pytest.approx(
        [float(str(value)) if value == float("inf") else _fraction(value) for value in exact], rel=1e-12, abs=0
    )


def _fraction(value):
    return float(Fraction(str(value)))
