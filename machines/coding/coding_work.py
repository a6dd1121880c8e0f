"""Evidence that a subtask is completed: a result of a tool that fits what the subtask says, as far as that can be decided without a model.

Takes the text of a subtask and what tools have given since it began, says what is lacking. A subtask that begins with running or testing wants a command's
result; one that names files a result that has read, written or run one of them; any other one any result. That a result fits does not say that it is a good one. Pure.

The work on a goal as its ledger tells it: tasks and where they stand, what was done, what the model was told, what waits.

Takes entries of a run's ledger in order, keeps what follows from them; taking one more costs the same however many came before. It decides
nothing and asks nobody: the same entries give the same work, also after a crash.
"""

import json
import posixpath
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, MachineEntry, ResultEntry, ResumedEntry, RowEntry
from machines.coding.coding_tools import KEPT, TOOLS, WINDOW, Did, tool_of
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
    did_of,
    fallback,
)
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolCall, ToolResult, refused
from machines.tool_use.transcript import CallSummary, Transcript, called_of, notices_in

_RUNS = frozenset({"run", "rerun", "run_cmd", "execute", "test", "retest", "pytest", "python"})
_COMMANDS = frozenset({"run_cmd", "write_tested"})
_OWN = frozenset(tool.name for tool in TOOLS)
#: How names of files end; what else has a dot in it (`e.g.`, `os.path`, `3.12`) names none.
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
    """What a tool gave a result for: the tool, and the names of files that it has read, written or run, as far as the call or the result has them."""

    tool: str
    files: frozenset[str]


def given_of(call: CodingCall, came: CodingResult) -> ToolEvidence:
    """Return what a call was for, by its event and by that of its result."""
    words = [value for value in call.arguments.values() if isinstance(value, str) and len(value) < _LONGEST]
    words += [str(file.get("path", "")) for file in _listed(call.arguments, "files") if isinstance(file, Mapping)]
    words += [word.partition("::")[0] for word in call.argv]
    words += [change.path for change in came.changes]
    words += [str(line).partition(":")[0] for line in _listed(came.result, "matches")]
    words += [str(each.get("path", "")) for each in _listed(came.result, "files") if isinstance(each, Mapping)]
    return ToolEvidence(call.tool, frozenset(map(posixpath.basename, words)))


_LONGEST = 4_096


def _listed(result: JsonObject, name: str) -> Iterable[Any]:
    found = result.get(name)
    return found if isinstance(found, list) else ()


def lacking(subtask: str, results: Sequence[ToolEvidence]) -> str:
    """Return what is lacking to show that a subtask is completed; nothing where a result fits it."""
    if not results:
        return "no tool has given a result in this subtask"
    if _first_word(subtask) in _RUNS:
        is_shown = any(
            each.tool in _COMMANDS or each.tool not in _OWN or each.tool in _words(subtask) for each in results
        )
        return "" if is_shown else "no command has given a result in this subtask, which says to run or test something"
    files = files_named(subtask)
    names = set(map(posixpath.basename, files))
    if not files or any(names & each.files for each in results):
        return ""
    return f"no tool has read, written or run {' or '.join(files)} in this subtask"


def files_named(text: str) -> list[str]:
    """Return the files that a text names, by how their names end."""
    return [word for word in _words(text) if _is_file(word)]


def _words(text: str) -> list[str]:
    """Return the words of a text, without what ends a sentence; each once."""
    return list(dict.fromkeys(word.rstrip(".:!?") for word in _WORD.findall(text)))


def _is_file(word: str) -> bool:
    stem, dot, ending = posixpath.basename(word).rpartition(".")
    is_odd = "://" in word or "*" in word or word.lower() in _NO_FILES
    return bool(stem and dot) and ending.lower() in _ENDINGS and not is_odd


def _first_word(text: str) -> str:
    return re.sub(r"[^a-z_]", "", text.lower().partition(" ")[0])


@attrs.define
class WorkCall(CallSummary):
    """A call as the user sees it: `asked` are its arguments as the model wrote them, `about` how it is meant, once it was read."""

    asked: JsonObject = attrs.field(factory=dict)
    about: CodingCall | None = None


class Work:
    """What a ledger says of the work on a goal. `take` is given entries; everything else is read."""

    def __init__(self) -> None:
        self.taken = 0
        self.goal = ""
        self.chapters: list[Chapter] = []
        self.plan_faults: list[str] = []
        self.transcript = Transcript(_begun)
        self.calls: list[WorkCall] = []
        self.given: list[ToolEvidence] = []
        self.past: deque[Did] = deque(maxlen=KEPT)
        self.past_apart: deque[Did] = deque(maxlen=KEPT)
        self.changes: dict[str, tuple[str | None, str | None]] = {}
        self.moves: list[FileChange] = []
        self.made: set[str] = set()
        self.under_way: list[str] = []
        self.spans: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.errors: list[str] = []
        self.blocked: dict[str, str] = {}
        self.allowed: set[str] = set()
        self.probe: Probe | None = None
        self.answer = self.paused_for = ""
        self.reasons: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.asked_apart = 0
        self.usage: Counter[str] = Counter()
        self.seconds = 0.0
        self.doubts: set[str] = set()
        self._run, self._is_shown = "", False
        self._arrived: EventEntry | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Go on with further entries."""
        for entry in entries:
            self.taken += 1
            if isinstance(entry, EventEntry):
                self._arrived = entry
            elif isinstance(entry, RowEntry) and self._arrived is not None:
                self._happened(self._arrived, entry.target)  # what was refused has changed nothing
            elif isinstance(entry, ResultEntry):
                self.seconds += entry.seconds
                if not entry.has_failed and (key := self._key(entry.key)) in self.under_way:
                    self.under_way.remove(key)
                self._told(entry)
            elif isinstance(entry, ResumedEntry):
                self.doubts.update(self._key(key) for key, _ in entry.effects)
            elif isinstance(entry, EffectEntry):
                self._intended(entry)
            elif isinstance(entry, MachineEntry):
                self._run = entry.run

    def _key(self, key: str) -> str:
        """Return an effect's key as its policy sees it: parts are other runs, with keys of their own."""
        return f"{self._run}/{key}"

    def _intended(self, entry: EffectEntry) -> None:
        if entry.effect == "ask_approval" and self.transcript.current is not None:
            self.transcript.current.status = "waiting for approval"
        elif entry.effect == "run_tool":  # one call at a time: those before it are over
            self.under_way = [self._key(entry.key)]

    # -- what is read -------------------------------------------------------------------------------------------------

    @property
    def active(self) -> tuple[Chapter, Subtask] | None:
        """The task and the subtask that are worked at; None before the first and after the last."""
        for chapter in self.chapters:
            for subtask in chapter.subtasks:
                if subtask.status == "in_progress":
                    return chapter, subtask
        return None

    @property
    def next_waiting(self) -> Subtask | None:
        """The subtask that comes next."""
        waiting = (each for chapter in self.chapters for each in chapter.subtasks if each.status == "waiting")
        return next(waiting, None)

    @property
    def places(self) -> list[tuple[str, Chapter, Subtask]]:
        """Every subtask with its task, in order, by its place: `1.2` is the second one of the first task."""
        return [
            (f"{at}.{number}", chapter, subtask)
            for at, chapter in enumerate(self.chapters, 1)
            for number, subtask in enumerate(chapter.subtasks, 1)
        ]

    @property
    def unshown(self) -> list[str]:
        """The subtasks that were completed by the model's word alone."""
        return [each.description for _, _, each in self.places if each.status == "completed" and not each.shown]

    @property
    def uncompleted(self) -> list[str]:
        """The subtasks that were not completed."""
        return [each.description for _, _, each in self.places if each.status != "completed"]

    def independent_next(self) -> list[str]:
        """Return the places of what may be worked at together now: the subtasks that are left of a task that says so."""
        waiting = [(place, chapter) for place, chapter, subtask in self.places if subtask.status == "waiting"]
        if not waiting or not waiting[0][1].independent:
            return []
        return [place for place, chapter in waiting if chapter is waiting[0][1]]

    @property
    def files_written(self) -> list[str]:
        """The files that tools have written, in the order in which they first were."""
        return [path for path, (before, after) in self.changes.items() if after is not None and before != after]

    @property
    def _now_ms(self) -> int:
        return (self._arrived.at_ms if self._arrived is not None else None) or 0

    # -- events -------------------------------------------------------------------------------------------------------

    def _happened(self, entry: EventEntry, target: str) -> None:
        data = entry.data if isinstance(entry.data, dict) else {}
        match entry.event:
            case "goal" | "planned":
                self._wanted(entry, read_record(Goal, data))
            case "decomposed":
                self._planned(entry, read_record(Decomposition, data))
            case "probed":
                self.probe = read_record(Probe, data)
            case "asked" | "said" | "cut_off":
                self._model_said(entry.event, read_record(ModelAnswer, data))
            case "tool_call" | "completion" | "giving_up" | "unknown_call":
                self._called(read_record(CodingCall, data))
                self._is_shown = dict(entry.verdicts).get("has_evidence") == "passed"
            case "tool_done" | "tool_failed":
                self._came(entry.event == "tool_done", read_record(CodingResult, data))
            case "permitted" if read_record(Permission, data).always and (call := self.call) is not None:
                self.allowed.add(call.asks)
            case "run_tool.failed":
                self._interrupted()
            case "next_subtask":
                self._begin_next()
            case "apart":
                self._set_apart(read_record(Apart, data).places, together=target.endswith("delegating"))
            case "parts_done" | "parts_failed":
                self._joined(read_record(PartsDone, data))

    @property
    def call(self) -> CodingCall | None:
        """The call that is made, as it is meant."""
        return None if self.transcript.current is None else self.transcript.current.about

    def _wanted(self, entry: EventEntry, goal: Goal) -> None:
        self.goal = goal.text
        if entry.event == "planned" and dict(entry.verdicts).get("concrete") == "passed":
            self._set_tasks(goal.tasks or ())

    def _planned(self, entry: EventEntry, plan: Decomposition) -> None:
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
        self.given = []
        following = self.next_waiting
        if following is not None:
            following.status = "in_progress"
        last = (deque([*past][-WINDOW:], KEPT) for past in (self.past, self.past_apart))
        self.past, self.past_apart = last  # what an earlier subtask has read or run, this one may again

    def _set_apart(self, places: Collection[str], *, together: bool) -> None:
        """Begin subtasks together, or the first of them alone where no round is left."""
        if not together:
            self._begin_next()
            return
        for place, _, subtask in self.places:
            if place in places:
                subtask.status = "apart"

    def _add_usage(self, usage: JsonObject) -> None:
        self.usage.update({name: value for name, value in usage.items() if isinstance(value, int | float)})

    def _model_said(self, event: str, answer: ModelAnswer) -> None:
        self._add_usage(attrs.asdict(answer.usage))
        self.transcript.begin()
        known = len(self.transcript.calls)
        self.transcript.answered(answer)
        self.calls += self.transcript.calls[known:]
        if event == "said":
            self.answer = answer.content

    def _called(self, call: CodingCall) -> None:
        called = self.transcript.take_next(call.tool, call.rescues)
        if called is not None:
            called.about = call

    def _came(self, is_done: bool, came: CodingResult) -> None:  # noqa: FBT001  (one of two events)
        called, call = self.transcript.current, self.call
        if called is None or call is None:
            return
        called.status = "done" if is_done else "failed"
        self.tools[f"{called.tool} {called.status}"] += 1
        self.past.append(did_of(call, came, self._now_ms, self.transcript.answers))
        if came.changes:
            self._changed(FileChange(came.before, came.after, came.changes, came.made, self._now_ms))
        self._add_usage(came.usage)
        self.commands += [came.ran] * bool(came.ran)
        self.errors += [came.error] * bool(came.error)
        if is_done and self.active is not None:
            self.active[1].done += 1
            self.given.append(given_of(call, came))
        self.transcript.result(ToolResult(called.call_id, came.result))

    def _changed(self, move: FileChange) -> None:
        """Keep which files are others now, and between which marks of the workspace's history."""
        self.moves.append(move)
        self.made.update(move.made)
        for change in move.changes:
            before, _ = self.changes.get(change.path, (change.before, None))
            self.changes[change.path] = before, change.after
        self.span(move.before, move.after)

    def span(self, before: str, after: str) -> None:
        """Keep two marks of the workspace's history between which something was changed, with those before them where they follow on them."""
        if self.spans and self.spans[-1][1] == before:
            self.spans[-1] = self.spans[-1][0], after
        else:
            self.spans.append((before, after))

    def _joined(self, done: PartsDone) -> None:
        self.join(done.parts, done.usage)
        self.transcript.begin()
        self.transcript.say(done.note)

    def join(self, parts: Sequence[PartDone], usage: Mapping[str, float]) -> None:
        """Take what parts have done (`summary.summary_of`) as if it had been done here."""
        for part in parts:
            _, _, subtask = next(each for each in self.places if each[0] == part.place)
            subtask.status, subtask.reason, subtask.done = part.status, part.reason, part.done
            subtask.shown = part.shown
            self.reasons.update(part.reasons)
            self.transcript.rescues.update(part.rescues)
            self.tools.update(part.tools)
            self.blocked |= part.blocked
            self.commands += part.commands
            self.errors += part.errors
            self.asked_apart += part.asked
            self.calls += [WorkCall(**attrs.asdict(call, recurse=False)) for call in part.calls]
        for move in sorted((move for part in parts for move in part.moves), key=lambda move: move.at_ms):
            self._changed(move)
        self.past_apart.extend(sorted((did for part in parts for did in part.past), key=lambda did: did.at_ms))
        self._add_usage(usage)

    # -- what effects without answers tell ----------------------------------------------------------------------------

    def _told(self, entry: ResultEntry) -> None:
        """Take what such an effect gave: results of calls that were not made, a note to the model, what became of the subtask."""
        for notice in notices_in(entry, WorkNotice, REASONS):
            self.reasons[notice.reason] += 1
            self._refused(notice)
            for call_id, content in notice.results.items():
                self._not_made(notice.reason, ToolResult(call_id, content))
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

    def _not_made(self, reason: str, result: ToolResult) -> None:
        called = self.transcript.open_call(result.call_id)
        if called is not None:
            called.status = LEFT_OUT if result.is_left_out else reason
            self.transcript.result(result)

    def _refused(self, notice: WorkNotice) -> None:
        """Remember a call that was refused: the model is not to try it again."""
        call = self.call
        if notice.blocked and call is not None:
            self.blocked[call.key] = f"{call.tool} {_short(call.arguments)}: {notice.text}"
            at_ms, answer = self._now_ms, self.transcript.answers
            did = Did(call.key, tool_of(call.tool, call.argv), call.kind, refused=True, at_ms=at_ms, answer=answer)
            self.past.append(attrs.evolve(did, polled=call.polled))

    def _interrupted(self) -> None:
        """Answer the call that was under way; those behind it were not begun, and are answered where they are dropped."""
        called = self.transcript.current
        if called is not None:
            called.status = "interrupted"
            self.reasons["interrupted"] += 1
            self.transcript.result(refused(called.call_id, "interrupted", _UNKNOWN))


def _begun(call: ToolCall) -> WorkCall:
    return WorkCall(**called_of(call), asked=call.arguments or {})


_UNKNOWN = "it was cut off; nobody knows what came of it: look before you do it again"


def _short(arguments: JsonObject) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:198]}.."  # noqa: PLR2004  (the line above)


def work_of(entries: Iterable[Entry]) -> Work:
    """Return the work that a ledger tells of."""
    work = Work()
    work.take(entries)
    return work
