"""`dsa resume RUN`: go on after a crash, a stop, an interruption, or with a word about effects in doubt."""

import sys
from pathlib import Path

import click

from dsa.cli.console import terminal
from dsa.cli.displays import resuming_of
from dsa.cli.driving import Manner, Said, go_on
from dsa.cli.kept import line, opened, recorded_run, runs_option, told_record
from dsa.cli.outcome import tell
from dsa.cli.run_json import RunCommand, exit_code
from dsa.cli.run_options import RunOptions, run_options
from dsa.cli.runner import Performed
from dsa.cli.terminal import say
from dsa.cli.timeline import to_do
from dsa.cli.watching import watching_options
from dsa.runs.folder import accepted_artifacts
from dsa.runs.place import PART_OF
from dsa.runs.record import RunRecord
from dsa.runs.wholes import driving_run
from dsa.runtime.call_tree import POLICY
from dsa.runtime.ledger import Handling
from dsa.runtime.rest import Rest


@click.command("resume", cls=RunCommand)
@click.argument("run")
@runs_option
@click.option("--retry", "retried", multiple=True, metavar="KEY", help="This effect in doubt has not happened: do it.")
@click.option("--done", "done", multiple=True, metavar="KEY", help="This effect in doubt has happened.")
@click.option("--fail", "failed", multiple=True, metavar="KEY", help="This effect in doubt has failed.")
@click.option("--take", is_flag=True, help="Take the run from a process that is alive and holds it.")
@click.option(
    "--machine",
    metavar="FILE",
    help="Go on under this document from now on, if `dsa diff` calls the run compatible with it.",
)
@watching_options
@run_options
def command(
    run: str,
    root: str,
    *,
    retried: tuple[str, ...],
    done: tuple[str, ...],
    failed: tuple[str, ...],
    take: bool,
    machine: str | None,
    options: RunOptions,
) -> None:
    """Go on with RUN where it was cut off, where a failure stopped it, or where an effect is in doubt.

    RUN is an id, a part of one, or `last`. It is bound as it was started. KEY is an effect's key as `dsa show` has it.
    KEY/PATH is a call that its policy had under way. Exit codes as of `dsa run`. A conversation and the work on a goal go on as in `dsa chat` and
    `dsa code`, with their exit codes, unless --json is given; an end of the work has the same exit code with it.
    """
    folder, recorded = Path(root), recorded_run(Path(root), run)
    given: dict[Handling, tuple[str, ...]] = {"retry": retried, "done": done, "fail": failed}
    record = told_record(folder, recorded)
    decided = _decided(record, folder, given)
    record = record if decided else _whole(record, folder)
    is_part = PART_OF in record.run.run_id
    own = None if options.json_wanted or is_part else resuming_of(record.first.name)
    changes = bool(decided or machine or options.parameters)
    if own is not None and not changes and record.standing.kind not in {"finished", "in doubt"}:
        sys.exit(own(record.run.run_id, folder, options, take=take))
    if record.standing.kind == "finished" and not decided:
        performed = _told(record, folder, json_wanted=options.json_wanted)
    else:
        is_told = options.shows_nothing or decided or record.first.name == POLICY  # whose calls are told one by one
        for _, what in () if is_told else to_do(record):
            say(f"going on with {what}")
        performed = go_on(record, folder, Said(decided=decided), Manner(options, take, machine))
        if own is not None and performed.rest.kind == "waiting":  # what was said of it holds, and people talk on
            sys.exit(own(record.run.run_id, folder, options, take=take))
        tell(performed, terminal(), json_wanted=options.json_wanted)
    sys.exit(exit_code(performed.rest))


def _whole(record: RunRecord, root: Path) -> RunRecord:
    """Return the run that has to be driven so that a run goes on; say so where that is another one."""
    run_id = record.run.run_id
    with opened(root) as runs:
        whole = driving_run(runs, run_id)
    if whole == run_id:
        return record
    say(f"{run_id} is a part of {whole}, which goes on with it", err=True)
    return told_record(root, recorded_run(root, whole))


def _told(record: RunRecord, root: Path, *, json_wanted: bool) -> Performed:
    """Say that a run is over; give what became of it."""
    performed = finished(record, root)
    if json_wanted:
        tell(performed, terminal(), json_wanted=True)
    else:
        say(f"run {record.run.run_id} is finished: {record.run.outcome}")
    return performed


def finished(record: RunRecord, root: Path) -> Performed:
    """Give what became of a run that is over: nothing is done."""
    directory = root / record.run.run_id
    with opened(root) as runs:
        accepted = tuple(accepted_artifacts(record.run, runs.artifacts(record.run.run_id)))
    final = next(iter(sorted(directory.glob("final.*"))), None)
    diagram = directory / "diagram.svg"
    rest = Rest("finished", record.run, accepted=accepted)
    return Performed(rest, directory, final, diagram if diagram.exists() else None, 0.0)


def _decided(record: RunRecord, root: Path, given: dict[Handling, tuple[str, ...]]) -> dict[str, Handling]:
    """Give what is said of effects in doubt by their keys. Raises UsageError for what cannot be said."""
    found: dict[str, Handling] = {}
    for handling, keys in given.items():
        for key in keys:
            if key in found:
                raise click.UsageError(f"{key} is decided twice")
            found[key] = handling
            if handling == "done":
                _require_no_answers(record, root, key)
    return found


def _require_no_answers(record: RunRecord, root: Path, key: str) -> None:
    """Raise UsageError for an effect with answers: which of them it gave must be said."""
    flying = next((each for each in record.standing.left.in_flight if each.intent.key == key), None)
    answers = () if flying is None else record.run.machine.answers.get(flying.intent.effect, ())
    if flying is not None and answers:
        event = answers[0] if len(answers) == 1 else "EVENT"
        way = line("send", root / record.run.run_id, event, "--answers", key)
        which = "" if len(answers) == 1 else f", EVENT one of {', '.join(answers)}"
        raise click.UsageError(f"{flying.intent.effect} {key} has answers: say which it gave, with `{way}`{which}")
