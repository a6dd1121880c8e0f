"""Pictures: what all diagrams have in common."""

from pathlib import Path
from unittest.mock import patch

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsa.semantics as semantics_module
from dsa.declarations import Emit, Event, State, Transition
from dsa.expr import And, Compare, Integer, Name, Not, Or, Verdict
from dsa.lang import loads, spell_out
from dsa.machine import Machine
from dsa.semantics import Taken, may_be_outstanding, start, step
from dsa.targets import dot, mermaid
from dsa.targets.picture import (
    Frame,
    folded_lines,
    folded_list,
    label_lines,
    label_text,
    outcome_of,
    picture,
    picture_rows,
    row_texts,
    sets_workflow,
    wrap_text,
)
from dsa.testing.strategies import machines, occurrences

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
PASSED, FAILED = Verdict("g", "passed"), Verdict("g", "failed")
LOW = Compare(Name("retries", "variable"), (("<", Integer(3)),))


def test_states_nest_and_sources_for_many_states_come_first(review):
    frame = picture(review).frame
    every, idle, inner, closed = frame.inside
    assert (every.source, every.stands_for_all) == ("*", True)
    assert (idle.source, idle.stands_for_all, closed.is_final) == ("idle", False, True)
    assert isinstance(inner, Frame)
    assert inner.entry == "review.drafting"
    assert [item.source for item in inner.inside] == [
        "review", "review.drafting", "review.checking", "review.waiting", "review.done",
    ]  # fmt: skip


def test_undeclared_parents_have_frames():
    machine = Machine("m", (), (State("a.b.c", "initial"), State("d", "initial")), "d")
    outer = picture(machine).frame.inside[0]
    assert (outer.name, outer.entry) == ("a.b", "a.b.c")
    assert [item.source for item in outer.inside] == ["a.b.c"]


def test_parent_that_is_never_entered_and_has_no_rows_has_no_frame():
    machine = Machine("m", (), (State("idle", "initial"), State("generating.x"), State("generating.y")), "idle")
    assert [item.source for item in picture(machine).frame.inside] == ["idle", "generating.x", "generating.y"]


def test_every_row_is_an_arrow_or_a_line_in_a_box(review):
    drawn = picture(review)
    assert [each.row for arrow in drawn.arrows for each in arrow.rows] == [
        row for row in review.transitions if row.target != "="
    ]
    assert [(each.number, each.row.event) for each in drawn.frame.inside[0].internal] == [(12, "draft")]


def many_rows(count: int) -> Machine:
    """Return a machine of two states with `count` rows: three of four lead from `a` to `b`, and every fourth stays."""
    events = tuple(Event(f"e{number % 7}") for number in range(7))
    rows = (Transition("a", f"e{number % 7}", "=" if number % 4 == 0 else "b") for number in range(1, count + 1))
    return Machine("m", tuple(rows), (State("a", "initial"), State("b")), "a", events=events)


@pytest.mark.parametrize(("count", "full", "is_folded"), [(25, False, False), (26, False, True), (26, True, False)])
def test_large_machine_is_folded_unless_the_full_picture_is_requested(count, full, is_folded):
    drawn = picture(many_rows(count), full=full)
    assert drawn.is_folded == is_folded
    assert [len(arrow.rows) for arrow in drawn.arrows] == ([20] if is_folded else [1] * (count - count // 4))


def test_machine_with_many_wide_rows_from_one_state_is_folded():
    long = tuple(Emit(f"an_effect_with_a_long_name_{number}") for number in range(2))
    rows = tuple(Transition("a", f"e{number}", "b", effects=long) for number in range(4))
    events = tuple(Event(f"e{number}") for number in range(4))
    machine = Machine("m", rows, (State("a", "initial"), State("b")), "a", events=events)
    assert not picture(machine, full=False).is_folded
    wide = tuple(attrs.evolve(row, event=f"{row.event}_{'m' * 30}") for row in rows)
    assert picture(attrs.evolve(machine, transitions=wide), full=False).is_folded
    apart = tuple(attrs.evolve(row, source=source) for row, source in zip(wide, "abab", strict=True))
    assert not picture(attrs.evolve(machine, transitions=apart), full=False).is_folded


def test_folded_picture_has_every_row_once_and_lists_its_text():
    machine = many_rows(40)
    drawn = picture(machine, full=False)
    shown = [each for arrow in drawn.arrows for each in arrow.rows] + [
        each for box in drawn.frame.inside for each in box.internal
    ]
    assert sorted(each.number for each in shown) == list(range(1, 41))
    assert all(machine.transitions[each.number - 1] is each.row for each in shown)
    listed = folded_list(machine)
    assert [row.row.number for row in listed["a"]] == list(range(1, 41))
    assert (listed["a"][3].leads, listed["a"][4].leads) == ("stays", "to b")
    assert [row.text for row in listed["a"]] == [label_text(row_texts(row)) for row in machine.transitions]


def test_folded_label_has_each_event_once_with_the_numbers_of_its_rows():
    (arrow,) = picture(many_rows(30), full=False).arrows
    assert folded_lines(arrow.rows) == (
        "e1 1, 15, 22, 29", "e2 2, 9, 23, 30", "e3 3, 10, 17", "e5 5, 19, 26", "e6 6, 13, 27", "e0 7, 14, 21", "e4 11, 18, 25",
    )  # fmt: skip


def test_waiting_effects_passed_in_replace_the_estimate(dual_state):
    assert _waits(dual_state, None)["generating"] == ("query_llm",)
    assert _waits(dual_state, {"generating": frozenset({"z", "a"})}) == {"generating": ("a", "z")}


def _waits(machine, waiting):
    return {box.source: box.waits_for for box in picture(machine, waiting).frame.inside if box.waits_for}


def test_effect_stays_outstanding_until_answered_cancelled_or_final(review):
    assert {state: set(waits) for state, waits in may_be_outstanding(review).items() if waits} == {
        "review.drafting": {"write_draft"},
        "review.checking": {"run_checks"},
        # `after 30s` carries write_draft here; it cancels run_checks.
        "review.waiting": {"write_draft"},
    }


def test_row_for_an_answer_is_not_taken_where_its_effect_cannot_be_outstanding():
    rows = (Transition("a", "go", "b"), Transition("b", "done", "c", effects=(Emit("ask"),)))
    states = (State("a", "initial"), State("b"), State("c"))
    machine = Machine("m", rows, states, "a", events=(Event("go"), Event("done", "ask")))
    assert may_be_outstanding(machine) == {"a": frozenset(), "b": frozenset(), "c": frozenset()}


def test_estimate_takes_a_row_although_its_effect_may_be_outstanding():
    """`b` is entered with `ask` outstanding or not; only if it is not, the row that emits it again is taken."""
    rows = (
        Transition("a", "loud", "b", effects=(Emit("ask"),)),
        Transition("a", "still", "b"),
        Transition("b", "still", "c", effects=(Emit("ask"), Emit("tell"))),
    )
    events = (Event("loud"), Event("still"), Event("told", "tell"), Event("asked", "ask"))
    machine = Machine("m", rows, (State("a", "initial"), State("b"), State("c")), "a", events=events)
    assert may_be_outstanding(machine)["c"] == {"ask", "tell"}


@pytest.mark.parametrize("most_sets", [0, 3, 5_000])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_estimate_has_every_effect_that_a_run_waits_for(most_sets, data):
    machine = data.draw(machines(claims=False))
    with patch.object(semantics_module, "_MOST_SETS", most_sets):
        estimate, here = may_be_outstanding(machine), start(machine)
    for _ in range(10):
        answer = step(machine, here, data.draw(occurrences(machine, here, with_malformed=False)))
        if isinstance(answer, Taken):
            here = answer.configuration
            assert estimate[here.state].issuperset(here.outstanding)


def test_label_breaks_between_operands_and_effects():
    condition = And((PASSED, LOW, LOW, LOW))
    effects = tuple(Emit(name) for name in ("refine_context", "query_llm", "reply"))
    lines = label_lines(row_texts(Transition("a", "verdict", "b", condition, effects=effects)), width=30)
    assert [line.text for line in lines] == [
        "verdict",
        "[g.passed and retries < 3",
        "and retries < 3",
        "and retries < 3]",
        "/ refine_context, query_llm,",
        "reply",
    ]


def test_label_on_one_line_has_event_condition_updates_and_effects(dual_state):
    assert label_text(row_texts(dual_state.transitions[2])) == (
        "verdict [g.passed] / satisfied = true, retries = 0, advance_state, reply_to_user"
    )


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        (PASSED, "passed"),
        (And((FAILED, LOW)), "failed"),
        (Or((PASSED, FAILED)), None),
        (Not(PASSED), None),
        (LOW, None),
    ],
)
def test_outcome_of_a_row_is_its_only_verdict_if_not_negated(condition, outcome):
    assert outcome_of(Transition("a", "e", "b", condition)) == outcome


def test_rows_that_set_or_revoke_workflow_state_are_marked(review):
    marked = [row.event for row in review.transitions if sets_workflow(review, row)]
    assert marked == ["withdrawn", "checked"]
    plain = attrs.evolve(review, variables=tuple(attrs.evolve(v, scope="environment") for v in review.variables))
    assert not any(sets_workflow(plain, row) for row in plain.transitions)


ENDING = """# m
## Variables
| variable | domain | initial |
| - | - | - |
| done | 0..3 | 0 |
| signed | bool | false |
## States
| state | kind |
| - | - |
| ready | initial, end when done == 3 and signed or done < 0 and not signed |
| other | |
## Transitions
| source | event | target |
| - | - | - |
| ready | go | other |
"""


def test_end_condition_is_in_the_box_of_its_state():
    machine = loads(ENDING)
    ready, other = picture(machine).frame.inside
    assert (ready.end, other.end) == ("end when done == 3 and signed or done < 0 and not signed", "")
    assert wrap_text(ready.end) == ("end when done == 3 and signed", "or done < 0 and not signed")
    assert wrap_text(other.end) == ()
    assert "s_ready : end when done == 3 and signed or done < 0 and not signed\n" in mermaid(machine)
    assert "<B>or done &lt; 0 and not signed</B>" in dot(machine)


def test_row_with_families_is_one_arrow_with_its_original_texts():
    machine = loads((FAMILIES / "credit_check.md").read_text(encoding="utf-8"))
    rows = picture_rows(machine)
    assert [each.number for each in rows] == [*range(1, 11)]
    assert [label_text(each.texts) for each in rows][:3] == [
        "submit / all b: look[b]",
        "good[b] [pending] / report[b] = good",
        "good[b] [not pending] / report[b] = good, decide",
    ]
    drawn = picture(machine)
    assert sum(len(arrow.rows) for arrow in drawn.arrows) == 7
    assert "good[b]<BR" not in mermaid(machine)
    assert "submit<br/>/ all b∶ look[b]" in mermaid(machine)  # a colon would end the label
    spelled = picture_rows(spell_out(machine))
    assert len(spelled) == len(machine.transitions)
    assert label_text(spelled[0].texts) == "submit / look[equifax], look[experian], look[transunion]"


def test_list_of_events_with_families_is_one_arrow_for_each_event():
    text = (FAMILIES / "credit_check.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| checking | good[b]", "| checking | poor[b]"))]
    for row in rows[2:]:
        text = text.replace(f"{row}\n", "")
    machine = loads(text.replace("| good[b]        |", "| good[ b ] , poor[b] |"))
    assert [each.texts.event for each in picture_rows(machine)][:5] == [
        "submit",
        "good[b]",
        "poor[b]",
        "good[b]",
        "poor[b]",
    ]
