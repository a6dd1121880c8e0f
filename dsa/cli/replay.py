"""`dsa replay RUN`: derive a recorded run again; with `--against`, let another table take the same events.

A trace that any other program has recorded can be checked against a table, too; `dsa check FILE --trace RECORD` uses `replay_trace` for that.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import click

from dsa.checks.monitor import MonitorResult, Replay, replay
from dsa.checks.places import rows_at, show_false, show_row
from dsa.cli.check import places_of, steps_as_json
from dsa.cli.command_line import EXIT_UNREADABLE, ColouredWord, CommandExit, JsonCommand, json_option, print_json, say
from dsa.cli.draw import place_in, read_record
from dsa.cli.run_options import exit_on_faults, machine_record, recorded_run, replay_record, runs_option
from dsa.edge.document_files import load, read_text
from dsa.errors import DsaError, OccurrenceError, ParameterError
from dsa.machine import Machine, spelled_like
from dsa.runs import archive as records
from dsa.runs.archive import OtherMachineError, RunRecord
from dsa.runs.bindings import replay_policy
from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from dsa.runtime import ledger
from dsa.runtime.ledger_story import outcome_text
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.policy.invocation import LedgerEnds, ReplayReport
from dsa.runtime.run import ArmTimer, Command, DropTimer, Intent, Run, StopEffect, rederive
from dsa.runtime.run_store import StoredRun
from dsa.runtime.timeline import Difference, first_difference, load_story
from dsa.trace import show_occurrence, show_values

_MONITOR_COLOURS = {"satisfied": "green", "violated": "red"}
#: The width of the column of verdicts.
_MONITOR_WIDTH = len("satisfied")


def replay_trace(files: tuple[str, ...], trace: str, *, json_wanted: bool) -> int:
    """Replay a recorded trace on one machine, and print the result; return the exit code."""
    if len(files) != 1:
        raise click.UsageError("with --trace, give exactly one machine or spec: the one that the trace belongs to")
    result = replay(load(files[0]), read_record(trace))
    if json_wanted:
        print_json(_as_json(files[0], trace, result))
    else:
        _say_replay(files[0], trace, result)
    return int(result.failed)


def _as_json(file: str, trace: str, result: Replay) -> dict[str, object]:
    """Return the result of replaying a recorded trace as an object."""
    return {
        "file": file,
        "trace": trace,
        "steps": steps_as_json(result.trace),
        "mismatch": {"step": result.mismatch.step, "message": result.mismatch.message} if result.mismatch else None,
        "monitors": [
            {
                "text": monitor.text,
                "line": monitor.line,
                "verdict": monitor.report.verdict if monitor.report else None,
                "step": monitor.report.step if monitor.report else None,
            }
            for monitor in result.observations
        ],
    }


def _say_replay(file: str, trace: str, result: Replay) -> None:
    """Print the result of replaying a recorded trace."""
    for line in result.trace.show(result.loop).split("\n"):
        say(line)
    if result.mismatch:
        say(f"{place_in(trace, result.mismatch.step)}: {result.mismatch.message}")
    places = places_of(monitor.claim.span for monitor in result.observations)
    for place, monitor in zip(places, result.observations, strict=True):
        say(_monitor_verdict(monitor), f"  {place}{monitor.text}{_since(monitor)}")
    fits = len(result.trace.steps)
    say(f"{file}: the table does the same in {fits} of the {result.total} steps of {trace}")


def _monitor_verdict(monitor: MonitorResult) -> ColouredWord:
    verdict = monitor.report.verdict if monitor.report else "-"
    return ColouredWord(verdict.ljust(_MONITOR_WIDTH), _MONITOR_COLOURS.get(verdict))


def _since(monitor: MonitorResult) -> str:
    """Return the step at which a monitor was decided, as text, or why the property has no monitor."""
    if monitor.report is None:
        return "  (it is about all runs together, so one run cannot decide it)"
    if monitor.report.step is None:
        return ""
    where = f"at step {monitor.report.step}" if monitor.report.step else "at the start"
    return f"  owed since {where.removeprefix('at ')}" if monitor.report.verdict == "pending" else f"  {where}"


_TRACES = (".jsonl", ".json")


@click.command("replay", cls=JsonCommand)
@click.argument("run")
@runs_option
@click.option("--against", "file", metavar="FILE", help="Feed the recorded events to the machine in FILE.")
@click.option(
    "--with",
    "module",
    metavar="MODULE",
    help="For a run of a policy (see `dsa run --policy`): the module with the policy's code.",
)
@json_option
def command(run: str, root: str, file: str | None, module: str | None, *, json_wanted: bool) -> None:
    """Compute every entry of RUN's ledger again from the recorded events, and compare it with the recorded entry. With --against, feed the events to the machine in FILE instead, and show the first difference.

    RUN is an id, a part of one, `last`, or a file with a recorded trace, which needs --against. Exit code 0: there is no difference; 1: there is one.
    """
    if run.endswith(_TRACES):
        sys.exit(_of_file(run, file, json_wanted=json_wanted))
    folder = Path(root)
    stored_run = recorded_run(folder, run)
    if file is None:
        sys.exit(_rederive_run(stored_run, folder, module, json_wanted=json_wanted))
    sys.exit(_against(f"run {stored_run.run}", stored_run.entries, file, _own(stored_run), json_wanted=json_wanted))


def _rederive_run(stored_run: StoredRun, folder: Path, module: str | None, *, json_wanted: bool) -> int:
    """Derive a run again from its events, and a policy's run from the results of its calls; return the exit code."""
    record = replay_record(folder, stored_run)
    if record.run.machine.name == POLICY:
        with exit_on_faults(folder):
            return _again(record, _calls_again(record, folder, module), json_wanted=json_wanted)
    if module is not None:
        raise click.UsageError(
            "--with is only for the run of a policy; to replay the run of a machine, its recorded events are enough"
        )
    return _again(record, json_wanted=json_wanted)


def _calls_again(record: RunRecord, folder: Path, module: str | None) -> ReplayReport:
    """Perform the policies that called others again, bound as at the start or by another module."""

    async def replay_calls() -> ReplayReport:
        loop = asyncio.get_running_loop()
        handler = loop.default_exception_handler
        loop.set_exception_handler(lambda _loop, about: None if _ends_it(about.get("exception")) else handler(about))
        async with open_runs(folder, must_exist=True) as runs:
            binding = runs.binding_of(record.run.run_id, Options(module))
        return await replay_policy(record.run, binding.policies, binding.config)

    return asyncio.run(replay_calls())


def _ends_it(error: BaseException | None) -> bool:
    """Return whether the command reports this error itself, so that asyncio need not report it for an abandoned task."""
    return isinstance(error, LedgerEnds | DsaError)


def _of_file(name: str, file: str | None, *, json_wanted: bool) -> int:
    """Check a file against a table: a run's story, as `dsa show --jsonl` prints it, or a trace."""
    if file is None:
        raise click.UsageError(f"{name} is a recorded trace; give the table that the trace should fit: --against FILE")
    text = read_text(name)
    if '"kind":"machine"' in text.lstrip().partition("\n")[0]:
        try:
            entries = load_story(text)
        except (ValueError, KeyError, TypeError) as fault:
            raise CommandExit(f"{name} begins like a recorded run, but is not one", EXIT_UNREADABLE) from fault
        return _against(name, entries, file, None, json_wanted=json_wanted)
    return replay_trace((file,), name, json_wanted=json_wanted)


def _own(stored_run: StoredRun) -> Machine | None:
    """Return a run's machine; None if this version of dsa reads its document differently."""
    try:
        return machine_record(stored_run).run.machine
    except OtherMachineError:
        return None


# -- the same again ---------------------------------------------------------------------------------------------------


def _again(record: RunRecord, calls: ReplayReport | None = None, *, json_wanted: bool) -> int:
    """Compare a run's ledger with the one that its machine derives from the events, byte by byte; return the exit code."""
    run, _ = records.replay_stored(record.stored_run, rederive)
    pairs = zip(record.stored_run.entries, run.ledger, strict=True)
    for position, (recorded_entry, derived_entry) in enumerate(pairs):
        if ledger.dump_line(recorded_entry) != ledger.dump_line(derived_entry):
            differs = (
                f"{ledger.dump_line(recorded_entry)} is recorded, but {ledger.dump_line(derived_entry)} is derived"
            )
            raise CommandExit(f"damaged: run {run.run_id}, entry {position}: {differs}", 1)
    result = projection(run)
    digest = hashlib.sha256("\n".join([*map(ledger.dump_line, run.ledger), json.dumps(result)]).encode()).hexdigest()
    counts = _counts(run.ledger)
    if json_wanted:
        call_facts = {} if calls is None else {"calls": list(calls.performed_paths), "ends_at": calls.ends_at}
        facts = {"run": run.run_id, "machine": run.machine.name, **counts, **result, **call_facts, "sha256": digest}
        say(json.dumps(facts, indent=2))
    else:
        say(f"run {run.run_id}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        values = show_values(run.values.items()) or "no variables"
        say(f"every entry is the same when it is derived again; {run.configuration.state}: {values}")
        for each in () if calls is None else _call_lines(calls):
            say(each)
        say(f"sha256 {digest}")
    return 0


def _call_lines(report: ReplayReport) -> Iterator[str]:
    """Yield the calls that were performed again."""
    again = [f"{call.policy} {call.path}" for call in report.calls if call.path in report.performed_paths]
    if again:
        yield f"performed again with recorded results, these calls make the same requests and take the same steps: {', '.join(again)}"
    elif report.calls:
        yield f"{report.calls[0].policy} made no calls: there is nothing to perform again"
    if report.ends_at is not None:
        yield f"the ledger ends at call {report.ends_at}"


def projection(run: Run) -> dict[str, object]:
    """Return the result of a run's events as JSON: state, values, keys of outstanding effects, and each step's view."""
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
        "outstanding": dict(run.keys),
        "steps": steps,
        "specification": run.specification,
    }


def _counts(entries: Iterable[ledger.Entry]) -> dict[str, int]:
    counts = {"entries": 0, "events": 0, "rows": 0, "refused": 0, "effects": 0}
    kinds = {
        ledger.EventEntry: "events",
        ledger.RowEntry: "rows",
        ledger.RefusalEntry: "refused",
        ledger.EffectEntry: "effects",
    }
    for entry in entries:
        counts["entries"] += 1
        if type(entry) in kinds:
            counts[kinds[type(entry)]] += 1
    return counts


# -- another table ----------------------------------------------------------------------------------------------------


def _against(
    name: str, entries: ledger.Ledger[ledger.Entry], file: str, own: Machine | None, *, json_wanted: bool
) -> int:
    """Let another table take the events of a ledger, and print the first difference; return the exit code."""
    first = entries[0] if len(entries) else None
    if not isinstance(first, ledger.MachineEntry):
        raise CommandExit(
            f"the run {name} is of a policy, not of a machine, so its events cannot be tried on a table",
            EXIT_UNREADABLE,
        )
    try:
        machine = load(file).at(dict(first.parameters))
    except ParameterError as fault:
        raise CommandExit(f"the parameters of {name} do not fit {file}: {fault}", 1) from fault
    machine = machine if own is None else spelled_like(machine, own)
    difference = first_difference(machine, entries, own)
    events = _counts(entries)["events"]
    same = events if difference is None else _before(entries, difference)
    if json_wanted:
        difference_object = None if difference is None else difference_as_json(machine, difference)
        facts = {"run": first.run, "against": file, "events": events, "same": same, "difference": difference_object}
        say(json.dumps(facts, indent=2))
    else:
        for line in () if difference is None else difference_lines(machine, difference, file):
            say(line)
        say(f"{file} does the same in {same} of the {events} events of {name}")
    return int(difference is not None)


def _before(entries: ledger.Ledger[ledger.Entry], difference: Difference) -> int:
    assert difference.record.event is not None, "something happened"
    seq = difference.record.event.seq
    return sum(isinstance(entry, ledger.EventEntry) and entry.seq < seq for entry in entries)


def difference_lines(machine: Machine, difference: Difference, file: str) -> tuple[str, ...]:
    """Return a difference as lines: the event, the record, what the table does instead, and the conjuncts that were false."""
    event, here = difference.record.event, difference.here
    assert event is not None, "something happened"
    record_text = _did(difference.record.outcome, difference.commands)
    width = max(len("recorded"), len(file))
    lines = [
        f"event {event.seq}, {show_occurrence(difference.record.occurrence)} in {here.state}:",
        f"  {'recorded':<{width}}  {record_text}",
        f"  {file:<{width}}  {_would(difference)}",
    ]
    false = _false(machine, difference)
    return (*lines, f"  {'':<{width}}  {false}") if false else tuple(lines)


def _would(difference: Difference) -> str:
    if difference.outcome is None:
        return f"has no such event: {difference.fault}"
    did = _did(difference.outcome, difference.instead)
    return did if difference.row is None else f"{show_row(difference.row)}: {did.partition(': ')[2] or did}"


def _did(outcome: ledger.RowEntry | ledger.RefusalEntry | None, commands: tuple[Command, ...]) -> str:
    """Return what a table did with an event, as text."""
    accepted = (
        "".join(f", accepts {step}" for step, _ in outcome.accepted) if isinstance(outcome, ledger.RowEntry) else ""
    )
    command_text = f"; {', '.join(map(_command, commands))}" if commands else ""
    return f"{outcome_text(outcome)}{accepted}{command_text}"


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
    """Return the conjuncts of the candidate rows that were false, as text; "" if there are none."""
    try:
        return show_false(rows_at(machine, difference.here, difference.record.occurrence))
    except (OccurrenceError, KeyError):  # the table has no such event, or reads guards without a verdict
        return ""


def difference_as_json(machine: Machine, difference: Difference) -> dict[str, object]:
    """Return a difference as an object: the event, the record, and what the machine does instead."""
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
