"""The command `dsa undo RUN`, and the diff of `dsa show RUN --diff`: the changes of a run in its workspace.

The history of the workspace is in the run's folder; that of a part is in the folder of the whole run. Undo leaves files alone that have been changed
since, and names them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from dsa.cli.command_line import CommandExit, json_option, say, show_line
from dsa.cli.run_options import exit_on_faults, find, runs_option
from dsa.edge.sandbox.command_sandbox import stop
from dsa.errors import DsaError
from dsa.runs.door import Runs
from dsa.runs.place import PART_OF, is_on_server
from dsa.runs.runs import open_runs
from dsa.runtime.ledger import Entry, Ledger, MachineEntry, RowEntry
from machines.coding.coding_work import Work
from machines.coding.history import Conflict, UndoResult, WorkspaceHistory
from machines.coding.tools.command_runner import alone
from machines.coding.tools.workspace_boundary import RECORDS, shown_path
from machines.coding.work_session import EXIT
from machines.coding.workspace_view import outcome_of, work_with_parts
from machines.tool_use.machine_session import files_folder
from machines.tool_use.records import as_data, read_record

_SHORT = 12
#: The time that an undo waits for calls of other runs in the workspace, in seconds.
_WAIT_S = 30.0


def diff(runs: Runs, run_id: str) -> str:
    """Return the changes of a run in the form of `git diff`. Raises DsaError when the history is missing."""
    work, history = _work_and_history(runs, run_id)
    return "".join(history.diff(first, last) for first, last in work.spans) if history else ""


def undo_run(runs: Runs, run_id: str) -> list[UndoResult]:
    """Undo the changes of a run, the last one first. Raises DsaError when the history or the workspace is missing, or another run works there."""
    work, history = _work_and_history(runs, run_id)
    if history is None:
        return []
    # Otherwise a command of another run could see a half-restored workspace.
    with stop() as never, alone(history.root, never, _WAIT_S):
        return [history.undo(first, last, work.new_files) for first, last in reversed(work.spans)]


def _work_and_history(runs: Runs, run_id: str) -> tuple[Work, WorkspaceHistory | None]:
    """Return the work, and its history if it changed something, also in an interrupted call unless the run is under way."""
    work = _work(runs, run_id)
    if not work.spans and not work.under_way:
        return work, None
    history = _history_of(runs, run_id)
    for key in () if _is_under_way(runs, run_id) else work.under_way:
        call = history.interrupted_call(key)
        if call is not None and call.before != call.after:
            work.span(call.before, call.after)
            work.new_files.update(call.new_paths)
    return work, history


def _is_under_way(runs: Runs, run_id: str) -> bool:
    """Return whether a process holds a run, or the whole run of a part."""
    return any(runs.stored_run(name).holder is not None for name in (run_id, run_id.partition(PART_OF)[0]))


def _work(runs: Runs, run_id: str) -> Work:
    entries = runs.stored_run(run_id).entries
    first = entries[0]
    if not isinstance(first, MachineEntry) or first.name != "coding":
        raise DsaError("this is not a run of the coding machine")
    return work_with_parts(entries, runs, run_id)


def _history_of(runs: Runs, run_id: str) -> WorkspaceHistory:
    start = _start(runs, run_id)
    folder = files_folder(runs, start.part_of or run_id)  # the whole run has the history of its parts
    if not (folder / "history").is_dir():
        hint = (
            "; the history is where the run's worker was started, so type this command there"
            if is_on_server(runs.where)
            else ""
        )
        raise DsaError(f"{folder}: there is no history of the run's changes{hint}")
    workspace = Path(start.workspace)
    if not workspace.is_dir():
        raise DsaError(f"{workspace}: the run's workspace is missing")
    history = WorkspaceHistory(folder / "history", workspace)
    history.progress = show_line
    return history


@click.command("undo")
@click.argument("run")
@json_option
@runs_option
def command(run: str, root: str, *, json_wanted: bool) -> None:
    """Undo the changes of a coding RUN in its workspace.

    If somebody has changed a file after the run did, the file is left alone, and listed. Exit code 0: all changes were undone; 1: not all.
    """
    with exit_on_faults(Path(root)), open_runs(root, must_exist=True) as runs:
        run = find(runs.ids(), run, Path(root))
        if _is_under_way(runs, run):
            raise CommandExit(f"run {run.partition(PART_OF)[0]} is under way: stop it first", 1)
        work, results = _work(runs, run), undo_run(runs, run)
        stays = _records(runs, run)
        unkept = _history_of(runs, run).unkept(work.spans[-1][1]) if work.spans else ""
        is_over = _is_over(runs.stored_run(run).entries)
    report = _report(run, results, unkept, stays)
    if json_wanted:
        say(json.dumps(as_data(report)))
    else:
        _show(report)
        for call in work.calls:
            if call.tool == "git_commit" and call.status == "done":
                say(
                    f"the commit {str(outcome_of(call.result).commit)[:_SHORT]} stays: undo restores files, not git's history"
                )
        if not is_over:
            say("the run is not over: if you resume it, it does not know about this undo", err=True)
    raise SystemExit(1 if report.left_alone else 0)


@attrs.frozen
class UndoReport:
    """The result of an undo, with paths of files. `unkept` says what the history lacks; `stays` names the files for people, which remain."""

    run: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    left_alone: tuple[Conflict, ...]
    unkept: str
    stays: tuple[str, ...]


def _report(run: str, results: Sequence[UndoResult], unkept: str, stays: Sequence[str]) -> UndoReport:
    """Return the report of an undo, over all spans."""
    restored_paths = tuple(path for undo in results for path in undo.restored_paths)
    removed_paths = tuple(path for undo in results for path in undo.removed_paths)
    left_alone = tuple(each for undo in results for each in undo.conflicts)
    return UndoReport(run, restored_paths, removed_paths, left_alone, unkept, tuple(stays))


def _show(report: UndoReport) -> None:
    """Print the report of an undo."""
    for name, paths in (("restored", report.restored), ("removed", report.removed)):
        for path in paths:
            say(f"{name}: {shown_path(path)}")
    for each in report.left_alone:
        say(shown_path(f"left alone: {each.path} ({each.reason})"))
    if not (report.restored or report.removed or report.left_alone):
        say(f"run {report.run} has no file to restore")
    if report.unkept:
        say(shown_path(report.unkept))
    if report.stays:
        say(
            f"not removed: {', '.join(report.stays)}; they describe the last run here for people, and no program needs them"
        )


def _records(runs: Runs, run_id: str) -> list[str]:
    """Return the names of the records for people that exist in the workspace."""
    workspace = Path(_start(runs, run_id).workspace)
    return [name for name in RECORDS if os.path.lexists(workspace / name)]


@attrs.frozen
class _Start:
    """The settings that an undo needs: the workspace of a run, and the whole run of a part."""

    workspace: str
    part_of: str = ""


def _start(runs: Runs, run_id: str) -> _Start:
    first = runs.stored_run(run_id).entries[0]
    assert isinstance(first, MachineEntry), "a run of the coding machine"
    return read_record(_Start, dict(first.started)["config"])


def _is_over(entries: Ledger[Entry]) -> bool:
    last = next((entry.target for entry in reversed(entries) if isinstance(entry, RowEntry)), "")
    return last in EXIT
