"""What people look at in the workspace (seed 003): `.agent_context/` with state.json, history.jsonl and loops.json, and `agent_ledger.log`.

Takes the work, writes files, each whole or not at all. The truth is the ledger: nothing is read back from here, and what is lost is written again.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from dsa.expr import Value
from machines.coding.calls import COMPLETE
from machines.coding.shown import log_lines, object_of
from machines.coding.summary import shortened
from machines.coding.work import Work, WorkCall
from machines.tool_use.call import ToolResult
from machines.tool_use.records import as_data
from machines.tool_use.texts import short

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


@attrs.frozen
class SubtaskShown:
    """A subtask in state.json."""

    description: str
    status: str
    reason: str


@attrs.frozen
class TaskShown:
    """A task in state.json."""

    description: str
    subtasks: tuple[SubtaskShown, ...]


@attrs.frozen
class StateFile:
    """What stands in state.json: `counts` are the machine's variables, `probe` is what the last look at the workspace has found."""

    goal: str
    tasks: tuple[TaskShown, ...]
    current_task: int | None
    current_subtask: int | None
    blocked_actions: tuple[str, ...]
    probe: object
    counts: Mapping[str, Value]
    answer: str


@attrs.frozen
class Loop:
    """A call that went round, as it stands in loops.json."""

    call: str
    tool: str
    times: int
    level: str
    why: str


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
        texts = (
            _json(as_data(state(work, values))),
            self._history.of(work.calls),
            _json([*map(as_data, loops(work))]),
            self._log.of(work.calls),
        )
        paths = *(folder / name for name in _IN_FOLDER), self._workspace / LOG
        for path, text in zip(paths, texts, strict=True):
            if self._written.get(path) != text:
                _replace(path, text)
                self._written[path] = text


class _Lines:
    """The lines of calls. Those of a call are made again only when it stands otherwise: a round of a long run costs what one of a short run does."""

    def __init__(self, lines_of: Callable[[WorkCall], list[str]]) -> None:
        self._lines_of = lines_of
        self._made: list[tuple[WorkCall, str, str]] = []

    def of(self, calls: Sequence[WorkCall]) -> str:
        """Give all of them."""
        for at, each in enumerate(calls):
            if at == len(self._made) or self._made[at][:2] != (each, each.status):
                self._made[at : at + 1] = [(each, each.status, "".join(f"{line}\n" for line in self._lines_of(each)))]
        del self._made[len(calls) :]
        return "".join(text for *_, text in self._made)


def state(work: Work, values: Mapping[str, Value]) -> StateFile:
    """Return goal, tasks and where they stand, what was blocked, and what the last probe has found."""
    places = [
        (at, number, each) for at, chapter in enumerate(work.chapters) for number, each in enumerate(chapter.subtasks)
    ]
    task, subtask = next(((at, number) for at, number, each in places if each.status == "in_progress"), (None, None))
    tasks = tuple(
        TaskShown(
            chapter.description,
            tuple(SubtaskShown(each.description, each.status, each.reason) for each in chapter.subtasks),
        )
        for chapter in work.chapters
    )
    blocked = tuple(work.blocked.values())
    probe = {} if work.probe is None else as_data(work.probe)
    return StateFile(work.goal, tasks, task, subtask, blocked, probe, dict(values), work.answer)


def _history_lines(called: WorkCall) -> list[str]:
    """Give a call and what came of it."""
    given = called.about.arguments if called.about else called.asked
    about = {"call": called.call_id, "tool": called.tool, "arguments": shortened(given or None)}
    return [json.dumps({**about, "status": called.status, "result": shortened(called.result)}, ensure_ascii=False)]


def loops(work: Work) -> list[Loop]:
    """Return the calls that went round, by the judge's own count."""
    found = []
    for each in work.calls:
        seen = each.about.round if each.about else None
        if seen and seen.level != "fine":
            found.append(Loop(each.call_id, each.tool, seen.times, seen.level, seen.why))
    return found


def lines_in_log(called: WorkCall) -> list[str]:
    """Give the lines of a call: for what it has written or run, for its failure, for its having been tried, or for the subtask that it was to close.

    Each names its object: a file, a command, what a server's tool was asked, a subtask.
    """
    if called.status in _OPEN:
        return []
    if called.status == "done":
        return [_line(line) for line in log_lines(called)]
    if called.tool == COMPLETE and called.about and called.about.subtask:
        return [
            _line(f"SUBTASK {called.about.subtask} -> {_CLOSED.get(called.status, called.status)}{_reason(called)}")
        ]
    what = " ".join(filter(None, [called.tool, object_of(called)]))
    if called.status == "failed":
        fault = ToolResult(called.call_id, called.result or {}).fault
        return [_line(f"ERROR {what}: {fault.message if fault else ''}")]
    return [_line(f"TRIED {what} ({called.status})")]


def _reason(called: WorkCall) -> str:
    """Give what the model has said of the end of a subtask; nothing where it has said nothing."""
    said = called.about.reason if called.about else ""
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
