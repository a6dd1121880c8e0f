"""Ground expressions as Boolean functions of bits: what the symbolic engine computes with.

Takes a `Ground` and a manager of binary decision diagrams (of package `dd`), gives nodes. A field is so many bits as its size needs, the
most significant first; each bit has two variables, for the value before and after a rule, side by side in the manager's order.
Whole numbers are lists of nodes in two's complement, the least significant first.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

from dsa.expr import And, Arithmetic, Boolean, Compare, Expr, Integer, Name, Negate, Not, Or, names
from dsa.ground import Ground

#: A node of dd; the package has no types.
Node = Any
Bits = list[Node]


class Circuits:
    """The variables of a ground system in a manager, and its expressions over them.

    `order` has the indexes of the fields as they are declared in the manager.
    """

    def __init__(self, ground: Ground, manager: Any) -> None:  # noqa: ANN401  (dd has no types)
        self._ground, self.manager = ground, manager
        self.false, self.true = manager.false, manager.true
        self.order = field_order(ground)
        self.now: dict[int, list[str]] = {}
        self.later: dict[int, list[str]] = {}
        for index in self.order:
            width = (ground.fields[index].size - 1).bit_length()
            self.now[index] = [f"x{index}_{bit}" for bit in range(width)]
            self.later[index] = [f"y{index}_{bit}" for bit in range(width)]
            for bit in reversed(range(width)):
                manager.declare(self.now[index][bit], self.later[index][bit])
        self._place = {field.name: index for index, field in enumerate(ground.fields)}
        self._truths: dict[Expr, Node] = {}

    def all_now(self) -> list[str]:
        """Give the variables of the values before, in the manager's order."""
        return [name for index in self.order for name in reversed(self.now[index])]

    def assignment(self, number: int, fields: Iterable[int]) -> dict[str, bool]:
        """Give the values that the variables of some fields have at a configuration."""
        found: dict[str, bool] = {}
        for index in fields:
            field = self._ground.fields[index]
            digit = number % self._ground.volume // field.stride % field.size
            found |= {name: bool(digit >> place & 1) for place, name in enumerate(self.now[index])}
        return found

    def cube(self, number: int, fields: Iterable[int] | None = None) -> Node:
        """Give the condition that fields (all, unless told) have the values of a configuration."""
        return self.manager.cube(self.assignment(number, self.order if fields is None else fields))

    def picked(self, node: Node) -> int:
        """Give the data of some configuration of a set that is not empty."""
        values = self.manager.pick(node, care_vars=set(self.all_now()))
        data = 0
        for index, field in enumerate(self._ground.fields):
            digit = sum(1 << place for place, name in enumerate(self.now[index]) if values[name])
            data += digit * field.stride
        return data

    def all_of(self, nodes: Iterable[Node]) -> Node:
        """Join nodes by `and`."""
        return reduce(lambda a, b: a & b, nodes, self.true)

    def any_of(self, nodes: Iterable[Node]) -> Node:
        """Join nodes by `or`."""
        return reduce(lambda a, b: a | b, nodes, self.false)

    def becomes(self, variables: list[str], index: int, value: Expr) -> Node:
        """Give the condition that variables of a field, the least significant first, hold the value of an expression."""
        digit = self._sum(self.number(value), self._constant(-self._ground.fields[index].low))
        bits = self._extended(digit, len(variables) + 1)
        return self.all_of(self._same(self.manager.var(name), bits[k]) for k, name in enumerate(variables))

    def truth(self, expr: Expr) -> Node:
        """Give a condition over the values before."""
        if expr not in self._truths:
            self._truths[expr] = self._truth(expr)
        return self._truths[expr]

    def _truth(self, expr: Expr) -> Node:
        match expr:
            case Boolean(value):
                return self.true if value else self.false
            case Name():
                return self._field(expr.name)[0]
            case Not(operand):
                return ~self.truth(operand)
            case And(operands):
                return self.all_of(map(self.truth, operands))
            case Or(operands):
                return self.any_of(map(self.truth, operands))
            case Compare(left, ((sign, right),)):
                return self._compared(self.number(left), sign, self.number(right))
        raise AssertionError(f"{expr} is no condition of a ground")

    def number(self, expr: Expr) -> Bits:
        """Give a whole number; a condition is 1 or 0."""
        match expr:
            case Integer(value):
                return self._constant(value)
            case Name(name) if not self._ground.fields[self._place[name]].is_bool:
                return self._field(name)
            case Negate(operand):
                return self._negative(self.number(operand))
            case Arithmetic("+", left, right):
                return self._sum(self.number(left), self.number(right))
            case Arithmetic("-", left, right):
                return self._sum(self.number(left), self._negative(self.number(right)))
            case Arithmetic("*", left, right):
                return self._product(self.number(left), self.number(right))
            case _:
                return [self.truth(expr), self.false]

    def _field(self, name: str) -> Bits:
        index = self._place[name]
        field = self._ground.fields[index]
        bits = [self.manager.var(variable) for variable in self.now[index]]
        if field.is_bool:
            return bits
        return self._sum([*bits, self.false], self._constant(field.low))

    def _constant(self, value: int) -> Bits:
        width = max(value, -value - 1).bit_length() + 1
        return [self.true if value >> place & 1 else self.false for place in range(width)]

    def _extended(self, bits: Bits, width: int) -> Bits:
        return [*bits, *([bits[-1]] * (width - len(bits)))]

    def _same(self, a: Node, b: Node) -> Node:
        return a.equiv(b)

    def _sum(self, left: Bits, right: Bits) -> Bits:
        width = max(len(left), len(right)) + 1
        carry, found = self.false, []
        for a, b in zip(self._extended(left, width), self._extended(right, width), strict=True):
            either = ~self._same(a, b)
            found.append(~self._same(either, carry))
            carry = (a & b) | (either & carry)
        return _shortened(found)

    def _negative(self, bits: Bits) -> Bits:
        return self._sum([~bit for bit in self._extended(bits, len(bits) + 1)], self._constant(1))

    def _product(self, left: Bits, right: Bits) -> Bits:
        """Multiply by shifting and adding; what is beyond the width of both falls away."""
        width = len(left) + len(right)
        if sum(bit in {self.true, self.false} for bit in left) == len(left):
            left, right = right, left
        left, total = self._extended(left, width), self._constant(0)
        for place, chosen in enumerate(self._extended(right, width)):
            if chosen != self.false:
                shifted = [self.false] * place + [bit & chosen for bit in left[: width - place]]
                total = self._extended(self._sum(self._extended(total, width), shifted), width)[:width]
        return _shortened(total)

    def _compared(self, left: Bits, sign: str, right: Bits) -> Node:
        match sign:
            case "==":
                return self._equal(left, right)
            case "!=":
                return ~self._equal(left, right)
            case "<":
                return self._less(left, right)
            case ">":
                return self._less(right, left)
            case "<=":
                return ~self._less(right, left)
            case _:
                return ~self._less(left, right)

    def _equal(self, left: Bits, right: Bits) -> Node:
        return self.all_of(self._same(a, b) for a, b in self._aligned(left, right))

    def _less(self, left: Bits, right: Bits) -> Node:
        pairs = list(self._aligned(left, right))
        less = self.false
        for a, b in pairs[:-1]:
            less = (~a & b) | (self._same(a, b) & less)
        negative, other = pairs[-1]
        return (negative & ~other) | (self._same(negative, other) & less)

    def _aligned(self, left: Bits, right: Bits) -> Iterator[tuple[Node, Node]]:
        width = max(len(left), len(right))
        return zip(self._extended(left, width), self._extended(right, width), strict=True)


def _shortened(bits: Bits) -> Bits:
    """Drop the signs that say the same as the one before."""
    last = len(bits)
    while last > 1 and bits[last - 1] == bits[last - 2]:
        last -= 1
    return bits[:last]


def field_order(ground: Ground) -> list[int]:
    """Put fields next to each other that rules read and write together: those that meet in the narrowest rules first."""
    place = {field.name: index for index, field in enumerate(ground.fields)}
    weights: dict[tuple[int, int], float] = {}
    for rule in ground.rules:
        texts = [rule.condition, *(value for _, value in rule.updates)]
        met = sorted({place[name] for text in texts for name in names(text)} | {index for index, _ in rule.updates})
        for number, one in enumerate(met):
            for other in met[number + 1 :]:
                weights[one, other] = weights.get((one, other), 0.0) + len(met) ** -2.0
    groups = {index: [index] for index in range(len(ground.fields))}
    for one, other in sorted(weights, key=lambda pair: (-weights[pair], pair)):
        first, second = groups[one], groups[other]
        if first is not second:
            first.extend(second)
            groups.update(dict.fromkeys(second, first))
    return [index for start, group in groups.items() if group[0] == start for index in group]
