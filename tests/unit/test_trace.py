import pytest
from example_machines import dual_state

from dsa.semantics import Occurrence
from dsa.trace import follow, show_events, show_occurrence

RUN = [Occurrence("specification"), Occurrence("artifact"), Occurrence("verdict", {"g": "failed"})]


def test_trace_prints_only_changed_values():
    assert follow(dual_state(), RUN).show().split("\n") == [
        "at rmax = 3",
        "0  start             idle                 satisfied = false, retries = 0",
        "1  specification     generating  line 40                                  query_llm",
        "2  artifact          validating  line 41                                  execute_guard",
        "3  verdict g.failed  generating  line 43  retries = 1                     refine_context, query_llm",
    ]


def test_refused_occurrence_ends_the_trace_with_an_error():
    with pytest.raises(ValueError, match=r"artifact is refused in idle: .*not outstanding"):
        follow(dual_state(), [Occurrence("artifact")])


def test_long_trace_leaves_out_events_in_the_middle():
    assert show_events(RUN) == "specification, artifact, verdict g.failed"
    assert show_events(RUN * 4, most=4) == "specification, artifact, (8 events left out), artifact, verdict g.failed"
    assert show_occurrence(Occurrence("after 30s", source="a.b")) == "after 30s of a.b"
