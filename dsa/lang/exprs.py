"""Cell text to expression trees: the tokenizer and the parser. Names stay unresolved; `dsa.lang.typed` resolves them.

Takes a `Cell`, gives expressions whose nodes know their place. What cannot be read raises `UnreadableError`,
which the callers turn into a diagnostic; it never leaves `dsa.lang`.
"""

import re
from typing import NamedTuple, NoReturn

from dsa import expr
from dsa.errors import Span
from dsa.lang.markdown import Cell

RESERVED = frozenset(
    ["and", "or", "not", "in", "else", "true", "false", "pending", "cancel", "revoke", "after", "between"]
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_TOKEN = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)"
    rf"|(?P<name>{NAME.pattern})"
    r"|(?P<wrong>=>|->)"
    r"|(?P<sign>\.\.|<=|>=|==|!=|\+=|-=|[-+*<>=(){},;:])"
    r"|(?P<space>[\s`]+)"
    r"|(?P<other>&&|\|\||.)",
    re.DOTALL,
)
_HINTS = {
    "&&": "write 'and'",
    "||": "write 'or'",
    "|": "write 'or'",
    "&": "write 'and'",
    "!": "write 'not', or '!=' for unequal",
    "/": "there is no division; multiply the other side",
    "'": "values of an enumeration are written without quotes",
    '"': "values of an enumeration are written without quotes",
    "[": "there are no lists: write a set as {a, b}; a list is one variable for each place (q_1, q_2)",
    "=>": "write 'not A or B'",
    "->": "write 'not A or B'",
    "?": "there is no choice inside an expression: write a row for each case",
    "%": "there is no remainder; count in a variable with a domain",
}
#: What words of other languages are written as here, where they stand behind an expression.
_WORDS = {
    "if": _HINTS["?"],
    "then": _HINTS["?"],
    "implies": _HINTS["=>"],
    "xor": "of two conditions: write '!='",
    "mod": _HINTS["%"],
    "div": _HINTS["/"],
}
_QUANTIFIERS = frozenset({"all", "any", "forall", "exists", "every", "some", "count", "sum"})
MAX_NAME = 200
_MAX_DEPTH, _MAX_TERMS, _MAX_DIGITS, _MAX_DECIMALS = 60, 100, 18, 40


class UnreadableError(Exception):
    """Raised inside `dsa.lang` when a cell cannot be read; `start` and `end` are offsets in the cell."""

    def __init__(self, message: str, start: int, end: int, hint: str = "") -> None:
        self.message, self.start, self.end, self.hint = message, start, end, hint
        super().__init__(message)


class Token(NamedTuple):
    """A piece of a cell: `kind` is `number`, `name`, `sign`, or `end` at the end of the cell."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(cell: Cell) -> list[Token]:
    """Cut a cell into tokens; backticks count as space. Raises UnreadableError at the first foreign character."""
    tokens = []
    for match in _TOKEN.finditer(cell.text):
        kind = match.lastgroup or "other"
        if kind in {"other", "wrong"}:
            text = match[0]
            raise UnreadableError(f"'{text}' means nothing here", match.start(), match.end(), _HINTS.get(text, ""))
        if kind != "space":
            tokens.append(Token(kind, match[0], match.start(), match.end()))
    tokens.append(Token("end", "", len(cell.text), len(cell.text)))
    return tokens


class Parser:
    """A recursive-descent parser over the tokens of one cell; each method reads what its name says."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._tokens = tokenize(cell)
        self._place = 0
        self._depth = 0
        self._terms = 0

    @property
    def next(self) -> Token:
        """The token not yet read."""
        return self._tokens[self._place]

    def at(self, *texts: str) -> bool:
        """Tell whether the next tokens are these."""
        for place, text in enumerate(texts, self._place):  # noqa: SIM110  (a generator costs more than the rest here)
            if self._tokens[place].text != text:  # the end's text is empty, so this never looks beyond it
                return False
        return True

    def accept(self, *texts: str) -> bool:
        """Read these tokens if they come next."""
        found = self.at(*texts)
        if found:
            self._place += len(texts)
        return found

    def expect(self, text: str, hint: str = "") -> Token:
        """Read this token, or fail."""
        token = self.next
        if token.text != text or token.kind == "end":
            self.fail(f"expected '{text}'", hint)
        self._place += 1
        return token

    def fail(self, message: str, hint: str = "") -> NoReturn:
        """Fail at the next token."""
        token = self.next
        found = "nothing follows" if token.kind == "end" else f"found '{token.text}'"
        raise UnreadableError(f"{message}, but {found}", token.start, max(token.end, token.start + 1), hint)

    def reject(self, message: str, hint: str = "") -> NoReturn:
        """Fail at the next token with words that name it already."""
        token = self.next
        raise UnreadableError(message, token.start, max(token.end, token.start + 1), hint)

    def end(self, hint: str | None = None) -> None:
        """Require that everything has been read; `hint` says what else might follow."""
        token = self.next
        if token.kind != "end":
            missing = "an operator is missing before it" if token.kind in {"name", "number"} else ""
            self.reject(f"'{token.text}' cannot stand here", self._meant(token) or (missing if hint is None else hint))

    def _meant(self, token: Token) -> str:
        """Say how to write what stands behind an expression as other languages have it; empty for anything else."""
        before = self._tokens[self._place - 1] if self._place else token
        after = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        if before.kind == "name" and before.text in _QUANTIFIERS and (token.text in "(:" or after.text in {":", "in"}):
            return "there are no quantifiers: write the conditions out, joined by 'and' or 'or'"
        if before.kind == "name" and token.text == "(" and before.end == token.start:
            return f"there are no functions: write a row for each case that '{before.text}' tells apart"
        return _WORDS.get(token.text, "")

    def name(self, what: str) -> Token:
        """Read a name that is not reserved."""
        token = self.next
        if token.kind != "name":
            self.fail(f"expected {what}")
        if reserved := [part for part in token.text.split(".") if part in RESERVED]:
            self.fail(f"expected {what}", f"'{reserved[0]}' is a reserved word")
        if len(token.text) > MAX_NAME:
            self.reject(f"a name has at most {MAX_NAME} characters")
        self._place += 1
        return token

    def take(self) -> Token:
        """Read any token."""
        token = self.next
        self._place += 1
        return token

    def expression(self) -> expr.Expr:
        """Read a whole expression, `or` included."""
        start = self.next.start
        operands = [self.conjunction()]
        while self.accept("or"):
            operands.append(self.conjunction())
        return operands[0] if len(operands) == 1 else expr.Or(tuple(operands), span=self._since(start))

    def conjunction(self) -> expr.Expr:
        """Read conditions joined by `and`."""
        start = self.next.start
        operands = [self.negation()]
        while self.accept("and"):
            operands.append(self.negation())
        return operands[0] if len(operands) == 1 else expr.And(tuple(operands), span=self._since(start))

    def negation(self) -> expr.Expr:
        """Read a condition without `and` and `or` outside parentheses."""
        start = self.next.start
        if not self.accept("not"):
            return self._comparison()
        self._deeper()
        operand = expr.Not(self.negation(), span=self._since(start))
        self._depth -= 1
        return operand

    def _comparison(self) -> expr.Expr:
        start = self.next.start
        first = self.sum()
        negated = self.at("not", "in") and self.accept("not")
        if self.accept("in"):
            member = expr.Member(first, self._set(), span=self._since(start))
            return expr.Not(member, span=self._since(start)) if negated else member
        rest: list[tuple[str, expr.Expr]] = []
        while self.next.kind == "sign" and self.next.text in expr.COMPARISONS:
            sign = self.take().text
            rest.append((sign, self.sum()))
        if self.at("="):
            self.reject("'=' does not compare", "write '=='")
        return expr.Compare(first, tuple(rest), span=self._since(start)) if rest else first

    def _set(self) -> tuple[expr.Expr, ...]:
        self.expect("{", "write a set as {a, b}")
        items = [self.sum()]
        while self.accept(","):
            items.append(self.sum())
        self.expect("}")
        return tuple(items)

    def sum(self) -> expr.Expr:
        """Read an arithmetic expression."""
        start = self.next.start
        left = self._product()
        while self.at("+") or self.at("-"):
            sign = self._operator().text
            left = expr.Arithmetic("+" if sign == "+" else "-", left, self._product(), span=self._since(start))
        return left

    def _product(self) -> expr.Expr:
        start = self.next.start
        left = self._unary()
        while self.at("*"):
            self._operator()
            left = expr.Arithmetic("*", left, self._unary(), span=self._since(start))
        return left

    def _operator(self) -> Token:
        """Read an arithmetic operator. Each makes the tree deeper, and whatever walks a tree recurses."""
        self._terms += 1
        if self._terms > _MAX_TERMS:
            self.reject(f"a cell has at most {_MAX_TERMS} arithmetic operators")
        return self.take()

    def _unary(self) -> expr.Expr:
        start = self.next.start
        if not self.accept("-"):
            return self._atom()
        if self.next.kind == "number":
            return expr.Integer(-self.integer(), span=self._since(start))
        self._deeper()
        operand = expr.Negate(self._unary(), span=self._since(start))
        self._depth -= 1
        return operand

    def _atom(self) -> expr.Expr:
        token = self.next
        if token.kind == "number":
            return expr.Integer(self.integer(), span=self._since(token.start))
        if self.accept("("):
            self._deeper()
            inner = self.expression()
            self.expect(")")
            self._depth -= 1
            return inner
        if token.text in {"true", "false"}:
            self.take()
            return expr.Boolean(token.text == "true", span=self._since(token.start))
        if self.accept("pending"):
            name = self.name("the name of an effect after 'pending'")
            return expr.Name(name.text, "pending", span=self._since(token.start))
        if token.text == "else":
            self.reject(
                "'else' cannot stand inside an expression", "write 'else', or 'else and CONDITION', as the whole cell"
            )
        name = self.name("a name, a number or '('")
        return expr.Name(name.text, span=self._since(name.start))

    def literal(self) -> expr.Expr:
        """Read a single value: a number with its sign, or a word."""
        if self.at("("):
            self.reject("a value stands here, not an expression")
        value = self._unary()
        if isinstance(value, expr.Negate):
            self.reject("a value stands here, not an expression")
        return value

    def integer(self) -> int:
        """Read a whole number without sign."""
        token = self.next
        if token.kind != "number" or "." in token.text:
            self.fail("expected a whole number from 0")
        if len(token.text) > _MAX_DIGITS:
            self.fail(f"a number has at most {_MAX_DIGITS} digits")
        return int(self.take().text)

    def number(self) -> float:
        """Read a number, decimals allowed."""
        token = self.next
        if token.kind != "number" or len(token.text) > _MAX_DECIMALS:
            self.fail("expected a number")
        return float(self.take().text)

    def _since(self, start: int) -> Span:
        return self._cell.span(start, self._tokens[max(0, self._place - 1)].end)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.reject(f"nested more than {_MAX_DEPTH} deep", "name a part in a guard or a variable")
