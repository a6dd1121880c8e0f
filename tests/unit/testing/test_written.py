"""A test written as a line reads back as the same test."""

import pytest
from hypothesis import HealthCheck, given, settings
from sample_sizes import sample_size

from dsa.edge.document_files import load
from dsa.errors import DsaError, OccurrenceError
from dsa.semantics import Occurrence
from dsa.testing.explored_graph import graph_of, tour
from dsa.testing.strategies import machines
from dsa.testing.suites import read_test, write_test


def test_line_is_read_as_in_a_scenario():
    test = (Occurrence("specification"), Occurrence("artifact"), Occurrence("verdict", {"g": "failed"}))
    assert write_test(test) == "specification; artifact; verdict g.failed"
    assert read_test(load("dual_state"), " specification;artifact ; verdict g.failed; ") == test


@settings(max_examples=sample_size(18, full=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(machines(claims=False))
def test_any_test_of_any_machine_is_read_back_unchanged(machine):
    try:
        graph = graph_of(machine, max_configurations=100)
    except DsaError:
        return
    for test in (*tour(graph, refusals=True), graph.alphabet):
        assert read_test(machine, write_test(test)) == test


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nothing", "has no event 'nothing'"),
        ("verdict g.maybe", "write g.passed, g.failed or g.fatal"),
        ("verdict g.failed and more", "is not an occurrence"),
        ("verdict h.failed", "has no guard 'h'"),
        ("artifact of idle", "only a timer has a source"),
    ],
)
def test_invalid_line_is_an_error_that_says_why(line, said):
    with pytest.raises(OccurrenceError, match=said):
        read_test(load("dual_state"), line)
