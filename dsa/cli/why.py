"""`dsa why EVENT --in STATE FILE`: why an event is accepted or refused in a state."""

from typing import Any, cast

import click

from dsa.checks.explanation import Explanation, ValuationCase, why
from dsa.checks.places import RowView, line_of
from dsa.cli.command_line import JsonCommand, json_option, param_option, parse_parameters, say, tell_json
from dsa.edge.document_files import load
from dsa.expr import Outcome


@click.command("why", cls=JsonCommand)
@click.argument("event")
@click.argument("file")
@click.option("--in", "state", required=True, metavar="STATE", help="The state that the event comes in.")
@click.option(
    "--given", multiple=True, metavar="NAME=VALUE", help="A variable's value, or a guard's verdict; repeatable."
)
@param_option("A parameter's value.")
@json_option
def command(
    event: str, file: str, state: str, given: tuple[str, ...], parameters: tuple[str, ...], *, json_wanted: bool
) -> None:
    """Say for each case which row takes EVENT in a state, and which conjuncts are false."""
    machine = load(file).at(parse_parameters(parameters))
    known = parse_parameters(given, "--given")
    verdicts = {name: cast(Outcome, value) for name, value in known.items() if name in machine.guard_named}
    values = {name: value for name, value in known.items() if name not in verdicts}
    found = why(machine, event, state, values, verdicts)
    if json_wanted:
        tell_json({"file": file, "machine": machine.name, "parameters": machine.constants, **_as_json(found)})
    else:
        say(found.show())


def _as_json(found: Explanation) -> dict[str, Any]:
    return {
        "event": found.event,
        "state": found.state,
        "decided_by": found.source,
        "final": found.is_finished,
        "accepted": list(found.accepted),
        "complete": found.complete,
        "cases": [_case(case) for case in found.cases],
    }


def _case(case: ValuationCase) -> dict[str, Any]:
    return {
        "verdicts": dict(case.verdicts),
        "values": dict(case.values),
        "count": case.count,
        "outcome": case.outcome,
        "message": case.message or None,
        "rows": [_row(view) for view in case.rows],
    }


def _row(view: RowView) -> dict[str, Any]:
    return {
        "line": line_of(view.row) or None,
        "row": str(view.row),
        "enabled": view.is_enabled,
        "conjuncts": [{"text": text, "true": true} for text, true in view.conjuncts],
    }
