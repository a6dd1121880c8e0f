"""The work on a goal, read from its ledger: tasks and their status, calls, messages, changes; and the evidence for a subtask. Pure.

`Work` takes the entries of a run's ledger in order; one more entry costs the same however many precede it. Equal entries give equal work, also after a crash.
`lacking` looks for evidence that a subtask is completed: a tool result that matches its text. A subtask that says to run or test needs a command's result;
one that names files needs a result that has read, written or run one of them; any other subtask needs any result. A match does not prove quality.
"""

import json
import posixpath
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, MachineEntry, ResultEntry, ResumedEntry, RowEntry
from machines.coding.coding_tools import MEMORY, TOOLS, WINDOW, CallAction, tool_of
from machines.coding.task_plan import (
    REASONS,
    Apart,
    Chapter,
    CodingCall,
    CodingResult,
    Decomposition,
    FileChange,
    Goal,
    PartDone,
    PartsDone,
    Permission,
    Probe,
    Subtask,
    Task,
    WorkNotice,
    action_of,
    fallback,
)
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolCall, ToolResult, fault_result
from machines.tool_use.transcript import CallSummary, Transcript, call_fields, notices_in

_RUNS = frozenset({"run", "rerun", "run_cmd", "execute", "test", "retest", "pytest", "python"})
_COMMANDS = frozenset({"run_cmd", "write_tested"})
_OWN = frozenset(tool.name for tool in TOOLS)
#: Endings of files; other words with a dot (`e.g.`, `os.path`, `3.12`) are not files.
_ENDINGS = frozenset(
    [
        "bat",
        "c",
        "cc",
        "cfg",
        "cpp",
        "cs",
        "css",
        "csv",
        "db",
        "dockerfile",
        "go",
        "h",
        "hpp",
        "htm",
        "html",
        "ini",
        "ipynb",
        "java",
        "js",
        "json",
        "jsx",
        "kt",
        "lock",
        "log",
        "lua",
        "md",
        "mjs",
        "php",
        "pl",
        "png",
        "proto",
        "ps1",
        "py",
        "pyi",
        "r",
        "rb",
        "rs",
        "rst",
        "sh",
        "sql",
        "sqlite",
        "svg",
        "swift",
        "tex",
        "toml",
        "ts",
        "tsx",
        "txt",
        "vue",
        "xml",
        "yaml",
        "yml",
    ]
)
_NO_FILES = frozenset({"d3.js", "express.js", "next.js", "node.js", "nuxt.js", "react.js", "three.js", "vue.js"})
_WORD = re.compile(r"[^\s\"'`(),;<>\[\]{}|=]+")


@attrs.frozen
class ToolEvidence:
    """Evidence from a call: the tool, and the names of files that it read, wrote or ran, according to the call and the result."""

    tool: str
    files: frozenset[str]


def evidence_of(call: CodingCall, result: CodingResult) -> ToolEvidence:
    """Return the evidence of a call and its result."""
    words = [value for value in call.arguments.values() if isinstance(value, str) and len(value) < _LONGEST]
    words += [str(file.get("path", "")) for file in _list_in(call.arguments, "files") if isinstance(file, Mapping)]
    words += [word.partition("::")[0] for word in call.argv]
    words += [change.path for change in result.changes]
    words += [str(line).partition(":")[0] for line in _list_in(result.result, "matches")]
    words += [str(each.get("path", "")) for each in _list_in(result.result, "files") if isinstance(each, Mapping)]
    return ToolEvidence(call.tool, frozenset(map(posixpath.basename, words)))


_LONGEST = 4_096


def _list_in(result: JsonObject, name: str) -> Iterable[Any]:
    value = result.get(name)
    return value if isinstance(value, list) else ()


def missing_evidence(subtask: str, results: Sequence[ToolEvidence]) -> str:
    """Return which evidence for a subtask is missing, or an empty text when a result matches it."""
    if not results:
        return "there is no tool result in this subtask"
    if _first_word(subtask) in _RUNS:
        is_shown = any(
            each.tool in _COMMANDS or each.tool not in _OWN or each.tool in _words(subtask) for each in results
        )
        return "" if is_shown else "this subtask says to run or test something, but it has no result of a command"
    files = files_in(subtask)
    names = set(map(posixpath.basename, files))
    if not files or any(names & each.files for each in results):
        return ""
    return f"no tool has read, written or run {' or '.join(files)} in this subtask"


def files_in(text: str) -> list[str]:
    """Return the files that a text names, recognised by their endings."""
    return [word for word in _words(text) if _is_file(word)]


def _words(text: str) -> list[str]:
    """Return the words of a text without final punctuation, each once."""
    return list(dict.fromkeys(word.rstrip(".:!?") for word in _WORD.findall(text)))


def _is_file(word: str) -> bool:
    stem, dot, ending = posixpath.basename(word).rpartition(".")
    is_odd = "://" in word or "*" in word or word.lower() in _NO_FILES
    return bool(stem and dot) and ending.lower() in _ENDINGS and not is_odd


def _first_word(text: str) -> str:
    return re.sub(r"[^a-z_]", "", text.lower().partition(" ")[0])


@attrs.define
class WorkCall(CallSummary):
    """A call as the user sees it. `asked` are the model's own arguments; `about` is the call as the agent reads it, or None before that."""

    asked: JsonObject = attrs.field(factory=dict)
    about: CodingCall | None = None


class Work:
    """The work on a goal, read from a ledger. `take` reads entries; everything else is the result."""

    def __init__(self) -> None:
        self.count = 0
        self.goal = ""
        self.chapters: list[Chapter] = []
        self.plan_faults: list[str] = []
        self.transcript = Transcript(_work_call)
        self.calls: list[WorkCall] = []
        self.evidence: list[ToolEvidence] = []
        self.past: deque[CallAction] = deque(maxlen=MEMORY)
        self.past_apart: deque[CallAction] = deque(maxlen=MEMORY)
        self.changes: dict[str, tuple[str | None, str | None]] = {}
        self.moves: list[FileChange] = []
        self.new_files: set[str] = set()
        self.under_way: list[str] = []
        #: The calls that run, by the keys of their effects.
        self.calls_by_key: dict[str, WorkCall] = {}
        self.spans: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.errors: list[str] = []
        self.blocked_calls: dict[str, str] = {}
        self.permissions: set[str] = set()
        self.probe: Probe | None = None
        self.answer = self.paused_for = ""
        self.reasons: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.answers_apart = 0
        self.usage: Counter[str] = Counter()
        self.seconds = 0.0
        self.doubts: set[str] = set()
        self._run, self._is_shown = "", False
        self._ends: dict[str, _CallEnd] = {}
        self._last_event: EventEntry | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Read further entries."""
        for entry in entries:
            self.count += 1
            if isinstance(entry, EventEntry):
                self._last_event = entry
            elif isinstance(entry, RowEntry) and self._last_event is not None:
                self._take_event(self._last_event, entry.target)  # a refused event changes nothing
            elif isinstance(entry, ResultEntry):
                self.seconds += entry.seconds
                if not entry.has_failed and (key := self._key(entry.key)) in self.under_way:
                    self.under_way.remove(key)
                self._take_notices(entry)
            elif isinstance(entry, ResumedEntry):
                self.doubts.update(self._key(key) for key, _ in entry.effects)
            elif isinstance(entry, EffectEntry):
                self._take_effect(entry)
            elif isinstance(entry, MachineEntry):
                self._run = entry.run

    def _key(self, key: str) -> str:
        """Return an effect's key as its policy sees it, with the run: parts have keys of their own."""
        return f"{self._run}/{key}"

    def _take_effect(self, entry: EffectEntry) -> None:
        call = self.transcript.current
        if call is None:
            return
        if entry.effect == "ask_approval":
            call.status = "waiting for approval"
        elif entry.effect == "run_tool":
            key, call.status = self._key(entry.key), "running"
            self.under_way.append(key)
            self.calls_by_key[key] = call
            self.transcript.current = None
        elif entry.effect == "hold_call":
            if call.about is not None:
                self.transcript.rescues.subtract(call.about.rescues)
            call.about = None
            self.transcript.put_back()

    # --- facts ---

    @property
    def active(self) -> tuple[Chapter, Subtask] | None:
        """The current task and subtask, or None before the first and after the last."""
        for chapter in self.chapters:
            for subtask in chapter.subtasks:
                if subtask.status == "in_progress":
                    return chapter, subtask
        return None

    @property
    def next_waiting(self) -> Subtask | None:
        """The next subtask, or None."""
        subtasks = (each for chapter in self.chapters for each in chapter.subtasks if each.status == "waiting")
        return next(subtasks, None)

    @property
    def places(self) -> list[tuple[str, Chapter, Subtask]]:
        """All subtasks with their tasks, in order, each with its place: `1.2` is the second one of the first task."""
        return [
            (f"{at}.{number}", chapter, subtask)
            for at, chapter in enumerate(self.chapters, 1)
            for number, subtask in enumerate(chapter.subtasks, 1)
        ]

    @property
    def unshown(self) -> list[str]:
        """The subtasks that the model completed without evidence."""
        return [each.description for _, _, each in self.places if each.status == "completed" and not each.shown]

    @property
    def subtasks_left(self) -> list[str]:
        """The subtasks that were not completed."""
        return [each.description for _, _, each in self.places if each.status != "completed"]

    def independent_next(self) -> list[str]:
        """Return the places of the subtasks that may run at the same time now: those left of an independent task."""
        places = [(place, chapter) for place, chapter, subtask in self.places if subtask.status == "waiting"]
        if not places or not places[0][1].independent:
            return []
        return [place for place, chapter in places if chapter is places[0][1]]

    @property
    def files_written(self) -> list[str]:
        """The files that tools have written, in the order of the first write."""
        return [path for path, (before, after) in self.changes.items() if after is not None and before != after]

    @property
    def unread_actions(self) -> tuple[CallAction, ...]:
        """The calls that run, or have ended before an earlier one, in the order in which the model asked; without their results."""
        begun_ids = {call.call_id for call in self.calls_by_key.values()} | set(self._ends)
        calls = (call.about for call in self.transcript.open_calls() if call.call_id in begun_ids)
        at_ms, answer = self._now_ms, self.transcript.answers
        return tuple(
            CallAction(call.key, tool_of(call.tool, call.argv), call.kind, at_ms=at_ms, answer=answer)
            for call in calls
            if call is not None
        )

    @property
    def _now_ms(self) -> int:
        return (self._last_event.at_ms if self._last_event is not None else None) or 0

    # --- events ---

    def _take_event(self, entry: EventEntry, target: str) -> None:
        data = entry.data if isinstance(entry.data, dict) else {}
        match entry.event:
            case "goal" | "planned":
                self._take_goal(entry, read_record(Goal, data))
            case "decomposed":
                self._take_plan(entry, read_record(Decomposition, data))
            case "probed":
                self.probe = read_record(Probe, data)
            case "asked" | "said" | "cut_off":
                self._take_answer(entry.event, read_record(ModelAnswer, data))
            case "tool_call" | "completion" | "giving_up" | "unknown_call":
                self._take_call(read_record(CodingCall, data))
                self._is_shown = dict(entry.verdicts).get("has_evidence") == "passed"
            case "tool_done" | "tool_failed":
                self._take_result(entry.event == "tool_done", read_record(CodingResult, data))
            case "permitted" if read_record(Permission, data).always and (call := self.call) is not None:
                self.permissions.add(call.asks)
            case "run_tool.failed" | "next_call.failed":
                self._interrupt_calls()
            case "next_subtask":
                self._begin_next()
            case "apart":
                self._set_apart(read_record(Apart, data).places, together=target.endswith("delegating"))
            case "parts_done" | "parts_failed":
                self._take_parts(read_record(PartsDone, data))

    @property
    def call(self) -> CodingCall | None:
        """The call that was taken last, or None when it runs by itself or has a result."""
        return None if self.transcript.current is None else self.transcript.current.about

    def _take_goal(self, entry: EventEntry, goal: Goal) -> None:
        self.goal = goal.text
        if entry.event == "planned" and dict(entry.verdicts).get("concrete") == "passed":
            self._set_tasks(goal.tasks or ())

    def _take_plan(self, entry: EventEntry, plan: Decomposition) -> None:
        self.transcript.count(plan)
        self._add_usage(attrs.asdict(plan.usage))
        if dict(entry.verdicts).get("concrete") == "passed":
            self._set_tasks(plan.tasks)
        else:
            self.plan_faults = list(plan.faults)

    def _set_tasks(self, tasks: Iterable[Task]) -> None:
        self.chapters = [
            Chapter(task.description, [Subtask(each) for each in task.subtasks], task.independent) for task in tasks
        ]

    def _begin_next(self) -> None:
        self.evidence = []
        following = self.next_waiting
        if following is not None:
            following.status = "in_progress"
        last = (deque([*past][-WINDOW:], MEMORY) for past in (self.past, self.past_apart))
        self.past, self.past_apart = last  # a new subtask may repeat older calls

    def _set_apart(self, places: Collection[str], *, together: bool) -> None:
        """Start subtasks at the same time, or only the first when there is no round left."""
        if not together:
            self._begin_next()
            return
        for place, _, subtask in self.places:
            if place in places:
                subtask.status = "apart"

    def _add_usage(self, usage: JsonObject) -> None:
        self.usage.update({name: value for name, value in usage.items() if isinstance(value, int | float)})

    def _take_answer(self, event: str, answer: ModelAnswer) -> None:
        self._add_usage(attrs.asdict(answer.usage))
        self.transcript.begin()
        count = len(self.transcript.calls)
        self.transcript.take_answer(answer)
        self.calls += self.transcript.calls[count:]
        if event == "said":
            self.answer = answer.content

    def _take_call(self, call: CodingCall) -> None:
        work_call = self.transcript.take_next(call.tool, call.rescues)
        if work_call is not None:
            work_call.about = call

    def _take_result(self, is_done: bool, result: CodingResult) -> None:  # noqa: FBT001  (one of two events)
        work_call = self.transcript.open_call(result.call_id)
        if work_call is None:
            return
        work_call.status = "done" if is_done else "failed"
        self.tools[f"{work_call.tool} {work_call.status}"] += 1
        self._ends[work_call.call_id] = _CallEnd(result, self._now_ms, is_done)
        self._add_result(ToolResult(work_call.call_id, result.result))

    def _add_result(self, result: ToolResult) -> None:
        """Add the result of a call. What calls have found counts in the order in which the model asked, whichever ended first."""
        self.calls_by_key = {key: each for key, each in self.calls_by_key.items() if each.call_id != result.call_id}
        for call in self.transcript.result(result):
            end = self._ends.pop(call.call_id, None)
            if end is not None and call.about is not None:
                self._take_end(call.about, end)

    def _take_end(self, call: CodingCall, end: "_CallEnd") -> None:
        result = end.result
        self.past.append(action_of(call, result, end.at_ms, self.transcript.answers))
        if result.changes:
            self._add_change(FileChange(result.before, result.after, result.changes, result.made, end.at_ms))
        self._add_usage(result.usage)
        self.commands += [result.ran] * bool(result.ran)
        self.errors += [result.error] * bool(result.error)
        if end.is_done and self.active is not None:
            self.active[1].done += 1
            self.evidence.append(evidence_of(call, result))

    def _add_change(self, move: FileChange) -> None:
        """Record the changed files, and the marks of the workspace's history around the change."""
        self.moves.append(move)
        self.new_files.update(move.made)
        for change in move.changes:
            before, _ = self.changes.get(change.path, (change.before, None))
            self.changes[change.path] = before, change.after
        self.span(move.before, move.after)

    def span(self, before: str, after: str) -> None:
        """Record two marks of the workspace's history around a change; a change that starts at the last mark extends the last span."""
        if self.spans and self.spans[-1][1] == before:
            self.spans[-1] = self.spans[-1][0], after
        else:
            self.spans.append((before, after))

    def _take_parts(self, parts: PartsDone) -> None:
        self.join(parts.parts, parts.usage)
        self.transcript.begin()
        self.transcript.say(parts.note)

    def join(self, parts: Sequence[PartDone], usage: Mapping[str, float]) -> None:
        """Add the work of parts (`workspace_view.summary_of`) as if it had been done here."""
        for part in parts:
            _, _, subtask = next(each for each in self.places if each[0] == part.place)
            subtask.status, subtask.reason, subtask.done = part.status, part.reason, part.done
            subtask.shown = part.shown
            self.reasons.update(part.reasons)
            self.transcript.rescues.update(part.rescues)
            self.tools.update(part.tools)
            self.blocked_calls |= part.blocked
            self.commands += part.commands
            self.errors += part.errors
            self.answers_apart += part.asked
            self.calls += [WorkCall(**attrs.asdict(call, recurse=False)) for call in part.calls]
        for move in sorted((move for part in parts for move in part.moves), key=lambda move: move.at_ms):
            self._add_change(move)
        self.past_apart.extend(
            sorted((action for part in parts for action in part.past), key=lambda action: action.at_ms)
        )
        self._add_usage(usage)

    # --- notices ---

    def _take_notices(self, entry: ResultEntry) -> None:
        """Read notices: results of calls that were not made, notes to the model, the status of the subtask."""
        for notice in notices_in(entry, WorkNotice, REASONS):
            self.reasons[notice.reason] += 1
            self._record_refusal(notice)
            for call_id, content in notice.results.items():
                self._skip_call(notice.reason, ToolResult(call_id, content))
            if notice.drops:
                self.transcript.drop()
            if notice.subtask and self.active is not None:
                _, subtask = self.active
                subtask.status, subtask.reason = notice.subtask, notice.text
                subtask.shown = notice.subtask == "completed" and self._is_shown
            if notice.tasks:
                self._set_tasks(fallback(self.goal))
            if notice.reason == "paused":
                self.paused_for = notice.text
            if notice.note:
                self.transcript.say(notice.note)

    def _skip_call(self, reason: str, result: ToolResult) -> None:
        call = self.transcript.open_call(result.call_id)
        if call is not None:
            call.status = LEFT_OUT if result.is_left_out else reason
            self._add_result(result)

    def _record_refusal(self, notice: WorkNotice) -> None:
        """Record a refused call, so that the model does not try it again."""
        call = self.call
        if notice.blocked and call is not None:
            self.blocked_calls[call.key] = f"{call.tool} {_short(call.arguments)}: {notice.text}"
            at_ms, answer = self._now_ms, self.transcript.answers
            action = CallAction(
                call.key, tool_of(call.tool, call.argv), call.kind, refused=True, at_ms=at_ms, answer=answer
            )
            self.past.append(attrs.evolve(action, polled=call.polled))

    def _interrupt_calls(self) -> None:
        """Add results for the interrupted calls. The calls after them never started; they get results when the queue is dropped."""
        for call in tuple(self.calls_by_key.values()):
            call.status = "interrupted"
            self.reasons["interrupted"] += 1
            self._add_result(fault_result(call.call_id, "interrupted", _UNKNOWN))


@attrs.frozen
class _CallEnd:
    """The result of a call, until the model reads it: those of earlier calls come first."""

    result: CodingResult
    at_ms: int
    is_done: bool


def _work_call(call: ToolCall) -> WorkCall:
    return WorkCall(**call_fields(call), asked=call.arguments or {})


_UNKNOWN = "the call was interrupted, and its effects are unknown: check them before you repeat it"


def _short(arguments: JsonObject) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:198]}.."  # noqa: PLR2004  (the line above)


def work_of(entries: Iterable[Entry]) -> Work:
    """Return the work in a ledger."""
    work = Work()
    work.take(entries)
    return work
