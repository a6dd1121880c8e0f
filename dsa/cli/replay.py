"""`dsa check FILE --trace RECORD`: a recorded trace run again, told to people or as JSON to programs.

`dsa replay RUN`: derive a recorded run again; with `--against`, let another table take the same events.

Also checks a trace that any other program has recorded against a table.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.monitor import MonitorResult, Replay, replay
from dsa.checks.places import rows_at, show_false, show_row
from dsa.cli.check import places_of, steps_as_json
from dsa.cli.command_line import UNREADABLE, ColouredWord, CommandExit, JsonCommand, json_option, say, tell_json
from dsa.cli.draw import place_in, read_record
from dsa.cli.ledger_view import outcome_text
from dsa.cli.run_options import faults_told, machine_record, recorded_run, runs_option, told_record
from dsa.edge.document_files import load, read_text
from dsa.errors import DsaError, OccurrenceError, ParameterError
from dsa.machine import Machine, spelled_like
from dsa.runs import archive as records
from dsa.runs.archive import OtherMachineError, RunRecord
from dsa.runs.bindings import replay_policy
from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from dsa.runtime import ledger
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.policy.invocation import LedgerEnds, ReplayReport
from dsa.runtime.run import ArmTimer, Command, DropTimer, Intent, Run, StopEffect, rederive
from dsa.runtime.run_store import StoredRun
from dsa.runtime.timeline import Difference, first_difference, load_story
from dsa.trace import show_occurrence, show_values

_MONITOR_COLOURS = {"satisfied": "green", "violated": "red"}
#: A verdict takes so many columns, so that what follows is aligned.
_MONITOR_WIDTH = len("satisfied")


def replayed(files: tuple[str, ...], trace: str, *, json_wanted: bool) -> int:
    """Run a recorded trace on one machine again and tell what came of it; return the exit code."""
    if len(files) != 1:
        raise click.UsageError("--trace takes one FILE: the machine that the trace is of")
    found = replay(load(files[0]), read_record(trace))
    if json_wanted:
        tell_json(_as_json(files[0], trace, found))
    else:
        _say_replay(files[0], trace, found)
    return int(found.failed)


def _as_json(file: str, trace: str, found: Replay) -> dict[str, Any]:
    """Return what came of running a recorded trace again as an object."""
    return {
        "file": file,
        "trace": trace,
        "steps": steps_as_json(found.trace),
        "mismatch": {"step": found.mismatch.step, "message": found.mismatch.message} if found.mismatch else None,
        "monitors": [
            {
                "text": seen.text,
                "line": seen.line,
                "verdict": seen.report.verdict if seen.report else None,
                "step": seen.report.step if seen.report else None,
            }
            for seen in found.observations
        ],
    }


def _say_replay(file: str, trace: str, found: Replay) -> None:
    """Print what came of running a recorded trace again."""
    for line in found.trace.show(found.loop).split("\n"):
        say(line)
    if found.mismatch:
        say(f"{place_in(trace, found.mismatch.step)}: {found.mismatch.message}")
    places = places_of(seen.claim.span for seen in found.observations)
    for place, seen in zip(places, found.observations, strict=True):
        say(_watched(seen), f"  {place}{seen.text}{_since(seen)}")
    fits = len(found.trace.steps)
    say(f"{file}: {fits} of the {found.total} steps of {trace} are what the table does")


def _watched(seen: MonitorResult) -> ColouredWord:
    verdict = seen.report.verdict if seen.report else "-"
    return ColouredWord(verdict.ljust(_MONITOR_WIDTH), _MONITOR_COLOURS.get(verdict))


def _since(seen: MonitorResult) -> str:
    """Say at which step a monitor was decided, or why there is none."""
    if seen.report is None:
        return "  (about all runs together: no monitor of one)"
    if seen.report.step is None:
        return ""
    where = f"at step {seen.report.step}" if seen.report.step else "at the start"
    return f"  owed since {where.removeprefix('at ')}" if seen.report.verdict == "pending" else f"  {where}"


_TRACES = (".jsonl", ".json")


@click.command("replay", cls=JsonCommand)
@click.argument("run")
@runs_option
@click.option("--against", "file", metavar="FILE", help="Let the machine in FILE take the recorded events.")
@click.option("--with", "module", metavar="MODULE", help="The policies of a policy's run, not those it was begun with.")
@json_option
def command(run: str, root: str, file: str | None, module: str | None, *, json_wanted: bool) -> None:
    """Derive every entry of RUN again from its events, and compare; or let FILE take the events, and name the first row that differs.

    RUN is an id, a part of one, `last`, or a file with a recorded trace, which needs --against. Exit 0: the same; 1: not.
    """
    if run.endswith(_TRACES):
        sys.exit(_of_file(run, file, json_wanted=json_wanted))
    folder = Path(root)
    recorded = recorded_run(folder, run)
    if file is None:
        sys.exit(_rederived(recorded, folder, module, json_wanted=json_wanted))
    sys.exit(_against(f"run {recorded.run}", recorded.entries, file, _own(recorded), json_wanted=json_wanted))


def _rederived(recorded: StoredRun, folder: Path, module: str | None, *, json_wanted: bool) -> int:
    """Derive a run again from its events, and what policies called from the results of their calls; return the exit code."""
    record = told_record(folder, recorded)
    if record.run.machine.name == POLICY:
        with faults_told(folder):
            return _again(record, _calls_again(record, folder, module), json_wanted=json_wanted)
    if module is not None:
        raise click.UsageError("--with goes with a run of a policy: a machine's run is derived from its events alone")
    return _again(record, json_wanted=json_wanted)


def _calls_again(record: RunRecord, folder: Path, module: str | None) -> ReplayReport:
    """Perform again what called others in a run of a policy, bound as it was started or by another module."""

    async def replaying() -> ReplayReport:
        loop = asyncio.get_running_loop()
        handler = loop.default_exception_handler
        loop.set_exception_handler(lambda _loop, about: None if _ends_it(about.get("exception")) else handler(about))
        async with open_runs(folder, must_exist=True) as runs:
            binding = runs.binding_of(record.run.run_id, Options(module))
        return await replay_policy(record.run, binding.policies, binding.config)

    return asyncio.run(replaying())


def _ends_it(error: BaseException | None) -> bool:
    """Return whether this is told anyhow, so that nobody need hear of it from a task that a policy has left to itself."""
    return isinstance(error, LedgerEnds | DsaError)


def _of_file(name: str, file: str | None, *, json_wanted: bool) -> int:
    """Check a file against a table: a run's story, as `dsa show --jsonl` prints it, or a trace."""
    if file is None:
        raise click.UsageError(f"{name} is a recorded trace: --against FILE names the table that it is to fit")
    text = read_text(name)
    if '"kind":"machine"' in text.lstrip().partition("\n")[0]:
        try:
            entries = load_story(text)
        except (ValueError, KeyError, TypeError) as fault:
            raise CommandExit(f"{name} begins like a run's story, and is not one", UNREADABLE) from fault
        return _against(name, entries, file, None, json_wanted=json_wanted)
    return replayed((file,), name, json_wanted=json_wanted)


def _own(recorded: StoredRun) -> Machine | None:
    """Return the machine that a run is of; None when this version of dsa reads it otherwise."""
    try:
        return machine_record(recorded).run.machine
    except OtherMachineError:
        return None


# -- the same again ---------------------------------------------------------------------------------------------------


def _again(record: RunRecord, calls: ReplayReport | None = None, *, json_wanted: bool) -> int:
    """Compare a run's ledger with what its machine makes of its events, byte by byte; return the exit code."""
    run, _ = records.replay_stored(record.stored_run, rederive)
    pairs = zip(record.stored_run.entries, run.ledger, strict=True)
    for position, (written, made) in enumerate(pairs):
        if ledger.dump_line(written) != ledger.dump_line(made):
            differs = f"{ledger.dump_line(written)} is not {ledger.dump_line(made)}"
            raise CommandExit(f"damaged: run {run.run_id}, entry {position}: {differs}", 1)
    found = projection(run)
    digest = hashlib.sha256("\n".join([*map(ledger.dump_line, run.ledger), json.dumps(found)]).encode()).hexdigest()
    counts = _counts(run.ledger)
    if json_wanted:
        compared = {} if calls is None else {"calls": list(calls.performed_paths), "ends_at": calls.ends_at}
        facts = {"run": run.run_id, "machine": run.machine.name, **counts, **found, **compared, "sha256": digest}
        say(json.dumps(facts, indent=2))
    else:
        say(f"run {run.run_id}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        values = show_values(run.values.items()) or "no variables"
        say(f"derived again, every entry is the same; {run.configuration.state}: {values}")
        for each in () if calls is None else _compared(calls):
            say(each)
        say(f"sha256 {digest}")
    return 0


def _compared(replayed: ReplayReport) -> Iterator[str]:
    """Yield which calls were performed again."""
    again = [f"{call.policy} {call.path}" for call in replayed.calls if call.path in replayed.performed_paths]
    if again:
        yield f"performed again with recorded results, every request and every step is the same: {', '.join(again)}"
    elif replayed.calls:
        yield f"{replayed.calls[0].policy} called nobody: there is nothing to perform again"
    if replayed.ends_at is not None:
        yield f"the ledger ends at call {replayed.ends_at}"


def projection(run: Run) -> dict[str, Any]:
    """Return what a run's events lead to, as JSON: state, values, keys of what is outstanding, and each step's view."""
    steps = {
        name: {
            "attempts": view.attempts,
            "accepted": view.accepted,
            "rejections": [attrs.asdict(rejection) for rejection in view.history],
        }
        for name, view in run.steps.items()
    }
    return {
        "state": run.configuration.state,
        "values": run.values,
        "outstanding": dict(sorted(run.keys.items())),
        "steps": steps,
        "specification": run.specification,
    }


def _counts(entries: Iterable[ledger.Entry]) -> dict[str, int]:
    found = {"entries": 0, "events": 0, "rows": 0, "refused": 0, "effects": 0}
    kinds = {
        ledger.EventEntry: "events",
        ledger.RowEntry: "rows",
        ledger.RefusalEntry: "refused",
        ledger.EffectEntry: "effects",
    }
    for entry in entries:
        found["entries"] += 1
        if type(entry) in kinds:
            found[kinds[type(entry)]] += 1
    return found


# -- another table ----------------------------------------------------------------------------------------------------


def _against(
    name: str, entries: ledger.Ledger[ledger.Entry], file: str, own: Machine | None, *, json_wanted: bool
) -> int:
    """Let another table take the events of a ledger, and tell where it differs; return the exit code."""
    first = entries[0] if len(entries) else None
    if not isinstance(first, ledger.MachineEntry):
        raise CommandExit(f"{name} has no machine, so no table can take its events", UNREADABLE)
    try:
        machine = load(file).at(dict(first.parameters))
    except ParameterError as fault:
        raise CommandExit(f"{file} cannot be at the parameters of {name}: {fault}", 1) from fault
    machine = machine if own is None else spelled_like(machine, own)
    difference = first_difference(machine, entries, own)
    events = _counts(entries)["events"]
    same = events if difference is None else _before(entries, difference)
    if json_wanted:
        told = None if difference is None else difference_as_json(machine, difference)
        facts = {"run": first.run, "against": file, "events": events, "same": same, "difference": told}
        say(json.dumps(facts, indent=2))
    else:
        for line in () if difference is None else difference_lines(machine, difference, file):
            say(line)
        say(f"{same} of the {events} events of {name} are what {file} does")
    return int(difference is not None)


def _before(entries: ledger.Ledger[ledger.Entry], difference: Difference) -> int:
    assert difference.record.event is not None, "something happened"
    seq = difference.record.event.seq
    return sum(isinstance(entry, ledger.EventEntry) and entry.seq < seq for entry in entries)


def difference_lines(machine: Machine, difference: Difference, file: str) -> tuple[str, ...]:
    """Tell a difference: the event, what was recorded, what the table does instead, and which conjuncts were false."""
    event, here = difference.record.event, difference.here
    assert event is not None, "something happened"
    recorded = _did(difference.record.outcome, difference.commands)
    width = max(len("recorded"), len(file))
    lines = [
        f"event {event.seq}, {show_occurrence(difference.record.occurrence)} in {here.state}:",
        f"  {'recorded':<{width}}  {recorded}",
        f"  {file:<{width}}  {_would(difference)}",
    ]
    false = _false(machine, difference)
    return (*lines, f"  {'':<{width}}  {false}") if false else tuple(lines)


def _would(difference: Difference) -> str:
    if difference.outcome is None:
        return f"knows no such event: {difference.fault}"
    did = _did(difference.outcome, difference.instead)
    return did if difference.row is None else f"{show_row(difference.row)}: {did.partition(': ')[2] or did}"


def _did(outcome: ledger.RowEntry | ledger.RefusalEntry | None, commands: tuple[Command, ...]) -> str:
    """Return what a table did with an event."""
    accepted = (
        "".join(f", accepts {step}" for step, _ in outcome.accepted) if isinstance(outcome, ledger.RowEntry) else ""
    )
    done = f"; {', '.join(map(_command, commands))}" if commands else ""
    return f"{outcome_text(outcome)}{accepted}{done}"


def _command(command: Command) -> str:
    match command:
        case Intent(effect=effect):
            return effect
        case StopEffect(effect=effect):
            return f"stop {effect}"
        case DropTimer(source, event):
            return f"drop {event} of {source}"
        case ArmTimer(source, event):
            return f"start {event} of {source}"


def _false(machine: Machine, difference: Difference) -> str:
    """Return which conjuncts of the candidate rows were false where the table takes another row, or none."""
    try:
        return show_false(rows_at(machine, difference.here, difference.record.occurrence))
    except (OccurrenceError, KeyError):  # it has no such event, or reads guards that said nothing
        return ""


def difference_as_json(machine: Machine, difference: Difference) -> dict[str, Any]:
    """Return a difference as an object: the event, what was recorded, and what the machine does instead."""
    event, outcome = difference.record.event, difference.record.outcome
    assert event is not None, "something happened"
    return {
        "event": ledger.to_json(event),
        "state": difference.here.state,
        "recorded": None if outcome is None else ledger.to_json(outcome),
        "recorded_commands": [_command(command) for command in difference.commands],
        "instead": None if difference.outcome is None else ledger.to_json(difference.outcome),
        "instead_commands": [_command(command) for command in difference.instead],
        "fault": difference.fault or None,
        "false": _false(machine, difference) or None,
    }
