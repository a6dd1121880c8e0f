"""Conditions and values of SCXML, as ECMAScript or Python write them, to expression trees.

Takes text, gives trees whose names are data as they are called there, texts are enumeration values, and `_event.data.g == 'passed'` is a
verdict of g. Raises `ForeignError` for anything else: there are no calls, no properties, no division.
"""

import re
from typing import Literal, get_args

from dsa.expr import And, Arithmetic, Boolean, Compare, Expr, Integer, Name, Negate, Not, Or, Outcome, Symbol, Verdict

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+)(?![\w.])|(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
    r"|(?P<name>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*|\['[^'\\]*'\]|\[\"[^\"\\]*\"\])*)"
    r"|(?P<sign>===|!==|==|!=|<=|>=|&&|\|\||[-+*<>!()]))"
)
_SIGNS = {"===": "==", "!==": "!=", "&&": "and", "||": "or", "!": "not"}
_PYTHON_NOT = "not "
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_DATA = re.compile(r"_event\.data(?:\.([\w$]+)|\[['\"](.*)['\"]\])")
_MAX_DEPTH, _MAX_TOKENS, _MAX_DIGITS = 50, 2_000, 18


class ForeignError(Exception):
    """Raised where an expression is beyond what a table can say; the message says what."""


def read_foreign(text: str) -> Expr:
    """Read a whole expression. Raises ForeignError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._place, self._depth = 0, 0

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _accept(self, *signs: str) -> str:
        kind, text = self._next
        if kind == "sign" and text in signs:
            self._place += 1
            return text
        return ""

    def whole(self) -> Expr:
        found = self._or()
        if self._next[0] != "end":
            raise ForeignError(f"'{self._next[1]}' cannot stand there")
        return found

    def _or(self) -> Expr:
        operands = [self._and()]
        while self._accept("or"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _and(self) -> Expr:
        operands = [self._negation()]
        while self._accept("and"):
            operands.append(self._negation())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _negation(self) -> Expr:
        """Read Python's `not`, which binds less tightly than ECMAScript's `!`."""
        if not self._accept(_PYTHON_NOT):
            return self._comparison()
        self._deeper()
        found = Not(self._negation())
        self._depth -= 1
        return found

    def _comparison(self) -> Expr:
        left = self._sum()
        rest: list[tuple[str, Expr]] = []
        while sign := self._accept(*_COMPARISONS):
            rest.append((sign, self._sum()))
        return _verdict(left, rest) if rest else left

    def _sum(self) -> Expr:
        left = self._product()
        while sign := self._accept("+", "-"):
            left = Arithmetic("+" if sign == "+" else "-", left, self._product())
        return left

    def _product(self) -> Expr:
        left = self._unary()
        while self._accept("*"):
            left = Arithmetic("*", left, self._unary())
        return left

    def _unary(self) -> Expr:
        self._deeper()
        if self._accept("not"):
            found: Expr = Not(self._unary())
        elif self._accept("-"):
            operand = self._unary()
            found = Integer(-operand.value) if isinstance(operand, Integer) else Negate(operand)
        else:
            found = self._atom()
        self._depth -= 1
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ForeignError("it is nested too deeply")

    def _atom(self) -> Expr:
        if self._accept("("):
            found = self._or()
            if not self._accept(")"):
                raise ForeignError("a ')' is missing")
            return found
        kind, text = self._next
        self._place += 1
        match kind:
            case "number":
                if len(text) > _MAX_DIGITS:
                    raise ForeignError(f"a number has at most {_MAX_DIGITS} digits")
                return Integer(int(text))
            case "text":
                return Symbol(text[1:-1])
            case "name":
                return Boolean(text.lower() == "true") if text in {"true", "false", "True", "False"} else Name(text)
            case _:
                raise ForeignError(f"'{text}' cannot stand there" if text else "it ends too early")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(found) > _MAX_TOKENS:
            raise ForeignError(f"'{text[at:].strip()[:20]}' is beyond what a table's expression can say")
        kind, word = match.lastgroup or "", match[match.lastgroup or 0]
        if kind == "name" and word in {"and", "or", "not"}:
            kind, word = "sign", _PYTHON_NOT if word == "not" else word
        found.append((kind, _SIGNS.get(word, word) if kind == "sign" else word))
        at = match.end()
    return found


def _verdict(left: Expr, rest: list[tuple[str, Expr]]) -> Expr:
    """Give a comparison; `_event.data.g == 'passed'`, either way round, is a verdict."""
    if len(rest) > 1:
        raise ForeignError(
            "a chain of comparisons means one thing in Python and another in ECMAScript; write them one by one"
        )
    if isinstance(left, Symbol) and isinstance(rest[0][1], Name) and rest[0][0] in {"==", "!="}:
        left, rest = rest[0][1], [(rest[0][0], left)]
    data = _DATA.fullmatch(left.name) if isinstance(left, Name) else None
    if data is None:
        return Compare(left, tuple(rest))
    sign, said = rest[0]
    if sign not in {"==", "!="} or not isinstance(said, Symbol) or said.value not in get_args(Outcome):
        raise ForeignError("of an event's data only verdicts are read, as in _event.data.g == 'passed'")
    outcome: Literal["passed", "failed", "fatal"] = said.value  # type: ignore[assignment]  # compared above
    verdict = Verdict(data[1] or data[2], outcome)
    return verdict if sign == "==" else Not(verdict)
