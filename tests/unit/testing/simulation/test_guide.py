"""The guide knows the cheapest path to a row, and how to get to an end from anywhere."""

from simulations import written

from dsa.testing.simulation.seed_plan import Chance

ABOUT = written("""# ways
## Events
| event | from |
| - | - |
| go | outside |
| look | outside |
| end | outside |
## States
| state | kind |
| - | - |
| a | initial |
| b | |
| c | |
| over | final |
## Transitions
| source | event | target |
| - | - | - |
| a | look | = |
| a | after 5s | c |
| a | go | b |
| b | go | c |
| b | look | a |
| c | end | over |
""")
ROWS = {(row.source, row.event): place for place, row in enumerate(ABOUT.machine.transitions)}


def moves(source, event):
    return ABOUT.rows[ROWS[source, event]].moves


def told(way):
    return [move.occurrence.event for move in way]


def test_timer_costs_more_than_one_more_event():
    end = ABOUT.guide.nearest(moves("c", "end"))[0]
    assert told(ABOUT.guide.way(end)) == ["go", "go", "end"]


def test_path_to_the_row_of_a_timer_ends_with_it():
    assert told(ABOUT.guide.way(moves("a", "after 5s")[0])) == ["after 5s"]


def test_path_to_every_move_can_be_walked():
    for facts in ABOUT.rows.values():
        for goal in facts.moves:
            way, place = ABOUT.guide.way(goal), 0
            for move in way:
                assert move.source == place
                place = move.target
            assert way[-1] == goal
            assert ABOUT.guide.where(goal) == ABOUT.graph.configurations[goal.source]


def test_nearest_of_several_moves_comes_first():
    far, near = moves("b", "look")[0], moves("a", "look")[0]
    assert ABOUT.guide.nearest((far, near)) == (near, far)


def test_run_goes_mostly_straight_to_an_end_and_stops_there():
    start = ABOUT.graph.configurations[0]
    chosen = [ABOUT.guide.onwards(start, Chance(seed), 0) for seed in range(400)]
    events = [move.occurrence.event for move in chosen]
    assert {*events} == {"look", "go", "after 5s"}
    assert events.count("after 5s") > 250  # two rows away from an end
    over = next(each for each in ABOUT.graph.configurations if each.state == "over")
    assert ABOUT.guide.onwards(over, Chance(1), 3) is None
