"""Expressions: syntax trees, their types and domains, evaluation and simplification.

All values are frozen. Every stage that executes a machine reads this tree; none calls `eval`. Names are unique over a whole machine
(specs/table.md), so one flat environment `name -> value` is enough: it maps variables and parameters to their values, guards to their verdicts and,
for properties, states, events and effects to whether they hold at the moment.

`substitute` and `simplify` make expressions smaller. The result has the same value in every environment.
"""

import operator
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Literal

import attrs

from dsa.errors import SourceNode

Value = bool | int | str
Environment = Mapping[str, Value]
NameKind = Literal["unresolved", "variable", "parameter", "state", "event", "effect", "pending"]
Outcome = Literal["passed", "failed", "fatal"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "fatal")


@attrs.frozen
class Boolean(SourceNode):
    """`true` or `false`."""

    value: bool


@attrs.frozen
class Integer(SourceNode):
    """A whole number."""

    value: int


@attrs.frozen
class Symbol(SourceNode):
    """A value of an enumeration. For an index that a family stands for, `among` are all of the family's."""

    value: str
    among: tuple[str, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)


@attrs.frozen
class Name(SourceNode):
    """A declared name. `kind` says what it names, once names are resolved."""

    name: str
    kind: NameKind = "unresolved"


@attrs.frozen
class Verdict(SourceNode):
    """`g.passed`, `g.failed` or `g.fatal`: the verdict of guard `guard` on the event."""

    guard: str
    outcome: Outcome


@attrs.frozen(cache_hash=True)
class Not(SourceNode):
    """`not operand`."""

    operand: "Expr"


@attrs.frozen(cache_hash=True)
class Negate(SourceNode):
    """`-operand`."""

    operand: "Expr"


@attrs.frozen(cache_hash=True)
class Arithmetic(SourceNode):
    """`left operator right` with `+`, `-` or `*`."""

    operator: Literal["+", "-", "*"]
    left: "Expr"
    right: "Expr"


@attrs.frozen(cache_hash=True)
class Compare(SourceNode):
    """A comparison, chained as in Python: `first` followed by pairs of operator and operand."""

    first: "Expr"
    rest: tuple[tuple[str, "Expr"], ...]


@attrs.frozen(cache_hash=True)
class Member(SourceNode):
    """`operand in {a, b}`."""

    operand: "Expr"
    choices: tuple["Expr", ...]


@attrs.frozen(cache_hash=True)
class And(SourceNode):
    """Two or more conjuncts."""

    operands: tuple["Expr", ...]


@attrs.frozen(cache_hash=True)
class Or(SourceNode):
    """Two or more disjuncts."""

    operands: tuple["Expr", ...]


@attrs.frozen(cache_hash=True)
class Count(SourceNode):
    """`count(a, b)`: how many of one or more conditions are true; one that stands twice counts twice."""

    operands: tuple["Expr", ...]


Expr = Boolean | Integer | Symbol | Name | Verdict | Not | Negate | Arithmetic | Compare | Member | And | Or | Count
TRUE = Boolean(True)  # noqa: FBT003  (a node, not a flag)

COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def evaluate(expr: Expr, environment: Environment) -> Value:
    """Evaluate a resolved and typed expression.

    `environment` maps every name that occurs to its value, a guard to its verdict (`passed`, `failed`,
    `fatal`), `pending E` to whether effect E is outstanding, and `pending` to whether any effect is. A missing name raises
    KeyError, as it is a fault of the caller, not of the table.
    """
    match expr:
        case Boolean(value) | Integer(value) | Symbol(value):
            return value
        case Name(name, kind):
            return environment[pending_text(name) if kind == "pending" else name]
        case Verdict(guard, outcome):
            return environment[guard] == outcome
        case Not(operand):
            return not evaluate(operand, environment)
        case Negate(operand):
            return -_integer(operand, environment)
        case Arithmetic(sign, left, right):
            return _ARITHMETIC[sign](_integer(left, environment), _integer(right, environment))
        case Compare(first, rest):
            return _compare(first, rest, environment)
        case Member(operand, choices):
            value = evaluate(operand, environment)
            return any(value == evaluate(choice, environment) for choice in choices)
        case And(operands):
            return all(evaluate(operand, environment) for operand in operands)
        case Or(operands):
            return any(evaluate(operand, environment) for operand in operands)
        case Count(operands):
            return count(*(holds(operand, environment) for operand in operands))


def count(*conditions: bool) -> int:
    """Return how many conditions are true. Python made from an expression by `unparse` knows it by this name."""
    return sum(conditions)


def pending_text(effect: str) -> str:
    """Return `pending E`; `pending`, which is about all effects, for the empty name."""
    return f"pending {effect}" if effect else "pending"


def _integer(expr: Expr, environment: Environment) -> int:
    value = evaluate(expr, environment)
    assert isinstance(value, int), f"{unparse(expr)} is not a number"  # typed in dsa.lang
    return value


def _compare(first: Expr, rest: tuple[tuple[str, Expr], ...], environment: Environment) -> bool:
    left = evaluate(first, environment)
    for sign, operand in rest:
        right = evaluate(operand, environment)
        if not COMPARISONS[sign](left, right):
            return False
        left = right
    return True


def holds(expr: Expr, environment: Environment) -> bool:
    """Evaluate a condition."""
    return evaluate(expr, environment) is True


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions, left to right."""
    match expr:
        case Not(operand) | Negate(operand):
            return (operand,)
        case Arithmetic(_, left, right):
            return (left, right)
        case Compare(first, rest):
            return (first, *(operand for _, operand in rest))
        case Member(operand, choices):
            return (operand, *choices)
        case And(operands) | Or(operands) | Count(operands):
            return operands
        case _:
            return ()


def with_children(expr: Expr, parts: Iterable[Expr]) -> Expr:
    """Return the expression with other direct subexpressions, as many as `children` returns."""
    new = tuple(parts)
    match expr:
        case Not() | Negate():
            return attrs.evolve(expr, operand=new[0])
        case Arithmetic():
            return attrs.evolve(expr, left=new[0], right=new[1])
        case Compare(_, rest):
            pairs = zip((sign for sign, _ in rest), new[1:], strict=True)
            return attrs.evolve(expr, first=new[0], rest=tuple(pairs))
        case Member():
            return attrs.evolve(expr, operand=new[0], choices=new[1:])
        case And() | Or() | Count():
            return attrs.evolve(expr, operands=new)
        case Boolean() | Integer() | Symbol() | Name() | Verdict():
            return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all its subexpressions, left to right."""
    yield expr
    for child in children(expr):
        yield from walk(child)


@lru_cache(maxsize=16_384)
def names(expr: Expr) -> frozenset[str]:
    """Return the names of variables, parameters, states, events and effects that occur."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Name) and node.name)


@lru_cache(maxsize=4_096)
def pending_effects(expr: Expr) -> frozenset[str]:
    """Return the effects E of which the expression reads `pending E`; the empty name stands for `pending`."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Name) and node.kind == "pending")


@lru_cache(maxsize=4_096)
def guards_read(expr: Expr) -> frozenset[str]:
    """Return the guards whose verdict the expression reads."""
    return frozenset(node.guard for node in walk(expr) if isinstance(node, Verdict))


def conjunction(operands: list[Expr]) -> Expr:
    """Join conditions by `and`: none is `true`, one stays itself, nested `and` is flattened."""
    flat = [part for operand in operands for part in (operand.operands if isinstance(operand, And) else (operand,))]
    return _join(And, flat, TRUE)


def disjunction(operands: list[Expr]) -> Expr:
    """Join conditions by `or`: none is `false`, one stays itself, nested `or` is flattened."""
    flat = [part for operand in operands for part in (operand.operands if isinstance(operand, Or) else (operand,))]
    return _join(Or, flat, Boolean(False))  # noqa: FBT003


def _join(node: type[And] | type[Or], operands: list[Expr], empty: Expr) -> Expr:
    if not operands:
        return empty
    return operands[0] if len(operands) == 1 else node(tuple(operands))


# How tightly each node binds. An operand that binds less tightly than its place requires gets parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)


def unparse(expr: Expr, *, is_closed: bool = False, alone: bool = False) -> str:
    """Return the expression as the text of a cell, with no more parentheses than its structure needs.

    With `is_closed`, an `and` or `or` at the top gets parentheses, so that words may follow it. With `alone`, everything
    but a name or a number gets them, so that anything may stand around it.
    """
    return _unparse(expr, _ATOM if alone else _NOT if is_closed else _OR)


def _unparse(expr: Expr, least_level: int) -> str:
    text, level = _text(expr)
    return f"({text})" if level < least_level else text


def _text(expr: Expr) -> tuple[str, int]:
    match expr:
        case Boolean(value) | Symbol(value):
            return show_value(value), _ATOM
        case Integer(value):
            return str(value), (_ATOM if value >= 0 else _UNARY)
        case Name(name, kind):
            return (pending_text(name) if kind == "pending" else name), _ATOM
        case Verdict(guard, outcome):
            return f"{guard}.{outcome}", _ATOM
        case Not(operand):
            return f"not {_unparse(operand, _NOT)}", _NOT
        case Negate(operand):
            # `-3` is the number; the negation of the number 3 keeps its parentheses.
            inner = _unparse(operand, _UNARY)
            return (f"-({inner})" if isinstance(operand, Integer) else f"-{inner}"), _UNARY
        case Arithmetic(sign, left, right):
            level = _PRODUCT if sign == "*" else _SUM
            return f"{_unparse(left, level)} {sign} {_unparse(right, level + 1)}", level
        case Compare(first, rest):
            tail = "".join(f" {sign} {_unparse(operand, _SUM)}" for sign, operand in rest)
            return _unparse(first, _SUM) + tail, _COMPARE
        case Member(operand, choices):
            return (
                f"{_unparse(operand, _SUM)} in {{{', '.join(_unparse(choice, _SUM) for choice in choices)}}}",
                _COMPARE,
            )
        case And(operands):
            return " and ".join(_unparse(operand, _NOT) for operand in operands), _AND
        case Or(operands):
            return " or ".join(_unparse(operand, _AND) for operand in operands), _OR
        case Count(operands):
            return f"count({', '.join(map(unparse, operands))})", _ATOM


@attrs.frozen
class BooleanDomain:
    """`bool`."""


@attrs.frozen
class RangeDomain:
    """`low..high`, both included; bounds are expressions over parameters, `high` None means unbounded."""

    low: Expr
    high: Expr | None


@attrs.frozen
class EnumDomain:
    """`{x, y, z}`, in the order written."""

    values: tuple[str, ...]


Domain = BooleanDomain | RangeDomain | EnumDomain


@attrs.frozen
class Interval:
    """The whole numbers from `low` to `high`, both included; `high` None means without end."""

    low: int
    high: int | None

    def contains(self, value: Value) -> bool:
        """Return whether `value` is one of them."""
        return type(value) is int and self.low <= value and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


@attrs.frozen
class Choices:
    """A finite set of values, in declared order: an enumeration, or `false`, `true`."""

    values: tuple[Value, ...]

    def contains(self, value: Value) -> bool:
        """Return whether `value` is one of them."""
        return any(value == choice and type(value) is type(choice) for choice in self.values)

    def __str__(self) -> str:
        return "bool" if self.values == (False, True) else "{" + ", ".join(str(value) for value in self.values) + "}"


Values = Interval | Choices


def concrete(domain: Domain, environment: Environment) -> Values:
    """Return the values of a domain at the given parameter values."""
    match domain:
        case BooleanDomain():
            return Choices((False, True))
        case EnumDomain(values):
            return Choices(values)
        case RangeDomain(low, high):
            return Interval(_integer(low, environment), None if high is None else _integer(high, environment))


def unparse_domain(domain: Domain) -> str:
    """Return a domain as the text of a cell."""
    match domain:
        case BooleanDomain():
            return "bool"
        case EnumDomain(values):
            return "{" + ", ".join(values) + "}"
        case RangeDomain(low, high):
            return f"{unparse(low)}..{'' if high is None else unparse(high)}"


def show_number(number: float) -> str:
    """Return a number in decimal digits, never with an exponent, so that it reads back exactly."""
    return format(Decimal(repr(number)), "f")


def show_value(value: Value) -> str:
    """Return a value as the text of a cell."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_NUMBER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 100


def read_value(text: str) -> Value:
    """Read a value as a person writes it for a parameter: `5`, `true`, `fast`. Raises ValueError for a number of more than 100 digits."""
    if text in {"true", "false"}:
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS} digits is too large")
    return int(text)


FALSE = Boolean(False)  # noqa: FBT003  (a node, not a flag)
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRROR = {"==": "==", "!=": "!=", "<": ">", ">=": "<=", ">": "<", "<=": ">="}

Constant = Boolean | Integer | Symbol


def constant(value: Value) -> Constant:
    """Return the node of a value."""
    if isinstance(value, bool):
        return Boolean(value)
    return Integer(value) if isinstance(value, int) else Symbol(value)


Leaf = Name | Verdict | Symbol


def substitute(node: Expr, leaf: Callable[[Leaf], Expr]) -> Expr:
    """Replace every name, verdict and enumeration value by the result of `leaf`, and fold everything that is then decided."""
    match node:
        case Name() | Verdict() | Symbol():
            return leaf(node)
        case Not(operand):
            return negation(substitute(operand, leaf))
        case Negate(operand):
            return _negative(substitute(operand, leaf))
        case Arithmetic(sign, left, right):
            return _arithmetic(sign, substitute(left, leaf), substitute(right, leaf))
        case Compare(first, rest):
            operands = [substitute(first, leaf), *(substitute(operand, leaf) for _, operand in rest)]
            pairs = zip(operands, (sign for sign, _ in rest), operands[1:], strict=False)
            return all_of(comparison(left, sign, right) for left, sign, right in pairs)
        case Member(operand, choices):
            value = substitute(operand, leaf)
            return any_of(comparison(value, "==", substitute(choice, leaf)) for choice in choices)
        case And(operands):
            return all_of(substitute(operand, leaf) for operand in operands)
        case Or(operands):
            return any_of(substitute(operand, leaf) for operand in operands)
        case Count(operands):
            return count_of(substitute(operand, leaf) for operand in operands)
        case Boolean() | Integer():
            return node


def simplify(node: Expr) -> Expr:
    """Fold everything that constants decide; chains and memberships become plain comparisons."""
    return substitute(node, lambda name: name)


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """Return the operands of a conjunction; anything else is alone."""
    return condition.operands if isinstance(condition, And) else (condition,)


def all_of(operands: Iterable[Expr]) -> Expr:
    """Join by `and`, without true operands and repetitions; false when an operand is false or contradicts another."""
    parts: dict[Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, And) else (operand,):
            if part == FALSE or negation(part) in parts:
                return FALSE
            if part != TRUE:
                parts[part] = None
    if any(isinstance(part, Not) and _follows(part.operand, parts) for part in parts):
        return FALSE
    return conjunction(list(parts))


def _follows(node: Expr, parts: Container[Expr]) -> bool:
    """Return whether an expression follows from some of `parts` by its form alone."""
    match node:
        case _ if node in parts:
            return True
        case And(operands):
            return all(_follows(operand, parts) for operand in operands)
        case Or(operands):
            return any(_follows(operand, parts) for operand in operands)
        case _:
            return False


def any_of(operands: Iterable[Expr]) -> Expr:
    """Join by `or`, without false operands and repetitions; true when an operand is true or two are opposites."""
    parts: dict[Expr, None] = {}
    for operand in operands:
        for part in operand.operands if isinstance(operand, Or) else (operand,):
            if part == TRUE or negation(part) in parts:
                return TRUE
            if part != FALSE:
                parts[part] = None
    return disjunction(list(parts))


def count_of(operands: Iterable[Expr]) -> Expr:
    """Return how many conditions are true: those that are constants as a number, the others counted."""
    parts = list(operands)
    others = tuple(part for part in parts if not isinstance(part, Boolean))
    sure = Integer(parts.count(TRUE))
    return _arithmetic("+", Count(others), sure) if others else sure


def negation(node: Expr) -> Expr:
    """Return the negation of a condition; constants, comparisons and negations need no `not`."""
    match node:
        case Boolean(value):
            return Boolean(not value)
        case Not(operand):
            return operand
        case Compare(first, ((sign, second),)):
            return Compare(first, ((_OPPOSITE[sign], second),))
        case _:
            return Not(node)


def comparison(left: Expr, sign: str, right: Expr) -> Expr:
    """Return the comparison of two expressions of one type; a constant if two constants or two equal sides decide it."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Boolean(COMPARISONS[sign](left.value, right.value))
    if left == right:
        return Boolean(sign in {"==", "<=", ">="})
    for one, other in ((left, right), (right, left)):
        if isinstance(other, Boolean):
            return one if other.value == (sign == "==") else negation(one)
    decision = _by_range(left, sign, right)
    return Compare(left, ((sign, right),)) if decision is None else decision


def _by_range(left: Expr, sign: str, right: Expr) -> Expr | None:
    """Simplify a comparison of a count with a number, where the count's range decides it or leaves one outcome: none, all, not one, not all."""
    if isinstance(left, Integer):
        return _by_range(right, _MIRROR[sign], left) if isinstance(right, Count) else None
    match left, right:
        case Arithmetic("+", Count() as several, Integer(sure)), Integer(number):
            return comparison(several, sign, Integer(number - sure))
        case Count(), Integer():
            pass
        case _:
            return None
    most, holds_at = len(left.operands), COMPARISONS[sign]
    outcomes = [holds_at(number, right.value) for number in range(most + 1)]
    if all(outcomes) or not any(outcomes):
        return Boolean(outcomes[0])
    if outcomes.count(True) == 1 and (outcomes[0] or outcomes[-1]):
        return all_of(map(negation, left.operands) if outcomes[0] else left.operands)
    if outcomes.count(False) == 1 and not (outcomes[0] and outcomes[-1]):
        return any_of(map(negation, left.operands) if outcomes[0] else left.operands)
    return None


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


#: The least and the greatest number that a comparison allows; None for unbounded.
Bounds = tuple[int | None, int | None]


@attrs.frozen
class ConjunctFacts:
    """Facts from the conjuncts of a condition that compare an expression with a constant: its bounds, or its value of an enumeration."""

    bounds: Mapping[Expr, Bounds]
    values: Mapping[Expr, str]

    def exclude(self, other: "ConjunctFacts") -> bool:
        """Return whether these facts show that two conditions are never true together. False means only that they do not show it."""
        if any(value != other.values.get(left, value) for left, value in self.values.items()):
            return True
        pairs = ((mine, other.bounds[left]) for left, mine in self.bounds.items() if left in other.bounds)
        return any(_before(one, two) or _before(two, one) for one, two in pairs)


def facts(condition: Expr) -> ConjunctFacts:
    """Return the facts that the form of a condition shows."""
    numbers: dict[Expr, Bounds] = {}
    values: dict[Expr, str] = {}
    for part in conjuncts(condition):
        match part:
            case Compare(left, (("==", Symbol(value)),)):
                values[left] = value
            case Compare(left, ((sign, Integer(number)),)) if sign != "!=":
                numbers[left] = _narrow(numbers.get(left, (None, None)), sign, number)
    return ConjunctFacts(numbers, values)


def _narrow(bounds: Bounds, sign: str, number: int) -> Bounds:
    low, high = bounds
    if sign in {"==", ">=", ">"}:
        least = number + (sign == ">")
        low = least if low is None else max(low, least)
    if sign in {"==", "<=", "<"}:
        most = number - (sign == "<")
        high = most if high is None else min(high, most)
    return low, high


def _before(one: Bounds, two: Bounds) -> bool:
    """Return whether all numbers of the first are less than all of the second."""
    return one[1] is not None and two[0] is not None and one[1] < two[0]
