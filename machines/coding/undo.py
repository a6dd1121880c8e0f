"""`dsa undo RUN`, and what `dsa show RUN --diff` shows: what a run has changed in its workspace.

Takes runs and the id of one. The history of its workspace lies in the run's folder; a part's lies in that of the whole. What somebody else has changed meanwhile is left alone, and told.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from dsa.cli.command_line import CommandExit, json_option, say, show_line
from dsa.cli.run_options import faults_told, find, runs_option
from dsa.edge.sandbox.command_sandbox import stop
from dsa.errors import DsaError
from dsa.runs.place import PART_OF
from dsa.runs.runs import Runs, open_runs
from dsa.runtime.ledger import Entry, Ledger, MachineEntry, RowEntry
from machines.coding.coding_work import Work
from machines.coding.history import Conflict, Undone, WorkspaceHistory
from machines.coding.tools.command_runner import alone
from machines.coding.tools.workspace_paths import RECORDS, shown_path
from machines.coding.work_session import EXIT
from machines.coding.workspace_view import gathered, outcome_of
from machines.tool_use.records import as_data, read_record

_SHORT = 12
#: How long an undo waits for calls of other runs in the workspace, in seconds.
_WAIT_S = 30.0


def diff(runs: Runs, run_id: str) -> str:
    """Return what a run has changed, as `git diff` writes it. Raises DsaError where the history is not there."""
    work, history = _changed(runs, run_id)
    return "".join(history.diff(first, last) for first, last in work.spans) if history else ""


def undone(runs: Runs, run_id: str) -> list[Undone]:
    """Put back what a run has changed, the last change first. Raises DsaError where the history or the workspace is not there, or another run works in it."""
    work, history = _changed(runs, run_id)
    if history is None:
        return []
    # A command of another run would take what is half put back for its own.
    with stop() as never, alone(history.root, never, _WAIT_S):
        return [history.undo(first, last, work.made) for first, last in reversed(work.spans)]


def _changed(runs: Runs, run_id: str) -> tuple[Work, WorkspaceHistory | None]:
    """Return the work, and the history where it has changed something: also by a call that was cut off, unless the run goes on."""
    work = _work(runs, run_id)
    if not work.spans and not work.under_way:
        return work, None
    history = _opened(runs, run_id)
    for key in () if _goes_on(runs, run_id) else work.under_way:
        call = history.cut_off(key)
        if call is not None and call.before != call.after:
            work.span(call.before, call.after)
            work.made.update(call.made)
    return work, history


def _goes_on(runs: Runs, run_id: str) -> bool:
    """Return whether somebody works at a run, or at the whole that it is a part of."""
    return any(runs.recorded(name).holder is not None for name in (run_id, run_id.partition(PART_OF)[0]))


def _work(runs: Runs, run_id: str) -> Work:
    entries = runs.recorded(run_id).entries
    first = entries[0]
    if not isinstance(first, MachineEntry) or first.name != "coding":
        raise DsaError("this is no run of the coding machine")
    return gathered(entries, runs, run_id)


def _opened(runs: Runs, run_id: str) -> WorkspaceHistory:
    assert runs.root is not None, "it is kept in a folder"
    start = _start(runs, run_id)
    folder = runs.root / (start.part_of or run_id)  # of all parts the whole keeps it
    if not (folder / "history").is_dir():
        raise DsaError(f"{folder}: nothing is kept here of what the run has changed")
    workspace = Path(start.workspace)
    if not workspace.is_dir():
        raise DsaError(f"{workspace}: the run's workspace is not there")
    history = WorkspaceHistory(folder / "history", workspace)
    history.progress = show_line
    return history


@click.command("undo")
@click.argument("run")
@json_option
@runs_option
def command(run: str, root: str, *, json_wanted: bool) -> None:
    """Put back what a coding RUN has changed in its workspace.

    A file that somebody has changed since is left alone, and named. Exit code 0: all was put back; 1: not all of it.
    """
    with faults_told(Path(root)), open_runs(root, must_exist=True) as runs:
        run = find(runs.ids(), run, Path(root))
        if _goes_on(runs, run):
            raise CommandExit(f"run {run.partition(PART_OF)[0]} goes on: stop it first", 1)
        work, done = _work(runs, run), undone(runs, run)
        stays = _records(runs, run)
        unkept = _opened(runs, run).unkept(work.spans[-1][1]) if work.spans else ""
        is_over = _is_over(runs.recorded(run).entries)
    told = _told(run, done, unkept, stays)
    if json_wanted:
        say(json.dumps(as_data(told)))
    else:
        _show(told)
        for call in work.calls:
            if call.tool == "git_commit" and call.status == "done":
                say(
                    f"the commit {str(outcome_of(call.result).commit)[:_SHORT]} stays: undo puts back files, git its own history"
                )
        if not is_over:
            say("the run is not over: where it is taken up, it does not know that this was undone", err=True)
    raise SystemExit(1 if told.left_alone else 0)


@attrs.frozen
class UndoReport:
    """What an undo of a run has done: files by their paths. `unkept` says what the history lacks, `stays` names what is for people."""

    run: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    left_alone: tuple[Conflict, ...]
    unkept: str
    stays: tuple[str, ...]


def _told(run: str, done: Sequence[Undone], unkept: str, stays: Sequence[str]) -> UndoReport:
    """Return what was undone, of all spans together."""
    restored = tuple(path for undo in done for path in undo.restored)
    removed = tuple(path for undo in done for path in undo.removed)
    left_alone = tuple(each for undo in done for each in undo.conflicts)
    return UndoReport(run, restored, removed, left_alone, unkept, tuple(stays))


def _show(told: UndoReport) -> None:
    """Print what was undone, and what was not."""
    for name, paths in (("restored", told.restored), ("removed", told.removed)):
        for path in paths:
            say(f"{name}: {shown_path(path)}")
    for each in told.left_alone:
        say(shown_path(f"left alone: {each.path} ({each.reason})"))
    if not (told.restored or told.removed or told.left_alone):
        say(f"run {told.run} has left no file to put back")
    if told.unkept:
        say(shown_path(told.unkept))
    if told.stays:
        say(f"stays: {', '.join(told.stays)}, which say for people what the last run here has done; nothing needs them")


def _records(runs: Runs, run_id: str) -> list[str]:
    """Name what runs have written for people in the workspace, as far as it is there."""
    workspace = Path(_start(runs, run_id).workspace)
    return [name for name in RECORDS if os.path.lexists(workspace / name)]


@attrs.frozen
class _Start:
    """What a run was started with, as far as an undo has to know it: where it works, and the whole that it is a part of."""

    workspace: str
    part_of: str = ""


def _start(runs: Runs, run_id: str) -> _Start:
    first = runs.recorded(run_id).entries[0]
    assert isinstance(first, MachineEntry), "a run of the coding machine"
    return read_record(_Start, dict(first.started)["config"])


def _is_over(entries: Ledger[Entry]) -> bool:
    last = next((entry.target for entry in reversed(entries) if isinstance(entry, RowEntry)), "")
    return last in EXIT
