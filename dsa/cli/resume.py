"""`dsa resume RUN`: go on after a crash, a stop or an interruption, or with decisions about effects in doubt.

`go_on` is for `dsa send`, too: it binds a recorded run as it was started, shows its progress, and drives it until it rests. With `--machine FILE` or
`--param` the run goes on under another table, if it is compatible with it.
"""

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.search.engine import SearchLimits
from dsa.cli.command_line import CommandExit, say
from dsa.cli.diff import without_claims
from dsa.cli.ledger_view import terminal, to_do_items
from dsa.cli.replay import difference_lines
from dsa.cli.run import machine_document, progress_of, resuming_of
from dsa.cli.run_options import (
    SAME_MODEL,
    RunOptions,
    exit_on_faults,
    open_run_folder,
    recorded_run,
    replay_record,
    run_options,
    runs_option,
    shell_command,
    watching_options,
)
from dsa.cli.run_view import FinishedRun, JsonRunCommand, exit_code, perform, print_result
from dsa.edge.document_files import load, read_text
from dsa.edge.processes import environment_secrets
from dsa.errors import DsaError, OccurrenceError
from dsa.expr import Value, show_value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.runs.archive import RunRecord, text_of
from dsa.runs.child_runs import driving_run
from dsa.runs.door import Runs
from dsa.runs.handle import NotTakenError, RunHandle
from dsa.runs.migration import MAX_STATES, Fit, FitJudge
from dsa.runs.place import PART_OF, STEPS, accepted_artifacts, is_on_server
from dsa.runs.runs import Resumption, open_runs
from dsa.runtime.ledger import ChangeEntry, Handling
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.policy.policies import Step
from dsa.runtime.run import Run
from dsa.runtime.status import Rest
from dsa.runtime.timeline import RefusedEvent, refused_event
from dsa.semantics import Occurrence


@attrs.frozen
class MachineChange:
    """Another document for a run, or the same one with other parameters. `name` is as the user wrote it."""

    name: str
    path: str | None
    text: str
    machine: Machine
    parameters: Mapping[str, Value]

    def entry(self, run: Run) -> ChangeEntry | None:
        """Return the entry to record; None if the run has this machine already. Raises CommandExit if it may not go on under it."""
        fit = FitJudge(self.machine, SearchLimits(MAX_STATES), self.parameters).judge(run)
        if fit.verdict != "compatible" or fit.machine is None:
            raise CommandExit(f"run {run.run_id} cannot continue with {self.name}: {self._why(fit)}", 1)
        if digest(fit.machine) == digest(run.machine):
            return None
        at_ms = time.time_ns() // 1_000_000
        return ChangeEntry(fit.machine.name, digest(fit.machine), self.text, fit.machine.constants, self.path, at_ms)

    def _why(self, fit: Fit) -> str:
        reason = fit.why or "its history would be different"
        if fit.difference is not None and fit.machine is not None:
            reason += "".join(f"\n{line}" for line in difference_lines(fit.machine, fit.difference, self.name))
        return f"{reason}\n(`dsa diff` shows all differences; without --machine the run goes on under its own document)"


def change_of(record: RunRecord, file: str | None, parameters: Mapping[str, Value]) -> MachineChange | None:
    """Return the change that the options ask for, or None. Raises MachineError, DocumentError and ParameterError."""
    if file is not None:
        path = machine_document(file)
        return MachineChange(file, str(path.absolute()), read_text(path), load(str(path)), parameters)
    if not parameters:
        return None
    record.run.machine.at(dict(parameters))  # raises an error for an unknown name
    text = text_of(record.stored_run.text, record.run.ledger)
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in parameters.items())
    return MachineChange(values, dict(record.first.started).get("file"), text, loads(text, "machine.md"), parameters)


@attrs.frozen
class RunInput:
    """The input for a run: events from outside, and decisions about effects in doubt with their answers.

    `at` is the place of the question that the events answer.
    """

    occurrences: tuple[Occurrence, ...] = ()
    at: str | None = None
    decisions: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence | Step] = attrs.field(factory=dict)


@attrs.frozen
class Manner:
    """The manner of resuming: `options` that differ from the start, whether to `take` the run from a live process, and another `machine`."""

    options: RunOptions
    take: bool = False
    machine: str | None = None


def go_on(record: RunRecord, root: Path, run_input: RunInput, manner: Manner) -> FinishedRun:
    """Resume a run and drive it until it rests. Raises CommandExit, and what `Runs.resume` raises for mistakes of the user."""
    directory, options = root / record.run.run_id, manner.options.as_started(record.stored_run)
    change = change_of(record, manner.machine, options.parameters)
    machine = change.machine if change else record.run.machine
    if change is None:
        _note_changes(record, directory)
    with (
        exit_on_faults(root, lambda: directory),
        options.watch_options.watch(environment_secrets(options.watch_options.secret_options)) as watchers,
        progress_of(machine, terminal(), root, options) as progress,
    ):
        watchers.note("what is sent", [_data(each) for each in (*run_input.occurrences, *run_input.answers.values())])
        entry = change.entry if change else lambda _run: None
        how: dict[str, Any] = {
            "options": options.changes,
            "resumption": Resumption(run_input.decisions, run_input.answers, entry, manner.take),
            "on_moment": watchers.observer(progress.on_moment),
        }

        async def begin(runs: Runs) -> RunHandle:
            handle = runs.hold(record.run.run_id, **how)
            answers = [(each.event, handle.offer(each, run_input.at)) for each in run_input.occurrences]
            handle.start()
            for event, answer in answers:
                try:
                    refusals.extend(refused_event(event, run_input.at, await handle.outcome_of(event, answer)))
                except NotTakenError:
                    break  # the rest of the run says why
                except OccurrenceError as fault:
                    faults.append(fault)
            return handle

        faults, refusals = list[OccurrenceError](), list[RefusedEvent]()
        finished_run = perform(partial(open_runs, root, must_exist=True), begin, options.wait_s)
        if faults:
            raise faults[0]
        progress.rests(directory)
        watchers.close(finished_run.rest)
        return attrs.evolve(finished_run, refusals=tuple(refusals))


def _data(each: Occurrence | Step) -> object:
    return each.payload if isinstance(each, Step) else each.data


def _note_changes(record: RunRecord, directory: Path) -> None:
    """Print a note on standard error if the document has changed: the run goes on with its own copy."""
    file = dict(record.first.started).get("file")
    if not file:
        return
    try:
        now = digest(without_claims(load(file).at(dict(record.first.parameters))))
    except (DsaError, OSError):
        now = ""  # it is gone, or is not a machine any more
    if now != digest(without_claims(record.run.machine)):
        own = directory / "machine.md"
        copy = "the table that it began with" if is_on_server(directory) else f"its own copy, {own}"
        diff = "" if is_on_server(directory) else f"dsa diff {own} {file} shows what changed; "
        change = shell_command("resume", directory, "--machine", file)
        say(
            f"{file} has changed; the run goes on with {copy} ({diff}{change} uses the changed file, if the run fits it)",
            err=True,
        )


@click.command("resume", cls=JsonRunCommand)
@click.argument("run")
@runs_option
@click.option(
    "--retry",
    "retry_keys",
    multiple=True,
    metavar="KEY",
    help="Declare that the effect with this KEY, which is in doubt, has not happened. It is then performed again.",
)
@click.option(
    "--done",
    "done_keys",
    multiple=True,
    metavar="KEY",
    help="Declare that the effect with this KEY, which is in doubt, has happened.",
)
@click.option(
    "--fail",
    "failed_keys",
    multiple=True,
    metavar="KEY",
    help="Declare that the effect with this KEY, which is in doubt, has failed.",
)
@click.option(
    "--take",
    is_flag=True,
    help="Take over the run, even if another process is driving it. On Temporal, this interrupts the run first.",
)
@click.option(
    "--machine",
    metavar="FILE",
    help="Go on under this document from now on, if `dsa diff` finds that the run is compatible with it.",
)
@watching_options
@partial(run_options, default=SAME_MODEL)
def command(
    run: str,
    root: str,
    *,
    retry_keys: tuple[str, ...],
    done_keys: tuple[str, ...],
    failed_keys: tuple[str, ...],
    take: bool,
    machine: str | None,
    options: RunOptions,
) -> None:
    """Go on with RUN after a crash, after Ctrl-C, after a failure, or when an effect is in doubt, which means that nobody knows whether it happened.

    RUN is an id, a part of one, or `last`. The run goes on with the module and the model that it was started with. `dsa show` prints the KEY
    of each effect that is in doubt, for --retry, --done and --fail. Without --json, a conversation continues
    as in `dsa chat`, with the exit codes of `dsa chat`, and a coding run continues as in `dsa code`, with the exit codes of `dsa code`. In all other cases the exit codes are those of `dsa run`.
    """
    folder, stored_run = Path(root), recorded_run(Path(root), run)
    keys_by_handling: dict[Handling, tuple[str, ...]] = {"retry": retry_keys, "done": done_keys, "fail": failed_keys}
    record = replay_record(folder, stored_run)
    decisions = _read_decisions(record, folder, keys_by_handling)
    record = record if decisions else _whole(record, folder)
    is_part = PART_OF in record.run.run_id
    own = None if options.json_wanted or is_part else resuming_of(record.first.name)
    changes = bool(decisions or machine or options.parameters)
    if own is not None and not changes and record.status.kind not in {"finished", "in doubt"}:
        sys.exit(own(record.run.run_id, folder, options, take=take))
    if record.status.kind == "finished" and not decisions:
        finished_run = _report_finished(record, folder, json_wanted=options.json_wanted)
    else:
        is_told = options.shows_nothing or decisions or record.first.name == POLICY  # its calls are printed one by one
        for _, what in () if is_told else to_do_items(record):
            say(f"going on with {what}")
        finished_run = go_on(record, folder, RunInput(decisions=decisions), Manner(options, take, machine))
        if own is not None and finished_run.rest.kind == "waiting":  # the decisions are recorded, and people talk on
            sys.exit(own(record.run.run_id, folder, options, take=take))
        print_result(finished_run, terminal(), json_wanted=options.json_wanted)
    sys.exit(exit_code(finished_run.rest))


def _whole(record: RunRecord, root: Path) -> RunRecord:
    """Return the run to drive so that a run goes on: itself, or the run that it is a part of, with a note."""
    run_id = record.run.run_id
    with open_run_folder(root) as runs:
        whole = driving_run(runs, run_id)
    if whole == run_id:
        return record
    say(f"{run_id} is a part of {whole}; the whole run is resumed", err=True)
    return replay_record(root, recorded_run(root, whole))


def _report_finished(record: RunRecord, root: Path, *, json_wanted: bool) -> FinishedRun:
    """Print that a run is finished; return its result."""
    finished_run = read_finished_run(record, root)
    if json_wanted:
        print_result(finished_run, terminal(), json_wanted=True)
    else:
        say(f"run {record.run.run_id} is finished: {record.run.outcome}")
    return finished_run


def read_finished_run(record: RunRecord, root: Path) -> FinishedRun:
    """Return the result of a run that is finished, from its record and its folder."""
    directory = root / record.run.run_id
    with open_run_folder(root) as runs:
        accepted = tuple(accepted_artifacts(record.run, runs.artifacts(record.run.run_id)))
    steps, final = directory / STEPS, next(iter(sorted(directory.glob("final.*"))), None)
    diagram = directory / "diagram.svg"
    rest = Rest("finished", record.run, accepted=accepted)
    there = [path if path.exists() else None for path in (steps, diagram)]
    return FinishedRun(rest, directory, there[0], final, there[1], 0.0)


def _read_decisions(
    record: RunRecord, root: Path, keys_by_handling: dict[Handling, tuple[str, ...]]
) -> dict[str, Handling]:
    """Return the decisions about effects in doubt, by key. Raises UsageError for impossible ones."""
    decisions: dict[str, Handling] = {}
    for handling, keys in keys_by_handling.items():
        for key in keys:
            if key in decisions:
                raise click.UsageError(f"{key} has two decisions; give only one")
            decisions[key] = handling
            if handling == "done":
                _require_no_answers(record, root, key)
    return decisions


def _require_no_answers(record: RunRecord, root: Path, key: str) -> None:
    """Raise UsageError for an effect with answers, because the user must say which one it gave."""
    open_effect = next((each for each in record.status.left.in_flight if each.intent.key == key), None)
    if open_effect is None:
        return
    answers = record.run.machine.answers.get(open_effect.intent.effect, ())
    if answers:
        event = answers[0] if len(answers) == 1 else "EVENT"
        way = shell_command("send", root / record.run.run_id, event, "--answers", key)
        which = "" if len(answers) == 1 else f", where EVENT is one of {', '.join(answers)}"
        raise click.UsageError(
            f"{open_effect.intent.effect} {key} always returns an answer, so it is not enough to say that it is done; say which answer it gave: `{way}`{which}"
        )
