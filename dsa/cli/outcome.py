"""What became of a run, in words, as JSON, and as an exit code."""

import glob
import json
import sys
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dsa.cli.faults import silence
from dsa.cli.kept import line
from dsa.cli.runner import Performed
from dsa.cli.spent import plural, tokens_and_cost
from dsa.cli.step_lines import shortened, step_text, text_said
from dsa.cli.terminal import printable
from dsa.cli.timeline import asked_keys, asked_text, doubts, send_line
from dsa.edge.binding import GENERATING_EFFECT
from dsa.edge.effects import code_and_message
from dsa.meaning import Occurrence
from dsa.runs.folder import PART_WAITS
from dsa.runs.one_policy import answer_text, calls_of_policy, steps_given
from dsa.runtime.call_tree import POLICY
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry, StepEntry, VerdictEntry
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run
from dsa.runtime.standing import outside_events
from dsa.runtime.timeline import Refused
from dsa.runtime.totals import Totals, totals
from dsa.trace import show_occurrence

WAITING = 3
#: So many lines of a text that waits for a person are shown; the rest is in its file.
_MOST_LINES = 40
_CODES = {"succeeded": 0, "failed": 1, "escalated": 3}
_STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}


def exit_code(rest: Rest, refused: Sequence[Refused] = ()) -> int:
    """Give 0 for success, 1 for a failed or stopped run, 3 when a person is needed (DESIGN.md, section 3).

    1 also when an event that was sent to the run has been refused.
    """
    if _waits_inside(rest):
        return WAITING
    if rest.kind == "stopped" or refused:
        return 1
    return WAITING if rest.kind in {"waiting", "in doubt"} else _CODES.get(rest.run.outcome, 0)


def _waits_inside(rest: Rest) -> bool:
    """Tell whether what stopped the run is that another run, which is a part of it, waits for a person."""
    return rest.failure is not None and rest.failure.code == PART_WAITS


def headline(rest: Rest) -> str:
    """Say in one line how the run ended."""
    run = rest.run
    if rest.failure is not None:
        return f"stopped: {rest.failure}"
    if rest.in_doubt:
        return f"in doubt: {asked_text(run, rest.in_doubt)}"
    if rest.kind == "waiting":
        outside = outside_events(run)
        return f"waiting in {run.configuration.state} for: {', '.join(outside) or 'nothing that can happen'}"
    return run.outcome if run.outcome not in {"failed", "escalated"} else f"{run.outcome}{_why(run)}"


def _why(run: Run) -> str:
    """Say what brought a run to an end that is no success: the step whose verdict it was, or the event, with its row and its error."""
    taken = (pair for pair in pairwise(tuple(run.ledger)[::-1]) if isinstance(pair[0], StepEntry))
    step, event = next(taken, (None, None))
    if not isinstance(step, StepEntry) or not isinstance(event, EventEntry):
        return ""
    unfinished = [view for view in run.steps.values() if view.accepted is None and view.attempts]
    if event.verdicts and unfinished:
        return f" at {unfinished[-1].name} after {plural(unfinished[-1].attempts, 'attempt')}"
    what = show_occurrence(Occurrence(event.event, event.verdicts, event.source))
    is_failure = event.event.endswith(".failed") and isinstance(event.data, dict)
    said = f": {code_and_message(event.data)[1]}" if is_failure else ""
    steps = steps_given(run)
    if steps:
        return f": {step_text(steps[-1])}"
    return f" by {what}{f' (line {step.line})' if step.line else ''}{said}"


def tell(performed: Performed, console: Console, *, json_wanted: bool, refused: Sequence[Refused] = ()) -> None:
    """Print how a run ended, for people or for programs; nobody need read it."""
    try:
        if json_wanted:
            click.echo(as_json(performed, refused))
        else:
            show(performed, console)
    except BrokenPipeError:
        silence(sys.stdout)  # how the run ended is no matter of who reads it


def show(performed: Performed, console: Console, *, code: bool = True) -> None:
    """Print how a run ended, what it made, where everything is and what it took."""
    rest, style = performed.rest, _STYLES.get(exit_code(performed.rest), "bold")
    for told in doubts(rest.run, rest.in_doubt, performed.directory) if rest.in_doubt else [headline(rest)]:
        console.print(Text(printable(told), "" if told.startswith(" ") else style), soft_wrap=True)
    if code and performed.final is not None:
        console.print()
        console.print(_shown(performed.final, console), soft_wrap=True)
    judged = to_judge(performed)
    if code and judged is not None:
        console.print()
        console.print(Text(printable(judged.text)), soft_wrap=True)
    facts: dict[str, object] = {"artifacts": _artifacts(performed), "redacted": _redacted(performed.rest.run)}
    if performed.rest.run.machine.name == POLICY:
        facts = {"run": performed.directory}
    facts |= {
        "said": _said(performed.rest),
        "final": performed.final,
        "diagram": performed.diagram,
        "to judge": judged and judged.place,
    }
    for name, fact in (facts | {"totals": _spent(performed), "next": _next(performed)}).items():
        if fact is not None:
            console.print(Text.assemble((f"{name:<10}", "dim"), str(fact)), soft_wrap=True)


def _said(rest: Rest) -> str | None:
    """Give what was said to people just before a run began to wait."""
    entries = [] if rest.kind != "waiting" else tuple(rest.run.ledger)[::-1]
    since = takewhile(lambda entry: not isinstance(entry, EventEntry), entries)
    texts = [text_said(entry) for entry in since if isinstance(entry, ResultEntry)]
    return next((shortened(text) for text in texts if text), None)


@attrs.frozen
class ToJudge:
    """What a run that waits for a person has to show: the text, and where it lies with why a guard did not decide."""

    text: str
    place: str


def to_judge(performed: Performed) -> ToJudge | None:
    """Give the artifact that a person has to judge; None when the run does not wait after a fatal verdict."""
    run = performed.rest.run
    verdicts = [entry for entry in run.ledger if isinstance(entry, VerdictEntry)]
    if performed.rest.kind != "waiting" or not verdicts or verdicts[-1].outcome != "fatal":
        return None
    last = verdicts[-1]
    if run.step(last.step).latest != last.artifact_id or run.step(last.step).accepted is not None:
        return None
    found = sorted(performed.directory.glob(f"{glob.escape(last.step)}-{last.attempt}-fatal.*"))
    files = [path for path in found if not path.name.endswith(".feedback.txt")]
    if not files:
        return None
    lines = files[0].read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    more = [f".. ({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return ToJudge("\n".join([*lines[:_MOST_LINES], *more]), f"{files[0]}: {last.feedback or 'fatal'}")


def _next(performed: Performed) -> str | None:
    """Give the command that goes on with the run, if it can go on and has not said how before."""
    rest = performed.rest
    if rest.kind == "stopped":
        first = "what it says, then " if _waits_inside(rest) else ""
        return first + line("resume", performed.directory)
    is_waiting = rest.kind == "waiting" and outside_events(rest.run)
    return send_line(rest.run, performed.directory) if is_waiting else None


def _shown(final: Path, console: Console) -> Syntax | Text:
    text = printable(final.read_text(encoding="utf-8", errors="replace").rstrip())
    if final.suffix == ".py" and console.is_terminal:
        return Syntax(text, "python", theme="ansi_dark", background_color="default")
    return Text(text)


def _artifacts(performed: Performed) -> str:
    made = [entry for entry in performed.rest.run.ledger if isinstance(entry, ArtifactEntry)]
    verdicts = [entry for entry in performed.rest.run.ledger if isinstance(entry, VerdictEntry)]
    turned_down = {entry.artifact_id for entry in verdicts if entry.outcome != "passed"}
    return f"{performed.directory} ({len(made)} made, {len(turned_down)} rejected, all kept)"


def redacted_attempts(run: Run) -> list[ArtifactEntry]:
    """Give the artifacts that a person must not approve unawares: of each step the newest and the accepted one, if it had secrets in it."""
    shown = {artifact for view in run.steps.values() for artifact in (view.latest, view.accepted)}
    return [e for e in run.ledger if isinstance(e, ArtifactEntry) and e.redacted and e.artifact_id in shown]


def _redacted(run: Run) -> str | None:
    told = [f"{entry.step} {entry.attempt} had {', '.join(entry.redacted)}" for entry in redacted_attempts(run)]
    return f"{'; '.join(told)}: it is kept with [secret ..] in that place" if told else None


def spent(performed: Performed) -> Totals:
    """Add up what a run took."""
    return totals(performed.rest.run.ledger, GENERATING_EFFECT)


def _spent(performed: Performed) -> str:
    sums = spent(performed)
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


def as_json(performed: Performed, refused: Sequence[Refused] = ()) -> str:
    """Give everything that `show` prints, and each attempt, as one JSON object."""
    rest, run, judged = performed.rest, performed.rest.run, to_judge(performed)
    written: dict[str, Any] = {
        "run": run.run_id,
        "machine": run.machine.name,
        "kind": rest.kind,
        "outcome": run.outcome if rest.kind == "finished" else None,
        "state": run.configuration.state,
        "values": run.values,
        "exit_code": exit_code(rest, refused),
        "failure": None if rest.failure is None else _failure(rest),
        "waits_for": outside_events(run) if rest.kind == "waiting" else [],
        "in_doubt": _in_doubt(rest),
        "refused": [_refused(each) for each in refused],
        "attempts": [_attempt(entry) for entry in run.ledger if isinstance(entry, VerdictEntry)],
        **_of_policy(rest),
        "accepted": {artifact.step: artifact.content for artifact in performed.accepted},
        "redacted": [
            {"step": entry.step, "attempt": entry.attempt, "secrets": entry.redacted}
            for entry in redacted_attempts(run)
        ],
        "to_judge": judged and judged.place,
        "directory": str(performed.directory),
        "diagram": None if performed.diagram is None else str(performed.diagram),
        "totals": {**spent(performed).to_json(), "seconds": performed.seconds},
    }
    return json.dumps(written, indent=2)


def _in_doubt(rest: Rest) -> list[dict[str, Any]]:
    lines = {intent.key: intent.line for intent in rest.in_doubt}
    asked = asked_keys(rest.run, rest.in_doubt).items()
    return [{"key": key, "effect": name, "line": lines.get(key)} for key, name in asked]


def _of_policy(rest: Rest) -> dict[str, Any]:
    """Return what a policy gave, and its calls without what they gave; `dsa show --json` has that."""
    steps, calls = steps_given(rest.run), calls_of_policy(rest.run)
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
    answer = answer_text(steps) if steps is not None and rest.run.outcome == "succeeded" else None
    return {"answer": answer, "steps": list(steps or ()), "calls": written}


def _failure(rest: Rest) -> dict[str, Any]:
    assert rest.failure is not None, "only a stopped run has one"
    return {
        "what": rest.failure.what,
        "call": rest.failure.call or None,
        "line": rest.failure.line,
        "code": rest.failure.code,
        "message": str(rest.failure),
    }


def _refused(each: Refused) -> dict[str, Any]:
    refusal = each.refusal
    why = {"reason": refusal.reason, "message": refusal.message, "accepted": refusal.accepted}
    return {"event": each.event.event, "state": each.state, **why}


def _attempt(entry: VerdictEntry) -> dict[str, Any]:
    verdict = {"step": entry.step, "attempt": entry.attempt, "verdict": entry.outcome, "feedback": entry.feedback}
    return {**verdict, "artifact_id": entry.artifact_id, "guard_seconds": entry.seconds}
