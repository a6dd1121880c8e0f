"""Tours take every transition, in few long runs, and are the same every time."""

from each_row import each_row
from families import ordered
from hypothesis import HealthCheck, given, settings
from repository import SMALL, shipped_machines
from sample_sizes import sample_size

from dsa.checks.search.exploration import explore
from dsa.errors import DsaError
from dsa.semantics import Refusal, Taken, start, step
from dsa.testing.explored_graph import graph_of, row_tour, tour
from dsa.testing.strategies import machines

SHIPPED = shipped_machines()
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def taken(machine, tests):
    """Run tests on the reference; return the (configuration, occurrence) pairs and rows taken, and those refused."""
    moves, rows, refused = set(), set(), set()
    places = {id(row): place for place, row in enumerate(machine.transitions)}
    for test in tests:
        here = start(machine)
        for occurrence in test:
            result = step(machine, here, occurrence)
            if isinstance(result, Taken):
                moves.add((here, occurrence))
                rows.add(places[id(result.transition)])
            else:
                refused.add((here, occurrence))
            here = result.configuration
    return moves, rows, refused


@each_row("name", SHIPPED)
def test_tour_takes_every_transition_and_row_tour_every_row(name):
    machine = SHIPPED[name].at(SMALL.get(name, {}))
    exploration = explore(machine)
    moves, rows, refused = taken(machine, tour(machine))
    assert (len(moves), rows, refused) == (exploration.transitions, exploration.rows, set())
    assert taken(machine, row_tour(machine))[1] == exploration.rows


def test_tour_of_ordered_5_6_has_the_least_number_of_tests():
    """47 transitions end runs, so fewer than 47 tests cannot take them all."""
    graph = graph_of(ordered(5, 6))
    tests = tour(graph)
    assert (len(graph.configurations), len(graph.moves)) == (112, 141)
    assert len(taken(graph.machine, tests)[0]) == 141
    assert (len(tests), sum(map(len, tests))) == (47, 837)
    assert sum(graph.configurations[m.target].state in graph.machine.final_states for m in graph.moves) == 47


def test_first_runs_of_a_tour_take_every_row():
    machine = SHIPPED["workflow"]
    assert taken(machine, tour(machine)[:8])[1] == set(range(25))


def test_refused_occurrence_is_tried_in_each_configuration():
    graph = graph_of(SHIPPED["dual_state"])
    _, _, refused = taken(graph.machine, tour(graph, refusals=True))
    expected = {
        (here, occurrence)
        for place, here in enumerate(graph.configurations)
        for occurrence in graph.alphabet
        if isinstance(graph.answer(place, occurrence), Refusal)
    }
    assert refused == expected
    assert len(expected) == 15 * 5 - 17


def test_rows_taken_before_are_left_out():
    machine = SHIPPED["dual_state"]
    assert row_tour(machine, but=range(6)) == ()
    (test,) = row_tour(machine, but={0, 1, 2, 3, 5})
    assert taken(machine, [test])[1] == {0, 1, 4}


@settings(max_examples=sample_size(18, full=60), deadline=None, suppress_health_check=SLOW)
@given(machines(claims=False))
def test_tour_of_any_machine_takes_every_transition_that_exploration_finds(machine):
    try:
        graph = graph_of(machine, max_configurations=300)
    except DsaError:
        return
    exploration = explore(machine)
    assert (len(graph.configurations), len(graph.moves)) == (exploration.configurations, exploration.transitions)
    tests = tour(graph)
    assert tests == tour(graph)
    assert len(taken(machine, tests)[0]) == exploration.transitions


def test_distances_count_moves_to_the_nearest_goal():
    graph = graph_of(SHIPPED["dual_state"])
    goal = next(n for n, here in enumerate(graph.configurations) if here.state == "succeeded")
    distances = graph.distances([goal])
    assert (distances[0], distances[goal]) == (3, 0)
    failed = next(n for n, here in enumerate(graph.configurations) if here.state == "failed")
    assert distances[failed] is None
