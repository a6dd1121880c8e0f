"""SCXML files to machines: what `dsa import` reads.

Takes text or bytes, gives an `Imported`: the machine, or None, and with lines what could not be read. A file that `dsa export` wrote
carries its document, and that is read. Of other files: nested states, transitions with conditions and assignments, data over truth values,
whole numbers and enumerations, raise and send. Where SCXML's rules differ from the table's (the first transition that is enabled is
taken, and outer ones when no inner one is), the rows say it.
"""

import attrs

from dsa.lang.build import read_machine
from dsa.lang.scxml_rows import Foreign
from dsa.lang.scxml_states import Finding
from dsa.lang.scxml_tree import Element, ScxmlError, read_tree
from dsa.machine import Machine

#: The element in which an export carries its document.
DOCUMENT = "urn:dsa:machine document"


@attrs.frozen
class Imported:
    """What reading an SCXML file gave; `machine` is None exactly when a finding is an error.

    `document` is the text that the file carries, when it was taken from there.
    """

    machine: Machine | None
    findings: tuple[Finding, ...] = ()
    document: str | None = None


def from_scxml(text: str | bytes, *, carried: bool = True) -> Imported:
    """Read an SCXML file; without `carried`, its states and transitions even when it carries the document it was written from."""
    try:
        root = read_tree(text)
    except ScxmlError as fault:
        return Imported(None, (Finding(fault.line, str(fault)),))
    document = next((child for child in root.children if child.tag == DOCUMENT), None)
    if carried and document is not None:
        return _carried(document)
    foreign = Foreign(root)
    written = foreign.document()
    if foreign.any_error:
        return Imported(None, foreign.findings)
    reading = read_machine(written.text)
    if reading.machine is None:
        faults = (d for d in reading.diagnostics if d.severity == "error")
        found = (Finding(written.line_of(d.span.line, root.line), d.message) for d in faults)
        return Imported(None, (*foreign.findings, *dict.fromkeys(found)))
    return Imported(reading.machine, foreign.findings)


def _carried(document: Element) -> Imported:
    reading = read_machine(document.text)
    if reading.machine is None:
        fault = next(d for d in reading.diagnostics if d.severity == "error")
        message = f"the document that this file carries is no machine: its line {fault.span.line}: {fault.message}"
        return Imported(None, (Finding(document.line, message),))
    return Imported(reading.machine, document=document.text)
