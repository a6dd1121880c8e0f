"""Models for model checkers: conditions with the necessary terms only, updates in an order that means the same, numbers that fit."""

import attrs
import pytest
from example_machines import assign, compare, dual_state, jugs, var
from hypothesis import given
from hypothesis import strategies as st
from plain import search

from dsa.checks.search.engine import SearchLimits
from dsa.errors import DsaError
from dsa.expr import TRUE, Arithmetic, Count, Integer, evaluate, unparse
from dsa.lang import loads
from dsa.targets import emit
from dsa.targets.closed_model import closed_model, require_small, sequential


def test_condition_has_only_the_part_that_the_values_leave_open():
    conditions = [unparse(step.condition) for step in closed_model(dual_state()).steps]
    assert conditions == ["true", "true", "true", "retries < rmax", "retries >= rmax", "true"]


def test_update_that_may_leave_its_domain_is_checked_in_the_condition():
    broken = dual_state(refine=attrs.evolve(dual_state().transitions[3], condition=TRUE))
    texts = [unparse(step.condition) for step in closed_model(broken).steps]
    assert any("retries + 1 <= rmax" in text for text in texts)


def test_every_step_names_its_line():
    steps = closed_model(dual_state()).steps
    assert steps[0].comment == "line 40: idle | specification | generating"
    assert steps[3].comment.endswith("(g.failed)")


def test_model_has_every_step():
    laid = closed_model(jugs())
    assert len(laid.steps) == len(search(laid.ground, (), SearchLimits(1_000)).taken)


NAMES = ("a", "b", "c", "d")
VALUES = st.one_of(
    st.integers(0, 9).map(Integer),
    st.sampled_from(NAMES).map(var),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).map(
        lambda pair: Arithmetic("-", var(pair[0]), var(pair[1]))
    ),
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_sequential_updates_mean_the_same_as_simultaneous_ones(updates):
    before = {name: 10 * place + 1 for place, name in enumerate(NAMES)}
    at_once = before | {name: evaluate(value, before) for name, value in updates.items()}
    kept, ordered = sequential(updates.items())
    now, aside = dict(before), {name: before[name] for name in kept}
    for name, value in ordered:
        now[name] = evaluate(value, now | aside)
    assert now == at_once


def test_numbers_that_do_not_fit_are_refused_with_their_line():
    machine = loads("""# big

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..99999 | 1       |

## Transitions
| source | event | if | update | target |
| ------ | ----- | -- | ------ | ------ |
| s      | x     | n * n * n < 7 | n = 2 | s |
""")
    with pytest.raises(DsaError, match=r"line 11: .*SPIN computes with"):
        require_small(closed_model(machine), "SPIN")
    several = attrs.evolve(
        machine.transitions[0],
        condition=compare(Arithmetic("*", Count((compare("n", ">", 0),) * 3), Integer(10**9)), "<", 7),
    )
    with pytest.raises(DsaError, match=r"line 11: .*numbers from 0 to 3000000000, but SPIN computes with"):
        require_small(closed_model(attrs.evolve(machine, transitions=(several,))), "SPIN")
    assert "n * n * n" not in emit(attrs.evolve(machine, transitions=machine.transitions[:0]), "promela")


def test_start_outside_its_domain_is_refused():
    wrong = attrs.evolve(dual_state().variables[1], initial=Integer(7))
    machine = attrs.evolve(dual_state(), variables=(dual_state().variables[0], wrong))
    for tool in ("promela", "tla", "prism", "scxml", "xstate"):
        with pytest.raises(DsaError, match="retries starts at 7, outside its domain"):
            emit(machine, tool)


def test_step_that_changes_nothing_is_idle():
    base = dual_state().transitions[0]
    row = attrs.evolve(base, event="ping", target="=", effects=(), updates=(assign("retries", 0),))
    laid = closed_model(_with_ping(row))
    idle = {step.command.occurrence.event: unparse(laid.is_idle(step)) for step in laid.steps}
    assert idle["ping"] == unparse(compare("retries", "==", 0))
    assert idle["specification"] == "false"


def _with_ping(row):
    machine = dual_state(ping=row)
    return attrs.evolve(machine, events=(*machine.events, attrs.evolve(machine.events[0], name="ping")))
