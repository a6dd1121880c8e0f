"""What guards, tasks and prompts use of the data of events: the column `uses` of Guards, and placeholders.

Takes records and sections of a document whose events are known, gives declarations with their references; faults go to the findings.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from dsa.declarations import Guard, Prompt, WorkflowStep
from dsa.lang import cells
from dsa.lang.columns import Record
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell, Section
from dsa.lang.prompts import read_prompt, require_placeholders
from dsa.references import Reference, UnreadableReferenceError, read_reference
from dsa.uses import SPECIFICATION

#: What the parts of a step's guard judge.
_JUDGED_IN_STEPS = "verdict"


def with_uses(
    guards: Sequence[Guard],
    records: Sequence[Record],
    events: Collection[str],
    taken: Collection[str],
    findings: Findings,
) -> tuple[Guard, ...]:
    """Give the guards with what their rows say that they use. `taken` are the names under which guards are given artifacts."""
    rows = {record["guard"].plain: record["uses"] for record in reversed(records)}
    judged = {guard.name: guard.judges or (_JUDGED_IN_STEPS,) for guard in guards}
    found = {
        name: _references(cell, events, taken, judged.get(name, ()), findings)
        for name, cell in rows.items()
        if cell.text
    }
    return tuple(attrs.evolve(guard, uses=found.get(guard.name, ())) for guard in guards)


def _references(
    cell: Cell, events: Collection[str], taken: Collection[str], judged: Collection[str], findings: Findings
) -> tuple[tuple[str, Reference], ...]:
    read = []
    for name, words in cells.pair_cells(cell, ";", findings):
        if not name.isidentifier():
            findings.error("DSA107", f"'{name}' cannot be an argument of a guard", cell.span(), "a name without dots")
        if name in taken:
            message = f"'{name}' is already the name of an artifact that a step uses"
            findings.error("DSA202", message, cell.span(), "give the data another name")
        try:
            reference = read_reference(words.text, events)
        except UnreadableReferenceError as fault:
            code = "DSA201" if fault.about else "DSA107"
            findings.error(code, fault.message, words.span(), fault.hint, about=fault.about)
            continue
        if reference.since in judged and reference.event != reference.since:
            message = f"'{reference}' is never there: the guard judges {reference.since}, and nothing is newer"
            findings.error("DSA107", message, words.span(), "name an event after 'since' that comes earlier")
        read.append((name, reference))
    return tuple(read)


def read_prompts(
    sections: Iterable[Section], steps: Iterable[WorkflowStep], events: Collection[str], findings: Findings
) -> tuple[Prompt, ...]:
    """Read the Prompt sections: a placeholder is the specification, what the step uses, or what an event has brought."""
    names = _allowed(steps)
    return tuple(
        read_prompt(section, names.get(section.name, (SPECIFICATION,)), events, findings) for section in sections
    )


def require_tasks_filled(
    records: Iterable[Record], steps: Iterable[WorkflowStep], events: Collection[str], findings: Findings
) -> None:
    """Report the placeholders in the column `task` of Steps that nothing fills in."""
    names = _allowed(steps)
    for record in records:
        require_placeholders(record["task"], names.get(record["step"].plain, (SPECIFICATION,)), events, findings)


def _allowed(steps: Iterable[WorkflowStep]) -> Mapping[str, tuple[str, ...]]:
    return {step.name: (SPECIFICATION, *(name for name, _ in step.uses)) for step in steps}
