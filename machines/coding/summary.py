"""What a part has done, as it stands in the ledger of the run that it is a part of.

Takes the work of a part and where it has ended, gives a record of it; `Work` takes it as if all of it had been done by itself. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dsa.runtime.speech import each_text
from machines.coding.events import CallRead, PartCall, PartDone
from machines.coding.work import Work, WorkCall

_LONGEST = 500
#: How the part itself has ended is told by its status.
_ENDINGS = frozenset({"goal_complete", "answered", "rounds_exhausted", "loop_ended", "some_failed", "failed", "paused"})
_WHY = {
    "rounds_exhausted": "its rounds were used up",
    "blocked": "its calls went round in circles",
    "cancelled": "it was stopped",
}


def summary_of(place: str, run_id: str, work: Work, state: str) -> PartDone:
    """Give what a part has done whose subtask has this place. Only an explicit completion counts as one."""
    subtask = work.chapters[0].subtasks[0]
    is_complete = state == "goal_complete"
    return PartDone(
        place=place,
        run=run_id,
        status="completed" if is_complete else "failed",
        reason=subtask.reason if is_complete else _reason(work, state),
        done=subtask.done,
        shown=subtask.shown and is_complete,
        reasons={name: count for name, count in work.reasons.items() if name not in _ENDINGS},
        rescues=dict(work.transcript.rescues),
        tools=dict(work.tools),
        blocked=dict(work.blocked),
        commands=tuple(work.commands),
        errors=tuple(work.errors),
        asked=work.transcript.answers,
        moves=tuple(work.moves),
        past=tuple(work.past),
        calls=tuple(_call(run_id, each) for each in work.calls),
    )


def _reason(work: Work, state: str) -> str:
    if state == "answered":
        return f"it answered instead of completing it: {' '.join(work.answer.split())}"[:_LONGEST]
    return _WHY.get(state) or work.chapters[0].subtasks[0].reason or "it failed"


def _call(run_id: str, call: WorkCall) -> PartCall:
    """Give a call as the whole remembers it: what it was asked and what came of it, with long texts cut."""
    _, _, part = run_id.rpartition("+")
    about = call.about
    if about is not None:
        kept = {name: getattr(about, name) for name in ("tool", "argv", "kind", "round", "reason", "subtask")}
        about = CallRead(call_id=about.call_id, arguments=shortened(about.arguments), **kept)
    name = f"{part}:{call.call_id}"
    return PartCall(
        name, call.tool, call.provider_id, call.status, shortened(call.result), shortened(call.asked), about
    )


def note_of(parts: Iterable[PartDone], described: Mapping[str, str]) -> str:
    """Tell the model what was done; `described` gives the subtasks by their places."""
    lines = []
    for part in parts:
        changes = (change for move in part.moves for change in move.changes)
        written = dict.fromkeys(change.path for change in changes if change.after is not None)
        files = f" (files: {', '.join(written)})" if written else ""
        lines.append(f"- {described[part.place]}: {part.status}: {part.reason or 'done'}{files}")
    return "\n".join(["[These subtasks were worked at by others, beside one another:", *lines, "]"])


def added(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up what the parts have taken."""
    found: dict[str, float] = {}
    for amount in amounts:
        for name, value in amount.items():
            found[name] = found.get(name, 0) + value
    return found


def shortened(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Give a JSON value whose texts are cut."""
    return each_text(value, _cut)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}.. ({len(text):,} characters)"
