"""`dsa why EVENT --in STATE FILE`: the reasons why an event is accepted or refused in a state."""

from typing import cast

import click

from dsa.checks.explanation import Explanation, ValuationCase, why
from dsa.checks.places import RowView, line_of
from dsa.cli.command_line import JsonCommand, json_option, param_option, parse_parameters, print_json, say
from dsa.edge.document_files import load
from dsa.expr import Outcome


@click.command("why", cls=JsonCommand)
@click.argument("event")
@click.argument("file")
@click.option(
    "--in", "state", required=True, metavar="STATE", help="The state that the machine is in when the event comes."
)
@click.option(
    "--given",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable's value, or a guard's verdict; repeatable.",
)
@param_option("A parameter's value.")
@json_option
def command(
    event: str, file: str, state: str, assignments: tuple[str, ...], parameters: tuple[str, ...], *, json_wanted: bool
) -> None:
    """For each combination of values and verdicts, show which row is taken when EVENT comes in a state, and why the other rows are not."""
    machine = load(file).at(parse_parameters(parameters))
    values_by_name = parse_parameters(assignments, "--given")
    verdicts = {name: cast(Outcome, value) for name, value in values_by_name.items() if name in machine.guard_named}
    values = {name: value for name, value in values_by_name.items() if name not in verdicts}
    explanation = why(machine, event, state, values, verdicts)
    if json_wanted:
        print_json({"file": file, "machine": machine.name, "parameters": machine.constants, **_as_json(explanation)})
    else:
        say(explanation.show())


def _as_json(explanation: Explanation) -> dict[str, object]:
    return {
        "event": explanation.event,
        "state": explanation.state,
        "decided_by": explanation.source,
        "final": explanation.is_finished,
        "accepted": list(explanation.accepted),
        "complete": explanation.complete,
        "cases": [_case(case) for case in explanation.cases],
    }


def _case(case: ValuationCase) -> dict[str, object]:
    return {
        "verdicts": dict(case.verdicts),
        "values": dict(case.values),
        "count": case.count,
        "outcome": case.outcome,
        "message": case.message or None,
        "rows": [_row(view) for view in case.rows],
    }


def _row(view: RowView) -> dict[str, object]:
    return {
        "line": line_of(view.row) or None,
        "row": str(view.row),
        "enabled": view.is_enabled,
        "conjuncts": [{"text": text, "true": true} for text, true in view.conjuncts],
    }
