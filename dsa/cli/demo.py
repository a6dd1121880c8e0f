"""`dsa demo`: run the shipped katas with a real model, and compare how each ends with how it should end."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from dsa.cli.command_line import JsonCommand, print_json
from dsa.cli.ledger_view import terminal
from dsa.cli.run import RunRequest, default_specification
from dsa.cli.run_options import RunOptions, run_options, runs_option, watching_options
from dsa.cli.run_view import FinishedRun, finished_report, headline, show
from dsa.edge.document_files import load, locate, read_text
from dsa.runs.setup import MachineDocument

#: The documents, each with its expected outcome and what it shows.
DEMO_RUNS = (
    ("katas/katas", "succeeded", "small functions: some pass at once, some need retries"),
    ("katas/exhausted", "failed", "a function that this model cannot write: the retries run out"),
)


@click.command("demo", cls=JsonCommand)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts and attempts.")
@runs_option
@watching_options
@run_options
def command(seed: int, root: str, options: RunOptions) -> None:
    """Run the shipped katas. Exit code 0: each kata ended as its document says it should; 1: not."""
    console, finished_runs = terminal(), list[FinishedRun]()
    for name, expected_outcome, shows in DEMO_RUNS:
        machine = load(name).at(dict(options.parameters))
        if not options.json_wanted:
            announcement = f" {shows}; the expected outcome is: {expected_outcome}"
            console.print(Text.assemble((f"{machine.name}:", "bold"), announcement), soft_wrap=True)
        document = MachineDocument(machine, read_text(locate(name)), locate(name))
        finished_runs.append(
            RunRequest(document, default_specification(machine), Path(root), seed).run(options, console)
        )
        if not options.json_wanted:
            _show(finished_runs[-1], expected_outcome, console)
        if finished_runs[-1].rest.kind == "stopped":
            break  # without a model the next one would stop, too
    outcomes = [finished_run.rest.outcome for finished_run in finished_runs]
    code = int(outcomes != [expected_outcome for _, expected_outcome, _ in DEMO_RUNS])
    if options.json_wanted:
        print_json({"runs": [finished_report(each).to_json() for each in finished_runs], "exit_code": code})
    sys.exit(code)


def _show(finished_run: FinishedRun, expected_outcome: str, console: Console) -> None:
    """Print how a run ended, and a warning if that is not the expected outcome."""
    show(finished_run, console)
    if finished_run.rest.outcome != expected_outcome:
        message = f"expected: {expected_outcome}; it ended: {headline(finished_run.rest)}"
        console.print(Text(message, "bold red"), soft_wrap=True)
    console.print()
