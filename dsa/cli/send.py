"""`dsa send RUN EVENT [DATA]`: hand a waiting run an event from outside, or say what an effect in doubt was answered with."""

import sys
from pathlib import Path
from typing import Any

import click

from dsa.cli.console import terminal
from dsa.cli.driving import Manner, Said, go_on
from dsa.cli.faults import UNREADABLE, Ended
from dsa.cli.kept import recorded_run, runs_option, told_record
from dsa.cli.outcome import tell
from dsa.cli.parameters import read_data, require_text
from dsa.cli.run_json import RunCommand, exit_code
from dsa.cli.run_options import RunOptions, run_options
from dsa.cli.timeline import refusal_text
from dsa.cli.watching import watching_options
from dsa.declarations import OUTSIDE
from dsa.edge.deciding import doubted_in
from dsa.meaning import Occurrence
from dsa.runs.record import RunRecord
from dsa.runtime.policies import ACTION_RESULT, TEXT, Step, action_result_step, text_step
from dsa.runtime.standing import places
from dsa.runtime.timeline import refused_from_outside
from dsa.words import closest


@click.command("send", cls=RunCommand)
@click.argument("run")
@click.argument("event")
@click.argument("text", required=False, metavar="[DATA]")
@runs_option
@click.option("--data", metavar="DATA", help="What the event brings, in place of DATA, a text: JSON, or a text.")
@click.option(
    "--answers",
    "key",
    metavar="KEY",
    help="EVENT is what this effect in doubt was answered with, or the type of the step that this call gave.",
)
@click.option("--take", is_flag=True, help="Take the run from a process that is alive and holds it.")
@watching_options
@run_options
def command(
    run: str,
    event: str,
    text: str | None,
    *,
    root: str,
    data: str | None,
    key: str | None,
    take: bool,
    options: RunOptions,
) -> None:
    """Send RUN the event EVENT with DATA, and go on with it.

    RUN is an id, a part of one, or `last`. RUN@PLACE names the question that this answers: once the run asks something else, the event is refused as
    late. Without a place it answers what the run asks now. Exit codes as of `dsa run`; 1 also when the event is refused, 2 when the machine has no
    such event.
    """
    folder, (run, _, place) = Path(root), run.partition("@")
    recorded = recorded_run(folder, run)
    occurrence = Occurrence(event, data=_data(text, data))
    record = told_record(folder, recorded)
    at = place or places(record.run).get(event)
    said = Said(sent=(occurrence,), at=at) if key is None else Said(answers={key: _answer(record, key, occurrence)})
    if key is None:
        _require_known(record, event, answering=False)
    if record.standing.kind == "finished":
        raise Ended(f"run {record.run.run_id} is finished ({record.run.outcome}): it takes no more events", 1)
    performed = go_on(record, folder, said, Manner(options, take))
    refused = refused_from_outside(performed.rest.run, len(record.recorded.entries))
    for each in refused:
        click.echo(f"{each.event.event} in {each.state} was {refusal_text(each.refusal)}", err=True)
    if performed.rest.in_doubt and not key:
        click.echo(f"{event} was not sent: first it has to be said what became of what is in doubt", err=True)
    tell(performed, terminal(), json_wanted=options.json_wanted, refused=refused)
    sys.exit(exit_code(performed.rest, refused))


def _data(text: str | None, written: str | None) -> Any:  # noqa: ANN401  (JSON)
    """Return the event's data. Raises UsageError for two of them, and for what is neither JSON nor text."""
    if text is not None and written is not None:
        raise click.UsageError("DATA and --data are two ways to say the same: give one")
    if written is not None:
        return read_data(written)
    return None if text is None else require_text(text, "DATA")


def _answer(record: RunRecord, key: str, said: Occurrence) -> Occurrence | Step:
    """Return what is said of an effect in doubt, an event, or of a call in it, a step. Raises UsageError and Ended."""
    call = doubted_in(record.standing.left).get(key)
    if call is None:
        _require_known(record, said.event, answering=True)
        return said
    if said.event == TEXT and isinstance(said.data, str):
        return text_step(call.policy, said.data)
    if said.event == ACTION_RESULT and isinstance(said.data, dict):
        return action_result_step(call.policy, said.data)
    forms = f"`{TEXT} \"..\"` or `{ACTION_RESULT} --data '{{..}}'`"
    raise click.UsageError(f"what a call gave is written {forms}")


def _require_known(record: RunRecord, event: str, *, answering: bool) -> None:
    """Raise Ended with the event that was probably meant, when the machine has none of that name."""
    machine = record.run.machine
    if event not in machine.event_named:
        meant = [each.name for each in machine.events if answering or each.origin == OUTSIDE]
        raise Ended(f"{machine.name} has no event '{event}'; {closest(event, meant)}", UNREADABLE)
