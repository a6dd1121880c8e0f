"""`dsa resume RUN --machine FILE`: a run goes on under another table, if it is compatible with it.

Takes a document, gives the entry that says so in a run's ledger, or a sentence that says why not.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from dsa.checks.engines.found import Limits
from dsa.cli.faults import Ended
from dsa.cli.fitting import MAX_STATES, Fit, Fitting
from dsa.cli.replay import difference_lines
from dsa.cli.run import machine_document
from dsa.edge.files import load, read_text
from dsa.lang import digest
from dsa.machine import Machine
from dsa.runtime.ledger import ChangeEntry
from dsa.runtime.run import Run

_Command = TypeVar("_Command", bound=Callable[..., Any])


@attrs.frozen
class Change:
    """Another document for a run: as the user named it, where it is, its text, what it means."""

    file: str
    path: Path
    text: str
    machine: Machine

    def entry(self, run: Run) -> ChangeEntry | None:
        """Give what to record; None when the run has this machine already. Raises Ended when it may not go on under it."""
        fit = Fitting(self.machine, Limits(MAX_STATES)).judge(run)
        if fit.verdict != "compatible" or fit.machine is None:
            raise Ended(f"run {run.run_id} may not go on under {self.file}: {self._why(fit)}", 1)
        if digest(fit.machine) == digest(run.machine):
            return None
        parameters, file = fit.machine.constants, str(self.path.absolute())
        at_ms = time.time_ns() // 1_000_000
        return ChangeEntry(fit.machine.name, digest(fit.machine), self.text, parameters, file, at_ms)

    def _why(self, fit: Fit) -> str:
        told = fit.why or "it would have gone another way"
        if fit.difference is not None and fit.machine is not None:
            told += "".join(f"\n{line}" for line in difference_lines(fit.machine, fit.difference, self.file))
        return f"{told}\n(`dsa diff` tells all that differs; without --machine the run goes on under its own document)"


def change_to(file: str) -> Change:
    """Read another document. Raises MachineError and DocumentError."""
    path = machine_document(file)
    return Change(file, path, read_text(path), load(str(path)))


def machine_option(command: _Command) -> _Command:
    """Add `--machine FILE`."""
    said = "Go on under this document from now on, if `dsa diff` calls the run compatible with it."
    return click.option("--machine", "machine", metavar="FILE", help=said)(command)
