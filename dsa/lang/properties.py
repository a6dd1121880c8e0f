"""The bullets of a Properties section to typed properties.

Takes bullets and the scope of moments (states, events, effects, verdicts and values), gives `Property` values.
"""

import re
from collections.abc import Callable

import attrs

from dsa import claims
from dsa.expr import Name, Verdict, walk
from dsa.lang.cells import Written
from dsa.lang.exprs import Parser, UnreadableError
from dsa.lang.findings import Findings
from dsa.lang.markdown import Bullet, Cell
from dsa.lang.typed import Resolver, Scope
from dsa.words import nearest

FORMS = (
    "always P | never P | on E: X unchanged | P leads to Q [assuming fair E] | Q only after P | "
    "at most K E [between P and Q] | possible P | from everywhere possible P | P with probability >= x | expected E <= x"
)


_LEADING = {
    "always": "always P", "never": "never P", "on": "on E: X unchanged", "at": "at most K E [between P and Q]",
    "possible": "possible P", "from": "from everywhere possible P", "expected": "expected E <= x",
}  # fmt: skip
_INFIX = {"leads": "P leads to Q [assuming fair E]", "only": "Q only after P", "probability": "P with probability >= x"}
_BETWEEN = "in 'between P and Q', 'and' and 'or' inside P or Q need parentheses"


def looks_like_property(cell: Cell) -> bool:
    """Tell whether a bullet reads as a property, whatever its names."""
    try:
        _form(cell)
    except UnreadableError:
        return False
    return True


def read_property(
    bullet: Bullet, scope: Scope, effects: Callable[[Written], None], findings: Findings
) -> claims.Property | None:
    """Read and type one bullet. `effects` is asked about each name after `assuming fair`."""
    cell = bullet.text
    try:
        form = _form(cell)
    except UnreadableError as fault:
        hint = fault.hint or _form_meant(cell.text.split())
        findings.error("DSA109", fault.message, cell.span(fault.start, fault.end), hint)
        return None
    before = findings.count
    if isinstance(form, claims.LeadsTo):
        for name in form.fair:
            start = max(place.start() for place in re.finditer(rf"(?<![\w.]){re.escape(name)}(?![\w.])", cell.text))
            effects(Written(name, cell.span(start, start + len(name))))
    typed = _typed(form, Resolver(scope, findings, cell.span()))
    if isinstance(typed, claims.Unchanged):
        _require_lasting(typed, cell, findings)
    return claims.Property(typed, span=cell.span()) if findings.count == before else None


def _form_meant(words: list[str]) -> str:
    """Show the form that a bullet seems to be, or all of them."""
    if words and words[0] in _LEADING:
        return f"write: {_LEADING[words[0]]}"
    if near := next((form for word, form in _INFIX.items() if word in words), None):
        return f"write: {near}"
    typed = [(word, _INFIX if place else _LEADING) for place, word in enumerate(words)]
    if meant := next(filter(None, (nearest(word, known, 0.75) for word, known in typed)), None):
        return f"did you mean '{meant}'?"
    return f"a property is one of: {FORMS}"


def _form(cell: Cell) -> claims.Form:
    """Read a property; one that begins with a word such as `on` may still be about a state of that name."""
    try:
        return _whole(cell, _leading)
    except UnreadableError as fault:
        try:
            return _whole(cell, _infix)
        except UnreadableError as other:
            raise max(fault, other, key=lambda each: each.start) from None  # the one that understood more


def _whole(cell: Cell, read: Callable[[Parser], claims.Form]) -> claims.Form:
    parser = Parser(cell)
    form = read(parser)
    parser.end(_BETWEEN if isinstance(form, claims.AtMost) else "")
    return form


def _leading(parser: Parser) -> claims.Form:
    """Read the forms that begin with a word of their own."""
    if parser.accept("always"):
        return claims.Always(parser.expression())
    if parser.accept("never"):
        return claims.Never(parser.expression())
    if parser.accept("possible"):
        return claims.Possible(parser.expression())
    if parser.accept("from", "everywhere", "possible"):
        return claims.EverywherePossible(parser.expression())
    if parser.accept("at", "most"):
        return _at_most(parser)
    if parser.accept("expected"):
        counted = parser.sum()
        parser.expect("<=")
        return claims.Expected(counted, parser.number())
    if parser.accept("on"):
        return _unchanged(parser)
    parser.fail("expected the first word of a property")


def _at_most(parser: Parser) -> claims.AtMost:
    bound, counted = parser.sum(), parser.negation()
    if not parser.accept("between"):
        return claims.AtMost(bound, counted)
    opened = parser.negation()
    parser.expect("and", _BETWEEN)
    return claims.AtMost(bound, counted, (opened, parser.negation()))


def _unchanged(parser: Parser) -> claims.Unchanged:
    trigger = parser.expression()
    parser.expect(":", "write: on E: X unchanged")
    expressions = [parser.expression()]
    while parser.accept(","):
        expressions.append(parser.expression())
    parser.expect("unchanged", "write: on E: X unchanged")
    return claims.Unchanged(trigger, tuple(expressions))


def _infix(parser: Parser) -> claims.Form:
    left = parser.expression()
    if parser.accept("leads", "to"):
        goal, fair = parser.expression(), []
        if parser.accept("assuming", "fair"):
            fair.append(parser.name("an event or effect").text)
            while parser.accept(","):
                fair.append(parser.name("an event or effect").text)
        return claims.LeadsTo(left, goal, tuple(fair))
    if parser.accept("only", "after"):
        return claims.OnlyAfter(left, parser.expression())
    if parser.accept("with", "probability"):
        parser.expect(">=")
        return claims.Probability(left, parser.number())
    parser.fail("expected 'leads to', 'only after' or 'with probability >= x'")


def _typed(form: claims.Form, resolver: Resolver) -> claims.Form:
    condition = resolver.condition
    match form:
        case claims.Always() | claims.Never() | claims.Possible() | claims.EverywherePossible() | claims.Probability():
            return attrs.evolve(form, condition=condition(form.condition))
        case claims.Unchanged(trigger, expressions):
            return claims.Unchanged(condition(trigger), tuple(resolver.infer(expr)[0] for expr in expressions))
        case claims.LeadsTo(cause, goal, fair):
            return claims.LeadsTo(condition(cause), condition(goal), fair)
        case claims.OnlyAfter(later, earlier):
            return claims.OnlyAfter(condition(later), condition(earlier))
        case claims.AtMost(bound, counted, between):
            scoped = None if between is None else (condition(between[0]), condition(between[1]))
            return claims.AtMost(resolver.expect(bound, "int"), condition(counted), scoped)
        case claims.Expected():
            return attrs.evolve(form, counted=condition(form.counted))


def _require_lasting(form: claims.Unchanged, cell: Cell, findings: Findings) -> None:
    """Report what only happens at a moment, and so has no value before and after a step."""
    for node in (node for expr in form.expressions for node in walk(expr)):
        if isinstance(node, Verdict) or (isinstance(node, Name) and node.kind in {"event", "effect"}):
            what = f"{node.guard}.{node.outcome}" if isinstance(node, Verdict) else node.name
            message = f"'{what}' happens at a moment, so it cannot stay unchanged"
            findings.error("DSA204", message, node.span or cell.span(), "compare variables, states or 'pending E'")
