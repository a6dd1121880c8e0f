"""`dsa runs`: the runs that are kept, one a line, the newest last."""

import json
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.faults import Ended, JsonCommand
from dsa.cli.kept import faults_told, replayed_run, runs_option
from dsa.cli.terminal import say
from dsa.cli.timeline import how, started_at
from dsa.edge.running import OtherMachineError
from dsa.edge.runs import open_store
from dsa.runtime.journal import DamageError, Recorded, RunStore
from dsa.runtime.ledger import CallResultEntry, EventEntry, MachineEntry, PolicyEntry
from dsa.runtime.policy_run import in_doubt
from dsa.runtime.standing import outside_events

ROOT = "1"  # the path of what a policy's run stands for
_HEADER = ("run", "started", "events", "machine", "state", "how it stands")


@attrs.frozen
class Listed:
    """One run as the list has it. `kind` is a `Standing`'s, or `damaged`, `other machine`; `how` says it in words."""

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

    def cells(self) -> tuple[str, ...]:
        """Give what stands in the columns."""
        events = "" if self.events is None else str(self.events)
        started = started_at(self.run).removesuffix(" UTC")
        return self.run, started, events, self.machine or "", self.state or "", self.how

    def to_json(self) -> dict[str, Any]:
        """Give the run as an object of JSON."""
        return {**attrs.asdict(self), "started": started_at(self.run) or None}


@click.command("runs", cls=JsonCommand)
@runs_option
@click.option("--json", "json_wanted", is_flag=True, help="Print a JSON list, one object for each run.")
def command(root: str, *, json_wanted: bool) -> None:
    """List the runs that are kept: machine, state, how they stand, how many events, when they were started (UTC)."""
    folder = Path(root)
    with faults_told(folder), open_store(folder, must_exist=True) as store:
        found = [listed(store, run) for run in store.runs()]
    if json_wanted:
        say(json.dumps([each.to_json() for each in found], indent=2))
        return
    if not found:
        say(f"{root}: no run is kept here")
        return
    rows = [_HEADER, *(each.cells() for each in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def listed(store: RunStore, run: str) -> Listed:
    """Look at one run; what is the matter with a damaged one becomes its line."""
    try:
        recorded = store.read(run)
    except DamageError as fault:
        if fault.run is None:
            raise
        return Listed(run, "damaged", f"damaged: {fault}")
    return _of_policy(recorded) if isinstance(recorded.entries[0], PolicyEntry) else _of_machine(recorded)


def _of_machine(recorded: Recorded) -> Listed:
    first = recorded.entries[0]
    assert isinstance(first, MachineEntry), "a run begins with its machine or its policy"
    events = sum(isinstance(entry, EventEntry) for entry in recorded.entries)
    try:
        kept = replayed_run(recorded)
    except OtherMachineError as fault:
        return Listed(recorded.run, "other machine", str(fault), first.name, events=events)
    except Ended as fault:
        return Listed(recorded.run, "damaged", fault.message, first.name, events=events)
    run, stands = kept.run, kept.standing
    return Listed(
        recorded.run,
        stands.kind,
        how(kept),
        first.name,
        run.configuration.state,
        run.outcome if stands.kind == "finished" else None,
        events,
        stands.holder,
        outside_events(run) if stands.kind == "waiting" else (),
        tuple(intent.key for intent in stands.asked),
    )


def _of_policy(recorded: Recorded) -> Listed:
    """Say how a run stands that has no machine."""
    first = recorded.entries[0]
    assert isinstance(first, PolicyEntry), "the caller has looked"
    over = any(isinstance(entry, CallResultEntry) and entry.path == ROOT for entry in recorded.entries)
    doubted = tuple(call.path for call in in_doubt(recorded.entries))
    kind = "finished" if over else "under way" if recorded.holder else "cut off"
    told = f"under way, held by {recorded.holder}" if kind == "under way" else kind
    return Listed(recorded.run, kind, told, f"policy {first.policy}", holder=recorded.holder, in_doubt=doubted)
