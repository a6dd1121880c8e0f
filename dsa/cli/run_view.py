"""Run views: runs that commands drive until they rest, and their ends, in words for people or as JSON for programs.

`perform` drives one run and writes its results to its folder. `RunReport` is the JSON of a run: one object of one shape (`run.schema.json`) from
every command that runs or shows one, also after an error. `print_result` prints how a run ended.
"""

import asyncio
import glob
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dsa.cli.command_line import EXIT_INTERRUPTED, JsonCommand, fault_as_json, noted_run, print_json, say, silence
from dsa.cli.ledger_view import (
    doubt_lines,
    doubt_text,
    questions_text,
    send_line,
    tokens_and_cost,
)
from dsa.cli.run_options import machine_record, open_run_folder, shell_command
from dsa.data_use import GENERATING_EFFECT
from dsa.edge.event_loop import run_to_end
from dsa.edge.images import svg
from dsa.edge.performer import code_and_message
from dsa.errors import DsaError
from dsa.runs.archive import RunRecord
from dsa.runs.bindings import answer_text, calls_of_policy, policy_steps
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import extension_of
from dsa.runs.place import ERRORS, accepted_artifacts, directory_text, is_on_server, result_of, text_for_people
from dsa.runs.summary import BY_THE_STORE
from dsa.runtime.content import Artifact
from dsa.runtime.costs import Totals, totals
from dsa.runtime.ledger import ArtifactEntry, EventEntry, Intent, ResultEntry, RowEntry, VerdictEntry
from dsa.runtime.ledger_story import due_text, spoken_text, step_text
from dsa.runtime.policy.call_tree import call_named
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import (
    Rest,
    RunStatus,
    doubted_keys,
    next_due_ms,
    parts,
    places,
    review_of,
    timed_events,
    undecided_verdict,
)
from dsa.runtime.timeline import Moment, RefusedEvent
from dsa.semantics import Occurrence
from dsa.targets import emit
from dsa.text import plural, printable, shorten
from dsa.trace import show_occurrence


@attrs.frozen
class FinishedRun:
    """A run that came to rest, with its files, if it is kept in a folder, and the seconds that this command drove it.

    `steps` is the folder with a file for each step that has passed, if there are several steps. `final` is the result, None if the run has not
    succeeded. `result` is its text where no files are kept. `diagram` is None if no renderer is installed. `refusals` are of the events that were sent; a server records none of them.
    """

    rest: Rest
    directory: Path
    steps: Path | None
    final: Path | None
    diagram: Path | None
    seconds: float
    refusals: tuple[RefusedEvent, ...] = ()
    result: str = ""


def perform(
    open_place: Callable[[], Runs], begin: Callable[[Runs], Coroutine[Any, Any, RunHandle]], wait_s: float
) -> FinishedRun:
    """Begin or resume a run, drive it until it rests, and write its results. Raises what `begin` does.

    It waits for a timer that is due within `wait_s` seconds.
    """

    async def whole() -> FinishedRun:
        began, place = time.monotonic(), open_place()
        async with _said_at_ctrl_c(place), place as runs:
            handle = await begin(runs)
            rest = await handle.rest_within(wait_s)
            seconds = time.monotonic() - began
            has_succeeded = rest.kind == "finished" and exit_code(rest) == 0
            result = result_of(rest.run.machine, rest.accepted) if has_succeeded else None
            if handle.folder is None:  # a server keeps it, and no files of it are here
                text = _answer(rest) or "" if result is None else text_for_people(rest.run.machine, result)[1]
                return FinishedRun(rest, runs.where / handle.id, None, None, None, seconds, result=text)
            steps = handle.folder.write_steps(rest.accepted)
            final, diagram = handle.folder.write_final(result, _answer(rest)), None
            with suppress(DsaError):
                diagram = handle.folder.write_diagram(svg(emit(rest.run.machine, "dot")))
            return FinishedRun(rest, handle.folder.path, steps, final, diagram, seconds)

    return run_to_end(whole())


@asynccontextmanager
async def _said_at_ctrl_c(runs: Runs) -> AsyncIterator[None]:
    """Print which runs go on although Ctrl-C was pressed."""
    try:
        yield
    except asyncio.CancelledError:
        for run_id in runs.uninterrupted_ids:
            say(
                f"{run_id} was not interrupted, because no worker answers; the run goes on when a worker does", err=True
            )
        raise


def _answer(rest: Rest) -> str | None:
    """Return the answer of a policy's run that has succeeded; None for any other run."""
    steps = policy_steps(rest.run) if rest.outcome == "succeeded" else None
    return None if steps is None else answer_text(steps)


EXIT_WAITING = 3
_CODES = {"succeeded": 0, "failed": 1, "escalated": 3}


@attrs.frozen
class RunReport:
    """The report of a command about a run: how it stands, and what it has made.

    `kind` is that of a `Rest` or a `RunStatus`, or `unreadable`. `message_id` is that of a message to the run that is not taken yet. `failure` says why
    the run stopped, or why the command failed. `run` is None if there is no run, or it cannot be read; `folder` is the run's own. `seconds` is the
    time that this command drove it.
    """

    kind: str
    exit_code: int = 0
    run: Run | None = None
    folder: Path | None = None
    failure: Mapping[str, Any] | None = None
    holder: str | None = None
    in_doubt: Sequence[Intent] = ()
    refusals: Sequence[RefusedEvent] = ()
    message_id: str | None = None
    accepted: Sequence[Artifact] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Return the object that every command prints."""
        diagram = None if self.folder is None else self.folder / "diagram.svg"
        return {
            "run": self.folder and self.folder.name,
            "machine": self.run and self.run.machine.name,
            "kind": self.kind,
            "outcome": self.run.outcome if self.run is not None and self.kind == "finished" else None,
            "state": self.run and self.run.configuration.state,
            "values": self.run.values if self.run is not None else {},
            "last_event": self._last_event(),
            "exit_code": self.exit_code,
            "failure": self.failure,
            "holder": self.holder,
            **self._waits(),
            "in_doubt": self._in_doubt(),
            "refused": [_refusal_json(each) for each in self.refusals],
            "posted": self.message_id,
            **self._results(),
            **({} if self.run is None else _of_policy(self.run)),
            "directory": None if self.folder is None or is_on_server(self.folder) else str(self.folder),
            "diagram": str(diagram) if diagram is not None and diagram.exists() else None,
            "totals": self.run and {**run_totals(self.run).to_json(), "seconds": self.seconds},
        }

    def _waits(self) -> dict[str, object]:
        """Return the events that a waiting run waits for, with their places, and the deadline of its next timer."""
        if self.run is None or self.kind not in {"waiting", "due"}:
            return {"waits_for": {}, "due_ms": None}
        return {"waits_for": places(self.run), "due_ms": next_due_ms(self.run)}

    def _last_event(self) -> Mapping[str, object] | None:
        """Return the last event that a row was taken for, with its data."""
        last = None if self.run is None else _last_move(self.run)
        return None if last is None else {"event": last[1].event, "data": last[1].data}

    def _in_doubt(self) -> list[dict[str, object]]:
        """Return the effects in doubt, and the calls in them, that a person has to decide about."""
        lines = {intent.key: intent.line for intent in self.in_doubt}
        names = {} if self.run is None else doubted_keys(self.run, self.in_doubt)
        return [{"key": key, "effect": name, "line": lines.get(key)} for key, name in names.items()]

    def _results(self) -> dict[str, object]:
        """Return the run's artifacts, with every attempt."""
        entries = () if self.run is None else self.run.ledger
        redacted_artifacts = [] if self.run is None else redacted_attempts(self.run)
        candidate = None
        if self.run is not None and self.folder is not None and self.kind in {"waiting", "due"}:
            candidate = to_judge(self.run, self.folder)
        return {
            "attempts": [_attempt(entry) for entry in entries if isinstance(entry, VerdictEntry)],
            "accepted": {artifact.step: artifact.content for artifact in self.accepted},
            "redacted": [{"step": e.step, "attempt": e.attempt, "secrets": e.redacted} for e in redacted_artifacts],
            "to_judge": candidate and candidate.place,
        }


def finished_report(finished_run: FinishedRun, refusals: Sequence[RefusedEvent] = ()) -> RunReport:
    """Return the report of a run that this command drove until it rests."""
    rest = finished_run.rest
    report = rest_report(rest, finished_run.directory, finished_run.seconds)
    return attrs.evolve(report, exit_code=exit_code(rest, refusals), refusals=refusals)


def rest_report(rest: Rest, folder: Path, seconds: float) -> RunReport:
    """Return the report of a run that was driven for `seconds`, and rests."""
    failure = None if rest.failure is None else attrs.asdict(rest.failure) | {"message": str(rest.failure)}
    if failure is not None:
        del failure["at"]
        failure = {name: value for name, value in failure.items() if name != "call" or value}
    return RunReport(
        rest.kind,
        exit_code(rest),
        rest.run,
        folder,
        failure,
        in_doubt=rest.in_doubt,
        accepted=rest.accepted,
        seconds=seconds,
    )


def recorded_report(runs: Runs, record: RunRecord) -> RunReport:
    """Return the report of a recorded run."""
    run, run_status = record.run, record.status
    status = runs.summary(run.run_id).at(runs.now_ms()).status
    return RunReport(
        status if status in BY_THE_STORE else run_status.kind,
        run=run,
        folder=runs.where / run.run_id,
        failure=_failure(run, run_status),
        holder=run_status.holder,
        in_doubt=run_status.doubts,
        accepted=accepted_artifacts(run, runs.artifacts(run.run_id)),
    )


def story_lines(stored_run: StoredRun, after: int = 0) -> Iterator[str]:
    """Yield the entries of a run after the first `after`, each as a line of JSON with its run and number."""
    for number, entry in enumerate(stored_run.entries[after:], after + 1):
        yield json.dumps(Moment(stored_run.run, number, entry).to_json(), separators=(",", ":"))


class JsonRunCommand(JsonCommand):
    """A command that runs or shows a run. If it fails, the object of `--json` has the run, too."""

    def fault_json(self, ctx: click.Context | None, fault: Exception) -> dict[str, Any]:
        """Return the object of a command that failed."""
        fault_object = fault_as_json(fault)
        folder = None if ctx is None else noted_run(ctx)
        report = RunReport(fault_object["kind"], folder=folder)
        if folder is not None:
            with suppress(DsaError, OSError, click.ClickException), open_run_folder(folder.parent) as runs:
                report = recorded_report(runs, machine_record(runs.stored_run(folder.name)))
        kind = (
            fault_object["kind"] if report.run is None or fault_object["exit_code"] == EXIT_INTERRUPTED else report.kind
        )
        return attrs.evolve(
            report, kind=kind, exit_code=fault_object["exit_code"], failure=fault_object["failure"]
        ).to_json()


def _failure(run: Run, status: RunStatus) -> dict[str, Any] | None:
    """Return the failure that stopped a recorded run, or None."""
    if status.kind != "stopped":
        return None
    failure = {"what": None, "line": None, "code": "stopped", "message": status.failure}
    results = {entry.key: entry for entry in run.ledger if isinstance(entry, ResultEntry)}
    for open_effect in status.left.in_flight:
        faults = [step["payload"] for step in results[open_effect.intent.key].steps] if open_effect.has_failed else []
        if faults and not open_effect.in_doubt:
            call = call_named(open_effect.intent.key, faults[0])
            return {
                **failure,
                **({"call": call} if call else {}),
                "what": open_effect.intent.effect,
                "line": open_effect.intent.line,
                "code": code_and_message(faults[0])[0],
            }
    return failure


def exit_code(rest: Rest, refusals: Sequence[RefusedEvent] = ()) -> int:
    """Return 0 for success, 1 for a failed or stopped run, 3 if a person is needed.

    1 is also for an event to the run that was refused. A machine can have exit codes of its own for finished runs (`MachineExtension.exit_code`).
    """
    if rest.kind == "stopped" or refusals:
        return 1
    if rest.kind in {"waiting", "in doubt", "interrupted"}:
        return EXIT_WAITING
    own = _own_code(rest.run) if rest.kind == "finished" else None
    return _CODES.get(rest.run.outcome, 0) if own is None else own


def _own_code(run: Run) -> int | None:
    """Return the machine's own exit code for a finished run; None if it has none."""
    own = extension_of(run.machine.name).exit_code
    return None if own is None else own(run)


@attrs.frozen
class ToJudge:
    """The file that a person has to judge, and why a guard did not decide."""

    file: Path
    why: str

    @property
    def place(self) -> str:
        """The file with the reason."""
        return f"{self.file}: {self.why}"


def to_judge(run: Run, folder: Path) -> ToJudge | None:
    """Return the artifact that a person has to judge in a waiting run; None if it does not wait after a fatal verdict."""
    last = undecided_verdict(run)
    if last is None:
        return None
    paths = sorted(folder.glob(f"{glob.escape(last.step)}-{last.attempt}-{last.word}.*"))
    files = [path for path in paths if not path.name.endswith(".feedback.txt")]
    return ToJudge(files[0], last.feedback or last.word) if files else None


def redacted_attempts(run: Run) -> list[ArtifactEntry]:
    """Return the artifacts that had secrets in them: of each step the newest and the accepted one. A person should know before an approval."""
    visible_ids = {artifact for view in run.steps.values() for artifact in (view.latest, view.accepted)}
    return [e for e in run.ledger if isinstance(e, ArtifactEntry) and e.redacted and e.artifact_id in visible_ids]


def run_totals(run: Run) -> Totals:
    """Return the totals of a run."""
    return totals(run.ledger, GENERATING_EFFECT)


def _of_policy(run: Run) -> dict[str, object]:
    """Return the steps and the calls of a policy's run, the calls without results; nothing for a run of another machine."""
    steps, calls = policy_steps(run), calls_of_policy(run)
    if not calls:
        return {}
    call_objects = [
        {
            "path": call.path,
            "policy": call.policy,
            "payload": call.payload,
            "digest": call.digest,
            "finished": call.steps is not None,
            "cached": call.is_cached,
        }
        for call in calls
    ]
    answer = answer_text(steps) if steps is not None and run.outcome == "succeeded" else None
    return {"answer": answer, "steps": list(steps or ()), "calls": call_objects}


def _refusal_json(each: RefusedEvent) -> dict[str, object]:
    refusal = each.refusal
    why = {"reason": refusal.reason, "message": refusal.message, "accepted": refusal.accepted}
    return {"event": each.event.event, "state": each.state, **why}


def _attempt(entry: VerdictEntry) -> dict[str, object]:
    verdict = {"step": entry.step, "attempt": entry.attempt, "verdict": entry.label, "feedback": entry.feedback}
    return {**verdict, "artifact_id": entry.artifact_id, "guard_seconds": entry.seconds}


#: The most lines that are shown of a text that waits for a person; the rest is in its file.
_MOST_LINES = 40
_STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}


def headline(rest: Rest) -> str:
    """Return in one line how the run ended."""
    run = rest.run
    if rest.failure is not None:
        return f"stopped: {rest.failure}"
    if rest.in_doubt:
        return f"in doubt: {doubt_text(run, rest.in_doubt)}"
    if rest.kind == "waiting":
        names = tuple(rest.waits_for) or (
            *timed_events(run),
            *(part.run for part in parts(run).values()),
        )
        what = "waiting for review" if review_of(run) else "waiting"
        return f"{what} in {run.configuration.state} for: {', '.join(names) or 'nothing that can happen'}"
    if rest.kind == "interrupted":
        return f"interrupted in {run.configuration.state}"
    return run.outcome if run.outcome not in {"failed", "escalated"} else f"{run.outcome}{_why(run)}"


def _why(run: Run) -> str:
    """Return why a run ended without success: the step with the verdict, or the event with its row and its error."""
    steps = policy_steps(run)
    if steps:
        return f": {step_text(steps[-1])}"
    last = _last_move(run)
    if last is None:
        return ""
    row, event = last
    open_steps = [view for view in run.steps.values() if view.accepted is None and view.attempts]
    if event.verdicts and open_steps:
        return f" at {open_steps[-1].name} after {plural(open_steps[-1].attempts, 'attempt')}"
    what = show_occurrence(Occurrence(event.event, event.verdicts, event.source))
    is_failure = event.event.endswith(".failed") and isinstance(event.data, dict)
    message = f": {code_and_message(event.data)[1]}" if is_failure else ""
    return f" by {what}{f' (line {row.line})' if row.line else ''}{message}"


def print_result(
    finished_run: FinishedRun, console: Console, *, json_wanted: bool, refusals: Sequence[RefusedEvent] = ()
) -> None:
    """Print how a run ended, for people or for programs; a missing reader is not an error."""
    try:
        if json_wanted:
            print_json(finished_report(finished_run, refusals).to_json())
        else:
            show(finished_run, console)
    except BrokenPipeError:
        silence(sys.stdout)  # the exit code does not depend on a reader


def show(finished_run: FinishedRun, console: Console, *, code: bool = True) -> None:
    """Print how a run ended, its result, its files and its totals."""
    rest, style = finished_run.rest, _STYLES.get(exit_code(finished_run.rest), "bold")
    for line_text in (
        doubt_lines(rest.run, rest.in_doubt, finished_run.directory) if rest.in_doubt else [headline(rest)]
    ):
        console.print(Text(printable(line_text), "" if line_text.startswith(" ") else style), soft_wrap=True)
    if code and finished_run.final is not None:
        console.print()
        console.print(_result_text(finished_run.final, console), soft_wrap=True)
    elif code and finished_run.result:
        console.print()
        console.print(Text(printable(finished_run.result.rstrip())), soft_wrap=True)
    candidate = to_judge(rest.run, finished_run.directory) if rest.kind == "waiting" else None
    if code and candidate is not None:
        console.print()
        console.print(Text(printable(_judged_text(candidate))), soft_wrap=True)
    artifacts = _artifacts(finished_run)
    facts: dict[str, object] = {
        "artifacts" if artifacts else "run": artifacts or directory_text(finished_run.directory)
    }
    facts |= {
        "due": due_text(rest.due_ms) if rest.kind == "waiting" and rest.due_ms is not None else None,
        "redacted": _redaction_text(finished_run.rest.run),
        "reply": _last_text(finished_run.rest),
        "brought": None if artifacts or finished_run.final else _brought_text(finished_run.rest),
        "asked": questions_text(finished_run.rest.run),
        "steps": finished_run.steps,
        "final": finished_run.final,
        "diagram": finished_run.diagram,
        "errors": _errors(finished_run),
        "to judge": candidate and candidate.place,
    }
    for name, fact in (facts | {"totals": _totals_text(finished_run), "next": _next(finished_run)}).items():
        if fact is not None:
            console.print(Text.assemble((f"{name:<10}", "dim"), str(fact)), soft_wrap=True)


def _errors(finished_run: FinishedRun) -> Path | None:
    """Return the file with the tracebacks of users' code, if that stopped the run."""
    path = finished_run.directory / ERRORS
    return path if finished_run.rest.kind == "stopped" and path.exists() else None


def _last_text(rest: Rest) -> str | None:
    """Return the last text to people before a run began to wait or ended."""
    entries = tuple(rest.run.ledger)[::-1] if rest.kind in {"waiting", "finished"} else []
    since = takewhile(lambda entry: not isinstance(entry, EventEntry), entries)
    texts = [spoken_text(entry) for entry in since if isinstance(entry, ResultEntry)]
    return next((shorten(text) for text in texts if text), None)


def _last_move(run: Run) -> tuple[RowEntry, EventEntry] | None:
    """Return the last row that was taken, and its event; None before the first."""
    pairs = pairwise(tuple(run.ledger)[::-1])
    return next(
        ((row, event) for row, event in pairs if isinstance(row, RowEntry) and isinstance(event, EventEntry)), None
    )


def _brought_text(rest: Rest) -> str | None:
    """Return the event that ended a run with its data, on one line."""
    last = _last_move(rest.run) if rest.kind == "finished" else None
    return None if last is None or last[1].data is None else f"{last[1].event}: {shorten(last[1].data)}"


def _judged_text(candidate: ToJudge) -> str:
    """Return the beginning of a text that a person has to judge."""
    lines = candidate.file.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    more = [f".. ({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])


def _next(finished_run: FinishedRun) -> str | None:
    """Return the command that goes on with the run, unless `show` has printed it already."""
    rest = finished_run.rest
    if rest.kind in {"stopped", "interrupted"}:
        return shell_command("resume", finished_run.directory)
    return send_line(rest.run, finished_run.directory) if rest.waits_for else None


def _result_text(final: Path, console: Console) -> Syntax | Text:
    text = printable(final.read_text(encoding="utf-8", errors="replace").rstrip())
    if final.suffix == ".py" and console.is_terminal:
        return Syntax(text, "python", theme="ansi_dark", background_color="default")
    return Text(text)


def _artifacts(finished_run: FinishedRun) -> str | None:
    """Return the folder of the artifacts and their number; None if there are none."""
    artifacts = [entry for entry in finished_run.rest.run.ledger if isinstance(entry, ArtifactEntry)]
    if not artifacts:
        return None
    verdicts = [entry for entry in finished_run.rest.run.ledger if isinstance(entry, VerdictEntry)]
    turned_down = {entry.artifact_id for entry in verdicts if entry.label not in {"passed", "review"}}
    return f"{directory_text(finished_run.directory)} ({len(artifacts)} made, {len(turned_down)} rejected, all kept)"


def _redaction_text(run: Run) -> str | None:
    texts = [f"{entry.step} {entry.attempt} had {', '.join(entry.redacted)}" for entry in redacted_attempts(run)]
    return f"{'; '.join(texts)}: the text is stored with [secret ..] in that place" if texts else None


def _totals_text(finished_run: FinishedRun) -> str:
    sums = run_totals(finished_run.rest.run)
    is_elsewhere = is_on_server(finished_run.directory)  # the run goes on there while no command follows it
    in_all = "" if is_elsewhere else f", {finished_run.seconds:.1f} s in all"
    failed = f" ({sums.failed_calls} failed)" if sums.failed_calls else ""
    calls = calls_of_policy(finished_run.rest.run)
    if calls:
        cached_count = sum(call.is_cached for call in calls)
        models = f", {sums.calls} by models: {tokens_and_cost(sums)}" if sums.calls else ""
        calls_text = f"{plural(len(calls) - 1, 'call')}{f' ({cached_count} cached)' if cached_count else ''}"
        return f"{calls_text}{models}{in_all}"
    return (
        f"{plural(sums.calls, 'model call')}{failed}, {tokens_and_cost(sums)}, {sums.model_seconds:.1f} s model, "
        f"{sums.guard_seconds:.1f} s guards{in_all}"
    )
