"""`dsa send RUN EVENT [DATA]`: hand a waiting run an event from outside, or say what an effect in doubt was answered with."""

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from dsa.cli.driving import Manner, Said, go_on
from dsa.cli.faults import UNREADABLE, Ended, JsonCommand
from dsa.cli.kept import Kept, kept_of, recorded_run, runs_option
from dsa.cli.model import model_named
from dsa.cli.outcome import exit_code, tell
from dsa.cli.terminal import terminal
from dsa.cli.timeline import refusal_text
from dsa.cli.watching import Watching, watching_options
from dsa.declarations import OUTSIDE
from dsa.edge.deciding import doubted_in
from dsa.meaning import Occurrence
from dsa.runtime.policies import ACTION_RESULT, TEXT, Step, action_result_step, text_step
from dsa.runtime.timeline import full_key, refused_from_outside
from dsa.words import closest


@click.command("send", cls=JsonCommand)
@click.argument("run")
@click.argument("event")
@click.argument("data", required=False)
@runs_option
@click.option("--json-data", "json_data", metavar="JSON", help="The event's data as JSON, in place of DATA, a text.")
@click.option(
    "--answers",
    "key",
    metavar="KEY",
    help="EVENT is what this effect in doubt was answered with, or the type of the step that this call gave.",
)
@click.option("--take", is_flag=True, help="Take the run from a process that is alive and holds it.")
@click.option("--model", callback=model_named, help="Another model than the run was started with.")
@click.option("--with", "module", metavar="MODULE", help="Another module than the run was started with.")
@watching_options
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(
    run: str,
    event: str,
    data: str | None,
    root: str,
    json_data: str | None,
    key: str | None,
    *,
    take: bool,
    model: str | None,
    module: str | None,
    json_wanted: bool,
    quiet: bool,
    watching: Watching,
) -> None:
    """Send RUN the event EVENT with DATA, and go on with it.

    RUN is an id, a part of one, or `last`. Exit codes as of `dsa run`; 1 also when the event is refused, 2 when the machine has no such event.
    """
    folder, occurrence = Path(root), Occurrence(event, data=_data(data, json_data))
    recorded = recorded_run(folder, run)
    kept = kept_of(folder, recorded)
    said = Said(sent=(occurrence,)) if key is None else Said(answers=_answer(kept, key, occurrence))
    if key is None:
        _require_known(kept, event, answering=False)
    if kept.standing.kind == "finished":
        raise Ended(f"run {kept.run.run_id} is finished ({kept.run.outcome}): it takes no more events", 1)
    performed = go_on(kept, folder, said, Manner(model, module, take, quiet or json_wanted, watching=watching))
    refused = refused_from_outside(performed.rest.run, len(kept.recorded.entries))
    for each in refused:
        click.echo(f"{each.event.event} in {each.state} was {refusal_text(each.refusal)}", err=True)
    if performed.rest.in_doubt and not key:
        click.echo(f"{event} was not sent: first it has to be said what became of what is in doubt", err=True)
    tell(performed, terminal(), json_wanted=json_wanted, refused=refused)
    sys.exit(exit_code(performed.rest, refused))


def _data(text: str | None, written: str | None) -> Any:  # noqa: ANN401  (JSON)
    """Give the event's data. Raises UsageError for two of them, and for what is no JSON or no text."""
    if text is not None and written is not None:
        raise click.UsageError("DATA and --json-data are two ways to say the same: give one")
    try:
        (text or written or "").encode("utf-8")
    except UnicodeEncodeError as fault:  # bytes of the command line that are no characters
        raise click.UsageError("the data is not UTF-8 text") from fault
    if written is None:
        return text
    try:
        return json.loads(written, parse_constant=_refuse)
    except (ValueError, RecursionError) as fault:
        raise click.UsageError(f"--json-data is not JSON: {fault}") from fault


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _answer(kept: Kept, key: str, said: Occurrence) -> dict[str, Occurrence | Step]:
    """Return what is said of an effect in doubt, an event, or of a call in it, a step. Raises UsageError and Ended."""
    whole = full_key(kept.run.run_id, key)
    call = doubted_in(kept.standing.left).get(whole)
    if call is None:
        _require_known(kept, said.event, answering=True)
        return {whole: said}
    if said.event == TEXT and isinstance(said.data, str):
        return {whole: text_step(call.policy, said.data)}
    if said.event == ACTION_RESULT and isinstance(said.data, dict):
        return {whole: action_result_step(call.policy, said.data)}
    forms = f"`{TEXT} \"..\"` or `{ACTION_RESULT} --json-data '{{..}}'`"
    raise click.UsageError(f"what a call gave is written {forms}")


def _require_known(kept: Kept, event: str, *, answering: bool) -> None:
    """Raise Ended with the event that was probably meant, when the machine has none of that name."""
    machine = kept.run.machine
    if event not in machine.event_named:
        meant = [each.name for each in machine.events if answering or each.origin == OUTSIDE]
        raise Ended(f"{machine.name} has no event '{event}'; {closest(event, meant)}", UNREADABLE)
