"""Documents to run: a machine with its text and its file, and the event that a run of it begins with."""

from pathlib import Path

import attrs

from dsa.declarations import OUTSIDE
from dsa.edge.files import load, locate, read_text
from dsa.lang import dumps, loads, machine_of
from dsa.machine import Machine
from dsa.meaning import Occurrence, accepted_events
from dsa.uses import SPECIFICATION


@attrs.frozen
class Document:
    """A machine, the text that it was read from, and its file (None: there is none)."""

    machine: Machine
    text: str
    path: Path | None = None


def document_of(file: str | Path | Machine) -> Document:
    """Read a document: a file, the name of a shipped machine, or a spec that is about one; a machine stands for itself.

    Raises DocumentError and MachineError.
    """
    if isinstance(file, Machine):
        written: Document | None = file.worked_out.get("document")
        if written is None:
            text = dumps(file)  # which the run keeps: its lines are those of the rows
            written = file.worked_out["document"] = Document(loads(text, file.name).at(dict(file.constants)), text)
        return written
    path = locate(str(file))
    named = machine_of(read_text(path), str(file))
    found = path if named is None else locate(named[0], path.parent)
    return Document(load(str(file) if found == locate(str(file)) else str(found)), read_text(found), found)


def takes_specification(machine: Machine) -> bool:
    """Return whether the machine waits for the event `specification`."""
    event = machine.event_named.get(SPECIFICATION)
    return event is not None and event.origin == OUTSIDE


def first_event(machine: Machine, data: object) -> tuple[Occurrence, ...]:
    """Return the events that a run is started with: one with the data, or none for a machine that starts without.

    That is `specification` where the machine takes it, else the only event from outside that has a row in the initial state.
    ValueError for data that no such event could bring.
    """
    if takes_specification(machine):
        return (Occurrence(SPECIFICATION, data="" if data is None else data),)
    if data is None:
        return ()
    state = machine.entered(machine.initial)
    outside = [name for name in accepted_events(machine, state) if _is_outside(machine, name)]
    if len(outside) == 1:
        return (Occurrence(outside[0], data=data),)
    why = f"several events may come first ({', '.join(outside)})" if outside else "no event from outside may come first"
    raise ValueError(f"{machine.name} takes no data to start with: {why}; start it without, then send an event")


def _is_outside(machine: Machine, name: str) -> bool:
    event = machine.event_named.get(name)
    return event is not None and event.origin == OUTSIDE
