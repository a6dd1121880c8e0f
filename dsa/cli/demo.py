"""`dsa demo`: the shipped katas with a real model; says how each document should end, and whether it did."""

import sys
from pathlib import Path

import click
from rich.text import Text

from dsa.cli.model import model_named
from dsa.cli.outcome import headline, show
from dsa.cli.run import run_with_model
from dsa.cli.terminal import terminal
from dsa.cli.watching import Watching, watching_options
from dsa.edge.files import load, locate
from dsa.runs.bindings import DEFAULT_MODEL
from dsa.runs.place import DEFAULT_RUNS

#: Each document, how it should end, and what it shows.
SHOWN = (
    ("katas/katas", "succeeded", "small functions: some pass at once, some need retries"),
    ("katas/exhausted", "failed", "a function that this model cannot write: the retries run out"),
)


@click.command("demo")
@click.option(
    "--model",
    default=DEFAULT_MODEL,
    callback=model_named,
    show_default=True,
    help="local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts and attempts.")
@click.option("--runs", "root", default=DEFAULT_RUNS, show_default=True, help="Where runs are kept.")
@watching_options
def command(model: str, seed: int, root: str, *, watching: Watching) -> None:
    """Run the shipped katas. Exit code 0 when each document ended as announced, else 1."""
    console = terminal()
    as_announced = True
    for name, expected, shows in SHOWN:
        machine = load(name)
        announced = f" {shows}; this should end: {expected}"
        console.print(Text.assemble((f"{machine.name}:", "bold"), announced), soft_wrap=True)
        path, folder = locate(name), Path(root)
        performed = run_with_model(
            machine, path, "", model=model, seed=seed, root=folder, console=console, watching=watching
        )
        show(performed, console)
        ended = performed.rest.kind == "finished" and performed.rest.run.outcome == expected
        if not ended:
            told = f"announced: {expected}; it ended: {headline(performed.rest)}"
            console.print(Text(told, "bold red"), soft_wrap=True)
        as_announced &= ended
        console.print()
        if performed.rest.kind == "stopped":
            break  # without a model the other one has nothing to show either
    sys.exit(0 if as_announced else 1)
