"""Properties of random machines are judged as the page says they are meant, and traces show what they claim."""

from collections import Counter
from collections.abc import Callable
from time import process_time

import attrs
import naive
import pytest
from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import HealthCheck, Phase, event, given, reject, settings
from hypothesis import strategies as st
from random_sample import uses_three_additions
from sample_sizes import sample_size

from dsa.checks import properties
from dsa.checks.monitor import is_monitor, monitor
from dsa.checks.properties import PropertyValue, Questions, judge
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import (
    Always,
    AtMost,
    EverywherePossible,
    ExpectedCount,
    Form,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Probability,
    Property,
    UnchangedClaim,
)
from dsa.expr import TRUE, EnumDomain, guards_read
from dsa.machine import Machine
from dsa.semantics import Occurrence
from dsa.system import closed_system
from dsa.testing import strategies
from dsa.testing.strategies import label, one_in, skeletons

MANY = settings(max_examples=sample_size(18, full=60), deadline=None)
LIMITS = SearchLimits(100_000)


@st.composite
def claimed_machines(draw: st.DrawFn, least: int = 6) -> Machine:
    """Draw a machine with many properties."""
    skeleton = draw(skeletons())
    rows = tuple(strategies.drawn_row(draw, skeleton) for _ in range(draw(st.integers(1, 12))))
    claims = tuple(strategies.claim(draw, skeleton) for _ in range(least))
    machine = strategies.with_end(draw, attrs.evolve(skeleton.machine, transitions=rows), skeleton)
    return attrs.evolve(machine, properties=claims)


@MANY
@given(machine=claimed_machines() | crowded_machines(claims=6) | family_machines(), is_counted=st.booleans())
def test_verdicts_and_trace_lengths_agree_with_the_oracle(machine: Machine, *, is_counted: bool) -> None:
    compare(machine, is_counted=is_counted)


def judgements(
    machine: Machine, forms: list[Form], traces: int = 1, *, is_counted: bool = False
) -> list[tuple[Form, PropertyValue]]:
    counted = machine.effects_with_answers if is_counted else ()
    questions = Questions(closed_system(machine, counted_effects=counted), forms)
    found = judge(questions, questions.search(LIMITS), LIMITS, traces=traces)
    return [(form, found[form]) for form in forms]


def compare(machine: Machine, *, is_counted: bool = False) -> None:
    forms = [claim.form for claim in machine.properties if not isinstance(claim.form, Probability | ExpectedCount)]
    for form, judged in judgements(machine, forms, is_counted=is_counted):
        try:
            expected = naive.violated(machine, form)
        except naive.TooLargeError:
            reject()
        broken = (expected is None) == isinstance(form, Possible)
        event(f"{type(form).__name__} {judged.verdict}")
        assert judged.verdict == ("VIOLATED" if broken else "HOLDS")
        if expected is not None:
            assert judged.trace is not None
            steps = len(judged.trace.steps) if judged.loop is None else judged.loop
            assert steps == expected
        if isinstance(form, LeadsTo) and judged.loop is not None:
            moments = naive.run(machine, [taken.occurrence for taken in judged.trace.steps])
            assert naive.lasso_is_real(machine, form, moments, judged.loop)
        if isinstance(form, LeadsTo) and judged.verdict == "HOLDS":
            event(f"relies on {len(judged.relies_on)}")
            assert list(judged.relies_on) == naive.relied_on(machine, form)


@st.composite
def restless_machines(draw: st.DrawFn) -> Machine:
    """Draw a machine that can go on for long, and claims that something leads to something, mostly under fairness."""
    skeleton = draw(skeletons())
    rows = tuple(strategies.drawn_row(draw, skeleton) for _ in range(draw(st.integers(6, 20))))
    rows = tuple(attrs.evolve(row, condition=TRUE) if one_in(draw, 2) else row for row in rows)
    machine = strategies.with_end(draw, attrs.evolve(skeleton.machine, transitions=rows), skeleton)
    moments = skeleton.moments()

    def claim() -> Property:
        return Property(strategies.leads_to(draw, machine, label(draw, moments), label(draw, moments)))

    return attrs.evolve(machine, properties=tuple(claim() for _ in range(8)))


@settings(max_examples=sample_size(18, full=50), deadline=None)
@given(machine=restless_machines(), is_counted=st.booleans())
def test_leads_to_agrees_with_the_oracle(machine: Machine, *, is_counted: bool) -> None:
    compare(machine, is_counted=is_counted)


@settings(max_examples=sample_size(24, full=100), deadline=None)
@given(claimed_machines() | crowded_machines(claims=6) | family_machines())
def test_further_counterexamples_are_real_and_take_other_rows(machine: Machine) -> None:
    forms = [claim.form for claim in machine.properties if isinstance(claim.form, naive.TRACED)]
    for form, judged in judgements(machine, forms, traces=3):
        if judged.verdict != "VIOLATED" or judged.trace is None:
            continue
        rows = [
            frozenset(id(taken.row) for taken in trace.steps)
            for trace in (judged.trace, *(more for more, _ in judged.more))
        ]
        assert len(rows) == len(set(rows)) <= 3
        for trace, loop in judged.more:
            event(f"more {type(form).__name__}")
            moments = naive.run(machine, [taken.occurrence for taken in trace.steps])
            if isinstance(form, LeadsTo):
                assert naive.lasso_is_real(machine, form, moments, loop)
            else:
                assert naive.watched(machine, form, moments) == "violated"
                assert len(trace.steps) >= len(judged.trace.steps)
        if judged.passing_run is not None:
            event(f"passing {type(form).__name__}")
            moments = naive.run(machine, [taken.occurrence for taken in judged.passing_run.steps])
            assert not naive.promises(machine, moments[-1].after)
            assert naive.watched(machine, form, moments) != "violated"


@MANY
@given(claimed_machines() | crowded_machines(claims=6) | family_machines(), st.data())
def test_monitors_agree_with_the_oracle_on_one_run(machine: Machine, data: st.DataObject) -> None:
    happened: list[Occurrence] = []
    here = naive.first(machine).after
    for _ in range(data.draw(st.integers(0, 12))):
        moments = naive.following(machine, here)
        if not moments:
            break
        moment = moments[data.draw(st.integers(0, len(moments) - 1))]
        happened.append(moment.occurrence)
        here = moment.after
    run, known = properties.moments(machine, happened), naive.run(machine, happened)
    for claim in machine.properties:
        assert is_monitor(claim.form) == isinstance(claim.form, naive.TRACED)
        if is_monitor(claim.form):
            said = monitor(claim.form, run, is_complete=here.state in machine.final_states)
            event(f"{type(claim.form).__name__} {said.verdict}")
            assert said.verdict == naive.watched(machine, claim.form, known)


@pytest.mark.full
@settings(max_examples=2_000, deadline=None)
@given(restless_machines())
def test_leads_to_agrees_with_the_oracle_on_many_machines(machine: Machine) -> None:
    compare(machine)


COMPARED = (Always, Never, Possible, EverywherePossible, OnlyAfter, AtMost, UnchangedClaim, LeadsTo)


def features(machine: Machine) -> dict[str, bool]:
    """Return what a machine has of the language that a verdict may turn on."""
    rows, forms = machine.transitions, [claim.form for claim in machine.properties]
    timers = {row.event for row in rows if row.is_timer}
    values = {value for v in machine.variables if isinstance(v.domain, EnumDomain) for value in v.domain.values}
    promised = [form for form in forms if isinstance(form, LeadsTo)]
    return {
        **{form.__name__: any(isinstance(each, form) for each in forms) for form in COMPARED},
        "timers": bool(timers),
        "timers of two lengths": len(timers) > 1,
        "an end": bool(machine.ends),
        "else": any(row.is_else for row in rows),
        "verdicts": any(guards_read(row.condition) for row in rows),
        "workflow state": any(variable.scope == "workflow" for variable in machine.variables),
        "states in states": bool(machine.parents),
        "rows for failures": any(machine.is_failure(row.event) for row in rows),
        "failures ignored": any(row.is_ignoring for row in rows),
        "on failure: stop": any(effect.on_failure for effect in machine.effects),
        "literals with other names": bool(values & {*machine.leaves, *machine.event_named, *machine.effect_named}),
        "strong fairness": any(form.fair and not form.is_weak for form in promised),
        "weak fairness": any(form.is_weak for form in promised),
        "even if it fails": any(form.doubtful_effects("fails") for form in promised),
        "even if it never answers": any(form.doubtful_effects("never answers") for form in promised),
    }


@pytest.mark.full
def test_verdicts_agree_on_three_thousand_machines_that_have_every_feature(
    told: Callable[[str], None],
) -> None:
    met, started = Counter[str](), process_time()
    kinds = (claimed_machines(8), restless_machines(), crowded_machines(claims=6), family_machines())

    @settings(max_examples=3_100, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.one_of(*kinds), st.booleans())
    def search(machine: Machine, is_counted: bool) -> None:  # noqa: FBT001  (drawn)
        compare(machine, is_counted=is_counted)
        met.update(features(machine))
        met.update({"machines": 1, "three additions": uses_three_additions(machine)})

    search()
    told(f"the naive oracle: {dict(met.most_common())}, {process_time() - started:.0f} s of processor time")
    seldom = {name: count for name, count in met.items() if count < 200}
    assert met["machines"] >= 3_000, met
    assert met["three additions"] >= 1_000, met
    assert not seldom, met
