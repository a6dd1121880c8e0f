"""`dsa show RUN`: what happened in a run and how it stands; the same as a scenario, as percepts and actions, as a tree of attempts, as JSON."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.command_line import UNREADABLE, CommandExit, say, tell_json
from dsa.cli.ledger_view import story, terminal
from dsa.cli.run import display_of
from dsa.cli.run_options import faults_told, machine_record, opened, recorded_run, runs_option
from dsa.cli.run_view import JsonRunCommand, MachineExtension, RunReport, extension_of, recorded_report, story_lines
from dsa.declarations import Scenario
from dsa.edge.document_files import read_text
from dsa.expr import Value
from dsa.lang import loads, scenario_text
from dsa.machine import Machine, show_used, used_in
from dsa.runs.archive import RunRecord, text_of
from dsa.runs.place import ERRORS
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
    "--as-scenario", "form", flag_value="scenario", help="Print the run as a scenario to paste into its spec."
)
@click.option("--percepts", "form", flag_value="percepts", help="Print a table of what the run perceived and did.")
@click.option(
    "--provenance",
    "form",
    flag_value="provenance",
    help="Print the tree of attempts: which refines which, and what was said of it.",
)
@click.option(
    "--counters", "form", flag_value="counters", help="Print what can be counted: events, effects, reasons, rescues."
)
@click.option(
    "--transcript",
    "form",
    flag_value="transcript",
    help="Print a conversation or a coding run as it was shown while it went on.",
)
@click.option("--diff", "form", flag_value="diff", help="Print what a coding run has changed in its workspace.")
@click.option("--errors", "form", flag_value="errors", help="Print what your code has raised, with tracebacks.")
@click.option("--jsonl", "form", flag_value="jsonl", help="Print the story, one entry a line as JSON.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Go on after this entry.")
@click.option("--json", "json_wanted", is_flag=True, help="Print how it stands and what it made as one JSON object.")
def command(run: str, root: str, form: str | None, after: int, *, json_wanted: bool) -> None:
    """Tell what happened in RUN, event by event, and how it stands: what it waits for, what is in doubt and how to decide it.

    RUN is an id, a part of one, or `last`.
    """
    if form and json_wanted:
        raise click.UsageError("--json prints one object: it goes with no other form")
    if after and (json_wanted or form not in {None, "jsonl"}):
        raise click.UsageError("--after goes with the story, as text or with --jsonl")
    folder = Path(root)
    recorded = recorded_run(folder, run)
    if json_wanted:
        tell_json(_report(folder, recorded).to_json())
    elif form is None:
        with faults_told(folder):
            record = machine_record(recorded)
        with opened(folder) as runs:
            found = runs.summary(recorded.run).at(runs.now_ms())
        for line in story(record, folder, found, after=after):
            say(line)
    else:
        for line in _lines(recorded, folder, form, after):
            say(line)


def _report(root: Path, recorded: StoredRun) -> RunReport:
    """Return what is told of a run as one object."""
    with opened(root) as runs:
        return recorded_report(runs, machine_record(recorded))


def _lines(recorded: StoredRun, root: Path, form: str | None, after: int) -> Iterator[str]:
    """Return what is asked for."""
    if form == "jsonl":
        yield from story_lines(recorded, after)
    elif form == "provenance":
        with opened(root) as runs:
            attempts = runs.artifacts(recorded.run).attempts()
        yield from provenance_lines(attempts)
    elif form == "counters":
        yield from counter_lines(recorded)
    elif form == "diff":
        with faults_told(root):
            yield from diff_lines(recorded, root)
    elif form == "transcript":
        _show(recorded, root)
    elif form == "errors":
        yield from error_lines(root / recorded.run)
    else:
        with faults_told(root):
            record = machine_record(recorded)
        yield from scenario_lines(record) if form == "scenario" else percept_lines(record)


def error_lines(folder: Path) -> Iterator[str]:
    """Yield what users' code has raised in a run, as it was kept in its folder."""
    path = folder / ERRORS
    yield from (read_text(path).splitlines() if path.exists() else ["nothing was raised by your code"])


def counter_lines(recorded: StoredRun) -> Iterator[str]:
    """Yield what a ledger can be counted by, one number a line; what a machine counts of its own stands last."""
    counted: dict[str, Any] = dict(counters(recorded.entries))
    own = _extension(recorded)
    if own.counters is not None:
        counted[own.name] = own.counters(recorded.entries)
    for kind, numbers in counted.items():
        yield f"{kind}:"
        yield from _aligned(numbers)


def diff_lines(recorded: StoredRun, root: Path) -> Iterator[str]:
    """Yield what a run has changed outside, by its machine's own account. Raises Ended for a machine that has none."""
    diff = _extension(recorded).diff
    if diff is None:
        raise CommandExit(f"run {recorded.run} has no diff: only runs of `dsa code` have one", UNREADABLE)
    with open_runs(root, must_exist=True) as runs:
        yield from diff(runs, recorded.run).splitlines() or ["nothing was changed"]


def _show(recorded: StoredRun, root: Path) -> None:
    """Show a run as it was shown while it went on. Raises Ended for one of a machine without a display."""
    first = recorded.entries[0]
    display = display_of(first.name if isinstance(first, MachineEntry) else "", terminal(), root)
    if display is None:
        raise CommandExit(
            f"run {recorded.run} is of a machine that keeps no such account: only those of `dsa chat` and `dsa code` have a transcript",
            UNREADABLE,
        )
    for number, entry in enumerate(recorded.entries, 1):
        display.on_moment(Moment(recorded.run, number, entry), is_new=True)
    display.end()


def _extension(recorded: StoredRun) -> MachineExtension:
    """Return what the machine of a run adds to the commands."""
    first = recorded.entries[0]
    return extension_of(first.name if isinstance(first, MachineEntry) else "")


def _aligned(numbers: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, numbers), default=0)
    for name, number in numbers.items():
        yield f"  {name:<{width}}  {number:.3f}" if isinstance(number, float) else f"  {name:<{width}}  {number}"


def scenario_lines(record: RunRecord) -> Iterator[str]:
    """Yield a run as a Scenario section of its machine's spec. Raises Ended for a run that no scenario can tell."""
    run, seen = record.run, percepts(record.run.machine, record.run.ledger)
    if not seen:
        raise CommandExit(f"nothing has happened yet in run {run.run_id}", 1)
    default = loads(text_of(record.stored_run.text, record.stored_run.entries)).constants
    changed = {name: value for name, value in record.first.parameters if default[name] != value}
    written, left_out = _written(run.machine, seen, f"run {run.run_id}", changed)
    if written is None:
        why = "which of several timers of one duration is meant cannot be said"
        raise CommandExit(f"no scenario can tell run {run.run_id}: {why}", 1)
    yield f"## Scenario: {written.name}"
    yield from scenario_text(written).split("\n")
    if left_out:
        say(f"left out: {left_out} refused events of which a scenario cannot tell why", err=True)


def _written(
    machine: Machine, seen: tuple[Percept, ...], name: str, parameters: dict[str, Value]
) -> tuple[Scenario | None, int]:
    """Write percepts as a scenario, if need be without what was refused; give it and how many are left out.

    A scenario knows no keys, and cannot say of an event that is refused which verdicts it brought.
    """
    plain = [percept for percept in seen if not percept.by_key]
    for kept in (plain, [percept for percept in seen if not isinstance(percept.action, str)]):
        written = as_scenario(machine, tuple(percept.occurrence for percept in kept), name, parameters)
        if written is not None:
            return written, len(seen) - len(kept)
    return None, 0


def percept_lines(record: RunRecord) -> Iterator[str]:
    """Yield the table of what a run perceived and did; in a workflow, with what the step in progress uses (`-`: nothing)."""
    machine = record.run.machine
    has_uses = any(step.uses for step in machine.steps)
    rows = [
        (
            show_occurrence(seen.occurrence),
            f"refused: {seen.action}" if isinstance(seen.action, str) else ", ".join(map(str, seen.action)),
            seen.state,
            *([show_used(used_in(machine, seen.state)) or "-"] if has_uses else []),
            show_values(seen.changes),
        )
        for seen in percepts(machine, record.run.ledger)
    ]
    header = ("percept", "action", "state", *(["deps"] if has_uses else []), "changed")
    yield from table_lines(header, [tuple(map(escape_cell, row)) for row in rows])


@attrs.frozen
class _TreeLine:
    """An attempt in the tree, and how its line begins."""

    attempt: AttemptRecord
    before: str
    below: str


def provenance_lines(attempts: tuple[AttemptRecord, ...]) -> Iterator[str]:
    """Yield the tree of attempts: below each those that refine it."""
    if not attempts:
        yield "nothing was generated"
        return
    tree, names = tree_of_attempts(attempts), {a.artifact_id: f"{a.step} {a.version}" for a in attempts}
    waiting = [_TreeLine(attempt, "", "") for attempt in reversed(tree[None])]
    while waiting:
        branch = waiting.pop()
        yield f"{branch.before}{_attempt(branch.attempt, names)}"
        refining = tree.get(branch.attempt.artifact_id, ())
        last = len(refining) - 1
        for place, each in reversed([*enumerate(refining)]):
            before, below = ("`- ", "   ") if place == last else ("|- ", "|  ")
            waiting.append(_TreeLine(each, branch.below + before, branch.below + below))


def _attempt(attempt: AttemptRecord, names: Mapping[str, str]) -> str:
    """Describe one attempt in a line."""
    said = attempt.verdicts[-1].feedback if attempt.verdicts else ""
    outcome = attempt.verdicts[-1].word if attempt.verdicts else "no verdict"
    by = ", ".join(filter(None, (attempt.author, attempt.usage.model if attempt.usage else "")))
    uses = ", ".join(names[used] for used in attempt.dependency_ids)
    parts = [
        f"{attempt.step} {attempt.version}",
        f"artifact {short_id(attempt.artifact_id, attempt.run_id)}",
        f"by {by}" if by else "",
        f"uses {uses}" if uses else "",
        f"redacted: {', '.join(attempt.redacted)}" if attempt.redacted else "",
        f"{outcome}: {shorten(said)}" if said else outcome,
    ]
    return "  ".join(filter(None, parts))
