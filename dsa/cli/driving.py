"""A run that is taken up again, for `dsa resume` and `dsa send`: bound as it was started, its progress shown, its faults told.

Takes a recorded run and what is said to it, gives what became of it.
"""

from collections.abc import Mapping
from pathlib import Path

import attrs
import click

from dsa.cli.changing import change_to
from dsa.cli.displays import OwnProgress, progress_of
from dsa.cli.kept import Kept, faults_told
from dsa.cli.terminal import terminal
from dsa.cli.watching import Watching
from dsa.edge.binding import Binding
from dsa.edge.environment import environment_secrets
from dsa.edge.files import load
from dsa.errors import DsaError
from dsa.generators.scripted import ScriptedGenerator
from dsa.lang import digest
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runs.bindings import DEFAULT_MODEL, bind
from dsa.runs.children import Machines
from dsa.runs.running import Performed, take_up
from dsa.runtime.ledger import ArtifactEntry, Handling, MachineEntry
from dsa.runtime.run import Run


@attrs.frozen
class Said:
    """What is said to a run: events from outside, what became of effects in doubt, and with what they were answered."""

    sent: tuple[Occurrence, ...] = ()
    decided: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence] = attrs.field(factory=dict)


@attrs.frozen
class Manner:
    """How to go on: with another model, module or budget than at the start (empty: the same), taken from a living process, shown or not.

    `watching` adds to what was chosen at the start. `machine` names another document under which the run goes on from now on.
    """

    model: str | None = None
    module: str | None = None
    take: bool = False
    quiet: bool = False
    budget: tuple[str, ...] = ()
    watching: Watching = attrs.field(factory=Watching)
    machine: str | None = None


def go_on(kept: Kept, root: Path, said: Said, manner: Manner) -> Performed:
    """Take a run up and drive it until it rests. Raises Ended, and what `take_up` and `bind` raise of a user's mistakes."""
    directory = root / kept.run.run_id
    change = change_to(manner.machine) if manner.machine is not None else None
    if change is None:
        _note_changes(kept, directory)

    def bound(first: MachineEntry, machine: Machine) -> Binding:
        return bind_as_started(first, machine, kept.run, manner, root)

    watching = manner.watching.continuing(dict(kept.first.started))
    secrets = environment_secrets(watching.chosen)
    quiet = manner.quiet or watching.is_logging
    with (
        faults_told(root, lambda: directory),
        watching.watched(secrets) as watched,
        progress_of(change.machine if change else kept.run.machine, terminal(), quiet=quiet) as progress,
    ):
        watched.note("what is sent", [each.data for each in (*said.sent, *said.answers.values())])
        performed = take_up(
            root,
            kept.run.run_id,
            bound,
            sent=said.sent,
            decided=said.decided,
            answers=said.answers,
            take=manner.take,
            budget=manner.budget,
            change=change.entry if change else lambda _run: None,
            observe=watched.observing(progress.observe),
            recall=watched.recalling(progress.recall),
        )
        if isinstance(progress, OwnProgress):
            progress.rests(directory)
        return watched.rested(performed)


def bind_as_started(first: MachineEntry, machine: Machine, run: Run, manner: Manner, root: Path) -> Binding:
    """Bind a machine as its run was started, but for what is to be otherwise. Raises BindingError, ModelUnavailable, DocumentError.

    A script goes on after the replies that the run has had of it.
    """
    started = dict(first.started)
    file, module = started.get("file"), manner.module or started.get("module")
    model, seed = manner.model or started.get("model") or DEFAULT_MODEL, started.get("seed")
    chosen = manner.watching.continuing(started).chosen
    path = Path(file) if file else None
    nested = Machines(root, model, seed, chosen, (path.resolve(),) if path else ())
    config = {**(started.get("config") or {}), "runs": str(root.absolute())}
    binding = bind(
        machine, path=path, module=module, model=model, seed=seed, chosen=chosen, nested=nested, config=config
    )
    for entry in () if manner.model else run.ledger:
        if isinstance(entry, ArtifactEntry):
            generator = binding.generators.get(entry.author)
            if isinstance(generator, ScriptedGenerator):
                generator.skip(entry.step)
    return binding


def _note_changes(kept: Kept, directory: Path) -> None:
    """Say on standard error that the document reads otherwise now: the run keeps to the one that it began with."""
    file = dict(kept.first.started).get("file")
    if not file:
        return
    try:
        now = _control(load(file).at(dict(kept.first.parameters)))
    except (DsaError, OSError):
        now = ""  # gone, or no machine any more
    if now != _control(kept.run.machine):
        own = directory / "machine.md"
        click.echo(
            f"{file} is not as it was; the run goes on with its own copy, {own} (dsa diff {own} {file}; "
            f"dsa resume {kept.run.run_id} --machine {file} goes on with the file, if the run fits it)",
            err=True,
        )


def _control(machine: Machine) -> str:
    """Give the digest of a machine without what it claims of itself: that may be added to at any time."""
    return digest(attrs.evolve(machine, properties=(), scenarios=()))
