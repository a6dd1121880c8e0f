import pytest
from each_row import each_row

from dsa.expr import (
    TRUE,
    And,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Choices,
    Compare,
    EnumDomain,
    Integer,
    Interval,
    Member,
    Name,
    Negate,
    Not,
    Or,
    RangeDomain,
    Symbol,
    Verdict,
    concrete,
    conjunction,
    disjunction,
    evaluate,
    guards_read,
    holds,
    names,
    show_number,
    unparse,
    unparse_domain,
    walk,
)

X, Y = Name("x", "variable"), Name("y", "variable")
PASSED = Verdict("g", "passed")


@each_row(
    ("expr", "value"),
    [
        (Arithmetic("-", Integer(7), Arithmetic("*", X, Integer(2))), 1),
        (Negate(X), -3),
        (Compare(Integer(1), (("<", X), ("<=", Integer(3)))), True),
        (Compare(Integer(1), (("<", X), ("<", Integer(3)))), False),
        (Compare(X, (("!=", Integer(3)),)), False),
        (Member(X, (Integer(1), Integer(3))), True),
        (Member(X, (Integer(1),)), False),
        (Member(Symbol("red"), (Symbol("red"),)), True),
        (And((TRUE, Not(Y))), False),
        (Or((Boolean(value=False), Y)), True),
        (PASSED, True),
        (Verdict("g", "failed"), False),
        (Name("ask", "pending"), True),
        (Symbol("red"), "red"),
    ],
)
def test_expression_evaluates_to_its_value(expr, value):
    assert evaluate(expr, {"x": 3, "y": True, "g": "passed", "pending ask": True, "ask": False}) == value


def test_and_and_or_stop_early():
    assert evaluate(And((Boolean(value=False), X)), {}) is False
    assert evaluate(Or((TRUE, X)), {}) is True
    with pytest.raises(KeyError):
        evaluate(X, {})


def test_condition_holds_only_if_it_is_true_itself():
    assert holds(TRUE, {})
    assert not holds(Integer(1), {})


@each_row(
    ("expr", "text"),
    [
        (And((Or((X, Y)), Not(And((X, Y))))), "(x or y) and not (x and y)"),
        (Compare(Not(X), (("==", Y),)), "(not x) == y"),
        (Compare(Compare(X, (("<", Y),)), (("==", TRUE),)), "(x < y) == true"),
        (Arithmetic("-", X, Arithmetic("-", Y, Integer(1))), "x - (y - 1)"),
        (Arithmetic("*", Arithmetic("+", X, Y), Negate(X)), "(x + y) * -x"),
        (Negate(Integer(3)), "-(3)"),
        (Negate(Integer(-3)), "-(-3)"),
        (Arithmetic("-", X, Integer(-1)), "x - -1"),
        (Member(X, (And((X, Y)), Arithmetic("+", X, Y))), "x in {(x and y), x + y}"),
        (Not(Member(X, (Y,))), "not x in {y}"),
        (Name("ask", "pending"), "pending ask"),
    ],
)
def test_parentheses_are_written_where_the_structure_needs_them(expr, text):
    assert unparse(expr) == text


@pytest.mark.parametrize(
    ("expr", "closed", "alone"),
    [
        (X, "x", "x"),
        (Not(X), "not x", "(not x)"),
        (And((X, Y)), "(x and y)", "(x and y)"),
        (Compare(X, (("<", Y),)), "x < y", "(x < y)"),
        (Integer(-1), "-1", "(-1)"),
        (PASSED, "g.passed", "g.passed"),
    ],
)
def test_expression_among_other_words_gets_parentheses(expr, closed, alone):
    assert unparse(expr, is_closed=True) == closed
    assert unparse(expr, alone=True) == alone


def test_joining_flattens_and_leaves_single_conditions_alone():
    assert conjunction([]) == TRUE
    assert disjunction([]) == Boolean(value=False)
    assert conjunction([X]) == X
    assert conjunction([And((X, Y)), X]) == And((X, Y, X))
    assert disjunction([Or((X, Y)), And((X, Y))]) == Or((X, Y, And((X, Y))))


def test_names_and_guards_are_found_at_any_depth():
    expr = Not(And((Compare(X, (("<", Y),)), Or((PASSED, Verdict("h", "fatal"))), Member(Negate(X), (Integer(1),)))))
    assert names(expr) == {"x", "y"}
    assert guards_read(expr) == {"g", "h"}
    assert [type(node).__name__ for node in walk(Not(Negate(X)))] == ["Not", "Negate", "Name"]


def test_domains_are_written_as_they_are_read():
    assert unparse_domain(BooleanDomain()) == "bool"
    assert unparse_domain(EnumDomain(("a", "b"))) == "{a, b}"
    assert unparse_domain(RangeDomain(Integer(0), None)) == "0.."
    assert unparse_domain(RangeDomain(Integer(-1), Arithmetic("+", X, Integer(1)))) == "-1..x + 1"


def test_domain_has_values_at_each_valuation_of_the_parameters():
    assert concrete(RangeDomain(Integer(0), X), {"x": 4}) == Interval(0, 4)
    assert concrete(BooleanDomain(), {}) == Choices((False, True))


@pytest.mark.parametrize(
    ("values", "inside", "outside"),
    [
        (Interval(0, 3), (0, 3), (-1, 4, True, False, "0")),
        (Interval(2, None), (2, 10**30), (1,)),
        (Choices((False, True)), (True, False), (0, 1, "true")),
        (Choices(("a",)), ("a",), ("b", 0)),
    ],
)
def test_value_is_inside_only_with_its_type(values, inside, outside):
    assert all(values.contains(value) for value in inside)
    assert not any(values.contains(value) for value in outside)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (1e-10, "0.0000000001"), (1e22, "10000000000000000000000"), (0.1 + 0.2, "0.30000000000000004")],
)
def test_numbers_are_written_without_exponent_and_read_back_exactly(number, text):
    assert show_number(number) == text
    assert float(text) == number
