"""The rules S1 to S11 of specs/semantics.md, one test for each sentence about `start` and `step`."""

import pytest

from dsa.errors import OccurrenceError
from dsa.lang import loads
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, accepted_events, start, step

TEXT = """# m
## Parameters
| parameter | domain | default |
|-|-|-|
| limit | 0.. | 2 |
## Variables
| variable | scope | domain | initial |
|-|-|-|-|
| ok | workflow | bool | false |
| n | | 0..limit | 0 |
| k | | 0..9 | 5 |
## Events
| event | from |
|-|-|
| go | outside |
| stop | outside |
| text | ask |
| more | ask |
| verdict | judge |
## Guards
| guard | judges |
|-|-|
| g | verdict, text |
| h | verdict |
## Effects
| effect |
|-|
| ask |
| judge |
| log |
## States
| state | kind |
|-|-|
| idle | initial |
| busy | |
| busy.inner | initial |
| busy.inner.deep | initial |
| busy.other | |
| done | final |
## Transitions
"""


def machine(*rows):
    """Return a machine with rows `source | event | if | update | effects | target`."""
    return loads(
        TEXT
        + "| source | event | if | update | effects | target |\n|-|-|-|-|-|-|\n"
        + "".join(f"| {row} |\n" for row in rows)
    )


def at(state, n=0, outstanding=(), *, ok=False, k=5):
    return Configuration(state, (ok, n, k), frozenset(outstanding))


def reason(answer):
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_s1_run_starts_in_the_innermost_initial_state_with_nothing_outstanding():
    made = machine("busy | go | | | | =").at(limit=1)
    assert start(made) == at("idle")
    assert made.entry_leaf("busy") == "busy.inner.deep"
    assert hash(start(made)) == hash(at("idle"))


def test_s2_exactly_the_guards_that_are_read_have_a_verdict():
    made = machine(
        "idle | verdict | g.passed | | | =",
        "idle | verdict | g.failed | | | =",
        "busy | verdict | h.passed | | | =",
        "busy.inner | verdict | | | | =",
    )
    here = at("idle", outstanding=["judge"])
    assert isinstance(step(made, here, Occurrence("verdict", {"g": "passed"})), Taken)
    for wrong in ({}, {"h": "passed"}, {"g": "passed", "h": "passed"}, [("g", "passed"), ("g", "failed")]):
        with pytest.raises(OccurrenceError, match="needs one verdict each from: g"):
            step(made, here, Occurrence("verdict", wrong))
    assert isinstance(step(made, at("busy.inner.deep", outstanding=["judge"]), Occurrence("verdict")), Taken)
    with pytest.raises(OccurrenceError, match="needs one verdict each from: h"):
        step(made, at("busy.other", outstanding=["judge"]), Occurrence("verdict"))


def test_s2_data_does_not_affect_a_step():
    made = machine("idle | go | | | | busy")
    assert step(made, at("idle"), Occurrence("go", data=object())) == step(made, at("idle"), Occurrence("go"))
    assert Occurrence("go", data=1) == Occurrence("go", data=2)


def test_s3_rows_of_the_innermost_state_replace_all_outer_ones():
    made = machine("* | go | | | | idle", "busy | go | | | | done", "busy.inner | go | n > 0 | | | busy.other")
    assert step(made, at("busy.other"), Occurrence("go")).configuration.state == "done"
    assert step(made, at("busy.inner.deep", 1), Occurrence("go")).configuration.state == "busy.other"
    assert reason(step(made, at("busy.inner.deep", 0), Occurrence("go"))) == "invalid_state"
    assert step(made, at("idle"), Occurrence("go")).configuration.state == "idle"


def test_s3_star_encloses_every_state_except_final_ones():
    made = machine("* | go | | | | done")
    assert [step(made, at(state), Occurrence("go")).configuration.state for state in ("idle", "busy.other")] == [
        "done"
    ] * 2
    assert reason(step(made, at("done"), Occurrence("go"))) == "finished"


def test_s3_else_is_true_if_no_other_row_is_and_may_have_a_condition():
    made = machine(
        "idle | go | n == 0 | | | done", "idle | go | else and n == 1 | | | busy", "idle | go | else and n == 2 | | | ="
    )
    assert [step(made, at("idle", n), Occurrence("go")).configuration.state for n in (0, 1, 2)] == [
        "done",
        "busy.inner.deep",
        "idle",
    ]


def test_s3_row_order_carries_no_meaning():
    rows = ["idle | go | else | | | =", "idle | go | n == 0 | | | done", "idle | go | n == 1 | | | busy"]
    for n in (0, 1, 2):
        found = {step(machine(*order), at("idle", n), Occurrence("go")).configuration for order in (rows, rows[::-1])}
        assert len(found) == 1


def test_s4_refusal_changes_nothing_and_lists_the_accepted_events():
    made = machine(
        "idle | go | n > 0 | | | =", "idle | after 30s | | | | =", "* | stop | | | | done", "busy | more | | | | ="
    )
    refused = step(made, at("idle"), Occurrence("go"))
    assert refused.configuration == at("idle")
    assert refused.accepted == accepted_events(made, "idle") == ("after 30s", "go", "stop")
    assert refused.rows == made.rows_for("idle", "go")
    assert accepted_events(made, "done") == ()


REASONS = {
    "finished": ("done", Occurrence("text"), ()),
    "late": ("idle", Occurrence("text"), ()),
    "invalid_state": ("busy.other", Occurrence("go"), ()),
    "ambiguous": ("idle", Occurrence("stop"), ()),
    "out_of_domain": ("idle", Occurrence("go"), ["ask"]),
}


@pytest.mark.parametrize("name", REASONS)
def test_s4_first_reason_that_applies_is_reported(name):
    made = machine(
        "idle | go | | n = limit + 1 | ask | =", "idle | stop | | n = 9 | | =", "idle | stop | n == 0 | n = 9 | | =", "idle | text | | n = 9 | | =",
    )  # fmt: skip
    state, occurrence, outstanding = REASONS[name]
    assert reason(step(made, at(state, outstanding=outstanding), occurrence)) == name


def test_s4_emitted_twice_is_the_last_reason():
    made = machine("idle | go | | | ask | =", "idle | stop | | | log, log | =", "busy | go | | | ask, ask | =")
    assert reason(step(made, at("idle", outstanding=["ask"]), Occurrence("go"))) == "emitted_twice"
    assert step(made, at("idle"), Occurrence("stop")).effects == ("log", "log")
    assert reason(step(made, at("busy.other"), Occurrence("go"))) == "emitted_twice"


@pytest.mark.parametrize(
    ("occurrence", "message"),
    [
        (Occurrence("nothing"), "no event 'nothing'"),
        (Occurrence("go", {"x": "passed"}), "no guard 'x'"),
        (Occurrence("go", {"g": "maybe"}), "cannot say 'maybe'"),
        (Occurrence("go", source="idle"), "only a timer has a source"),
        (Occurrence("after 30s"), "no timer 'after 30s' in None"),
        (Occurrence("after 30s", source="busy"), "no timer 'after 30s' in busy"),
        (Occurrence("after 31s", source="idle"), "no timer 'after 31s'"),
    ],
)
def test_s4_malformed_occurrence_raises_even_in_a_final_state(occurrence, message):
    made = machine("idle | go | | | | =", "idle | after 30s | | | | =")
    for state in ("idle", "done"):
        with pytest.raises(OccurrenceError, match=message):
            step(made, at(state), occurrence)


def test_s5_updates_read_the_values_before_the_step():
    made = machine("idle | go | | n = k - 4; k = n; ok = n == 0 | | =")
    assert step(made, at("idle", 0), Occurrence("go")).configuration.values == (True, 1, 0)


@pytest.mark.parametrize(("limit", "taken"), [(2, False), (3, True)])
def test_s5_value_outside_its_domain_at_these_parameters_is_refused(limit, taken):
    made = machine("idle | go | | n += 1 | | =").at(limit=limit)
    assert isinstance(step(made, at("idle", 2), Occurrence("go")), Taken) == taken


def test_s6_effects_come_in_the_order_written():
    made = machine("idle | go | | | log, ask, judge, log | busy")
    taken = step(made, at("idle"), Occurrence("go"))
    assert taken.effects == ("log", "ask", "judge", "log")
    assert taken.configuration.outstanding == ("ask", "judge")


def test_s7_answer_discharges_its_effect_before_the_row_emits():
    made = machine("idle | text | | | ask | =", "idle | go | | | ask | =")
    taken = step(made, at("idle", outstanding=["ask", "judge"]), Occurrence("text"))
    assert taken.configuration.outstanding == ("ask", "judge")
    assert taken.cancelled == ()


def test_s7_cancel_drops_only_outstanding_effects():
    made = machine(
        "idle | go | | | cancel ask, log | =", "idle | stop | | | cancel, ask | =", "busy | go | | | judge, cancel | ="
    )
    taken = step(made, at("idle", outstanding=["ask", "judge"]), Occurrence("go"))
    assert (taken.configuration.outstanding, taken.cancelled, taken.effects) == (("judge",), ("ask",), ("log",))
    assert step(made, at("idle"), Occurrence("go")).cancelled == ()
    again = step(made, at("idle", outstanding=["ask", "judge"]), Occurrence("stop"))
    assert (again.configuration.outstanding, again.cancelled) == (("ask",), ("ask", "judge"))


def test_s7_final_state_cancels_all_effects():
    made = machine("idle | go | | | log | done")
    taken = step(made, at("idle", outstanding=["ask", "judge"]), Occurrence("go"))
    assert (taken.configuration.outstanding, taken.cancelled, taken.effects) == (
        (),
        ("ask", "judge"),
        ("log",),
    )


def test_s7_second_answer_is_late():
    made = machine("idle | text, more | | | | =")
    taken = step(made, at("idle", outstanding=["ask"]), Occurrence("text"))
    assert reason(step(made, taken.configuration, Occurrence("more"))) == "late"


def test_s7_failure_of_an_effect_is_one_of_its_answers():
    made = machine("idle | ask.failed | | | | busy", "idle | go | | | log | =")
    assert step(made, at("idle", outstanding=["ask"]), Occurrence("ask.failed")).configuration == at("busy.inner.deep")
    assert reason(step(made, at("idle"), Occurrence("ask.failed"))) == "late"
    assert reason(step(made, at("busy.other", outstanding=["ask"]), Occurrence("ask.failed"))) == "invalid_state"
    with pytest.raises(OccurrenceError):
        step(made, at("idle"), Occurrence("log.failed"))
    assert made.failures_handled == {"ask"}


def test_s8_step_is_pure():
    made = machine("idle | go | | n += 1 | ask | busy")
    before = at("idle")
    assert step(made, before, Occurrence("go")) == step(made, before, Occurrence("go"))
    assert before == at("idle")


def test_s9_revoke_restores_the_initial_value():
    made = machine("idle | go | | revoke ok; n = 1 | | =")
    assert step(made, at("idle", ok=True), Occurrence("go")).configuration.values == (False, 1, 5)


def test_s11_timer_is_armed_in_its_source_and_all_states_inside():
    made = machine(
        "busy | after 30s | | | | done", "busy.inner | after 30s | | | | busy.other", "* | after 1h | | | | idle"
    )
    assert made.armed_timers("busy.inner.deep") == (
        ("busy.inner", "after 30s"),
        ("busy", "after 30s"),
        ("*", "after 1h"),
    )
    assert made.armed_timers("done") == ()
    assert reason(step(made, at("idle"), Occurrence("after 30s", source="busy"))) == "late"
    assert step(made, at("idle"), Occurrence("after 1h", source="*")).configuration.state == "idle"


def test_s11_only_rows_of_the_source_are_candidates():
    made = machine("busy | after 30s | n == 0 | | | done", "busy.inner | after 30s | | | | busy.other")
    inside = at("busy.inner.deep")
    assert step(made, inside, Occurrence("after 30s", source="busy")).configuration.state == "done"
    assert step(made, inside, Occurrence("after 30s", source="busy.inner")).configuration.state == "busy.other"
    assert reason(step(made, at("busy.other", 1), Occurrence("after 30s", source="busy"))) == "invalid_state"


def test_s11_timer_discharges_nothing():
    made = machine("idle | after 30s | | | | =")
    assert step(
        made, at("idle", outstanding=["ask"]), Occurrence("after 30s", source="idle")
    ).configuration.outstanding == ("ask",)
