"""Expressions made smaller: substitution, and folding of what is already decided.

Takes and gives expression trees; the result has the same value in every environment. Knows no machine.
"""

from collections.abc import Callable, Container, Iterable

from dsa import expr

FALSE = expr.Boolean(False)  # noqa: FBT003  (a node, not a flag)
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

Constant = expr.Boolean | expr.Integer | expr.Symbol


def constant(value: expr.Value) -> Constant:
    """Give the node of a value."""
    if isinstance(value, bool):
        return expr.Boolean(value)
    return expr.Integer(value) if isinstance(value, int) else expr.Symbol(value)


Leaf = expr.Name | expr.Verdict | expr.Symbol


def substituted(node: expr.Expr, leaf: Callable[[Leaf], expr.Expr]) -> expr.Expr:
    """Replace every name, verdict and enumeration value by what `leaf` gives for it, and fold what that decides."""
    match node:
        case expr.Name() | expr.Verdict() | expr.Symbol():
            return leaf(node)
        case expr.Not(operand):
            return negated(substituted(operand, leaf))
        case expr.Negate(operand):
            return _negative(substituted(operand, leaf))
        case expr.Arithmetic(sign, left, right):
            return _arithmetic(sign, substituted(left, leaf), substituted(right, leaf))
        case expr.Compare(first, rest):
            operands = [substituted(first, leaf), *(substituted(operand, leaf) for _, operand in rest)]
            pairs = zip(operands, (sign for sign, _ in rest), operands[1:], strict=False)
            return all_of(compared(left, sign, right) for left, sign, right in pairs)
        case expr.Member(operand, choices):
            value = substituted(operand, leaf)
            return any_of(compared(value, "==", substituted(choice, leaf)) for choice in choices)
        case expr.And(operands):
            return all_of(substituted(operand, leaf) for operand in operands)
        case expr.Or(operands):
            return any_of(substituted(operand, leaf) for operand in operands)
        case expr.Boolean() | expr.Integer():
            return node


def simplified(node: expr.Expr) -> expr.Expr:
    """Fold what is decided by constants alone; chains and memberships become plain comparisons."""
    return substituted(node, lambda name: name)


def all_of(operands: Iterable[expr.Expr]) -> expr.Expr:
    """Join by `and`: without what is true, without repetition; false when some operand is, or contradicts another."""
    kept: dict[expr.Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, expr.And) else (operand,):
            if part == FALSE or negated(part) in kept:
                return FALSE
            if part != expr.TRUE:
                kept[part] = None
    if any(isinstance(part, expr.Not) and _said(part.operand, kept) for part in kept):
        return FALSE
    return expr.conjunction(list(kept))


def _said(node: expr.Expr, kept: Container[expr.Expr]) -> bool:
    """Tell whether an expression follows from what is kept by its form alone."""
    match node:
        case _ if node in kept:
            return True
        case expr.And(operands):
            return all(_said(operand, kept) for operand in operands)
        case expr.Or(operands):
            return any(_said(operand, kept) for operand in operands)
        case _:
            return False


def any_of(operands: Iterable[expr.Expr]) -> expr.Expr:
    """Join by `or`: without what is false, without repetition; true when some operand is, or two say everything."""
    kept: dict[expr.Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, expr.Or) else (operand,):
            if part == expr.TRUE or negated(part) in kept:
                return expr.TRUE
            if part != FALSE:
                kept[part] = None
    return expr.disjunction(list(kept))


def negated(node: expr.Expr) -> expr.Expr:
    """Negate: a constant, a comparison and a negation lose the `not`."""
    match node:
        case expr.Boolean(value):
            return expr.Boolean(not value)
        case expr.Not(operand):
            return operand
        case expr.Compare(first, ((sign, second),)):
            return expr.Compare(first, ((_OPPOSITE[sign], second),))
        case _:
            return expr.Not(node)


def compared(left: expr.Expr, sign: str, right: expr.Expr) -> expr.Expr:
    """Compare two expressions of one type; what two constants or two equal sides decide is decided."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return expr.Boolean(expr.COMPARISONS[sign](left.value, right.value))
    if left == right:
        return expr.Boolean(sign in {"==", "<=", ">="})
    for one, other in ((left, right), (right, left)):
        if isinstance(other, expr.Boolean):
            return one if other.value == (sign == "==") else negated(one)
    return expr.Compare(left, ((sign, right),))


def _negative(operand: expr.Expr) -> expr.Expr:
    return expr.Integer(-operand.value) if isinstance(operand, expr.Integer) else expr.Negate(operand)


def _arithmetic(sign: str, left: expr.Expr, right: expr.Expr) -> expr.Expr:
    if isinstance(left, expr.Integer) and isinstance(right, expr.Integer):
        a, b = left.value, right.value
        return expr.Integer(a + b if sign == "+" else a - b if sign == "-" else a * b)
    zero, one = expr.Integer(0), expr.Integer(1)
    if sign in "+-" and right == zero:
        return left
    if sign == "+" and left == zero:
        return right
    if sign == "*" and zero in (left, right):
        return zero
    if sign == "*" and one in (left, right):
        return right if left == one else left
    return expr.Arithmetic(sign, left, right)  # type: ignore[arg-type]  # one of the three signs
