"""A run that is taken up again, for `dsa resume` and `dsa send`: bound as it was started, its progress shown, its faults told.

Takes a recorded run and what is said to it, gives what became of it.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.changing import change_of
from dsa.cli.comparing import without_claims
from dsa.cli.console import terminal
from dsa.cli.displays import progress_of
from dsa.cli.kept import faults_told
from dsa.cli.run_options import RunOptions
from dsa.cli.runner import Performed, perform
from dsa.edge.environment import environment_secrets
from dsa.edge.files import load
from dsa.errors import DsaError
from dsa.lang import digest
from dsa.meaning import Occurrence
from dsa.runs.record import RunRecord
from dsa.runs.runs import Resumption, open_runs
from dsa.runtime.ledger import Handling
from dsa.runtime.policies import Step


@attrs.frozen
class Said:
    """What is said to a run: events from outside, what became of effects in doubt, and with what they were answered."""

    sent: tuple[Occurrence, ...] = ()
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
        progress_of(machine, terminal(), quiet=options.shows_nothing) as progress,
    ):
        watched.note("what is sent", [_data(each) for each in (*said.sent, *said.answers.values())])
        entry = change.entry if change else lambda _run: None
        how: dict[str, Any] = {
            "options": options.changes,
            "resumption": Resumption(said.decided, said.answers, entry, manner.take),
            "on_moment": watched.observing(progress.on_moment),
        }
        performed = perform(
            partial(open_runs, root, must_exist=True), lambda runs: runs.resume(record.run.run_id, *said.sent, **how)
        )
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
        click.echo(
            f"{file} is not as it was; the run goes on with its own copy, {own} (dsa diff {own} {file}; "
            f"dsa resume {record.run.run_id} --machine {file} goes on with the file, if the run fits it)",
            err=True,
        )
