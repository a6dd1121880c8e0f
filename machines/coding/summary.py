"""What a part has done, as it stands in the ledger of the run that it is a part of.

Takes the work of a part and where it has ended, gives JSON; `Work` takes it as if all of it had been done by itself. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsa.runtime.speech import each_text
from machines.coding.work import Work

_LONGEST = 500
#: How the part itself has ended is told by its status.
_ENDINGS = frozenset({"goal_complete", "answered", "rounds_exhausted", "loop_ended", "some_failed", "failed", "paused"})
_WHY = {
    "rounds_exhausted": "its rounds were used up",
    "blocked": "its calls went round in circles",
    "cancelled": "it was stopped",
}


def summary_of(place: str, run_id: str, work: Work, state: str) -> dict[str, Any]:
    """Give what a part has done whose subtask has this place. Only an explicit completion counts as one."""
    subtask = work.chapters[0].subtasks[0]
    reason = subtask.reason if state == "goal_complete" else _reason(work, state)
    return {
        "place": place,
        "run": run_id,
        "status": "completed" if state == "goal_complete" else "failed",
        "reason": reason,
        "done": subtask.done,
        "shown": subtask.shown and state == "goal_complete",
        "reasons": {name: count for name, count in work.reasons.items() if name not in _ENDINGS},
        "rescues": dict(work.rescues),
        "tools": dict(work.tools),
        "blocked": dict(work.blocked),
        "commands": list(work.commands),
        "errors": list(work.errors),
        "asked": work.asked_of_model,
        "moves": [dict(move) for move in work.moves],
        "past": [attrs.asdict(did) for did in work.past],
        "calls": [_call(run_id, attrs.asdict(each)) for each in work.calls],
    }


def _reason(work: Work, state: str) -> str:
    if state == "answered":
        return f"it answered instead of completing it: {' '.join(work.answer.split())}"[:_LONGEST]
    return _WHY.get(state) or work.chapters[0].subtasks[0].reason or "it failed"


def _call(run_id: str, call: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        name: call["about"][name]
        for name in ("arguments", "argv", "kind", "round", "reason", "subtask")
        if name in call["about"]
    }
    _, _, part = run_id.rpartition("+")
    name = f"{part}:{call['call_id']}"
    return {**call, "call_id": name, "about": shortened(about), "result": shortened(call["result"])}


def note_of(parts: Iterable[Mapping[str, Any]], described: Mapping[str, str]) -> str:
    """Tell the model what was done; `described` gives the subtasks by their places."""
    lines = []
    for part in parts:
        written = dict.fromkeys(
            change["path"] for move in part["moves"] for change in move["changes"] if change["after"] is not None
        )
        files = f" (files: {', '.join(written)})" if written else ""
        lines.append(f"- {described[part['place']]}: {part['status']}: {part['reason'] or 'done'}{files}")
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
