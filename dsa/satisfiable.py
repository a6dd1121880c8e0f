"""Whether a condition over finite variables can be true: found by splitting on what it says, with a bound on the work; and what its form alone says.

Takes a condition and the values of each variable in it; knows no machine. Splitting is that of Davis, Putnam, Logemann and Loveland
(1962): a conjunct that names one value of a variable settles it, else the variable with the fewest values is tried out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import attrs

from dsa import expr
from dsa.simplify import Leaf, all_of, constant, negated, substituted

#: For each variable, the values that it may have: whole numbers, or truth values.
Ranges = Mapping[str, Sequence[int]]
#: So many values of each variable are looked at before any is tried out.
_SAMPLES = 8
#: Of a variable that has no more values, each is tried.
_FEW = 8
#: A condition of usual size has so many nodes.
_USUAL = 200
#: A comparison leaves of an expression's values the numbers from the first bound to the second one; None is no bound.
_Bounds = tuple[int | None, int | None]


@attrs.define
class Effort:
    """How many more values may be tried, in conditions of a usual size; a longer one takes as many more as it is longer. None once `expired` says that the time is over."""

    left: int
    expired: Callable[[], bool] = lambda: False


def satisfiable(condition: expr.Expr, ranges: Ranges, effort: Effort) -> bool | None:
    """Tell whether some values make a condition true; None when the effort was used up before that was known."""
    if isinstance(condition, expr.Boolean):
        return condition.value
    cost = 1 + sum(1 for _ in expr.walk(condition)) // _USUAL
    for part in _branches(condition, ranges):
        if effort.left <= 0 or effort.expired():
            return None
        effort.left -= cost
        found = satisfiable(part, ranges, effort)
        if found is not False:
            return found
    return False


def outcomes_at_samples(condition: expr.Expr, ranges: Ranges) -> frozenset[bool]:
    """Return what a condition is at a few values: all lowest, all highest, and some between."""
    read = sorted(expr.names(condition))
    return frozenset(
        expr.evaluate(condition, {name: _sample(ranges[name], number * (place + 1)) for place, name in enumerate(read)})
        is True
        for number in range(_SAMPLES)
    )


def _sample(values: Sequence[int], number: int) -> int:
    size = _size(values)
    return values[number * (size // _SAMPLES + 1) % size]


def _size(values: Sequence[int]) -> int:
    """Return how many values there are, which may be more than `len` can say."""
    return values.stop - values.start if isinstance(values, range) else len(values)


def _branches(condition: expr.Expr, ranges: Ranges) -> Iterable[expr.Expr]:
    """Give conditions of which one can be true if this one can: its alternatives, or what it is at each value that is left for one of its variables."""
    match condition:
        case expr.Or(operands):
            return operands
        case expr.Not(expr.And(operands)):
            return map(negated, operands)
        case expr.Not(expr.Or(operands)):
            return (all_of(map(negated, operands)),)
    name, values = _split(condition, ranges)
    return (_with(condition, name, value) for value in values)


def _split(condition: expr.Expr, ranges: Ranges) -> tuple[str, Sequence[int]]:
    """Choose a variable, and the values of it that are left."""
    for part in _conjuncts(condition):
        match part:
            case expr.Name(name):
                return name, [value for value in ranges[name] if value]
            case expr.Not(expr.Name(name)):
                return name, [value for value in ranges[name] if not value]
            case expr.Compare(expr.Name(name), (("==", expr.Integer(value)),)):
                return name, [value] if value in ranges[name] else []
    name, values = min(
        ((name, ranges[name]) for name in sorted(expr.names(condition))), key=lambda item: _size(item[1])
    )
    return name, _telling(condition, name, values)


def _telling(condition: expr.Expr, name: str, values: Sequence[int]) -> Sequence[int]:
    """Return values of a variable among which there is one of each kind: what lies between two numbers that it is compared with is all of one kind."""
    turns = _turns(condition, name) if isinstance(values, range) and _size(values) > _FEW else None
    if turns is None or not values:
        return values
    near = {turn + step for turn in turns for step in (0, 1)}
    return sorted({values[0], values[-1], *(each for each in near if each in values)})


def _turns(node: expr.Expr, name: str) -> set[int] | None:
    """Return the numbers at which a condition may become true or false as a variable grows; None where that is not seen by its form."""
    if name not in expr.names(node):
        return set()
    match node:
        case expr.Compare(first, rest):
            sides = [_shifted(side, name) for side in (first, *(operand for _, operand in rest))]
            found = set[int]()
            for left, right in pairwise(sides):
                if left is None or right is None:
                    return None
                (is_left, shift), (is_right, number) = left, right
                if is_left != is_right:
                    found.add(number - shift if is_left else shift - number)
            return found
        case expr.And(operands) | expr.Or(operands):
            parts = [_turns(operand, name) for operand in operands]
            return None if None in parts else set().union(*(part for part in parts if part))
        case expr.Not(operand):
            return _turns(operand, name)
    return None


def _shifted(side: expr.Expr, name: str) -> tuple[bool, int] | None:
    """Return a side of a comparison as the variable plus a number, or as a number; None for anything else."""
    match side:
        case expr.Integer(number):
            return False, number
        case expr.Name(found) if found == name:
            return True, 0
        case expr.Arithmetic("+", expr.Name(found), expr.Integer(number)) if found == name:
            return True, number
        case expr.Arithmetic("+", expr.Integer(number), expr.Name(found)) if found == name:
            return True, number
        case expr.Arithmetic("-", expr.Name(found), expr.Integer(number)) if found == name:
            return True, -number
    return None


def _with(condition: expr.Expr, name: str, value: int) -> expr.Expr:
    known = constant(value)

    def leaf(node: Leaf) -> expr.Expr:
        return known if isinstance(node, expr.Name) and node.name == name else node

    return substituted(condition, leaf)


def _conjuncts(condition: expr.Expr) -> tuple[expr.Expr, ...]:
    return condition.operands if isinstance(condition, expr.And) else (condition,)


@attrs.frozen
class Facts:
    """What the conjuncts of a condition say by comparing an expression with a constant: between which numbers, or which value of an enumeration, it lies."""

    bounds: Mapping[expr.Expr, _Bounds]
    values: Mapping[expr.Expr, str]

    def exclude(self, other: "Facts") -> bool:
        """Tell whether the two conditions are seen never to be true together; what is not seen may still be so."""
        if any(value != other.values.get(left, value) for left, value in self.values.items()):
            return True
        pairs = ((mine, other.bounds[left]) for left, mine in self.bounds.items() if left in other.bounds)
        return any(_before(one, two) or _before(two, one) for one, two in pairs)


def facts(condition: expr.Expr) -> Facts:
    """Return what a condition says by its form alone."""
    numbers: dict[expr.Expr, _Bounds] = {}
    values: dict[expr.Expr, str] = {}
    for part in _conjuncts(condition):
        match part:
            case expr.Compare(left, (("==", expr.Symbol(value)),)):
                values[left] = value
            case expr.Compare(left, ((sign, expr.Integer(number)),)) if sign != "!=":
                numbers[left] = _narrowed(numbers.get(left, (None, None)), sign, number)
    return Facts(numbers, values)


def _narrowed(known: _Bounds, sign: str, number: int) -> _Bounds:
    low, high = known
    if sign in {"==", ">=", ">"}:
        least = number + (sign == ">")
        low = least if low is None else max(low, least)
    if sign in {"==", "<=", "<"}:
        most = number - (sign == "<")
        high = most if high is None else min(high, most)
    return low, high


def _before(one: _Bounds, two: _Bounds) -> bool:
    """Tell whether all numbers of the first are less than all of the second."""
    return one[1] is not None and two[0] is not None and one[1] < two[0]
