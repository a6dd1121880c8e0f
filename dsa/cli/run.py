"""`dsa run FILE [SPECIFICATION]`: run a machine with a model, every attempt checked by its guard and kept.

`dsa run --policy NAME TEXT` runs a policy instead: a run of the shipped machine `policy`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console

from dsa.cli.console import terminal
from dsa.cli.displays import progress_of
from dsa.cli.faults import note_run
from dsa.cli.kept import faults_told, runs_option
from dsa.cli.outcome import tell
from dsa.cli.parameters import read_data, require_text
from dsa.cli.run_json import RunCommand, exit_code
from dsa.cli.run_options import RunOptions, run_options
from dsa.cli.runner import Performed, perform
from dsa.cli.terminal import say
from dsa.cli.watching import Watched, watching_options
from dsa.edge.binding import Bindings
from dsa.edge.files import load, locate, read_text
from dsa.errors import DocumentError
from dsa.generators.local import LocalGenerator
from dsa.generators.names import SCRIPTED
from dsa.lang import machine_of
from dsa.machine import Machine
from dsa.runs.bindings import DEFAULT_MODEL
from dsa.runs.document import Document, first_event, takes_specification
from dsa.runs.folder import new_run_id
from dsa.runs.handle import RunHandle
from dsa.runs.one_policy import request, require_policy
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import Options
from dsa.runtime.call_tree import POLICY
from dsa.runtime.moment import Moment
from dsa.runtime.prompt import placeholders
from dsa.uses import SPECIFICATION


@attrs.frozen
class AskedPolicy:
    """A policy that is asked a text, and what it can read of the command line."""

    policy: str
    text: str
    config: Mapping[str, Any]


def or_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--policy NAME` and `--over DIR` to `dsa run`: with them another thing is run than its FILE."""

    @click.option("--policy", metavar="NAME", help="Run this policy: dsa run --policy NAME TEXT.")
    @click.option("--over", metavar="DIR", help="The folder that the policy works on; by default this one.")
    @wraps(command)
    def run(*, policy: str | None, over: str | None, **given: Any) -> None:  # noqa: ANN401  (the command's own)
        if policy is None:
            if over is not None:
                raise click.UsageError("--over goes with --policy NAME")
            if given["file"] is None:
                raise click.UsageError("Missing argument 'FILE', or --policy NAME.")
            command(**given, policy=None)
        else:
            command(**given, policy=AskedPolicy(policy, _text(given), _config(over, given["model"])))

    return run


def _text(given: Mapping[str, Any]) -> str:
    """Return what a policy is asked. Raises UsageError when it is asked nothing, and for two texts."""
    text, more = given["file"], given["specification"]
    if more is not None:
        said = f"given are '{text}' and '{more}'. A TEXT of several words needs quotes"
        raise click.UsageError(f"--policy takes one TEXT and no FILE; {said}")
    if text is None or not text.strip():
        raise click.UsageError('--policy needs a TEXT, what the policy is asked: dsa run --policy NAME "..."')
    if given["data"] is not None:
        raise click.UsageError("--data goes with FILE: a policy is asked a TEXT")
    return require_text(text, "TEXT")


def _config(over: str | None, model: str | None) -> dict[str, Any]:
    """Return what policies can read of the command line beside model and seed. DocumentError for a folder or script that cannot be read."""
    folder = Path(over or ".")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "there is no such folder"
        raise DocumentError(str(folder), f"{missing}; --over names the one that is searched")
    if model is not None and model.startswith(SCRIPTED):
        read_text(model.removeprefix(SCRIPTED))
    return {"over": str(folder.absolute())}


@click.command("run", cls=RunCommand)
@click.argument("file", required=False, metavar="FILE")
@click.argument("specification", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts.")
@click.option("--data", metavar="DATA", help="What the first event brings, in place of SPECIFICATION: JSON, or a text.")
@runs_option
@watching_options
@or_policy
@run_options
def command(
    file: str,
    specification: str | None,
    *,
    seed: int,
    data: str | None,
    root: str,
    options: RunOptions,
    policy: AskedPolicy | None,
) -> None:
    """Run FILE, a machine document or the name of a shipped machine. `dsa run --policy NAME TEXT` runs a policy instead.

    SPECIFICATION is what the workflow is asked for, in a sentence. It may be left out when no task of a step asks for it, or
    when the machine has cases and no steps: then it is to make the cases' calls work. Exit code 0: succeeded; 1: failed; 3: a person is needed;
    2: FILE cannot be read or bound; 130: interrupted.
    """
    file = file if policy is None else POLICY
    document = machine_document(file)
    machine = load(file if document == locate(file) else str(document)).at(dict(options.parameters))
    asked: object = policy
    if policy is None:
        asked = asked_for(machine, specification) if data is None else start_data(machine, specification, data)
    console = terminal()
    performed = Start(Document(machine, read_text(document), document), asked, Path(root), seed).run(
        options, console, is_model_told=True
    )
    tell(performed, console, json_wanted=options.json_wanted)
    sys.exit(exit_code(performed.rest))


def machine_document(file: str) -> Path:
    """Give the path of the machine's own document: FILE's, or that of the machine which FILE, a spec, is about."""
    path = locate(file)
    named = machine_of(read_text(path), file)
    return path if named is None else locate(named[0], path.parent)


@attrs.frozen
class Start:
    """A run to be started: a document, what its first event brings (None: nothing), where it is kept, its seed.

    `data` may be a policy that is asked: then it brings the request.
    """

    document: Document
    data: Any
    root: Path
    seed: int

    def run(self, options: RunOptions, console: Console, *, is_model_told: bool = False) -> Performed:
        """Run the document while its progress is shown. Raises Ended when there is no model, and at Ctrl-C.

        `is_model_told`: print which model is taken when none was chosen.
        """
        machine, watching = self.document.machine, options.watching
        run_id = new_run_id(machine.name)
        directory = self.root / run_id
        with (
            faults_told(self.root, lambda: directory if directory.is_dir() else None),
            progress_of(machine, console, self.root, quiet=options.shows_nothing) as progress,
            ExitStack() as opened,
        ):
            watchers = list[Watched]()

            def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
                if moment.number == 1:
                    note_run(directory)
                progress.on_moment(moment, is_new)

            async def begin(runs: Runs) -> RunHandle:
                setup = runs.setup(self.document, self._options(options))
                for note in (*setup.binding.notes, *(_model_note(setup.binding, options) if is_model_told else ())):
                    say(note, err=True)
                watched = opened.enter_context(watching.watched(setup.binding.secrets))  # a module may name more
                watched.note(*self._noted())
                watchers.append(watched)
                first = first_event(machine, self._brought(setup.binding))
                handle = runs.begin(setup, run_id=run_id, on_moment=watched.observing(on_moment))
                handle.start(*first)
                return handle

            performed = perform(partial(open_runs, self.root), begin, options.wait_s)
            watchers[0].rested(performed.rest)
            return performed

    def _options(self, options: RunOptions) -> Options:
        config = self.data.config if isinstance(self.data, AskedPolicy) else {}
        chosen = options.watching.chosen
        return Options(options.module, options.model, self.seed, budget=options.budget, chosen=chosen, config=config)

    def _noted(self) -> tuple[str, object]:
        """Return what is searched for secrets, and its name."""
        return ("TEXT", self.data.text) if isinstance(self.data, AskedPolicy) else ("the specification", self.data)

    def _brought(self, binding: Bindings) -> object:
        """Return the data of the first event. Raises BindingError for a policy that is not there."""
        if not isinstance(self.data, AskedPolicy):
            return self.data
        data = request(self.data.policy, {"text": self.data.text}, binding.policies)
        require_policy(data, binding)
        return data


def _model_note(binding: Bindings, options: RunOptions) -> Iterator[str]:
    """Say which model is asked when nobody has chosen one."""
    if options.model is None and any(isinstance(each, LocalGenerator) for each in binding.generators.values()):
        yield f"model: {DEFAULT_MODEL}, the built-in one; --model takes another"


def start_data(machine: Machine, specification: str | None, written: str) -> Any:  # noqa: ANN401  (JSON)
    """Return what a run's first event brings. Raises click.UsageError for a SPECIFICATION beside it, and where no event brings it."""
    if specification is not None:
        raise click.UsageError("SPECIFICATION and --data are two ways to say the same: give one")
    data = read_data(written)
    try:
        first_event(machine, data)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from fault
    return data


def asked_for(machine: Machine, given: str | None) -> str | None:
    """Return the specification: what the command line says, else what the machine does with; None for a machine that takes none.

    Raises click.UsageError when the machine takes none, when it needs one, and for what is no text.
    """
    if given is None or not given.strip():
        return default_specification(machine) or None
    if not takes_specification(machine):
        raise click.UsageError(f"{machine.name} has no event '{SPECIFICATION}' from outside: it takes no SPECIFICATION")
    return require_text(given, "SPECIFICATION")


def default_specification(machine: Machine) -> str:
    """Give what to ask for when the command line does not say.

    Nothing, when every prompt does without; of a machine without steps, the functions that its cases call. Raises
    click.UsageError when there is nothing to go by.
    """
    if not takes_specification(machine) or not _needs_specification(machine):
        return ""
    calls = [case.call for section in machine.cases for case in section.cases]
    if not calls or machine.steps:
        raise click.UsageError(f"{machine.name} needs a SPECIFICATION: say in a sentence what is to be made")
    return f"Write Python code so that these calls work: {'; '.join(dict.fromkeys(calls))}"


def _needs_specification(machine: Machine) -> bool:
    tasks = {step.name: step.task for step in machine.steps}
    tasks |= {prompt.name: prompt.task for prompt in machine.prompts if prompt.task}
    return not tasks or any(not task or SPECIFICATION in placeholders(task) for task in tasks.values())
