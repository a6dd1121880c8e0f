"""`dsa resume RUN --machine FILE`, or `--param`: a run goes on under another table, if it is compatible with it.

Takes a document, returns the entry that says so in a run's ledger, or a sentence that says why not.
"""

import time
from collections.abc import Mapping

import attrs

from dsa.checks.engines.found import Limits
from dsa.cli.faults import Ended
from dsa.cli.fitting import MAX_STATES, Fit, Fitting
from dsa.cli.replay import difference_lines
from dsa.cli.run import machine_document
from dsa.edge.files import load, read_text
from dsa.expr import Value, show_value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.runs.record import RunRecord, text_of
from dsa.runtime.ledger import ChangeEntry
from dsa.runtime.run import Run


@attrs.frozen
class Change:
    """Another document for a run, or the same with other parameters: as the user named it, where it is, its text, what it means."""

    named: str
    path: str | None
    text: str
    machine: Machine
    parameters: Mapping[str, Value]

    def entry(self, run: Run) -> ChangeEntry | None:
        """Return what to record; None when the run has this machine already. Raises Ended when it may not go on under it."""
        fit = Fitting(self.machine, Limits(MAX_STATES), self.parameters).judge(run)
        if fit.verdict != "compatible" or fit.machine is None:
            raise Ended(f"run {run.run_id} may not go on under {self.named}: {self._why(fit)}", 1)
        if digest(fit.machine) == digest(run.machine):
            return None
        at_ms = time.time_ns() // 1_000_000
        return ChangeEntry(fit.machine.name, digest(fit.machine), self.text, fit.machine.constants, self.path, at_ms)

    def _why(self, fit: Fit) -> str:
        told = fit.why or "it would have gone another way"
        if fit.difference is not None and fit.machine is not None:
            told += "".join(f"\n{line}" for line in difference_lines(fit.machine, fit.difference, self.named))
        return f"{told}\n(`dsa diff` tells all that differs; by itself the run goes on under its own document)"


def change_of(record: RunRecord, file: str | None, parameters: Mapping[str, Value]) -> Change | None:
    """Return what is to be otherwise; None for nothing. Raises MachineError, DocumentError and ParameterError."""
    if file is not None:
        path = machine_document(file)
        return Change(file, str(path.absolute()), read_text(path), load(str(path)), parameters)
    if not parameters:
        return None
    record.run.machine.at(dict(parameters))  # a name that it does not have is told by itself
    text = text_of(record.recorded.text, record.run.ledger)
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in parameters.items())
    return Change(values, dict(record.first.started).get("file"), text, loads(text, "machine.md"), parameters)
