"""The document writer: canonical documents, digests, and formatting.

`dumps` writes a machine: `loads(dumps(machine)) == machine`. `digest` is the SHA-256 of that text. Notes, prose and the spelling of durations are not
part of a machine, so a digest does not depend on them.

`format_document` formats the tables of a text that people wrote: it aligns columns and spaces expressions. It changes only the lines of tables in
sections of the language; everything else stays byte for byte. A second call changes nothing. It ignores the meaning, so documents with faults are
formatted too.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

from dsa.declarations import (
    EFFECT_COLUMNS,
    Effect,
    Event,
    Guard,
    Prompt,
    RefusedAction,
    RunParameter,
    Scenario,
    ScenarioStep,
    StepRow,
    show,
)
from dsa.expr import OUTCOMES, show_number, show_value, unparse, unparse_domain
from dsa.lang import cells
from dsa.lang.cells import COLUMNS
from dsa.lang.expression_parser import ExpressionParser, Findings, UnreadableError, canonical_spacing
from dsa.lang.markdown import Cell, MarkdownTable, read
from dsa.lang.steps_table import ANY_COUNT, DEFAULT_GRANTS, GRANTS, spell_out
from dsa.machine import Machine, spelled_shortest
from dsa.trace import ROW_COLUMNS, escape_cell, state_kind, table_lines, transition_cells

Cells = Sequence[str]
STEP_COLUMNS = ("step", "requires", "generator", "guard", "uses", "rmax", "optional", "task")


def dumps(machine: Machine) -> str:
    """Write a machine as a document; a Steps machine as its Steps, and rows with families as they were written."""
    sections = [f"# {machine.name}\n"]
    for title, body in _sections(machine):
        sections.append(f"## {title}\n{body}\n")
    return "\n".join(sections)


def digest(machine: Machine) -> str:
    """Return the SHA-256 of the canonical document, in hexadecimal; of one with families, of the rows that result."""
    result: str | None = machine.worked_out.get("digest")
    if result is None:
        result = hashlib.sha256(
            dumps(spell_out(spelled_shortest(machine))).encode("utf-8", "surrogatepass")
        ).hexdigest()
        machine.worked_out["digest"] = result
    return result


def _sections(machine: Machine) -> Iterator[tuple[str, str]]:
    yield from _declarations(machine)
    for cases in machine.cases:
        rows = [(_plain(case.call), _plain(case.expected)) for case in cases.cases]
        yield f"Cases: {cases.name}", _table(("call", "expected"), rows)
    if machine.steps:
        yield "Steps", _steps(machine)
    else:
        states = [(state.name, state_kind(state)) for state in machine.states]
        yield "States", _table(("state", "kind"), states)
        cells = [transition_cells(row) for row in machine.transitions]
        table = _table(ROW_COLUMNS, [[row[column] for column in ROW_COLUMNS] for row in cells])
        yield "Transitions", _as_written(machine, "transitions") or table
    for prompt in machine.prompts:
        yield f"Prompt: {prompt.name}", _prompt(prompt)
    if machine.properties:
        claims = "\n".join(f"- {show(item.form)}" for item in machine.properties)
        yield "Properties", _as_written(machine, "properties") or claims
    for scenario in machine.scenarios:
        # A heading may close with '#', so one that ends in '#' must.
        name = _plain(scenario.name) + (" #" if scenario.name.endswith("#") else "")
        yield f"Scenario: {name}", scenario_text(scenario)
    if machine.constraints:
        # Last, because it is text as written: an open fence in it would swallow what follows.
        yield "Constraints", machine.constraints


def _declarations(machine: Machine) -> Iterator[tuple[str, str]]:
    parameters, guards = _own_parameters(machine), _own_guards(machine)
    if machine.families:
        yield "Families", _table(("family", "index"), [(family.name, family.index) for family in machine.families])
    if parameters:
        rows = [(p.name, unparse_domain(p.domain), show_value(p.default)) for p in parameters]
        yield "Parameters", _table(("parameter", "domain", "default"), rows)
    if machine.variables and not machine.steps:
        header = ("variable", "scope", "domain", "initial")
        variables = [(v.name, v.scope, unparse_domain(v.domain), unparse(v.initial)) for v in machine.variables]
        yield "Variables", _as_written(machine, "variables") or _table(header, variables)
    if machine.events and not machine.steps:
        yield "Events", _as_written(machine, "events") or _columns(machine.events, _EVENT_COLUMNS)
    if guards:
        yield "Guards", _as_written(machine, "guards") or _columns(guards, _GUARD_COLUMNS)
    if machine.generators:
        generators = [(g.name, g.kind, _options(g.options)) for g in machine.generators]
        yield "Generators", _table(("generator", "is", "options"), generators)
    if machine.effects:
        yield "Effects", _as_written(machine, "effects") or _columns(machine.effects, _EFFECT_COLUMNS)


def _as_written(machine: Machine, section: str) -> str:
    """Return a section as an author wrote it with families; empty if the machine does not have what that stands for."""
    source = next((table for table in machine.source_tables if table.section == section), None)
    if source is None or source.declarations != getattr(machine, section):
        return ""
    if not source.header:
        return "\n".join(f"- {text}" for (text,) in source.rows)
    return _table(source.header, source.rows)


def _own_parameters(machine: Machine) -> list[RunParameter]:
    """Return the parameters that do not follow from the Steps table."""
    if not machine.steps:
        return list(machine.parameters)
    bounds = {f"rmax.{step.name}" for step in machine.steps}
    usual = RunParameter(GRANTS, ANY_COUNT, DEFAULT_GRANTS)
    return [p for p in machine.parameters if p != usual and not (p.name in bounds and p.domain == ANY_COUNT)]


def _own_guards(machine: Machine) -> list[Guard]:
    steps = {step.name for step in machine.steps}
    return [guard for guard in machine.guards if guard.name not in steps]


_GUARD_COLUMNS: dict[str, Callable[[Guard], str]] = {
    "guard": lambda guard: guard.name,
    "judges": lambda guard: ", ".join(guard.judges),
    "is": lambda guard: guard.kind,
    "options": lambda guard: _options(guard.options),
    "uses": lambda guard: _options(tuple((name, str(reference)) for name, reference in guard.uses)),
    "verdicts": lambda guard: "" if guard.outcomes == OUTCOMES else ", ".join(guard.outcomes),
    "pass": lambda guard: ", ".join(map(show_number, guard.pass_odds)),
    "fatal": lambda guard: ", ".join(map(show_number, guard.fatal_odds)),
}
_EVENT_COLUMNS: dict[str, Callable[[Event], str]] = {
    "event": lambda event: event.name,
    "from": lambda event: event.origin,
    "otherwise": lambda event: event.otherwise,
}
_EFFECT_COLUMNS: dict[str, Callable[[Effect], str]] = {
    "effect": lambda effect: effect.name,
    **{column.header: column.cell for column in EFFECT_COLUMNS},
}


def _columns(
    items: Sequence[Guard] | Sequence[Effect] | Sequence[Event], columns: dict[str, Callable[..., str]]
) -> str:
    """Return a table without the columns that no row uses; the first one and `judges` always stay."""
    cells = {name: [write(item) for item in items] for name, write in columns.items()}
    names = [name for place, name in enumerate(cells) if place == 0 or name == "judges" or any(cells[name])]
    return _table(names, list(zip(*(cells[name] for name in names), strict=True)))


def _steps(machine: Machine) -> str:
    goal = "" if machine.goal is None else f"\n\nGoal: {unparse(machine.goal)}"
    result = "" if machine.result is None else f"\n\nResult: {machine.result}"
    return _table(STEP_COLUMNS, step_cells(machine)) + goal + result


def step_cells(machine: Machine) -> list[Cells]:
    """Return the cells of `STEP_COLUMNS` for each step, not escaped; no rows for a machine without Steps."""
    defaults = machine.constants
    return [_step(step, str(defaults[f"rmax.{step.name}"])) for step in machine.steps]


def _step(step: StepRow, rmax: str) -> Cells:
    requires = ", ".join(step.requires) if isinstance(step.requires, tuple) else unparse(step.requires)
    guards, optional = ", ".join(step.guards), "yes" if step.optional else ""
    return (step.name, requires, step.generator, guards, _options(step.uses), rmax, optional, _plain(step.task))


def _options(options: tuple[tuple[str, str], ...]) -> str:
    return "; ".join(f"{key} = {value}" for key, value in options)


def _plain(text: str) -> str:
    """Return a text as it is; one that would be read as a code span gets a longer fence."""
    fence = "`"
    while fence in text:
        fence += "`"
    whole = len(text) > 1 and text[0] == text[-1] == "`"
    return f"{fence} {text} {fence}" if whole else text


def _prompt(prompt: Prompt) -> str:
    parts = {
        "System": prompt.system, "Role": prompt.role, "Constraints": prompt.constraints, "Task": prompt.task,
        "Feedback": prompt.feedback,
    }  # fmt: skip
    return "\n\n".join(f"### {title}\n{_fence(text)}" for title, text in parts.items() if text)


def _fence(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def scenario_text(scenario: Scenario) -> str:
    """Write the body of a Scenario section: its parameters and its table."""
    settings = scenario_settings(scenario)
    return (f"Parameters: {settings}\n\n" if settings else "") + _table(*scenario_cells(scenario))


def scenario_settings(scenario: Scenario) -> str:
    """Return the parameter values of a scenario as after `Parameters:`; empty if it has none."""
    return ", ".join(f"{name} = {show_value(value)}" for name, value in scenario.parameters)


def scenario_cells(scenario: Scenario) -> tuple[Cells, list[Cells]]:
    """Return the header of a scenario's table and the cells of its rows, not escaped."""
    steps = scenario.steps
    variables = list(dict.fromkeys(name for step in steps for name, _ in step.values))
    header = ["percept", "action"]
    header += ["state"] if any(step.state for step in steps) else []
    header += ["deps"] if any(step.dependencies is not None for step in steps) else []
    rows: list[Cells] = [[_scenario_cell(step, column) for column in (*header, *variables)] for step in steps]
    return (*header, *variables), rows


def _scenario_cell(step: ScenarioStep, column: str) -> str:
    if column == "percept":
        return " ".join([step.event, ", ".join(f"{guard}.{outcome}" for guard, outcome in step.verdicts)]).strip()
    if column == "action":
        return action_text(step)
    if column == "state":
        return step.state or ""
    if column == "deps":
        return "-" if step.dependencies == () else _options(step.dependencies or ())
    values = dict(step.values)
    return show_value(values[column]) if column in values else ""


def action_text(step: ScenarioStep) -> str:
    """Write the action that a scenario's step expects."""
    if isinstance(step.action, RefusedAction):
        return f"refused: {step.action.reason}" if step.action.reason else "refused"
    return ", ".join(map(str, step.action))


def _table(header: Cells, rows: Sequence[Cells]) -> str:
    return "\n".join(table_lines(header, [[*map(escape_cell, row)] for row in rows]))


_LINE_END = re.compile(r"\r\n|\r|\n")


def format_document(text: str) -> str:
    """Return a document with formatted tables."""
    pieces = _LINE_END.split(text)
    ends = [*_LINE_END.findall(text), ""]
    document = read(text, "")
    for section in document.sections:
        if section.kind in COLUMNS:
            for table in section.tables:
                pieces[table.first - 1 : table.last] = _laid_out(table, pieces[table.first : table.first + 1][0])
    return "".join(piece + end for piece, end in zip(pieces, ends, strict=True))


def _laid_out(table: MarkdownTable, rule: str) -> list[str]:
    """Return the lines of one formatted table. If its rows do not fit its header, the lines stay, without the space around them."""
    header = [escape_cell(cell.text) for cell in table.header.cells]
    if any(len(row.cells) != len(header) for row in table.rows):
        return [table.header.span.text, rule, *(row.span.text for row in table.rows)]
    columns = [name.strip("`* ").lower() for name in header]
    rows = [[_cell(cell, column) for cell, column in zip(row.cells, columns, strict=True)] for row in table.rows]
    lines = table_lines(header, rows)
    return [lines[0], _with_alignment(lines[1], rule), *lines[2:]]


def _with_alignment(line: str, rule: str) -> str:
    """Return the rule with the colons of the old one, which align columns on a page."""
    marks = [mark.strip() for mark in rule.strip().strip("|").split("|")]
    dashes = line.strip("| ").split(" | ")
    cells = []
    for mark, dash in zip(marks, dashes, strict=True):
        left, right = (":" if mark.startswith(":") else "-"), (":" if mark.endswith(":") else "-")
        cells.append(left + dash[1:-1] + right)
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell, column: str) -> str:
    """Return a cell's canonical text: an expression with its usual spacing, anything else unchanged."""
    if not cell.text or "`" in cell.text:
        return escape_cell(cell.text)
    write = _WRITERS.get(column)
    return escape_cell((write(cell) if write else None) or cell.text)


def _expression(cell: Cell) -> str | None:
    try:
        parser = ExpressionParser(cell)
        expr = parser.expression()
        parser.end()
    except UnreadableError:
        return canonical_spacing(cell) if re.search(r"\b(?:all|any) +\w+ *:", cell.text) else None
    return unparse(expr)


def _condition(cell: Cell) -> str | None:
    words = cell.text.split(maxsplit=1)
    if words[:1] != ["else"]:
        return _expression(cell)
    return None if cells.condition(cell, Findings()) is None else " ".join(cell.text.split())


def _list(cell: Cell) -> str | None:
    return ", ".join(part.strip() for part in cell.text.split(","))


_WRITERS: dict[str, Callable[[Cell], str | None]] = {
    "if": _condition, "initial": _expression, "source": _list, "event": _list, "effects": _list,
}  # fmt: skip
