"""A run that is taken up again, for `dsa resume` and `dsa send`: bound as it was started, its progress shown, its faults told.

Takes a recorded run and what is said to it, gives what became of it. With `--machine FILE` or `--param` it goes on under another table, if it is
compatible with it.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from dsa.checks.engines.found import Limits
from dsa.cli.comparing import without_claims
from dsa.cli.console import terminal
from dsa.cli.displays import progress_of
from dsa.cli.faults import Ended
from dsa.cli.fitting import MAX_STATES, Fit, Fitting
from dsa.cli.kept import faults_told
from dsa.cli.replay import difference_lines
from dsa.cli.run import machine_document
from dsa.cli.run_options import RunOptions
from dsa.cli.runner import Performed, perform
from dsa.cli.terminal import say
from dsa.edge.environment import environment_secrets
from dsa.edge.files import load, read_text
from dsa.errors import DsaError, OccurrenceError
from dsa.expr import Value, show_value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runs.handle import NotTakenError, RunHandle
from dsa.runs.record import RunRecord, text_of
from dsa.runs.runs import Resumption, Runs, open_runs
from dsa.runtime.ledger import ChangeEntry, Handling
from dsa.runtime.policies import Step
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


@attrs.frozen
class Said:
    """What is said to a run: events from outside, what became of effects in doubt, and with what they were answered.

    `at` is the place of the question that the events answer.
    """

    sent: tuple[Occurrence, ...] = ()
    at: str | None = None
    decided: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence | Step] = attrs.field(factory=dict)


@attrs.frozen
class Manner:
    """How to go on: otherwise than at the start as `options` say, taken from a living process, under the document `machine` from now on."""

    options: RunOptions
    take: bool = False
    machine: str | None = None


def go_on(record: RunRecord, root: Path, said: Said, manner: Manner) -> Performed:
    """Take a run up and drive it until it rests. Raises Ended, and what `Runs.resume` raises of a user's mistakes."""
    directory, options = root / record.run.run_id, manner.options.continuing(record.recorded)
    change = change_of(record, manner.machine, options.parameters)
    machine = change.machine if change else record.run.machine
    if change is None:
        _note_changes(record, directory)
    with (
        faults_told(root, lambda: directory),
        options.watching.watched(environment_secrets(options.watching.chosen)) as watched,
        progress_of(machine, terminal(), root, quiet=options.shows_nothing) as progress,
    ):
        watched.note("what is sent", [_data(each) for each in (*said.sent, *said.answers.values())])
        entry = change.entry if change else lambda _run: None
        how: dict[str, Any] = {
            "options": options.changes,
            "resumption": Resumption(said.decided, said.answers, entry, manner.take),
            "on_moment": watched.observing(progress.on_moment),
        }

        async def begin(runs: Runs) -> RunHandle:
            handle = runs.hold(record.run.run_id, **how)
            offered = [(each.event, handle.offer(each, said.at)) for each in said.sent]
            handle.start()
            for event, answer in offered:
                try:
                    await handle.became(event, answer)
                except NotTakenError:
                    break  # how the run rests says why
                except OccurrenceError as fault:
                    faults.append(fault)
            return handle

        faults: list[OccurrenceError] = []
        performed = perform(partial(open_runs, root, must_exist=True), begin, options.wait_s)
        if faults:
            raise faults[0]
        progress.rests(directory)
        watched.rested(performed.rest)
        return performed


def _data(each: Occurrence | Step) -> object:
    return each.payload if isinstance(each, Step) else each.data


def _note_changes(record: RunRecord, directory: Path) -> None:
    """Say on standard error that the document reads otherwise now: the run keeps to the one that it began with."""
    file = dict(record.first.started).get("file")
    if not file:
        return
    try:
        now = digest(without_claims(load(file).at(dict(record.first.parameters))))
    except (DsaError, OSError):
        now = ""  # gone, or no machine any more
    if now != digest(without_claims(record.run.machine)):
        own = directory / "machine.md"
        say(
            f"{file} is not as it was; the run goes on with its own copy, {own} (dsa diff {own} {file}; "
            f"dsa resume {record.run.run_id} --machine {file} goes on with the file, if the run fits it)",
            err=True,
        )
