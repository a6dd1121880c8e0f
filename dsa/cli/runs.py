"""`dsa runs`: the recorded runs, one a line, the newest last. `dsa runs rm` removes runs.

A line comes from a run's summary, or with `--verify` from its ledger, decoded and replayed.
"""

import asyncio
import importlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import attrs
import click

from dsa.cli.command_line import CommandExit, JsonCommand, Word, say
from dsa.declarations import parse_duration
from dsa.runs.archive import OtherMachineError, RunArchive
from dsa.runs.place import DEFAULT_RUNS, is_on_server, open_place, place_text
from dsa.runs.summary import summary_of_record
from dsa.runtime.ledger_story import started_at, status_and_text
from dsa.runtime.run import ReplayError
from dsa.runtime.run_store import STATUSES, DamageError, HeldError, RunSummary, StoreError
from dsa.text import closest

_HEADER = ("run", "started", "events", "machine", "state", "how it stands", "about")
_LONGEST = 60
#: The place of the runs that all these commands are about.
_ROOT = click.option(
    "--runs",
    "root",
    default=DEFAULT_RUNS,
    show_default=True,
    help="The folder of runs, or temporal://HOST:PORT/NAMESPACE.",
)


@attrs.frozen
class RunLine:
    """One run in the list. `kind` is its status, or `damaged`, or `other machine`; `how` has it in words.

    `about` is a short text from its first event. `queue` names the workers of its effects, if only certain ones perform them.
    """

    run: str
    kind: str
    how: str
    machine: str | None = None
    state: str | None = None
    outcome: str | None = None
    events: int | None = None
    holder: str | None = None
    waits_for: Mapping[str, str] = attrs.field(factory=dict)
    due_ms: int | None = None
    in_doubt: tuple[str, ...] = ()
    about: str | None = None
    queue: str | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the run's line."""
        events = "" if self.events is None else str(self.events)
        start_time = started_at(self.run).removesuffix(" UTC")
        return self.run, start_time, events, self.machine or "", self.state or "", self.how, _short(self.about or "")

    def to_json(self) -> dict[str, object]:
        """Return the run as an object of JSON."""
        return {**attrs.asdict(self, recurse=False), "started": started_at(self.run) or None}


class RunsCommand(JsonCommand, click.Group):
    """`dsa runs`, and the commands for several runs at once."""


@click.group("runs", cls=RunsCommand, invoke_without_command=True)
@_ROOT
@click.option(
    "--status",
    type=Word(STATUSES),
    metavar="WORD",
    help=f"Only runs with this status: {', '.join(STATUSES)}. Here, `stopped` means: by a failure; `cut off`: by a crash; `interrupted`: by Ctrl-C.",
)
@click.option("--waiting", "waiting_for", metavar="EVENT", help="Only runs that wait for this event.")
@click.option(
    "--due-before",
    "due_before_ms",
    metavar="TIME",
    callback=lambda _context, _option, text: None if text is None else moment_ms(text),
    help="Only runs with a timer that is due before TIME, such as 2026-12-24T18:00 (UTC), or 24h, which counts from now.",
)
@click.option("--machine", metavar="NAME", help="Only runs of this machine.")
@click.option(
    "--verify",
    is_flag=True,
    help="Read and replay every run. This finds damage anywhere in a ledger, and runs whose table has changed since. Without --verify, only the runs' "
    "summaries are read, so damage elsewhere is not noticed.",
)
@click.option("--json", "json_wanted", is_flag=True, help="Print a JSON list, one object for each run.")
@click.pass_context
def command(
    context: click.Context,
    root: str,
    status: str | None,
    waiting_for: str | None,
    due_before_ms: int | None,
    machine: str | None,
    *,
    verify: bool,
    json_wanted: bool,
) -> None:
    """List the recorded runs: when they were started (UTC), number of events, machine, state, status."""
    if context.invoked_subcommand is not None:
        return
    folder = Path(root)
    with _open_archive(folder) as runs:
        listing = runs.list(
            status=None if verify else status, waiting_for=waiting_for, machine=machine, now_ms=now_ms()
        )
        summaries = asyncio.run(listing)
        every = () if summaries or not (waiting_for or machine) else asyncio.run(runs.list(now_ms=now_ms()))
        hint = _hint(every, waiting_for, machine)
        if due_before_ms is not None:
            summaries = tuple(each for each in summaries if _is_due_before(each, due_before_ms))
        lines = [line_of_ledger(runs, each) if verify else line_of_summary(each) for each in summaries]
        lost_count = runs.lost_count()
    selection = [line for line, each in zip(lines, summaries, strict=True) if status in {None, line.kind, each.status}]
    if json_wanted:
        say(json.dumps([each.to_json() for each in selection], indent=2))
    elif selection:
        _say_table(selection)
    elif not lost_count:
        _say_none(folder, is_filtered=bool(status or waiting_for or machine or due_before_ms), hint=hint)
    if lost_count:
        raise CommandExit(
            f"{root}: damaged: {lost_count} {'run that was recorded here is' if lost_count == 1 else 'runs that were recorded here are'} missing now",
            1,
        )


def _is_due_before(summary: RunSummary, moment: int) -> bool:
    due_ms = summary.summary.due_ms
    return due_ms is not None and due_ms < moment and summary.status in {"waiting", "due"}


@command.command("rm", cls=JsonCommand)
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@_ROOT
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
def remove(names: tuple[str, ...], root: str, *, json_wanted: bool) -> None:
    """Remove runs and all that belongs to them: their child runs, artifacts and folders. Each is named by its id or a part of it. A run that a process holds is refused."""
    removed_ids, find = list[str](), importlib.import_module("dsa.cli.run_options").find
    with _open_archive(Path(root)) as runs:
        ids = runs.ids()
        for run in dict.fromkeys(find(ids, each, Path(root)) for each in names):
            asyncio.run(runs.remove(run))
            removed_ids.append(run)
            if not json_wanted:
                say(f"removed {run}")
    if json_wanted:
        say(json.dumps({"removed": removed_ids}, indent=2))


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def moment_ms(text: str) -> int:
    """Read a time, or a duration from now, as milliseconds since 1970. Raises click.BadParameter."""
    duration_ms = parse_duration(text)
    if duration_ms is not None:
        return now_ms() + duration_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a time; write 2026-12-24T18:00 or 24h") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@contextmanager
def _open_archive(folder: Path) -> Iterator[RunArchive]:
    """Open the runs of a folder. Raises CommandExit, and DocumentError if no run is kept there."""
    try:
        if is_on_server(folder):
            runs: RunArchive = importlib.import_module("dsa.runs.runs").open_runs(folder)
            with cast(Any, runs):
                yield runs
            return
        place = open_place(folder, must_exist=True)
        try:
            yield RunArchive(place)
        finally:
            place.close()
    except DamageError as error:
        raise CommandExit(f"damaged: {error}", 1) from error
    except HeldError as error:
        if not is_on_server(folder):
            raise CommandExit(str(error), 1) from error
        shell_command = importlib.import_module("dsa.cli.run_options").shell_command
        take = shell_command("resume", folder / error.run, "--take")
        why = f"run {error.run} is under way, and goes on by itself; interrupt it first, on its page (`dsa web`) or with `{take}` and Ctrl-C"
        raise CommandExit(why, 1) from error
    except StoreError as error:
        raise CommandExit(str(error), 1) from error


def _hint(every: Sequence[RunSummary], waiting_for: str | None, machine: str | None) -> str:
    """Return a hint with the machines or events of the runs if no run has the given one."""
    machines = {each.summary.machine for each in every}
    events = {event for each in every for event in each.summary.waits_for}
    if machine is not None and machine not in machines:
        return f"; no run here is a run of '{machine}'; {closest(machine, machines)}"
    if waiting_for is not None and events and waiting_for not in events:
        return f"; no run waits for '{waiting_for}', {closest(waiting_for, events)}"
    return ""


def _say_none(folder: Path, *, is_filtered: bool, hint: str = "") -> None:
    """Print that no run matches. Raises CommandExit if there are folders of runs beside a ledger without runs."""
    if is_filtered:
        say(f"{place_text(folder)}: no run here matches{hint}")
        return
    left = sorted(each.parent.name for each in folder.glob("*/machine.md"))
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise CommandExit(
            f"{folder} is damaged: its ledger lists no run, but here are folders of earlier runs: {left[0]}{more}",
            1,
        )
    say(f"{place_text(folder)}: no run is kept here")


def _say_table(lines: list[RunLine]) -> None:
    rows = [_HEADER, *(each.cells() for each in lines)]
    if any(each.queue for each in lines):
        rows = [
            (*row, queue or "") for row, queue in zip(rows, ("queue", *(each.queue for each in lines)), strict=True)
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded_rows = (map(str.ljust, row, widths) for row in rows)
    say("\n".join("  ".join(row).rstrip() for row in padded_rows))


# -- one run ---------------------------------------------------------------------------------------------------------------


def line_of_summary(run_summary: RunSummary) -> RunLine:
    """Return a run's line from its summary."""
    kind, how = status_and_text(run_summary)
    if kind == "damaged":
        return RunLine(run_summary.run, kind, how)
    summary = run_summary.summary
    return RunLine(
        run_summary.run,
        kind,
        how,
        summary.machine,
        summary.state,
        summary.outcome if kind == "finished" else None,
        summary.events,
        run_summary.holder,
        dict(summary.waits_for) if kind in {"waiting", "due"} else {},
        summary.due_ms if kind in {"waiting", "due"} else None,
        tuple(summary.in_doubt) if kind == "in doubt" else (),
        summary.about or None,
        run_summary.queue,
    )


def _short(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}.."


def line_of_ledger(runs: RunArchive, run_summary: RunSummary) -> RunLine:
    """Return a run's line from its ledger, decoded and replayed. For a damaged run, the line says why it cannot be read."""
    try:
        return line_of_summary(summary_of_record(runs.get(run_summary.run)))
    except DamageError as fault:
        if fault.run is None:
            raise
        return RunLine(run_summary.run, "damaged", f"damaged: {fault}")
    except OtherMachineError as fault:
        kind, why = "other machine", str(fault)
    except ReplayError as fault:
        kind, why = "damaged", f"damaged: run {run_summary.run}, {fault}"
    summary = run_summary.summary
    return RunLine(run_summary.run, kind, why, summary.machine, events=summary.events, about=summary.about or None)
