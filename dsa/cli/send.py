"""`dsa send RUN EVENT [DATA]`: send a waiting run an event from outside, or the answer of an effect in doubt."""

import re
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import click

from dsa.cli.command_line import EXIT_UNREADABLE, CommandExit, print_json, read_data, require_text, say
from dsa.cli.ledger_view import terminal
from dsa.cli.resume import Manner, RunInput, go_on
from dsa.cli.run_options import (
    SAME_MODEL,
    RunOptions,
    duration_s,
    exit_on_faults,
    open_run_folder,
    recorded_run,
    replay_record,
    run_options,
    runs_option,
    shell_command,
    watching_options,
)
from dsa.cli.run_view import (
    EXIT_WAITING,
    FinishedRun,
    JsonRunCommand,
    RunReport,
    exit_code,
    print_result,
    recorded_report,
)
from dsa.declarations import OUTSIDE
from dsa.edge.event_loop import run_to_end
from dsa.runs.archive import POLL_S, RunRecord
from dsa.runs.child_runs import driving_run
from dsa.runs.place import is_on_server
from dsa.runs.runs import calls_in_doubt, open_runs
from dsa.runtime.ledger import EventEntry, RefusalEntry, asking_run, place_in_part
from dsa.runtime.ledger_story import question_of, refusal_text
from dsa.runtime.policy.policies import ACTION_RESULT, TEXT, Step, action_result_step, text_step
from dsa.runtime.run import Run
from dsa.runtime.run_store import Delivery, outcome_text, read_delivery
from dsa.runtime.status import answerable_questions, person_effects, places
from dsa.runtime.timeline import RefusedEvent
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.text import closest, shorten

#: The seconds after which a waiting person sees why.
_LONG_S = 2.0
#: The place of a question: the number of an event, or the key of an effect.
_PLACE = re.compile(r"[0-9]+(/[0-9]+)?")


@click.command("send", cls=JsonRunCommand)
@click.argument("run")
@click.argument("event")
@click.argument("text", required=False, metavar="[DATA]")
@runs_option
@click.option("--data", metavar="DATA", help="The event's data as JSON or plain text, instead of the argument DATA.")
@click.option(
    "--answers",
    "key",
    metavar="KEY",
    help="Take EVENT as the answer of the effect with this KEY, which is in doubt: nobody knows whether the effect happened. `dsa show` prints the whole command for each answer that is possible.",
)
@click.option(
    "--take",
    is_flag=True,
    help="Take over the run, even if another process is driving it. On Temporal, this interrupts the run first.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="DURATION",
    callback=duration_s,
    default="10s",
    show_default=True,
    help="How long to wait until the process that holds the run takes the event.",
)
@watching_options
@partial(run_options, default=SAME_MODEL)
def command(
    run: str,
    event: str,
    text: str | None,
    *,
    root: str,
    data: str | None,
    key: str | None,
    take: bool,
    timeout_s: float,
    options: RunOptions,
) -> None:
    """Send the event EVENT, with DATA, to RUN; then go on with this run.

    RUN is an id, a part of one, or `last`. A run that waits for a person asks a question, and `dsa` prints the address of the question, RUN@PLACE. An event sent to RUN@PLACE
    counts for that question alone: the event is refused (reason: late) if the run has gone on to another question. An event sent to RUN counts for whatever the run asks now. If another process
    drives the run, the event goes into the run's inbox: exit code 0 if that process has taken it, 3 if not yet. If no other process drives
    the run, the exit codes are those of `dsa run`; 1 can then also mean that the event was refused, and 2 that the machine has no such event.
    """
    folder, (run, place) = Path(root), _split_place(run)
    record, at, whole = _target_records(folder, run, event, place)
    run_input = _read_input(record, Occurrence(event, data=_data(text, data)), at, key)
    _require_unfinished(record)
    is_part = whole is not record and not key
    is_posted = is_part or (record.status.kind == "under way" and not (take or key))
    if is_on_server(folder):
        is_posted = record.status.kind == "under way" and not (is_part or key)
        run_input, is_part = _through_whole(run_input, record, is_part=is_part)
    message, code = _post(record, whole, folder, run_input, options, timeout_s) if is_posted else ("", None)
    if code is not None:
        sys.exit(code)
    rest = attrs.evolve(run_input, occurrences=()) if is_posted else run_input
    finished_run = _go_on_in_words(whole if is_part else record, folder, rest, Manner(options, take))
    now = replay_record(folder, recorded_run(folder, record.run.run_id)).run if is_part else finished_run.rest.run
    refusals = _refusals_in(_delivery(folder, message), run_input) if is_posted else finished_run.refusals
    _say_refused(refusals, now, folder / now.run_id)
    if finished_run.rest.in_doubt and not key:
        say(f"{event} was not sent; first decide about the effects in doubt", err=True)
    print_result(finished_run, terminal(), json_wanted=options.json_wanted, refusals=refusals)
    sys.exit(exit_code(finished_run.rest, refusals))


def _go_on_in_words(record: RunRecord, root: Path, run_input: RunInput, manner: Manner) -> FinishedRun:
    """Go on with a run. If one on a server takes a while, print what it waits for: a worker does the work, and may show nothing here."""
    timer = threading.Timer(_LONG_S, say, [f"waiting for {record.run.run_id} to pause or end"], {"err": True})
    timer.daemon = True
    if is_on_server(root) and not manner.options.quiet:
        timer.start()
    try:
        return go_on(record, root, run_input, manner)
    finally:
        timer.cancel()


def _require_unfinished(record: RunRecord) -> None:
    if record.status.kind == "finished":
        raise CommandExit(f"run {record.run.run_id} is finished ({record.run.outcome}): it takes no more events", 1)


def _read_input(record: RunRecord, occurrence: Occurrence, at: str | None, key: str | None) -> RunInput:
    """Return the input for a run: an event, or the answer of the effect with this key. Raises what `_require_known` and `_answer` do."""
    if key is not None:
        return RunInput(answers={key: _answer(record, key, occurrence)})
    _require_known(record, occurrence.event, is_answer=False)
    return RunInput(occurrences=(occurrence,), at=at)


def _through_whole(run_input: RunInput, record: RunRecord, *, is_part: bool) -> tuple[RunInput, bool]:
    """Return the input for the run to drive, and whether that run takes it for a part, whose name the place then has.

    A server has no inboxes: what is sent is taken at once.
    """
    if not is_part or run_input.at is None:
        return run_input, False
    return attrs.evolve(run_input, at=place_in_part(record.run.run_id, run_input.at)), True


def _split_place(run: str) -> tuple[str, str]:
    """Split RUN@PLACE. Raises UsageError for an invalid place."""
    whole, _, place = run.partition("@")
    part, _, inner = place.partition("@")
    name, place = (part, inner) if inner else (whole, place)  # the place of a part's question names the part
    if place and not _PLACE.fullmatch(place):
        raise click.UsageError(
            f"'{place}' is not a place in a run: write the number of an event, such as 3, or the key of an effect, such as 3/1"
        )
    return name, place


def _target_records(root: Path, run: str, event: str, place: str) -> tuple[RunRecord, str | None, RunRecord]:
    """Return the run that takes an event, which may be a part of the named one, the place of the question there, and the run to drive."""
    record = replay_record(root, recorded_run(root, run))
    if not place:
        _require_one_question(record.run, event, root / record.run.run_id)
    at = place or places(record.run).get(event)
    if at is not None and asking_run(at):
        record, at = replay_record(root, recorded_run(root, asking_run(at))), at.rpartition("@")[2]
    with open_run_folder(root) as runs:
        whole = driving_run(runs, record.run.run_id)
    is_whole = whole == record.run.run_id
    return record, at, record if is_whole else replay_record(root, recorded_run(root, whole))


def _require_one_question(run: Run, event: str, directory: Path) -> None:
    """Raise UsageError, with the commands to choose from, if an event may answer one of several open questions."""
    open_questions = answerable_questions(run, event)
    if len(open_questions) > 1:
        lines = "".join(
            f"\n  {shell_command('send', directory, event, at=key)}: {shorten(question_of(result))}"
            for key, result in open_questions.items()
        )
        raise click.UsageError(
            f"'{event}' could answer any of {len(open_questions)} open questions; use one of these commands:{lines}"
        )


def _post(
    record: RunRecord, whole: RunRecord, root: Path, run_input: RunInput, options: RunOptions, timeout_s: float
) -> tuple[str, int | None]:
    """Post an event to a run that another process drives, or to a part, and print its outcome.

    Return the id of the message and the exit code; None if no process drives the run now.
    """
    run_id, (occurrence,) = record.run.run_id, run_input.occurrences
    if is_on_server(root):
        with exit_on_faults(root, lambda: root / run_id):
            taken_or_refused = run_to_end(_server_outcome(run_id, root, run_input))
        with open_run_folder(root) as runs:
            return "", _print_outcome(taken_or_refused, run_input, recorded_report(runs, runs.get(run_id)), options)
    with open_run_folder(root) as runs:
        message, deadline_s = runs.post(run_id, occurrence, run_input.at, options.changes), time.monotonic() + timeout_s
        while (outcome := runs.delivery(message)) is None and time.monotonic() < deadline_s:
            if runs.summary(whole.run.run_id).holder is None:
                return message, None
            time.sleep(POLL_S)
        report = recorded_report(runs, runs.get(run_id))
    return message, _print_outcome(outcome, run_input, report, options, message)


async def _server_outcome(run_id: str, root: Path, run_input: RunInput) -> Delivery:
    """Send an event to a run that goes on at a server, which takes or refuses it at once, and return the outcome."""
    (occurrence,) = run_input.occurrences
    async with open_runs(root) as runs:
        result = await runs.send(run_id, occurrence.event, occurrence.data, at=run_input.at)
        return read_delivery(outcome_text(cast(Taken | Refusal, result)))


def _print_outcome(
    outcome: Delivery | None, run_input: RunInput, report: RunReport, options: RunOptions, message: str = ""
) -> int:
    """Print whether an event was taken by a run that goes on elsewhere; None while it waits as `message`. Return the exit code."""
    (occurrence,) = run_input.occurrences
    refusals = _refusals_in(outcome, run_input)
    code = EXIT_WAITING if outcome is None else int(bool(refusals))
    if options.json_wanted:
        waits = message if outcome is None else None
        print_json(attrs.evolve(report, exit_code=code, refusals=refusals, message_id=waits).to_json())
    elif outcome is None:
        say(f"{occurrence.event} is posted but not taken yet, because {report.holder} holds the run")
    elif not refusals:
        say(f"{occurrence.event} was taken: the run is in {outcome.state}")
    if report.run is not None and report.folder is not None:
        _say_refused(refusals, report.run, report.folder)
    return code


def _delivery(root: Path, message: str) -> Delivery | None:
    """Return the outcome of a message; None while it waits. What others may have sent the run has outcomes of its own."""
    with open_run_folder(root) as runs:
        return runs.delivery(message)


def _refusals_in(outcome: Delivery | None, run_input: RunInput) -> tuple[RefusedEvent, ...]:
    """Return the refusal of a posted event; none if it was taken, or waits."""
    if outcome is None or not outcome.reason:
        return ()
    refusal = RefusalEntry(outcome.reason, outcome.message, outcome.accepted)
    (occurrence,) = run_input.occurrences
    return (RefusedEvent(EventEntry(0, occurrence.event, at=run_input.at), refusal, outcome.state),)


def _say_refused(refusals: Iterable[RefusedEvent], run: Run, directory: Path) -> None:
    """Print why events were refused, and what to do if the run does not ask the question any more."""
    for each in refusals:
        where = f" in {each.state}" if each.state else ""
        say(f"{each.event.event}{where} was {refusal_text(each.refusal)}", err=True)
        name, at = each.event.event, each.event.at or each.event.key
        if each.refusal.reason != "late" or at is None:
            continue
        now = places(run).get(name)
        if now is None:
            hint = f"the run does not ask for {name} now: {shell_command('show', directory)} shows its questions"
        else:
            answer = shell_command("send", directory, name, at=now)
            hint = f"the run asks question {now} now, not {at}: look at it ({shell_command('show', directory)}), and answer with {answer}"
        say(hint, err=True)


def _data(text: str | None, json_text: str | None) -> Any:  # noqa: ANN401  (JSON)
    """Return the event's data. Raises UsageError if it is given twice, and for invalid JSON or text."""
    if text is not None and json_text is not None:
        raise click.UsageError("give DATA or --data, not both")
    if json_text is not None:
        return read_data(json_text)
    if text is not None and text.lstrip().startswith(("{", "[")):
        return read_data(text, "DATA")
    return None if text is None else require_text(text, "DATA")


def _answer(record: RunRecord, key: str, occurrence: Occurrence) -> Occurrence | Step:
    """Return the answer of an effect in doubt, an event, or of a call in it, a step. Raises UsageError and CommandExit."""
    call = calls_in_doubt(record.status.left).get(key)
    if call is None:
        _require_known(record, occurrence.event, is_answer=True)
        return occurrence
    if occurrence.event == TEXT and isinstance(occurrence.data, str):
        return text_step(call.policy, occurrence.data)
    if occurrence.event == ACTION_RESULT and isinstance(occurrence.data, dict):
        return action_result_step(call.policy, occurrence.data)
    forms = f"`{TEXT} \"..\"` or `{ACTION_RESULT} --data '{{..}}'`"
    raise click.UsageError(f"write the result of a call as {forms}")


def _require_known(record: RunRecord, event: str, *, is_answer: bool) -> None:
    """Raise CommandExit, with the event that was probably meant, if the machine has none of that name."""
    machine = record.run.machine
    if event not in machine.event_named:
        people = {OUTSIDE, *person_effects(record.run)}
        names = [each.name for each in machine.events if is_answer or each.origin in people]
        raise CommandExit(f"{machine.name} has no event '{event}'; {closest(event, names)}", EXIT_UNREADABLE)
