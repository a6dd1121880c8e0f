"""`dsa run FILE [SPECIFICATION]`: run a machine with a model, every attempt checked by its guard and kept."""

import sys
from pathlib import Path

import click
from rich.console import Console

from dsa.cli.live import Progress
from dsa.cli.outcome import as_json, exit_code, show
from dsa.cli.parameters import parse_parameters
from dsa.edge.binding import DEFAULT_MODEL, bind
from dsa.edge.files import load, locate, read_text
from dsa.edge.running import Performed, perform, takes_specification
from dsa.edge.runs import DEFAULT_RUNS
from dsa.errors import GenerationError
from dsa.machine import Machine
from dsa.runtime.prompt import SPECIFICATION, placeholders

INTERRUPTED = 1


@click.command("run")
@click.argument("file")
@click.argument("specification", required=False)
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="local, scripted:FILE, or a LiteLLM name.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Set a parameter, such as rmax=5.")
@click.option("--runs", "root", default=DEFAULT_RUNS, show_default=True, help="Where runs are kept.")
@click.option("--with", "module", metavar="MODULE", help="Bind names with this module, not bindings.py beside FILE.")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(
    file: str,
    specification: str | None,
    model: str,
    seed: int,
    parameters: tuple[str, ...],
    root: str,
    module: str | None,
    *,
    json_wanted: bool,
    quiet: bool,
) -> None:
    """Run FILE, a machine document or the name of a shipped machine.

    SPECIFICATION is what the workflow is asked for. Exit code 0: succeeded; 1: failed; 3: a person is needed;
    2: FILE cannot be read or bound.
    """
    machine = load(file).at(parse_parameters(parameters))
    specification = specification if specification is not None else default_specification(machine)
    path = locate(file)
    performed = run_with_model(
        machine,
        path,
        specification,
        model=model,
        seed=seed,
        root=Path(root),
        module=module,
        console=Console(),
        quiet=quiet or json_wanted,
    )
    if json_wanted:
        click.echo(as_json(performed))
    else:
        show(performed, Console())
    sys.exit(exit_code(performed.rest))


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
    quiet: bool = False,
) -> Performed:
    """Bind a machine and run it while its progress is shown. Exits 1 with one sentence when there is no model."""
    try:
        binding = bind(machine, path=path, module=module, model=model, seed=seed)
        with Progress(machine, console, quiet=quiet) as progress:
            return perform(machine, read_text(path), binding, specification, root=root, observe=progress.observe)
    except GenerationError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo(f"interrupted; what was done so far is kept in {root}", err=True)
        sys.exit(INTERRUPTED)


def default_specification(machine: Machine) -> str:
    """Give what to ask for when the command line does not say.

    Nothing, when every prompt does without; else the functions that the cases call. Raises click.UsageError when
    there is nothing to go by.
    """
    if not takes_specification(machine) or not _needs_specification(machine):
        return ""
    calls = [case.call for section in machine.cases for case in section.cases]
    if not calls:
        msg = f"{machine.name} needs a SPECIFICATION: say in a sentence what is to be made"
        raise click.UsageError(msg)
    return f"Write Python code so that these calls work: {'; '.join(dict.fromkeys(calls))}"


def _needs_specification(machine: Machine) -> bool:
    tasks = {step.name: step.task for step in machine.steps}
    tasks |= {prompt.name: prompt.task for prompt in machine.prompts if prompt.task}
    return not tasks or any(not task or SPECIFICATION in placeholders(task) for task in tasks.values())
