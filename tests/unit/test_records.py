"""Traces as text."""

import json

import pytest
from each_row import each_row
from example_machines import dual_state

from dsa.semantics import Occurrence
from dsa.trace import follow, from_text, to_itf, to_jsonl, to_record

RUN = [Occurrence("specification"), Occurrence("artifact"), Occurrence("verdict", {"g": "failed"})]
TRACE = to_record(follow(dual_state(), RUN), "dual_state", 1)


@pytest.mark.parametrize("written", [to_jsonl(TRACE), to_itf(TRACE)], ids=["jsonl", "itf"])
def test_written_trace_is_read_back(written):
    assert from_text(written) == TRACE


def test_jsonl_has_a_line_for_the_start_and_one_for_each_step():
    head, *steps = map(json.loads, to_jsonl(TRACE).splitlines())
    assert head == {
        "machine": "dual_state", "parameters": {"rmax": 3}, "state": "idle",
        "values": {"satisfied": False, "retries": 0}, "loop": 1,
    }  # fmt: skip
    assert steps[2] == {
        "event": "verdict", "verdicts": {"g": "failed"}, "source": None, "line": 43, "state": "generating",
        "changed": {"retries": 1}, "effects": ["refine_context", "query_llm"], "cancelled": [],
    }  # fmt: skip


def test_itf_has_every_variable_in_every_state():
    whole = json.loads(to_itf(TRACE))
    assert all(set(whole["vars"]) == set(state) - {"#meta"} for state in whole["states"])
    assert [state["retries"] for state in whole["states"]] == [{"#bigint": n} for n in "0001"]
    assert [state["mbt::actionTaken"] for state in whole["states"]] == ["start", "specification", "artifact", "verdict"]
    assert whole["loop"] == 1


def test_events_alone_are_a_trace():
    found = from_text('{"event": "specification"}\n\n{"event": "verdict", "verdicts": {"g": "passed"}}\n')
    assert [step.occurrence for step in found.steps] == [
        Occurrence("specification"),
        Occurrence("verdict", {"g": "passed"}),
    ]
    assert {step.state for step in found.steps} == {None}


@each_row(("text", "line", "message"), [
    ("", None, "the trace is empty"),
    ("{}", None, "the trace is empty"),
    ("3", 1, "not an object"),
    ('{"level": "info", "msg": "hello"}', 1, "neither 'event', which a step has, nor any of loop, machine"),
    ('\n{"level": "info"}\n{"event": "e"}', 2, "neither 'event'"),
    ('{"event": "e"}\nno', 2, "not JSON"),
    ('{"event": "e"}\n{"even": "e"}', 2, "has no 'event'"),
    ('{"event": 1}', 1, "'event' must be a text"),
    ('{"event": "e", "verdicts": {"g": "maybe"}}', 1, "'verdicts' must map guards to passed, failed, fatal"),
    ('{"event": "e", "changed": {"x": 1.5}}', 1, "'changed' must map names to numbers"),
    ('{"event": "e", "effects": "x"}', 1, "'effects' must be a list of names"),
    ('{"machine": "m", "loop": 2}\n{"event": "e"}', 1, "'loop' must be a number of steps, 0 to 1"),
    ('{"states": []}', None, "'states' is not a list of states"),
    ('{"states": [{"mbt::actionTaken": "e", "x": {"#bigint": "y"}}]}', None, "'#bigint' must be a number"),
])  # fmt: skip
def test_invalid_trace_is_refused_with_its_line(text, line, message):
    with pytest.raises(ValueError, match=message) as raised:
        from_text(text)
    assert str(raised.value).startswith("line ") == (line is not None)
    assert line is None or str(raised.value).startswith(f"line {line}: ")
