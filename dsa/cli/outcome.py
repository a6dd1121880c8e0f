"""What became of a run, in words, as JSON, and as an exit code."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dsa.cli.terminal import printable
from dsa.declarations import OUTSIDE
from dsa.edge.binding import GENERATING_EFFECT
from dsa.edge.driver import Rest
from dsa.edge.running import Performed
from dsa.meaning import accepted_events
from dsa.runtime.ledger import ArtifactEntry, VerdictEntry
from dsa.runtime.run import Run
from dsa.runtime.totals import Totals, totals

WAITING = 3
_CODES = {"succeeded": 0, "failed": 1, "escalated": 3}
_STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}


def exit_code(rest: Rest) -> int:
    """Give 0 for success, 1 for a failed or stopped run, 3 when a person is needed (DESIGN.md, section 3)."""
    if rest.kind == "stopped":
        return 1
    return WAITING if rest.kind == "waiting" else _CODES.get(rest.run.outcome, 0)


def headline(rest: Rest) -> str:
    """Say in one line how the run ended."""
    run = rest.run
    if rest.failure is not None:
        return f"stopped: {rest.failure}"
    if rest.kind == "waiting":
        outside = [
            event for event in accepted_events(run.machine, run.configuration.state) if _from_outside(run, event)
        ]
        return f"waiting in {run.configuration.state} for: {', '.join(outside) or 'nothing that can happen'}"
    unfinished = [view for view in run.steps.values() if view.accepted is None and view.attempts]
    where = f" at {unfinished[-1].name} after {_plural(unfinished[-1].attempts, 'attempt')}" if unfinished else ""
    return f"{run.outcome}{where if run.outcome != 'succeeded' else ''}"


def _from_outside(run: Run, event: str) -> bool:
    return event in run.machine.event_named and run.machine.event_named[event].origin == OUTSIDE


def show(performed: Performed, console: Console, *, code: bool = True) -> None:
    """Print how a run ended, what it made, where everything is and what it took."""
    rest, style = performed.rest, _STYLES.get(exit_code(performed.rest), "bold")
    console.print(Text(printable(headline(rest)), style), soft_wrap=True)
    if code and performed.final is not None:
        console.print()
        console.print(_shown(performed.final, console), soft_wrap=True)
    facts = {"artifacts": _artifacts(performed), "final": performed.final, "diagram": performed.diagram}
    for name, fact in (facts | {"totals": _spent(performed)}).items():
        if fact is not None:
            console.print(Text.assemble((f"{name:<10}", "dim"), str(fact)), soft_wrap=True)


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


def spent(performed: Performed) -> Totals:
    """Add up what a run took."""
    return totals(performed.rest.run.ledger, GENERATING_EFFECT)


def _spent(performed: Performed) -> str:
    sums = spent(performed)
    failed = f" ({sums.failed_calls} failed)" if sums.failed_calls else ""
    tokens = f"{sums.prompt_tokens} + {sums.completion_tokens} tokens"
    if sums.uncounted_calls:
        known = sums.uncounted_calls < sums.calls - sums.failed_calls
        tokens = f"{tokens} and those of {_plural(sums.uncounted_calls, 'call')} unknown" if known else "tokens unknown"
    return (
        f"{_plural(sums.calls, 'model call')}{failed}, {tokens}, {sums.model_seconds:.1f} s model, "
        f"{sums.guard_seconds:.1f} s guards, {performed.seconds:.1f} s in all"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def as_json(performed: Performed) -> str:
    """Give everything that `show` prints, and each attempt, as one JSON object."""
    rest, run = performed.rest, performed.rest.run
    written: dict[str, Any] = {
        "run": run.run_id,
        "machine": run.machine.name,
        "kind": rest.kind,
        "outcome": run.outcome if rest.kind == "finished" else None,
        "state": run.configuration.state,
        "values": run.values,
        "exit_code": exit_code(rest),
        "failure": None if rest.failure is None else _failure(rest),
        "attempts": [_attempt(entry) for entry in run.ledger if isinstance(entry, VerdictEntry)],
        "accepted": {artifact.step: artifact.content for artifact in performed.accepted},
        "directory": str(performed.directory),
        "diagram": None if performed.diagram is None else str(performed.diagram),
        "totals": {**spent(performed).to_json(), "seconds": performed.seconds},
    }
    return json.dumps(written, indent=2)


def _failure(rest: Rest) -> dict[str, Any]:
    assert rest.failure is not None, "only a stopped run has one"
    return {
        "what": rest.failure.what,
        "line": rest.failure.line,
        "code": rest.failure.code,
        "message": str(rest.failure),
    }


def _attempt(entry: VerdictEntry) -> dict[str, Any]:
    verdict = {"step": entry.step, "attempt": entry.attempt, "verdict": entry.outcome, "feedback": entry.feedback}
    return {**verdict, "artifact_id": entry.artifact_id, "guard_seconds": entry.seconds}
