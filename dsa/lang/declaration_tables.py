"""Declaration tables: the readers of Families, Parameters, Variables, Events, Guards, Generators, Effects, States, Cases, Prompt and Constraints.

The functions take records and return frozen declarations in table order. They resolve bounds and initial values, which can read only parameters.
`dsa.lang.namespace` checks that names are unique and that events answer effects. Python literals stay text; nothing is executed. `with_uses`,
`read_prompts` and `require_tasks_filled` read references to event data, so they need the names of the events.
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import attrs

from dsa import declarations, expr
from dsa.data_use import SPECIFICATION
from dsa.declarations import (
    Case,
    Cases,
    Guard,
    Prompt,
    Reference,
    ReferenceFault,
    StepRow,
    index_in,
    read_reference,
)
from dsa.errors import ParameterError, Span
from dsa.lang import cells, namespace
from dsa.lang.cells import COLUMNS, TableRecord, WrittenName, each_declaration, records
from dsa.lang.expression_parser import ExpressionParser, Findings
from dsa.lang.markdown import Cell, Families, Fence, Heading, Section
from dsa.lang.namespace import Names
from dsa.text import closest, nearest, some_of

#: Probabilities are written in decimals, which do not add up exactly.
_ROUNDING = 1e-9


#: The most indices of a family.
MOST_INDICES = 64
_FORMS = "write the index as 1..3, or as {a, b}"


def families(
    records: Iterable[TableRecord], replacements: Mapping[str, str], findings: Findings
) -> tuple[declarations.Family, ...]:
    """Read the Families table; `replacements` has other indices for some, as text. Raises ParameterError for one that is not an index."""
    families: list[declarations.Family] = []
    for record in each_declaration(list(records), findings):
        name = cells.declared_name(record["family"], "a family", findings)
        indices = _given_indices(name.name, replacements) if name else None
        indices = indices or _indices(record["index"], findings)
        if name is None or indices is None:
            continue
        if "." in name.name:
            findings.error("DSA203", f"'{name.name}' cannot name a family", name.span, "write a name without dots")
        elif any(name.name == other.name for other in families):
            findings.error("DSA202", f"'{name.name}' is already a family", name.span)
        else:
            families.append(declarations.Family(name.name, indices, span=name.span))
    _require_unlike(families, findings)
    return tuple(families)


def unknown_family(families: Iterable[declarations.Family], replacements: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first replaced name that is not a family, and a hint; None if all are."""
    names = [family.name for family in families]
    unknown = next((name for name in replacements if name not in names), None)
    return None if unknown is None else (unknown, closest(unknown, names, "the document has no families"))


def _given_indices(family: str, replacements: Mapping[str, str]) -> tuple[int | str, ...] | None:
    if family not in replacements:
        return None
    text, faults = replacements[family].strip(), Findings()
    indices = _indices(Cell(text, "", 1, 1, text), faults)
    if faults.diagnostics:
        fault = faults.diagnostics[0]
        raise ParameterError(f"{family}={text}: {fault.message}" + (f"; {fault.hint}" if fault.hint else ""))
    return indices


def _indices(cell: Cell, findings: Findings) -> tuple[int | str, ...] | None:
    def read(parser: ExpressionParser) -> tuple[int | str, ...]:
        if parser.accept("{"):
            values = [_value(parser)]
            while parser.accept(","):
                values.append(_value(parser))
            parser.expect("}")
            return tuple(values)
        low = parser.integer()
        parser.expect("..", _FORMS)
        return tuple(islice(range(low, parser.integer() + 1), MOST_INDICES + 1))

    indices = cells.parse_cell(cell, read, findings, hint=_FORMS)
    if indices is None:
        return None
    if not indices:
        findings.error(
            "DSA205",
            f"this family has no values: {cell.plain} is empty",
            cell.span(),
            "the lower bound, which comes first, must not be greater than the upper one",
        )
    elif len(indices) > MOST_INDICES:
        hint = "a family is for a few things; to count many, use a variable"
        findings.error("DSA205", f"a family has at most {MOST_INDICES} indices", cell.span(), hint)
    elif len(set(indices)) < len(indices):
        findings.error("DSA202", f"the values {cell.plain} of this family contain the same value twice", cell.span())
    else:
        return indices
    return None


def _value(parser: ExpressionParser) -> str:
    token = parser.name("a value")
    if "." in token.text or "[" in token.text:
        raise parser.fault(
            token, "this cannot be an index: an index is a whole number, or a name without dots and brackets", _FORMS
        )
    return token.text


def _require_unlike(families: Sequence[declarations.Family], findings: Findings) -> None:
    """Report families with the name of an index: `x[a]` would mean two things."""
    owners = {index: family.name for family in families for index in family.indices}
    for family in families:
        if family.name in owners and family.span is not None:
            message = f"'{family.name}' is a family, and also an index of '{owners[family.name]}'"
            findings.error("DSA202", message, family.span, "rename the family or the index")


def parameters(records: list[TableRecord], findings: Findings) -> tuple[declarations.RunParameter, ...]:
    """Read the Parameters table; bounds are literal numbers, defaults literal values."""
    parameters = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["parameter"], "a parameter", findings)
        domain = _domain(record, namespace.Scope("a parameter's bound"), findings)
        if name is None or domain is None:
            continue
        value = literal(record["default"], domain, findings) if _not_empty(record, domain, {}, findings) else None
        if value is not None and _fits(value, domain, record, {}, findings):
            parameters.append(declarations.RunParameter(name.name, domain, value, span=name.span))
    return tuple(parameters)


def variables(
    records: list[TableRecord], parameters: tuple[declarations.RunParameter, ...], findings: Findings
) -> tuple[declarations.Variable, ...]:
    """Read the Variables table; bounds and initial values are expressions over parameters."""
    parameter_domains = {parameter.name: parameter.domain for parameter in parameters}
    others = {record["variable"].plain: "a variable" for record in records}
    variables = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["variable"], "a variable", findings)
        scope = namespace.Scope("a bound", parameters=parameter_domains, others=others)
        domain = _domain(record, scope, findings)
        if name is None or domain is None:
            continue
        initial = _initial(record, domain, attrs.evolve(scope, place="an initial value"), findings)
        if initial is None or not _require_finite(record, domain, findings):
            continue
        for values in _valuations(parameters):
            value = expr.evaluate(initial, values)
            is_right = _not_empty(record, domain, values, findings)
            if not is_right or not _fits(value, domain, record, values, findings, "initial"):
                break
        word = cells.one_of(record["scope"], ("workflow", "environment"), "", findings)
        where: declarations.Scope = "workflow" if word == "workflow" else "environment"
        variables.append(declarations.Variable(name.name, where, domain, initial, span=name.span))
    return tuple(variables)


def _valuations(parameters: tuple[declarations.RunParameter, ...]) -> list[dict[str, expr.Value]]:
    """Return the valuations that are explored by default: all defaults, and all minima."""
    smallest: dict[str, expr.Value] = {}
    for parameter in parameters:
        domain = expr.concrete(parameter.domain, {})
        smallest[parameter.name] = domain.low if isinstance(domain, expr.Interval) else domain.values[0]
    defaults = {parameter.name: parameter.default for parameter in parameters}
    return [defaults] if defaults == smallest else [defaults, smallest]


def _domain(record: TableRecord, scope: namespace.Scope, findings: Findings) -> expr.Domain | None:
    domain = cells.domain(record["domain"], findings)
    if not isinstance(domain, expr.RangeDomain):
        return domain
    resolver = namespace.Resolver(scope, findings, record["domain"].span())
    before = findings.count
    low = resolver.expect(domain.low, "int")
    high = None if domain.high is None else resolver.expect(domain.high, "int")
    return expr.RangeDomain(low, high) if findings.count == before else None


def _require_finite(record: TableRecord, domain: expr.Domain, findings: Findings) -> bool:
    if isinstance(domain, expr.RangeDomain) and domain.high is None:
        hint = "give the domain an upper bound, because a variable cannot grow without limit"
        findings.error("DSA205", "a variable's domain must be finite", record["domain"].span(), hint)
        return False
    return True


def _not_empty(record: TableRecord, domain: expr.Domain, values: Mapping[str, expr.Value], findings: Findings) -> bool:
    span = expr.concrete(domain, values)
    if not isinstance(span, expr.Interval) or span.high is None or span.low <= span.high:
        return True
    message = f"the domain {expr.unparse_domain(domain)} is empty" + _at(values)
    findings.error(
        "DSA205",
        message,
        record["domain"].span(),
        "the lower bound, which comes first, must not be greater than the upper one",
    )
    return False


def _at(values: Mapping[str, expr.Value]) -> str:
    text = ", ".join(f"{name} = {expr.show_value(value)}" for name, value in values.items())
    return f" at {text}" if text else ""


def _one_value(parser: ExpressionParser) -> expr.Expr:
    value = None if parser.at("in") or parser.at("{") else parser.expression()
    if value is None or parser.at(",") or parser.at(".."):
        parser.reject(
            "a variable has one initial value",
            "for several possible starts, declare a parameter and write its name here",
        )
    return value


def _initial(record: TableRecord, domain: expr.Domain, scope: namespace.Scope, findings: Findings) -> expr.Expr | None:
    cell = record["initial"]
    node = cells.parse_cell(cell, _one_value, findings, "DSA108")
    if node is None:
        return None
    symbols = frozenset(domain.values) if isinstance(domain, expr.EnumDomain) else frozenset()
    enums = [d.values for d in scope.parameters.values() if isinstance(d, expr.EnumDomain)]
    enums += [tuple(map(str, indices)) for indices in cell.families.values() if isinstance(indices[0], str)]
    scope = attrs.evolve(scope, symbols=symbols.union(*enums), has_families=bool(cell.families))
    before = findings.count
    value = namespace.Resolver(scope, findings, cell.span()).expect(node, namespace.type_of(domain))
    return value if findings.count == before else None


def literal(cell: Cell, domain: expr.Domain, findings: Findings) -> expr.Value | None:
    """Read a literal value of a domain: a number, `true`, `false`, or a value of the enumeration."""
    node = cells.parse_cell(cell, ExpressionParser.literal, findings, "DSA108")
    if node is None:
        return None
    symbols = frozenset(domain.values) if isinstance(domain, expr.EnumDomain) else frozenset()
    probe = Findings()
    resolver = namespace.Resolver(namespace.Scope("a literal value", symbols=symbols), probe, cell.span())
    value = resolver.expect(node, namespace.type_of(domain))
    if probe.any_error:
        words = {expr.BooleanDomain: ("true", "false"), expr.RangeDomain: ()}.get(type(domain), sorted(symbols))
        hint = closest(cell.plain, words, "write a whole number")
        findings.error("DSA205", f"'{cell.plain}' is not a value of {expr.unparse_domain(domain)}", cell.span(), hint)
        return None
    return expr.evaluate(value, {})


def _fits(
    value: expr.Value,
    domain: expr.Domain,
    record: TableRecord,
    values: Mapping[str, expr.Value],
    findings: Findings,
    column: str = "default",
) -> bool:
    if expr.concrete(domain, values).contains(value):
        return True
    message = f"{expr.show_value(value)} lies outside {expr.unparse_domain(domain)}" + _at(values)
    findings.error("DSA205", message, record[column].span())
    return False


def events(records: list[TableRecord], findings: Findings) -> tuple[tuple[declarations.Event, ...], list[WrittenName]]:
    """Read the Events table; also return the origins as written, to check later that they are effects."""
    events, origins = [], []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["event"], "an event", findings)
        origin = cells.one_name(record["from"], "'outside' or an effect", findings)
        otherwise = cells.one_of(record["otherwise"], ("refused",), "", findings)
        if otherwise and origin not in {None, declarations.OUTSIDE}:
            hint = "empty this cell: rows must handle an answer wherever it can arrive"
            findings.error("DSA107", "only an event from outside may be refused", record["otherwise"].span(), hint)
        if name is not None and origin is not None:
            events.append(declarations.Event(name.name, origin, otherwise, span=name.span))
            origins.append(WrittenName(origin, record["from"].span()))
    return tuple(events), origins


def guards(
    records: list[TableRecord], families: Families, findings: Findings
) -> tuple[tuple[declarations.Guard, ...], list[WrittenName]]:
    """Read the Guards table; also return the judged events as written, to check later that they exist."""
    guards: list[declarations.Guard] = []
    event_names: list[WrittenName] = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["guard"], "a guard", findings)
        if name is None:
            continue
        verdicts = cells.name_list(record["verdicts"], "a verdict", findings)
        for verdict in verdicts:
            if verdict.name not in expr.OUTCOMES:
                hint = closest(verdict.name, expr.OUTCOMES)
                findings.error("DSA107", f"'{verdict.name}' is not a verdict", verdict.span, hint)
        outcomes = tuple(outcome for outcome in expr.OUTCOMES if outcome in {verdict.name for verdict in verdicts})
        events_judged = _judged_events(record["judges"], families, findings)
        event_names += events_judged
        judges = tuple(event.name for event in events_judged)
        kind = _word(record, "is", "a kind of guard", findings)
        options = cells.pairs(record["options"], ";", findings)
        odds = _odds(record, findings)
        outcomes = outcomes or expr.OUTCOMES
        guards.append(declarations.Guard(name.name, judges, kind, options, outcomes, *odds, span=name.span))
    return tuple(guards), event_names


def _judged_events(cell: Cell, families: Families, findings: Findings) -> tuple[WrittenName, ...]:
    """Read the events that a guard judges: `x[f]` stands for those of all indices."""
    if "[" not in cell.text:
        return cells.name_list(cell, "an event", findings)
    names = (
        name for _, text in cells.each_instance(cell, families) for name in cells.name_list(text, "an event", findings)
    )
    return tuple({name.name: name for name in names}.values())


def _odds(record: TableRecord, findings: Findings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read the assumed probabilities; the last number of each list is repeated."""
    passes, fatals = (cells.probabilities(record[column], findings) for column in ("pass", "fatal"))
    for retry in range(max(len(passes), len(fatals))):
        together = sum(odds[min(retry, len(odds) - 1)] for odds in (passes, fatals) if odds)
        if together > 1 + _ROUNDING:
            message = (
                f"the columns 'pass' and 'fatal' add up to {together:g} for attempt {retry + 1}; at most 1 is possible"
            )
            findings.error("DSA205", message, record["fatal"].span())
            break
    return passes, fatals


def generators(records: list[TableRecord], findings: Findings) -> tuple[declarations.Generator, ...]:
    """Read the Generators table; these names are separate from all others, so it checks here that they are unique."""
    generators: list[declarations.Generator] = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["generator"], "a generator", findings)
        if name is not None:
            if any(name.name == other.name for other in generators):
                findings.error("DSA202", f"'{name.name}' is already a generator", name.span)
            kind = _word(record, "is", "a kind of generator", findings)
            options = cells.pairs(record["options"], ";", findings)
            generators.append(declarations.Generator(name.name, kind, options, span=name.span))
    return tuple(generators)


def _word(record: TableRecord, column: str, what: str, findings: Findings) -> str:
    cell = record[column]
    return (cells.one_name(cell, what, findings) if cell.text else None) or ""


def effects(
    records: list[TableRecord], parameters: tuple[declarations.RunParameter, ...], findings: Findings
) -> tuple[declarations.Effect, ...]:
    """Read the Effects table: how many of each effect may be outstanding, and the driver's policy for it."""
    effects = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["effect"], "an effect", findings)
        if name is not None:
            values = {
                column.field: _effect_value(record[column.header], column, parameters, findings)
                for column in declarations.EFFECT_COLUMNS
            }
            values["sleep_ms"] = _sleep_ms(record, findings)
            effects.append(declarations.Effect(name.name, **values, span=name.span))  # type: ignore[arg-type]  # by form
    return tuple(effects)


#: The columns of Effects that say how a policy is called, and so mean nothing for an effect that needs none.
_OF_POLICIES = ("kind", "in doubt", "time limit", "retries", "on failure", "together")


def _sleep_ms(record: TableRecord, findings: Findings) -> int | None:
    """Read the options of an effect that is a sleep; None for any other effect, which has none."""
    kind, options = record["is"], record["options"]
    is_sleep = kind.text.strip("`").strip() == "sleep"
    if not is_sleep:
        if options.text and not kind.text:
            hint = "write 'sleep' in the column 'is', or clear this cell"
            findings.error(
                "DSA107", "an effect with nothing in the column 'is' cannot have options", options.span(), hint
            )
        return None
    for column in _OF_POLICIES:
        if record[column].text and record[column].text != "internal":
            message = f"the column '{column}' must be empty for a sleep, which does nothing but wait"
            findings.error("DSA107", message, record[column].span(), "empty this cell")
    before, durations = findings.count, dict(cells.pair_cells(options, ";", findings))
    for name, value in durations.items():
        if name != "for":
            message = f"a sleep has no option '{name}'"
            findings.error("DSA107", message, value.span(), closest(name, ("for",), "its one option is: for = 24h"))
    if "for" in durations:
        return cells.duration_ms(durations["for"], findings)
    if findings.count == before:
        span = options.span() if options.text else kind.span()
        findings.error("DSA107", "a sleep needs the option 'for'", span, "in the column 'options', write: for = 24h")
    return None


def _effect_value(
    cell: Cell,
    column: declarations.EffectColumn,
    parameters: tuple[declarations.RunParameter, ...],
    findings: Findings,
) -> str | int | expr.Expr | None:
    match column.form:
        case "choice":
            return cells.one_of(cell, column.choices, "", findings)
        case "duration":
            return cells.duration_ms(cell, findings)
        case "number":
            return cells.whole_number(cell, findings, column.least)
        case "expression":
            return _number_outstanding(cell, parameters, findings) if cell.text else None
        case "options":
            return None  # read together with the cell of `is`


def _number_outstanding(
    cell: Cell, parameters: tuple[declarations.RunParameter, ...], findings: Findings
) -> expr.Expr | None:
    """Read how many of an effect may be outstanding: an expression over parameters, at least 1."""
    node = cells.parse_cell(cell, ExpressionParser.sum, findings, "DSA108")
    if node is None:
        return None
    scope = namespace.Scope("this number", parameters={each.name: each.domain for each in parameters})
    before = findings.count
    value = namespace.Resolver(scope, findings, cell.span()).expect(node, "int")
    for values in _valuations(parameters) if findings.count == before else ():
        number = expr.evaluate(value, values)
        if isinstance(number, int) and number < 1:
            message = f"this number must be at least 1, but it is {number}" + _at(values)
            findings.error("DSA205", message, cell.span(), "leave the cell empty to allow one at a time")
            break
    return value if findings.count == before else None


def states(records: list[TableRecord], findings: Findings) -> tuple[declarations.State, ...]:
    """Read the States table as written; `dsa.lang.document_reader` adds the parents that it does not list."""
    states = []
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["state"], "a state", findings)
        kind, end = cells.state_kind(record["kind"], findings)
        if name is not None:
            states.append(declarations.State(name.name, kind, end, span=name.span))
    return tuple(states)


def from_outside(names: list[tuple[str, Span]]) -> tuple[declarations.Event, ...]:
    """Return the events of a document without an Events table: all are from outside."""
    first = dict(reversed(names))
    in_order = dict.fromkeys(name for name, _ in names)
    return tuple(declarations.Event(name, declarations.OUTSIDE, span=first[name]) for name in in_order)


def with_places(
    effects: tuple[declarations.Effect, ...], names: list[tuple[str, Span]]
) -> tuple[declarations.Effect, ...]:
    """Return the effects of a document without an Effects table, in order of first mention."""
    listed_names = {effect.name for effect in effects}
    more = {name: declarations.Effect(name, span=span) for name, span in reversed(names) if name not in listed_names}
    return (*effects, *(more[name] for name in dict.fromkeys(name for name, _ in names) if name in more))


PARTS = ("system", "role", "constraints", "task", "feedback")
#: `{name}` is a placeholder; `{{` and `}}` are braces.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")


def read_cases(section: Section, findings: Findings) -> Cases:
    """Read one Cases section."""
    if not section.tables:
        hint = "write a table with the columns call and expected"
        findings.error("DSA102", "this section has no table", section.heading.span(), hint)
    results = [_case(record, findings) for record in records(section, COLUMNS["cases"], findings)]
    cases = tuple(case for case in results if case is not None)
    return Cases(section.name, cases, span=section.heading.span())


def _case(record: TableRecord, findings: Findings) -> Case | None:
    call, expected = record["call"].plain, record["expected"].plain
    tree = _python(call)
    if not isinstance(tree, ast.Call):
        hint = "write the call in Python, for example add(2, 3)"
        findings.error("DSA107", f"'{call}' is not a call", record["call"].span(), hint)
        return None
    try:
        with _quiet():
            ast.literal_eval(expected)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        hint = "write a Python literal, such as 5, 'text', [1, 2], None"
        findings.error("DSA107", f"'{expected}' is not a literal value", record["expected"].span(), hint)
        return None
    return Case(call, expected, span=record.span)


@contextmanager
def _quiet() -> Iterator[None]:
    r"""Suppress Python's warnings about text that people wrote, such as `'\d'`, even where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _python(text: str) -> ast.expr | None:
    try:
        with _quiet():
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def read_prompt(section: Section, placeholders: tuple[str, ...], events: Collection[str], findings: Findings) -> Prompt:
    """Read one Prompt section: third-level headings, each followed by one fence. `placeholders` are allowed beside the data of `events`."""
    parts: dict[str, str] = {}
    before = findings.count
    for place, block in enumerate(section.blocks):
        if not isinstance(block, Heading):
            continue
        part = block.title.text.strip().lower()
        following = section.blocks[place + 1] if place + 1 < len(section.blocks) else None
        if part not in PARTS:
            message = f"a prompt has no part '{block.title.text}'"
            findings.error("DSA112", message, block.title.span(), closest(part, PARTS))
        elif part in parts:
            findings.error("DSA112", f"the part '{block.title.text}' occurs twice", block.title.span())
        elif not isinstance(following, Fence):
            hint = "put the text of this part between two lines of ```"
            findings.error(
                "DSA112",
                f"the heading '{block.title.text}' is not followed by a fenced block",
                block.title.span(),
                hint,
            )
        else:
            parts[part] = following.content.removesuffix("\n")
            also = ("feedback",) if part == "feedback" else ()
            for line in following.body:
                require_placeholders(line, (*placeholders, *also), events, findings)
    if not any(parts.values()) and findings.count == before:
        hint = "write at least one of the headings ### System, ### Role, ### Constraints, ### Task, ### Feedback, and below each of them one block between ``` and ```"
        findings.error("DSA112", "this prompt has no parts", section.heading.span(), hint)
    return Prompt(section.name, **parts, span=section.heading.span())


def require_placeholders(
    cell: Cell, placeholders: tuple[str, ...], events: Collection[str], findings: Findings
) -> None:
    """Report the placeholders of a line or a cell that nothing fills in."""
    for match in _PLACEHOLDER.finditer(cell.text):
        name = match[1]
        if name is None or name in placeholders:
            continue
        fault = read_reference(name, events)
        if isinstance(fault, ReferenceFault):
            suggestion = _what_fills(fault.about, placeholders, events) if fault.about else fault.hint
            suggestion = f"write '{{{name.strip()}}}'" if name.strip() in {*placeholders, *events} else suggestion
            message = f"nothing fills in the placeholder '{{{name}}}'"
            span = cell.span(match.start(), match.end())
            joint = " For" if suggestion.endswith("?") else "; for"
            hint = f"{suggestion}{joint} a brace in the text, write '{{{{' or '}}}}'"
            findings.error("DSA112", message, span, hint, about=fault.about)


def _what_fills(name: str, placeholders: tuple[str, ...], events: Collection[str]) -> str:
    """Return a hint for a wrong placeholder: the most similar name, else the known ones."""
    if nearest(name, {*placeholders, *events}) is not None:
        return closest(name, {*placeholders, *events})
    return f"{closest(name, placeholders)}; or use the data of an event by its name: {some_of(sorted(events))}"


def read_constraints(section: Section, lines: tuple[str, ...]) -> str:
    """Return the text of the Constraints section, as written."""
    text = "\n".join(lines[section.first : section.last]).rstrip()
    return text[len(text) - len(text.lstrip("\n")) :]


#: The event that the parts of a step's guard judge.
_JUDGED_IN_STEPS = "verdict"


def with_uses(
    guards: Sequence[Guard],
    records: Sequence[TableRecord],
    names: Names,
    taken: Collection[str],
    findings: Findings,
) -> tuple[Guard, ...]:
    """Return the guards with the event data that they use. `taken` are the names of artifacts that steps use.

    A guard of events with an index may use it, by the name of the family, and data of events with it.
    """
    rows = {record["guard"].plain: record["uses"] for record in reversed(records)}
    judged_events = {guard.name: guard.judges or (_JUDGED_IN_STEPS,) for guard in guards}
    uses = {
        name: _references(cell, names, taken, judged_events.get(name, ()), findings)
        for name, cell in rows.items()
        if cell.text
    }
    return tuple(attrs.evolve(guard, uses=uses.get(guard.name, ())) for guard in guards)


def _references(
    cell: Cell, names: Names, taken: Collection[str], judged_events: Collection[str], findings: Findings
) -> tuple[tuple[str, Reference], ...]:
    read: list[tuple[str, Reference]] = []
    families = _families_of(judged_events, names)
    events = {*names.events, *_with_families(names.events, families)}
    for name, words in cells.pair_cells(cell, ";", findings):
        if not name.isidentifier():
            findings.error("DSA107", f"'{name}' cannot be an argument of a guard", cell.span(), "use no dots")
        if name in taken:
            message = f"'{name}' is already the name of an artifact that a step uses"
            findings.error("DSA202", message, cell.span(), "give the data another name")
        if words.text.strip() in families:
            read.append((name, Reference(words.text.strip())))
            continue
        reference = read_reference(words.text, events)
        if isinstance(reference, ReferenceFault):
            code = "DSA201" if reference.about else "DSA107"
            findings.error(code, reference.message, words.span(), reference.hint, about=reference.about)
            continue
        if (
            reference.since in {*judged_events, *_with_families(judged_events, families)}
            and reference.event != reference.since
        ):
            message = f"'{reference}' is never available: the guard judges {reference.since}, and no event is newer"
            findings.error("DSA107", message, words.span(), "after 'since', name an event that comes earlier")
        read.append((name, reference))
    return tuple(read)


def read_prompts(
    sections: Iterable[Section], steps: Iterable[StepRow], names: Names, findings: Findings
) -> tuple[Prompt, ...]:
    """Read the Prompt sections: a placeholder is the specification, an artifact that the step uses, a family, or event data."""
    usual = _placeholder_names(steps)
    return tuple(
        read_prompt(
            section,
            (*usual.get(section.name, (SPECIFICATION,)), *(names.families if section.name in names.members else ())),
            {*names.events, *_with_families(names.events, names.families)},
            findings,
        )
        for section in sections
    )


def _with_families(events: Iterable[str], families: Families) -> Iterator[str]:
    """Yield the names of events with a family for their index: that of the effect of a prompt, or of the event that a guard judges."""
    for event in events:
        base, _, rest = event.partition("[")
        index, _, ending = rest.partition("]")
        yield from (
            f"{base}[{family}]{ending}" for family, indices in families.items() if index and index in map(str, indices)
        )


def _families_of(events: Collection[str], names: Names) -> Families:
    """Return the families that have the index of each of these events."""
    indices = [index_in(event) for event in events]
    return {
        family: values
        for family, values in names.families.items()
        if indices and {*indices} <= {str(value) for value in values}
    }


def require_tasks_filled(
    records: Iterable[TableRecord], steps: Iterable[StepRow], events: Collection[str], findings: Findings
) -> None:
    """Report the placeholders in the column `task` of Steps that nothing fills in."""
    names = _placeholder_names(steps)
    for record in records:
        require_placeholders(record["task"], names.get(record["step"].plain, (SPECIFICATION,)), events, findings)


def _placeholder_names(steps: Iterable[StepRow]) -> Mapping[str, tuple[str, ...]]:
    return {step.name: (SPECIFICATION, *(name for name, _ in step.uses)) for step in steps}
