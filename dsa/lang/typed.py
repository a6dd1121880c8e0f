"""Unresolved expressions to resolved and typed ones.

Takes a tree from `dsa.lang.exprs` and the `Scope` of names that may stand there; gives the same tree with every
name resolved, and its type. Faults go to the findings; after one, the type is None and nothing more is said of it.
"""

from collections.abc import Iterable, Mapping

import attrs

from dsa.errors import Span
from dsa.expr import (
    OUTCOMES,
    And,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Compare,
    Domain,
    EnumDomain,
    Expr,
    Integer,
    Member,
    Name,
    NameKind,
    Negate,
    Not,
    Or,
    Symbol,
    Verdict,
)
from dsa.lang.findings import Findings
from dsa.words import closest, some_of

#: `bool`, `int`, or the values of an enumeration.
Type = str | tuple[str, ...]


def type_of(domain: Domain) -> Type:
    """Give the type of a domain's values."""
    if isinstance(domain, BooleanDomain):
        return "bool"
    return domain.values if isinstance(domain, EnumDomain) else "int"


def show_type(kind: Type) -> str:
    """Say a type in words."""
    words = {"bool": "a condition", "int": "a number"}
    return words[kind] if isinstance(kind, str) else f"one of {{{', '.join(kind)}}}"


def agree(left: Type, right: Type) -> bool:
    """Tell whether values of the two types can be equal at all."""
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return not set(left).isdisjoint(right)


@attrs.frozen
class Scope:
    """The names an expression may use, and words for where it stands (`a condition`, `a bound`).

    `others` maps every other declared name to what it is, for better messages. `moments` maps the names that hold or
    not at a moment (states, events, effects) to their kind; states may be there by their last part too, with the
    full name in `full`.
    """

    place: str
    parameters: Mapping[str, Domain] = attrs.field(factory=dict)
    variables: Mapping[str, Domain] = attrs.field(factory=dict)
    guards: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    symbols: frozenset[str] = frozenset()
    moments: Mapping[str, NameKind] = attrs.field(factory=dict)
    full: Mapping[str, str] = attrs.field(factory=dict)
    answered: frozenset[str] = frozenset()
    others: Mapping[str, str] = attrs.field(factory=dict)

    def known(self) -> Iterable[str]:
        """Give every name that may be written here."""
        verdicts = (f"{guard}.{outcome}" for guard, outcomes in self.guards.items() for outcome in outcomes)
        return [*self.parameters, *self.variables, *verdicts, *self.symbols, *self.moments]


class Resolver:
    """Resolves and types the expressions of one scope; faults go to `findings`, at `at` when a node has no place."""

    def __init__(self, scope: Scope, findings: Findings, at: Span) -> None:
        self._scope, self._findings, self._at = scope, findings, at

    def condition(self, expr: Expr) -> Expr:
        """Resolve an expression that must be a condition."""
        return self.expect(expr, "bool")

    def expect(self, expr: Expr, wanted: Type) -> Expr:
        """Resolve an expression that must have a type."""
        resolved, found = self.infer(expr, wanted)
        if found is not None and not agree(found, wanted):
            self._wrong(expr, f"expected {show_type(wanted)}, but this is {show_type(found)}", _advice(expr, found))
        return resolved

    def infer(self, expr: Expr, wanted: Type | None = None) -> tuple[Expr, Type | None]:
        """Resolve an expression and give its type, or None after a fault; `wanted` only makes for better hints."""
        match expr:
            case Boolean():
                return expr, "bool"
            case Integer():
                return expr, "int"
            case Symbol(value):
                return expr, (value,)
            case Name():
                return self._name(expr, wanted)
            case Verdict():
                return expr, "bool"
            case Not(operand):
                return attrs.evolve(expr, operand=self.condition(operand)), "bool"
            case And(operands) | Or(operands):
                return attrs.evolve(expr, operands=tuple(self.condition(operand) for operand in operands)), "bool"
            case Negate(operand):
                return attrs.evolve(expr, operand=self.expect(operand, "int")), "int"
            case Arithmetic(_, left, right):
                return attrs.evolve(expr, left=self.expect(left, "int"), right=self.expect(right, "int")), "int"
            case Compare():
                return self._compare(expr), "bool"
            case Member():
                return self._member(expr), "bool"

    def _compare(self, expr: Compare) -> Expr:
        first, left = self.infer(expr.first)
        rest: list[tuple[str, Expr]] = []
        for sign, operand in expr.rest:
            resolved, right = self.infer(operand, left)
            ordered = sign not in {"==", "!="}
            for side, kind in ((expr.first if not rest else None, left), (operand, right)):
                if ordered and side is not None and kind not in {None, "int"}:
                    self._wrong(side, f"'{sign}' compares numbers, but this is {show_type(kind or '')}")
            if not ordered and left is not None and right is not None and not agree(left, right):
                self._wrong(operand, f"{show_type(left)} can never equal {show_type(right)}", _choices(left))
            rest.append((sign, resolved))
            left = right
        return attrs.evolve(expr, first=first, rest=tuple(rest))

    def _member(self, expr: Member) -> Expr:
        operand, kind = self.infer(expr.operand)
        choices = []
        for choice in expr.choices:
            resolved, found = self.infer(choice, kind)
            if kind is not None and found is not None and not agree(kind, found):
                self._wrong(choice, f"{show_type(kind)} can never equal {show_type(found)}", _choices(kind))
            choices.append(resolved)
        return attrs.evolve(expr, operand=operand, choices=tuple(choices))

    def _name(self, node: Name, wanted: Type | None) -> tuple[Expr, Type | None]:
        scope, name = self._scope, node.name
        if node.kind == "pending":
            return self._pending(node)
        if name in scope.variables:
            return Name(name, "variable", span=node.span), type_of(scope.variables[name])
        if name in scope.parameters:
            return Name(name, "parameter", span=node.span), type_of(scope.parameters[name])
        guard, _, outcome = name.rpartition(".")
        if guard in scope.guards and name not in scope.moments:
            return self._verdict(node, guard, outcome)
        if name in scope.symbols:
            return Symbol(name, span=node.span), (name,)
        if name in scope.moments:
            return Name(scope.full.get(name, name), scope.moments[name], span=node.span), "bool"
        self._unknown(node, wanted)
        return node, None

    def _verdict(self, node: Name, guard: str, outcome: str) -> tuple[Expr, Type | None]:
        allowed = self._scope.guards[guard]
        for known in OUTCOMES:
            if known == outcome and known in allowed:
                return Verdict(guard, known, span=node.span), "bool"
        message = f"guard {guard} never says '{outcome}'" if outcome in OUTCOMES else f"'{outcome}' is no verdict"
        self._report("DSA201", message, node, f"{guard} says: {', '.join(allowed)}")
        return node, None

    def _pending(self, node: Name) -> tuple[Expr, Type | None]:
        if self._scope.moments and node.name in self._scope.answered:
            return node, "bool"
        if not self._scope.moments:
            self._report("DSA201", "'pending' is for properties", node, f"{self._scope.place} cannot read it")
        else:
            hint = closest(node.name, self._scope.answered)
            self._report("DSA201", f"'{node.name}' is no effect that has answers", node, hint, about=node.name)
        return node, None

    def _unknown(self, node: Name, wanted: Type | None) -> None:
        scope, name = self._scope, node.name
        guard = name.rpartition(".")[0]
        if name in {"True", "False"}:
            self._report("DSA201", f"'{name}' is not declared", node, f"write '{name.lower()}'")
        elif name in scope.guards:
            hint = "write " + " or ".join(f"{name}.{outcome}" for outcome in scope.guards[name])
            self._report("DSA201", f"'{name}' is a guard, not a value", node, hint)
        elif name in scope.others:
            hint = closest(name, scope.known())
            self._report("DSA201", f"'{name}' is {scope.others[name]}, which {scope.place} cannot read", node, hint)
        elif guard in scope.others and scope.others[guard] == "a guard":
            message = f"'{name}' is a verdict, which {scope.place} cannot read"
            self._report("DSA209", message, node, "write one row for each verdict")
        else:
            hint = closest(name, scope.known(), f"{scope.place} can read no names")
            if isinstance(wanted, tuple) and hint.startswith("known"):
                hint = _choices(wanted)
            self._report("DSA201", f"'{name}' is not declared", node, hint, about=name)

    def _wrong(self, expr: Expr, message: str, hint: str = "") -> None:
        self._report("DSA204", message, expr, hint)

    def _report(self, code: str, message: str, expr: Expr, hint: str, about: str = "") -> None:
        self._findings.error(code, message, expr.span or self._at, hint, about=about)


def _choices(kind: Type) -> str:
    return "" if isinstance(kind, str) else f"its values are: {some_of(kind)}"


def _advice(expr: Expr, found: Type) -> str:
    if isinstance(expr, Integer):
        return "write true or false" if expr.value in {0, 1} else ""
    return f"compare it: {expr.name} > 0" if isinstance(expr, Name) and found == "int" else ""
