"""The document reader: it sorts the sections of a text, reads each, and puts the machine together.

`read_machine` returns a `DocumentReading`: every finding, and the machine, or None if there is an error. Every stage works with whatever the earlier ones
could read, so one reading reports the faults of the whole document.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs

from dsa.declarations import (
    EFFECT_COLUMNS,
    STAY,
    Effect,
    Family,
    Instance,
    Property,
    Scenario,
    SpecDeclaration,
    State,
    StepRow,
    Transition,
    Variable,
    WrittenTable,
    without_index,
)
from dsa.errors import Diagnostic, ParameterError, Span
from dsa.immutable import without_collector
from dsa.lang import cells, declaration_tables, steps_table, transition_table
from dsa.lang.cells import COLUMNS, NAMED_SECTIONS, PARTS, SECTIONS, TableRecord, records
from dsa.lang.claim_sections import looks_like_property, read_property, read_scenario
from dsa.lang.declaration_tables import read_cases, read_constraints, read_prompts, require_tasks_filled, with_uses
from dsa.lang.expression_parser import Findings, canonical_spacing
from dsa.lang.markdown import Bullet, Cell, MarkdownDocument, ParagraphLine, Section, read
from dsa.lang.namespace import Declarations, Names, Resolver, require_references, require_unique
from dsa.lang.steps_table import StepLines, Steps, read_steps
from dsa.machine import Machine
from dsa.text import closest

#: The longest document in characters, and the widest table. Sixty thousand states and forty thousand rows take some ten seconds and 460 MB.
MOST_CHARACTERS, MOST_COLUMNS = 2_000_000, 200
_FIRST_LINE = 200  # characters of the first line that are shown

MACHINE_LINE, GOAL_LINE, RESULT_LINE = "Machine:", "Goal:", "Result:"
#: Beginnings of lines that seem to say where a machine starts.
_START_LINES = ("initial:", "Initial:", "initial in", "Initial in")
_SEVERAL_STARTS = "if runs must start in different states, declare a parameter, and write a row from the initial state to each of the other states, with a condition on the parameter"
_WITH_TRANSITIONS = ("variables", "events", "states", "transitions")
#: The sections whose rows may name families, with those whose rows stand for others.
_WITH_FAMILIES = ("variables", "events", "guards", "effects", "transitions")
#: The columns in canonical order where that is not the order of `COLUMNS`.
_ORDER = {
    "variables": ("variable", "scope", "domain", "initial"),
    "transitions": ("source", "event", "if", "update", "effects", "target"),
}
_HEADING_WORDS = ("cases: NAME", "prompt: NAME", "scenario: NAME")


@attrs.frozen
class DocumentReading:
    """The result of reading a document. `machine` is None exactly if a diagnostic is an error; `name` is that of the heading."""

    machine: Machine | None
    diagnostics: tuple[Diagnostic, ...]
    name: str = ""


@attrs.frozen
class Parts:
    """The sections of a document by kind."""

    document: MarkdownDocument
    sections: tuple[Section, ...]
    families: tuple[Family, ...] = ()

    def of(self, kind: str) -> tuple[Section, ...]:
        """Return the sections of a kind, in order."""
        return tuple(section for section in self.sections if section.kind == kind)

    def line(self, word: str, *kinds: str) -> Cell | None:
        """Return the rest of a paragraph line that starts with a word, before the sections or in those of some kinds; else None."""
        inside = (block for section in self.sections if section.kind in kinds for block in section.blocks)
        for block in (*self.document.preamble, *inside):
            if isinstance(block, ParagraphLine) and block.text.text.startswith(word):
                text = block.text.text.removeprefix(word)
                indent = len(text) - len(text.lstrip())
                return attrs.evolve(block.text, text=text.strip(), column=block.text.column + len(word) + indent)
        return None


def _too_large(text: str, path: str) -> DocumentReading | None:
    """Return the one finding about a document that is too long: it would take minutes, and gigabytes."""
    if len(text) <= MOST_CHARACTERS:
        return None
    message = f"the document has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}"
    line = text[:_FIRST_LINE].partition("\n")[0]
    hint = "use families (`x[f]`) for parts that repeat, and keep data out of the document"
    return DocumentReading(None, (Diagnostic("DSA114", "error", message, Span(path, 1, 1, len(line) + 1, line), hint),))


def _too_wide(document: MarkdownDocument) -> DocumentReading | None:
    """Return the one finding about a table with too many columns."""
    for table in (table for section in document.sections for table in section.tables):
        if len(table.header.cells) > MOST_COLUMNS:
            first = table.header.cells[MOST_COLUMNS]
            message = f"this table has {len(table.header.cells):,} columns; the limit is {MOST_COLUMNS:,}"
            hint = "no section has that many columns; write each entry as a row of its own"
            return DocumentReading(None, (Diagnostic("DSA114", "error", message, first.span(), hint),))
    return None


_AS_WRITTEN: Mapping[str, str] = MappingProxyType({})


def read_machine(text: str, path: str = "<text>", indices: Mapping[str, str] = _AS_WRITTEN) -> DocumentReading:
    """Read a machine document. `indices` replaces the index of families, by their names; ParameterError for a name that is not one."""
    if (refusal := _too_large(text, path) or _too_wide(document := read(text, path))) is not None:
        return refusal
    with without_collector():
        return _machine_in(document, indices)


def _machine_in(document: MarkdownDocument, indices: Mapping[str, str]) -> DocumentReading:
    findings = Findings()
    parts = _with_families(sort_sections(document, findings), indices, findings)
    name = _title(parts.document, findings)
    if (reference := parts.line(MACHINE_LINE)) is not None:
        hint = "a spec adds properties and scenarios to the machine that it names; load the spec from its file"
        findings.error("DSA111", "this document is a spec, not a machine", reference.span(), hint)
        return DocumentReading(None, findings.diagnostics)
    steps = _steps(parts, findings)
    declarations, rows = _read_declarations(parts, steps, findings)
    require_unique(declarations, findings)
    names = declarations.names()
    transitions = steps_table.expand(steps).rows if steps else transition_table.resolve_rows(rows, names, findings)
    targets = [] if steps else _targets(transitions)
    at = parts.of("states")[0].heading.span() if parts.of("states") else parts.document.start
    initial = _initial_state(declarations.states, targets, at, findings) if declarations.states else ""
    _require_no_start_line(parts, declarations.states, findings)
    draft = Machine(
        name=name,
        transitions=transitions,
        states=_with_ends(declarations.states, names, findings),
        initial=initial,
        parameters=declarations.parameters,
        variables=declarations.variables,
        events=declarations.events,
        effects=declarations.effects,
        guards=declarations.guards,
        generators=declaration_tables.generators(_records(parts, "generators", findings), findings),
        cases=tuple(read_cases(section, findings) for section in parts.of("cases")),
        constraints="\n\n".join(read_constraints(s, parts.document.lines) for s in parts.of("constraints")),
        span=parts.document.titles[0].span() if parts.document.titles else None,
    )
    if steps:
        draft = attrs.evolve(draft, steps=steps.steps, goal=steps.goal, result=steps.result)
    require_tasks_filled(_records(parts, "steps", Findings()), draft.steps, names.events, findings)
    draft = attrs.evolve(draft, prompts=read_prompts(parts.of("prompt"), draft.steps, names, findings))
    _require_owners(parts, draft, findings)
    properties, scenarios = claims(parts, names, draft, findings)
    machine = attrs.evolve(draft, properties=properties, scenarios=scenarios)
    return DocumentReading(None if findings.any_error else _as_written(parts, machine), findings.diagnostics, name)


def _with_families(parts: Parts, indices: Mapping[str, str], findings: Findings) -> Parts:
    """Read the section Families, and return the parts with it."""
    sections = parts.of("families")
    read = declaration_tables.families(_required_records(parts, "families", findings), indices, findings)
    unknown = declaration_tables.unknown_family(read, indices)
    if unknown is not None and not findings.any_error:
        raise ParameterError(f"'{unknown[0]}' is not a family of the document; {unknown[1]}")
    if sections and parts.of("steps"):
        hint = "steps cannot use families, so write rows in a section Transitions instead"
        findings.error(
            "DSA111",
            "a document with the section 'Steps' must not have the section 'Families'",
            sections[0].heading.span(),
            hint,
        )
        return parts
    findings.has_families = bool(read)
    return attrs.evolve(parts, families=read)


def _as_written(parts: Parts, machine: Machine) -> Machine:
    """Return the machine of a document with families with the tables and the properties as they were written."""
    if not parts.families:
        return machine
    declarations: dict[str, tuple[object, ...]] = {kind: getattr(machine, kind) for kind in _WITH_FAMILIES}
    tables = [
        _written_table(kind, _written_records(parts, kind), _ORDER.get(kind, COLUMNS[kind].all), declarations[kind])
        for kind in _WITH_FAMILIES
        if parts.of(kind)
    ]
    bullets = [
        block.text for section in parts.of("properties") for block in section.blocks if isinstance(block, Bullet)
    ]
    claims = WrittenTable("properties", (), tuple((canonical_spacing(text),) for text in bullets), machine.properties)
    return attrs.evolve(machine, families=parts.families, source_tables=(*tables, claims) if bullets else tuple(tables))


def sort_sections(document: MarkdownDocument, findings: Findings) -> Parts:
    """Return the sections of the language; warn of other headings that look like one."""
    sections = []
    for section in document.sections:
        if section.kind not in SECTIONS:
            _warn_unknown(document, section, findings)
            continue
        if section.kind in NAMED_SECTIONS and not section.name:
            hint = f"write '## {section.heading.text.strip()}: NAME'"
            findings.error(
                "DSA102", f"the section '{section.kind.capitalize()}' needs a name", section.heading.span(), hint
            )
            continue
        sections.append(section)
    return Parts(document, tuple(sections))


def _warn_unknown(document: MarkdownDocument, section: Section, findings: Findings) -> None:
    bullets = (block.text for block in section.blocks if isinstance(block, Bullet))
    if section.tables or any(looks_like_property(bullet) for bullet in bullets):
        hint = closest(section.kind, SECTIONS)
        message = f"'{section.heading.text}' is not a section of the language, so it is not read"
        findings.warning("DSA110", message, section.heading.span(), hint)
        findings.doubt("\n".join(document.lines[section.first : section.last]))


def _title(document: MarkdownDocument, findings: Findings) -> str:
    if not document.titles:
        hint = "start with a first-level heading: # name_of_the_machine"
        findings.error("DSA101", "the document has no name", document.start, hint)
        return "unnamed"
    for extra in document.titles[1:]:
        findings.error("DSA101", "the document already has a heading with one '#'", extra.span(), "use ## for sections")
    probe = Findings()
    name = cells.declared_name(document.titles[0], "a machine", probe)
    for fault in probe.diagnostics:
        findings.error("DSA101", fault.message, fault.span, fault.hint)
    return name.name if name else "unnamed"


def _records(parts: Parts, kind: str, findings: Findings, *, as_parts: bool = False) -> list[TableRecord]:
    """Return the rows of a section; a row with families is there once for each row that it stands for."""
    rows = _written_rows(parts, kind, findings, as_parts=as_parts)
    return cells.with_instances(kind, rows, cells.indices_of(parts.families), findings) if parts.families else rows


def _written_records(parts: Parts, kind: str) -> list[TableRecord]:
    return _written_rows(parts, kind, Findings())


def _written_rows(parts: Parts, kind: str, findings: Findings, *, as_parts: bool = False) -> list[TableRecord]:
    columns = PARTS if as_parts else COLUMNS[kind]
    rows = []
    for section in parts.of(kind):
        if not section.tables and kind != "steps":
            hint = _no_table_hint(section)
            findings.error("DSA102", f"the section '{kind.capitalize()}' has no table", section.heading.span(), hint)
            findings.doubt("\n".join(parts.document.lines[section.first : section.last]))
        rows += records(section, columns, findings)
    return rows


def _required_records(parts: Parts, kind: str, findings: Findings) -> list[TableRecord]:
    """Return the rows of a section that declares all of a kind if it is there; report it if it has none."""
    before = findings.count
    rows = _records(parts, kind, findings)
    if parts.of(kind) and not rows and findings.count == before:
        hint = f"list all {kind} here, or delete this section and let the rows declare them"
        findings.error(
            "DSA102", f"the section '{kind.capitalize()}' has no rows", parts.of(kind)[0].heading.span(), hint
        )
        findings.doubt_all()
    return rows


def _no_table_hint(section: Section) -> str:
    if any(isinstance(block, ParagraphLine) and "|" in block.text.text for block in section.blocks):
        return "write a row of dashes below the column names, with a cell for each column, such as | --- | --- |"
    return f"write a table with the columns {', '.join(COLUMNS[section.kind].all)}"


def _steps(parts: Parts, findings: Findings) -> Steps | None:
    """Read the Steps table, if this is a Steps document."""
    sections = parts.of("steps")
    if not sections:
        if not parts.of("transitions"):
            hint = "write a section '## Transitions' (or '## Steps') with a table"
            findings.error("DSA102", "the document has no transitions", parts.document.start, hint)
            findings.doubt_all()
        return None
    for kind in _WITH_TRANSITIONS:
        for section in parts.of(kind):
            message = f"a document with the section 'Steps' must not have the section '{kind.capitalize()}', because the steps already define it"
            findings.error(
                "DSA111",
                message,
                section.heading.span(),
                "delete this section; 'dsa expand' prints the sections that the steps produce",
            )
            findings.doubt("\n".join(parts.document.lines[section.first : section.last]))
    with_cases = frozenset(section.name for section in parts.of("cases"))
    records_of_steps, before = _records(parts, "steps", findings), findings.count
    lines = StepLines(parts.line(GOAL_LINE, "steps"), parts.line(RESULT_LINE, "steps"))
    plan = read_steps(records_of_steps, lines, with_cases, findings)
    if not plan.steps:
        if not findings.any_error:
            hint = "write a table with a column 'step', and a row for each step"
            findings.error("DSA102", "the section 'Steps' has no step", sections[0].heading.span(), hint)
        findings.doubt_all()
        return None
    for step in steps_table.unmet_requirements(plan) if findings.count == before else ():
        if step.span is not None:
            message = f"step '{step.name}' can never start, because it requires a step that can never pass or that waits for '{step.name}'"
            findings.error("DSA214", message, step.span)
    return plan


def _read_declarations(
    parts: Parts, steps: Steps | None, findings: Findings
) -> tuple[Declarations, list[transition_table.WrittenRow]]:
    parameters = declaration_tables.parameters(_records(parts, "parameters", findings), findings)
    guard_rows = _records(parts, "guards", findings, as_parts=steps is not None)
    guards, judged_events = declaration_tables.guards(guard_rows, cells.indices_of(parts.families), findings)
    effects = declaration_tables.effects(_records(parts, "effects", findings), parameters, findings)
    if steps:
        expansion = steps_table.expand(steps)
        emissions = [(item.effect, row.span) for row in expansion.rows for item in row.effects]
        _require_generated(effects, expansion.rows, findings)
        effects = declaration_tables.with_places(effects, [(name, span) for name, span in emissions if name and span])
        # Users cannot add rows for failures to generated ones.
        effects = tuple(attrs.evolve(effect, on_failure="stop") for effect in effects)
        all_parameters = steps_table.with_parameters(expansion.parameters, parameters)
        declarations = Declarations(
            all_parameters,
            expansion.variables,
            expansion.events,
            (*expansion.guards, *guards),
            effects,
            expansion.states,
        )
        return _with_uses(declarations, guard_rows, steps.steps, findings), []
    before = findings.count
    rows = transition_table.read_rows(_records(parts, "transitions", findings), findings)
    if not rows and parts.of("transitions") and findings.count == before:
        findings.error("DSA102", "the section 'Transitions' has no rows", parts.of("transitions")[0].heading.span())
    variables = declaration_tables.variables(_records(parts, "variables", findings), parameters, findings)
    events, origins = declaration_tables.events(_required_records(parts, "events", findings), findings)
    if not parts.of("events"):
        events = declaration_tables.from_outside(transition_table.mentioned_events(rows))
    if not parts.of("effects"):
        effects = declaration_tables.with_places(effects, transition_table.mentioned_effects(rows))
    states = _with_parents(declaration_tables.states(_required_records(parts, "states", findings), findings))
    if not parts.of("states"):
        states = _states_from_rows(transition_table.mentioned_states(rows), transition_table.first_source(rows))
    declarations = Declarations(parameters, variables, events, guards, effects, states, parts.families)
    require_references(declarations, origins, judged_events, findings, effects_listed=bool(parts.of("effects")))
    return _with_uses(declarations, guard_rows, (), findings), rows


def _with_uses(
    declarations: Declarations, guard_rows: list[TableRecord], steps: tuple[StepRow, ...], findings: Findings
) -> Declarations:
    taken = {name for step in steps for name, _ in step.uses}
    guards = with_uses(declarations.guards, guard_rows, declarations.names(), taken, findings)
    return attrs.evolve(declarations, guards=guards)


def _require_generated(effects: tuple[Effect, ...], rows: tuple[Transition, ...], findings: Findings) -> None:
    """Report effects in the Effects table of a Steps document that its rows do not emit."""
    names = {item.effect for row in rows for item in row.effects if item.effect}
    for effect in effects:
        if effect.name not in names and effect.span is not None:
            message = f"the section 'Steps' does not produce an effect '{effect.name}'"
            findings.error("DSA201", message, effect.span, closest(effect.name, names), about=effect.name)


def _targets(transitions: tuple[Transition, ...]) -> list[tuple[str, Span]]:
    pairs = ((row.target, row.span_of("target")) for row in transitions if row.target != STAY)
    return [(target, span) for target, span in pairs if span is not None]


def _require_owners(parts: Parts, machine: Machine, findings: Findings) -> None:
    """Report Cases and Prompts whose name is not declared, and second ones for the same name."""
    steps = {step.name for step in machine.steps}
    owners = {
        "cases": (steps | {guard.name for guard in machine.guards}, "a step or a guard"),
        "prompt": (steps | {without_index(effect.name) for effect in machine.effects}, "a step or an effect"),
    }
    for kind, (names, words) in owners.items():
        names_so_far = set()
        for section in parts.of(kind):
            span = section.heading.span()
            if section.name not in names:
                message = f"'{section.name}' in the heading '{kind.capitalize()}: {section.name}' is not {words}"
                findings.error("DSA201", message, span, closest(section.name, names), about=section.name)
            elif section.name in names_so_far:
                findings.error(
                    "DSA202",
                    f"the section '{kind.capitalize()}: {section.name}' occurs twice",
                    span,
                    "keep one of the two sections, and delete the other",
                )
            names_so_far.add(section.name)


def claims(
    parts: Parts, names: Names, machine: Machine, findings: Findings
) -> tuple[tuple[Property, ...], tuple[Scenario, ...]]:
    """Read the properties and the scenarios of a document, a machine's own or a spec's."""
    scope = names.moments("a property")
    verdicts = (f"{guard}.{outcome}" for guard, outcomes in names.guards.items() for outcome in outcomes)
    fair = [*names.effects, *names.events, *verdicts]

    def require_named(name: cells.WrittenName, what: str) -> None:
        choices = fair if what == "fair" else [*names.effects]
        if name.name not in choices:
            message = f"'{name.name}' is not an {'event, effect or verdict' if what == 'fair' else 'effect'}"
            findings.error("DSA201", message, name.span, closest(name.name, choices), about=name.name)
        elif what == "never answers" and not names.effects[name.name]:
            hint = f"an effect without answers is complete when the next effect begins; write instead: even if {name.name} fails"
            findings.error("DSA204", f"'{name.name}' has no answers", name.span, hint)

    blocks = [block for section in parts.of("properties") for block in section.blocks]
    for block in blocks:
        if isinstance(block, ParagraphLine) and looks_like_property(block.text):
            message = "this property is not a bullet, so it is not read"
            findings.warning("DSA110", message, block.text.span(), "begin its line with '- '")
    properties = [
        read_property(text, instance, scope, names.members, require_named, findings)
        for block in blocks
        if isinstance(block, Bullet)
        for instance, text in _claims_of(block.text, names)
    ]
    scenarios = [read_scenario(section, names, machine, findings) for section in parts.of("scenario")]
    return tuple(item for item in properties if item is not None), tuple(scenarios)


def _claims_of(text: Cell, names: Names) -> Iterable[tuple[Instance, Cell]]:
    """Return the properties that one as written stands for, each with the indices of the families that are free in it."""
    return cells.each_instance(text, names.families) if names.families else [((), text)]


#: The columns with expressions, or with what is built of them.
_EXPRESSION_COLUMNS = frozenset({"domain", "initial", "at once", "if", "update", "effects"})
_LISTS = frozenset({"variable", "event", "effect", "from", "judges", "source", "verdicts"})


def _canonical(cell: Cell, column: str) -> str:
    """Return the text of a cell in canonical spacing."""
    if column in _EXPRESSION_COLUMNS:
        return canonical_spacing(cell)
    if column in _LISTS:
        return ", ".join(
            _INDEX_SPACE.sub(r"\1", piece.strip(" \t`")) for piece in cell.text.split(",") if piece.strip()
        )
    return cell.plain


_INDEX_SPACE = re.compile(r"[ \t]*([][+-])[ \t]*")


def _written_table(
    section: str, records: Sequence[TableRecord], columns: Sequence[str], declarations: Sequence[object]
) -> WrittenTable:
    """Return the rows of a section as written, in canonical spacing, with the declarations that they stand for."""
    must_be_there = COLUMNS[section].nonempty + COLUMNS[section].mandatory
    names = [column for column in columns if column in must_be_there or any(record[column].text for record in records)]
    rows = tuple(tuple(_canonical(record[column], column) for column in names) for record in records)
    return WrittenTable(section, tuple(names), rows, tuple(declarations))


def _with_parents(states: Iterable[State]) -> tuple[State, ...]:
    """Add the parents that dotted names imply, each before its first child."""
    own = tuple(states)
    names = {state.name for state in own}
    result: list[State] = []
    for state in own:
        parts = state.name.split(".")
        for length in range(1, len(parts)):
            parent = ".".join(parts[:length])
            if parent not in names:
                names.add(parent)
                result.append(State(parent, span=state.span))
        result.append(state)
    return tuple(result)


def _with_ends(states: tuple[State, ...], names: Names, findings: Findings) -> tuple[State, ...]:
    """Resolve the end conditions of leaves."""
    parents, result = {state.parent for state in states}, []
    for state in states:
        if state.end is None or state.span is None:
            result.append(state)
            continue
        if state.name in parents:
            message = f"state '{state.name}' is an end, but has child states"
            findings.error(
                "DSA206",
                message,
                state.span,
                f"do not mark '{state.name}' as an end; mark the child states in which a run may end",
            )
        resolver = Resolver(attrs.evolve(names.updates, place="an end"), findings, state.span)
        result.append(attrs.evolve(state, end=resolver.condition(state.end)))
    return tuple(result)


def _states_from_rows(mentions: list[tuple[str, Span]], initial: str) -> tuple[State, ...]:
    """Return the states of a document without a States table: those that its rows mention. `initial` is the initial one."""
    names = dict.fromkeys(name for name, _ in mentions)
    spans = dict(reversed(mentions))
    return _with_parents(State(name, "initial" if name == initial else "", span=spans[name]) for name in names)


def _initial_state(states: tuple[State, ...], targets: Iterable[tuple[str, Span]], at: Span, findings: Findings) -> str:
    """Return the machine's initial state, and report parents that are entered without one initial child.

    The initial state is the top-level state marked initial; when no top-level state is marked and exactly one state
    is, it is that one.
    """
    initials = [state for state in states if state.kind == "initial"]
    _require_leaves_final(states, findings)
    for state in initials:
        twins = [other for other in initials if other.parent == state.parent]
        if len(twins) > 1 and state is not twins[0]:
            where = f"of '{state.parent}'" if state.parent else "of the machine"
            message = f"'{twins[0].name}' and '{state.name}' are both marked as the initial state {where}"
            hint = "leave the kind 'initial' on one of them only" + ("" if state.parent else f"; {_SEVERAL_STARTS}")
            findings.error("DSA206", message, state.span or at, hint)
    top = [state for state in initials if state.parent is None] or initials
    if not initials:
        hint = "give one state the kind 'initial' in the States table"
        findings.error("DSA206", "no state is initial", at, hint, about=_all_names(states))
        return states[0].name if states else ""
    if top[0].parent is not None and len({state.parent for state in top}) > 1:
        message = "no top-level state is initial, but several nested states are"
        findings.error("DSA206", message, at, "mark the top-level state that the machine starts in")
    _require_entries(states, [(top[0].name, top[0].span or at), *targets], findings)
    return top[0].name


def _require_no_start_line(parts: Parts, states: Iterable[State], findings: Findings) -> None:
    """Report a line that seems to name initial states, as prose is ignored."""
    names = {state.name for state in states}
    for word in _START_LINES:
        line = parts.line(word, *_WITH_TRANSITIONS)
        if line is not None and names.issuperset(name.strip(" `") for name in line.text.strip(" {}.").split(",")):
            hint = f"give one state the kind 'initial'; {_SEVERAL_STARTS}"
            findings.error(
                "DSA206",
                f"'{word} {line.text.strip()}' is not part of the language: the States table says where a machine starts",
                line.span(),
                hint,
            )


def _require_leaves_final(states: tuple[State, ...], findings: Findings) -> None:
    parents = {state.parent for state in states}
    for state in states:
        if state.kind == "final" and state.name in parents and state.span is not None:
            message = f"state '{state.name}' is final, but has child states"
            findings.error(
                "DSA206",
                message,
                state.span,
                f"remove the kind 'final' from '{state.name}', and give it to the child states in which a run may end",
            )


def _require_entries(states: tuple[State, ...], targets: Iterable[tuple[str, Span]], findings: Findings) -> None:
    finals = {state.name for state in states if state.kind == "final"}  # reported already
    parents = {state.parent for state in states} - finals
    entries = {state.parent: state.name for state in states if state.kind == "initial"}
    for target, span in targets:
        inner = target
        while inner in parents and inner in entries:
            inner = entries[inner]
        if inner in parents:
            hint = (
                "give one of its children the kind 'initial' in the States table, or write a child as the target here"
            )
            message = f"'{inner}' cannot be a target: it has child states, and none of them is initial"
            children = (state for state in states if state.parent == inner)
            findings.error("DSA206", message, span, hint, about=_all_names(children))


def _all_names(states: Iterable[State]) -> str:
    """Return the names of states as one name for findings: that none is initial may follow from a fault in the row of one."""
    return ".".join(state.name for state in states)


# -- specs ------------------------------------------------------------------------------------------------------------
# Documents that add properties and scenarios to the machine in their line `Machine: PATH`; `dsa.edge.document_files` finds that file.


_SPEC_SECTIONS = frozenset({"properties", "scenario", "effects", "variables"})
#: The fields of effects and variables, by the columns that say them.
_FIELDS = {
    **{column.header: column.field for column in EFFECT_COLUMNS},
    "scope": "scope",
    "domain": "domain",
    "initial": "initial",
}


def machine_of(text: str, path: str = "<text>") -> tuple[str, Span] | None:
    """Return the path in a spec's line `Machine: PATH`, and its place; None if the text is not a spec."""
    if MACHINE_LINE not in text or len(text) > MOST_CHARACTERS:  # avoids reading machines twice
        return None
    line = sort_sections(read(text, path), Findings()).line(MACHINE_LINE)
    return None if line is None else (line.plain.strip(), line.span())


def read_spec(text: str, machine: Machine, path: str = "<text>") -> DocumentReading:
    """Read a spec of a machine: the machine with the spec's properties and scenarios added to its own."""
    if (refusal := _too_large(text, path) or _too_wide(document := read(text, path))) is not None:
        return refusal
    findings = Findings()
    parts = sort_sections(document, findings)
    for section in parts.sections:
        if section.kind in SECTIONS - _SPEC_SECTIONS:
            message = f"a section '{section.kind.capitalize()}' is not allowed in a spec: it belongs in the document of the machine"
            hint = "a spec holds Properties, Scenarios, and statements about Effects and Variables"
            findings.error("DSA111", message, section.heading.span(), hint)
    declarations = Declarations(
        machine.parameters,
        machine.variables,
        machine.events,
        machine.guards,
        machine.effects,
        machine.states,
        machine.families,
    )
    parts = attrs.evolve(parts, families=machine.families)
    properties, scenarios = claims(parts, declarations.names(), machine, findings)
    result = attrs.evolve(
        machine,
        properties=machine.properties + properties,
        scenarios=machine.scenarios + scenarios,
        spec_declarations=machine.spec_declarations + _spec_declarations(parts, machine, findings),
    )
    return DocumentReading(None if findings.any_error else result, findings.diagnostics, machine.name)


def _spec_declarations(parts: Parts, machine: Machine, findings: Findings) -> tuple[SpecDeclaration, ...]:
    """Return a spec's statements about effects and variables of its machine."""
    effects = _required_records(parts, "effects", findings)
    variables = _required_records(parts, "variables", findings)
    return (
        *_declarations_of(
            "effect",
            effects,
            declaration_tables.effects(effects, machine.parameters, findings),
            machine.effects,
            findings,
        ),
        *_declarations_of(
            "variable",
            variables,
            declaration_tables.variables(variables, machine.parameters, findings),
            machine.variables,
            findings,
        ),
    )


def _declarations_of(
    kind: str,
    records: list[TableRecord],
    declarations: Iterable[Effect | Variable],
    machine_declarations: Iterable[Effect | Variable],
    findings: Findings,
) -> Iterator[SpecDeclaration]:
    rows_by_name = {record[kind].plain: record for record in records}
    names = [each.name for each in machine_declarations]
    for each in declarations:
        record = rows_by_name[each.name]
        if each.name not in names:
            findings.error(
                "DSA201",
                f"the machine has no {kind} '{each.name}'",
                record[kind].span(),
                closest(
                    each.name,
                    names,
                    f"the machine declares no {kind}s: delete this row, or declare the name in the machine",
                ),
            )
        columns = tuple((name, field) for name, field in _FIELDS.items() if record[name].text)
        yield SpecDeclaration(each, columns, span=each.span)
