"""The end of a run, in words for people or as JSON for programs."""

import sys
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dsa.cli.faults import tell_json
from dsa.cli.kept import line
from dsa.cli.run_json import ToJudge, exit_code, performed_report, redacted_attempts, spent, to_judge
from dsa.cli.runner import Performed
from dsa.cli.spent import tokens_and_cost
from dsa.cli.step_lines import step_text, text_said
from dsa.cli.terminal import printable, silence
from dsa.cli.timeline import asked_text, doubts, questions_text, send_line
from dsa.edge.effects import code_and_message
from dsa.meaning import Occurrence
from dsa.runs.folder import ERRORS
from dsa.runs.one_policy import calls_of_policy, steps_given
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry, RowEntry, VerdictEntry
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run
from dsa.runtime.standing import parts
from dsa.runtime.timeline import Refused
from dsa.trace import show_occurrence
from dsa.words import plural, shortened

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
        return f"waiting in {run.configuration.state} for: {', '.join(waited) or 'nothing that can happen'}"
    return run.outcome if run.outcome not in {"failed", "escalated"} else f"{run.outcome}{_why(run)}"


def _why(run: Run) -> str:
    """Say what brought a run to an end that is no success: the step whose verdict it was, or the event, with its row and its error."""
    steps = steps_given(run)
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


def tell(performed: Performed, console: Console, *, json_wanted: bool, refused: Sequence[Refused] = ()) -> None:
    """Print how a run ended, for people or for programs; nobody need read it."""
    try:
        if json_wanted:
            tell_json(performed_report(performed, refused).to_json())
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
        "final": performed.final,
        "diagram": performed.diagram,
        "errors": _errors(performed),
        "to judge": judged and judged.place,
    }
    for name, fact in (facts | {"totals": _spent(performed), "next": _next(performed)}).items():
        if fact is not None:
            console.print(Text.assemble((f"{name:<10}", "dim"), str(fact)), soft_wrap=True)


def _errors(performed: Performed) -> Path | None:
    """Return where the tracebacks of users' code are, when that has stopped the run."""
    path = performed.directory / ERRORS
    return path if performed.rest.kind == "stopped" and path.exists() else None


def _said(rest: Rest) -> str | None:
    """Give what was said to people just before a run began to wait, or as it ended."""
    entries = tuple(rest.run.ledger)[::-1] if rest.kind in {"waiting", "finished"} else []
    since = takewhile(lambda entry: not isinstance(entry, EventEntry), entries)
    texts = [text_said(entry) for entry in since if isinstance(entry, ResultEntry)]
    return next((shortened(text) for text in texts if text), None)


def _judged_text(judged: ToJudge) -> str:
    """Return the beginning of a text that a person has to judge."""
    lines = judged.file.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    more = [f".. ({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])


def _next(performed: Performed) -> str | None:
    """Give the command that goes on with the run, if it can go on and has not said how before."""
    rest = performed.rest
    if rest.kind == "stopped":
        return line("resume", performed.directory)
    return send_line(rest.run, performed.directory) if rest.waits_for else None


def _shown(final: Path, console: Console) -> Syntax | Text:
    text = printable(final.read_text(encoding="utf-8", errors="replace").rstrip())
    if final.suffix == ".py" and console.is_terminal:
        return Syntax(text, "python", theme="ansi_dark", background_color="default")
    return Text(text)


def _artifacts(performed: Performed) -> str | None:
    """Say where artifacts are, and how many; None where none was made."""
    made = [entry for entry in performed.rest.run.ledger if isinstance(entry, ArtifactEntry)]
    if not made:
        return None
    verdicts = [entry for entry in performed.rest.run.ledger if isinstance(entry, VerdictEntry)]
    turned_down = {entry.artifact_id for entry in verdicts if entry.outcome != "passed"}
    return f"{performed.directory} ({len(made)} made, {len(turned_down)} rejected, all kept)"


def _redacted(run: Run) -> str | None:
    told = [f"{entry.step} {entry.attempt} had {', '.join(entry.redacted)}" for entry in redacted_attempts(run)]
    return f"{'; '.join(told)}: it is kept with [secret ..] in that place" if told else None


def _spent(performed: Performed) -> str:
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
