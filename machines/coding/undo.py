"""`dsa undo RUN`, and what `dsa show RUN --diff` shows: what a run has changed in its workspace.

Takes a run's ledger and the history of its workspace that lies in the run's folder; a part's lies in that of the whole. What somebody else has changed meanwhile is left alone, and told.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from dsa.cli.faults import Ended
from dsa.cli.kept import faults_told, recorded_run, runs_option
from dsa.edge.sandbox.commands import stop
from dsa.errors import DsaError
from dsa.runs.folder import PART_OF
from dsa.runs.place import open_store
from dsa.runtime.ledger import Entry, MachineEntry, RowEntry
from machines.coding.gathering import gathered
from machines.coding.history import History, Undone
from machines.coding.session import EXIT
from machines.coding.tools.exclusive import alone
from machines.coding.tools.paths import shown
from machines.coding.work import Work

_SHORT = 12
#: How long an undo waits for calls of other runs in the workspace, in seconds.
_WAIT_S = 30.0


def diff(entries: Iterable[Entry], folder: Path) -> str:
    """Give what a run has changed, as `git diff` writes it; `folder` is the run's own. Raises DsaError where the history is not there."""
    work, history = _changed(tuple(entries), folder)
    return "".join(history.diff(first, last) for first, last in work.spans) if history else ""


def undone(entries: Iterable[Entry], folder: Path) -> list[Undone]:
    """Put back what a run has changed, the last change first. Raises DsaError where the history or the workspace is not there, or another run works in it."""
    work, history = _changed(tuple(entries), folder)
    if history is None:
        return []
    with (
        stop() as never,
        alone(history.root, never, _WAIT_S),
    ):  # a command of another run would take what is half put back for its own
        return [history.undo(first, last, work.made) for first, last in reversed(work.spans)]


def _changed(entries: Sequence[Entry], folder: Path) -> tuple[Work, History | None]:
    """Give the work, and the history where it has changed something: also by a call that was cut off, unless the run goes on."""
    work = _work(entries, folder)
    if not work.spans and not work.under_way:
        return work, None
    history = _opened(entries, folder)
    with open_store(folder.parent, must_exist=True) as store:
        goes_on = store.read(folder.name.partition(PART_OF)[0]).holder is not None
    for key in () if goes_on else work.under_way:
        call = history.cut_off(key)
        if call is not None and call.before != call.after:
            work.span(call.before, call.after)
            work.made.update(call.made)
    return work, history


def _work(entries: Sequence[Entry], folder: Path) -> Work:
    first = entries[0]
    if not isinstance(first, MachineEntry) or first.name != "coding":
        raise DsaError("this is no run of the coding machine")
    return gathered(entries, folder.parent, folder.name)


def _opened(entries: Sequence[Entry], folder: Path) -> History:
    first = entries[0]
    assert isinstance(first, MachineEntry), "a run of the coding machine"
    config: Any = dict(first.started)["config"]
    folder = folder.parent / config.get("part_of", folder.name)  # of all parts the whole keeps it
    if not (folder / "history").is_dir():
        raise DsaError(f"{folder}: nothing is kept here of what the run has changed")
    workspace = Path(config["workspace"])
    if not workspace.is_dir():
        raise DsaError(f"{workspace}: the run's workspace is not there")
    return History(folder / "history", workspace)


@click.command("undo")
@click.argument("run")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
@runs_option
def command(run: str, root: str, *, json_wanted: bool) -> None:
    """Put back what a coding RUN has changed in its workspace.

    A file that somebody has changed since is left alone, and named. Exit code 0: all was put back; 1: not all of it.
    """
    runs = Path(root)
    recorded = recorded_run(runs, run)
    whole = recorded.run.partition(PART_OF)[0]
    if recorded.holder is not None or recorded_run(runs, whole).holder is not None:
        raise Ended(f"run {whole} goes on: stop it first", 1)
    with faults_told(runs):
        entries, folder = tuple(recorded.entries), runs / recorded.run
        work, done = _work(entries, folder), undone(entries, folder)
    commits = [
        call.result["commit"][:_SHORT] for call in work.calls if call.tool == "git_commit" and call.status == "done"
    ]
    conflicts = [each for undo in done for each in undo.conflicts]
    restored = [path for undo in done for path in undo.restored]
    removed = [path for undo in done for path in undo.removed]
    if json_wanted:
        left = [{"path": each.path, "reason": each.reason} for each in conflicts]
        click.echo(json.dumps({"run": recorded.run, "restored": restored, "removed": removed, "left_alone": left}))
    else:
        for text, paths in (("restored", restored), ("removed", removed)):
            for path in paths:
                click.echo(f"{text}: {shown(path)}")
        for each in conflicts:
            click.echo(shown(f"left alone: {each.path} ({each.reason})"))
        if not (conflicts or restored or removed):
            click.echo(f"run {recorded.run} has left no file to put back")
        for commit in commits:
            click.echo(f"the commit {commit} stays: undo puts back files, git its own history")
        if not _is_over(entries):
            click.echo("the run is not over: where it is taken up, it does not know that this was undone", err=True)
    raise SystemExit(1 if conflicts else 0)


def _is_over(entries: Sequence[Entry]) -> bool:
    last = next((entry.target for entry in reversed(entries) if isinstance(entry, RowEntry)), "")
    return last in EXIT
