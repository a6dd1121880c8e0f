"""`dsa show RUN`: the story of a run and how it stands, or the run as a scenario, as percepts and actions, as a tree of attempts, as JSON."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.command_line import EXIT_UNREADABLE, CommandExit, print_json, say
from dsa.cli.ledger_view import story, terminal
from dsa.cli.run import display_of
from dsa.cli.run_options import exit_on_faults, machine_record, open_run_folder, recorded_run, runs_option
from dsa.cli.run_view import JsonRunCommand, RunReport, recorded_report, story_lines
from dsa.declarations import Scenario
from dsa.edge.document_files import read_text
from dsa.expr import Value
from dsa.lang import loads, scenario_text
from dsa.machine import Machine, show_used, used_in
from dsa.runs.archive import RunRecord, text_of
from dsa.runs.machine_extension import MachineExtension, extension_of
from dsa.runs.place import ERRORS, is_on_server
from dsa.runs.runs import open_runs
from dsa.runtime.artifacts import AttemptRecord, short_id, tree_of_attempts
from dsa.runtime.costs import counters
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.run_store import StoredRun
from dsa.runtime.timeline import Moment, Percept, percepts
from dsa.testing.suites import as_scenario
from dsa.text import shorten
from dsa.trace import escape_cell, show_occurrence, show_values, table_lines


@click.command("show", cls=JsonRunCommand)
@click.argument("run")
@runs_option
@click.option(
    "--as-scenario",
    "form",
    flag_value="scenario",
    help="Print the run as a scenario to paste into the spec of its machine.",
)
@click.option("--percepts", "form", flag_value="percepts", help="Print a table of what the run perceived and did.")
@click.option(
    "--provenance",
    "form",
    flag_value="provenance",
    help="Print the tree of attempts: which attempt refines which, and the feedback on each.",
)
@click.option(
    "--counters",
    "form",
    flag_value="counters",
    help="Count events, effects, refusals (by reason), and answers of models that were malformed but could still be read.",
)
@click.option(
    "--transcript",
    "form",
    flag_value="transcript",
    help="Print a conversation or a coding run as it was shown while it ran.",
)
@click.option("--diff", "form", flag_value="diff", help="Print the changes of a coding run to its workspace.")
@click.option("--errors", "form", flag_value="errors", help="Print the exceptions of your code, with tracebacks.")
@click.option("--jsonl", "form", flag_value="jsonl", help="Print the ledger, one entry per line, as JSON.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="NUMBER",
    help="Print only the entries after entry NUMBER.",
)
@click.option("--json", "json_wanted", is_flag=True, help="Print the run's status and results as one JSON object.")
def command(run: str, root: str, form: str | None, after: int, *, json_wanted: bool) -> None:
    """Show what happened in RUN, event by event, and its status.

    The status says what RUN waits for, which effects are in doubt (nobody knows whether they happened), and how to settle that.

    RUN is an id, a part of one, or `last`.
    """
    if form and json_wanted:
        raise click.UsageError("--json cannot be combined with another option that chooses what is printed")
    if after and (json_wanted or form not in {None, "jsonl"}):
        raise click.UsageError("--after works only with the default output or with --jsonl")
    folder = Path(root)
    stored_run = recorded_run(folder, run)
    if json_wanted:
        print_json(_report(folder, stored_run).to_json())
    elif form is None:
        with exit_on_faults(folder):
            record = machine_record(stored_run)
        with open_run_folder(folder) as runs:
            summary = runs.summary(stored_run.run).at(runs.now_ms())
            wanted_worker = asyncio.run(runs.wanted_worker(stored_run.run))
        for line in story(record, folder, summary, after=after):
            say(line)
        if summary.queue:
            say(f"queue  {summary.queue}")
        if wanted_worker:
            say(f"the run waits for {wanted_worker}")
    else:
        for line in _lines(stored_run, folder, form, after):
            say(line)


def _report(root: Path, stored_run: StoredRun) -> RunReport:
    """Return the report of a run."""
    with open_run_folder(root) as runs:
        return recorded_report(runs, machine_record(stored_run))


def _lines(stored_run: StoredRun, root: Path, form: str | None, after: int) -> Iterator[str]:
    """Yield the lines of a form."""
    if form == "jsonl":
        yield from story_lines(stored_run, after)
    elif form == "provenance":
        with open_run_folder(root) as runs:
            attempts = runs.artifacts(stored_run.run).attempts()
        yield from provenance_lines(attempts)
    elif form == "counters":
        yield from counter_lines(stored_run)
    elif form == "diff":
        with exit_on_faults(root):
            yield from diff_lines(stored_run, root)
    elif form == "transcript":
        _show(stored_run, root)
    elif form == "errors":
        if is_on_server(root):
            raise CommandExit(
                "a Temporal server stores no tracebacks; a worker prints the tracebacks of its effects if you start it with `dsa work --log debug`",
                EXIT_UNREADABLE,
            )
        yield from error_lines(root / stored_run.run)
    else:
        with exit_on_faults(root):
            record = machine_record(stored_run)
        yield from scenario_lines(record) if form == "scenario" else percept_lines(record)


def error_lines(folder: Path) -> Iterator[str]:
    """Yield the tracebacks of users' code that a run's folder has."""
    path = folder / ERRORS
    yield from (read_text(path).splitlines() if path.exists() else ["your code has raised no exceptions"])


def counter_lines(stored_run: StoredRun) -> Iterator[str]:
    """Yield the numbers of a ledger, one a line; those of the machine's own come last."""
    numbers_by_kind: dict[str, Any] = dict(counters(stored_run.entries))
    own = _extension(stored_run)
    if own.counters is not None:
        numbers_by_kind[own.name] = own.counters(stored_run.entries)
    for kind, numbers in numbers_by_kind.items():
        yield f"{kind}:"
        yield from _number_lines(numbers)


def diff_lines(stored_run: StoredRun, root: Path) -> Iterator[str]:
    """Yield the changes that a run has made outside, by its machine's own `diff`. Raises CommandExit for a machine without one."""
    diff = _extension(stored_run).diff
    if diff is None:
        raise CommandExit(f"run {stored_run.run} has no diff: only runs of `dsa code` have one", EXIT_UNREADABLE)
    with open_runs(root, must_exist=True) as runs:
        yield from diff(runs, stored_run.run).splitlines() or ["nothing was changed"]


def _show(stored_run: StoredRun, root: Path) -> None:
    """Show a run in its machine's display, as while it went on. Raises CommandExit for a machine without a display."""
    first = stored_run.entries[0]
    display = display_of(first.name if isinstance(first, MachineEntry) else "", terminal(), root)
    if display is None:
        raise CommandExit(
            f"run {stored_run.run} has no transcript: only runs of `dsa chat` and `dsa code` have one",
            EXIT_UNREADABLE,
        )
    for number, entry in enumerate(stored_run.entries, 1):
        display.on_moment(Moment(stored_run.run, number, entry), is_new=True)
    display.end()


def _extension(stored_run: StoredRun) -> MachineExtension:
    """Return the extension of a run's machine."""
    first = stored_run.entries[0]
    return extension_of(first.name if isinstance(first, MachineEntry) else "")


def _number_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, numbers), default=0)
    for name, number in numbers.items():
        yield f"  {name:<{width}}  {number:.3f}" if isinstance(number, float) else f"  {name:<{width}}  {number}"


def scenario_lines(record: RunRecord) -> Iterator[str]:
    """Yield a run as a Scenario section of its machine's spec. Raises CommandExit for a run that no scenario can express."""
    run, run_percepts = record.run, percepts(record.run.machine, record.run.ledger)
    if not run_percepts:
        raise CommandExit(f"nothing has happened yet in run {run.run_id}", 1)
    default = loads(text_of(record.stored_run.text, record.stored_run.entries)).constants
    changes = {name: value for name, value in record.first.parameters if default[name] != value}
    scenario, left_out = _scenario_of(run.machine, run_percepts, f"run {run.run_id}", changes)
    if scenario is None:
        why = "a scenario cannot say which of several timers with the same duration is meant"
        raise CommandExit(f"no scenario can express run {run.run_id}: {why}", 1)
    yield f"## Scenario: {scenario.name}"
    yield from scenario_text(scenario).split("\n")
    if left_out:
        say(f"left out: {left_out} refused events whose reason a scenario cannot express", err=True)


def _scenario_of(
    machine: Machine, run_percepts: tuple[Percept, ...], name: str, parameters: dict[str, Value]
) -> tuple[Scenario | None, int]:
    """Return percepts as a scenario, without the refused events if necessary, and the number of those that are left out.

    A scenario has no keys, and cannot have the verdicts of a refused event.
    """
    plain = [percept for percept in run_percepts if not percept.by_key]
    for selection in (plain, [percept for percept in run_percepts if not isinstance(percept.action, str)]):
        scenario = as_scenario(machine, tuple(percept.occurrence for percept in selection), name, parameters)
        if scenario is not None:
            return scenario, len(run_percepts) - len(selection)
    return None, 0


def percept_lines(record: RunRecord) -> Iterator[str]:
    """Yield the table of percepts and actions of a run; in a workflow, with what the step in progress uses (`-`: nothing)."""
    machine = record.run.machine
    has_uses = any(step.uses for step in machine.steps)
    rows = [
        (
            show_occurrence(percept.occurrence),
            f"refused: {percept.action}" if isinstance(percept.action, str) else ", ".join(map(str, percept.action)),
            percept.state,
            *([show_used(used_in(machine, percept.state)) or "-"] if has_uses else []),
            show_values(percept.changes),
        )
        for percept in percepts(machine, record.run.ledger)
    ]
    header = ("percept", "action", "state", *(["deps"] if has_uses else []), "changed")
    yield from table_lines(header, [tuple(map(escape_cell, row)) for row in rows])


@attrs.frozen
class _TreeLine:
    """An attempt in the tree, and the beginnings of its line and of the lines below it."""

    attempt: AttemptRecord
    before: str
    below: str


def provenance_lines(attempts: tuple[AttemptRecord, ...]) -> Iterator[str]:
    """Yield the tree of attempts, each with those that refine it below it."""
    if not attempts:
        yield "nothing was generated"
        return
    tree, names = tree_of_attempts(attempts), {a.artifact_id: f"{a.step} {a.version}" for a in attempts}
    stack = [_TreeLine(attempt, "", "") for attempt in reversed(tree[None])]
    while stack:
        branch = stack.pop()
        yield f"{branch.before}{_attempt(branch.attempt, names)}"
        children = tree.get(branch.attempt.artifact_id, ())
        last = len(children) - 1
        for place, each in reversed([*enumerate(children)]):
            before, below = ("`- ", "   ") if place == last else ("|- ", "|  ")
            stack.append(_TreeLine(each, branch.below + before, branch.below + below))


def _attempt(attempt: AttemptRecord, names: Mapping[str, str]) -> str:
    """Return an attempt in one line."""
    feedback = attempt.verdicts[-1].feedback if attempt.verdicts else ""
    outcome = attempt.verdicts[-1].word if attempt.verdicts else "no verdict"
    by = ", ".join(filter(None, (attempt.author, attempt.usage.model if attempt.usage else "")))
    uses = ", ".join(names[dependency] for dependency in attempt.dependency_ids)
    parts = [
        f"{attempt.step} {attempt.version}",
        f"artifact {short_id(attempt.artifact_id, attempt.run_id)}",
        f"by {by}" if by else "",
        f"uses {uses}" if uses else "",
        f"redacted: {', '.join(attempt.redacted)}" if attempt.redacted else "",
        f"{outcome}: {shorten(feedback)}" if feedback else outcome,
    ]
    return "  ".join(filter(None, parts))
