"""Views of the work: summaries of parts, results in lines for people, and the files for people in the workspace (seed 003).

`summary_of` returns the work of a part for the ledger of the whole run; `gathered` returns the work of a run with its parts under way. `text_of`,
`remarks_on` and `log_lines` turn results of our own tools and of MCP servers into text. `Projection` writes `.agent_context/` with state.json,
history.jsonl and loops.json, and `agent_ledger.log`, each file whole or not at all. Nothing reads these files back: the ledger has everything.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.place import PART_OF
from dsa.runtime.ledger import Entry
from dsa.runtime.run_store import UnknownRunError
from dsa.runtime.speech import each_text
from machines.coding.coding_tools import COMPLETE, TOOLS, CallAction, in_order
from machines.coding.coding_work import Work, WorkCall, work_of
from machines.coding.history import UNKNOWN
from machines.coding.task_plan import CodingCall, PartCall, PartDone
from machines.coding.tools.workspace import FileEdit
from machines.tool_use.records import JsonObject, as_data, one_line, read_record, shell_line
from machines.tool_use.tool_call import ToolResult

_LONGEST = 500
#: Notices about the end of a part, which its status already says.
_ENDINGS = frozenset({"goal_complete", "answered", "rounds_exhausted", "loop_ended", "some_failed", "failed", "paused"})
_WHY = {
    "rounds_exhausted": "its rounds were used up",
    "blocked": "it repeated calls without effect",
    "cancelled": "it was stopped",
}


def summary_of(place: str, run_id: str, work: Work, state: str) -> PartDone:
    """Return the summary of a part. Its subtask is completed only if the model completed it explicitly."""
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
        blocked=dict(work.blocked_calls),
        commands=tuple(work.commands),
        errors=tuple(work.errors),
        asked=work.transcript.answers,
        moves=tuple(work.moves),
        past=tuple(work.past),
        calls=tuple(_call(run_id, each) for each in work.calls),
    )


def _state_reason(work: Work, state: str) -> str:
    if state == "answered":
        return f"it answered instead of completing the subtask: {' '.join(work.answer.split())}"[:_LONGEST]
    return _WHY.get(state) or work.chapters[0].subtasks[0].reason or "it failed"


def _call(run_id: str, call: WorkCall) -> PartCall:
    """Return a call for the ledger of the whole run, with shortened texts."""
    _, _, part = run_id.rpartition("+")
    about = call.about
    if about is not None:
        facts = {name: getattr(about, name) for name in ("tool", "argv", "kind", "round", "reason", "subtask")}
        about = CodingCall(call_id=about.call_id, arguments=shorten_texts(about.arguments), **facts)
    name = f"{part}:{call.call_id}"
    return PartCall(
        name, call.tool, call.provider_id, call.status, shorten_texts(call.result), shorten_texts(call.asked), about
    )


def note_of(parts: Iterable[PartDone], descriptions: Mapping[str, str]) -> str:
    """Return the note to the model about parts; `descriptions` has the subtasks by place."""
    lines = []
    for part in parts:
        changes = (change for move in part.moves for change in move.changes)
        files_written = dict.fromkeys(change.path for change in changes if change.after is not None)
        files = f" (files: {', '.join(files_written)})" if files_written else ""
        lines.append(f"- {descriptions[part.place]}: {part.status}: {part.reason or 'done'}{files}")
    return "\n".join(["[Other agents worked on these subtasks at the same time:", *lines, "]"])


def sums(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of amounts by name."""
    result: dict[str, float] = {}
    for amount in amounts:
        for name, value in amount.items():
            result[name] = result.get(name, 0) + value
    return result


def shorten_texts(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value with shortened texts."""
    return each_text(value, _shorten)


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}.. ({len(text):,} characters)"


def name_of(run_id: str, place: str) -> str:
    """Return the id of a part's run."""
    return f"{run_id}{PART_OF}{place}"


def existing_parts(runs: Runs, run_id: str, places: Iterable[str]) -> Iterator[tuple[str, Work]]:
    """Yield the places of existing parts with their work. Raises StoreError."""
    for place in places:
        with suppress(UnknownRunError):
            yield place, work_of(runs.stored_run(name_of(run_id, place)).entries)


def actions_beside(runs: Runs, whole: str, run_id: str) -> tuple[CallAction, ...]:
    """Return the actions of a whole run, and of its parts under way except the one with this id, from their ledgers. Raises StoreError."""
    work = work_of(runs.stored_run(whole).entries)
    places = [place for place, _, subtask in work.places if subtask.status == "apart"]
    parts = existing_parts(runs, whole, (place for place in places if name_of(whole, place) != run_id))
    return in_order((), chain(work.past, work.past_apart, *(part.past for _, part in parts)))


def work_with_parts(entries: Iterable[Entry], runs: Runs, run_id: str) -> Work:
    """Return the work of a run with that of its parts under way. Raises StoreError."""
    work = work_of(entries)
    apart = [place for place, _, subtask in work.places if subtask.status == "apart"]
    parts = {place: part for place, part in existing_parts(runs, run_id, apart) if part.chapters}
    summaries = [
        attrs.evolve(summary_of(place, name_of(run_id, place), part, ""), status="apart", reason="")
        for place, part in parts.items()
    ]
    work.join(summaries, sums(part.usage for part in parts.values()))
    work.under_way += [key for part in parts.values() for key in part.under_way]
    return work


LONGEST = 110
_SHORT_ID, _MOST_FILES = 12, 20
_OWN = frozenset(tool.name for tool in TOOLS)
_LOOK_TOOLS = frozenset(tool.name for tool in TOOLS if tool.kind == "looking")
_END_TEXTS = {
    "timed out": "timed out",
    "stopped": "stopped",
    "disk": "killed: it wrote too much",
    "processes": "killed: it started too many processes",
    "lost": "how it ended is unknown",
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
    """The result of any tool: texts, the end of a command, facts of git, and the other content of a server's tool."""

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
    """Return the outcome in a result of the ledger."""
    return read_record(CallOutcome, result or {})


def text_of(outcome: CallOutcome) -> str:
    """Return the text of a successful result."""
    text = next(filter(None, (outcome.output, outcome.result, outcome.text, outcome.diff)), "")
    return str(text) or "\n".join([*_of_git(outcome), *_of_servers(outcome)])


def _of_git(outcome: CallOutcome) -> Iterator[str]:
    if outcome.commits is not None:
        yield from (f"{each.commit[:_SHORT_ID]} {each.subject}" for each in outcome.commits)
    elif outcome.commit and outcome.files is not None:
        yield f"commit {outcome.commit[:_SHORT_ID]}: {_paths_text(outcome.files)}"
    elif outcome.clean is not None:
        yield f"on {outcome.branch or 'no branch'}{', clean' if outcome.clean else ''}"
        for name in ("staged", "changed", "untracked", "conflicts"):
            if paths := getattr(outcome, name):
                yield f"{name}: {_paths_text(paths)}"


def _of_servers(outcome: CallOutcome) -> Iterator[str]:
    if outcome.structured is not None:
        yield json.dumps(outcome.structured, ensure_ascii=False)
    for each in outcome.attachments:
        yield " ".join(filter(None, (each.kind, each.type, each.uri)))


def _paths_text(entries: Sequence[object]) -> str:
    paths = [str(each["path"] if isinstance(each, Mapping) else each) for each in entries]
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return ", ".join(paths[:_MOST_FILES]) + more


def remarks_on(outcome: CallOutcome) -> list[str]:
    """Return remarks beside the text of a result: the end of a command, protected files, notes to the model."""
    remarks = [end_text(outcome)] if outcome.rc or outcome.signal is not None or outcome.ended is not None else []
    if outcome.put_back:
        remarks.append(f"protected from commands, so restored or removed afterwards: {', '.join(outcome.put_back)}")
    if outcome.not_kept:
        remarks.append(f"changed, but dsa undo cannot undo these changes: {', '.join(outcome.not_kept)}")
    if outcome.restarted:
        remarks.append(outcome.restarted)
    if outcome.left_staged:
        remarks.append(f"left staged: {_paths_text(outcome.left_staged)}")
    return [*remarks, *([f"note: {outcome.note}"] if outcome.note else [])]


def change_word(change: FileEdit) -> str:
    """Return the kind of a change as a word or two. An ignored file may have existed before."""
    if change.before == UNKNOWN:
        return "new, or ignored before"
    return "new" if change.before is None else "removed" if change.after is None else "changed"


def end_text(outcome: CallOutcome) -> str:
    """Return the end of a command: its exit code, or what stopped it."""
    if outcome.ended:
        return _END_TEXTS.get(outcome.ended, f"ended: {outcome.ended}")
    return f"ended by {outcome.signal}" if outcome.signal else f"rc={outcome.rc}"


def arguments_text(call: CodingCall) -> str:
    """Return the arguments of a call in one line: a command, a path, a pattern, or all of them."""
    if call.argv:
        return one_line(shell_line(call.argv), LONGEST)
    text = _short_form(call) if call.tool in _OWN else ""
    return one_line(text or json.dumps(call.arguments, ensure_ascii=False), LONGEST)


def _short_form(call: CodingCall) -> str:
    """Return the important arguments of one of our own tools; a server's tool may use the same names with another meaning."""
    arguments = call.arguments
    if call.tool == "search":
        where = [f"in {arguments['path']}"] if arguments.get("path", ".") != "." else []
        glob = [str(arguments["glob"])] if arguments.get("glob") else []
        return " ".join([json.dumps(arguments["pattern"], ensure_ascii=False), *where, *glob])
    if isinstance(arguments.get("cmd"), str):
        return str(arguments["cmd"])
    return ", ".join(_paths_in(call))


def _paths_in(call: CodingCall) -> list[str]:
    """Return the paths in a call."""
    if "path" in call.arguments:
        return [str(call.arguments["path"])]
    files = call.arguments.get("files")
    return [str(each["path"]) for each in files] if isinstance(files, list) else []


# --- the ledger for people ---


def object_of(call: WorkCall) -> str:
    """Return the object of a call: a file, a command, a pattern, or all arguments of a server's tool; empty when it could not be read."""
    if call.about is None or not call.about.call_id:  # it was never read, so the meaning of its arguments is unknown
        return one_line(json.dumps(call.asked, ensure_ascii=False), LONGEST) if call.asked else ""
    return arguments_text(attrs.evolve(call.about, tool=call.tool)) if call.about.arguments else ""


def log_lines(work_call: WorkCall) -> list[str]:
    """Return the lines of a successful call, none for one that only looked."""
    call = work_call.about or CodingCall()
    arguments, result = call.arguments, outcome_of(work_call.result)
    if work_call.tool == "run_cmd":
        return [f"CMD {shell_line(call.argv)} -> {end_text(result)}"]
    if work_call.tool == "git_commit":
        return [f"COMMIT {str(result.commit)[:_SHORT_ID]} {' '.join(str(arguments.get('message')).split())}"]
    if work_call.tool == "write_tested":
        return [f"WRITE {arguments.get('path')}", f"WRITE {arguments.get('tests_path')}"]
    if call.kind == "changing":
        return [f"WRITE {path}" for path in _paths_in(call)]
    return [f"CALL {work_call.tool} {json.dumps(arguments, ensure_ascii=False)}"] if has_acted(work_call) else []


def has_acted(call: WorkCall) -> bool:
    """Return whether a call wrote or ran something, or called a server's tool that is not read-only."""
    kind = call.about.kind if call.about else ""
    return call.status == "done" and call.tool not in _LOOK_TOOLS and kind != "looking"


def was_idle(work: Work) -> bool:
    """Return whether no call wrote or ran anything."""
    return not work.files_written and not any(map(has_acted, work.calls))


FOLDER, LOG = ".agent_context", "agent_ledger.log"
_IN_FOLDER = ("state.json", "history.jsonl", "loops.json")
_OURS = "the record of the work is written there"

#: The status of a subtask after a call that tried to end it.
_END_WORDS = {
    "subtask_completed": "completed",
    "subtask_failed": "failed",
    "no_evidence": "questioned: no result proves it",
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
    """The content of state.json: `counts` are the machine's variables, `probe` has the last facts about the workspace."""

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
    """A repeated call in loops.json."""

    call: str
    tool: str
    times: int
    level: str
    why: str


class Projection:
    """The files for people in one workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._texts: dict[Path, str] = {}
        self._history, self._log = _Lines(_history_lines), _Lines(lines_in_log)

    def fault(self) -> str:
        """Return why the files cannot be written, because the user has something in their place, or an empty text."""
        folder = self._workspace / FOLDER
        for path, is_right, what in (
            (folder, Path.is_dir, "folder"),
            *((folder / name, Path.is_file, "file") for name in _IN_FOLDER),
            (self._workspace / LOG, Path.is_file, "file"),
        ):
            if path.is_symlink():
                return f"{path} is a link; {_OURS}: remove the link"
            if os.path.lexists(path) and not is_right(path):
                return f"{path} is not a {what}; {_OURS}: move it away"
        return ""

    def write(self, work: Work, values: Mapping[str, Value]) -> None:
        """Write the files that have changed. Raises OSError when the workspace cannot be written."""
        folder = self._workspace / FOLDER
        texts = (
            _json(as_data(state(work, values))),
            self._history.of(work.calls),
            _json([*map(as_data, loops(work))]),
            self._log.of(work.calls),
        )
        paths = *(folder / name for name in _IN_FOLDER), self._workspace / LOG
        for path, text in zip(paths, texts, strict=True):
            if self._texts.get(path) != text:
                _replace(path, text)
                self._texts[path] = text


class _Lines:
    """The lines of calls. A call's lines are only made again when its status changes, so a round costs the same in a long run."""

    def __init__(self, lines_of: Callable[[WorkCall], list[str]]) -> None:
        self._lines_of = lines_of
        self._entries: list[tuple[WorkCall, str, str]] = []

    def of(self, calls: Sequence[WorkCall]) -> str:
        """Return the lines of all calls."""
        for at, each in enumerate(calls):
            if at == len(self._entries) or self._entries[at][:2] != (each, each.status):
                self._entries[at : at + 1] = [
                    (each, each.status, "".join(f"{line}\n" for line in self._lines_of(each)))
                ]
        del self._entries[len(calls) :]
        return "".join(text for *_, text in self._entries)


def state(work: Work, values: Mapping[str, Value]) -> StateFile:
    """Return the content of state.json."""
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
    blocked_calls = tuple(work.blocked_calls.values())
    probe = {} if work.probe is None else as_data(work.probe)
    return StateFile(work.goal, tasks, task, subtask, blocked_calls, probe, dict(values), work.answer)


def _history_lines(call: WorkCall) -> list[str]:
    """Return a call and its result as a line of JSON."""
    arguments = call.about.arguments if call.about else call.asked
    about = {"call": call.call_id, "tool": call.tool, "arguments": shorten_texts(arguments or None)}
    return [json.dumps({**about, "status": call.status, "result": shorten_texts(call.result)}, ensure_ascii=False)]


def loops(work: Work) -> list[Loop]:
    """Return the repeated calls, with the guard's own count."""
    result = []
    for each in work.calls:
        judgement = each.about.round if each.about else None
        if judgement and judgement.level != "fine":
            result.append(Loop(each.call_id, each.tool, judgement.times, judgement.level, judgement.why))
    return result


def lines_in_log(call: WorkCall) -> list[str]:
    """Return the log lines of a call: what it wrote or ran, its failure, its refusal, or the end of a subtask.

    Each line names its object: a file, a command, the arguments of a server's tool, a subtask.
    """
    if call.status in _OPEN:
        return []
    if call.status == "done":
        return [_line(line) for line in log_lines(call)]
    if call.tool == COMPLETE and call.about and call.about.subtask:
        return [
            _line(f"SUBTASK {call.about.subtask} -> {_END_WORDS.get(call.status, call.status)}{_call_reason(call)}")
        ]
    what = " ".join(filter(None, [call.tool, object_of(call)]))
    if call.status == "failed":
        fault = ToolResult(call.call_id, call.result or {}).fault
        return [_line(f"ERROR {what}: {fault.message if fault else ''}")]
    return [_line(f"TRIED {what} ({call.status})")]


def _call_reason(call: WorkCall) -> str:
    """Return the model's reason for the end of a subtask, or an empty text."""
    reason = call.about.reason if call.about else ""
    return f": {reason}" if reason else ""


def _line(text: str) -> str:
    return one_line(str(text), _LONGEST)


def _json(value: object) -> str:
    return f"{json.dumps(value, ensure_ascii=False, indent=2)}\n"


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole. A link that a command made since the start (`Projection.fault`) is replaced and not followed."""
    if path.parent.is_symlink():
        path.parent.unlink()
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.replace(beside, path)  # noqa: PTH105  (like all replacements of names)
