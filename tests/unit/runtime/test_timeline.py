"""Timelines: the events of a ledger with their outcomes, and the first one on which another table differs."""

import attrs
import pytest
from example_machines import dual_state
from stored_runs import SHOP, begun

from dsa.edge.document_files import locate, read_text
from dsa.lang import loads
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
)
from dsa.runtime.run import begin, oldest_key
from dsa.runtime.timeline import event_records, first_difference, percepts
from dsa.semantics import Occurrence

TIMED = SHOP.replace(
    "| resting | more       |           | succeeded |", "| resting | after 2s | | succeeded |"
).replace("| more     | outside |\n", "")


def shopping(text=SHOP):
    """Return a run with an order, an unexpected event, a late answer and a payment."""
    run = begun(text)
    run = run.record(ResumedEntry(effects={"0/1": "again"}))
    run, _ = run.feed(Occurrence("order", data="tea"))
    key = oldest_key(run.keys, "pay")
    run = run.record(ResultEntry("1/1"))
    if "| more " in text:
        run, _ = run.feed(Occurrence("more"))
    run, _ = run.feed(Occurrence("paid"), key="another")
    run, _ = run.feed(Occurrence("paid"), key=key)
    return run


def test_each_event_is_recorded_with_its_outcome_and_effects():
    before, order, *_, paid = event_records(shopping().ledger)
    assert (before.event, before.outcome) == (None, None)
    assert [type(entry) for entry in before.after] == [ResumedEntry]
    assert (order.event.event, order.outcome.target, order.occurrence.data) == ("order", "paying", "tea")
    assert [intent.effect for intent in order.intents] == ["log", "pay"]
    assert isinstance(order.after[-1], ResultEntry)
    assert [intent.effect for intent in paid.intents] == ["mail", "log"]


def test_ledger_without_events_has_no_records():
    assert event_records(begun().ledger) == ()
    run, _ = begun().feed(Occurrence("order"))
    assert len(event_records(run.ledger)) == 1


def test_percepts_are_events_with_their_states_and_actions():
    run = shopping()
    seen = percepts(run.machine, run.ledger)
    assert [(p.occurrence.event, p.state) for p in seen] == [
        ("order", "paying"),
        ("more", "paying"),
        ("paid", "paying"),
        ("paid", "resting"),
    ]
    assert [", ".join(map(str, p.action)) if isinstance(p.action, tuple) else p.action for p in seen] == [
        "log, pay",
        "invalid_state",
        "late",
        "mail, log",
    ]
    assert [p.by_key for p in seen] == [False, False, True, False]


# -- another table ----------------------------------------------------------------------------------------------------


def test_lines_and_names_of_machines_make_no_difference():
    moved = loads("# other\n\nA line.\n\n" + SHOP.partition("\n")[2])
    run = shopping()
    assert first_difference(moved, run.ledger) is None
    assert first_difference(moved, run.ledger, run.machine) is None


@pytest.mark.parametrize(("old", "new", "seq", "instead"), [
    ("paid       | mail, log | resting", "paid       | mail, log | failed ", 4, "failed"),
    ("paid       | mail, log | resting", "paid       | log, mail | resting", 4, "resting"),
    ("order      | log, pay  | paying ", "order      | pay       | paying ", 1, "paying"),
    ("| resting | more   ", "| *       | more   ", 2, "succeeded"),
    ("| paying  | paid       | mail, log | resting   |\n", "", 4, "invalid_state"),
    ("## Events\n", "## Variables\n| variable | domain | initial |\n| - | - | - |\n| n | 0..1 | 0 |\n\n## Events\n", None, None),
])  # fmt: skip
def test_first_event_on_which_another_table_differs_is_found(old, new, seq, instead):
    assert old in SHOP
    other, run = loads(SHOP.replace(old, new)), shopping()
    found = first_difference(other, run.ledger)
    if seq is None:
        assert found is None
        return
    assert found.record.event.seq == seq
    outcome = found.outcome
    assert (outcome.reason if isinstance(outcome, RefusalEntry) else outcome.target) == instead
    assert (found.row is None) == isinstance(outcome, RefusalEntry)
    assert found.fault == ""


def test_event_unknown_to_the_other_table_is_a_difference():
    found = first_difference(dual_state(), shopping().ledger)
    assert (found.record.event.seq, found.here.state) == (1, "idle")
    assert "no event 'order'" in found.fault


def test_cancelled_effects_are_compared_if_the_machine_of_the_run_is_known():
    cancelling = SHOP.replace("paid       | mail, log | resting", "more       |           | resting")
    own = cancelling.replace("paying  | more       |           |", "paying  | more       | cancel pay |")
    run, _ = begun(own).feed(Occurrence("order"))
    run, _ = run.feed(Occurrence("more"))
    assert run.configuration.outstanding == ()
    other = loads(cancelling)
    assert first_difference(other, run.ledger) is None
    found = first_difference(other, run.ledger, run.machine)
    assert (found.record.event.event, found.instead) == ("more", ())
    assert [type(command).__name__ for command in found.commands] == ["StopEffect"]


def test_timer_with_another_duration_is_a_difference():
    run = shopping(TIMED)
    found = first_difference(loads(TIMED.replace("2s", "3s")), run.ledger, run.machine)
    assert found.record.event.event == "paid"
    run, _ = run.feed(Occurrence("after 2s", source="resting"))
    assert first_difference(run.machine, run.ledger, run.machine) is None
    assert "no timer 'after 2s'" in first_difference(loads(TIMED.replace("2s", "3s")), run.ledger).fault


TWO_TIMERS = """# timed

## Transitions
| source | event    | target |
| ------ | -------- | ------ |
| a      | after 1s | a      |
| a      | after 2s | a      |
| a      | go       | a      |
"""


def test_order_of_timers_and_restart_of_an_expired_one_make_no_difference():
    run, _ = begin(loads(TWO_TIMERS), "r")
    run, _ = run.feed(Occurrence("go"))
    rows = TWO_TIMERS.splitlines(keepends=True)
    assert first_difference(loads("".join([*rows[:5], rows[6], rows[5], rows[7]])), run.ledger, run.machine) is None
    one = loads(TWO_TIMERS.replace(rows[6], ""))
    alone, _ = begin(one, "r")[0].feed(Occurrence("after 1s", source="a"))
    stays = loads(TWO_TIMERS.replace(rows[6], "").replace(rows[5], "| a      | after 1s | =      |\n"))
    assert first_difference(stays, alone.ledger, one) is None
    both, _ = begin(run.machine, "r")[0].feed(Occurrence("after 1s", source="a"))
    stays = loads(TWO_TIMERS.replace(rows[5], "| a      | after 1s | =      |\n"))
    assert first_difference(stays, both.ledger, run.machine) is not None, "in that table the other timer continues"


def test_artifacts_are_carried_over_to_the_comparison():
    run = begun(read_text(locate("dual_state")))
    run, _ = run.feed(Occurrence("specification"))
    run = run.record(ArtifactEntry(oldest_key(run.keys, "query_llm"), "g", 1, "a" * 64, "b" * 64))
    run, _ = run.feed(Occurrence("artifact"), oldest_key(run.keys, "query_llm"))
    run, _ = run.feed(Occurrence("verdict", {"g": "passed"}), oldest_key(run.keys, "execute_guard"))
    assert run.step("g").accepted == "a" * 64
    assert first_difference(run.machine, run.ledger) is None
    assert first_difference(run.machine, run.ledger, run.machine) is None


def test_accepted_artifacts_are_compared():
    run, _ = begun().feed(Occurrence("order"))
    entries = [attrs.evolve(e, accepted=(("g", "x"),)) if isinstance(e, RowEntry) else e for e in run.ledger]
    assert first_difference(run.machine, entries).record.event.seq == 1


def test_ledger_without_a_machine_is_refused():
    with pytest.raises(ValueError, match="must name its machine"):
        first_difference(dual_state(), [])
    with pytest.raises(ValueError, match="must name its machine"):
        first_difference(dual_state(), [CallEntry("r/1/1", "1.1", "p", "")])
