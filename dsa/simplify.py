"""Expressions made smaller: substitution, and folding of what is already decided.

Takes and gives expression trees; the result has the same value in every environment. Knows no machine.
"""

from collections.abc import Callable, Container, Iterable

from dsa.expr import (
    COMPARISONS,
    TRUE,
    And,
    Arithmetic,
    Boolean,
    Compare,
    Expr,
    Integer,
    Member,
    Name,
    Negate,
    Not,
    Or,
    Symbol,
    Value,
    Verdict,
    conjunction,
    disjunction,
)

FALSE = Boolean(False)  # noqa: FBT003  (a node, not a flag)
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

Constant = Boolean | Integer | Symbol


def constant(value: Value) -> Constant:
    """Give the node of a value."""
    if isinstance(value, bool):
        return Boolean(value)
    return Integer(value) if isinstance(value, int) else Symbol(value)


Leaf = Name | Verdict | Symbol


def substituted(expr: Expr, leaf: Callable[[Leaf], Expr]) -> Expr:
    """Replace every name, verdict and enumeration value by what `leaf` gives for it, and fold what that decides."""
    match expr:
        case Name() | Verdict() | Symbol():
            return leaf(expr)
        case Not(operand):
            return negated(substituted(operand, leaf))
        case Negate(operand):
            return _negative(substituted(operand, leaf))
        case Arithmetic(sign, left, right):
            return _arithmetic(sign, substituted(left, leaf), substituted(right, leaf))
        case Compare(first, rest):
            operands = [substituted(first, leaf), *(substituted(operand, leaf) for _, operand in rest)]
            pairs = zip(operands, (sign for sign, _ in rest), operands[1:], strict=False)
            return all_of(compared(left, sign, right) for left, sign, right in pairs)
        case Member(operand, choices):
            value = substituted(operand, leaf)
            return any_of(compared(value, "==", substituted(choice, leaf)) for choice in choices)
        case And(operands):
            return all_of(substituted(operand, leaf) for operand in operands)
        case Or(operands):
            return any_of(substituted(operand, leaf) for operand in operands)
        case Boolean() | Integer():
            return expr


def simplified(expr: Expr) -> Expr:
    """Fold what is decided by constants alone; chains and memberships become plain comparisons."""
    return substituted(expr, lambda name: name)


def all_of(operands: Iterable[Expr]) -> Expr:
    """Join by `and`: without what is true, without repetition; false when some operand is, or contradicts another."""
    kept: dict[Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, And) else (operand,):
            if part == FALSE or negated(part) in kept:
                return FALSE
            if part != TRUE:
                kept[part] = None
    if any(isinstance(part, Not) and _said(part.operand, kept) for part in kept):
        return FALSE
    return conjunction(list(kept))


def _said(expr: Expr, kept: Container[Expr]) -> bool:
    """Tell whether an expression follows from what is kept by its form alone."""
    match expr:
        case And(operands):
            return all(_said(operand, kept) for operand in operands)
        case Or(operands):
            return any(_said(operand, kept) for operand in operands)
        case _:
            return expr in kept


def any_of(operands: Iterable[Expr]) -> Expr:
    """Join by `or`: without what is false, without repetition; true when some operand is, or two say everything."""
    kept: dict[Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, Or) else (operand,):
            if part == TRUE or negated(part) in kept:
                return TRUE
            if part != FALSE:
                kept[part] = None
    return disjunction(list(kept))


def negated(expr: Expr) -> Expr:
    """Negate: a constant, a comparison and a negation lose the `not`."""
    match expr:
        case Boolean(value):
            return Boolean(not value)
        case Not(operand):
            return operand
        case Compare(first, ((sign, second),)):
            return Compare(first, ((_OPPOSITE[sign], second),))
        case _:
            return Not(expr)


def compared(left: Expr, sign: str, right: Expr) -> Expr:
    """Compare two expressions of one type; what two constants or two equal sides decide is decided."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Boolean(COMPARISONS[sign](left.value, right.value))
    if left == right:
        return Boolean(sign in {"==", "<=", ">="})
    for one, other in ((left, right), (right, left)):
        if isinstance(other, Boolean):
            return one if other.value == (sign == "==") else negated(one)
    return Compare(left, ((sign, right),))


def _negative(operand: Expr) -> Expr:
    return Integer(-operand.value) if isinstance(operand, Integer) else Negate(operand)


def _arithmetic(sign: str, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Integer) and isinstance(right, Integer):
        a, b = left.value, right.value
        return Integer(a + b if sign == "+" else a - b if sign == "-" else a * b)
    zero, one = Integer(0), Integer(1)
    if sign in "+-" and right == zero:
        return left
    if sign == "+" and left == zero:
        return right
    if sign == "*" and zero in (left, right):
        return zero
    if sign == "*" and one in (left, right):
        return right if left == one else left
    return Arithmetic(sign, left, right)  # type: ignore[arg-type]  # one of the three signs
