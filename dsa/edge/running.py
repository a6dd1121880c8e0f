"""One run from beginning to end: a machine driven in a directory of its own.

Takes a machine, its text, a binding and a specification, gives what became of them. Everything that was done is on
disk when this returns, however it ends.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from dsa.declarations import OUTSIDE
from dsa.edge.binding import Binding
from dsa.edge.driver import Driver, Rest
from dsa.edge.render import RenderError, svg
from dsa.edge.runs import RunDirectory, accepted_artifacts, new_run_id
from dsa.lang import digest
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.ledger import Entry
from dsa.runtime.run import SPECIFICATION, begin
from dsa.targets import emit


@attrs.frozen
class Performed:
    """A run that came to rest: how, where its files are, what it made, how many seconds it took.

    `final` and `diagram` are None when no step has passed, and when no renderer is installed.
    """

    rest: Rest
    directory: Path
    accepted: tuple[Artifact, ...]
    final: Path | None
    diagram: Path | None
    seconds: float


def perform(
    machine: Machine,
    text: str,
    binding: Binding,
    specification: str | None,
    *,
    root: Path,
    observe: Callable[[Entry], None] = lambda _entry: None,
) -> Performed:
    """Run a machine until it is finished, waits, or fails; write `root/<run id>/`.

    `specification` is the data of the event of that name; a machine without it starts by itself, or waits.
    """
    started = time.monotonic()
    artifacts = MemoryArtifacts()
    run, commands = begin(machine, new_run_id(machine), digest=digest(machine))
    with RunDirectory(root, run.run_id, machine, text, artifacts) as directory:

        def watch(entry: Entry) -> None:
            directory.observe(entry)
            observe(entry)

        driver = Driver(run, binding, artifacts, commands=commands, observe=watch)
        first = [Occurrence(SPECIFICATION, data=specification or "")] if takes_specification(machine) else []
        rest = asyncio.run(driver.drive(*first))
        seconds = time.monotonic() - started
        diagram = None
        with suppress(RenderError):
            diagram = directory.write_diagram(svg(emit(machine, "dot")))
        accepted = tuple(accepted_artifacts(rest.run, artifacts))
        return Performed(rest, directory.path, accepted, directory.write_final(rest.run), diagram, seconds)


def takes_specification(machine: Machine) -> bool:
    """Tell whether the machine waits for the event `specification`."""
    event = machine.event_named.get(SPECIFICATION)
    return event is not None and event.origin == OUTSIDE
