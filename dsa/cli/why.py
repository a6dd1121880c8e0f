"""`dsa why EVENT --in STATE FILE`: why an event is accepted or refused in a state."""

import click

from dsa.checks.why import why
from dsa.cli.parameters import parse_parameters
from dsa.edge.files import load
from dsa.errors import OccurrenceError
from dsa.expr import OUTCOMES, Outcome, Value


@click.command("why")
@click.argument("event")
@click.argument("file")
@click.option("--in", "state", required=True, metavar="STATE", help="The state that the event comes in.")
@click.option("--with", "known", multiple=True, metavar="NAME=VALUE", help="A variable's value, or a guard's verdict.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter's value.")
def command(event: str, file: str, state: str, known: tuple[str, ...], parameters: tuple[str, ...]) -> None:
    """Say for each case which row takes EVENT in a state, and which conjuncts are false."""
    machine = load(file).at(parse_parameters(parameters))
    given = parse_parameters(known, "--with")
    verdicts = {name: _outcome(name, value) for name, value in given.items() if name in machine.guard_named}
    values = {name: value for name, value in given.items() if name not in verdicts}
    click.echo(why(machine, event, state, values, verdicts).show())


def _outcome(guard: str, value: Value) -> Outcome:
    if value not in OUTCOMES:
        raise OccurrenceError(f"'{guard}={value}' is no verdict; write {guard}=passed, failed or fatal")
    return value
