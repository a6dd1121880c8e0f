"""The bullets of a Properties section to typed properties.

Takes bullets and the scope of moments (states, events, effects, verdicts and values), gives `Property` values.
"""

import re
from collections.abc import Callable

import attrs

from dsa import claims
from dsa.expr import Expr, Name, Verdict, walk
from dsa.lang.cells import Written
from dsa.lang.exprs import Parser, UnreadableError
from dsa.lang.findings import Findings
from dsa.lang.markdown import Bullet, Cell
from dsa.lang.typed import Resolver, Scope
from dsa.words import nearest

FORMS = (
    "always P | never P | on E: X unchanged | P leads to Q [assuming [weakly] fair E] [even if F fails] | Q only after P | "
    "at most K E [between P and Q] | possible P | from everywhere possible P | P with probability >= x | expected E <= x"
)


_LEADING = {
    "always": "always P", "never": "never P", "on": "on E: X unchanged", "at": "at most K E [between P and Q]",
    "possible": "possible P", "from": "from everywhere possible P", "expected": "expected E <= x",
}  # fmt: skip
_INFIX = {
    "leads": "P leads to Q [assuming fair E] [even if F never answers]",
    "only": "Q only after P",
    "probability": "P with probability >= x",
}
_BETWEEN = "in 'between P and Q', 'and' and 'or' inside P or Q need parentheses"


def looks_like_property(cell: Cell) -> bool:
    """Tell whether a bullet reads as a property, whatever its names."""
    try:
        _form(cell)
    except UnreadableError:
        return False
    return True


def read_property(
    bullet: Bullet, scope: Scope, named: Callable[[Written, str], None], findings: Findings
) -> claims.Property | None:
    """Read and type one bullet. `named` is asked about each name after `assuming fair` and `even if`, with what is said of it."""
    cell = bullet.text
    try:
        form = _form(cell)
    except UnreadableError as fault:
        hint = fault.hint or _form_meant(cell.text.split())
        findings.error("DSA109", fault.message, cell.span(fault.start, fault.end), hint)
        return None
    before = findings.count
    if isinstance(form, claims.LeadsTo):
        for name, said in (*((name, "fair") for name in form.fair), *((d.effect, d.what) for d in form.doubts)):
            start = max(place.start() for place in re.finditer(rf"(?<![\w.]){re.escape(name)}(?![\w.])", cell.text))
            named(Written(name, cell.span(start, start + len(name))), said)
    typed = _typed(form, Resolver(scope, findings, cell.span()))
    if isinstance(typed, claims.Unchanged):
        _require_lasting(typed, cell, findings)
    return claims.Property(typed, span=cell.span()) if findings.count == before else None


def _form_meant(words: list[str]) -> str:
    """Show the form that a bullet seems to be, or all of them."""
    if words and words[0] in {"always", "never"} and (near := next((f for w, f in _INFIX.items() if w in words), None)):
        return f"leave out '{words[0]}', and write: {near}"
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
        return _leads_to(parser, left)
    if parser.accept("only", "after"):
        return claims.OnlyAfter(left, parser.expression())
    if parser.accept("with", "probability"):
        is_ceiling = parser.accept("<=")
        if not is_ceiling:
            parser.expect(">=", "write: P with probability >= x, or: P with probability <= x")
        return claims.Probability(left, parser.number(), is_ceiling)
    parser.fail("expected 'leads to', 'only after' or 'with probability >= x'")


def _leads_to(parser: Parser, cause: Expr) -> claims.LeadsTo:
    goal, fair, doubts = parser.expression(), list[str](), list[claims.Doubt]()
    is_weak = parser.at("assuming", "weakly")
    if parser.accept("assuming", "weakly", "fair") or parser.accept("assuming", "fair"):
        fair.append(parser.name("an event, an effect or a verdict").text)
        while parser.accept(","):
            fair.append(parser.name("an event, an effect or a verdict").text)
    if parser.accept("even", "if"):
        doubts.append(_doubt(parser))
        while parser.accept(","):
            doubts.append(_doubt(parser))
    return claims.LeadsTo(cause, goal, tuple(fair), is_weak, tuple(doubts))


def _doubt(parser: Parser) -> claims.Doubt:
    effect = parser.name("an effect").text
    if parser.accept("fails"):
        return claims.Doubt(effect, "fails")
    if parser.accept("never", "answers"):
        return claims.Doubt(effect, "never answers")
    parser.fail(
        "expected 'fails' or 'never answers'", f"write: even if {effect} fails, or: even if {effect} never answers"
    )


def _typed(form: claims.Form, resolver: Resolver) -> claims.Form:
    condition = resolver.condition
    match form:
        case claims.Always() | claims.Never() | claims.Possible() | claims.EverywherePossible() | claims.Probability():
            return attrs.evolve(form, condition=condition(form.condition))
        case claims.Unchanged(trigger, expressions):
            return claims.Unchanged(condition(trigger), tuple(resolver.infer(expr)[0] for expr in expressions))
        case claims.LeadsTo(cause, goal):
            return attrs.evolve(form, cause=condition(cause), goal=condition(goal))
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
