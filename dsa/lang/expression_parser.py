"""The expression parser: tokens, syntax trees, name resolution and types.

- `ExpressionParser` reads the text of a `Cell`. Its nodes know their place. It raises `UnreadableError`, which the callers turn into a
  diagnostic; the error never leaves `dsa.lang`.
- `Findings` collects the diagnostics of one reading, so that it reports every fault.
- `Resolver` resolves the names of a tree in a `Scope`, and returns the tree with its type. After a fault the type is None, and nothing more is
  reported about it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

import attrs

from dsa import expr
from dsa.errors import Diagnostic, Span
from dsa.lang.markdown import Cell
from dsa.text import closest, some_of

KEYWORDS = frozenset(
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
    "[": "there are no lists: write a set {a, b}, or one variable for each place (q_1, q_2)",
    "=>": "write 'not A or B'",
    "->": "write 'not A or B'",
    "?": "there is no choice inside an expression: write a row for each case",
    "%": "there is no remainder; count in a variable with a domain",
}
#: Hints for words of other languages after an expression.
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


class ExpressionParser:
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
        """Return whether the next tokens are these."""
        for place, text in enumerate(texts, self._place):  # noqa: SIM110  (a generator costs more than the rest here)
            if self._tokens[place].text != text:  # the end's text is empty, so this never looks beyond it
                return False
        return True

    def accept(self, *texts: str) -> bool:
        """Read these tokens if they come next; return whether they did."""
        is_next = self.at(*texts)
        if is_next:
            self._place += len(texts)
        return is_next

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
            self.reject(
                f"'{token.text}' cannot stand here",
                self._foreign_word_hint(token) or (missing if hint is None else hint),
            )

    def _foreign_word_hint(self, token: Token) -> str:
        """Return a hint for a construct of another language after an expression; empty for anything else."""
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
        if keywords := [part for part in token.text.split(".") if part in KEYWORDS]:
            self.fail(f"expected {what}", f"'{keywords[0]}' is a reserved word")
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
        is_negative = self.at("not", "in") and self.accept("not")
        if self.accept("in"):
            member = expr.Member(first, self._set(), span=self._since(start))
            return expr.Not(member, span=self._since(start)) if is_negative else member
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
        """Read an arithmetic operator. Each makes the tree deeper, and walks over trees are recursive."""
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
            effect = "" if self._is_bare_pending() else self.name("the name of an effect after 'pending'").text
            return expr.Name(effect, "pending", span=self._since(token.start))
        if token.text == "else":
            self.reject(
                "'else' cannot stand inside an expression", "write 'else', or 'else and CONDITION', as the whole cell"
            )
        name = self.name("a name, a number or '('")
        return expr.Name(name.text, span=self._since(name.start))

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
            self.reject("a value stands here, not an expression")
        value = self._unary()
        if isinstance(value, expr.Negate):
            self.reject("a value stands here, not an expression")
        return value

    def integer(self, least: int = 0) -> int:
        """Read a whole number without sign, from `least`."""
        token = self.next
        if len(token.text) > _MAX_DIGITS and token.kind == "number" and "." not in token.text:
            self.fail(f"a number has at most {_MAX_DIGITS} digits")
        if token.kind != "number" or "." in token.text or int(token.text) < least:
            self.fail(f"expected a whole number from {least}")
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

    def error(self, code: str, message: str, span: Span, hint: str = "", *, about: str = "") -> None:
        """Add an error: the document is not a machine. `about` is the missing name, if one is missing."""
        finding = Diagnostic(code, "error", _short(message), span, hint)
        is_consequence = about and (self._doubt_all or not self._doubtful.isdisjoint(about.split(".")))
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


#: `bool`, `int`, or the values of an enumeration.
Type = str | tuple[str, ...]


def type_of(domain: expr.Domain) -> Type:
    """Return the type of a domain's values."""
    if isinstance(domain, expr.BooleanDomain):
        return "bool"
    return domain.values if isinstance(domain, expr.EnumDomain) else "int"


def show_type(kind: Type) -> str:
    """Return a type in words."""
    words = {"bool": "a condition", "int": "a number"}
    return words[kind] if isinstance(kind, str) else f"one of {{{', '.join(kind)}}}"


def agree(left: Type, right: Type) -> bool:
    """Return whether values of the two types can be equal at all."""
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return not set(left).isdisjoint(right)


_AS_VALUE = "it is a value only beside '==', '!=' or 'in' whose other side is of an enumeration"

#: Names that people use for the data of an event.
_DATA = frozenset({"event", "data", "payload", "message", "input", "output", "result", "context", "ctx", "args"})


@attrs.frozen
class Scope:
    """The names an expression may use, and words for where it stands (`a condition`, `a bound`).

    `others` maps every other declared name to its kind in words, for better messages. `moments` maps the names that are true or
    false at a moment (states, events, effects) to their kind; states may also have their last part there, with the
    full name in `full`. A name in `symbols` may be one of these too: it is the value where a value is expected. `has_pending` says whether
    `pending` may be written here.
    """

    place: str
    parameters: Mapping[str, expr.Domain] = attrs.field(factory=dict)
    variables: Mapping[str, expr.Domain] = attrs.field(factory=dict)
    guards: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    symbols: frozenset[str] = frozenset()
    moments: Mapping[str, expr.NameKind] = attrs.field(factory=dict)
    full: Mapping[str, str] = attrs.field(factory=dict)
    effects_with_answers: frozenset[str] = frozenset()
    has_pending: bool = False
    others: Mapping[str, str] = attrs.field(factory=dict)

    def names(self) -> Iterable[str]:
        """Return every name that may be written here."""
        verdicts = (f"{guard}.{outcome}" for guard, outcomes in self.guards.items() for outcome in outcomes)
        return [*self.parameters, *self.variables, *verdicts, *self.symbols, *self.moments]


class Resolver:
    """A resolver of names and types in one scope. Faults go to `findings`, with the place `at` if a node has none."""

    def __init__(self, scope: Scope, findings: Findings, at: Span) -> None:
        self._scope, self._findings, self._at = scope, findings, at

    def condition(self, node: expr.Expr) -> expr.Expr:
        """Resolve an expression that must be a condition."""
        return self.expect(node, "bool")

    def expect(self, node: expr.Expr, kind: Type) -> expr.Expr:
        """Resolve an expression that must have a type."""
        result, actual = self.infer(node, kind)
        if actual is not None and not agree(actual, kind):
            self._wrong(node, f"expected {show_type(kind)}, but this is {show_type(actual)}", _advice(node, actual))
        return result

    def infer(self, node: expr.Expr, kind: Type | None = None) -> tuple[expr.Expr, Type | None]:
        """Resolve an expression and return it with its type, or None after a fault.

        `kind` is the expected type, for better hints. If it is an enumeration, a name with several meanings is its value.
        """
        match node:
            case expr.Boolean():
                return node, "bool"
            case expr.Integer():
                return node, "int"
            case expr.Symbol(value):
                return node, (value,)
            case expr.Name():
                return self._name(node, kind)
            case expr.Verdict():
                return node, "bool"
            case expr.Not(operand):
                return attrs.evolve(node, operand=self.condition(operand)), "bool"
            case expr.And(operands) | expr.Or(operands):
                return attrs.evolve(node, operands=tuple(self.condition(operand) for operand in operands)), "bool"
            case expr.Negate(operand):
                return attrs.evolve(node, operand=self.expect(operand, "int")), "int"
            case expr.Arithmetic(_, left, right):
                return attrs.evolve(node, left=self.expect(left, "int"), right=self.expect(right, "int")), "int"
            case expr.Compare():
                return self._compare(node), "bool"
            case expr.Member():
                return self._member(node), "bool"

    def _compare(self, node: expr.Compare) -> expr.Expr:
        kinds = self._enumerations(node)
        first, left = self.infer(node.first, kinds[0])
        rest: list[tuple[str, expr.Expr]] = []
        for (sign, operand), kind_wanted in zip(node.rest, kinds[1:], strict=True):
            result, right = self.infer(operand, kind_wanted or left)
            is_order = sign not in {"==", "!="}
            for side, kind in ((node.first if not rest else None, left), (operand, right)):
                if is_order and side is not None and kind not in {None, "int"}:
                    self._wrong(side, f"'{sign}' compares numbers, but this is {show_type(kind or '')}")
            if not is_order and left is not None and right is not None and not agree(left, right):
                self._wrong(operand, f"{show_type(left)} can never equal {show_type(right)}", _choices(left))
            rest.append((sign, result))
            left = right
        return attrs.evolve(node, first=first, rest=tuple(rest))

    def _enumerations(self, node: expr.Compare) -> list[Type | None]:
        """Return for each operand the enumeration that it is compared with by `==` or `!=`, directly or through others."""
        groups = [[node.first]]
        for sign, operand in node.rest:
            if sign in {"==", "!="}:
                groups[-1].append(operand)
            else:
                groups.append([operand])
        return [self._enumeration(group) for group in groups for _ in group]

    def _enumeration(self, operands: Iterable[expr.Expr]) -> Type | None:
        """Return the values of the first operand that can only be a value of an enumeration."""
        return next((values for values in map(self._values, operands) if values is not None), None)

    def _values(self, node: expr.Expr) -> Type | None:
        if isinstance(node, expr.Symbol):
            return (node.value,)
        if not isinstance(node, expr.Name) or node.kind == "pending":
            return None
        domain = self._scope.variables.get(node.name) or self._scope.parameters.get(node.name)
        if isinstance(domain, expr.EnumDomain):
            return domain.values
        return (node.name,) if node.name in self._scope.symbols and not self._is_shared(node.name) else None

    def _is_shared(self, name: str) -> bool:
        """Return whether a value of an enumeration has the name of a state, event or effect."""
        return name in self._scope.symbols and (name in self._scope.moments or name in self._scope.others)

    def _member(self, node: expr.Member) -> expr.Expr:
        enumeration = self._enumeration((node.operand, *node.choices))
        operand, kind = self.infer(node.operand, enumeration)
        choices = []
        for choice in node.choices:
            result, actual = self.infer(choice, enumeration or kind)
            if kind is not None and actual is not None and not agree(kind, actual):
                self._wrong(choice, f"{show_type(kind)} can never equal {show_type(actual)}", _choices(kind))
            choices.append(result)
        return attrs.evolve(node, operand=operand, choices=tuple(choices))

    def _name(self, node: expr.Name, kind: Type | None) -> tuple[expr.Expr, Type | None]:
        scope, name = self._scope, node.name
        if node.kind == "pending":
            return self._pending(node)
        if name in scope.variables:
            return expr.Name(name, "variable", span=node.span), type_of(scope.variables[name])
        if name in scope.parameters:
            return expr.Name(name, "parameter", span=node.span), type_of(scope.parameters[name])
        guard, _, outcome = name.rpartition(".")
        if guard in scope.guards and name not in scope.moments:
            return self._verdict(node, guard, outcome)
        if name in scope.symbols and (isinstance(kind, tuple) or not self._is_shared(name)):
            return expr.Symbol(name, span=node.span), (name,)
        if name in scope.moments:
            return expr.Name(scope.full.get(name, name), scope.moments[name], span=node.span), "bool"
        self._unknown(node, kind)
        return node, None

    def _verdict(self, node: expr.Name, guard: str, outcome: str) -> tuple[expr.Expr, Type | None]:
        outcomes = self._scope.guards[guard]
        for choice in expr.OUTCOMES:
            if choice == outcome and choice in outcomes:
                return expr.Verdict(guard, choice, span=node.span), "bool"
        message = (
            f"guard {guard} never says '{outcome}'" if outcome in expr.OUTCOMES else f"'{outcome}' is not a verdict"
        )
        self._report("DSA201", message, node, f"{guard} says: {', '.join(outcomes)}")
        return node, None

    def _pending(self, node: expr.Name) -> tuple[expr.Expr, Type | None]:
        if not self._scope.has_pending:
            message = "'pending' is for conditions of rows and for properties"
            self._report("DSA201", message, node, f"{self._scope.place} cannot read it")
        elif not node.name or node.name in self._scope.effects_with_answers:
            return node, "bool"
        else:
            hint = closest(node.name, self._scope.effects_with_answers)
            self._report("DSA201", f"'{node.name}' is not an effect with answers", node, hint, about=node.name)
        return node, None

    def _unknown(self, node: expr.Name, kind: Type | None) -> None:
        scope, name = self._scope, node.name
        guard = name.rpartition(".")[0]
        if name in {"True", "False"}:
            self._report("DSA201", f"'{name}' is not declared", node, f"write '{name.lower()}'")
        elif name in scope.guards:
            hint = "write " + " or ".join(f"{name}.{outcome}" for outcome in scope.guards[name])
            self._report("DSA201", f"'{name}' is a guard, not a value", node, hint)
        elif name in scope.others:
            hint = _choices(kind or "") or (_AS_VALUE if self._is_shared(name) else closest(name, scope.names()))
            self._report("DSA201", f"'{name}' is {scope.others[name]}, which {scope.place} cannot read", node, hint)
        elif guard in scope.others and scope.others[guard] == "a guard":
            message = f"'{name}' is a verdict, which {scope.place} cannot read"
            self._report("DSA209", message, node, "write one row for each verdict")
        elif guard and (scope.others.get(guard) == "an event" or guard in _DATA):
            hint = "rows read no data that events bring: let a guard judge it (column 'uses' of Guards), or an effect answer with an event for each case"
            self._report("DSA201", f"'{name}' is not declared", node, hint)
        else:
            hint = closest(name, scope.names(), f"{scope.place} can read no names")
            if isinstance(kind, tuple) and hint.startswith("known"):
                hint = _choices(kind)
            self._report("DSA201", f"'{name}' is not declared", node, hint, about=name)

    def _wrong(self, node: expr.Expr, message: str, hint: str = "") -> None:
        self._report("DSA204", message, node, hint)

    def _report(self, code: str, message: str, node: expr.Expr, hint: str, about: str = "") -> None:
        self._findings.error(code, message, node.span or self._at, hint, about=about)


def _choices(kind: Type) -> str:
    return "" if isinstance(kind, str) else f"its values are: {some_of(kind)}"


def _advice(node: expr.Expr, kind: Type) -> str:
    if isinstance(node, expr.Integer):
        return "write true or false" if node.value in {0, 1} else ""
    return f"compare it: {node.name} > 0" if isinstance(node, expr.Name) and kind == "int" else ""
