"""Replay of recorded runs."""

import re

import attrs
import pytest
from each_row import each_row
from example_machines import dual_state

from dsa.checks.monitor import replay
from dsa.edge.document_files import load
from dsa.errors import ParameterError
from dsa.semantics import Occurrence
from dsa.trace import RecordedStep, RecordedTrace, follow, to_record

FAILED = Occurrence("verdict", {"g": "failed"})
RUN = [Occurrence("specification"), Occurrence("artifact"), FAILED, Occurrence("artifact"), FAILED]


def record(**changes):
    return attrs.evolve(to_record(follow(dual_state(rmax=1), RUN), "dual_state"), **changes)


def altered(number, **changes):
    steps = list(record().steps)
    steps[number - 1] = attrs.evolve(steps[number - 1], **changes)
    return record(steps=tuple(steps))


def test_unchanged_recording_fits():
    found = replay(dual_state(), record())
    assert (found.mismatch, found.total, len(found.trace.steps), found.failed) == (None, 5, 5, False)


@each_row(("changed", "step", "message"), [
    (altered(3, state="failed"), 3, r"line 43 \(.*\) leads to generating, the record has failed"),
    (altered(3, changed=()), 3, "retries is 1, the record has 0"),
    (altered(3, changed=(("retries", 1), ("tries", 1))), 3, "the machine has no variable tries"),
    (altered(2, effects=()), 2, "emits execute_guard, the record has nothing"),
    (altered(5, cancelled=("query_llm",)), 5, "cancels nothing, the record has query_llm"),
    (altered(1, occurrence=Occurrence("artifact")), 1, r"artifact in idle: refused: late \(.*\); accepted there: specification"),
    (altered(1, occurrence=Occurrence("nonsense")), 1, "has no event 'nonsense'"),
    (record(state="generating"), 0, "starts in idle, the record has generating"),
    (record(values=(("retries", 1),)), 0, "retries is 0, the record has 1"),
    (record(machine="other"), 0, "the trace is of machine other"),
])  # fmt: skip
def test_first_step_that_does_not_fit_is_reported(changed, step, message):
    found = replay(dual_state(), changed)
    assert found.mismatch.step == step
    assert len(found.trace.steps) == max(step - 1, 0)
    assert found.failed
    assert re.search(message, found.mismatch.message), found.mismatch.message


def test_refused_event_names_its_false_conjuncts():
    found = replay(dual_state(exhaust=None), record())
    assert found.mismatch.step == 5
    assert "refused: invalid_state" in found.mismatch.message
    assert (
        "in line 42, 'g.passed' is false; in line 43, 'retries < rmax' is false; in line 44, 'g.fatal' is false"
        in found.mismatch.message
    )


def test_unknown_parameters_are_refused():
    with pytest.raises(ParameterError):
        replay(dual_state(), record(parameters=(("rmin", 1),)))


def test_properties_are_monitored_on_the_run():
    machine = load("specs/dual_state")
    found = replay(machine, RecordedTrace(record(machine=None).steps, parameters=(("rmax", 1),)))
    said = {seen.text: seen.report and (seen.report.verdict, seen.report.step) for seen in found.observations}
    assert said["specification leads to succeeded or failed or escalated"] == ("satisfied", None)
    assert said["execute_guard only after query_llm"] == ("satisfied", 1)
    assert said["possible succeeded"] is None
    begun = replay(machine, RecordedTrace((RecordedStep(Occurrence("specification")),)))
    said = {seen.text: seen.report for seen in begun.observations}
    leads_to = said["specification leads to succeeded or failed or escalated"]
    assert (leads_to.verdict, leads_to.step) == ("pending", 1)
    assert said["always retries <= rmax"].verdict == "pending"
