"""`dsa runs`: the runs that are kept, one a line, the newest last."""

import json
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.faults import Ended, JsonCommand
from dsa.cli.kept import machine_record, opened, runs_option
from dsa.cli.terminal import say
from dsa.cli.timeline import asked_keys, how, started_at
from dsa.runs.record import OtherMachineError
from dsa.runs.runs import Runs
from dsa.runtime.journal import DamageError, Recorded
from dsa.runtime.ledger import EventEntry, MachineEntry
from dsa.runtime.standing import outside_events

_HEADER = ("run", "started", "events", "machine", "state", "how it stands", "about")
_LONGEST = 60


@attrs.frozen
class Listed:
    """One run as the list has it. `kind` is a `Standing`'s, or `damaged`, `other machine`; `how` says it in words.

    `about` is what it was first told or asked: the field `about` of that, else `text`.
    """

    run: str
    kind: str
    how: str
    machine: str | None = None
    state: str | None = None
    outcome: str | None = None
    events: int | None = None
    holder: str | None = None
    waits_for: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    about: str | None = None

    def cells(self) -> tuple[str, ...]:
        """Give what stands in the columns."""
        events = "" if self.events is None else str(self.events)
        started = started_at(self.run).removesuffix(" UTC")
        return self.run, started, events, self.machine or "", self.state or "", self.how, _short(self.about or "")

    def to_json(self) -> dict[str, Any]:
        """Give the run as an object of JSON."""
        return {**attrs.asdict(self), "started": started_at(self.run) or None}


@click.command("runs", cls=JsonCommand)
@runs_option
@click.option("--json", "json_wanted", is_flag=True, help="Print a JSON list, one object for each run.")
def command(root: str, *, json_wanted: bool) -> None:
    """List the runs that are kept: machine, state, how they stand, how many events, when they were started (UTC)."""
    folder = Path(root)
    with opened(folder) as runs:
        found = [listed(runs, run) for run in runs.ids()]
        lost = runs.lost()
    if json_wanted:
        say(json.dumps([each.to_json() for each in found], indent=2))
    elif not found and not lost:
        _require_empty(folder)
        say(f"{root}: no run is kept here")
    elif found:
        _say_table(found)
    if lost:
        raise Ended(
            f"{root}: damaged: {lost} more {'run was' if lost == 1 else 'runs were'} kept here and cannot be found", 1
        )


def _require_empty(folder: Path) -> None:
    """Raise Ended when runs have left their folders beside a ledger that has none."""
    left = sorted(each.parent.name for each in folder.glob("*/machine.md"))
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise Ended(f"{folder}: damaged: the ledger has no run, and {left[0]}{more} left a folder here", 1)


def _say_table(found: list[Listed]) -> None:
    rows = [_HEADER, *(each.cells() for each in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def listed(runs: Runs, run: str) -> Listed:
    """Look at one run; what is the matter with a damaged one becomes its line."""
    try:
        recorded = runs.recorded(run)
    except DamageError as fault:
        if fault.run is None:
            raise
        return Listed(run, "damaged", f"damaged: {fault}")
    return _of_machine(recorded)


def _of_machine(recorded: Recorded) -> Listed:
    first = recorded.entries[0]
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    taken = [entry for entry in recorded.entries if isinstance(entry, EventEntry)]
    events, about = len(taken), _text_in(taken[0].data) if taken else None
    try:
        record = machine_record(recorded)
    except OtherMachineError as fault:
        return Listed(recorded.run, "other machine", str(fault), first.name, events=events, about=about)
    except Ended as fault:
        return Listed(recorded.run, "damaged", fault.message, first.name, events=events, about=about)
    run, stands = record.run, record.standing
    return Listed(
        recorded.run,
        stands.kind,
        how(record),
        first.name,
        run.configuration.state,
        run.outcome if stands.kind == "finished" else None,
        events,
        stands.holder,
        outside_events(run) if stands.kind == "waiting" else (),
        tuple(asked_keys(run, stands.asked)),
        about=about,
    )


def _text_in(data: Any) -> str | None:  # noqa: ANN401  (JSON)
    """Give the text that was said, alone or with more; what a part of something is about goes before the whole."""
    text = data.get("about", data.get("text")) if isinstance(data, dict) else data
    return text if isinstance(text, str) else None


def _short(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}.."
