"""Unresolved expressions to resolved and typed ones.

Takes a tree from `dsa.lang.exprs` and the `Scope` of names that may stand there; gives the same tree with every
name resolved, and its type. Faults go to the findings; after one, the type is None and nothing more is said of it.
"""

from collections.abc import Iterable, Mapping

import attrs

from dsa import expr
from dsa.errors import Span
from dsa.lang.findings import Findings
from dsa.words import closest, some_of

#: `bool`, `int`, or the values of an enumeration.
Type = str | tuple[str, ...]


def type_of(domain: expr.Domain) -> Type:
    """Give the type of a domain's values."""
    if isinstance(domain, expr.BooleanDomain):
        return "bool"
    return domain.values if isinstance(domain, expr.EnumDomain) else "int"


def show_type(kind: Type) -> str:
    """Say a type in words."""
    words = {"bool": "a condition", "int": "a number"}
    return words[kind] if isinstance(kind, str) else f"one of {{{', '.join(kind)}}}"


def agree(left: Type, right: Type) -> bool:
    """Tell whether values of the two types can be equal at all."""
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return not set(left).isdisjoint(right)


_AS_VALUE = "it is a value only beside '==', '!=' or 'in' whose other side is of an enumeration"

#: Names under which people look for the data of an event.
_DATA = frozenset({"event", "data", "payload", "message", "input", "output", "result", "context", "ctx", "args"})


@attrs.frozen
class Scope:
    """The names an expression may use, and words for where it stands (`a condition`, `a bound`).

    `others` maps every other declared name to what it is, for better messages. `moments` maps the names that hold or
    not at a moment (states, events, effects) to their kind; states may be there by their last part too, with the
    full name in `full`. A name in `symbols` may be one of these as well: it is the value where one is wanted.
    """

    place: str
    parameters: Mapping[str, expr.Domain] = attrs.field(factory=dict)
    variables: Mapping[str, expr.Domain] = attrs.field(factory=dict)
    guards: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    symbols: frozenset[str] = frozenset()
    moments: Mapping[str, expr.NameKind] = attrs.field(factory=dict)
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

    def condition(self, node: expr.Expr) -> expr.Expr:
        """Resolve an expression that must be a condition."""
        return self.expect(node, "bool")

    def expect(self, node: expr.Expr, wanted: Type) -> expr.Expr:
        """Resolve an expression that must have a type."""
        resolved, found = self.infer(node, wanted)
        if found is not None and not agree(found, wanted):
            self._wrong(node, f"expected {show_type(wanted)}, but this is {show_type(found)}", _advice(node, found))
        return resolved

    def infer(self, node: expr.Expr, wanted: Type | None = None) -> tuple[expr.Expr, Type | None]:
        """Resolve an expression and give its type, or None after a fault.

        `wanted` makes for better hints; where it is an enumeration, a name that is one of its values and something else is the value.
        """
        match node:
            case expr.Boolean():
                return node, "bool"
            case expr.Integer():
                return node, "int"
            case expr.Symbol(value):
                return node, (value,)
            case expr.Name():
                return self._name(node, wanted)
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
        wanted = self._wanted(node)
        first, left = self.infer(node.first, wanted[0])
        rest: list[tuple[str, expr.Expr]] = []
        for (sign, operand), kind_wanted in zip(node.rest, wanted[1:], strict=True):
            resolved, right = self.infer(operand, kind_wanted or left)
            ordered = sign not in {"==", "!="}
            for side, kind in ((node.first if not rest else None, left), (operand, right)):
                if ordered and side is not None and kind not in {None, "int"}:
                    self._wrong(side, f"'{sign}' compares numbers, but this is {show_type(kind or '')}")
            if not ordered and left is not None and right is not None and not agree(left, right):
                self._wrong(operand, f"{show_type(left)} can never equal {show_type(right)}", _choices(left))
            rest.append((sign, resolved))
            left = right
        return attrs.evolve(node, first=first, rest=tuple(rest))

    def _wanted(self, node: expr.Compare) -> list[Type | None]:
        """Return for each operand the enumeration that it is compared with by `==` or `!=`, itself or through others."""
        groups = [[node.first]]
        for sign, operand in node.rest:
            if sign in {"==", "!="}:
                groups[-1].append(operand)
            else:
                groups.append([operand])
        return [self._enumeration(group) for group in groups for _ in group]

    def _enumeration(self, operands: Iterable[expr.Expr]) -> Type | None:
        """Return the values of the first operand that can be nothing but a value of an enumeration."""
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
        wanted = self._enumeration((node.operand, *node.choices))
        operand, kind = self.infer(node.operand, wanted)
        choices = []
        for choice in node.choices:
            resolved, found = self.infer(choice, wanted or kind)
            if kind is not None and found is not None and not agree(kind, found):
                self._wrong(choice, f"{show_type(kind)} can never equal {show_type(found)}", _choices(kind))
            choices.append(resolved)
        return attrs.evolve(node, operand=operand, choices=tuple(choices))

    def _name(self, node: expr.Name, wanted: Type | None) -> tuple[expr.Expr, Type | None]:
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
        if name in scope.symbols and (isinstance(wanted, tuple) or not self._is_shared(name)):
            return expr.Symbol(name, span=node.span), (name,)
        if name in scope.moments:
            return expr.Name(scope.full.get(name, name), scope.moments[name], span=node.span), "bool"
        self._unknown(node, wanted)
        return node, None

    def _verdict(self, node: expr.Name, guard: str, outcome: str) -> tuple[expr.Expr, Type | None]:
        allowed = self._scope.guards[guard]
        for known in expr.OUTCOMES:
            if known == outcome and known in allowed:
                return expr.Verdict(guard, known, span=node.span), "bool"
        message = f"guard {guard} never says '{outcome}'" if outcome in expr.OUTCOMES else f"'{outcome}' is no verdict"
        self._report("DSA201", message, node, f"{guard} says: {', '.join(allowed)}")
        return node, None

    def _pending(self, node: expr.Name) -> tuple[expr.Expr, Type | None]:
        if self._scope.moments and node.name in self._scope.answered:
            return node, "bool"
        if not self._scope.moments:
            self._report("DSA201", "'pending' is for properties", node, f"{self._scope.place} cannot read it")
        else:
            hint = closest(node.name, self._scope.answered)
            self._report("DSA201", f"'{node.name}' is no effect that has answers", node, hint, about=node.name)
        return node, None

    def _unknown(self, node: expr.Name, wanted: Type | None) -> None:
        scope, name = self._scope, node.name
        guard = name.rpartition(".")[0]
        if name in {"True", "False"}:
            self._report("DSA201", f"'{name}' is not declared", node, f"write '{name.lower()}'")
        elif name in scope.guards:
            hint = "write " + " or ".join(f"{name}.{outcome}" for outcome in scope.guards[name])
            self._report("DSA201", f"'{name}' is a guard, not a value", node, hint)
        elif name in scope.others:
            hint = _choices(wanted or "") or (_AS_VALUE if self._is_shared(name) else closest(name, scope.known()))
            self._report("DSA201", f"'{name}' is {scope.others[name]}, which {scope.place} cannot read", node, hint)
        elif guard in scope.others and scope.others[guard] == "a guard":
            message = f"'{name}' is a verdict, which {scope.place} cannot read"
            self._report("DSA209", message, node, "write one row for each verdict")
        elif guard and (scope.others.get(guard) == "an event" or guard in _DATA):
            hint = "rows read no data that events bring: let a guard judge it (column 'uses' of Guards), or an effect answer with an event for each case"
            self._report("DSA201", f"'{name}' is not declared", node, hint)
        else:
            hint = closest(name, scope.known(), f"{scope.place} can read no names")
            if isinstance(wanted, tuple) and hint.startswith("known"):
                hint = _choices(wanted)
            self._report("DSA201", f"'{name}' is not declared", node, hint, about=name)

    def _wrong(self, node: expr.Expr, message: str, hint: str = "") -> None:
        self._report("DSA204", message, node, hint)

    def _report(self, code: str, message: str, node: expr.Expr, hint: str, about: str = "") -> None:
        self._findings.error(code, message, node.span or self._at, hint, about=about)


def _choices(kind: Type) -> str:
    return "" if isinstance(kind, str) else f"its values are: {some_of(kind)}"


def _advice(node: expr.Expr, found: Type) -> str:
    if isinstance(node, expr.Integer):
        return "write true or false" if node.value in {0, 1} else ""
    return f"compare it: {node.name} > 0" if isinstance(node, expr.Name) and found == "int" else ""
