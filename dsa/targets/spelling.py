"""Spelling: identifiers and expressions in the syntax of other tools, for every export.

`Identifiers` makes every identifier from a prefix and a name, so no user's name is a reserved word of a target or clashes with what an export itself
declares. `Syntax` writes expression trees.
"""

import re
from collections.abc import Callable, Collection, Mapping

import attrs

from dsa.errors import DsaError
from dsa.expr import (
    And,
    Arithmetic,
    Boolean,
    Compare,
    Count,
    Expr,
    Integer,
    Leaf,
    Member,
    Name,
    Negate,
    Not,
    Or,
    Symbol,
    Verdict,
    simplify,
)

_LONGEST = 60


def export_error(message: str) -> DsaError:
    """Return the error for an unknown format, or a machine that a tool cannot take at these parameter values; the message says why."""
    return DsaError(message, code="ExportError")


class Identifiers:
    """A map from names to identifiers of letters, digits and `_`; `a.b` and `a_b` get different ones."""

    def __init__(self, keywords: Collection[str] = ()) -> None:
        self._identifiers = set(keywords)
        self._by_name: dict[tuple[str, str], str] = {}

    def give(self, prefix: str, name: str) -> str:
        """Return the identifier for a prefix and a name, always the same one."""
        key = (prefix, name)
        if key not in self._by_name:
            identifier = re.sub(r"\W", "_", f"{prefix}{name}", flags=re.ASCII)[:_LONGEST]
            while identifier in self._identifiers:
                identifier += "_"
            self._identifiers.add(identifier)
            self._by_name[key] = identifier
        return self._by_name[key]


_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)


@attrs.frozen
class Syntax:
    """The syntax of a target's expressions; `signs` has its own signs of comparisons.

    `negation` comes before its operand; or it is a comparison with a place for the operand: `{} == false`. `number` makes a condition 1 or 0.
    """

    conjunction: str
    disjunction: str
    negation: str
    signs: Mapping[str, str] = attrs.field(factory=dict)
    number: str = "({} ? 1 : 0)"
    true: str = "true"
    false: str = "false"

    def write(self, expr: Expr, leaf: Callable[[Leaf], str]) -> str:
        """Write an expression; `leaf` writes names, verdicts and enumeration values, so that anything may stand around them."""
        return self._text(simplify(expr), leaf)[0]

    def _text(self, expr: Expr, leaf: Callable[[Leaf], str]) -> tuple[str, int]:
        def within(operand: Expr, least_level: int) -> str:
            text, level = self._text(operand, leaf)
            return f"({text})" if level < least_level else text

        match expr:
            case Boolean(value):
                return (self.true if value else self.false), _ATOM
            case Integer(value):
                return (str(value) if value >= 0 else f"({value})"), _ATOM
            case Symbol() | Name() | Verdict():
                return leaf(expr), _ATOM
            case Not(operand) if "{}" in self.negation:
                return self.negation.format(within(operand, _ATOM)), _COMPARE
            case Not(operand):
                return f"{self.negation}{within(operand, _ATOM)}", _NOT
            case Negate(operand):
                return f"(-{within(operand, _ATOM)})", _ATOM
            case Arithmetic(sign, left, right):
                level = _PRODUCT if sign == "*" else _SUM
                return f"{within(left, level)} {sign} {within(right, level + 1)}", level
            case Compare(first, ((sign, second),)):
                return f"{within(first, _SUM)} {self.signs.get(sign, sign)} {within(second, _SUM)}", _COMPARE
            case And(operands):
                return f" {self.conjunction} ".join(within(operand, _NOT) for operand in operands), _AND
            case Or(operands):  # some targets refuse `a and b or c` without parentheses
                return f" {self.disjunction} ".join(within(operand, _NOT) for operand in operands), _OR
            case Count(operands):
                numbers = [self.number.format(self._text(operand, leaf)[0]) for operand in operands]
                return (f"({' + '.join(numbers)})" if len(numbers) > 1 else numbers[0]), _ATOM
            case Compare() | Member():
                raise AssertionError("simplified expressions have neither chains nor memberships")
