"""A spec: a document that adds properties and scenarios to the machine that its line `Machine: PATH` names.

Takes the spec's text and the machine; finding and reading the machine's file is for `dsa.edge.files`.
"""

import attrs

from dsa.errors import Span
from dsa.lang.build import MACHINE_LINE, Reading, claims, sort_sections
from dsa.lang.columns import SECTIONS
from dsa.lang.findings import Findings
from dsa.lang.markdown import read
from dsa.lang.names import Declared
from dsa.machine import Machine

_ALLOWED = frozenset({"properties", "scenario"})


def machine_of(text: str, path: str = "<text>") -> tuple[str, Span] | None:
    """Give what a spec's line `Machine: PATH` names, and where, or None when the text is no spec."""
    if MACHINE_LINE not in text:  # most documents are machines, which need not be read twice
        return None
    line = sort_sections(read(text, path), Findings()).line(MACHINE_LINE)
    return None if line is None else (line.plain.strip(), line.span())


def read_spec(text: str, machine: Machine, path: str = "<text>") -> Reading:
    """Read a spec of a machine: the machine with the spec's properties and scenarios added to its own."""
    findings = Findings()
    parts = sort_sections(read(text, path), findings)
    for section in parts.sections:
        if section.kind in SECTIONS - _ALLOWED:
            message = f"a spec has no section {section.kind}; it belongs into the machine"
            findings.error("DSA111", message, section.heading.span(), "a spec holds Properties and Scenarios")
    declared = Declared(
        machine.parameters, machine.variables, machine.events, machine.guards, machine.effects, machine.states
    )
    properties, scenarios = claims(parts, declared.names(), machine, findings)
    added = attrs.evolve(machine, properties=machine.properties + properties, scenarios=machine.scenarios + scenarios)
    return Reading(None if findings.any_error else added, findings.diagnostics, machine.name)
