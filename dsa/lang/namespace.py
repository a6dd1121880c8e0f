"""The namespace: every declared name and its one meaning.

`Resolver` resolves the names of an expression in a `Scope`, and returns it with its type. After a fault the type is None, and nothing more is reported
about it.
`Declarations.names` returns `Names`, which make the scopes of all expressions. `require_unique` and `require_references` report names with two meanings, and
references to nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from dsa import expr
from dsa.declarations import OUTSIDE, Effect, Event, Family, Guard, RunParameter, State, Variable
from dsa.errors import Span
from dsa.expr import OUTCOMES, Domain, EnumDomain, NameKind
from dsa.lang.cells import WrittenName
from dsa.lang.expression_parser import Findings
from dsa.lang.markdown import Families
from dsa.text import closest, some_of

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
    if isinstance(kind, str):
        return words[kind]
    return f"the value '{kind[0]}'" if len(kind) == 1 else f"a value of {{{', '.join(kind)}}}"


def _never_equal(this: Type, other: Type) -> str:
    """Return why a comparison can never be true; `this` is at the place of the message."""
    return f"{show_type(this)} is compared with {show_type(other)} here: the two sides are never equal"


def agree(left: Type, right: Type) -> bool:
    """Return whether values of the two types can be equal at all."""
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return not set(left).isdisjoint(right)


_AS_VALUE = "to use '{name}' as a value, compare it with a variable or parameter whose domain contains '{name}'"

#: Names that people use for the data of an event.
_DATA = frozenset({"event", "data", "payload", "message", "input", "output", "result", "context", "ctx", "args"})


@attrs.frozen
class Scope:
    """The names an expression may use, and words for where it stands (`a condition`, `a bound`).

    `others` maps every other declared name to its kind in words, for better messages. `moments` maps the names that are true or
    false at a moment (states, events, effects) to their kind; states may also have their last part there, with the
    full name in `full`. A name in `symbols` may be one of these too: it is the value where a value is expected. `has_pending` says whether
    `pending` may be written here. With `has_families`, what indices alone decide is decided here: `f == 3` is false in the row for 2.
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
    has_families: bool = False

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
            case expr.Name():
                return self._name(node, kind)
            case expr.Boolean():
                return node, "bool"
            case expr.Integer():
                return node, "int"
            case expr.Symbol(value):
                return node, node.among or (value,)
            case expr.Verdict():
                return node, "bool"
            case expr.Not(operand):
                return self._decision(expr.Not(self.condition(operand), span=node.span)), "bool"
            case expr.And(operands) | expr.Or(operands):
                parts = tuple([self.condition(operand) for operand in operands])
                return self._decision(type(node)(parts, span=node.span)), "bool"
            case expr.Count(operands):
                count = attrs.evolve(node, operands=tuple(self.condition(operand) for operand in operands))
                return self._decision(count), "int"
            case expr.Negate(operand):
                return attrs.evolve(node, operand=self.expect(operand, "int")), "int"
            case expr.Arithmetic(sign, left, right):
                return expr.Arithmetic(sign, self.expect(left, "int"), self.expect(right, "int"), span=node.span), "int"
            case expr.Compare():
                return self._decision(self._compare(node)), "bool"
            case expr.Member():
                return self._decision(self._member(node)), "bool"

    def _decision(self, node: expr.Expr) -> expr.Expr:
        """Return a condition, or a count, without what the indices of families decide alone."""
        if not self._scope.has_families or (isinstance(node, expr.Compare) and isinstance(node.first, expr.Name)):
            return node
        parts = expr.children(node)
        match node:
            case expr.Compare() | expr.Member() if all(isinstance(part, expr.Constant) for part in parts):
                return expr.Boolean(bool(expr.evaluate(node, {})), span=node.span)
            case expr.Not(expr.Boolean(value)):
                return expr.Boolean(not value, span=node.span)
            case expr.And() | expr.Or() if any(isinstance(part, expr.Boolean) for part in parts):
                decisive = expr.Boolean(isinstance(node, expr.Or))
                if decisive in parts:
                    return attrs.evolve(decisive, span=node.span)
                rest: list[expr.Expr] = [part for part in parts if not isinstance(part, expr.Boolean)]
                return (expr.conjunction if isinstance(node, expr.And) else expr.disjunction)(rest)
            case expr.Count() if expr.FALSE in parts or all(isinstance(part, expr.Boolean) for part in parts):
                count = [part for part in parts if part != expr.FALSE]
                if any(part != expr.TRUE for part in count):
                    return attrs.evolve(node, operands=tuple(count))
                return expr.Integer(len(count), span=node.span)
            case _:
                return node

    def _compare(self, node: expr.Compare) -> expr.Expr:
        kinds = self._enumerations(node)
        first, left = self.infer(node.first, kinds[0])
        rest: list[tuple[str, expr.Expr]] = []
        for (sign, operand), kind_wanted in zip(node.rest, kinds[1:], strict=True):
            result, right = self.infer(operand, kind_wanted or left)
            is_order = sign not in {"==", "!="}
            for side, kind in ((node.first if not rest else None, left), (operand, right)):
                if is_order and side is not None and kind not in {None, "int"}:
                    self._wrong(
                        side, f"'{sign}' compares numbers, but this is not a number: it is {show_type(kind or '')}"
                    )
            if not is_order and left is not None and right is not None and not agree(left, right):
                self._wrong(operand, _never_equal(right, left), _choices(left))
            rest.append((sign, result))
            left = right
        return expr.Compare(first, tuple(rest), span=node.span)

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
            return node.among or (node.value,)
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
                self._wrong(choice, _never_equal(actual, kind), _choices(kind))
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
            self._report("DSA201", message, node, f"{self._scope.place} cannot read 'pending'")
        elif not node.name or node.name in self._scope.effects_with_answers:
            return node, "bool"
        else:
            hint = closest(node.name, self._scope.effects_with_answers, "no effect of this document has answers")
            self._report("DSA201", f"'{node.name}' is not an effect that has answers", node, hint, about=node.name)
        return node, None

    def _unknown(self, node: expr.Name, kind: Type | None) -> None:
        scope, name = self._scope, node.name
        guard = name.rpartition(".")[0]
        if name in {"True", "False"}:
            self._report("DSA201", f"'{name}' is not declared", node, f"write '{name.lower()}'")
        elif name in scope.guards:
            hint = "write one of these: " + ", ".join(f"{name}.{outcome}" for outcome in scope.guards[name])
            self._report("DSA201", f"'{name}' is a guard, not a value", node, hint)
        elif "[" in name or scope.others.get(name) == "declared with an index":
            members = {each.partition("[")[0]: each for each in reversed([*scope.names()]) if each.endswith("]")}
            has_members = name in members
            hint = (
                f"'{name}' needs an index: write {name}[f] with its family f, or write one member, such as {members[name]}"
                if has_members
                else closest(name, scope.names())
            )
            self._report("DSA201", f"'{name}' is not declared", node, hint, about=name)
        elif name in scope.others:
            hint = _choices(kind or "") or (
                _AS_VALUE.format(name=name) if self._is_shared(name) else closest(name, scope.names())
            )
            self._report("DSA201", f"'{name}' is {scope.others[name]}, which {scope.place} cannot read", node, hint)
        elif guard in scope.others and scope.others[guard] == "a guard":
            message = f"'{name}' is a verdict, which {scope.place} cannot read"
            self._report("DSA209", message, node, "write one row for each verdict")
        elif guard and (scope.others.get(guard) == "an event" or guard in _DATA):
            hint = "a condition cannot read the data of an event: let a guard read it (column 'uses' of Guards), or let the effect answer with a different event for each case"
            self._report("DSA201", f"'{name}' is not declared", node, hint)
        else:
            hint = closest(name, scope.names(), f"{scope.place} cannot contain names")
            if isinstance(kind, tuple) and hint.startswith("known"):
                hint = _choices(kind)
            self._report("DSA201", f"'{name}' is not declared", node, hint, about=name)

    def _wrong(self, node: expr.Expr, message: str, hint: str = "") -> None:
        self._report("DSA204", message, node, hint)

    def _report(self, code: str, message: str, node: expr.Expr, hint: str, about: str = "") -> None:
        self._findings.error(code, message, node.span or self._at, hint, about=about)


def _choices(kind: Type) -> str:
    return "" if isinstance(kind, str) else f"allowed here: {some_of(kind)}"


def _advice(node: expr.Expr, kind: Type) -> str:
    if isinstance(node, expr.Integer):
        return "write true or false" if node.value in {0, 1} else ""
    if isinstance(node, expr.Count):
        return (
            "write the comparison after the closing parenthesis, for example: (count f: P) >= 2, or: count(P, Q) >= 2"
        )
    return f"compare it, for example: {node.name} > 0" if isinstance(node, expr.Name) and kind == "int" else ""


#: What a name is called that is declared with an index, where it stands without.
WITH_INDEX = "declared with an index"
_ARTICLES = {"event": "an event", "effect": "an effect"}


@attrs.frozen(slots=False)
class Names:
    """The declared names by kind. `effects` maps each to whether it has answers; `events` holds `E.failed` too."""

    parameters: dict[str, Domain]
    variables: dict[str, Domain]
    variable_scopes: dict[str, str]
    guards: dict[str, tuple[str, ...]]
    judged_events: dict[str, tuple[str, ...]]
    events: dict[str, str]
    effects: dict[str, bool]
    states: dict[str, str]
    final_states: frozenset[str]
    symbols: frozenset[str]
    families: Families

    @cached_property
    def _ending(self) -> dict[str, list[str]]:
        """The full names of the states, by their last part."""
        names: dict[str, list[str]] = {}
        for full in self.states:
            names.setdefault(full.rpartition(".")[2], []).append(full)
        return names

    def full_state(self, name: str) -> str | None:
        """Return the full name of a state written in full, or by its last part where that is unique."""
        if name in self.states:
            return name
        matches = self._ending.get(name, [])
        return matches[0] if len(matches) == 1 else None

    @cached_property
    def members(self) -> dict[str, tuple[str, ...]]:
        """The names with an index, by the name without it, without failures."""
        members: dict[str, tuple[str, ...]] = {}
        for name in (*self.variables, *self.events, *self.effects):
            if name.endswith("]"):
                base = name.partition("[")[0]
                members[base] = (*members.get(base, ()), name)
        return members

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of every name, in words."""
        kinds = dict.fromkeys(self.states, "a state")
        kinds |= dict.fromkeys(self.events, "an event") | dict.fromkeys(self.effects, "an effect")
        kinds |= dict.fromkeys(self.guards, "a guard") | dict.fromkeys(self.parameters, "a parameter")
        kinds |= dict.fromkeys(self.families, "a family") | dict.fromkeys(self.members, WITH_INDEX)
        return kinds | dict.fromkeys(self.variables, "a variable")

    @cached_property
    def conditions(self) -> Scope:
        """The scope of `if` cells: variables, parameters, verdicts and `pending`."""
        effects = self._effects_with_answers
        return attrs.evolve(
            self.updates, place="a condition", guards=self.guards, effects_with_answers=effects, has_pending=True
        )

    @cached_property
    def _effects_with_answers(self) -> frozenset[str]:
        return frozenset(effect for effect, has_answers in self.effects.items() if has_answers)

    @cached_property
    def updates(self) -> Scope:
        """The scope of `update` cells: variables and parameters."""
        return Scope(
            "an update",
            parameters=self.parameters,
            variables=self.variables,
            symbols=self.symbols,
            others=self.kinds,
            has_families=bool(self.families),
        )

    def moments(self, place: str) -> Scope:
        """Return the scope of a property: everything, with states by their last part where that is unique."""
        kinds: dict[str, NameKind] = dict.fromkeys(self.states, "state")
        full = {}
        for state in self.states:
            short = state.rpartition(".")[2]
            if short not in self.kinds and self.full_state(short) == state:
                kinds[short], full[short] = "state", state
        kinds.update(dict.fromkeys(self.events, "event"))
        kinds.update(dict.fromkeys(self.effects, "effect"))
        return Scope(
            place,
            self.parameters,
            self.variables,
            self.guards,
            self.symbols,
            kinds,
            full,
            self._effects_with_answers,
            has_pending=True,
            others=self.kinds,
            has_families=bool(self.families),
        )

    def judging_hint(self, guard: str) -> str:
        """Return a hint that says which events a guard judges."""
        events = ", ".join(self.judged_events.get(guard, ()))
        return (
            f"this guard judges: {events}" if events else f"'{guard}' judges no event: name one in its column 'judges'"
        )

    def report_unknown(self, kind: str, place: WrittenName, findings: Findings) -> None:
        """Report a name that is not declared as the kind that it is used as."""
        tables: dict[str, Iterable[str]] = {
            "state": self.states,
            "event": self.events,
            "effect": self.effects,
            "variable": self.variables,
        }
        article = _ARTICLES.get(kind, f"a {kind}")
        actual = self.kinds.get(place.name)
        same_end = self._ending.get(place.name, [])
        if kind == "state" and len(same_end) > 1:
            message, hint = f"'{place.name}' may be {' or '.join(same_end)}", "write the full name"
        else:
            message = (
                f"'{place.name}' is {actual}, not {article}" if actual else f"{kind} '{place.name}' is not declared"
            )
            hint = closest(place.name, tables[kind], f"the document declares no {kind}s")
            if actual == WITH_INDEX:
                hint = f"write one of {', '.join(self.members[place.name][:3])}, or use a family as the index"
            elif "[" in place.name:
                hint = index_hint(place.name, self.members, self.families) or hint
            if kind == "state" and place.name.rpartition(".")[2].lower() in {"h", "history"}:
                hint = "there are no history states: store the state in a variable, and write a row for each value"
            if kind == "event" and place.name in {"entry", "exit"}:
                hint = "write effects in the rows that enter the state, or in those that leave it"
        findings.error("DSA201", message, place.span, hint, about=place.name)


def index_hint(name: str, members: Mapping[str, Collection[str]], families: Families) -> str:
    """Return a hint for a name with an index that is not declared; empty if there is nothing to say about its index."""
    base, _, rest = name.partition("[")
    index = rest.partition("]")[0]
    if base not in members:
        return ""
    if index in families:
        return f"family '{index}' needs a quantifier here: write all {index}: .. or any {index}: .., or use one of its indices"
    indices = [each.partition("[")[2].removesuffix("]") for each in members[base]]
    return f"'{base}' has no index '{index}', and there is no family '{index}'; {closest(index, [*families, *indices])}"


@attrs.frozen
class Declarations:
    """All declarations of a document."""

    parameters: tuple[RunParameter, ...]
    variables: tuple[Variable, ...]
    events: tuple[Event, ...]
    guards: tuple[Guard, ...]
    effects: tuple[Effect, ...]
    states: tuple[State, ...]
    families: tuple[Family, ...] = ()

    def names(self) -> Names:
        """Return the names by kind."""
        origins = {event.origin for event in self.events} - {OUTSIDE}
        effects = {effect.name: effect.name in origins for effect in self.effects}
        events = {event.name: event.origin for event in self.events}
        domains = [p.domain for p in self.parameters] + [v.domain for v in self.variables]
        return Names(
            {parameter.name: parameter.domain for parameter in self.parameters},
            {variable.name: variable.domain for variable in self.variables},
            {variable.name: variable.scope for variable in self.variables},
            {guard.name: guard.outcomes for guard in self.guards},
            {guard.name: guard.judges for guard in self.guards},
            events | {f"{effect}.failed": effect for effect, has_answers in effects.items() if has_answers},
            effects,
            {state.name: state.kind for state in self.states},
            frozenset(state.name for state in self.states if state.kind == "final"),
            frozenset(value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values).union(
                index for family in self.families for index in family.indices if isinstance(index, str)
            ),
            {family.name: family.indices for family in self.families},
        )


def require_unique(declarations: Declarations, findings: Findings) -> None:
    """Report names that are declared twice, or that are an implicit name or a value of an enumeration too.

    A value may have the name of a state, event or effect: the context decides between them (`dsa.lang.expression_parser`).
    """
    first_uses: dict[str, tuple[str, int]] = {}
    for name, what, span in _declarations(declarations):
        if name in first_uses and span is not None:
            before, line = first_uses[name]
            message = f"'{name}' is already {before}" + (f" (line {line})" if line else "")
            findings.error(
                "DSA202",
                message,
                span,
                "change the name in one of the two places: every name may be declared only once in a document",
            )
        first_uses.setdefault(name, (what, span.line if span else 0))
    _require_index(declarations, findings)
    # Values come last: one of them may be a value of several domains.
    for name, what, span in _implicit_names(declarations):
        if name not in first_uses and not what.startswith("a value"):
            first_uses[name] = (what, span.line)
        elif (
            name in first_uses
            and first_uses[name][0] != what
            and not (what.startswith("a value") and _is_moment(first_uses[name][0]))
        ):
            kind, line = first_uses[name]
            where = f" (line {line})" if line else ""
            message = f"'{name}' is used as {what}, but '{name}' is already {kind}{where}"
            hint = "change the name in one of the two places: a value may share its name only with a state, an event or an effect"
            is_value = what.startswith("a value")
            findings.error(
                "DSA202",
                message,
                span,
                hint
                if is_value
                else "change the name in one of the two places: every name may be declared only once in a document",
            )


def _require_index(declarations: Declarations, findings: Findings) -> None:
    """Report names that are declared with an index and without."""
    items = [(name, span) for name, _, span in _declarations(declarations)]
    members = {name.partition("[")[0]: span for name, span in reversed(items) if "[" in name}
    for name, _, span in _declarations(declarations):
        before = members.get(name)
        if before is not None and span is not None:
            message = f"'{name}' is declared with an index, too (line {before.line})"
            findings.error(
                "DSA202",
                message,
                span,
                "change the name in one of the two places: every name may be declared only once in a document",
            )


def _is_moment(what: str) -> bool:
    return what in {"a state", "an event", "an effect"} or what.startswith("the failure of")


def _declarations(declarations: Declarations) -> Iterator[tuple[str, str, Span | None]]:
    kinds: dict[str, tuple[RunParameter | Variable | Event | Guard | Effect | State | Family, ...]] = {
        "a family": declarations.families,
        "a parameter": declarations.parameters,
        "a variable": declarations.variables,
        "an event": declarations.events,
        "a guard": declarations.guards,
        "an effect": declarations.effects,
        "a state": declarations.states,
    }
    for what, items in kinds.items():
        for item in items:
            yield item.name, what, item.span


def _implicit_names(declarations: Declarations) -> Iterator[tuple[str, str, Span]]:
    for guard in declarations.guards:
        for outcome in OUTCOMES:
            if guard.span is not None:
                yield f"{guard.name}.{outcome}", f"a verdict of guard {guard.name}", guard.span
    origins = {event.origin for event in declarations.events}
    for effect in declarations.effects:
        if effect.name in origins and effect.span is not None:
            yield f"{effect.name}.failed", f"the failure of effect {effect.name}", effect.span
    for family in declarations.families:
        for index in family.indices:
            if isinstance(index, str) and family.span is not None:
                yield index, f"a value of the family '{family.name}'", family.span
    holders = [(p.name, p.domain, p.span) for p in declarations.parameters]
    holders += [(v.name, v.domain, v.span) for v in declarations.variables]
    for name, domain, span in holders:
        if isinstance(domain, EnumDomain) and span is not None:
            for value in domain.values:
                yield value, f"a value of '{name}'", span


def require_references(
    declarations: Declarations,
    origins: Iterable[WrittenName],
    judged_events: Iterable[WrittenName],
    findings: Findings,
    *,
    effects_listed: bool,
) -> None:
    """Report origins that are not effects, and judged events that are not declared."""
    names = declarations.names()
    for origin in origins:
        if origin.name != OUTSIDE and origin.name not in names.effects:
            reason = "the Effects table does not list it" if effects_listed else "no row emits it"
            hint = closest(origin.name, [*names.effects, OUTSIDE])
            message = f"'{origin.name}' is not an effect: {reason}"
            findings.error("DSA201", message, origin.span, hint, about=origin.name)
    for event in judged_events:
        if event.name not in names.events:
            names.report_unknown("event", event, findings)
            findings.doubt(event.span.text)  # that its guard judges nothing else follows from it
