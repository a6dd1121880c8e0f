"""Runner: drives one run for a command until it rests, and writes down what it made.

The JSON of a run: one object of one shape (`run.schema.json`) from every command that runs or shows one, whatever came of it.

The end of a run, in words for people or as JSON for programs.
"""

import glob
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dsa.cli.command_line import INTERRUPTED, JsonCommand, fault_as_json, noted_run, printable, silence, tell_json
from dsa.cli.ledger_view import asked_text, doubts, questions_text, send_line, step_text, text_said, tokens_and_cost
from dsa.cli.run_options import line, machine_record, opened
from dsa.data_use import GENERATING_EFFECT
from dsa.edge.event_loop import run_to_end
from dsa.edge.images import RenderError, svg
from dsa.edge.performer import code_and_message
from dsa.errors import DsaError
from dsa.runs.archive import RunRecord
from dsa.runs.bindings import answer_text, calls_of_policy, policy_steps
from dsa.runs.handle import RunHandle
from dsa.runs.place import ERRORS, accepted_artifacts, result_of
from dsa.runs.runs import Runs
from dsa.runs.summary import BY_THE_STORE
from dsa.runtime.content import Artifact
from dsa.runtime.costs import Totals, totals
from dsa.runtime.ledger import ArtifactEntry, Entry, EventEntry, Intent, ResultEntry, RowEntry, VerdictEntry
from dsa.runtime.policy.call_tree import call_named
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import Rest, RunStatus, doubted_keys, next_due_ms, parts, places, review_of, undecided_verdict
from dsa.runtime.timeline import Moment, RefusedEvent
from dsa.semantics import Occurrence
from dsa.targets import emit
from dsa.text import plural, shorten
from dsa.trace import show_occurrence


@attrs.frozen
class FinishedRun:
    """A run that came to rest: how, where its files are, how many seconds it took this time.

    `steps` is the folder with a file for each step that has passed, of a run with several; `final` is the result, None where
    the run has not succeeded. `diagram` is None where no renderer is installed.
    """

    rest: Rest
    directory: Path
    steps: Path | None
    final: Path | None
    diagram: Path | None
    seconds: float


def perform(
    opened: Callable[[], Runs], begin: Callable[[Runs], Coroutine[Any, Any, RunHandle]], wait_s: float
) -> FinishedRun:
    """Begin a run, or take one up, and drive it until it rests; write down what it made. Raises what `begin` does.

    A timer that is due within `wait_s` seconds is waited for.
    """

    async def whole() -> FinishedRun:
        began = time.monotonic()
        async with opened() as runs:
            handle = await begin(runs)
            rest = await handle.rest_within(wait_s)
            seconds = time.monotonic() - began
            assert handle.folder is not None, "commands keep their runs in a folder"
            succeeded = rest.kind == "finished" and exit_code(rest) == 0
            result = result_of(rest.run.machine, rest.accepted) if succeeded else None
            steps, final, diagram = (
                handle.folder.write_steps(rest.accepted),
                handle.folder.write_final(result, _answer(rest)),
                None,
            )
            with suppress(RenderError):
                diagram = handle.folder.write_diagram(svg(emit(rest.run.machine, "dot")))
            return FinishedRun(rest, handle.folder.path, steps, final, diagram, seconds)

    return run_to_end(whole())


def _answer(rest: Rest) -> str | None:
    """Return what a policy that was asked said last; None where none has succeeded."""
    steps = policy_steps(rest.run) if rest.outcome == "succeeded" else None
    return None if steps is None else answer_text(steps)


WAITING = 3
_CODES = {"succeeded": 0, "failed": 1, "escalated": 3}


@attrs.frozen
class RunReport:
    """A run as a command tells of it: how it stands, and what it has made.

    `kind` is a `Rest`'s or a `RunStatus`'s, or `unreadable`; `posted` is the id of a message that was posted to the run and not taken yet; `failure` says why the run has stopped, or why the command failed. `run` is None when
    there is none, or when it cannot be read; `folder` is the run's own. `seconds` is how long this command drove it.
    """

    kind: str
    exit_code: int = 0
    run: Run | None = None
    folder: Path | None = None
    failure: Mapping[str, Any] | None = None
    holder: str | None = None
    in_doubt: Sequence[Intent] = ()
    refused: Sequence[RefusedEvent] = ()
    posted: str | None = None
    accepted: Sequence[Artifact] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the object that every command prints."""
        diagram = None if self.folder is None else self.folder / "diagram.svg"
        return {
            "run": self.folder and self.folder.name,
            "machine": self.run and self.run.machine.name,
            "kind": self.kind,
            "outcome": self.run.outcome if self.run is not None and self.kind == "finished" else None,
            "state": self.run and self.run.configuration.state,
            "values": self.run.values if self.run is not None else {},
            "exit_code": self.exit_code,
            "failure": self.failure,
            "holder": self.holder,
            **self._waits(),
            "in_doubt": self._in_doubt(),
            "refused": [_refused(each) for each in self.refused],
            "posted": self.posted,
            **self._made(),
            **({} if self.run is None else _of_policy(self.run)),
            "directory": self.folder and str(self.folder),
            "diagram": str(diagram) if diagram is not None and diagram.exists() else None,
            "totals": self.run and {**spent(self.run).to_json(), "seconds": self.seconds},
        }

    def _waits(self) -> dict[str, Any]:
        """Return what a waiting run waits for: events from outside with their places, and when the next timer is due."""
        if self.run is None or self.kind not in {"waiting", "due"}:
            return {"waits_for": {}, "due_ms": None}
        return {"waits_for": places(self.run), "due_ms": next_due_ms(self.run)}

    def _in_doubt(self) -> list[dict[str, Any]]:
        """Return the effects, and calls in them, of which somebody has to say what became of them."""
        lines = {intent.key: intent.line for intent in self.in_doubt}
        asked = {} if self.run is None else doubted_keys(self.run, self.in_doubt)
        return [{"key": key, "effect": name, "line": lines.get(key)} for key, name in asked.items()]

    def _made(self) -> dict[str, Any]:
        """Return what the run has made, with every attempt."""
        entries = () if self.run is None else self.run.ledger
        redacted = [] if self.run is None else redacted_attempts(self.run)
        judged = None
        if self.run is not None and self.folder is not None and self.kind in {"waiting", "due"}:
            judged = to_judge(self.run, self.folder)
        return {
            "attempts": [_attempt(entry) for entry in entries if isinstance(entry, VerdictEntry)],
            "accepted": {artifact.step: artifact.content for artifact in self.accepted},
            "redacted": [{"step": e.step, "attempt": e.attempt, "secrets": e.redacted} for e in redacted],
            "to_judge": judged and judged.place,
        }


def performed_report(performed: FinishedRun, refused: Sequence[RefusedEvent] = ()) -> RunReport:
    """Return the report of a run that this command drove until it rests."""
    rest = performed.rest
    report = rest_report(rest, performed.directory, performed.seconds)
    return attrs.evolve(report, exit_code=exit_code(rest, refused), refused=refused)


def rest_report(rest: Rest, folder: Path, seconds: float) -> RunReport:
    """Return the report of a run of this folder that was driven for so long, and rests."""
    failure = None if rest.failure is None else attrs.asdict(rest.failure) | {"message": str(rest.failure)}
    if failure is not None:
        del failure["at"]
        failure = {name: said for name, said in failure.items() if name != "call" or said}
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
    """Return the report of a run as it is recorded."""
    assert runs.root is not None, "commands keep their runs in a folder"
    run, standing = record.run, record.status
    status = runs.summary(run.run_id).at(runs.now_ms()).status
    return RunReport(
        status if status in BY_THE_STORE else standing.kind,
        run=run,
        folder=runs.root / run.run_id,
        failure=_failure(run, standing),
        holder=standing.holder,
        in_doubt=standing.doubts,
        accepted=accepted_artifacts(run, runs.artifacts(run.run_id)),
    )


def story_lines(recorded: StoredRun, after: int = 0) -> Iterator[str]:
    """Return what happened in a run after the first `after` entries, one entry a line as JSON, with its run and number."""
    for number, entry in enumerate(recorded.entries[after:], after + 1):
        yield json.dumps(Moment(recorded.run, number, entry).to_json(), separators=(",", ":"))


class JsonRunCommand(JsonCommand):
    """A command that runs or shows a run. When it fails, `--json` tells of the run that it is about all the same."""

    def fault_json(self, ctx: click.Context | None, fault: Exception) -> dict[str, Any]:
        """Return the object of a command that failed."""
        told = fault_as_json(fault)
        folder = None if ctx is None else noted_run(ctx)
        report = RunReport(told["kind"], folder=folder)
        if folder is not None:
            with suppress(DsaError, OSError, click.ClickException), opened(folder.parent) as runs:
                report = recorded_report(runs, machine_record(runs.stored_run(folder.name)))
        kind = told["kind"] if report.run is None or told["exit_code"] == INTERRUPTED else report.kind
        return attrs.evolve(report, kind=kind, exit_code=told["exit_code"], failure=told["failure"]).to_json()


def _failure(run: Run, standing: RunStatus) -> dict[str, Any] | None:
    """Return what has stopped a recorded run."""
    if standing.kind != "stopped":
        return None
    told = {"what": None, "line": None, "code": "stopped", "message": standing.failure}
    results = {entry.key: entry for entry in run.ledger if isinstance(entry, ResultEntry)}
    for flying in standing.left.in_flight:
        faults = [step["payload"] for step in results[flying.intent.key].steps] if flying.has_failed else []
        if faults and not flying.in_doubt:
            call = call_named(flying.intent.key, faults[0])
            return {
                **told,
                **({"call": call} if call else {}),
                "what": flying.intent.effect,
                "line": flying.intent.line,
                "code": code_and_message(faults[0])[0],
            }
    return told


def exit_code(rest: Rest, refused: Sequence[RefusedEvent] = ()) -> int:
    """Return 0 for success, 1 for a failed or stopped run, 3 when a person is needed (DESIGN.md, section 3).

    1 also when an event that was sent to the run has been refused. What the end of a run is worth its machine may know better (`MachineExtension.exit_code`).
    """
    if rest.kind == "stopped" or refused:
        return 1
    if rest.kind in {"waiting", "in doubt"}:
        return WAITING
    own = _own_code(rest.run) if rest.kind == "finished" else None
    return _CODES.get(rest.run.outcome, 0) if own is None else own


def _own_code(run: Run) -> int | None:
    """Return the exit code that its machine gives a run that is over; None where it leaves that to the name of the outcome."""
    own = extension_of(run.machine.name).exit_code
    return None if own is None else own(run)


@attrs.frozen
class MachineExtension:
    """What a machine's package adds to the commands for its runs. A package names its own in the entry points `dsa.machines`, under the machine's name.

    `name` is the machine's. Each other is None where the machine has none of its own. `display(console, root)` returns a `RunDisplay` of runs in the folder `root`; `resume` is a
    `ResumeCommand`; `counters(entries)` returns numbers by their names for `dsa show --counters`; `exit_code(run)` returns the code of a run
    that is over, or None; `diff(runs, run_id)` returns what a run has changed outside.
    """

    name: str = ""
    display: Callable[..., Any] | None = None
    resume: Callable[..., int] | None = None
    counters: Callable[[Iterable[Entry]], Mapping[str, Any]] | None = None
    exit_code: Callable[[Run], int | None] | None = None
    diff: Callable[[Runs, str], str] | None = None


def extension_of(machine: str) -> MachineExtension:
    """Return what the package of a machine adds, by the machine's name; without a package nothing is added."""
    for point in entry_points(group="dsa.machines", name=machine):
        extension: MachineExtension = point.load()
        return extension
    return MachineExtension()


@attrs.frozen
class ToJudge:
    """What a run that waits for a person has to show: the file, and why a guard did not decide."""

    file: Path
    why: str

    @property
    def place(self) -> str:
        """The file with the reason."""
        return f"{self.file}: {self.why}"


def to_judge(run: Run, folder: Path) -> ToJudge | None:
    """Return the artifact that a person has to judge in a waiting run; None when it does not wait after a fatal verdict."""
    last = undecided_verdict(run)
    if last is None:
        return None
    found = sorted(folder.glob(f"{glob.escape(last.step)}-{last.attempt}-{last.word}.*"))
    files = [path for path in found if not path.name.endswith(".feedback.txt")]
    return ToJudge(files[0], last.feedback or last.word) if files else None


def redacted_attempts(run: Run) -> list[ArtifactEntry]:
    """Return the artifacts that a person must not approve unawares: of each step the newest and the accepted one, if it had secrets in it."""
    shown = {artifact for view in run.steps.values() for artifact in (view.latest, view.accepted)}
    return [e for e in run.ledger if isinstance(e, ArtifactEntry) and e.redacted and e.artifact_id in shown]


def spent(run: Run) -> Totals:
    """Add up what a run took."""
    return totals(run.ledger, GENERATING_EFFECT)


def _of_policy(run: Run) -> dict[str, Any]:
    """Return what a policy gave, and its calls without what they gave; nothing of a run of another machine."""
    steps, calls = policy_steps(run), calls_of_policy(run)
    if not calls:
        return {}
    written = [
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
    return {"answer": answer, "steps": list(steps or ()), "calls": written}


def _refused(each: RefusedEvent) -> dict[str, Any]:
    refusal = each.refusal
    why = {"reason": refusal.reason, "message": refusal.message, "accepted": refusal.accepted}
    return {"event": each.event.event, "state": each.state, **why}


def _attempt(entry: VerdictEntry) -> dict[str, Any]:
    verdict = {"step": entry.step, "attempt": entry.attempt, "verdict": entry.label, "feedback": entry.feedback}
    return {**verdict, "artifact_id": entry.artifact_id, "guard_seconds": entry.seconds}


#: So many lines of a text that waits for a person are shown; the rest is in its file.
_MOST_LINES = 40
_STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}


def headline(rest: Rest) -> str:
    """Say in one line how the run ended."""
    run = rest.run
    if rest.failure is not None:
        return f"stopped: {rest.failure}"
    if rest.in_doubt:
        return f"in doubt: {asked_text(run, rest.in_doubt)}"
    if rest.kind == "waiting":
        waited = tuple(rest.waits_for) or (
            *(event for _, event in run.timers),
            *(part.run for part in parts(run).values()),
        )
        what = "waiting for review" if review_of(run) else "waiting"
        return f"{what} in {run.configuration.state} for: {', '.join(waited) or 'nothing that can happen'}"
    return run.outcome if run.outcome not in {"failed", "escalated"} else f"{run.outcome}{_why(run)}"


def _why(run: Run) -> str:
    """Return what brought a run to an end that is no success: the step whose verdict it was, or the event, with its row and its error."""
    steps = policy_steps(run)
    if steps:
        return f": {step_text(steps[-1])}"
    taken = (pair for pair in pairwise(tuple(run.ledger)[::-1]) if isinstance(pair[0], RowEntry))
    step, event = next(taken, (None, None))
    if not isinstance(step, RowEntry) or not isinstance(event, EventEntry):
        return ""
    unfinished = [view for view in run.steps.values() if view.accepted is None and view.attempts]
    if event.verdicts and unfinished:
        return f" at {unfinished[-1].name} after {plural(unfinished[-1].attempts, 'attempt')}"
    what = show_occurrence(Occurrence(event.event, event.verdicts, event.source))
    is_failure = event.event.endswith(".failed") and isinstance(event.data, dict)
    said = f": {code_and_message(event.data)[1]}" if is_failure else ""
    return f" by {what}{f' (line {step.line})' if step.line else ''}{said}"


def tell(performed: FinishedRun, console: Console, *, json_wanted: bool, refused: Sequence[RefusedEvent] = ()) -> None:
    """Print how a run ended, for people or for programs; nobody need read it."""
    try:
        if json_wanted:
            tell_json(performed_report(performed, refused).to_json())
        else:
            show(performed, console)
    except BrokenPipeError:
        silence(sys.stdout)  # how the run ended is no matter of who reads it


def show(performed: FinishedRun, console: Console, *, code: bool = True) -> None:
    """Print how a run ended, what it made, where everything is and what it took."""
    rest, style = performed.rest, _STYLES.get(exit_code(performed.rest), "bold")
    for told in doubts(rest.run, rest.in_doubt, performed.directory) if rest.in_doubt else [headline(rest)]:
        console.print(Text(printable(told), "" if told.startswith(" ") else style), soft_wrap=True)
    if code and performed.final is not None:
        console.print()
        console.print(_shown(performed.final, console), soft_wrap=True)
    judged = to_judge(rest.run, performed.directory) if rest.kind == "waiting" else None
    if code and judged is not None:
        console.print()
        console.print(Text(printable(_judged_text(judged))), soft_wrap=True)
    made = _artifacts(performed)
    facts: dict[str, object] = {"artifacts" if made else "run": made or performed.directory}
    facts |= {
        "redacted": _redacted(performed.rest.run),
        "said": _said(performed.rest),
        "asked": questions_text(performed.rest.run),
        "steps": performed.steps,
        "final": performed.final,
        "diagram": performed.diagram,
        "errors": _errors(performed),
        "to judge": judged and judged.place,
    }
    for name, fact in (facts | {"totals": _spent(performed), "next": _next(performed)}).items():
        if fact is not None:
            console.print(Text.assemble((f"{name:<10}", "dim"), str(fact)), soft_wrap=True)


def _errors(performed: FinishedRun) -> Path | None:
    """Return where the tracebacks of users' code are, when that has stopped the run."""
    path = performed.directory / ERRORS
    return path if performed.rest.kind == "stopped" and path.exists() else None


def _said(rest: Rest) -> str | None:
    """Return what was said to people just before a run began to wait, or as it ended."""
    entries = tuple(rest.run.ledger)[::-1] if rest.kind in {"waiting", "finished"} else []
    since = takewhile(lambda entry: not isinstance(entry, EventEntry), entries)
    texts = [text_said(entry) for entry in since if isinstance(entry, ResultEntry)]
    return next((shorten(text) for text in texts if text), None)


def _judged_text(judged: ToJudge) -> str:
    """Return the beginning of a text that a person has to judge."""
    lines = judged.file.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    more = [f".. ({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])


def _next(performed: FinishedRun) -> str | None:
    """Return the command that goes on with the run, if it can go on and has not said how before."""
    rest = performed.rest
    if rest.kind == "stopped":
        return line("resume", performed.directory)
    return send_line(rest.run, performed.directory) if rest.waits_for else None


def _shown(final: Path, console: Console) -> Syntax | Text:
    text = printable(final.read_text(encoding="utf-8", errors="replace").rstrip())
    if final.suffix == ".py" and console.is_terminal:
        return Syntax(text, "python", theme="ansi_dark", background_color="default")
    return Text(text)


def _artifacts(performed: FinishedRun) -> str | None:
    """Return where artifacts are, and how many; None where none was made."""
    made = [entry for entry in performed.rest.run.ledger if isinstance(entry, ArtifactEntry)]
    if not made:
        return None
    verdicts = [entry for entry in performed.rest.run.ledger if isinstance(entry, VerdictEntry)]
    turned_down = {entry.artifact_id for entry in verdicts if entry.label not in {"passed", "review"}}
    return f"{performed.directory} ({len(made)} made, {len(turned_down)} rejected, all kept)"


def _redacted(run: Run) -> str | None:
    told = [f"{entry.step} {entry.attempt} had {', '.join(entry.redacted)}" for entry in redacted_attempts(run)]
    return f"{'; '.join(told)}: it is kept with [secret ..] in that place" if told else None


def _spent(performed: FinishedRun) -> str:
    sums = spent(performed.rest.run)
    failed = f" ({sums.failed_calls} failed)" if sums.failed_calls else ""
    calls = calls_of_policy(performed.rest.run)
    if calls:
        cached = sum(call.is_cached for call in calls)
        models = f", {sums.calls} by models: {tokens_and_cost(sums)}" if sums.calls else ""
        made = f"{plural(len(calls) - 1, 'call')}{f' ({cached} cached)' if cached else ''}"
        return f"{made}{models}, {performed.seconds:.1f} s in all"
    return (
        f"{plural(sums.calls, 'model call')}{failed}, {tokens_and_cost(sums)}, {sums.model_seconds:.1f} s model, "
        f"{sums.guard_seconds:.1f} s guards, {performed.seconds:.1f} s in all"
    )
