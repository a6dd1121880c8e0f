"""The JSON of a run: one object of one shape (`run.schema.json`) from every command that runs or shows one, whatever came of it."""

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.faults import INTERRUPTED, JsonCommand, fault_as_json, noted_run
from dsa.cli.kept import machine_record, opened
from dsa.cli.runner import Performed
from dsa.edge.effects import code_and_message
from dsa.errors import DsaError
from dsa.runs.folder import accepted_artifacts
from dsa.runs.one_policy import answer_text, calls_of_policy, steps_given
from dsa.runs.record import RunRecord
from dsa.runs.runs import Runs
from dsa.runs.summary import BY_THE_STORE
from dsa.runtime.call_tree import call_named
from dsa.runtime.content import Artifact
from dsa.runtime.intents import Intent
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import ArtifactEntry, ResultEntry, VerdictEntry
from dsa.runtime.moment import Moment
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run
from dsa.runtime.standing import Standing, asked_keys, next_due_ms, places
from dsa.runtime.timeline import Refused
from dsa.runtime.totals import Totals, totals
from dsa.uses import GENERATING_EFFECT

WAITING = 3
_CODES = {"succeeded": 0, "failed": 1, "escalated": 3}


@attrs.frozen
class RunReport:
    """A run as a command tells of it: how it stands, and what it has made.

    `kind` is a `Rest`'s or a `Standing`'s, or `unreadable`; `posted` is the id of a message that was posted to the run and not taken yet; `failure` says why the run has stopped, or why the command failed. `run` is None when
    there is none, or when it cannot be read; `folder` is the run's own. `seconds` is how long this command drove it.
    """

    kind: str
    exit_code: int = 0
    run: Run | None = None
    folder: Path | None = None
    failure: Mapping[str, Any] | None = None
    holder: str | None = None
    in_doubt: Sequence[Intent] = ()
    refused: Sequence[Refused] = ()
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
        asked = {} if self.run is None else asked_keys(self.run, self.in_doubt)
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


def performed_report(performed: Performed, refused: Sequence[Refused] = ()) -> RunReport:
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
    run, standing = record.run, record.standing
    status = runs.summary(run.run_id).at(runs.now_ms()).status
    return RunReport(
        status if status in BY_THE_STORE else standing.kind,
        run=run,
        folder=runs.root / run.run_id,
        failure=_failure(run, standing),
        holder=standing.holder,
        in_doubt=standing.asked,
        accepted=accepted_artifacts(run, runs.artifacts(run.run_id)),
    )


def story_lines(recorded: Recorded, after: int = 0) -> Iterator[str]:
    """Return what happened in a run after the first `after` entries, one entry a line as JSON, with its run and number."""
    for number, entry in enumerate(recorded.entries[after:], after + 1):
        yield json.dumps(Moment(recorded.run, number, entry).to_json(), separators=(",", ":"))


class RunCommand(JsonCommand):
    """A command that runs or shows a run. When it fails, `--json` tells of the run that it is about all the same."""

    def fault_json(self, ctx: click.Context | None, fault: Exception) -> dict[str, Any]:
        """Return the object of a command that failed."""
        told = fault_as_json(fault)
        folder = None if ctx is None else noted_run(ctx)
        report = RunReport(told["kind"], folder=folder)
        if folder is not None:
            with suppress(DsaError, OSError, click.ClickException), opened(folder.parent) as runs:
                report = recorded_report(runs, machine_record(runs.recorded(folder.name)))
        kind = told["kind"] if report.run is None or told["exit_code"] == INTERRUPTED else report.kind
        return attrs.evolve(report, kind=kind, exit_code=told["exit_code"], failure=told["failure"]).to_json()


def _failure(run: Run, standing: Standing) -> dict[str, Any] | None:
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


def exit_code(rest: Rest, refused: Sequence[Refused] = ()) -> int:
    """Return 0 for success, 1 for a failed or stopped run, 3 when a person is needed (DESIGN.md, section 3).

    1 also when an event that was sent to the run has been refused. What the end of a run is worth its machine may know better (entry points `dsa.exit_codes`).
    """
    if rest.kind == "stopped" or refused:
        return 1
    if rest.kind in {"waiting", "in doubt"}:
        return WAITING
    own = _own_code(rest.run) if rest.kind == "finished" else None
    return _CODES.get(rest.run.outcome, 0) if own is None else own


def _own_code(run: Run) -> int | None:
    """Return the exit code that its machine gives a run that is over; None where it leaves that to the name of the outcome."""
    for point in entry_points(group="dsa.exit_codes", name=run.machine.name):
        code: int | None = point.load()(run)
        return code
    return None


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
    verdicts = [entry for entry in run.ledger if isinstance(entry, VerdictEntry)]
    if not verdicts or verdicts[-1].outcome != "fatal":
        return None
    last = verdicts[-1]
    if run.step(last.step).latest != last.artifact_id or run.step(last.step).accepted is not None:
        return None
    found = sorted(folder.glob(f"{glob.escape(last.step)}-{last.attempt}-fatal.*"))
    files = [path for path in found if not path.name.endswith(".feedback.txt")]
    return ToJudge(files[0], last.feedback or "fatal") if files else None


def redacted_attempts(run: Run) -> list[ArtifactEntry]:
    """Return the artifacts that a person must not approve unawares: of each step the newest and the accepted one, if it had secrets in it."""
    shown = {artifact for view in run.steps.values() for artifact in (view.latest, view.accepted)}
    return [e for e in run.ledger if isinstance(e, ArtifactEntry) and e.redacted and e.artifact_id in shown]


def spent(run: Run) -> Totals:
    """Add up what a run took."""
    return totals(run.ledger, GENERATING_EFFECT)


def _of_policy(run: Run) -> dict[str, Any]:
    """Return what a policy gave, and its calls without what they gave; nothing of a run of another machine."""
    steps, calls = steps_given(run), calls_of_policy(run)
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


def _refused(each: Refused) -> dict[str, Any]:
    refusal = each.refusal
    why = {"reason": refusal.reason, "message": refusal.message, "accepted": refusal.accepted}
    return {"event": each.event.event, "state": each.state, **why}


def _attempt(entry: VerdictEntry) -> dict[str, Any]:
    verdict = {"step": entry.step, "attempt": entry.attempt, "verdict": entry.outcome, "feedback": entry.feedback}
    return {**verdict, "artifact_id": entry.artifact_id, "guard_seconds": entry.seconds}
