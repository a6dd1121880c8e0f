"""Claim sections: the readers of Properties and Scenario sections.

`read_property` reads a bullet in the scope of moments (states, events, effects, verdicts and values). `read_scenario` reads a table of percepts with
the expected actions, states, values and dependencies; `dsa.checks` runs it later.
"""

import re
from collections.abc import Callable, Mapping

import attrs

from dsa import declarations
from dsa.declarations import (
    TIMER_PREFIX,
    Cancel,
    Emit,
    RefusedAction,
    RunParameter,
    Scenario,
    ScenarioStep,
    parse_duration,
)
from dsa.expr import OUTCOMES, Expr, Name, Outcome, Value, Verdict, concrete, unparse, unparse_domain, walk
from dsa.lang import cells
from dsa.lang.cells import COLUMNS, NOTE, TableRecord, WrittenName, records
from dsa.lang.declaration_tables import literal
from dsa.lang.expression_parser import ExpressionParser, Findings, UnreadableError
from dsa.lang.markdown import Cell, ParagraphLine, Section
from dsa.lang.namespace import Names, Resolver, Scope
from dsa.machine import Machine, spelling_of
from dsa.text import closest, nearest

FORMS = (
    "always P | never P | on E: X unchanged | P leads to Q [assuming [weakly] fair E] [even if F fails] | Q only after P | "
    "at most K E [between P and Q] | possible P | from everywhere possible P | P with probability >= x | expected E <= x"
)


_PREFIXES = {
    "always": "always P", "never": "never P", "on": "on E: X unchanged", "at": "at most K E [between P and Q]",
    "possible": "possible P", "from": "from everywhere possible P", "expected": "expected E <= x",
}  # fmt: skip
_INFIX = {
    "leads": "P leads to Q [assuming fair E] [even if F never answers]",
    "only": "Q only after P",
    "probability": "P with probability >= x",
}
_LEGEND = "; K is a number, and E is what is counted, such as an effect"
_BETWEEN = "if P or Q in 'between P and Q' has an 'and' or 'or' of its own, put it in parentheses, as in: between (A or B) and Q"


def looks_like_property(cell: Cell) -> bool:
    """Return whether a bullet has the form of a property, whatever its names."""
    try:
        _form(cell)
    except UnreadableError:
        return False
    return True


def read_property(
    cell: Cell,
    instance: declarations.Instance,
    scope: Scope,
    members: Mapping[str, tuple[str, ...]],
    require_name: Callable[[WrittenName, str], None],
    findings: Findings,
) -> declarations.Property | None:
    """Read and type the text of one bullet, for one combination of indices of the families that are free in it.

    `require_name` gets each name after `assuming fair` and `even if`, with the claim about it. There a name in `members` stands for all with an index.
    """
    try:
        form = _form(cell)
    except UnreadableError as fault:
        hint = fault.hint or _form_meant(cell.text.split())
        findings.error("DSA109", fault.message, cell.span(fault.start, fault.end), hint)
        return None
    before = findings.count
    if isinstance(form, declarations.LeadsTo):
        form = _of_each_member(form, members)
        for name, claim in (*((name, "fair") for name in form.fair), *((d.effect, d.what) for d in form.doubts)):
            word = re.escape(name.partition("[")[0])
            start = max(place.start() for place in re.finditer(rf"(?<![\w.]){word}(?![\w.])", cell.text))
            require_name(WrittenName(name, cell.span(start, start + len(name.partition("[")[0]))), claim)
    resolver = Resolver(scope, findings, cell.span())
    result = declarations.map_expressions(
        form, lambda expr, kind: resolver.infer(expr)[0] if kind is None else resolver.expect(expr, kind)
    )
    if isinstance(result, declarations.UnchangedClaim):
        _require_lasting(result, cell, findings)
    return declarations.Property(result, instance=instance, span=cell.span()) if findings.count == before else None


def _of_each_member(form: declarations.LeadsTo, members: Mapping[str, tuple[str, ...]]) -> declarations.LeadsTo:
    """Return a property whose assumptions about a family without index are about each of its members."""
    if not members:
        return form
    fair = tuple(name for word in form.fair for name in members.get(word, (word,)))
    doubts = tuple(
        attrs.evolve(doubt, effect=name) for doubt in form.doubts for name in members.get(doubt.effect, (doubt.effect,))
    )
    return attrs.evolve(form, fair=fair, doubts=doubts)


def _form_meant(words: list[str]) -> str:
    """Return a hint with the form that a bullet seems to have, or with all of them."""
    if words and words[0] in {"always", "never"} and (near := next((f for w, f in _INFIX.items() if w in words), None)):
        return f"leave out '{words[0]}', and write: {near}"
    if words and words[0] in _PREFIXES:
        return f"write: {_PREFIXES[words[0]]}{_LEGEND if words[0] == 'at' else ''}"
    if near := next((form for word, form in _INFIX.items() if word in words), None):
        return f"write: {near}"
    candidates = [(word, _INFIX if place else _PREFIXES) for place, word in enumerate(words)]
    if match := next(filter(None, (nearest(word, forms, 0.75) for word, forms in candidates)), None):
        return f"did you mean '{match}'?"
    return f"a property is one of: {FORMS}"


def _form(cell: Cell) -> declarations.Form:
    """Read a property. One that begins with a word such as `on` may be about a state of that name."""
    try:
        return _whole(cell, _prefix_form)
    except UnreadableError as fault:
        try:
            return _whole(cell, _infix)
        except UnreadableError as other:
            both = (other, fault) if other.start == 0 and cell.text[other.end :].startswith(" ") else (fault, other)
            raise max(both, key=lambda each: each.start) from None  # the one that read more


def _whole(cell: Cell, read: Callable[[ExpressionParser], declarations.Form]) -> declarations.Form:
    parser = ExpressionParser(cell)
    form = read(parser)
    parser.end(_BETWEEN if isinstance(form, declarations.AtMost) else "")
    return form


def _prefix_form(parser: ExpressionParser) -> declarations.Form:
    """Read the forms that begin with a keyword."""
    if parser.accept("always"):
        return declarations.Always(parser.expression())
    if parser.accept("never"):
        return declarations.Never(parser.expression())
    if parser.accept("possible"):
        return declarations.Possible(parser.expression())
    if parser.accept("from", "everywhere", "possible"):
        return declarations.EverywherePossible(parser.expression())
    if parser.accept("at", "most"):
        return _at_most(parser)
    if parser.accept("expected"):
        moment = parser.sum()
        parser.expect("<=")
        return declarations.ExpectedCount(moment, parser.number())
    if parser.accept("on"):
        return _unchanged_claim(parser)
    parser.fail("expected the first word of a property")


def _at_most(parser: ExpressionParser) -> declarations.AtMost:
    bound, moment = parser.sum(), parser.negation()
    parser.require_closed("in a property with 'at most'")
    if not parser.accept("between"):
        return declarations.AtMost(bound, moment)
    start = parser.negation()
    parser.expect("and", _BETWEEN)
    end = parser.negation()
    parser.require_closed("in a property with 'between'")
    return declarations.AtMost(bound, moment, (start, end))


def _unchanged_claim(parser: ExpressionParser) -> declarations.UnchangedClaim:
    trigger = parser.expression()
    parser.require_closed("after 'on'")
    parser.expect(":", "write: on E: X unchanged")
    expressions = [parser.expression()]
    while parser.accept(","):
        expressions.append(parser.expression())
    parser.expect("unchanged", "write: on E: X unchanged")
    return declarations.UnchangedClaim(trigger, tuple(expressions))


def _infix(parser: ExpressionParser) -> declarations.Form:
    left = parser.expression()
    if parser.accept("leads", "to"):
        form = _leads_to(parser, left)
        parser.require_closed("in a property with 'leads to'")
        return form
    if parser.accept("only", "after"):
        later = parser.expression()
        parser.require_closed("in a property with 'only after'")
        return declarations.OnlyAfter(left, later)
    if parser.accept("with", "probability"):
        is_ceiling = parser.accept("<=")
        if not is_ceiling:
            parser.expect(">=", "write: P with probability >= x, or: P with probability <= x")
        return declarations.Probability(left, parser.number(), is_ceiling)
    parser.fail(
        f"'{unparse(left)}' was read as a condition; after a condition, a property goes on with 'leads to', 'only after' or 'with probability >= x'"
    )


def _leads_to(parser: ExpressionParser, cause: Expr) -> declarations.LeadsTo:
    goal, fair, doubts = parser.expression(), list[str](), list[declarations.Doubt]()
    is_weak = parser.at("assuming", "weakly")
    if parser.accept("assuming", "weakly") or parser.accept("assuming"):
        parser.expect("fair", "write: assuming fair E, or: assuming weakly fair E")
        fair.append(parser.name("an event, an effect or a verdict").text)
        while parser.accept(","):
            fair.append(parser.name("an event, an effect or a verdict").text)
    if parser.accept("even", "if"):
        doubts.append(_doubt(parser))
        while parser.accept(","):
            doubts.append(_doubt(parser))
    return declarations.LeadsTo(cause, goal, tuple(fair), is_weak, tuple(doubts))


def _doubt(parser: ExpressionParser) -> declarations.Doubt:
    effect = parser.name("an effect").text
    if parser.accept("fails"):
        return declarations.Doubt(effect, "fails")
    if parser.accept("never"):
        parser.expect("answers", f"write: even if {effect} never answers")
        return declarations.Doubt(effect, "never answers")
    parser.fail(
        "expected 'fails' or 'never answers'", f"write: even if {effect} fails, or: even if {effect} never answers"
    )


def _require_lasting(form: declarations.UnchangedClaim, cell: Cell, findings: Findings) -> None:
    """Report events, effects and verdicts: they happen at a moment, so they have no value before and after a step."""
    for node in (node for expr in form.expressions for node in walk(expr)):
        if isinstance(node, Verdict) or (isinstance(node, Name) and node.kind in {"event", "effect"}):
            what = f"{node.guard}.{node.outcome}" if isinstance(node, Verdict) else node.name
            message = f"'{what}' has no value that lasts from one step to the next, so it cannot stay unchanged"
            findings.error(
                "DSA204", message, node.span or cell.span(), "name variables, states, or 'pending E' for an effect E"
            )


REASONS = ("finished", "late", "early", "invalid_state", "ambiguous", "out_of_domain", "emitted_twice")
_PARAMETERS = "Parameters:"


def read_scenario(section: Section, names: Names, machine: Machine, findings: Findings) -> Scenario:
    """Read one Scenario section of a machine; a row that cannot be read is reported and left out."""
    values: tuple[tuple[str, Value], ...] = ()
    for block in section.blocks:
        if isinstance(block, ParagraphLine) and block.text.text.startswith(_PARAMETERS):
            more = _parameters(block.text, machine.parameters, findings)
            for name in dict(values).keys() & dict(more).keys():
                findings.error("DSA202", f"'{name}' is given twice", block.text.span())
            values += more
    rows = records(section, COLUMNS["scenario"], findings, frozenset(names.variables))
    if not section.tables:
        hint = "write a table with the columns percept, action and state"
        findings.error("DSA102", "this scenario has no table", section.heading.span(), hint)
    results = [_step(record, names, machine, findings) for record in rows]
    steps = tuple(step for step in results if step is not None)
    return Scenario(section.name or section.kind, steps, values, span=section.heading.span())


def _parameters(cell: Cell, parameters: tuple[RunParameter, ...], findings: Findings) -> tuple[tuple[str, Value], ...]:
    text = cell.text.removeprefix(_PARAMETERS)
    rest = attrs.evolve(cell, text=text.strip(), column=cell.column + len(cell.text) - len(text.lstrip()), escapes=())
    settings = []
    for name, cell_of_value in cells.pair_cells(rest, ",;", findings):
        matches = [p for p in parameters if p.name == name] or [p for p in parameters if p.name.startswith(f"{name}.")]
        if not matches:
            hint = closest(name, [parameter.name for parameter in parameters], "the machine has no parameters")
            findings.error("DSA201", f"'{name}' is not a parameter", rest.span(), hint, about=name)
            continue
        value = literal(cell_of_value, matches[0].domain, findings)
        outside = [p for p in matches if value is not None and not concrete(p.domain, {}).contains(value)]
        for parameter in outside:
            message = f"{cell_of_value.text} lies outside {parameter.name}'s domain {unparse_domain(parameter.domain)}"
            findings.error("DSA205", message, cell_of_value.span())
        if value is not None and not outside:
            settings.append((name, value))
    return tuple(settings)


def _step(record: TableRecord, names: Names, machine: Machine, findings: Findings) -> ScenarioStep | None:
    before = findings.count
    event, verdicts = _percept(record["percept"], names, machine, findings)
    action = _action(record["action"], names, findings)
    state = _state(record["state"], names, findings)
    values = _values(record, names, findings)
    dependencies = _dependencies(record["deps"], machine, findings)
    if findings.count > before:
        return None
    return ScenarioStep(event, verdicts, action, state, values, dependencies, span=record.span)


def _dependencies(cell: Cell, machine: Machine, findings: Findings) -> tuple[tuple[str, str], ...] | None:
    if cell.text in {"", "-"}:
        return () if cell.text else None
    steps = [step.name for step in machine.steps]
    pairs = cells.pair_cells(cell, ";,", findings)
    for _, step in pairs:
        if step.text not in steps:
            hint = closest(step.text, steps, "dependencies exist only in a document with a section 'Steps'")
            findings.error("DSA201", f"'{step.text}' is not a step", step.span(), hint, about=step.text)
    return tuple((name, step.text) for name, step in pairs)


def _timer(cell: Cell, text: str, machine: Machine, findings: Findings) -> str:
    duration_ms = parse_duration(text.removeprefix(TIMER_PREFIX).strip())
    if not duration_ms:
        findings.error(
            "DSA107",
            f"'{text}' is not a timer",
            cell.span(),
            "write a timer such as 'after 30s'; units: ms, s, m, h, d",
        )
        return ""
    spelling = spelling_of(machine)
    event = spelling.get(duration_ms, TIMER_PREFIX + text.removeprefix(TIMER_PREFIX).strip())
    if duration_ms not in spelling:
        hint = closest(event, spelling.values(), "no row has a timer")
        findings.error("DSA201", f"no row has the timer '{event}'", cell.span(), hint, about=TIMER_PREFIX.strip())
    return event


def _percept(
    cell: Cell, names: Names, machine: Machine, findings: Findings
) -> tuple[str, tuple[tuple[str, Outcome], ...]]:
    text = cell.text.strip("`").strip()
    if text.split(" ")[0] == TIMER_PREFIX.strip():
        return _timer(cell, text, machine, findings), ()

    def read(parser: ExpressionParser) -> tuple[cells.WrittenName, tuple[cells.WrittenName, ...]]:
        event, verdict = cells.written_name(parser, cell, "an event"), "a verdict such as g.failed"
        return event, cells.read_items(parser, ",", lambda: cells.written_name(parser, cell, verdict))

    percept = cells.parse_cell(cell, read, findings, hint="a percept is an event, then verdicts separated by ','")
    if percept is None:
        return "", ()
    event, words = percept
    if event.name not in names.events:
        names.report_unknown("event", event, findings)
    verdicts = [_verdict(word, event.name, names, findings) for word in words]
    return event.name, tuple(sorted(verdict for verdict in verdicts if verdict is not None))


def _verdict(word: cells.WrittenName, event: str, names: Names, findings: Findings) -> tuple[str, Outcome] | None:
    guard, _, ending_word = word.name.rpartition(".")
    outcome = next(
        (
            candidates
            for candidates in OUTCOMES
            if candidates == ending_word and candidates in names.guards.get(guard, ())
        ),
        None,
    )
    if outcome is None:
        candidates = [f"{name}.{outcome}" for name, outcomes in names.guards.items() for outcome in outcomes]
        hint = closest(word.name, candidates)
        findings.error("DSA201", f"'{word.name}' is not a verdict", word.span, hint, about=word.name)
        return None
    if event in names.events and event not in names.judged_events[guard]:
        hint = names.judging_hint(guard)
        findings.error("DSA209", f"guard '{guard}' does not judge the event '{event}'", word.span, hint, about=guard)
        return None
    return guard, outcome


def _action(cell: Cell, names: Names, findings: Findings) -> tuple[Emit | Cancel, ...] | RefusedAction:
    word, colon, reason = (part.strip() for part in cell.text.strip("`").partition(":"))
    if word == "refused":
        if colon and reason not in REASONS:
            hint = closest(reason, REASONS)
            findings.error("DSA107", f"'{reason}' is not a reason for a refusal", cell.span(), hint)
        return RefusedAction(reason or None)
    if cell.text in {"", "-"}:
        return ()
    items = cells.effects(cells.with_indices(cell, names.families) if names.families else cell, findings)
    for item in items:
        if item.effect is not None and item.effect not in names.effects and item.span is not None:
            names.report_unknown("effect", cells.WrittenName(item.effect, item.span), findings)
    return items


def _state(cell: Cell, names: Names, findings: Findings) -> str | None:
    if not cell.text:
        return None
    name = cells.one_name(cell, "a state", findings)
    if name is None:
        return None
    full = names.full_state(name)
    if full is None:
        names.report_unknown("state", cells.WrittenName(name, cell.span()), findings)
    return full


def _values(record: TableRecord, names: Names, findings: Findings) -> tuple[tuple[str, Value], ...]:
    values = []
    for variable, domain in names.variables.items():
        if variable in record.cells and record[variable].text and variable not in {*COLUMNS["scenario"].all, NOTE}:
            value = literal(record[variable], domain, findings)
            if value is not None:
                values.append((variable, value))
    return tuple(values)
