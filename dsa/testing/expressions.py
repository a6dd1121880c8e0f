"""Typed expressions over given names, drawn for Hypothesis.

Takes a `Vocabulary` (what may be named, and of which type) and Hypothesis' `draw`, gives resolved trees as `dsa.lang`
builds them. Knows nothing of rows or sections. The functions draw directly: building a recursive strategy anew for the
names of every machine is ten times slower.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import attrs
from hypothesis import strategies as st

from dsa import expr

T = TypeVar("T")

_SIGNS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS: tuple[Literal["+", "-", "*"], ...] = ("+", "-", "*")
_EQUALITY = ("==", "!=")


def chosen(draw: st.DrawFn, items: Sequence[T]) -> T:
    """Draw one of some values; it shrinks towards the first."""
    return items[draw(st.integers(0, len(items) - 1))]


def one_in(draw: st.DrawFn, count: int) -> bool:
    """Draw true once in `count` times; it shrinks towards false."""
    return draw(st.integers(1, count)) == count


@attrs.frozen
class Vocabulary:
    """What an expression may name.

    `numbers` and `conditions` are names of that type, `choices` pairs of a name and its enumeration's values, `verdicts`
    pairs of a guard and an outcome it has.
    """

    numbers: tuple[expr.Name, ...] = ()
    conditions: tuple[expr.Name, ...] = ()
    choices: tuple[tuple[expr.Name, tuple[str, ...]], ...] = ()
    verdicts: tuple[tuple[str, expr.Outcome], ...] = ()

    def naming(self, kind: expr.NameKind, names: tuple[str, ...]) -> "Vocabulary":
        """Give the vocabulary with more names that are true or false: states, events, effects, `pending E`."""
        return attrs.evolve(self, conditions=self.conditions + tuple(expr.Name(name, kind) for name in names))

    def judged_by(self, verdicts: tuple[tuple[str, expr.Outcome], ...]) -> "Vocabulary":
        """Give the vocabulary with these verdicts."""
        return attrs.evolve(self, verdicts=verdicts)


def label(draw: st.DrawFn, vocabulary: Vocabulary) -> expr.Expr:
    """Draw what stands in a property where a comparison would be read otherwise: names and verdicts, joined."""
    leaves: list[expr.Expr] = [*vocabulary.conditions, *(expr.Verdict(*pair) for pair in vocabulary.verdicts)]
    leaves = leaves or [expr.Boolean(value=True)]
    first, second = chosen(draw, leaves), chosen(draw, leaves)
    joined: tuple[expr.Expr, ...] = (first, first, expr.Not(first), expr.Or((first, second)), expr.And((first, second)))
    return chosen(draw, joined)


def number(draw: st.DrawFn, vocabulary: Vocabulary, depth: int = 1) -> expr.Expr:
    """Draw a number: a constant, a name, or what `+`, `-` and `*` make of them."""
    form = chosen(draw, ("name", "constant", "binary", "negation")[: 4 if depth else 2])
    if form == "binary":
        sign = chosen(draw, _OPERATORS)
        return expr.Arithmetic(sign, number(draw, vocabulary, depth - 1), number(draw, vocabulary, depth - 1))
    if form == "negation":
        return expr.Negate(number(draw, vocabulary, depth - 1))
    if form == "name" and vocabulary.numbers:
        return chosen(draw, vocabulary.numbers)
    return expr.Integer(draw(st.integers(-3, 5)))


def condition(draw: st.DrawFn, vocabulary: Vocabulary, depth: int = 2) -> expr.Expr:
    """Draw a condition: a name, comparison, membership or verdict, or what `and`, `or` and `not` make of them."""
    form = chosen(draw, ("atom", "atom", "and", "or", "not")) if depth else "atom"
    if form == "atom":
        return _atom(draw, vocabulary)
    if form == "not":
        return expr.Not(condition(draw, vocabulary, depth - 1))
    operands = tuple(condition(draw, vocabulary, depth - 1) for _ in range(draw(st.integers(2, 3))))
    return expr.And(operands) if form == "and" else expr.Or(operands)


def _atom(draw: st.DrawFn, vocabulary: Vocabulary) -> expr.Expr:
    forms = ["verdict"] * 2 if vocabulary.verdicts else []
    forms += ["name", "alike"] if vocabulary.conditions else []
    forms += ["compare", "chain", "member"] if vocabulary.numbers else []
    forms += ["choice"] if vocabulary.choices else []
    match chosen(draw, forms or ["constant"]):
        case "verdict":
            return expr.Verdict(*chosen(draw, vocabulary.verdicts))
        case "name":
            return chosen(draw, vocabulary.conditions)
        case "alike":
            left, right = chosen(draw, vocabulary.conditions), chosen(draw, vocabulary.conditions)
            return expr.Compare(left, ((chosen(draw, _EQUALITY), right),))
        case "choice":
            return _about_choice(draw, *chosen(draw, vocabulary.choices))
        case "constant":
            return expr.Boolean(draw(st.booleans()))
        case form:
            return _about_number(draw, vocabulary, form)


def _about_number(draw: st.DrawFn, vocabulary: Vocabulary, form: str) -> expr.Expr:
    name = chosen(draw, vocabulary.numbers)
    if form == "member":
        return expr.Member(name, tuple(expr.Integer(value) for value in _several(draw, (0, 1, 2, -1, 3))))
    count = 1 if form == "compare" else 2
    return expr.Compare(name, tuple((chosen(draw, _SIGNS), number(draw, vocabulary)) for _ in range(count)))


def _about_choice(draw: st.DrawFn, name: expr.Name, values: tuple[str, ...]) -> expr.Expr:
    if draw(st.booleans()):
        return expr.Member(name, tuple(expr.Symbol(value) for value in _several(draw, values)))
    return expr.Compare(name, ((chosen(draw, _EQUALITY), expr.Symbol(chosen(draw, values))),))


def _several(draw: st.DrawFn, items: Sequence[T]) -> list[T]:
    return [item for item in items if draw(st.booleans())] or [items[0]]
