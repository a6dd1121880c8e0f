from example_machines import add, assign, compare, dual_state, emits, placed, ranged, states

from dsa.checks.search.engine import injective, plan, steps_of
from dsa.declarations import Event, Guard, Transition, Variable
from dsa.expr import Expr, Integer, Verdict
from dsa.ground_system import Ground, ground
from dsa.machine import Machine
from dsa.system import closed_system


def grounded(*rows: Transition, guards: tuple[Guard, ...] = ()) -> Ground:
    variables = (Variable("x", "environment", ranged(0, 3), Integer(0)),)
    events = tuple(Event(name) for name in dict.fromkeys(row.event for row in rows))
    machine = Machine(
        "m", placed(rows), states("a", ["b", "c"]), "a", variables=variables, events=events, guards=guards
    )
    return ground(closed_system(machine))


def remembered(system: Ground) -> set[str]:
    return {system.system.locations[place].state for place in plan(system).remembered_places}


def test_location_entered_by_one_rule_is_not_remembered():
    system = ground(closed_system(dual_state(rmax=3)))
    # Generating is entered from the start and with every retry; a pass forgets the retries.
    assert remembered(system) == {"generating", "succeeded"}


def test_target_of_a_rule_that_forgets_is_remembered():
    keeps = Transition("b", "go", "c", compare("x", "==", 2), updates=(assign("x", 0),))
    forgets = Transition("b", "go", "c", updates=(assign("x", 0),))
    begin = Transition("a", "go", "b")
    assert remembered(grounded(begin, keeps)) == set()
    assert remembered(grounded(begin, forgets)) == {"c"}


def test_start_is_remembered_if_something_leads_back():
    assert remembered(grounded(Transition("a", "go", "="))) == set()
    assert remembered(grounded(Transition("a", "go", "=", compare("x", "<", 3), updates=(add("x", 1),)))) == {"a"}
    assert remembered(grounded(Transition("a", "go", "b"), Transition("b", "go", "a"))) == {"a"}


def test_rules_of_unreachable_locations_do_not_count():
    lost = grounded(
        Transition("a", "go", "b"),
        Transition("a", "no", "c", compare("x", ">", 5)),  # never
        Transition("c", "go", "b"),
    )
    assert remembered(lost) == set()


def test_rules_that_differ_only_in_their_occurrence_are_one_step():
    said = (Transition("a", "e", "b", Verdict("g", outcome)) for outcome in ("failed", "fatal"))
    system = grounded(*said, Transition("a", "e", "c", Verdict("g", "passed")), guards=(Guard("g", ("e",)),))
    assert sorted(len(step.places) for step in steps_of(system)[0]) == [1, 2]
    assert remembered(system) == set()


def is_injective(condition: Expr, *updates: object) -> bool:
    system = grounded(Transition("a", "go", "b", condition, updates=updates, effects=emits()))
    return injective(system, steps_of(system)[0][0])


def test_rule_is_injective_if_it_keeps_configurations_apart():
    from dsa.expr import TRUE, Arithmetic, Name

    x = Name("x", "variable")
    assert is_injective(TRUE)
    assert is_injective(compare("x", "<", 3), add("x", 1))
    assert is_injective(TRUE, assign("x", Arithmetic("-", Integer(3), x)))
    assert not is_injective(TRUE, assign("x", 3))
    assert not is_injective(compare("x", "<", 2), assign("x", Arithmetic("*", x, Integer(0))))
