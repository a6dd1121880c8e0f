from each_row import each_row
from example_machines import compare, var

from dsa.expr import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Boolean,
    Compare,
    Integer,
    Member,
    Name,
    Not,
    Or,
    Symbol,
    all_of,
    any_of,
    constant,
    negation,
    simplify,
    substitute,
)

A, B = Name("a", "variable"), Name("b", "variable")
SMALL = compare("n", "<", 3)


@each_row(
    ("expr", "small"),
    [
        (And((TRUE, A)), A),
        (And((A, FALSE)), FALSE),
        (Or((A, TRUE)), TRUE),
        (Or((FALSE, A)), A),
        (And((A, And((B, A)))), And((A, B))),
        (Not(Not(A)), A),
        (Not(SMALL), compare("n", ">=", 3)),
        (compare(constant(2), "<", 3), TRUE),
        (compare("n", "<=", var("n")), TRUE),
        (compare("n", "<", var("n")), FALSE),
        (compare("a", "==", TRUE), A),
        (compare("a", "!=", TRUE), Not(A)),
        (compare(FALSE, "==", A), Not(A)),
        (Arithmetic("+", Integer(2), Integer(3)), Integer(5)),
        (Arithmetic("*", var("n"), Integer(0)), Integer(0)),
        (Arithmetic("-", var("n"), Integer(0)), var("n")),
        (Member(Symbol("red"), (Symbol("blue"), Symbol("red"))), TRUE),
        (Member(var("c"), (Symbol("red"),)), compare("c", "==", "red")),
    ],
)
def test_expressions_are_folded(expr, small) -> None:
    assert simplify(expr) == small


def test_chain_becomes_separate_comparisons() -> None:
    chain = Compare(Integer(0), (("<=", var("n")), ("<", var("m"))))
    assert simplify(chain) == And((compare(constant(0), "<=", var("n")), compare("n", "<", var("m"))))


def test_contradiction_is_false_and_tautology_is_true() -> None:
    assert all_of([A, B, negation(A)]) == FALSE
    assert all_of([A, B, Not(And((A, B)))]) == FALSE
    assert all_of([A, Not(Or((And((A, B)), A)))]) == FALSE
    assert all_of([A, Not(Or((B, SMALL)))]) != FALSE
    assert any_of([SMALL, negation(SMALL)]) == TRUE


def test_substitution_folds_decided_conditions() -> None:
    expr = Or((And((A, SMALL)), B))
    values = {"a": TRUE, "n": Integer(5), "b": B}
    assert substitute(expr, lambda node: values[node.name]) == B
    values["n"] = Integer(2)
    assert substitute(expr, lambda node: values[node.name]) == Boolean(value=True)
