"""The Scenario sections to scenarios: percepts, expected actions, states, values and dependencies.

Takes sections and the declared names; whether a scenario runs as written is asked by `dsa.checks`.
"""

import attrs

from dsa.claims import Refused, Scenario, ScenarioStep
from dsa.declarations import TIMER_PREFIX, Cancel, Emit, Parameter, parse_duration, show_duration
from dsa.durations import spelling_of
from dsa.expr import OUTCOMES, Outcome, Value, concrete, unparse_domain
from dsa.lang import cells
from dsa.lang.columns import COLUMNS, NOTE, Record, records
from dsa.lang.declare import literal
from dsa.lang.exprs import Parser
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell, Line, Section
from dsa.lang.names import Names
from dsa.machine import Machine
from dsa.words import closest

REASONS = ("finished", "late", "early", "invalid_state", "ambiguous", "out_of_domain", "emitted_twice")
_PARAMETERS = "Parameters:"


def read_scenario(section: Section, names: Names, machine: Machine, findings: Findings) -> Scenario:
    """Read one Scenario section of a machine; a row that cannot be read is reported and left out."""
    values: tuple[tuple[str, Value], ...] = ()
    for block in section.blocks:
        if isinstance(block, Line) and block.text.text.startswith(_PARAMETERS):
            more = _parameters(block.text, machine.parameters, findings)
            for name in dict(values).keys() & dict(more).keys():
                findings.error("DSA202", f"'{name}' is given twice", block.text.span())
            values += more
    rows = records(section, COLUMNS["scenario"], findings, frozenset(names.variables))
    if not section.tables:
        hint = "columns: percept, action, state"
        findings.error("DSA102", "this scenario has no table", section.heading.span(), hint)
    found = [_step(record, names, machine, findings) for record in rows]
    done = tuple(step for step in found if step is not None)
    return Scenario(section.name or section.kind, done, values, span=section.heading.span())


def _parameters(cell: Cell, known: tuple[Parameter, ...], findings: Findings) -> tuple[tuple[str, Value], ...]:
    text = cell.text.removeprefix(_PARAMETERS)
    rest = attrs.evolve(cell, text=text.strip(), column=cell.column + len(cell.text) - len(text.lstrip()), escapes=())
    found = []
    for name, cell_of_value in cells.pair_cells(rest, ",;", findings):
        matching = [p for p in known if p.name == name] or [p for p in known if p.name.startswith(f"{name}.")]
        if not matching:
            hint = closest(name, [parameter.name for parameter in known], "the machine has no parameters")
            findings.error("DSA201", f"'{name}' is no parameter", rest.span(), hint, about=name)
            continue
        value = literal(cell_of_value, matching[0].domain, findings)
        outside = [p for p in matching if value is not None and not concrete(p.domain, {}).contains(value)]
        for parameter in outside:
            message = f"{cell_of_value.text} lies outside {parameter.name}'s domain {unparse_domain(parameter.domain)}"
            findings.error("DSA205", message, cell_of_value.span())
        if value is not None and not outside:
            found.append((name, value))
    return tuple(found)


def _step(record: Record, names: Names, machine: Machine, findings: Findings) -> ScenarioStep | None:
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
            hint = closest(step.text, steps, "only the steps of a Steps document have dependencies")
            findings.error("DSA201", f"'{step.text}' is no step", step.span(), hint, about=step.text)
    return tuple((name, step.text) for name, step in pairs)


def _timer(cell: Cell, text: str, machine: Machine, findings: Findings) -> str:
    duration_ms = parse_duration(text.removeprefix(TIMER_PREFIX).strip())
    if not duration_ms:
        findings.error("DSA107", f"'{text}' is no timer", cell.span(), "write after 30s; units: ms, s, m, h, d")
        return ""
    known = spelling_of(machine)
    event = known.get(duration_ms, TIMER_PREFIX + show_duration(duration_ms))
    if duration_ms not in known:
        hint = closest(event, known.values(), "no row has a timer")
        findings.error("DSA201", f"no row has the timer '{event}'", cell.span(), hint, about=TIMER_PREFIX.strip())
    return event


def _percept(
    cell: Cell, names: Names, machine: Machine, findings: Findings
) -> tuple[str, tuple[tuple[str, Outcome], ...]]:
    text = cell.text.strip("`").strip()
    if text.split(" ")[0] == TIMER_PREFIX.strip():
        return _timer(cell, text, machine, findings), ()

    def read(parser: Parser) -> tuple[cells.Written, tuple[cells.Written, ...]]:
        event, verdict = cells.written_name(parser, cell, "an event"), "a verdict such as g.failed"
        return event, cells.separated(parser, ",", lambda: cells.written_name(parser, cell, verdict))

    found = cells.parsed(cell, read, findings, hint="a percept is an event, then verdicts separated by ','")
    if found is None:
        return "", ()
    event, said = found
    if event.name not in names.events:
        names.report_unknown("event", event, findings)
    verdicts = [_verdict(word, event.name, names, findings) for word in said]
    return event.name, tuple(sorted(verdict for verdict in verdicts if verdict is not None))


def _verdict(word: cells.Written, event: str, names: Names, findings: Findings) -> tuple[str, Outcome] | None:
    guard, _, said = word.name.rpartition(".")
    outcome = next((known for known in OUTCOMES if known == said and known in names.guards.get(guard, ())), None)
    if outcome is None:
        known = [f"{name}.{outcome}" for name, outcomes in names.guards.items() for outcome in outcomes]
        hint = closest(word.name, known)
        findings.error("DSA201", f"'{word.name}' is no verdict", word.span, hint, about=word.name)
        return None
    if event in names.events and event not in names.judged[guard]:
        hint = f"it judges: {', '.join(names.judged[guard]) or 'nothing'}"
        findings.error("DSA209", f"guard {guard} does not judge {event}", word.span, hint, about=guard)
        return None
    return guard, outcome


def _action(cell: Cell, names: Names, findings: Findings) -> tuple[Emit | Cancel, ...] | Refused:
    word, colon, reason = (part.strip() for part in cell.text.strip("`").partition(":"))
    if word == "refused":
        if colon and reason not in REASONS:
            hint = closest(reason, REASONS)
            findings.error("DSA107", f"'{reason}' is no reason for a refusal", cell.span(), hint)
        return Refused(reason or None)
    if cell.text in {"", "-"}:
        return ()
    items = cells.effects(cell, findings)
    for item in items:
        if item.effect is not None and item.effect not in names.effects and item.span is not None:
            names.report_unknown("effect", cells.Written(item.effect, item.span), findings)
    return items


def _state(cell: Cell, names: Names, findings: Findings) -> str | None:
    if not cell.text:
        return None
    name = cells.one_name(cell, "a state", findings)
    if name is None:
        return None
    full = names.full_state(name)
    if full is None:
        names.report_unknown("state", cells.Written(name, cell.span()), findings)
    return full


def _values(record: Record, names: Names, findings: Findings) -> tuple[tuple[str, Value], ...]:
    found = []
    for variable, domain in names.variables.items():
        if variable in record.cells and record[variable].text and variable not in {*COLUMNS["scenario"].all, NOTE}:
            value = literal(record[variable], domain, findings)
            if value is not None:
                found.append((variable, value))
    return tuple(found)
