"""`dsa new NAME`: a starter document. `dsa new --scenarios FILE`: scenarios for the rows that none takes yet."""

from pathlib import Path

import click

from dsa.checks.scenarios import scenarios_for_untaken_rows
from dsa.cli.command_line import say
from dsa.edge.document_files import load, read_text
from dsa.lang import format_document, scenario_text
from dsa.lang.expression_parser import KEYWORDS, NAME


@click.command("new")
@click.argument("name")
@click.option("--steps", is_flag=True, help="Start from a Steps table instead of transitions.")
@click.option(
    "--scenarios",
    is_flag=True,
    help="Write no document. Instead, read the document NAME, and print new scenarios for its rows that no scenario takes yet.",
)
def command(name: str, *, steps: bool, scenarios: bool) -> None:
    """Write a starter document NAME.md in this folder, ready for `dsa check` and `dsa run`."""
    if scenarios and steps:
        raise click.UsageError("--steps is for a new document, --scenarios for one that exists")
    if scenarios:
        _print_scenarios(name)
        return
    name = name.removesuffix(".md")
    if not NAME.fullmatch(name) or set(name.split(".")) & KEYWORDS:
        raise click.UsageError(
            f"'{name}' is not a valid name: use letters, digits and '_', and do not start with a digit"
        )
    path = Path(f"{name}.md")
    starter = Path(__file__).with_name("new_steps.md" if steps else "new_transitions.md")
    text = format_document(read_text(starter).format(name=name))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as fault:
        raise click.UsageError(f"{path} exists already; nothing was written") from fault
    say(f"wrote {path}; next: dsa check {path}")


def _print_scenarios(file: str) -> None:
    machine = load(file)
    new_scenarios = scenarios_for_untaken_rows(machine)
    for scenario in new_scenarios:
        say(f"## Scenario: {scenario.name}\n{scenario_text(scenario)}\n")
    if not new_scenarios:
        say("every row that can be taken is taken by a scenario", err=True)
