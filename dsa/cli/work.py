"""`dsa work`: take up runs that were cut off, that have a timer due, or that have a message in their inbox."""

import json
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from dsa.cli.command_line import JsonCommand, json_option, say
from dsa.cli.run_options import (
    RunWatchers,
    WatchOptions,
    budget_option,
    exit_on_faults,
    read_model,
    runs_option,
    shell_command,
    watching_options,
)
from dsa.cli.run_view import RunReport, headline, rest_report
from dsa.edge.event_loop import run_to_end
from dsa.edge.processes import environment_secrets
from dsa.runs.runs import TakeUp, open_runs
from dsa.runs.setup import Options
from dsa.runtime.run_store import RunSummary
from dsa.text import plural


@attrs.frozen
class WorkPrinter:
    """The printer of a worker: a line for each run of a folder that the worker takes up."""

    root: Path
    json_wanted: bool
    quiet: bool

    def tell(self, taken: TakeUp) -> None:
        """Print a line."""
        if self.json_wanted:
            say(json.dumps(self._report(taken).to_json()))
        elif taken.rest is None:
            say(f"{taken.run}  not taken up: {taken.fault}", err=True)
        elif not self.quiet:
            say(f"{taken.run}  {headline(taken.rest)}")

    def tell_doubts(self, summaries: Sequence[RunSummary]) -> None:
        """Print how many runs are in doubt, and how to look at the first."""
        if summaries and not self.quiet:
            first = shell_command("show", self.root / summaries[0].run)
            count = plural(len(summaries), "run")
            say(f"{count} in doubt: a person has to say what happened; look at the first with `{first}`", err=True)

    def _report(self, taken: TakeUp) -> RunReport:
        folder = self.root / taken.run
        if taken.rest is not None:
            return rest_report(taken.rest, folder, 0.0)
        failure = {"what": None, "line": None, "code": "stopped", "message": taken.fault}
        return RunReport("unreadable", 1, folder=folder, failure=failure)


@click.command("work", cls=JsonCommand)
@click.argument("folders", metavar="[FOLDER]...", nargs=-1)
@runs_option
@click.option("--once", is_flag=True, help="Take up the runs that are due now, then exit; useful with cron.")
@click.option(
    "--machine", metavar="NAME", help="Only runs of this machine. This option cannot be used with a Temporal server."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Drive at most this many runs at the same time. On Temporal: perform at most this many effects at the same time.",
)
@watching_options
@click.option("--model", callback=read_model, help="Use this model instead of the one that each run was started with.")
@click.option(
    "--with",
    "module",
    metavar="MODULE",
    help="The Python module with the code of effects and guards. MODULE is its name or its file.",
)
@budget_option
@json_option
@click.option("--quiet", is_flag=True, help="Print only faults.")
def command(
    folders: tuple[str, ...],
    *,
    root: str,
    once: bool,
    machine: str | None,
    limit: int,
    watch_options: WatchOptions,
    model: str | None,
    module: str | None,
    budget: tuple[str, ...],
    json_wanted: bool,
    quiet: bool,
) -> None:
    """Continue the runs that are due, each until it rests. A run is due if it was cut off, if a timer is due, or if its inbox has a message.

    Any number of workers may share a folder of runs. Documents and modules are loaded only from the FOLDERs (by default the current one) and from
    installed packages. A run that a person has interrupted is left alone; `dsa resume` goes on with it. On Temporal, a worker drives runs and performs
    their effects until you stop it. Exit code 1 with --once: a run could not be taken up.
    """
    options = Options(module, model, budget=budget, secret_options=watch_options.secret_options)
    printer, faults = WorkPrinter(Path(root), json_wanted, quiet), list[TakeUp]()

    async def whole(watchers: RunWatchers) -> None:
        async with open_runs(root) as runs:
            readable_folders = [Path(folder) for folder in folders or (".",)]
            worker = runs.worker(machine=machine, at_once=limit, options=options, folders=readable_folders)
            worker.on_span = watchers.on_span
            worker.on_begin = lambda text: None if quiet else say(text, err=True)
            async for taken in worker.take_up(once=once):
                printer.tell(taken)
                faults.extend([taken] if taken.rest is None else [])
            printer.tell_doubts(await runs.list(status="in doubt", machine=machine))

    secrets = environment_secrets(watch_options.secret_options)
    with exit_on_faults(Path(root)), watch_options.watch(secrets) as watchers:
        run_to_end(whole(watchers))
    if faults:
        raise SystemExit(1)
