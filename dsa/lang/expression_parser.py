"""The expression parser: tokens and syntax trees of cells.

- `TokenReader` reads names, numbers and signs, and `ExpressionParser` expressions. Their nodes know their place. They raise `UnreadableError`, which the
  callers turn into a diagnostic; the error never leaves `dsa.lang`.
- They read what families stand for: `x[f]` as `x[2]`, `f` as 2, and a quantified part as the conjunction or disjunction of its bodies, one for each index.
  So a quantified body is read several times. `(count f: P)` is read as `count(..)` over its bodies.
- `Findings` collects the diagnostics of one reading, so that it reports every fault.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeVar

import attrs

from dsa import expr
from dsa.errors import Diagnostic, Span
from dsa.lang.markdown import Cell, Families
from dsa.text import closest

T = TypeVar("T")

KEYWORDS = frozenset(
    ["and", "or", "not", "in", "else", "true", "false", "pending", "cancel", "revoke", "after", "between"]
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
#: A name that may have an index: `look[b].failed`, `x[f+1]`, `x[2]`.
INDEXED_NAME = re.compile(
    rf"{NAME.pattern}(?:\[[ \t]*(?:[A-Za-z_][A-Za-z0-9_]*(?:[ \t]*[+-][ \t]*1)?|[0-9]+)[ \t]*\](?:\.[A-Za-z_][A-Za-z0-9_]*)*)?"
)
_INDEX = re.compile(r"\[[ \t]*([A-Za-z_0-9]+)[ \t]*([+-])?")
_TOKEN = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)"
    rf"|(?P<name>{INDEXED_NAME.pattern})"
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
    "/": "instead of dividing, multiply the other side of the comparison",
    "'": "values of an enumeration are written without quotes",
    '"': "values of an enumeration are written without quotes",
    "[": "a name has at most one index: f, f+1 or f-1 for a family f, or a fixed value; examples: x[f], x[f+1], x[f-1], x[2]",
    "=>": "write 'not A or B'",
    "->": "write 'not A or B'",
    "?": "an expression cannot choose between cases; write a row for each case",
    "%": "there is no operator for remainders; keep a variable that goes 0, 1, 0, 1 and so on",
}
#: Hints for words of other languages after an expression.
_WORDS = {
    "if": _HINTS["?"],
    "then": _HINTS["?"],
    "implies": _HINTS["=>"],
    "xor": "for 'xor' of two conditions, write '!='",
    "mod": _HINTS["%"],
    "div": _HINTS["/"],
}
_QUANTIFIERS = frozenset({"all", "any", "forall", "exists", "every", "some"})
#: Words that make a quantified part where a family and a colon follow. Everywhere else they are names like others.
QUANTIFIERS = frozenset({"all", "any", "count"})
#: It also begins a count directly before a parenthesis.
_COUNT = "count"
_COUNT_HINT = "to count over a family f, write (count f: P) >= 2; to count conditions P and Q, write count(P, Q) >= 2, without a space after 'count'"
MAX_NAME = 200
MAX_TERMS = 100
#: A family has no more values either.
MAX_COUNTED = 64
_MAX_DEPTH, _MAX_DIGITS, _MAX_DECIMALS = 60, 18, 40
_MAX_BODIES = 10_000


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


def tokenize(cell: Cell) -> Sequence[Token]:
    """Cut a cell into tokens; backticks count as space. Raises UnreadableError at the first foreign character."""
    return _tokens_of_family_cell(cell.text) if cell.families else _tokens(cell.text)


def _tokens(text: str) -> Sequence[Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind in {"other", "wrong"}:
            sign = match[0]
            raise UnreadableError(f"'{sign}' means nothing here", match.start(), match.end(), _HINTS.get(sign, ""))
        if kind != "space":
            tokens.append(Token(kind, match[0], match.start(), match.end()))
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


#: A cell with families is read once for each row that its row stands for.
_tokens_of_family_cell = lru_cache(maxsize=100)(_tokens)


def free_families(text: str, families: Families) -> set[str]:
    """Return the families that are free in a cell: not bound by an `all f:`, `any f:` or `count f:` around them (Fa3)."""
    free, bound, depth = set[str](), list[tuple[str, int]](), 0
    words = [match[0] for match in _TOKEN.finditer(text) if match.lastgroup != "space"]
    for place, word in enumerate(words):
        if word in "({":
            depth += 1
        elif word in ")}":
            depth -= 1
            bound = [each for each in bound if each[1] <= depth]
        elif word in ",;":
            bound = [each for each in bound if each[1] < depth]
        elif word in QUANTIFIERS and words[place + 2 : place + 3] == [":"]:
            bound.append((words[place + 1], depth))
        elif word != _COUNT or words[place + 1 : place + 2] != ["("]:
            index = _INDEX.search(word)
            name = index[1] if index else word
            if name in families and all(name != other for other, _ in bound):
                free.add(name)
    return free


def canonical_spacing(cell: Cell) -> str:
    """Return the text of a cell in canonical spacing, or as it is where it has characters that mean nothing."""
    try:
        tokens = tokenize(cell)[:-1]
    except UnreadableError:
        return cell.plain
    text = ""
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else None
        is_tight = before is None or before.text in {"(", "{", ".."} or token.text in {")", "}", ",", ";", ":", ".."}
        is_tight |= before is not None and before.text == _COUNT and token.text == "(" and before.end == token.start
        is_sign = before is not None and before.text == "-" and _is_unary(tokens, place - 1)
        word = _INDEX_SPACE.sub("", token.text) if "[" in token.text else token.text
        text += word if is_tight or is_sign else f" {word}"
    return text


_INDEX_SPACE = re.compile(r"[ \t]+")


def _is_unary(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a minus sign has nothing on its left that it could be taken from."""
    before = tokens[place - 1] if place else None
    if before is None or (before.kind == "sign" and before.text not in {")", "}"}):
        return True
    return before.kind == "name" and before.text in KEYWORDS


class TokenReader:
    """A reader of the tokens of one cell; each method reads what its name says."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._tokens = tokenize(cell)
        self._place = 0
        #: The token not yet read.
        self.next = self._tokens[0]
        self._depth = 0
        self._terms = 0
        self._bodies = 0
        self._families, self._indices = cell.families, cell.indices
        self._open_quantifier: Token | None = None

    def at(self, *texts: str) -> bool:
        """Return whether the next tokens are these."""
        for place, text in enumerate(texts, self._place):  # noqa: SIM110  (a generator costs more than the rest here)
            if self._tokens[place].text != text:  # the end's text is empty, so this never looks beyond it
                return False
        return True

    def _go_to(self, place: int) -> None:
        self._place, self.next = place, self._tokens[place]

    def accept(self, *texts: str) -> bool:
        """Read these tokens if they come next; return whether they did."""
        if self.next.text != texts[0] or not self.at(*texts):
            return False
        self._go_to(self._place + len(texts))
        return True

    def expect(self, text: str, hint: str = "") -> Token:
        """Read this token, or fail."""
        token = self.next
        if token.text != text or token.kind == "end":
            self.fail(f"expected '{text}'", hint)
        self._go_to(self._place + 1)
        return token

    def fail(self, message: str, hint: str = "") -> NoReturn:
        """Fail at the next token."""
        token = self.next
        actual = "nothing follows" if token.kind == "end" else f"found '{token.text}'"
        raise UnreadableError(f"{message}, but {actual}", token.start, max(token.end, token.start + 1), hint)

    def reject(self, message: str, hint: str = "") -> NoReturn:
        """Fail at the next token with a message that names it already."""
        token = self.next
        raise UnreadableError(message, token.start, max(token.end, token.start + 1), hint)

    def end(self, hint: str | None = None) -> None:
        """Require that everything has been read; `hint` says what else might follow."""
        token = self.next
        if token.kind != "end":
            missing = "an operator is missing before it" if token.kind in {"name", "number"} else ""
            problem = (
                f"cannot follow '{self._tokens[self._place - 1].text}' here" if self._place else "is not allowed here"
            )
            self.reject(
                f"'{token.text}' {problem}", self._foreign_word_hint(token) or (missing if hint is None else hint)
            )

    def _foreign_word_hint(self, token: Token) -> str:
        """Return a hint for a construct of another language after an expression; empty for anything else."""
        before = self._tokens[self._place - 1] if self._place else token
        after = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        if before.kind == "name" and before.text in {_COUNT, "sum"} and (token.kind == "name" or token.text in "(:"):
            return _COUNT_HINT
        if before.kind == "name" and before.text in _QUANTIFIERS and (token.text in "(:" or after.text in {":", "in"}):
            return "write 'all f: P' or 'any f: P', with a family f that a section '## Families' declares"
        if before.kind == "name" and token.text == "(" and before.end == token.start:
            return f"there is no function '{before.text}'; the only function is count(..). Instead of one row with '{before.text}', write several rows, one for each case"
        return _WORDS.get(token.text, "")

    def name(self, what: str) -> Token:
        """Read a name that is not reserved."""
        token = self.next
        if token.kind != "name":
            self.fail(f"expected {what}")
        if not KEYWORDS.isdisjoint(token.text.split(".")):
            keywords = [part for part in token.text.split(".") if part in KEYWORDS]
            self.fail(f"expected {what}", f"'{keywords[0]}' is a reserved word")
        if len(token.text) > MAX_NAME:
            self.reject(f"a name has at most {MAX_NAME} characters")
        self._go_to(self._place + 1)
        return Token("name", self._with_index(token), token.start, token.end) if "[" in token.text else token

    def _with_index(self, token: Token) -> str:
        """Return a name with the index that stands for the family in it."""
        base, _, rest = token.text.partition("[")
        inside, _, ending = rest.partition("]")
        word = inside.strip()
        if word in self._indices:
            return f"{base}[{self._indices[word]}]{ending}"
        match = _INDEX.match(f"[{word}")
        if match is None or not match[2]:
            return f"{base}[{word}]{ending}"
        if match[1] not in self._indices:
            hint = closest(match[1], self._families, "declare families in a section '## Families'")
            raise self.fault(token, f"'{match[1]}' in '{token.text}' is not a family", hint)
        indices = self._families[match[1]]
        place = indices.index(self._indices[match[1]]) + (1 if match[2] == "+" else -1)
        return f"{base}[{indices[place % len(indices)]}]{ending}"

    @staticmethod
    def fault(token: Token, message: str, hint: str = "") -> UnreadableError:
        """Return the error about a token."""
        return UnreadableError(message, token.start, token.end, hint)

    def each_index(self, read: Callable[[], T]) -> list[T]:
        """Read what may begin with `all f:`, once for each index of f."""
        if not self._at_quantifier():
            return [read()]
        if self.next.text != "all":
            what = "comparisons of numbers" if self.next.text == _COUNT else "conditions"
            self.reject(
                f"'{self.next.text}' is not allowed in an update, only in {what}",
                "to assign for each index f, write: all f: x[f] = VALUE",
            )
        self.take()
        return self._each_body(read)

    def _at_quantifier(self) -> bool:
        if self.next.text not in QUANTIFIERS or self._tokens[self._place + 1].kind != "name":
            return False
        return self._tokens[self._place + 2].text == ":"

    def _each_body(self, read: Callable[[], T]) -> list[T]:
        """Read the rest of a quantified part, from its family on, once for each index."""
        family = self.take()
        if family.text not in self._families:
            hint = closest(family.text, self._families, "declare it in a section '## Families'")
            raise self.fault(family, f"'{family.text}' is not a family", hint)
        self.expect(":")
        start, terms, outer, results = self._place, self._terms, self._indices, list[T]()
        for index in self._families[family.text]:
            self._bodies += 1
            if self._bodies > _MAX_BODIES:
                raise self.fault(family, f"'all', 'any' and 'count' may expand a cell to at most {_MAX_BODIES:,} parts")
            self._go_to(start)
            self._terms, self._indices = terms, {**outer, family.text: index}
            results.append(read())
        self._indices = outer
        return results

    def require_closed(self, where: str) -> None:
        """Report a quantified part without parentheses around it: it goes as far right as it can."""
        if self._open_quantifier is not None:
            hint = f"write: ({self._open_quantifier.text} f: ..)"
            raise self.fault(
                self._open_quantifier, f"{where}, '{self._open_quantifier.text} f: ..' must be in parentheses", hint
            )

    def take(self) -> Token:
        """Read any token."""
        token = self.next
        self._go_to(self._place + 1)
        return token

    def integer(self, least: int = 0) -> int:
        """Read a whole number without sign, from `least`."""
        token = self.next
        if len(token.text) > _MAX_DIGITS and token.kind == "number" and "." not in token.text:
            self.fail(f"a number has at most {_MAX_DIGITS} digits")
        if token.kind != "number" or "." in token.text or int(token.text) < least:
            self.fail(f"expected a whole number, {least} or greater")
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
            self.reject(f"nested more than {_MAX_DEPTH} levels deep", "move a part into a guard or a variable")


class ExpressionParser(TokenReader):
    """A recursive-descent parser over the tokens of one cell; each method reads what its name says.

    A quantified part is the conjunction or disjunction of its bodies, one for each index of its family.
    """

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
            is_quantified = self._at_quantifier() and self.next.text != _COUNT
            return self._quantifier() if is_quantified else self._comparison()
        self._deeper()
        operand = expr.Not(self.negation(), span=self._since(start))
        self._depth -= 1
        return operand

    def _quantifier(self) -> expr.Expr:
        """Read `all f: P` or `any f: P`, whose P goes as far right as it can."""
        word = self.take()
        if self._depth == 0:
            self._open_quantifier = word
        self._deeper()
        parts = self._each_body(self.expression)
        self._depth -= 1
        node = (expr.conjunction if word.text == "all" else expr.disjunction)(parts)
        return attrs.evolve(node, span=self._since(word.start))

    def _comparison(self) -> expr.Expr:
        start = self.next.start
        first = self.sum()
        is_negative = self.at("not", "in") and self.accept("not")
        if self.accept("in"):
            member = expr.Member(first, self._set(), span=self._since(start))
            return expr.Not(member, span=self._since(start)) if is_negative else member
        rest: list[tuple[str, expr.Expr]] = []
        while self.next.kind == "sign" and self.next.text in expr.COMPARISONS:
            sign = self.take().text
            rest.append((sign, self.sum()))
        if self.at("="):
            self.reject("'=' is not a comparison", "write '=='")
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
        while self.next.text in {"+", "-"}:
            sign = self._operator().text
            left = expr.Arithmetic("+" if sign == "+" else "-", left, self._product(), span=self._since(start))
        return left

    def _product(self) -> expr.Expr:
        start = self.next.start
        left = self._unary()
        while self.next.text == "*":
            self._operator()
            left = expr.Arithmetic("*", left, self._unary(), span=self._since(start))
        return left

    def _operator(self) -> Token:
        """Read an arithmetic operator. Each makes the tree deeper, and walks over trees are recursive."""
        self._terms += 1
        if self._terms > MAX_TERMS:
            self.reject(f"a cell has at most {MAX_TERMS} arithmetic operators")
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
            inner = (
                self._count_over_family() if self.next.text == _COUNT and self._at_quantifier() else self.expression()
            )
            self.expect(")")
            self._depth -= 1
            return inner
        if token.text == _COUNT:
            if self._at_quantifier():
                self.reject("a count over a family needs parentheses around it", _COUNT_HINT)
            if self._tokens[self._place + 1].text == "(" and self._tokens[self._place + 1].start == token.end:
                return self._count()
        if token.text in {"true", "false"}:
            self.take()
            return expr.Boolean(token.text == "true", span=self._since(token.start))
        if self.accept("pending"):
            effect = "" if self._is_bare_pending() else self.name("the name of an effect after 'pending'").text
            return expr.Name(effect, "pending", span=self._since(token.start))
        if token.text == "else":
            self.reject(
                "'else' is not allowed inside an expression", "write 'else', or 'else and CONDITION', as the whole cell"
            )
        name = self.name("a name, a number or '('")
        if name.text in self._indices:
            return self._index(name)
        return expr.Name(name.text, span=self._since(name.start))

    def _count_over_family(self) -> expr.Expr:
        """Read `count f: P`, whose P goes as far right as it can."""
        word = self.take()
        return expr.Count(tuple(self._each_body(self.expression)), span=self._since(word.start))

    def _count(self) -> expr.Expr:
        """Read `count(P, Q)`."""
        word = self.take()
        self.take()
        if self.at(")"):
            self.reject("'count' needs a condition", "write: count(P, Q)")
        self._deeper()
        operands = [self.expression()]
        while self.accept(","):
            if len(operands) == MAX_COUNTED:
                self.reject(f"a count has at most {MAX_COUNTED} conditions", "write the sum of two counts")
            operands.append(self.expression())
        self.expect(")", _COUNT_HINT)
        self._depth -= 1
        return expr.Count(tuple(operands), span=self._since(word.start))

    def _index(self, name: Token) -> expr.Expr:
        """Return the index that a family stands for as a value."""
        index, span = self._indices[name.text], self._since(name.start)
        if isinstance(index, int):
            return expr.Integer(index, span=span)
        return expr.Symbol(index, among=tuple(map(str, self._families[name.text])), span=span)

    def _is_bare_pending(self) -> bool:
        """Return whether no effect is named after `pending`: a word of the language or a sign follows, or nothing."""
        follows_leads_to = (("assuming", "fair"), ("assuming", "weakly"), ("even", "if"))
        follows_expression = (
            ("leads", "to"),
            ("only", "after"),
            ("with", "probability"),
            ("unchanged",),
            *follows_leads_to,
        )
        return (
            self.next.kind != "name"
            or self.next.text in KEYWORDS
            or any(self.at(*words) for words in follows_expression)
        )

    def literal(self) -> expr.Expr:
        """Read a single value: a number with its sign, or a word."""
        if self.at("("):
            self.reject("only a value is allowed here, not an expression")
        value = self._unary()
        if isinstance(value, expr.Negate):
            self.reject("only a value is allowed here, not an expression")
        return value


_LONGEST = 300


class Findings:
    """The diagnostics of one reading, in the order found. Mutable on purpose, and private to `dsa.lang`.

    One fault is reported once: the names in an unreadable part are in doubt, and a missing declaration of a name in doubt is only a
    consequence.
    """

    def __init__(self) -> None:
        self._findings: list[Diagnostic] = []
        self._consequences: list[Diagnostic] = []
        self._doubtful: set[str] = set()
        self._doubt_all = False
        #: Whether a row stands for several: then a fault is reported for the first of them.
        self.has_families = False

    def error(self, code: str, message: str, span: Span, hint: str = "", *, about: str = "") -> None:
        """Add an error: the document is not a machine. `about` is the missing name, if one is missing."""
        finding = Diagnostic(code, "error", _short(message), span, hint)
        parts = about.partition("[")[0].split(".")
        is_consequence = about and (self._doubt_all or not self._doubtful.isdisjoint(parts))
        (self._consequences if is_consequence else self._findings).append(finding)

    def doubt(self, text: str) -> None:
        """Record the names in a text that could not be read; the fault itself is reported."""
        self._doubtful.update(part for name in NAME.findall(text) for part in name.split("."))

    def doubt_all(self) -> None:
        """Record that the declarations of most names could not be read."""
        self._doubt_all = True

    def warning(self, code: str, message: str, span: Span, hint: str = "") -> None:
        """Add a warning: the document is a machine, perhaps not the one that was meant."""
        self._findings.append(Diagnostic(code, "warning", message, span, hint))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, once each, by line and column; a consequence only if no error explains it."""
        findings = [*self._findings, *([] if self._any_cause else self._consequences[:1])]
        if self.has_families:
            findings = list({(finding.code, finding.span): finding for finding in reversed(findings)}.values())
        return tuple(sorted(dict.fromkeys(findings), key=lambda d: (d.span.path, d.span.line, d.span.column, d.code)))

    @property
    def count(self) -> int:
        """The number of findings so far, consequences included."""
        return len(self._findings) + len(self._consequences)

    @property
    def any_error(self) -> bool:
        """Return whether there is an error, so that the document is not a machine."""
        return self._any_cause or bool(self._consequences)

    @property
    def _any_cause(self) -> bool:
        return any(finding.severity == "error" for finding in self._findings)


def _short(message: str) -> str:
    """Return the beginning and the end of a message that quotes a very long cell."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
