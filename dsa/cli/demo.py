"""`dsa demo`: the shipped katas with a real model; says how each document should end, and whether it did."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from dsa.cli.command_line import JsonCommand, tell_json
from dsa.cli.ledger_view import terminal
from dsa.cli.run import RunRequest, default_specification
from dsa.cli.run_options import RunOptions, run_options, runs_option, watching_options
from dsa.cli.run_view import FinishedRun, headline, performed_report, show
from dsa.edge.document_files import load, locate, read_text
from dsa.runs.setup import MachineDocument

#: Each document, how it should end, and what it shows.
SHOWN = (
    ("katas/katas", "succeeded", "small functions: some pass at once, some need retries"),
    ("katas/exhausted", "failed", "a function that this model cannot write: the retries run out"),
)


@click.command("demo", cls=JsonCommand)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts and attempts.")
@runs_option
@watching_options
@run_options
def command(seed: int, root: str, options: RunOptions) -> None:
    """Run the shipped katas. Exit code 0 when each document ended as announced, else 1."""
    console, ended = terminal(), list[FinishedRun]()
    for name, expected, shows in SHOWN:
        machine = load(name).at(dict(options.parameters))
        if not options.json_wanted:
            announced = f" {shows}; this should end: {expected}"
            console.print(Text.assemble((f"{machine.name}:", "bold"), announced), soft_wrap=True)
        document = MachineDocument(machine, read_text(locate(name)), locate(name))
        ended.append(RunRequest(document, default_specification(machine), Path(root), seed).run(options, console))
        if not options.json_wanted:
            _show(ended[-1], expected, console)
        if ended[-1].rest.kind == "stopped":
            break  # without a model the other one has nothing to show either
    outcomes = [performed.rest.outcome for performed in ended]
    code = int(outcomes != [expected for _, expected, _ in SHOWN])
    if options.json_wanted:
        tell_json({"runs": [performed_report(each).to_json() for each in ended], "exit_code": code})
    sys.exit(code)


def _show(performed: FinishedRun, expected: str, console: Console) -> None:
    """Print how a run ended, and that it should have ended otherwise if so."""
    show(performed, console)
    if performed.rest.outcome != expected:
        told = f"announced: {expected}; it ended: {headline(performed.rest)}"
        console.print(Text(told, "bold red"), soft_wrap=True)
    console.print()
