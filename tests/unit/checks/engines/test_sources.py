"""Generated source for single numbers and for arrays means the same as the expressions."""

from functools import reduce

import numpy as np
from each_row import each_row
from example_machines import FALSE, add, assign, compare, placed, ranged, states, var

from dsa.checks.search.engine import Writer, after_all, data_change, first_where, fixed_values, leads_where, truth_of
from dsa.declarations import Event, Transition, Variable
from dsa.expr import TRUE, And, Arithmetic, BooleanDomain, Count, Expr, Integer, Negate, Not, Or, evaluate
from dsa.ground_system import Ground, ground
from dsa.machine import Machine
from dsa.system import closed_system

X, Y, FLAG, ON = var("x"), var("y"), var("flag"), var("on")


def system(condition: Expr = TRUE, *updates: object) -> Ground:
    """Return a system with fields whose sizes are powers of two or not, some not from 0: x -1..3, flag, y 0..3, on, z 5..7."""
    rows = (Transition("a", "go", "=", condition, updates=updates), Transition("a", "all", "="))
    variables = (
        Variable("x", "environment", ranged(-1, 3), Integer(0)),
        Variable("flag", "environment", BooleanDomain(), Not(TRUE)),
        Variable("y", "environment", ranged(0, 3), Integer(0)),
        Variable("on", "environment", BooleanDomain(), TRUE),
        Variable("z", "environment", ranged(5, 7), Integer(5)),
    )
    machine = Machine("m", placed(rows), states("a"), "a", variables=variables, events=(Event("go"), Event("all")))
    return ground(closed_system(machine))


SEVERAL = Count((FLAG, ON, compare("x", "<", Y)))


def total(*operands: Expr) -> Expr:
    return reduce(lambda one, other: Arithmetic("+", one, other), operands)


CONDITIONS = [
    TRUE,
    FLAG,
    Not(ON),
    compare("x", "<", 2),
    compare("x", "<", Y),
    compare("z", ">=", 6),
    compare(FLAG, "==", ON),
    And((FLAG, Or((ON, compare("x", "==", -1))), compare("x", "!=", 3))),
    Not(And((FLAG, ON))),
    compare(Arithmetic("*", X, Arithmetic("-", Y, X)), ">", Negate(X)),
    compare(Arithmetic("-", X, Arithmetic("-", Y, Arithmetic("*", X, Y))), ">", 0),
    compare(total(*[X] * 200), ">", 200),
    compare(SEVERAL, ">=", 2),
    compare(Count((FLAG,)), "<", X),
    compare(Count((Or((FLAG, ON)), compare(SEVERAL, "==", X), ON)), "!=", 1),
]


@each_row("condition", CONDITIONS)
def test_generated_conditions_agree_with_evaluation(condition: Expr):
    there = system()
    data = list(range(there.volume))
    expected = [evaluate(condition, there.values(number)) is True for number in data]
    first = next((number for number in data if expected[number]), None)
    for writer, given in ((Writer(there), data), (Writer(there, arrays=True), np.array(data))):
        assert list(truth_of(writer, condition)(given)) == expected
        assert first_where(writer, condition)(given) == first


UPDATES = [
    (compare("x", "<", 3), (add("x", 1),)),
    (compare("x", "==", 3), (assign("x", -1),)),
    (TRUE, (assign("x", 3), assign("y", 0))),
    (FLAG, (assign("flag", FALSE),)),
    (Not(ON), (assign("on", TRUE), assign("z", 7))),
    (TRUE, (assign("flag", ON), assign("on", FLAG))),
    (TRUE, (assign("flag", Not(FLAG)),)),
    (TRUE, (assign("on", compare("x", ">", Y)),)),
    (compare("x", ">=", 0), (assign("x", Y), assign("y", X))),
    (TRUE, (assign("y", Arithmetic("-", Integer(3), Y)),)),
    (compare("y", ">", 0), (assign("y", Arithmetic("-", Y, Integer(1))), add("z", 0))),
    (TRUE, (assign("y", SEVERAL),)),
    (compare("x", "<", 2), (assign("z", Arithmetic("+", Count((FLAG, ON)), Integer(5))), assign("x", Count((FLAG,))))),
]


@each_row(("condition", "updates"), UPDATES)
def test_generated_updates_agree_with_successors(condition: Expr, updates: tuple):
    there = system(condition, *updates)
    rule = next(rule for rule in there.rules if rule.updates)
    pairs = [(n, to) for n in range(there.volume) for taken, to in there.successors(n) if taken is rule]
    assert pairs
    for writer, given in ((Writer(there), list), (Writer(there, arrays=True), np.array)):
        after = after_all(writer, rule)(given([number for number, _ in pairs]))
        assert list(after) == [to for _, to in pairs]
        lead = leads_where(writer, rule)
        for wanted in range(there.volume):
            expected = next((number for number, to in pairs if to == wanted), None)
            assert lead(given(range(there.volume)), wanted) == expected


def test_updates_that_change_the_number_by_a_constant_are_recognised():
    rules = {
        rule.updates: data_change(there, rule)
        for condition, updates in UPDATES
        for there in [system(condition, *updates)]
        for rule in there.rules
        if rule.updates
    }
    assert sum(move.is_constant for move in rules.values()) == 4


def test_condition_fixes_the_values_that_it_compares_for_equality():
    condition = And((FLAG, Not(ON), compare("x", "==", 2), compare("y", "<", 2), compare(Integer(6), "==", var("z"))))
    assert fixed_values(condition) == {"flag": 1, "on": 0, "x": 2, "z": 6}
    assert fixed_values(Or((FLAG, ON))) == {}
