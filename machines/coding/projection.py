"""What people look at in the workspace (seed 003): `.agent_context/` with state.json, history.jsonl and loops.json, and `agent_ledger.log`.

Takes the work, writes files, each whole or not at all. The truth is the ledger: nothing is read back from here, and what is lost is written again.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsa.expr import Value
from machines.coding.calls import COMPLETE
from machines.coding.shown import log_lines, object_of
from machines.coding.standing import Called
from machines.coding.summary import shortened
from machines.coding.work import Work
from machines.talking.texts import short

FOLDER, LOG = ".agent_context", "agent_ledger.log"
_IN_FOLDER = ("state.json", "history.jsonl", "loops.json")
_OURS = "what is done is written down there"
_LONGEST = 500
#: How a subtask stands that a call was to close.
_CLOSED = {
    "subtask_completed": "completed",
    "subtask_failed": "failed",
    "no_evidence": "questioned: no result shows it",
}
_OPEN = frozenset({"waiting", "running", "waiting for approval"})


class Projection:
    """The files of one workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._written: dict[Path, str] = {}
        self._history, self._log = _Lines(_history_lines), _Lines(lines_in_log)

    def fault(self) -> str:
        """Say what of the user's lies where these files go; nothing where they can be written. What is a link is the user's to take away."""
        folder = self._workspace / FOLDER
        for path, is_right, what in (
            (folder, Path.is_dir, "folder"),
            *((folder / name, Path.is_file, "file") for name in _IN_FOLDER),
            (self._workspace / LOG, Path.is_file, "file"),
        ):
            if path.is_symlink():
                return f"{path} is a link; {_OURS}: take it away"
            if os.path.lexists(path) and not is_right(path):
                return f"{path} is no {what}; {_OURS}: move it away"
        return ""

    def write(self, work: Work, values: Mapping[str, Value]) -> None:
        """Write what has changed. OSError where the workspace cannot be written."""
        folder = self._workspace / FOLDER
        texts = _json(state(work, values)), self._history.of(work.calls), _json(loops(work)), self._log.of(work.calls)
        paths = *(folder / name for name in _IN_FOLDER), self._workspace / LOG
        for path, text in zip(paths, texts, strict=True):
            if self._written.get(path) != text:
                _replace(path, text)
                self._written[path] = text


class _Lines:
    """The lines of calls. Those of a call are made again only when it stands otherwise: a round of a long run costs what one of a short run does."""

    def __init__(self, lines_of: Callable[[Called], list[str]]) -> None:
        self._lines_of = lines_of
        self._made: list[tuple[Called, str, str]] = []

    def of(self, calls: Sequence[Called]) -> str:
        """Give all of them."""
        for at, each in enumerate(calls):
            if at == len(self._made) or self._made[at][:2] != (each, each.status):
                self._made[at : at + 1] = [(each, each.status, "".join(f"{line}\n" for line in self._lines_of(each)))]
        del self._made[len(calls) :]
        return "".join(text for *_, text in self._made)


def state(work: Work, values: Mapping[str, Value]) -> dict[str, Any]:
    """Give goal, tasks and where they stand, what was blocked, and what the last probe has found."""
    places = [
        (at, number, each) for at, chapter in enumerate(work.chapters) for number, each in enumerate(chapter.subtasks)
    ]
    active = next(((at, number) for at, number, each in places if each.status == "in_progress"), (None, None))
    return {
        "goal": work.goal,
        "tasks": [
            {
                "description": chapter.description,
                "subtasks": [
                    {"description": each.description, "status": each.status, "reason": each.reason}
                    for each in chapter.subtasks
                ],
            }
            for chapter in work.chapters
        ],
        "current_task": active[0],
        "current_subtask": active[1],
        "blocked_actions": list(work.blocked.values()),
        "probe": dict(work.probe),
        "counts": dict(values),
        "answer": work.answer,
    }


def _history_lines(called: Called) -> list[str]:
    """Give a call and what came of it."""
    about = {"call": called.call_id, "tool": called.tool, "arguments": shortened(called.about.get("arguments"))}
    return [json.dumps({**about, "status": called.status, "result": shortened(called.result)}, ensure_ascii=False)]


def loops(work: Work) -> list[dict[str, Any]]:
    """Give the calls that went round, by the judge's own count."""
    found = []
    for each in work.calls:
        seen = each.about.get("round")
        if seen and seen["level"] != "fine":
            about = {name: seen[name] for name in ("times", "level", "why")}
            found.append({"call": each.call_id, "tool": each.tool, **about})
    return found


def lines_in_log(called: Called) -> list[str]:
    """Give the lines of a call: for what it has written or run, for its failure, for its having been tried, or for the subtask that it was to close.

    Each names its object: a file, a command, what a server's tool was asked, a subtask.
    """
    if called.status in _OPEN:
        return []
    if called.status == "done":
        return [_line(line) for line in log_lines(called)]
    if called.tool == COMPLETE and "subtask" in called.about:
        return [
            _line(f"SUBTASK {called.about['subtask']} -> {_CLOSED.get(called.status, called.status)}{_reason(called)}")
        ]
    what = " ".join(filter(None, [called.tool, object_of(called)]))
    if called.status == "failed":
        return [_line(f"ERROR {what}: {(called.result or {}).get('error', {}).get('message', '')}")]
    return [_line(f"TRIED {what} ({called.status})")]


def _reason(called: Called) -> str:
    """Give what the model has said of the end of a subtask; nothing where it has said nothing."""
    said = str(called.about.get("reason") or "")
    return f": {said}" if said else ""


def _line(text: str) -> str:
    return short(str(text), _LONGEST)


def _json(value: object) -> str:
    return f"{json.dumps(value, ensure_ascii=False, indent=2)}\n"


def _replace(path: Path, text: str) -> None:
    """Put a file there whole; a link, which a command has made since the beginning (`Projection.fault`), is replaced and not followed."""
    if path.parent.is_symlink():
        path.parent.unlink()
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        beside.unlink()
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(opened, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.replace(beside, path)  # noqa: PTH105  (as everywhere that a name is replaced)
