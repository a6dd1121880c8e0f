"""`dsa run FILE [SPECIFICATION]`: run a machine with a model, every attempt checked by its guard and kept.

`dsa run --policy NAME TEXT` runs a policy instead (`dsa.cli.policy_option`).
"""

import sys
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from dsa.cli.displays import progress_of
from dsa.cli.faults import JsonCommand
from dsa.cli.kept import budget_option, faults_told
from dsa.cli.model import model_named
from dsa.cli.outcome import exit_code, tell
from dsa.cli.parameters import parse_parameters
from dsa.cli.policy_option import AskedPolicy, or_policy, require_text
from dsa.cli.runner import Performed, perform
from dsa.cli.terminal import terminal
from dsa.cli.watching import Watching, watching_options
from dsa.edge.environment import environment_secrets
from dsa.edge.files import load, locate, read_text
from dsa.lang import machine_of
from dsa.machine import Machine
from dsa.runs.bindings import DEFAULT_MODEL
from dsa.runs.document import Document, first_event, takes_specification
from dsa.runs.folder import new_run_id
from dsa.runs.handle import RunHandle
from dsa.runs.one_policy import request, require_policy
from dsa.runs.place import DEFAULT_RUNS
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import Options
from dsa.runtime.call_tree import POLICY
from dsa.runtime.prompt import SPECIFICATION, placeholders


@click.command("run", cls=JsonCommand)
@click.argument("file", required=False, metavar="FILE")
@click.argument("specification", required=False)
@click.option(
    "--model",
    default=DEFAULT_MODEL,
    callback=model_named,
    show_default=True,
    help="local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Set a parameter, such as rmax=5.")
@click.option("--runs", "root", default=DEFAULT_RUNS, show_default=True, help="Where runs are kept.")
@click.option("--with", "module", metavar="MODULE", help="Bind names with this module, not bindings.py beside FILE.")
@budget_option
@watching_options
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@or_policy
def command(
    file: str,
    specification: str | None,
    model: str,
    seed: int,
    parameters: tuple[str, ...],
    root: str,
    module: str | None,
    budget: tuple[str, ...],
    *,
    json_wanted: bool,
    quiet: bool,
    watching: Watching,
    asked: AskedPolicy | None,
) -> None:
    """Run FILE, a machine document or the name of a shipped machine. `dsa run --policy NAME TEXT` runs a policy instead.

    SPECIFICATION is what the workflow is asked for, in a sentence. It may be left out when no task of a step asks for it, or
    when the machine has cases and no steps: then it is to make the cases' calls work. Exit code 0: succeeded; 1: failed; 3: a person is needed;
    2: FILE cannot be read or bound; 130: interrupted.
    """
    file = file if asked is None else POLICY
    document = machine_document(file)
    machine = load(file if document == locate(file) else str(document)).at(parse_parameters(parameters))
    console = terminal()
    performed = run_with_model(
        machine,
        document,
        asked_for(machine, specification) if asked is None else asked.text,
        model=model,
        seed=seed,
        root=Path(root),
        module=module,
        budget=budget,
        console=console,
        quiet=quiet or json_wanted,
        watching=watching,
        asked=asked,
    )
    tell(performed, console, json_wanted=json_wanted)
    sys.exit(exit_code(performed.rest))


def machine_document(file: str) -> Path:
    """Give the path of the machine's own document: FILE's, or that of the machine which FILE, a spec, is about."""
    path = locate(file)
    named = machine_of(read_text(path), file)
    return path if named is None else locate(named[0], path.parent)


def run_with_model(
    machine: Machine,
    path: Path,
    specification: str,
    *,
    model: str,
    seed: int,
    root: Path,
    console: Console,
    module: str | None = None,
    budget: tuple[str, ...] = (),
    quiet: bool = False,
    watching: Watching | None = None,
    asked: AskedPolicy | None = None,
) -> Performed:
    """Bind a machine and run it while its progress is shown. Raises Ended when there is no model, and at Ctrl-C."""
    run_id, watching = new_run_id(machine.name), watching or Watching()
    directory, text = root / run_id, read_text(path)
    with (
        faults_told(root, lambda: directory if directory.is_dir() else None),
        watching.watched(environment_secrets(watching.chosen)) as watched,
        progress_of(machine, console, quiet=quiet or watching.is_logging) as progress,
    ):
        watched.note("the specification" if asked is None else "TEXT", specification)
        options = Options(
            module, model, seed, budget=budget, chosen=watching.chosen, config=asked.config if asked else {}
        )

        async def begin(runs: Runs) -> RunHandle:
            setup = runs.setup(Document(machine, text, path), options)
            for note in setup.binding.notes:
                click.echo(note, err=True)
            data: object = specification or None
            if asked is not None:
                data = request(asked.policy, {"text": asked.text}, setup.binding.policies)
                require_policy(machine, data, setup.binding.policies)
            handle = runs.begin(setup, run_id=run_id, on_moment=watched.observing(progress.on_moment))
            handle.start(*first_event(machine, data))
            return handle

        performed = perform(partial(open_runs, root), begin)
        watched.rested(performed.rest)
        return performed


def asked_for(machine: Machine, given: str | None) -> str:
    """Give the specification: what the command line says, else what the machine does with.

    Raises click.UsageError when the machine takes none, when it needs one, and for what is no text.
    """
    if given is None or not given.strip():
        return default_specification(machine)
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
        msg = f"{machine.name} needs a SPECIFICATION: say in a sentence what is to be made"
        raise click.UsageError(msg)
    return f"Write Python code so that these calls work: {'; '.join(dict.fromkeys(calls))}"


def _needs_specification(machine: Machine) -> bool:
    tasks = {step.name: step.task for step in machine.steps}
    tasks |= {prompt.name: prompt.task for prompt in machine.prompts if prompt.task}
    return not tasks or any(not task or SPECIFICATION in placeholders(task) for task in tasks.values())
