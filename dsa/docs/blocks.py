"""Blocks: what a page shows of a machine (its diagram, its table, its verdicts, its scenarios), as parts without syntax.

Takes a machine document that was read, and options; returns parts. The same document gives the same parts on every machine: there are no times, no paths and
no line numbers in them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import cast

import attrs

from dsa.checks.report import CheckReport, PropertyResult
from dsa.checks.totals import explored_text, totals_text
from dsa.docs.parts import Caption, Grid, MermaidDiagram, Part, Sentence, SvgDiagram
from dsa.errors import Diagnostic
from dsa.lang.document_writer import STEP_COLUMNS, scenario_cells, scenario_settings, step_cells
from dsa.machine import Machine
from dsa.targets.mermaid import Direction
from dsa.trace import ROW_COLUMNS, show_values, transition_cells

Options = Mapping[str, str]


@attrs.frozen
class MachineDocument:
    """A document that blocks are about: its machine, what was found as it was read, and its checks, made when first asked for."""

    machine: Machine
    found: tuple[Diagnostic, ...]
    checks: Callable[[Machine], CheckReport]

    @cached_property
    def report(self) -> CheckReport:
        """Everything that the checks find."""
        return self.checks(self.machine)


def parts_of(kind: str, options: Options, document: MachineDocument) -> tuple[Part, ...]:
    """Return the parts of a block; kinds and options are those of `dsa.docs.markers.BLOCKS`."""
    match kind:
        case "diagram":
            return (_diagram(options, document.machine),)
        case "table":
            return _table(options, document.machine)
        case "verdicts":
            return _verdicts(options, document)
        case _:
            return _scenarios(document.machine)


def _diagram(options: Options, machine: Machine) -> Part:
    if options.get("format") == "svg":
        return SvgDiagram(machine, options.get("file") or f"{machine.name}.svg")
    return MermaidDiagram(machine, cast(Direction, options.get("direction", "TB")))


def _table(options: Options, machine: Machine) -> tuple[Part, ...]:
    """Return the Steps of a workflow; of any other machine, and when asked for, its rows, if need be in a grid for each source."""
    if machine.steps and not {"rows", "grouped"} & options.keys():
        return (_grid(STEP_COLUMNS, step_cells(machine)),)
    cells = [tuple(transition_cells(row).values()) for row in machine.transitions]
    if "grouped" not in options:
        return (Grid(ROW_COLUMNS, cells),)
    sources = dict.fromkeys(row[0] for row in cells)
    grids = [
        (Caption(source), _grid(ROW_COLUMNS[1:], [row[1:] for row in cells if row[0] == source])) for source in sources
    ]
    return tuple(part for pair in grids for part in pair)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """Return a grid without the columns in which no row has anything."""
    used = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return Grid([header[place] for place in used], [[row[place] for place in used] for row in rows])


def _verdicts(options: Options, document: MachineDocument) -> tuple[Part, ...]:
    report = document.report
    totals = Sentence(f"Checked: {totals_text((*document.found, *report.diagnostics), report)}.")
    if options.get("format") == "line":
        return (totals,)
    parts: list[Part] = [Sentence(f"Explored: {'; '.join(map(explored_text, report.explorations))}.")]
    if report.properties:
        rows = [(result.text, result.verdict, _note(result, report)) for result in report.properties]
        header = ("property", "verdict", "note") if any(note for _, _, note in rows) else ("property", "verdict")
        parts.append(Grid(header, [row[: len(header)] for row in rows], frozenset({"property"})))
    if report.rests:
        parts.append(Sentence(f"It may rest in: {', '.join(report.rests)}."))
    return (*parts, totals)


def _note(result: PropertyResult, report: CheckReport) -> str:
    """Say what a verdict relies on, why it is not HOLDS, and where it is not about all that was explored."""
    explored = tuple(tuple(exploration.parameters.items()) for exploration in report.explorations)
    at = "; ".join(filter(None, map(show_values, result.values))) if result.values != explored else ""
    said = [
        f"if {result.condition}" if result.condition else "",
        result.reason,
        f"assuming {'; '.join(result.assumes)}" if result.assumes else "",
        f"at {at}" if at else "",
    ]
    return ", ".join(filter(None, said))


def _scenarios(machine: Machine) -> tuple[Part, ...]:
    parts: list[Part] = []
    for scenario in machine.scenarios:
        settings = scenario_settings(scenario)
        parts += [Caption(scenario.name, f"at {settings}" if settings else ""), Grid(*scenario_cells(scenario))]
    return tuple(parts) or (Sentence("It has no scenarios."),)
