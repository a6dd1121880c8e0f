import pytest
from example_machines import dual_state, two_phase_commit

from dsa.checks.explanation import why
from dsa.edge.document_files import locate
from dsa.errors import OccurrenceError
from dsa.lang import loads


def test_every_verdict_and_value_is_explained():
    found = why(dual_state(), "verdict", "validating")
    assert found.source == "validating"
    assert sum(case.count for case in found.cases) == 3 * 4
    outcomes = {(case.verdicts[0][1], dict(case.values)["retries"] < 3): case for case in found.cases}
    exhausted = outcomes["failed", False]
    refine = exhausted.rows[1]
    assert not refine.is_enabled
    assert refine.conjuncts == (("g.failed", True), ("retries < rmax", False))
    assert exhausted.rows[3].is_enabled
    assert exhausted.rows[3].conjuncts[0] == ("else", True)


def test_only_the_chosen_values_and_verdicts_are_explained():
    found = why(dual_state(), "verdict", "validating", {"retries": 3}, {"g": "failed"})
    (case,) = found.cases
    assert (case.outcome, case.count) == ("taken", 1)
    assert "=> line 45: validating | verdict | failed" in found.show()
    assert "not taken: retries < rmax is false" in found.show()


def test_event_without_rows_is_refused_and_the_accepted_ones_are_named():
    found = why(dual_state(), "verdict", "idle")
    assert found.source is None
    assert found.show() == "verdict has no row in idle: it is refused. Accepted there: specification."
    assert why(dual_state(), "verdict", "failed").show() == "failed is final: every event is refused there (finished)."


def test_enabled_row_that_cannot_be_taken_is_refused():
    row = "g.failed and retries < rmax |"
    text = locate("dual_state").read_text(encoding="utf-8")
    found = why(
        loads(text.replace(row, row.replace("<", "<="))), "verdict", "validating", {"retries": 3}, {"g": "failed"}
    )
    assert [case.outcome for case in found.cases] == ["out_of_domain"]
    assert "refused: out_of_domain (retries = 4 lies outside 0..3)" in found.show()


def test_refusals_are_named_by_their_reason():
    shown = why(dual_state(exhaust=None), "verdict", "validating", {"retries": 3}, {"g": "failed"}).show()
    assert "refused: invalid_state (no row for verdict is enabled)" in shown
    assert why(two_phase_commit(), "commit", "deciding").cases[0].outcome == "invalid_state"


def test_unknown_event_error_lists_timers_too():
    with pytest.raises(OccurrenceError, match=r"has no event 'nope'; known here: .*after 30s"):
        why(loads(locate("examples/polling").read_text(encoding="utf-8")), "nope", "waiting")


@pytest.mark.parametrize(("event", "state", "values", "verdicts"), [
    ("verdikt", "validating", {}, {}),
    ("verdict", "nowhere", {}, {}),
    ("verdict", "validating", {"retries": 9}, {}),
    ("verdict", "validating", {}, {"g": "maybe"}),
])  # fmt: skip
def test_unknown_names_are_refused(event, state, values, verdicts):
    with pytest.raises(OccurrenceError):
        why(dual_state(), event, state, values, verdicts)
