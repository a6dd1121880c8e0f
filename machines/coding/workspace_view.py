"""What a part has done, as it stands in the ledger of the run that it is a part of.

Takes the work of a part and where it has ended, gives a record of it; `Work` takes it as if all of it had been done by itself. Pure.

The work on a goal with what its parts have done so far: they are runs of their own, and the whole's ledger tells of them when all are over.

Takes the entries of the whole and the runs beside it, gives the work. It changes nothing.

What a call gave, in lines for people: on the screen, in `agent_ledger.log`, and whether anything was done at all.

Takes results as they stand in the ledger, of our own tools and of those of MCP servers, gives texts. Pure.

What people look at in the workspace (seed 003): `.agent_context/` with state.json, history.jsonl and loops.json, and `agent_ledger.log`.

Takes the work, writes files, each whole or not at all. The truth is the ledger: nothing is read back from here, and what is lost is written again.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from dsa.expr import Value
from dsa.runs.place import PART_OF
from dsa.runs.runs import Runs
from dsa.runtime.ledger import Entry
from dsa.runtime.run_store import UnknownRunError
from dsa.runtime.speech import each_text
from machines.coding.coding_tools import COMPLETE, TOOLS
from machines.coding.coding_work import Work, WorkCall, work_of
from machines.coding.history import UNKNOWN
from machines.coding.task_plan import CodingCall, PartCall, PartDone
from machines.coding.tools.workspace import FileEdit
from machines.tool_use.records import JsonObject, as_data, read_record, shell_line, short
from machines.tool_use.tool_call import ToolResult

_LONGEST = 500
#: How the part itself has ended is told by its status.
_ENDINGS = frozenset({"goal_complete", "answered", "rounds_exhausted", "loop_ended", "some_failed", "failed", "paused"})
_WHY = {
    "rounds_exhausted": "its rounds were used up",
    "blocked": "its calls went round in circles",
    "cancelled": "it was stopped",
}


def summary_of(place: str, run_id: str, work: Work, state: str) -> PartDone:
    """Return what a part has done whose subtask has this place. Only an explicit completion counts as one."""
    subtask = work.chapters[0].subtasks[0]
    is_complete = state == "goal_complete"
    return PartDone(
        place=place,
        run=run_id,
        status="completed" if is_complete else "failed",
        reason=subtask.reason if is_complete else _state_reason(work, state),
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


def _state_reason(work: Work, state: str) -> str:
    if state == "answered":
        return f"it answered instead of completing it: {' '.join(work.answer.split())}"[:_LONGEST]
    return _WHY.get(state) or work.chapters[0].subtasks[0].reason or "it failed"


def _call(run_id: str, call: WorkCall) -> PartCall:
    """Return a call as the whole remembers it: what it was asked and what came of it, with long texts cut."""
    _, _, part = run_id.rpartition("+")
    about = call.about
    if about is not None:
        kept = {name: getattr(about, name) for name in ("tool", "argv", "kind", "round", "reason", "subtask")}
        about = CodingCall(call_id=about.call_id, arguments=shortened(about.arguments), **kept)
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
    """Return a JSON value whose texts are cut."""
    return each_text(value, _cut)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}.. ({len(text):,} characters)"


def name_of(run_id: str, place: str) -> str:
    """Name the run of a part by its place."""
    return f"{run_id}{PART_OF}{place}"


def kept_parts(runs: Runs, run_id: str, places: Iterable[str]) -> Iterator[tuple[str, Work]]:
    """Yield the work of the parts that were begun, by their places. Raises StoreError."""
    for place in places:
        with suppress(UnknownRunError):
            yield place, work_of(runs.recorded(name_of(run_id, place)).entries)


def gathered(entries: Iterable[Entry], runs: Runs, run_id: str) -> Work:
    """Return the work of a run, that of parts with it whose group is not over. Raises StoreError."""
    work = work_of(entries)
    apart = [place for place, _, subtask in work.places if subtask.status == "apart"]
    parts = {place: part for place, part in kept_parts(runs, run_id, apart) if part.chapters}
    told = [
        attrs.evolve(summary_of(place, name_of(run_id, place), part, ""), status="apart", reason="")
        for place, part in parts.items()
    ]
    work.join(told, added(part.usage for part in parts.values()))
    work.under_way += [key for part in parts.values() for key in part.under_way]
    return work


LONGEST = 110
_SHORT_ID, _MOST_FILES = 12, 20
_OWN = frozenset(tool.name for tool in TOOLS)
_LOOKING = frozenset(tool.name for tool in TOOLS if tool.kind == "looking")
_ENDED = {
    "timed out": "timed out",
    "stopped": "stopped",
    "disk": "ended: it wrote too much",
    "processes": "ended: it started too many processes",
    "lost": "nobody knows how it ended",
}


@attrs.frozen
class _Commit:
    commit: str
    subject: str


@attrs.frozen
class _Attachment:
    kind: str = ""
    type: str = ""
    uri: str = ""


@attrs.frozen
class CallOutcome:
    """What a result says, whichever tool it is of: texts, how a command has ended, what git says, what a server's tool gave beside its text."""

    output: object = None
    result: object = None
    text: object = None
    diff: object = None
    rc: int | None = None
    signal: str | None = None
    ended: str | None = None
    put_back: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    commits: tuple[_Commit, ...] | None = None
    commit: str | None = None
    files: tuple[object, ...] | None = None
    clean: bool | None = None
    branch: str | None = None
    staged: tuple[object, ...] = ()
    changed: tuple[object, ...] = ()
    untracked: tuple[object, ...] = ()
    conflicts: tuple[object, ...] = ()
    left_staged: tuple[object, ...] = ()
    structured: object = None
    attachments: tuple[_Attachment, ...] = ()
    restarted: str = ""
    note: str = ""


def outcome_of(result: JsonObject | None) -> CallOutcome:
    """Read a result as it stands in the ledger."""
    return read_record(CallOutcome, result or {})


def text_of(said: CallOutcome) -> str:
    """Return what a call that was done says."""
    text = next(filter(None, (said.output, said.result, said.text, said.diff)), "")
    return str(text) or "\n".join([*_of_git(said), *_of_servers(said)])


def _of_git(said: CallOutcome) -> Iterator[str]:
    if said.commits is not None:
        yield from (f"{each.commit[:_SHORT_ID]} {each.subject}" for each in said.commits)
    elif said.commit and said.files is not None:
        yield f"commit {said.commit[:_SHORT_ID]}: {_listed(said.files)}"
    elif said.clean is not None:
        yield f"on {said.branch or 'no branch'}{', clean' if said.clean else ''}"
        for name in ("staged", "changed", "untracked", "conflicts"):
            if paths := getattr(said, name):
                yield f"{name}: {_listed(paths)}"


def _of_servers(said: CallOutcome) -> Iterator[str]:
    if said.structured is not None:
        yield json.dumps(said.structured, ensure_ascii=False)
    for each in said.attachments:
        yield " ".join(filter(None, (each.kind, each.type, each.uri)))


def _listed(entries: Sequence[object]) -> str:
    paths = [str(each["path"] if isinstance(each, Mapping) else each) for each in entries]
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return ", ".join(paths[:_MOST_FILES]) + more


def remarks_on(said: CallOutcome) -> list[str]:
    """Return what there is to know of a call beside its text: how a command ended, what was put back, what the model was told."""
    found = [how_ended(said)] if said.rc or said.signal is not None or said.ended is not None else []
    if said.put_back:
        found.append(f"not for a command to write, and put back or taken away: {', '.join(said.put_back)}")
    if said.not_kept:
        found.append(f"changed, and not undone by dsa undo: {', '.join(said.not_kept)}")
    if said.restarted:
        found.append(said.restarted)
    if said.left_staged:
        found.append(f"left staged: {_listed(said.left_staged)}")
    return [*found, *([f"note: {said.note}"] if said.note else [])]


def how_changed(change: FileEdit) -> str:
    """Say in a word what a call did to a file; of one that a .gitignore named before it nobody knows whether it was there."""
    if change.before == UNKNOWN:
        return "new, or there before and ignored"
    return "new" if change.before is None else "removed" if change.after is None else "changed"


def how_ended(said: CallOutcome) -> str:
    """Return how a command ended: its exit code, or what ended it."""
    if said.ended:
        return _ENDED.get(said.ended, f"ended: {said.ended}")
    return f"ended by {said.signal}" if said.signal else f"rc={said.rc}"


def arguments_shown(call: CodingCall) -> str:
    """Write what a call is asked with in one line: a command, a path, a pattern, or all of it."""
    if call.argv:
        return short(shell_line(call.argv), LONGEST)
    shown = _short_form(call) if call.tool in _OWN else ""
    return short(shown or json.dumps(call.arguments, ensure_ascii=False), LONGEST)


def _short_form(call: CodingCall) -> str:
    """Return what matters of the arguments of a tool of ours; a server's tool may mean anything by the same names."""
    given = call.arguments
    if call.tool == "search":
        where = [f"in {given['path']}"] if given.get("path", ".") != "." else []
        glob = [str(given["glob"])] if given.get("glob") else []
        return " ".join([json.dumps(given["pattern"], ensure_ascii=False), *where, *glob])
    if isinstance(given.get("cmd"), str):
        return str(given["cmd"])
    return ", ".join(_paths_in(call))


def _paths_in(call: CodingCall) -> list[str]:
    """Name the files that a call is of."""
    if "path" in call.arguments:
        return [str(call.arguments["path"])]
    files = call.arguments.get("files")
    return [str(each["path"]) for each in files] if isinstance(files, list) else []


# -- the ledger for people ------------------------------------------------------------------------------------------------


def object_of(called: WorkCall) -> str:
    """Return what a call was to be done with: a file, a command, a pattern, or all that a server's tool was asked; nothing where it could not be read."""
    if called.about is None or not called.about.call_id:  # it was never read: nobody knows what its arguments mean
        return short(json.dumps(called.asked, ensure_ascii=False), LONGEST) if called.asked else ""
    return arguments_shown(attrs.evolve(called.about, tool=called.tool)) if called.about.arguments else ""


def log_lines(called: WorkCall) -> list[str]:
    """Return the lines of a call that was done; none for one that only looked."""
    call = called.about or CodingCall()
    given, result = call.arguments, outcome_of(called.result)
    if called.tool == "run_cmd":
        return [f"CMD {shell_line(call.argv)} -> {how_ended(result)}"]
    if called.tool == "git_commit":
        return [f"COMMIT {str(result.commit)[:_SHORT_ID]} {' '.join(str(given.get('message')).split())}"]
    if called.tool == "write_tested":
        return [f"WRITE {given.get('path')}", f"WRITE {given.get('tests_path')}"]
    if call.kind == "changing":
        return [f"WRITE {path}" for path in _paths_in(call)]
    return [f"CALL {called.tool} {json.dumps(given, ensure_ascii=False)}"] if has_acted(called) else []


def has_acted(called: WorkCall) -> bool:
    """Return whether a call has done more than look: written, run, or called a server's tool that does not say it only reads."""
    kind = called.about.kind if called.about else ""
    return called.status == "done" and called.tool not in _LOOKING and kind != "looking"


def was_idle(work: Work) -> bool:
    """Return whether no call has written or run anything."""
    return not work.files_written and not any(map(has_acted, work.calls))


FOLDER, LOG = ".agent_context", "agent_ledger.log"
_IN_FOLDER = ("state.json", "history.jsonl", "loops.json")
_OURS = "what is done is written down there"

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
        """Return what of the user's lies where these files go; nothing where they can be written. What is a link is the user's to take away."""
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
        """Return all of them."""
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
    """Return a call and what came of it."""
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
    """Return the lines of a call: for what it has written or run, for its failure, for its having been tried, or for the subtask that it was to close.

    Each names its object: a file, a command, what a server's tool was asked, a subtask.
    """
    if called.status in _OPEN:
        return []
    if called.status == "done":
        return [_line(line) for line in log_lines(called)]
    if called.tool == COMPLETE and called.about and called.about.subtask:
        return [
            _line(
                f"SUBTASK {called.about.subtask} -> {_CLOSED.get(called.status, called.status)}{_call_reason(called)}"
            )
        ]
    what = " ".join(filter(None, [called.tool, object_of(called)]))
    if called.status == "failed":
        fault = ToolResult(called.call_id, called.result or {}).fault
        return [_line(f"ERROR {what}: {fault.message if fault else ''}")]
    return [_line(f"TRIED {what} ({called.status})")]


def _call_reason(called: WorkCall) -> str:
    """Return what the model has said of the end of a subtask; nothing where it has said nothing."""
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
