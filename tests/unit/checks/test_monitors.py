"""Monitors on runs of dual_state; on random machines: tests/property/test_properties.py."""

import pytest
from each_row import each_row
from example_machines import dual_state

from dsa.checks.monitor import MonitorReport, is_monitor, monitor
from dsa.checks.properties import moments
from dsa.declarations import Always, AtMost, EverywherePossible, LeadsTo, Never, OnlyAfter, Possible, UnchangedClaim
from dsa.expr import Integer, Name, Verdict
from dsa.semantics import Occurrence

GO, ARTIFACT = Occurrence("specification"), Occurrence("artifact")
FAILED, PASSED = Occurrence("verdict", {"g": "failed"}), Occurrence("verdict", {"g": "passed"})
ONCE, TWICE = [GO, ARTIFACT, FAILED], [GO, ARTIFACT, FAILED, ARTIFACT, PASSED]
QUERY, GUARD = Name("query_llm", "effect"), Name("execute_guard", "effect")
SPECIFICATION, SUCCEEDED = Name("specification", "event"), Name("succeeded", "state")
RETRIES, SATISFIED = Name("retries", "variable"), Name("satisfied", "variable")


@each_row(("form", "run", "verdict", "step"), [
    (Always(Name("idle", "state")), [], "pending", None),
    (Always(Name("idle", "state")), [GO], "violated", 1),
    (Never(SUCCEEDED), ONCE, "pending", None),
    (Never(SUCCEEDED), TWICE, "violated", 5),
    (Never(Name("failed", "state")), TWICE, "satisfied", None),
    (UnchangedClaim(Verdict("g", "failed"), (SATISFIED,)), ONCE, "pending", None),
    (UnchangedClaim(Verdict("g", "failed"), (SATISFIED, RETRIES)), ONCE, "violated", 3),
    (LeadsTo(SPECIFICATION, SUCCEEDED), [], "pending", None),
    (LeadsTo(SPECIFICATION, SUCCEEDED), ONCE, "pending", 1),
    (LeadsTo(SPECIFICATION, SUCCEEDED), TWICE, "satisfied", None),
    (LeadsTo(SPECIFICATION, Name("failed", "state")), TWICE, "violated", 1),
    (OnlyAfter(GUARD, QUERY), [], "pending", None),
    (OnlyAfter(GUARD, QUERY), [GO], "satisfied", 1),
    (OnlyAfter(QUERY, SPECIFICATION), [GO], "satisfied", 1),
    (OnlyAfter(QUERY, GUARD), [GO], "violated", 1),
    (AtMost(Integer(1), QUERY), [GO], "pending", None),
    (AtMost(Integer(1), QUERY), ONCE, "violated", 3),
    (AtMost(Integer(1), QUERY, (QUERY, GUARD)), TWICE, "satisfied", None),
    (AtMost(Integer(1), QUERY, (QUERY, SATISFIED)), ONCE, "violated", 3),
    (AtMost(Integer(0), QUERY, (SUCCEEDED, SPECIFICATION)), TWICE, "satisfied", None),
])  # fmt: skip
def test_monitor_reports_verdict_and_step(form, run, verdict, step):
    machine = dual_state()
    found = moments(machine, run)
    ended = found[-1].configuration.state in machine.final_states
    assert monitor(form, found, is_complete=ended) == MonitorReport(verdict, step)


def test_claims_about_all_runs_are_not_monitored():
    assert not is_monitor(Possible(SUCCEEDED))
    assert not is_monitor(EverywherePossible(SUCCEEDED))


def test_refused_run_cannot_be_monitored():
    with pytest.raises(ValueError, match="artifact is refused"):
        moments(dual_state(), [ARTIFACT])
