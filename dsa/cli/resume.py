"""`dsa resume RUN`: go on after a crash, a stop, an interruption, or with a word about effects in doubt."""

import sys
from pathlib import Path

import click

from dsa.cli.changing import machine_option
from dsa.cli.driving import Manner, Said, go_on
from dsa.cli.faults import JsonCommand
from dsa.cli.kept import Kept, budget_option, kept_of, line, recorded_run, runs_option
from dsa.cli.model import model_named
from dsa.cli.outcome import exit_code, tell
from dsa.cli.runner import Performed
from dsa.cli.terminal import say, terminal
from dsa.cli.watching import Watching, watching_options
from dsa.runs.folder import accepted_artifacts
from dsa.runs.place import open_artifacts
from dsa.runtime.ledger import Handling
from dsa.runtime.rest import Rest
from dsa.runtime.timeline import full_key


@click.command("resume", cls=JsonCommand)
@click.argument("run")
@runs_option
@click.option("--retry", "retried", multiple=True, metavar="KEY", help="This effect in doubt has not happened: do it.")
@click.option("--done", "done", multiple=True, metavar="KEY", help="This effect in doubt has happened.")
@click.option("--fail", "failed", multiple=True, metavar="KEY", help="This effect in doubt has failed.")
@click.option("--take", is_flag=True, help="Take the run from a process that is alive and holds it.")
@click.option("--model", callback=model_named, help="Another model than the run was started with.")
@click.option("--with", "module", metavar="MODULE", help="Another module than the run was started with.")
@machine_option
@budget_option
@watching_options
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(
    run: str,
    root: str,
    retried: tuple[str, ...],
    done: tuple[str, ...],
    failed: tuple[str, ...],
    budget: tuple[str, ...],
    *,
    take: bool,
    model: str | None,
    module: str | None,
    machine: str | None,
    json_wanted: bool,
    quiet: bool,
    watching: Watching,
) -> None:
    """Go on with RUN where it was cut off, where a failure stopped it, or where an effect is in doubt.

    RUN is an id, a part of one, or `last`. It is bound as it was started. KEY is an effect's key as `dsa show` has it.
    KEY/PATH is a call that its policy had under way. Exit codes as of `dsa run`.
    """
    folder, recorded = Path(root), recorded_run(Path(root), run)
    given: dict[Handling, tuple[str, ...]] = {"retry": retried, "done": done, "fail": failed}
    kept = kept_of(folder, recorded)
    decided = _decided(kept, folder, given)
    if kept.standing.kind == "finished" and not decided:
        performed = _told(kept, folder, json_wanted=json_wanted)
    else:
        manner = Manner(model, module, take, quiet or json_wanted, budget, watching, machine)
        performed = go_on(kept, folder, Said(decided=decided), manner)
        tell(performed, terminal(), json_wanted=json_wanted)
    sys.exit(exit_code(performed.rest))


def _told(kept: Kept, root: Path, *, json_wanted: bool) -> Performed:
    """Say that a run is over; give what became of it."""
    performed = finished(kept, root)
    if json_wanted:
        tell(performed, terminal(), json_wanted=True)
    else:
        say(f"run {kept.run.run_id} is finished: {kept.run.outcome}")
    return performed


def finished(kept: Kept, root: Path) -> Performed:
    """Give what became of a run that is over: nothing is done."""
    directory = root / kept.run.run_id
    accepted = tuple(accepted_artifacts(kept.run, open_artifacts(root, kept.run.run_id)))
    final = next(iter(sorted(directory.glob("final.*"))), None)
    diagram = directory / "diagram.svg"
    rest = Rest("finished", kept.run, accepted=accepted)
    return Performed(rest, directory, final, diagram if diagram.exists() else None, 0.0)


def _decided(kept: Kept, root: Path, given: dict[Handling, tuple[str, ...]]) -> dict[str, Handling]:
    """Give what is said of effects in doubt by their full keys. Raises UsageError for what cannot be said."""
    found: dict[str, Handling] = {}
    for handling, keys in given.items():
        for key in keys:
            whole = full_key(kept.run.run_id, key)
            if whole in found:
                raise click.UsageError(f"{key} is decided twice")
            found[whole] = handling
            if handling == "done":
                _require_no_answers(kept, root, key)
    return found


def _require_no_answers(kept: Kept, root: Path, key: str) -> None:
    """Raise UsageError for an effect with answers: which of them it gave must be said."""
    whole = full_key(kept.run.run_id, key)
    flying = next((each for each in kept.standing.left.in_flight if each.intent.key == whole), None)
    answers = () if flying is None else kept.run.machine.answers.get(flying.intent.effect, ())
    if flying is not None and answers:
        event = answers[0] if len(answers) == 1 else "EVENT"
        way = line("send", root / kept.run.run_id, event, "--answers", key)
        which = "" if len(answers) == 1 else f", EVENT one of {', '.join(answers)}"
        raise click.UsageError(f"{flying.intent.effect} {key} has answers: say which it gave, with `{way}`{which}")
